//! The memory limit: `maxmemory`, and which keys go when it is reached.
//!
//! *What is compared with `maxmemory`*: the locks and counters that are there before any data (half a MiB; not the program and its
//! stacks), the bytes of keys, values and tables, and what waits in the buffers of connections. Not the log, not replies held back for it, not what was removed and is yet to be freed: these
//! go away by themselves, and evicting for them would empty the keyspace while the disk is slow. `used_memory` in INFO is this
//! sum and the log, which `mem_not_counted_for_evict` tells apart. Both parts that change are kept as [`gimmal_store::Gauge`]s:
//! a look costs four loads, and another worker's last 16 KiB may be missing in it.
//!
//! *When*: before a command that may take memory locks anything ([`admit`]), and after each pass while memory is over the limit
//! ([`go_on`]). One shard at a time is taken, by try-lock, and let go of before the next: eviction never holds a lock while it
//! wants another. How long it may hold up a command is `maxmemory-eviction-tenacity`; when that time is over the command runs, and
//! the next ones go on. Several workers may evict at once: each looks at the common sum after every key.
//!
//! Without a limit all this is one bit in a test that is made anyway, and one branch per pass.

pub mod clients;
mod pool;

use crate::config::{Config, MaxmemoryPolicy};
use crate::exec::{Exec, Outcome};
use crate::lazyfree::removal;
use crate::notify;
use crate::shared::Shared;
use crate::worker::{Local, State};
use gimmal_store::{Batch, Hash, Lfu, OwnedEntry, ShardState};
use pool::{Measure, Pool, Step};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a command is told that would take memory when there is none.
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Keys evicted between two looks at the clock.
const KEYS: u32 = 16;

/// Whether memory is within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It is.
    Enough,
    /// It is not yet, and eviction goes on later: a command may run.
    Later,
    /// It is not, and there is nothing to evict.
    None,
}

/// A worker's part in eviction: the limit in force, and the keys that it would evict next.
#[derive(Default)]
pub struct Evictor {
    limit: Option<usize>,
    measure: Option<Measure>,
    /// How long a command may be held up; `None`: for as long as it takes.
    budget: Option<Duration>,
    pool: Pool,
    /// `maxmemory-clients`, in bytes.
    client_limit: Option<usize>,
}

/// For how long memory has been over its limit, for INFO.
#[derive(Debug, Default)]
pub struct Exceeding {
    started: OnceLock<Instant>,
    /// Since when, in µs after `started`; 0: it is not.
    since_us: AtomicU64,
    total_us: AtomicU64,
}

/// Lets a command that may take memory run, or refuses it. Called before the command has locked anything.
#[cold]
pub fn admit(exec: &mut Exec<'_>) -> Outcome {
    match make_room(exec.local, exec.shared, exec.batch()) {
        Room::Enough | Room::Later => Ok(()),
        Room::None => Err(OOM.into()),
    }
}

/// Goes on evicting between passes; true if there is more to evict. One branch without a limit.
#[inline]
pub fn go_on(state: &mut State) -> bool {
    state.local.evictor.limit.is_some() && make_room_between_passes(state)
}

#[cold]
fn make_room_between_passes(state: &mut State) -> bool {
    // So that the other workers see all of what this one has added in its pass.
    state.shared.keyspace.bytes().settle(state.local.id);
    state.shared.client_bytes.settle(state.local.id);
    let shared = state.shared.clone();
    if !is_over(&state.local, &shared) {
        shared.exceeding.end();
        return false;
    }
    let batch = shared.keyspace.gate().enter(state.local.id);
    if shared.lifecycle.hold().is_some() {
        return false;
    }
    // It may have been switched on since the pass began.
    state.local.look_at_log(&shared);
    let more = make_room(&mut state.local, &shared, &batch) == Room::Later;
    drop(batch);
    // A log without room says when it has some again.
    more && (!state.local.log_active || shared.log.has_room())
}

/// Whether more is in use than is allowed; false without a limit.
#[inline]
pub fn is_over(local: &Local, shared: &Shared) -> bool {
    local.evictor.limit.is_some_and(|limit| counted_bytes(local, shared) > limit)
}

/// What is compared with the limit.
#[inline]
fn counted_bytes(local: &Local, shared: &Shared) -> usize {
    let base = usize::try_from(shared.identity.startup_bytes).unwrap_or(usize::MAX);
    base + shared.keyspace.bytes().estimate(local.id) + shared.client_bytes.estimate(local.id)
}

/// Evicts until memory is within its limit, time is up, or there is nothing left to evict.
fn make_room(local: &mut Local, shared: &Shared, batch: &Batch<'_>) -> Room {
    if !is_over(local, shared) {
        return Room::Enough;
    }
    shared.exceeding.begin();
    if shared.pause.at(local.now_ms).is_some() {
        // While writes are paused the data does not change, not even by itself.
        return Room::Enough;
    }
    let Some(measure) = local.evictor.measure else { return Room::None };
    let budget = local.evictor.budget;
    let started = Instant::now();
    let mut pool = std::mem::take(&mut local.evictor.pool);
    let mut evicted = 0;
    let room = loop {
        if local.log_active && !shared.log.has_room() {
            break Room::Later;
        }
        let (clock, word) = (local.access, local.random.next());
        let step = pool.evict(&shared.keyspace, batch, measure, &clock, word, &mut |state, db, hash, removed| {
            record(local, shared, state, db, hash, removed);
        });
        match step {
            Step::Evicted => evicted += 1,
            Step::Busy => break Room::Later,
            Step::Nothing => break Room::None,
        }
        shared.keyspace.bytes().settle(local.id);
        if !is_over(local, shared) {
            break Room::Enough;
        }
        if evicted % KEYS == 0 && budget.is_some_and(|budget| started.elapsed() >= budget) {
            break Room::Later;
        }
    };
    local.evictor.pool = pool;
    if room == Room::Enough {
        shared.exceeding.end();
    }
    room
}

