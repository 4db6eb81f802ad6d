//! What all workers share: each part has one subject and its own way of being changed.

use crate::command::Table;
use crate::config::Config;
use crate::events::LatencyMonitor;
use crate::evict::Exceeding;
use crate::lazyfree::Lazyfree;
use crate::mail::{Mailbox, Message};
use crate::persist::Persistence;
use crate::pubsub::PubSub;
use crate::rates::Rates;
use crate::slowlog::CommandLogs;
use crate::stats::WorkerStats;
use crate::tracking::Trackers;
use crate::tx::Watching;
use gimmal_log::Log;
use gimmal_store::{Gauge, Keyspace};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

/// The shared state of a server.
pub struct Shared {
    /// The data.
    pub keyspace: Keyspace,
    /// The log of every change.
    pub log: Arc<Log>,
    /// Every command; lives as long as the process.
    pub commands: &'static Table,
    /// What is kept on disk.
    pub persist: Persistence,
    /// The configuration in force.
    pub settings: Settings,
    /// A box for each worker.
    pub mail: Arc<[Mailbox]>,
    /// Who listens to which channel.
    pub pubsub: PubSub,
    /// Each worker's counters.
    pub stats: Box<[Arc<WorkerStats>]>,
    /// Who this server is.
    pub identity: Identity,
    /// Commands that were slow, or large.
    pub command_logs: CommandLogs,
    /// What took longer than `latency-monitor-threshold`.
    pub latency: Mutex<LatencyMonitor>,
    /// Error replies by prefix, for INFO errorstats.
    pub errors: Mutex<BTreeMap<String, u64>>,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Clients and shutdown.
    pub lifecycle: Lifecycle,
    /// What is being freed.
    pub lazyfree: Arc<Lazyfree>,
    /// Bytes in the buffers of all connections, held replies apart.
    pub client_bytes: Gauge,
    /// For how long memory has been over its limit.
    pub exceeding: Exceeding,
    /// How much is watched.
    pub watching: Arc<Watching>,
    /// Who keeps copies of keys.
    pub trackers: Trackers,
    /// What happens per second, and the peak of memory.
    pub rates: Rates,
    /// Switches of DEBUG.
    pub debug: DebugSwitches,
    /// Workers may spin a little on a lock: there are more processors than workers.
    pub spin_on_locks: bool,
}

/// The configuration in force, and its version.
pub struct Settings {
    version: AtomicU64,
    current: Mutex<Arc<Config>>,
}

/// Who this server is; fixed at start.
#[derive(Debug)]
pub struct Identity {
    /// Random, 40 hex digits.
    pub run_id: String,
    /// Replication id, 40 hex digits.
    pub replication_id: String,
    /// When it started, in ms.
    pub started_ms: i64,
    /// Its own path.
    pub executable: String,
    /// Absolute path of the configuration file, or empty.
    pub config_file: String,
    /// `uring`, `epoll` or `sim`.
    pub engine: &'static str,
    /// Bytes of locks and counters that are there before any data. The program, its stacks and what the allocator holds ready do
    /// not count, here as in Redis: that is the process's RSS.
    pub startup_bytes: u64,
}

/// CLIENT PAUSE: until when, and whether for writes only.
#[derive(Debug, Default)]
pub struct Pause {
    until_ms: AtomicI64,
    all: AtomicBool,
}

/// Clients that come and go, and the end.
#[derive(Debug, Default)]
pub struct Lifecycle {
    next_client: AtomicU64,
    clients: AtomicU64,
    /// Why no command is to run: a [`Hold`], or 0.
    held: AtomicU8,
    stopping: AtomicBool,
}

/// Why all commands are held: nothing but who holds them reads or changes the data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hold {
    /// The server is to stop when it has saved.
    Shutdown = 1,
    /// The data set is being replaced: DEBUG RELOAD.
    Replacement,
}

/// Switches of the DEBUG command.
#[derive(Debug, Default)]
pub struct DebugSwitches {
    /// DEBUG SET-ACTIVE-EXPIRE 0.
    pub no_active_expire: AtomicBool,
}

impl Shared {
    /// Sums one counter over all workers.
    pub fn sum(&self, counter: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.stats.iter().map(|stats| counter(stats)).sum()
    }

    /// Puts to zero what CONFIG RESETSTAT resets. Called while the gate is closed: each counter's writer is outside.
    pub fn reset_stats(&self) {
        self.stats.iter().for_each(|stats| stats.reset());
        self.errors.lock().expect("counting does not panic").clear();
        self.lazyfree.reset();
        self.exceeding.reset();
        self.rates.reset();
        self.persist.save.reset();
    }

