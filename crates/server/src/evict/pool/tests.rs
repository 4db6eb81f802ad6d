//! The choice of victims on a keyspace of its own, with simulated time and a fixed seed.

use super::*;
use gimmal_store::{Lfu, NewValue, Options};
use std::collections::{BTreeMap, HashMap};

const SAMPLES: usize = 5;

struct Cache {
    keyspace: Keyspace,
    random: u64,
    measure: Measure,
    lfu: Option<Lfu>,
    now_ms: i64,
    pool: Pool,
}

impl Cache {
    fn new(by: By, volatile: bool) -> Cache {
        let keyspace = Keyspace::new(Options { shards: 64, databases: 3, participants: 1, seed: (1, 2) });
        let lfu = (by == By::Rareness).then_some(Lfu { log_factor: 10, decay_minutes: 1 });
        let measure = Measure { by, volatile, samples: SAMPLES };
        Cache { keyspace, random: 1, measure, lfu, now_ms: 1_000_000_000, pool: Pool::default() }
    }

    fn clock(&self) -> AccessClock {
        AccessClock::new(self.now_ms, self.lfu)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn put(&mut self, db: usize, key: u64, expire_at_ms: Option<i64>) {
        let batch = self.keyspace.gate().enter(0);
        let name = key.to_string();
        let hash = self.keyspace.hash(name.as_bytes());
        let mut shard = self.keyspace.try_lock(&batch, self.keyspace.shard_of(hash)).expect("one thread");
        let fresh = self.clock().fresh();
        let put = shard.table(db).put(hash, name.as_bytes(), NewValue::Int(1), expire_at_ms, fresh);
        assert!(!put.replaced);
    }

    /// Uses a key of database 0; false if it is not there.
    fn read(&mut self, key: u64) -> bool {
        let word = self.next();
        let batch = self.keyspace.gate().enter(0);
        let name = key.to_string();
        let hash = self.keyspace.hash(name.as_bytes());
        let mut shard = self.keyspace.try_lock(&batch, self.keyspace.shard_of(hash)).expect("one thread");
        let found = shard.table(0).find(hash, name.as_bytes());
        if let Some(entry) = &found {
            entry.touch(self.clock().used(entry.clock(), word));
        }
        found.is_some()
    }

    /// The database and key that was evicted.
    fn evict(&mut self) -> Result<(usize, u64), Step> {
        let (word, clock) = (self.next(), self.clock());
        let batch = self.keyspace.gate().enter(0);
        let mut gone = None;
        let step = self.pool.evict(&self.keyspace, &batch, self.measure, &clock, word, &mut |_, db, _, removed| {
            let key = std::str::from_utf8(removed.entry().key()).expect("digits").parse().expect("a number");
            gone = Some((db, key));
        });
        gone.ok_or(step)
    }

    fn len(&self) -> usize {
        let batch = self.keyspace.gate().enter(0);
        (0..3).map(|db| self.keyspace.len(&batch, db)).sum()
    }
}

#[test]
fn everything_can_be_evicted_once() {
    for by in [By::Idleness, By::Rareness, By::Chance] {
        let mut cache = Cache::new(by, false);
        for key in 0..500 {
            cache.put(usize::from(key % 7 == 0) * 2, key, None);
        }
        let mut gone: Vec<u64> = (0..500).map(|_| cache.evict().expect("there is more").1).collect();
        gone.sort_unstable();
        assert_eq!(gone, (0..500).collect::<Vec<_>>(), "{by:?}");
        assert_eq!((cache.evict(), cache.len()), (Err(Step::Nothing), 0));
    }
}

#[test]
fn only_keys_that_expire_go_if_so_asked() {
    for by in [By::Idleness, By::Rareness, By::Chance, By::Deadline] {
        let mut cache = Cache::new(by, true);
        for key in 0..3000 {
            cache.put(0, key, (key % 100 == 0).then_some(i64::MAX - 1));
        }
        for _ in 0..30 {
            assert_eq!(cache.evict().map(|(_, key)| key % 100), Ok(0), "{by:?}");
        }
        assert_eq!((cache.evict(), cache.len()), (Err(Step::Nothing), 2970));
    }
}

#[test]
fn soon_to_expire_goes_first() {
    let mut cache = Cache::new(By::Deadline, true);
    const KEYS: u64 = 20_000;
    for key in 0..KEYS {
        cache.put(0, key, Some(i64::try_from(2_000_000_000 + key * 1000).expect("fits")));
    }
    let gone: Vec<u64> = (0..KEYS / 4).map(|_| cache.evict().expect("there are keys").1).collect();
    let late = gone.iter().filter(|key| **key >= KEYS / 2).count();
    assert!(late < gone.len() / 50, "{late} of {} evicted keys were of the later half", gone.len());
}

/// A candidate that was used after it was chosen was evicted all the same, as it still is in Redis.
#[test]
fn who_is_used_in_time_is_spared() {
    let mut cache = Cache::new(By::Idleness, false);
    for key in 0..40 {
        cache.put(0, key, None);
    }
    cache.now_ms += 100_000;
    cache.evict().expect("there are keys");
    let chosen: Vec<u64> = (0..40).filter(|key| cache.read(*key)).collect();
    assert_eq!(chosen.len(), 39);
    // All were used now, and one more is older than they are.
    cache.now_ms -= 50_000;
    cache.put(0, 1000, None);
    cache.now_ms += 50_000;
    let spared = (0..39).map_while(|_| cache.evict().ok()).position(|(_, key)| key == 1000).expect("it goes");
    assert!(spared < 20, "the only idle key went after {spared} used ones");
}

/// Keys by a Zipf distribution with exponent 1: hot ones often, and a long tail.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: u32) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        Zipf { sums: sums.collect() }
    }

    fn key(&self, word: u64) -> u64 {
        let share = (word >> 11) as f64 / (1_u64 << 53) as f64 * self.sums.last().expect("there are keys");
        self.sums.partition_point(|sum| *sum < share) as u64
    }
}

