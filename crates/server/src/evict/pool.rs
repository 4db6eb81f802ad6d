//! Which key to evict: the best of some samples, and of those that earlier samples have left.
//!
//! As in Redis, a few keys are looked at per eviction, and the best candidates are remembered in a pool, so that the choice is
//! nearly that of an exact order by last use without a word of memory per key for it. Each worker has a pool of its own. A
//! candidate is measured again before it goes, and spared if it was used since.
//!
//! Samples come from shards taken at random. Where keys are few and most shards have none, all shards are walked from a random one
//! on, which looks at their counts only.

use gimmal_store::{AccessClock, Batch, Entry, Hash, Keyspace, OwnedEntry, ShardState};

/// Candidates that are remembered, as in Redis.
const CANDIDATES: usize = 16;
/// Shards tried at random before all are walked.
const PROBES: u64 = 16;

/// What makes a key the better one to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// It was not used for long.
    Idleness,
    /// It is rarely used.
    Rareness,
    /// It expires soon.
    Deadline,
    /// Nothing.
    Chance,
}

/// How keys are compared.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// What counts.
    pub by: By,
    /// Only keys that expire are evicted.
    pub volatile: bool,
    /// How many keys are looked at for one eviction, in each database.
    pub samples: usize,
}

/// What one try to evict came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A key is gone.
    Evicted,
    /// Other workers had locked what there was to look at.
    Busy,
    /// There is no key that may be evicted.
    Nothing,
}

/// What is done with a key that was removed, under its shard's lock.
pub type Record<'r> = &'r mut dyn FnMut(&mut ShardState, usize, Hash, OwnedEntry);

/// Keys that would be evicted next, the best one last.
#[derive(Debug, Default)]
pub struct Pool {
    candidates: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    score: u64,
    db: usize,
    hash: Hash,
    key: Vec<u8>,
}

impl Measure {
    /// The higher, the better to evict.
    fn score(&self, clock: &AccessClock, entry: &Entry<'_>) -> u64 {
        match self.by {
            By::Idleness => clock.idle_s(entry.clock()).into(),
            By::Rareness => u64::from(u8::MAX - clock.frequency(entry.clock())),
            By::Deadline => u64::MAX - u64::try_from(entry.expire_at_ms().unwrap_or(i64::MAX)).unwrap_or(0),
            By::Chance => 0,
        }
    }

    /// Keys of a shard in a database that may be evicted.
    fn len(&self, keyspace: &Keyspace, batch: &Batch<'_>, db: usize, shard: u32) -> usize {
        match self.volatile {
            true => keyspace.shard_volatile_len(batch, db, shard),
            false => keyspace.shard_len(batch, db, shard),
        }
    }
}

impl Pool {
    /// Evicts one key, which is given to `record`. `random` decides where samples are taken.
    pub fn evict(
        &mut self,
        keyspace: &Keyspace,
        batch: &Batch<'_>,
        measure: Measure,
        clock: &AccessClock,
        random: u64,
        record: Record<'_>,
    ) -> Step {
        // With nothing to compare, one will do.
        let measure = if measure.by == By::Chance { Measure { samples: 1, ..measure } } else { measure };
        let found = self.fill(keyspace, batch, measure, clock, random);
        let mut busy = found == Step::Busy;
        while let Some(candidate) = self.candidates.pop() {
            let Candidate { score, db, hash, key } = candidate;
            let Some(mut shard) = keyspace.try_lock(batch, keyspace.shard_of(hash)) else {
                busy = true;
                continue;
            };
            let (table, state) = shard.parts(db);
            let still = table.find(hash, &key).is_some_and(|entry| {
                let fits = !measure.volatile || entry.expire_at_ms().is_some();
                fits && measure.score(clock, &entry) >= score
            });
            if still && let Some(removed) = table.remove(hash, &key) {
                table.release();
                record(state, db, hash, removed);
                return Step::Evicted;
            }
        }
        // Every candidate was gone, used or locked: there are others if there was one to sample.
        if found == Step::Nothing && !busy { Step::Nothing } else { Step::Busy }
    }

    /// Looks at some keys: `Nothing` if there are none.
    fn fill(
        &mut self,
        keyspace: &Keyspace,
        batch: &Batch<'_>,
        measure: Measure,
        clock: &AccessClock,
        random: u64,
    ) -> Step {
        if measure.volatile && keyspace.volatile().total() == 0 {
            return Step::Nothing;
        }
        let shards = keyspace.shards() as u64;
        // An odd step goes through all shards, whose number is a power of two.
        let (start, step) = (random >> 16, random << 1 | 1);
        let near = (0..PROBES).map(|i| start.wrapping_add(i.wrapping_mul(step)));
        let all = (0..shards).map(|i| start.wrapping_add(i));
        let (mut seen, mut busy) = (0, false);
        for place in near.chain(all) {
            let shard = u32::try_from(place % shards).expect("at most 16384 shards");
            match self.sample(keyspace, batch, measure, clock, shard, random.wrapping_mul(place | 1)) {
                Some(count) => seen += count,
                None => busy = true,
            }
            if seen >= measure.samples {
                break;
            }
        }
        match (seen, busy) {
            (0, false) => Step::Nothing,
            (0, true) => Step::Busy,
            _ => Step::Evicted,
        }
    }

    /// Looks at some keys of one shard in every database; `None` if it is locked. A shard without keys is not locked.
    fn sample(
        &mut self,
        keyspace: &Keyspace,
        batch: &Batch<'_>,
        measure: Measure,
        clock: &AccessClock,
        id: u32,
        random: u64,
    ) -> Option<usize> {
        let mut with_keys = (0..keyspace.databases()).filter(|db| measure.len(keyspace, batch, *db, id) > 0).peekable();
        if with_keys.peek().is_none() {
            return Some(0);
        }
        let mut shard = keyspace.try_lock(batch, id)?;
        let count = with_keys.map(|db| {
            let table = shard.table(db);
            let mut found = |entry: Entry<'_>| self.consider(keyspace, db, &entry, measure.score(clock, &entry));
            table.sample(random, measure.samples, measure.volatile, &mut found)
        });
        Some(count.sum())
    }

    /// Remembers a key, if it is better than one that is remembered or there is room.
    fn consider(&mut self, keyspace: &Keyspace, db: usize, entry: &Entry<'_>, score: u64) {
        let full = self.candidates.len() == CANDIDATES;
        if full && self.candidates[0].score >= score {
            return;
        }
        let hash = keyspace.hash(entry.key());
        if self.candidates.iter().any(|known| known.hash == hash && known.db == db) {
            return;
        }
        // The allocation of the one that is forgotten is used again.
        let mut key = if full { self.candidates.remove(0).key } else { Vec::new() };
        key.clear();
        key.extend_from_slice(entry.key());
        let at = self.candidates.partition_point(|known| known.score < score);
        self.candidates.insert(at, Candidate { score, db, hash, key });
    }
}

#[cfg(test)]
mod tests;
