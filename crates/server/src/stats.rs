//! What the server counts. Each worker writes its own padded block; INFO sums them.
//!
//! A counter has one writer, so `add` is a load and a store: no locked instruction on the data path. RESETSTAT may lose
//! an increment that is under way, as it may in any server that counts.

use gimmal_io::Counters;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A count with one writing thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owning worker calls this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Raises the value to at least `n`.
    #[inline]
    pub fn raise(&self, n: u64) {
        if n > self.0.load(Relaxed) {
            self.set(n);
        }
    }

    /// The value.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One worker's counters.
#[repr(align(128))]
#[derive(Debug)]
pub struct WorkerStats {
    /// Open connections.
    pub connections: Counter,
    /// Accepted connections.
    pub accepted: Counter,
    /// Connections refused for maxclients or protected mode.
    pub rejected: Counter,
    /// Commands carried out.
    pub commands: Counter,
    /// Lookups that found a key.
    pub keyspace_hits: Counter,
    /// Lookups that did not.
    pub keyspace_misses: Counter,
    /// Keys removed because their time had come.
    pub expired_keys: Counter,
    /// Fields of hashes whose time had come.
    pub expired_fields: Counter,
    /// Keys removed because memory was over its limit.
    pub evicted_keys: Counter,
    /// Clients closed because all of them together took too much memory.
    pub evicted_clients: Counter,
    /// Bytes in the buffers of this worker's largest client that may be closed for them, or more.
    pub largest_client: Counter,
    /// Changes of the data set.
    pub dirty: Counter,
    /// Bytes received.
    pub received_bytes: Counter,
    /// Bytes handed to the engine.
    pub sent_bytes: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Connections closed for reading too slowly.
    pub output_limit_closes: Counter,
    /// Connections closed for sending too much.
    pub query_limit_closes: Counter,
    /// Times a connection was parked because a lock was taken.
    pub parks: Counter,
    /// Connections moved to another worker.
    pub moved: Counter,
    /// Passes of the loop.
    pub passes: Counter,
    /// Nanoseconds in passes, without the sleep between them.
    pub busy_ns: Counter,
    /// Longest pass, in ns.
    pub pass_max_ns: Counter,
    /// Most commands in one pass.
    pub pass_max_commands: Counter,
    /// Nanoseconds in timers.
    pub timers_ns: Counter,
    /// Longest recent pass, in µs; the rebalancer's measure, halved at each tick.
    pub pass_us: Counter,
    /// Most thread CPU time that one command took, in µs, while `command-cpu-tracking` is on.
    pub command_cpu_max_us: Counter,
    /// Most thread CPU time between two points at which the worker turns to something else, in µs, while `command-cpu-tracking` is on.
    pub step_cpu_max_us: Counter,
    /// Nanoseconds spent in active expiry.
    pub expire_ns: Counter,
    /// Connections whose command waits for the end of a pause or for room in the log, at the end of the last pass.
    pub blocked: Counter,
    /// Connections with subscriptions.
    pub pubsub_clients: Counter,
    /// What the engine has done since it was made: [`Counters::values`] at the end of the last pass.
    pub engine: [Counter; Counters::NAMES.len()],
    /// What it had done when the statistics were last reset.
    engine_before: [Counter; Counters::NAMES.len()],
    commands_by_id: Box<[CommandStats]>,
}

/// One command's counters on one worker.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Times it was carried out.
    pub calls: Counter,
    /// Nanoseconds it took in all.
    pub nanos: Counter,
    /// Times it was refused before it ran.
    pub rejected: Counter,
    /// Times it answered an error.
    pub failed: Counter,
    /// Most thread CPU time that one run took, in µs, while `command-cpu-tracking` is on.
    pub cpu_max_us: Counter,
    histogram: OnceLock<Box<Histogram>>,
}

/// Durations in log-linear buckets: 8 per power of two of nanoseconds.
#[derive(Debug)]
pub struct Histogram([AtomicU32; 8 * 48]);

impl WorkerStats {
    /// Counters for this many commands.
    pub fn new(commands: usize) -> WorkerStats {
        WorkerStats {
            connections: Counter::default(),
            accepted: Counter::default(),
            rejected: Counter::default(),
            commands: Counter::default(),
            keyspace_hits: Counter::default(),
            keyspace_misses: Counter::default(),
            expired_keys: Counter::default(),
            expired_fields: Counter::default(),
            evicted_keys: Counter::default(),
            evicted_clients: Counter::default(),
            largest_client: Counter::default(),
            dirty: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            errors: Counter::default(),
            output_limit_closes: Counter::default(),
            query_limit_closes: Counter::default(),
            parks: Counter::default(),
            moved: Counter::default(),
            passes: Counter::default(),
            busy_ns: Counter::default(),
            pass_max_ns: Counter::default(),
            pass_max_commands: Counter::default(),
            timers_ns: Counter::default(),
            pass_us: Counter::default(),
            command_cpu_max_us: Counter::default(),
            step_cpu_max_us: Counter::default(),
            expire_ns: Counter::default(),
            blocked: Counter::default(),
            pubsub_clients: Counter::default(),
            engine: std::array::from_fn(|_| Counter::default()),
            engine_before: std::array::from_fn(|_| Counter::default()),
            commands_by_id: (0..commands).map(|_| CommandStats::default()).collect(),
        }
    }

