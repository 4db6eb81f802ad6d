//! What the 24 bits of an entry's access clock mean: the second of the last use, or how often the key is used.
//!
//! LRU: seconds, going round after 194 days. LFU, as Redis counts: 16 bits of minutes since the counter was last brought up to
//! date, below them 8 bits that grow with the logarithm of the uses and shrink by one per period without any. Which of the two
//! is meant follows the eviction policy; entries are not told when it changes, so their clocks mislead for a while.
//!
//! Time and randomness come in as arguments, as everywhere in this crate.

use crate::entry::CLOCK_LIMIT;

/// Counter of a key that was just made: above 0, so that it is not evicted before it had a chance to be used.
pub const LFU_INITIAL: u8 = 5;

/// How use counters grow and shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lfu {
    /// The higher, the more uses a counter needs to grow.
    pub log_factor: u32,
    /// Minutes without use after which a counter shrinks by one; 0: never.
    pub decay_minutes: u32,
}

/// The clock at one moment.
#[derive(Clone, Copy, Debug)]
pub struct AccessClock {
    seconds: u32,
    minutes: u16,
    lfu: Option<Lfu>,
}

impl AccessClock {
    /// The clock at `now_ms`; with `lfu` it counts uses, else it tells seconds.
    pub fn new(now_ms: i64, lfu: Option<Lfu>) -> Self {
        let seconds = now_ms.div_euclid(1000);
        let low = |time: i64, limit: u32| u32::try_from(time.rem_euclid(i64::from(limit))).expect("below the limit");
        let minutes = u16::try_from(low(seconds.div_euclid(60), 1 << 16)).expect("16 bits");
        Self { seconds: low(seconds, CLOCK_LIMIT), minutes, lfu }
    }

    /// The second that this clock tells: 24 bits.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Whether uses are counted.
    #[inline]
    pub fn is_lfu(&self) -> bool {
        self.lfu.is_some()
    }

    /// The value for a key that is made now.
    pub fn fresh(&self) -> u32 {
        if self.is_lfu() { self.of_frequency(LFU_INITIAL) } else { self.seconds }
    }

    /// The value after a use, from the one before.
    pub fn used(&self, clock: u32, random: u64) -> u32 {
        let Some(lfu) = self.lfu else { return self.seconds };
        let count = self.frequency(clock);
        let grown = if grows(count, lfu.log_factor, random) { count + 1 } else { count };
        self.of_frequency(grown)
    }

    /// Seconds since the last use. Another thread's clock may be a little ahead: that is 0.
    pub fn idle_s(&self, clock: u32) -> u32 {
        let apart = self.seconds.wrapping_sub(clock) % CLOCK_LIMIT;
        if apart > CLOCK_LIMIT / 2 { 0 } else { apart }
    }

    /// The use counter, less what it has lost since it was last changed.
    pub fn frequency(&self, clock: u32) -> u8 {
        let [count, low, high, _] = clock.to_le_bytes();
        let idle_minutes = u32::from(self.minutes.wrapping_sub(u16::from_le_bytes([low, high])));
        let decay = self.lfu.map_or(0, |lfu| lfu.decay_minutes);
        let periods = idle_minutes.checked_div(decay).unwrap_or(0);
        count.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }

    /// The value of a key that was last used so many seconds ago (RESTORE IDLETIME).
    pub fn of_idle(&self, idle_s: u64) -> u32 {
        // Half a round is the most that can be told from the future.
        let idle_s = u32::try_from(idle_s).unwrap_or(u32::MAX).min(CLOCK_LIMIT / 2);
        self.seconds.wrapping_sub(idle_s) % CLOCK_LIMIT
    }

    /// The value of a key whose use counter is `count` now (RESTORE FREQ).
    pub fn of_frequency(&self, count: u8) -> u32 {
        u32::from(self.minutes) << 8 | u32::from(count)
    }
}

/// Whether one more use lets a counter grow: with a chance of 1 in (count - initial) * factor + 1.
fn grows(count: u8, log_factor: u32, random: u64) -> bool {
    let above = u64::from(count.saturating_sub(LFU_INITIAL));
    count < u8::MAX && random.is_multiple_of(above * u64::from(log_factor) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LFU: Lfu = Lfu { log_factor: 10, decay_minutes: 1 };

    fn lfu(minutes: i64) -> AccessClock {
        AccessClock::new(minutes * 60_000, Some(LFU))
    }

    #[test]
    fn idle_times_go_round_with_the_clock() {
        let at = |seconds: i64| AccessClock::new(seconds * 1000, None);
        assert_eq!(at(100).idle_s(at(90).fresh()), 10);
        assert_eq!(at(i64::from(CLOCK_LIMIT) + 3).idle_s(CLOCK_LIMIT - 2), 5);
        assert_eq!(at(99).idle_s(100), 0, "another thread's clock was ahead");
        assert_eq!(at(5000).idle_s(at(5000).of_idle(1234)), 1234);
        assert_eq!(at(5).idle_s(at(5).of_idle(1000)), 1000);
        assert_eq!(at(5).idle_s(at(5).of_idle(u64::MAX)), CLOCK_LIMIT / 2);
    }

    #[test]
    fn counters_shrink_with_the_minutes_and_go_round() {
        assert_eq!(lfu(1000).frequency(lfu(1000).fresh()), LFU_INITIAL);
        assert_eq!(lfu(1003).frequency(lfu(1000).of_frequency(100)), 97);
        assert_eq!(lfu(2000).frequency(lfu(1000).of_frequency(100)), 0);
        assert_eq!(lfu(65_536 + 2).frequency(lfu(65_535).of_frequency(100)), 97);
        let never = AccessClock::new(2000 * 60_000, Some(Lfu { decay_minutes: 0, ..LFU }));
        assert_eq!(never.frequency(lfu(1000).of_frequency(100)), 100);
        let slow = AccessClock::new(1009 * 60_000, Some(Lfu { decay_minutes: 5, ..LFU }));
        assert_eq!(slow.frequency(lfu(1000).of_frequency(100)), 99);
    }

    /// Redis's documentation has a table of counters by uses and factor; with factor 10 it says 10, 18, 142, 255.
    #[test]
    fn counters_grow_with_the_logarithm_of_the_uses() {
        let clock = lfu(1);
        let mut word = 1_u64;
        for (uses, about) in [(100, 10), (1000, 18), (100_000, 142), (1_000_000, 255)] {
            let mut value = clock.fresh();
            for _ in 0..uses {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                value = clock.used(value, word >> 20);
            }
            let count = u32::from(clock.frequency(value));
            assert!(count.abs_diff(about) <= about / 4, "{count} after {uses} uses, about {about} was expected");
        }
        assert_eq!(clock.used(clock.of_frequency(255), 0), clock.of_frequency(255), "the counter stays at its top");
    }

    #[test]
    fn a_factor_of_0_counts_every_use() {
        let clock = AccessClock::new(0, Some(Lfu { log_factor: 0, decay_minutes: 1 }));
        assert_eq!(clock.frequency(clock.used(clock.of_frequency(200), 12_345)), 201);
    }
}
