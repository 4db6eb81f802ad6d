//! Who has read which keys of a shard, and keeps a copy: they are told when a key changes (client-side caching).
//!
//! Kept with the key's shard, under its lock: reading a key and being listed for it is one critical section, and so is changing it
//! and taking the list. A key's name stands for it in all databases, as in Redis. A list is forgotten when it was told. Readers that
//! no longer read are found when their list would grow, so that each list is at most about twice as long as it has to be; the number
//! of keys is bounded by whoever owns the keyspace ([`ShardState::forget_readers`](crate::ShardState::forget_readers)).
//!
//! Dropped: one table for the whole server (each read of each worker would meet there).

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::hash::Hash;
use crate::stamps::TakeHash;

/// Somebody who keeps copies of what was read.
pub trait Reader: Any + Send + Sync {
    /// Whether it still wants to know. Once false it stays false.
    fn is_reading(&self) -> bool;
}

/// How many keys, and readers of keys, came or went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadersChange {
    /// Keys.
    pub keys: isize,
    /// Readers of keys.
    pub items: isize,
}

/// A key that was read, and by whom.
pub type ReadKey = (Arc<[u8]>, Arc<dyn Reader>);

/// The readers of one shard's keys.
#[derive(Default)]
pub struct Readers {
    keys: HashMap<u64, Vec<ReadKey>, BuildHasherDefault<TakeHash>>,
}

impl Readers {
    /// Keys that are remembered.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Lists a reader of a key.
    pub(crate) fn add(&mut self, hash: Hash, name: &[u8], reader: &Arc<dyn Reader>) -> ReadersChange {
        let mut change = ReadersChange::default();
        let list = match self.keys.entry(hash.0) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                change.keys = 1;
                entry.insert(Vec::new())
            }
        };
        if list.iter().any(|(known, listed)| is_same(listed, reader) && **known == *name) {
            return change;
        }
        let before = list.len();
        if before == list.capacity() {
            list.retain(|(_, reader)| reader.is_reading());
        }
        let shared = list.iter().find(|(known, _)| **known == *name).map(|(known, _)| Arc::clone(known));
        list.push((shared.unwrap_or_else(|| Arc::from(name)), Arc::clone(reader)));
        change.items = difference(list.len(), before);
        change
    }

    /// Takes the readers of a key.
    pub(crate) fn take(&mut self, hash: Hash, name: &[u8]) -> (Vec<ReadKey>, ReadersChange) {
        let Entry::Occupied(mut entry) = self.keys.entry(hash.0) else { return Default::default() };
        let list = entry.get_mut();
        // Another key may have the same hash.
        let taken: Vec<_> = list.extract_if(.., |(known, _)| **known == *name).collect();
        let gone = list.is_empty();
        if gone {
            entry.remove();
        }
        let change = ReadersChange { keys: -isize::from(gone), items: difference(0, taken.len()) };
        (taken, change)
    }

    /// Takes the readers of up to `most` keys, whichever come first.
    pub(crate) fn take_some(&mut self, most: usize) -> (Vec<ReadKey>, ReadersChange) {
        let hashes: Vec<u64> = self.keys.keys().take(most).copied().collect();
        let taken: Vec<_> = hashes.iter().filter_map(|hash| self.keys.remove(hash)).flatten().collect();
        if self.keys.capacity() > 4 * self.keys.len() {
            self.keys.shrink_to(2 * self.keys.len());
        }
        let change = ReadersChange { keys: difference(0, hashes.len()), items: difference(0, taken.len()) };
        (taken, change)
    }

    /// What taking all of it changes.
    pub(crate) fn whole(&self) -> ReadersChange {
        let items = self.keys.values().map(Vec::len).sum();
        ReadersChange { keys: difference(0, self.keys.len()), items: difference(0, items) }
    }
}

fn is_same(one: &Arc<dyn Reader>, other: &Arc<dyn Reader>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

fn difference(now: usize, before: usize) -> isize {
    now.cast_signed().wrapping_sub(before.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    struct Client(AtomicBool);

    impl Reader for Client {
        fn is_reading(&self) -> bool {
            self.0.load(Relaxed)
        }
    }

    fn client() -> (Arc<Client>, Arc<dyn Reader>) {
        let client = Arc::new(Client(AtomicBool::new(true)));
        (Arc::clone(&client), client)
    }

    fn change(keys: isize, items: isize) -> ReadersChange {
        ReadersChange { keys, items }
    }

    #[test]
    fn the_readers_of_a_key_are_taken_once() {
        let (mut readers, (_, one), (_, two)) = (Readers::default(), client(), client());
        assert_eq!(readers.add(Hash(1), b"k", &one), change(1, 1));
        assert_eq!(readers.add(Hash(1), b"k", &one), change(0, 0), "listed already");
        assert_eq!(readers.add(Hash(1), b"k", &two), change(0, 1));
        let (taken, gone) = readers.take(Hash(1), b"k");
        assert!(taken.len() == 2 && is_same(&taken[0].1, &one) && is_same(&taken[1].1, &two));
        assert!(Arc::ptr_eq(&taken[0].0, &taken[1].0), "the name is shared");
        assert_eq!(gone, change(-1, -2));
        assert!(readers.take(Hash(1), b"k").0.is_empty() && readers.is_empty());
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let (mut readers, (_, one)) = (Readers::default(), client());
        assert_eq!(readers.add(Hash(7), b"a", &one), change(1, 1));
        assert_eq!(readers.add(Hash(7), b"b", &one), change(0, 1));
        let (taken, gone) = readers.take(Hash(7), b"b");
        assert_eq!((&*taken[0].0, taken.len(), gone), (b"b".as_slice(), 1, change(0, -1)));
        assert_eq!(readers.take(Hash(7), b"a").1, change(-1, -1));
    }

    #[test]
    fn those_that_have_left_do_not_pile_up() {
        let (mut readers, (_, stays)) = (Readers::default(), client());
        let mut items = readers.add(Hash(1), b"k", &stays).items;
        for _ in 0..100_000 {
            let (client, reader) = client();
            items += readers.add(Hash(1), b"k", &reader).items;
            client.0.store(false, Relaxed);
            assert!((1..=8).contains(&items), "{items} readers, one of them alive");
        }
        assert_eq!(readers.whole(), change(-1, -items));
        assert!(is_same(&readers.take(Hash(1), b"k").0[0].1, &stays));
    }

    #[test]
    fn some_keys_are_taken_whichever_they_are() {
        let (mut readers, (_, one)) = (Readers::default(), client());
        for i in 0..1000_u64 {
            readers.add(Hash(i << 40), &i.to_be_bytes(), &one);
        }
        let (taken, gone) = readers.take_some(300);
        assert_eq!((taken.len(), gone, readers.len()), (300, change(-300, -300), 700));
        assert_eq!(readers.take_some(1000).1, change(-700, -700));
        assert!(readers.is_empty());
    }
}