/// A key was evicted, and its shard is still locked: an effect like any other.
fn record(local: &mut Local, shared: &Shared, state: &mut ShardState, db: usize, hash: Hash, removed: OwnedEntry) {
    local.stats.evicted_keys.add(1);
    local.modified(shared, state, db, hash, removed.entry().key(), 0);
    if local.log_active {
        let lsn = local.append(db, &[removal(local.config.lazyfree_lazy_eviction()), removed.entry().key()]);
        state.stamp(db, hash, lsn);
        local.changed_by_others(lsn);
    }
    if local.events.intersects(notify::EVICTED) {
        local.notify(shared, db, "evicted", removed.entry().key());
    }
    shared.lazyfree.discard(removed);
}

impl Evictor {
    /// Takes over what the configuration says.
    pub fn adopt(&mut self, config: &Config) {
        use MaxmemoryPolicy::*;
        self.limit = (config.maxmemory() > 0).then(|| usize::try_from(config.maxmemory()).unwrap_or(usize::MAX));
        let policy = config.maxmemory_policy();
        let volatile = matches!(policy, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl);
        let by = match policy {
            NoEviction => None,
            AllkeysLru | VolatileLru => Some(pool::By::Idleness),
            AllkeysLfu | VolatileLfu => Some(pool::By::Rareness),
            AllkeysRandom | VolatileRandom => Some(pool::By::Chance),
            VolatileTtl => Some(pool::By::Deadline),
        };
        self.measure = by.map(|by| Measure { by, volatile, samples: config.maxmemory_samples().max(1) });
        self.budget = budget(config.maxmemory_eviction_tenacity());
        let client_limit = config.maxmemory_clients();
        self.client_limit = (client_limit > 0).then(|| usize::try_from(client_limit).unwrap_or(usize::MAX));
        // Its candidates were measured by another policy, perhaps.
        self.pool = Pool::default();
    }

    /// Whether there is a limit.
    pub fn is_on(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether keys are chosen by their use. Redis then shares no integers, so that each key has a clock.
    pub fn reads_clocks(&self) -> bool {
        self.is_on()
            && self.measure.is_some_and(|measure| matches!(measure.by, pool::By::Idleness | pool::By::Rareness))
    }
}

/// How uses are to be counted under this configuration; `None` if last uses are to be remembered instead.
pub fn lfu(config: &Config) -> Option<Lfu> {
    let counts = matches!(config.maxmemory_policy(), MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu);
    let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    counts.then(|| Lfu { log_factor: number(config.lfu_log_factor()), decay_minutes: number(config.lfu_decay_time()) })
}

/// How long one command may be held up: up to 500 µs in even steps, then growing by 15 % per step to about two minutes, as in Redis.
fn budget(tenacity: i64) -> Option<Duration> {
    match tenacity {
        ..=10 => Some(Duration::from_micros(50 * tenacity.max(0).unsigned_abs())),
        11..100 => Some(Duration::from_secs_f64(500e-6 * 1.15_f64.powi(i32::try_from(tenacity - 10).expect("small")))),
        _ => None,
    }
}

impl Exceeding {
    fn now_us(&self) -> u64 {
        let started = self.started.get_or_init(Instant::now);
        // Never 0, which says that memory is within its limit.
        u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Memory is over its limit.
    fn begin(&self) {
        if self.since_us.load(Relaxed) == 0 {
            // Another worker may be faster; both mean now.
            self.since_us.store(self.now_us(), Relaxed);
        }
    }

    /// Memory is within its limit.
    fn end(&self) {
        if self.since_us.load(Relaxed) != 0 {
            let since_us = self.since_us.swap(0, Relaxed);
            if since_us != 0 {
                self.total_us.fetch_add(self.now_us().saturating_sub(since_us), Relaxed);
            }
        }
    }

    /// Milliseconds of this time, if memory is over its limit now, and of all times.
    pub fn ms(&self) -> (u64, u64) {
        let current_us = match self.since_us.load(Relaxed) {
            0 => 0,
            since_us => self.now_us().saturating_sub(since_us),
        };
        (current_us / 1000, (self.total_us.load(Relaxed) + current_us) / 1000)
    }

    /// Forgets the times that are over.
    pub fn reset(&self) {
        self.total_us.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_a_time() {
        let us = |tenacity| budget(tenacity).map(|budget| budget.as_micros());
        assert_eq!((us(0), us(1), us(10), us(100)), (Some(0), Some(50), Some(500), None));
        assert_eq!(us(11), Some(575));
        assert!(us(99).is_some_and(|us| (120_000_000..140_000_000).contains(&us)));
    }

    #[test]
    fn times_over_the_limit_add_up() {
        let exceeding = Exceeding::default();
        assert_eq!(exceeding.ms(), (0, 0));
        for _ in 0..2 {
            exceeding.begin();
            std::thread::sleep(Duration::from_millis(3));
            exceeding.begin();
            assert!(exceeding.ms().0 >= 3);
            exceeding.end();
        }
        let (current, total) = exceeding.ms();
        assert_eq!(current, 0);
        assert!(total >= 6);
        exceeding.reset();
        assert_eq!(exceeding.ms(), (0, 0));
    }
}