    /// Bytes of these counters, without histograms.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.commands_by_id)
    }

    /// The counters of one command.
    #[inline]
    pub fn command(&self, id: usize) -> &CommandStats {
        &self.commands_by_id[id]
    }

    /// Nanoseconds that commands took, all together.
    pub fn command_ns(&self) -> u64 {
        self.commands_by_id.iter().map(|command| command.nanos.value()).sum()
    }

    /// The engine counter of this name, since the statistics were reset.
    pub fn engine_counter(&self, name: &str) -> u64 {
        self.engine_counter_at(Counters::NAMES.iter().position(|known| *known == name).expect("a known name"))
    }

    /// The engine counter of this name, since the engine was made.
    pub fn engine_total(&self, name: &str) -> u64 {
        self.engine[Counters::NAMES.iter().position(|known| *known == name).expect("a known name")].value()
    }

    /// The engine counter of this number in [`Counters::NAMES`], since the statistics were reset.
    pub fn engine_counter_at(&self, at: usize) -> u64 {
        self.engine[at].value().saturating_sub(self.engine_before[at].value())
    }

    /// Puts to zero what CONFIG RESETSTAT resets.
    pub fn reset(&self) {
        let resettable = [
            &self.accepted,
            &self.rejected,
            &self.commands,
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.expired_keys,
            &self.expired_fields,
            &self.evicted_keys,
            &self.evicted_clients,
            &self.received_bytes,
            &self.sent_bytes,
            &self.errors,
            &self.output_limit_closes,
            &self.query_limit_closes,
            &self.parks,
            &self.moved,
            &self.passes,
            &self.busy_ns,
            &self.pass_max_ns,
            &self.pass_max_commands,
            &self.timers_ns,
            &self.command_cpu_max_us,
            &self.step_cpu_max_us,
            &self.expire_ns,
        ];
        for counter in resettable {
            counter.set(0);
        }
        // The engine counts on.
        for (before, now) in self.engine_before.iter().zip(&self.engine) {
            before.set(now.value());
        }
        for command in &self.commands_by_id {
            for counter in [&command.calls, &command.nanos, &command.rejected, &command.failed, &command.cpu_max_us] {
                counter.set(0);
            }
            if let Some(histogram) = command.histogram.get() {
                histogram.0.iter().for_each(|bucket| bucket.store(0, Relaxed));
            }
        }
    }
}

impl CommandStats {
    /// Records some runs that took so long together; their durations, as equal shares, in the histogram only if `keep_duration`.
    #[inline]
    pub fn ran(&self, times: u64, nanos: u64, keep_duration: bool) {
        self.calls.add(times);
        self.nanos.add(nanos);
        if keep_duration {
            self.histogram.get_or_init(Histogram::new).record(nanos / times.max(1), times);
        }
    }

    /// Adds this command's durations to `sums`, one per bucket.
    pub fn add_durations(&self, sums: &mut Vec<u64>) {
        if let Some(histogram) = self.histogram.get() {
            sums.resize(histogram.0.len(), 0);
            for (sum, bucket) in sums.iter_mut().zip(&histogram.0) {
                *sum += u64::from(bucket.load(Relaxed));
            }
        }
    }
}

impl Histogram {
    fn new() -> Box<Histogram> {
        Box::new(Histogram(std::array::from_fn(|_| AtomicU32::new(0))))
    }

    #[inline]
    fn record(&self, nanos: u64, times: u64) {
        let bucket = &self.0[bucket_of(nanos)];
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        bucket.store(bucket.load(Relaxed).saturating_add(times), Relaxed);
    }
}

/// Bucket of a duration: its power of two and the next three bits.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let n = nanos.clamp(8, (1 << 50) - 1);
    let power = 63 - n.leading_zeros() as usize;
    ((power - 3) << 3) + ((n >> (power - 3)) & 7) as usize
}

/// The largest duration of a bucket, in nanoseconds.
pub fn bucket_top(bucket: usize) -> u64 {
    let (power, part) = (bucket / 8 + 3, (bucket % 8) as u64);
    ((8 + part + 1) << (power - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_within_its_bucket() {
        for nanos in [8, 9, 15, 16, 17, 1000, 123_456_789, 1 << 40] {
            let bucket = bucket_of(nanos);
            assert!(nanos <= bucket_top(bucket), "{nanos}");
            assert!(bucket == 0 || nanos > bucket_top(bucket - 1), "{nanos}");
        }
        assert!(bucket_of(u64::MAX) < 8 * 48);
    }

    #[test]
    fn durations_sum_over_workers() {
        let stats = [CommandStats::default(), CommandStats::default()];
        stats[0].ran(1, 1000, true);
        stats[1].ran(3, 3000, true);
        stats[1].ran(1, 1000, false);
        let mut sums = Vec::new();
        stats.iter().for_each(|s| s.add_durations(&mut sums));
        assert_eq!(sums[bucket_of(1000)], 4);
        assert_eq!(sums.iter().sum::<u64>(), 4, "what is not tracked has no duration");
        assert_eq!((stats[1].calls.value(), stats[1].nanos.value()), (4, 4000));
    }
}