/// The share of reads that an exact LRU cache of `size` keys answers.
fn exact_lru(reads: &[u64], size: usize) -> f64 {
    let (mut by_time, mut times, mut hits) = (BTreeMap::new(), HashMap::new(), 0);
    for (time, key) in reads.iter().enumerate() {
        match times.insert(*key, time) {
            Some(before) => {
                by_time.remove(&before);
                hits += 1;
            }
            None if times.len() > size => {
                let (_, oldest) = by_time.pop_first().expect("it is full");
                times.remove(&oldest);
            }
            None => {}
        }
        by_time.insert(time, *key);
    }
    f64::from(hits) / reads.len() as f64
}

fn hit_ratio(cache: &mut Cache, reads: &[u64], size: usize, reads_per_s: i64) -> f64 {
    let (mut hits, mut len) = (0, 0);
    for (time, key) in (0_i64..).zip(reads) {
        cache.now_ms = 1_000_000_000 + time * 1000 / reads_per_s;
        if cache.read(*key) {
            hits += 1;
            continue;
        }
        if len == size {
            cache.evict().expect("there are keys");
            len -= 1;
        }
        cache.put(0, *key, None);
        len += 1;
    }
    f64::from(hits) / reads.len() as f64
}

/// How close five samples and a pool come to exact LRU. Measured with this seed: exact LRU 0.694, LRU 0.692, LFU 0.709, random
/// eviction 0.644.
#[test]
fn the_hit_ratio_is_close_to_that_of_exact_lru() {
    const KEYS: u32 = 20_000;
    const SIZE: usize = 2_000;
    let zipf = Zipf::new(KEYS);
    let mut source = Cache::new(By::Chance, false);
    let reads: Vec<u64> = (0..300_000).map(|_| zipf.key(source.next())).collect();
    let exact = exact_lru(&reads, SIZE);
    let lru = hit_ratio(&mut Cache::new(By::Idleness, false), &reads, SIZE, 100);
    let lfu = hit_ratio(&mut Cache::new(By::Rareness, false), &reads, SIZE, 100);
    let chance = hit_ratio(&mut Cache::new(By::Chance, false), &reads, SIZE, 100);
    assert!(lru > exact - 0.01, "LRU hits {lru:.4}, exact LRU {exact:.4}");
    assert!(lfu > exact, "LFU hits {lfu:.4}, exact LRU {exact:.4}: with unchanging popularity it should be better");
    assert!(chance < lru - 0.02, "random hits {chance:.4}, LRU {lru:.4}: the test cannot tell them apart");
}

/// A hot set that is used again and again, while keys that are used once pass through: LRU keeps the hot set.
#[test]
fn a_hot_set_survives_a_stream_of_keys_used_once() {
    const HOT: u64 = 1_000;
    for by in [By::Idleness, By::Rareness] {
        let mut cache = Cache::new(by, false);
        let mut reads = Vec::new();
        for time in 0..200_000_u64 {
            let once = time % 3 == 0;
            reads.push(if once { HOT + time } else { cache.next() % HOT });
        }
        hit_ratio(&mut cache, &reads, 4_000, 500);
        let kept = (0..HOT).filter(|key| cache.read(*key)).count();
        assert!(kept >= 990, "{by:?} has kept {kept} of {HOT} hot keys");
    }
}