    /// Tells every worker to look at the shared state.
    pub fn tell_all(&self) {
        self.mail.iter().for_each(|mailbox| mailbox.post(Message::Look));
    }

    /// The number of the thread `snapshot` among those that use the keyspace; behind the workers and the background.
    pub fn snapshot_participant(&self) -> usize {
        self.mail.len() + 1
    }

    /// Asks all workers to end: the server stops.
    pub fn stop(&self) {
        self.lifecycle.stopping.store(true, SeqCst);
        self.tell_all();
    }

    /// Counts an error reply by its prefix; a bounded number of prefixes, since a handler's text may carry a client's word.
    pub fn count_error(&self, prefix: &str) {
        const MAX_PREFIXES: usize = 128;
        let mut errors = self.errors.lock().expect("counting does not panic");
        if let Some(count) = errors.get_mut(prefix) {
            *count += 1;
        } else if errors.len() < MAX_PREFIXES {
            errors.insert(prefix.to_string(), 1);
        }
    }
}

impl Settings {
    /// The configuration at start.
    pub fn new(config: Config) -> Settings {
        Settings { version: AtomicU64::new(1), current: Mutex::new(Arc::new(config)) }
    }

    /// A number that changes with the configuration.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// The configuration in force.
    pub fn current(&self) -> Arc<Config> {
        self.current.lock().expect("settings do not panic").clone()
    }

    /// Puts a new one in force. Called while the gate is closed, so that no worker uses the old one afterwards.
    pub fn replace(&self, config: Config) {
        *self.current.lock().expect("settings do not panic") = Arc::new(config);
        self.version.fetch_add(1, Release);
    }
}

impl Pause {
    /// Pauses from `now_ms` until `until_ms`; a pause under way is only ever made longer and stricter, as in Redis.
    pub fn begin(&self, now_ms: i64, until_ms: i64, all: bool) {
        let was_all = self.at(now_ms) == Some(true);
        self.all.store(all || was_all, Relaxed);
        self.until_ms.fetch_max(until_ms, Release);
    }

    /// Ends it.
    pub fn end(&self) {
        self.until_ms.store(0, Release);
        self.all.store(false, Relaxed);
    }

    /// None, or whether all commands (true) or writes only (false) are paused at this time.
    pub fn at(&self, now_ms: i64) -> Option<bool> {
        (self.until_ms.load(Acquire) > now_ms).then(|| self.all.load(Relaxed))
    }

    /// When the pause ends, if one is set.
    pub fn until_ms(&self) -> i64 {
        self.until_ms.load(Acquire)
    }
}

impl Lifecycle {
    /// A new client's id.
    pub fn next_client(&self) -> u64 {
        self.next_client.fetch_add(1, Relaxed) + 1
    }

    /// Counts a client in, unless there are `max` already.
    pub fn enter(&self, max: u64) -> bool {
        self.clients.fetch_update(Relaxed, Relaxed, |n| (n < max).then_some(n + 1)).is_ok()
    }

    /// Counts a client out.
    pub fn leave(&self) {
        self.clients.fetch_sub(1, Relaxed);
    }

    /// Connected clients.
    pub fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }

    /// From the next batch of each worker on no command runs, no waiter is served, and nothing expires or is evicted; once the gate
    /// has been closed since, that is so for all of them.
    ///
    /// # Errors
    /// They are held already, and for what.
    pub fn begin_hold(&self, hold: Hold) -> Result<(), Hold> {
        let begun = self.held.compare_exchange(0, hold as u8, SeqCst, SeqCst);
        begun.map(drop).map_err(|_| self.hold().unwrap_or(hold))
    }

    /// Commands run again.
    pub fn end_hold(&self) {
        self.held.store(0, SeqCst);
    }

    /// Why no command runs, if that is so.
    #[inline]
    pub fn hold(&self) -> Option<Hold> {
        match self.held.load(Relaxed) {
            0 => None,
            1 => Some(Hold::Shutdown),
            _ => Some(Hold::Replacement),
        }
    }

    /// True once the server stops.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_made_longer_and_stricter_while_it_lasts() {
        let pause = Pause::default();
        pause.begin(0, 100, true);
        pause.begin(50, 80, false);
        assert_eq!((pause.at(99), pause.at(100)), (Some(true), None));
        pause.begin(100, 200, false);
        assert_eq!(pause.at(150), Some(false), "a pause that was over has made the next one stricter");
        pause.begin(150, 160, true);
        assert_eq!((pause.at(199), pause.until_ms()), (Some(true), 200));
        pause.end();
        assert_eq!(pause.at(0), None);
    }
}
