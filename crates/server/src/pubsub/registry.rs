//! The shared registry: for each name how many subscribers which worker has.
//!
//! Channels are spread over [`SHARDS`] locks by hash. Patterns are one list behind a readers-writer lock: publishers match a
//! snapshot of it outside of the lock, and look under the lock whether it still holds. The list is changed in place unless
//! a publisher has a snapshot of it. What is done under a lock takes constant time, apart from that: a list that changed
//! while it was matched is matched again under the readers' lock.
//!
//! Dropped: per-subscriber entries here. Counts per worker are all that a publisher needs, and the rest stays unshared.

use crate::glob;
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};

/// Locks of a registry of channels; a power of two.
const SHARDS: usize = 64;

/// How many subscribers a name has, by worker.
#[derive(Debug, Clone, Default)]
pub struct Audience(Vec<(u16, usize)>);

impl Audience {
    fn enter(&mut self, worker: u16) {
        match self.0.iter_mut().find(|(known, _)| *known == worker) {
            Some((_, count)) => *count += 1,
            None => self.0.push((worker, 1)),
        }
    }

    fn leave(&mut self, worker: u16) {
        let at = self.0.iter().position(|(known, _)| *known == worker).expect("it was counted in");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The workers that have any.
    pub fn workers(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().map(|(worker, _)| *worker)
    }
}

/// The channels of one kind.
#[derive(Debug, Default)]
pub struct Registry {
    shards: Shards,
    names: AtomicUsize,
    hasher: RandomState,
}

#[derive(Debug)]
struct Shards([Mutex<Shard>; SHARDS]);

impl Default for Shards {
    fn default() -> Shards {
        Shards(std::array::from_fn(|_| Mutex::default()))
    }
}

/// One lock's share of the channels.
#[derive(Debug, Default)]
pub struct Shard {
    /// The number of the next publication.
    next: u64,
    channels: HashMap<Arc<[u8]>, Audience>,
}

impl Shard {
    /// Who listens to a channel.
    pub fn audience(&self, channel: &[u8]) -> Option<&Audience> {
        self.channels.get(channel)
    }

    /// A number for a publication.
    pub fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Registry {
    /// The lock of a channel.
    pub fn lock(&self, channel: &[u8]) -> MutexGuard<'_, Shard> {
        let hash = usize::try_from(self.hasher.hash_one(channel) % SHARDS as u64).expect("below the number of shards");
        self.shards.0[hash].lock().expect("the registry does not panic")
    }

    pub(super) fn enter(&self, worker: u16, name: &Arc<[u8]>) -> u64 {
        let mut shard = self.lock(name);
        let audience = match shard.channels.entry(Arc::clone(name)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.names.fetch_add(1, SeqCst);
                entry.insert(Audience::default())
            }
        };
        audience.enter(worker);
        shard.next
    }

    pub(super) fn leave(&self, worker: u16, name: &[u8]) -> u64 {
        let mut shard = self.lock(name);
        let audience = shard.channels.get_mut(name).expect("it was counted in");
        audience.leave(worker);
        if audience.0.is_empty() {
            shard.channels.remove(name);
            self.names.fetch_sub(1, SeqCst);
        }
        shard.next
    }

    pub(super) fn subscribers(&self, channel: &[u8]) -> usize {
        self.lock(channel).audience(channel).map_or(0, Audience::total)
    }

    pub(super) fn each(&self, mut visit: impl FnMut(&[u8])) {
        for shard in &self.shards.0 {
            shard.lock().expect("the registry does not panic").channels.keys().for_each(|name| visit(name));
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.names.load(SeqCst)
    }
}

/// The patterns.
#[derive(Debug, Default)]
pub struct Patterns {
    locked: RwLock<PatternList>,
    len: AtomicUsize,
}

/// A pattern and who listens to it.
type Listed = (Arc<[u8]>, Arc<Audience>);

/// The patterns, as their lock guards them.
#[derive(Debug, Default)]
pub struct PatternList {
    /// Changes with every subscription; a publication carries the one it saw.
    version: u64,
    list: Arc<Vec<Listed>>,
    places: HashMap<Arc<[u8]>, usize>,
}

/// The patterns that match one channel.
#[derive(Debug, Default)]
pub struct Matching {
    /// The version of the list that was matched.
    pub version: u64,
    found: Vec<Listed>,
}

impl Matching {
    /// None matches.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Subscribers of all that match.
    pub fn receivers(&self) -> usize {
        self.audiences().map(Audience::total).sum()
    }

