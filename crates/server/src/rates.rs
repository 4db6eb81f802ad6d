//! What happens per second, and the most memory that was ever in use: looked at ten times a second by the first worker.

use crate::shared::Shared;
use crate::stats::WorkerStats;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Looks that a rate is taken over, as in Redis: one and a half seconds.
const LOOKS: usize = 16;

/// What is counted at one look: commands, bytes received, bytes sent, passes, nanoseconds in passes.
type Counts = [u64; 5];

/// Recent looks at the counters.
#[derive(Default)]
pub struct Rates {
    looks: Mutex<VecDeque<(Instant, Counts)>>,
    peak_bytes: AtomicU64,
}

/// Averages over the last one and a half seconds.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct PerSecond {
    /// Commands.
    pub commands: f64,
    /// Bytes received.
    pub received: f64,
    /// Bytes sent.
    pub sent: f64,
    /// Passes of the workers.
    pub passes: f64,
    /// Nanoseconds in them.
    pub busy_ns: f64,
}

impl Rates {
    /// Remembers how the counters stand.
    pub fn look(&self, now: Instant, counts: Counts) {
        let mut looks = self.looks.lock().expect("rates do not panic");
        looks.push_back((now, counts));
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }

    /// What happened per second between the oldest look and the newest.
    pub fn per_second(&self) -> PerSecond {
        let looks = self.looks.lock().expect("rates do not panic");
        let (Some((from, before)), Some((to, after))) = (looks.front(), looks.back()) else {
            return PerSecond::default();
        };
        let seconds = to.duration_since(*from).as_secs_f64();
        // A reset in between makes a counter smaller.
        let rate = |i: usize| if seconds > 0.0 { after[i].saturating_sub(before[i]) as f64 / seconds } else { 0.0 };
        PerSecond { commands: rate(0), received: rate(1), sent: rate(2), passes: rate(3), busy_ns: rate(4) }
    }

    /// Raises the most bytes that were in use; returns it.
    pub fn peak(&self, used_bytes: u64) -> u64 {
        self.peak_bytes.fetch_max(used_bytes, Relaxed).max(used_bytes)
    }

    /// Puts the peak and the rates back, as RESETSTAT does.
    pub fn reset(&self) {
        self.looks.lock().expect("rates do not panic").clear();
        self.peak_bytes.store(0, Relaxed);
    }
}

impl Shared {
    /// One look at the counters and at memory.
    pub fn look_at_rates(&self, now: Instant) {
        let count = |of: fn(&WorkerStats) -> u64| self.sum(of);
        let counts = [
            count(|s| s.commands.value()),
            count(|s| s.received_bytes.value()),
            count(|s| s.sent_bytes.value()),
            count(|s| s.passes.value()),
            count(|s| s.busy_ns.value()),
        ];
        self.rates.look(now, counts);
        self.rates.peak(self.used_bytes(self.dataset_bytes()));
    }

    /// Bytes of the data. Each call sums anew, and other workers write meanwhile: what is compared comes of one call.
    pub fn dataset_bytes(&self) -> u64 {
        self.keyspace.bytes().total() as u64
    }

    /// Bytes in use: what the process had before any data, these of the data, and what waits for clients and for the log.
    pub fn used_bytes(&self, dataset_bytes: u64) -> u64 {
        self.identity.startup_bytes + dataset_bytes + self.client_bytes.total() as u64 + self.log.pending()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rates_are_taken_between_the_oldest_look_and_the_newest() {
        let rates = Rates::default();
        assert_eq!(rates.per_second(), PerSecond::default());
        let start = Instant::now();
        for tick in 0..40_u32 {
            let n = u64::from(tick);
            rates.look(start + Duration::from_millis(100) * tick, [n * 10, n * 1000, n, n * 2, n * 50]);
        }
        let per_second = rates.per_second();
        assert!((per_second.commands - 100.0).abs() < 1e-6, "{per_second:?}");
        assert!((per_second.received - 10_000.0).abs() < 1e-6, "{per_second:?}");
        assert!((per_second.passes - 20.0).abs() < 1e-6, "{per_second:?}");
        rates.look(start + Duration::from_secs(10), [0; 5]);
        assert_eq!(rates.per_second(), PerSecond::default(), "a reset makes no negative rate");
    }
}
