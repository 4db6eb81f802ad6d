//! [`Stamps`]: the newest LSN of each key of a shard whose writes are not durable yet.
//!
//! Writes are remembered in two generations. Each is forgotten as a whole once its highest LSN is durable, so that the memory is
//! bounded by the writes of about two periods of the log's delay, and no entry is ever removed one by one.
//!
//! With many shards there are few such keys in each: the first ones lie in the shard itself, beside what is looked at first, in
//! one cache line, which [`Ahead::stamps`](crate::Ahead::stamps) requests; a map takes the others. (A map of each shard's own alone
//! cost two misses a write, a thirtieth of a durable SET of 500 clients.)

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::hash::Hash;

/// Which keys have writes beyond the durable LSN. LSN 0 stands for none.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Stamps {
    /// The highest LSN in `young` and in `old`; 0 if that is empty.
    young_newest: u64,
    old_newest: u64,
    young: Generation,
    old: Generation,
}

/// Keys that lie in the shard.
const FEW: usize = 2;

#[derive(Default)]
#[repr(C)]
struct Generation {
    /// Key and LSN; an LSN of 0 is a free place, and behind it there is none taken.
    few: [(u64, u64); FEW],
    /// Kept while empty, as long as it is small.
    many: Option<Box<Many>>,
}

type Many = HashMap<u64, u64, BuildHasherDefault<TakeHash>>;

impl Stamps {
    /// Remembers a write.
    #[inline]
    pub(crate) fn add(&mut self, db: usize, hash: Hash, lsn: u64) {
        self.young_newest = self.young_newest.max(lsn);
        self.young.add(fold(db, hash), lsn);
    }

    /// LSN of the newest write of a key, 0 if none is remembered.
    #[inline]
    pub(crate) fn newest(&self, db: usize, hash: Hash) -> u64 {
        let key = fold(db, hash);
        let newest = if self.young_newest == 0 { 0 } else { self.young.find(key) };
        if newest > 0 || self.old_newest == 0 { newest } else { self.old.find(key) }
    }

    /// Drops the generations that are durable.
    #[inline]
    pub(crate) fn forget(&mut self, durable_lsn: u64) {
        if self.old_newest > durable_lsn {
            return;
        }
        // What is empty needs no clearing, and often lies in a line that nobody has asked for.
        if self.old_newest > 0 {
            self.old.clear();
            self.old_newest = 0;
        }
        if self.young_newest > durable_lsn {
            std::mem::swap(&mut self.old, &mut self.young);
            std::mem::swap(&mut self.old_newest, &mut self.young_newest);
        } else if self.young_newest > 0 {
            self.young.clear();
            self.young_newest = 0;
        }
    }

    /// Keys that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

impl Generation {
    /// Room for so many keys is kept when a generation is emptied; more is given back.
    const KEPT: usize = 256;

    #[inline]
    fn add(&mut self, key: u64, lsn: u64) {
        for (other, newest) in &mut self.few {
            if *newest == 0 || *other == key {
                *other = key;
                *newest = lsn.max(*newest);
                return;
            }
        }
        let newest = self.many.get_or_insert_default().entry(key).or_default();
        *newest = lsn.max(*newest);
    }

    #[inline]
    fn find(&self, key: u64) -> u64 {
        let few = self.few.iter().find(|(other, newest)| *newest > 0 && *other == key);
        let many = || self.many.as_ref().and_then(|many| many.get(&key));
        few.map(|(_, newest)| newest).or_else(many).copied().unwrap_or(0)
    }

    fn clear(&mut self) {
        self.few = Default::default();
        match &mut self.many {
            Some(many) if many.capacity() > Generation::KEPT => self.many = None,
            Some(many) => many.clear(),
            None => {}
        }
    }

    fn len(&self) -> usize {
        let few = self.few.iter().filter(|(_, newest)| *newest > 0).count();
        few + self.many.as_ref().map_or(0, |many| many.len())
    }
}

/// One word for a key: its hash, which is keyed and well mixed already, so changed by the database that another database's key of
/// the same name has another. Two keys with one word share an answer, which can only be too high.
#[inline(always)]
fn fold(db: usize, hash: Hash) -> u64 {
    hash.0 ^ (db as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Takes the one word that it is given for the hash.
#[derive(Default)]
pub(crate) struct TakeHash(u64);

impl Hasher for TakeHash {
    fn finish(&self) -> u64 {
        // The shard's bits are equal in one shard: bring the low half up, where the map takes its tag from.
        self.0.rotate_left(32)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashed by one word");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a map of all writes ever, for shards with few and with many dirty keys.
    #[test]
    fn a_key_that_is_not_durable_is_known_with_its_newest_write() {
        for (keys, delay) in [(1, 3), (3, 4), (8, 5), (8, 40), (100, 300)] {
            let (mut stamps, mut all) = (Stamps::default(), HashMap::new());
            let (mut seed, mut durable) = (88_172_645_463_325_252_u64, 0);
            for lsn in 1..20_000_u64 {
                // Marsaglia's xorshift.
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let (db, hash) = ((seed >> 40) as usize % 2, Hash(seed % keys));
                stamps.add(db, hash, lsn);
                all.insert((db, hash.0), lsn);
                durable = durable.max(lsn.saturating_sub(delay + (seed >> 50 & 7)));
                stamps.forget(durable);
                for (db, key) in [(0, lsn % keys), (1, lsn % keys), (db, hash.0)] {
                    let (found, expected) = (stamps.newest(db, Hash(key)), *all.get(&(db, key)).unwrap_or(&0));
                    assert!(
                        found == expected || found < expected && expected <= durable,
                        "{found}, {expected}, {durable}"
                    );
                    assert!(found <= expected, "a write that was not");
                }
            }
            stamps.forget(u64::MAX);
            assert_eq!((stamps.len(), stamps.newest(0, Hash(0))), (0, 0));
        }
    }
}
