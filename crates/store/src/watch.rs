//! Who watches which keys of a shard: WATCH's side of a change.
//!
//! A watching session owns one flag and leaves a weak reference to it at each key that it watches. A change of the key sets the
//! flag, under the shard's lock, and forgets the watch: a flag is never cleared, its session takes a new one. A session that ends
//! its watches, or its connection, just drops the flag; the weak references left behind are found when the watches have doubled
//! since they were last looked for, so that there are never more than about twice as many as live.
//!
//! Dropped: a version counter for each key (8 bytes in every entry, and a removed key has no entry), and one list of all watches
//! (every write of every worker would meet there).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::hash::Hash;
use crate::stamps::TakeHash;

/// The watches of one shard's keys, in all databases.
#[derive(Default)]
pub(crate) struct Watchers {
    keys: HashMap<WatchedKey, Vec<Watcher>, BuildHasherDefault<TakeHash>>,
    /// Watches, ended ones included.
    len: usize,
    /// Watches that were alive when ended ones were last looked for.
    alive: usize,
}

/// A key, but for two that have one hash.
#[derive(PartialEq, Eq)]
struct WatchedKey {
    db: usize,
    hash: u64,
}

impl std::hash::Hash for WatchedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The key's hash is keyed and well mixed already; databases are few.
        state.write_u64(self.hash);
    }
}

struct Watcher {
    name: Arc<[u8]>,
    flag: Weak<AtomicBool>,
}

impl Watchers {
    /// So many watches are not worth a search for ended ones.
    const FEW: usize = 16;

    pub(crate) fn add(&mut self, db: usize, hash: Hash, name: &Arc<[u8]>, flag: &Arc<AtomicBool>) {
        if self.len >= 2 * self.alive.max(Self::FEW / 2) {
            self.purge();
        }
        let watcher = Watcher { name: Arc::clone(name), flag: Arc::downgrade(flag) };
        self.keys.entry(WatchedKey { db, hash: hash.0 }).or_default().push(watcher);
        self.len += 1;
    }

    /// Sets the flags of those who watch the key, and forgets them; true if no watch is left.
    pub(crate) fn tell(&mut self, db: usize, hash: Hash, name: &[u8]) -> bool {
        self.retain(db, hash, |watcher| {
            let concerned = *watcher.name == *name;
            if concerned && let Some(flag) = watcher.flag.upgrade() {
                // Its owner reads it under this shard's lock, or behind the closed gate.
                flag.store(true, Ordering::Relaxed);
            }
            !concerned
        })
    }

    /// Forgets this flag's watch of the key; true if no watch is left.
    pub(crate) fn remove(&mut self, db: usize, hash: Hash, flag: &Arc<AtomicBool>) -> bool {
        self.retain(db, hash, |watcher| !std::ptr::eq(watcher.flag.as_ptr(), Arc::as_ptr(flag)))
    }

    /// Whether there are no watches, ended ones included.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn keys(&self) -> Vec<(usize, Hash, Arc<[u8]>)> {
        let keys = self.keys.iter().flat_map(|(key, watchers)| watchers.iter().map(move |watcher| (key, watcher)));
        keys.map(|(key, watcher)| (key.db, Hash(key.hash), Arc::clone(&watcher.name))).collect()
    }

    fn retain(&mut self, db: usize, hash: Hash, keep: impl FnMut(&Watcher) -> bool) -> bool {
        if let Entry::Occupied(mut found) = self.keys.entry(WatchedKey { db, hash: hash.0 }) {
            let before = found.get().len();
            found.get_mut().retain(keep);
            self.len -= before - found.get().len();
            if found.get().is_empty() {
                found.remove();
            }
        }
        self.len == 0
    }

    fn purge(&mut self) {
        self.keys.retain(|_, watchers| {
            watchers.retain(|watcher| watcher.flag.strong_count() > 0);
            !watchers.is_empty()
        });
        self.len = self.keys.values().map(Vec::len).sum();
        self.alive = self.len;
        self.keys.shrink_to(2 * self.keys.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<[u8]> {
        Arc::from(text.as_bytes())
    }

    fn flag() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(false))
    }

    fn is_set(flag: &Arc<AtomicBool>) -> bool {
        flag.load(Ordering::Relaxed)
    }

    #[test]
    fn a_change_tells_those_who_watch_that_key_in_that_database() {
        let (mut watchers, [first, second, other, elsewhere]) = (Watchers::default(), [(); 4].map(|()| flag()));
        watchers.add(0, Hash(1), &name("k"), &first);
        watchers.add(0, Hash(1), &name("k"), &second);
        watchers.add(1, Hash(1), &name("k"), &elsewhere);
        // Another key that happens to have the same hash.
        watchers.add(0, Hash(1), &name("l"), &other);
        assert!(!watchers.tell(0, Hash(1), b"k"));
        assert!(is_set(&first) && is_set(&second) && !is_set(&other) && !is_set(&elsewhere));
        assert!(!watchers.tell(1, Hash(1), b"k"));
        assert!(watchers.tell(0, Hash(1), b"l"), "no watch is left");
        assert!(is_set(&other) && is_set(&elsewhere));
    }

    #[test]
    fn watches_end_one_by_one_or_with_their_flag() {
        let (mut watchers, kept, dropped) = (Watchers::default(), flag(), flag());
        watchers.add(0, Hash(1), &name("k"), &kept);
        watchers.add(0, Hash(1), &name("k"), &dropped);
        assert!(!watchers.remove(0, Hash(1), &dropped));
        watchers.add(0, Hash(2), &name("l"), &dropped);
        drop(dropped);
        watchers.tell(0, Hash(2), b"l");
        assert!(!is_set(&kept));
        assert!(watchers.remove(0, Hash(1), &kept));
        assert!(watchers.keys().is_empty() && watchers.len == 0);
    }

    #[test]
    fn what_dropped_flags_leave_behind_is_bounded() {
        let mut watchers = Watchers::default();
        let living: Vec<_> = (0..100).map(|_| flag()).collect();
        for (i, flag) in living.iter().enumerate() {
            watchers.add(0, Hash(i as u64), &name(&i.to_string()), flag);
        }
        for i in 0..100_000_u64 {
            watchers.add(0, Hash(1000 + i), &name("gone"), &flag());
            assert!(watchers.len <= 2 * (living.len() + Watchers::FEW), "{} watches, 100 of them alive", watchers.len);
        }
        assert!(living.iter().all(|flag| !is_set(flag)));
        watchers.tell(0, Hash(7), b"7");
        assert!(is_set(&living[7]));
    }
}