    /// Who listens to each of them.
    pub fn audiences(&self) -> impl Iterator<Item = &Audience> {
        self.found.iter().map(|(_, audience)| &**audience)
    }

    /// Version and names.
    pub fn into_names(self) -> (u64, Box<[Arc<[u8]>]>) {
        (self.version, self.found.into_iter().map(|(name, _)| name).collect())
    }
}

fn matching(list: &[Listed], version: u64, channel: &[u8]) -> Matching {
    let found = list.iter().filter(|(pattern, _)| glob::matches(pattern, channel)).cloned().collect();
    Matching { version, found }
}

impl PatternList {
    /// The version of the list.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Those that match.
    pub fn matching(&self, channel: &[u8]) -> Matching {
        matching(&self.list, self.version, channel)
    }
}

impl Patterns {
    /// Keeps subscriptions from changing.
    pub fn read(&self) -> RwLockReadGuard<'_, PatternList> {
        self.locked.read().expect("the registry does not panic")
    }

    /// Those that match now; the lock is held only to take a snapshot.
    pub fn matching(&self, channel: &[u8]) -> Matching {
        let (list, version) = {
            let locked = self.read();
            (Arc::clone(&locked.list), locked.version)
        };
        matching(&list, version, channel)
    }

    pub(super) fn enter(&self, worker: u16, name: &Arc<[u8]>) -> u64 {
        let mut locked = self.locked.write().expect("the registry does not panic");
        let PatternList { version, list, places } = &mut *locked;
        let list = Arc::make_mut(list);
        let place = *places.entry(Arc::clone(name)).or_insert_with(|| {
            list.push((Arc::clone(name), Arc::default()));
            self.len.fetch_add(1, SeqCst);
            list.len() - 1
        });
        Arc::make_mut(&mut list[place].1).enter(worker);
        *version += 1;
        *version
    }

    pub(super) fn leave(&self, worker: u16, name: &[u8]) -> u64 {
        let mut locked = self.locked.write().expect("the registry does not panic");
        let PatternList { version, list, places } = &mut *locked;
        let list = Arc::make_mut(list);
        let place = places[name];
        let audience = Arc::make_mut(&mut list[place].1);
        audience.leave(worker);
        if audience.0.is_empty() {
            places.remove(name);
            list.swap_remove(place);
            if let Some((moved, _)) = list.get(place) {
                places.insert(Arc::clone(moved), place);
            }
            self.len.fetch_sub(1, SeqCst);
        }
        *version += 1;
        *version
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<[u8]> {
        text.as_bytes().into()
    }

    #[test]
    fn a_channel_lasts_as_long_as_its_subscribers() {
        let registry = Registry::default();
        assert_eq!(registry.enter(0, &name("a")), 0);
        assert_eq!(registry.lock(b"a").next_number(), 0);
        assert_eq!(registry.enter(3, &name("a")), 1, "the next publication is number 1");
        assert_eq!(registry.enter(3, &name("a")), 1);
        assert_eq!((registry.subscribers(b"a"), registry.len()), (3, 1));
        let workers: Vec<u16> = registry.lock(b"a").audience(b"a").expect("there are some").workers().collect();
        assert_eq!(workers, [0, 3]);
        registry.leave(3, b"a");
        registry.leave(0, b"a");
        assert_eq!((registry.subscribers(b"a"), registry.len()), (1, 1));
        registry.leave(3, b"a");
        assert_eq!((registry.subscribers(b"a"), registry.len()), (0, 0));
    }

    #[test]
    fn patterns_keep_their_places_when_others_go() {
        let patterns = Patterns::default();
        for pattern in ["a*", "b*", "*", "a?"] {
            patterns.enter(1, &name(pattern));
        }
        patterns.enter(2, &name("a*"));
        let before = patterns.matching(b"ab");
        assert_eq!(before.receivers(), 4);
        let version = patterns.leave(1, b"b*");
        assert_eq!((version, patterns.read().version(), before.version), (6, 6, 5));
        patterns.leave(1, b"a*");
        assert_eq!((patterns.matching(b"ab").receivers(), patterns.matching(b"b").receivers()), (3, 1));
        for (worker, pattern) in [(1, "*"), (1, "a?"), (2, "a*")] {
            patterns.leave(worker, pattern.as_bytes());
        }
        assert_eq!((patterns.len(), patterns.matching(b"ab").is_empty()), (0, true));
        assert_eq!(before.receivers(), 4, "a snapshot stays as it was");
    }
}
