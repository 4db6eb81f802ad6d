//! A sum that many threads change and any may read: bytes in use, keys that expire.
//!
//! Each participant collects its changes in a word of its own, which nobody else writes, and brings it into the common sum when
//! it has grown to a [`STEP`]. A change therefore costs no locked instruction and shares no line most of the time; a reader sees
//! its own changes at once and the others' at most a step each late.
//!
//! Dropped: one atomic sum (a contended line per write), and adding up the tables of all shards (a thousand lines per look).

use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use crate::sync::Padded;

/// The most that one participant's changes may stay out of the common sum.
pub const STEP: isize = 16 * 1024;

/// The sum; see the module's description.
pub struct Gauge {
    settled: Padded<AtomicIsize>,
    own: Box<[Padded<AtomicIsize>]>,
}

impl Gauge {
    /// A sum of 0 that so many participants change.
    pub fn new(participants: usize) -> Self {
        Self { settled: Padded::default(), own: (0..participants).map(|_| Padded::default()).collect() }
    }

    /// Adds `by`, which may be negative. Only `participant`'s own thread may say its number.
    #[inline]
    pub fn change(&self, participant: usize, by: isize) {
        let own = &self.own[participant].0;
        let sum = own.load(Relaxed).wrapping_add(by);
        own.store(sum, Relaxed);
        if sum.unsigned_abs() >= STEP.unsigned_abs() {
            self.settle(participant);
        }
    }

    /// Brings what `participant` has collected into the common sum. Only its own thread may do so.
    pub fn settle(&self, participant: usize) {
        let own = &self.own[participant].0;
        let sum = own.load(Relaxed);
        if sum != 0 {
            own.store(0, Relaxed);
            self.settled.0.fetch_add(sum, Relaxed);
        }
    }

    /// The sum as `participant` can tell without a look at the others' words; 0 if it would be negative.
    #[inline]
    pub fn estimate(&self, participant: usize) -> usize {
        let sum = self.settled.0.load(Relaxed).wrapping_add(self.own[participant].0.load(Relaxed));
        usize::try_from(sum).unwrap_or(0)
    }

    /// The sum with what everyone has collected: exact while nobody changes it.
    pub fn total(&self) -> usize {
        let sum = self.own.iter().fold(self.settled.0.load(Relaxed), |sum, own| sum.wrapping_add(own.0.load(Relaxed)));
        usize::try_from(sum).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_exact_and_an_estimate_lags_by_less_than_a_step_each() {
        const THREADS: usize = 4;
        let gauge = Gauge::new(THREADS);
        std::thread::scope(|scope| {
            for participant in 0..THREADS {
                let gauge = &gauge;
                scope.spawn(move || {
                    for number in 0..10_000_isize {
                        gauge.change(participant, number % 100);
                        gauge.change(participant, -(number % 50));
                    }
                });
            }
        });
        let exact: isize = (0..10_000).map(|number| number % 100 - number % 50).sum::<isize>() * THREADS.cast_signed();
        assert_eq!(gauge.total(), exact.unsigned_abs());
        let late = gauge.total().abs_diff(gauge.estimate(0));
        assert!(late < (THREADS - 1) * STEP.unsigned_abs(), "{late} bytes late");
        (0..THREADS).for_each(|participant| gauge.settle(participant));
        assert_eq!((gauge.estimate(2), gauge.total()), (exact.unsigned_abs(), exact.unsigned_abs()));
    }

    #[test]
    fn a_sum_below_nothing_reads_as_nothing() {
        let gauge = Gauge::new(1);
        gauge.change(0, -5);
        assert_eq!((gauge.estimate(0), gauge.total()), (0, 0));
        gauge.change(0, 8);
        assert_eq!((gauge.estimate(0), gauge.total()), (3, 3));
    }
}
