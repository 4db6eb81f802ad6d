//! The latency monitor: what took longer than `latency-monitor-threshold`, by kind of event.
//!
//! One for the server behind a lock, as only what is over the threshold comes here. An event keeps its latest samples,
//! one a second at most, as in Redis.

use std::collections::{BTreeMap, VecDeque};

/// Samples kept of one event.
const SAMPLES: usize = 160;

/// One delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it was, in seconds.
    pub at_s: i64,
    /// How long it took, in ms.
    pub took_ms: u64,
}

/// The delays of one kind.
#[derive(Debug, Default)]
pub struct Event {
    samples: VecDeque<Sample>,
    most_ms: u64,
}

/// All kinds of delays that occurred.
#[derive(Debug, Default)]
pub struct LatencyMonitor {
    events: BTreeMap<&'static str, Event>,
}

impl Event {
    /// Its samples, oldest first; never empty.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = Sample> + ExactSizeIterator + '_ {
        self.samples.iter().copied()
    }

    /// The longest delay since the last reset, in ms.
    pub fn most_ms(&self) -> u64 {
        self.most_ms
    }
}

impl LatencyMonitor {
    /// Remembers a delay; of several in one second the longest.
    pub fn add(&mut self, name: &'static str, sample: Sample) {
        let event = self.events.entry(name).or_default();
        event.most_ms = event.most_ms.max(sample.took_ms);
        match event.samples.back_mut() {
            Some(last) if last.at_s == sample.at_s => last.took_ms = last.took_ms.max(sample.took_ms),
            _ => event.samples.push_back(sample),
        }
        if event.samples.len() > SAMPLES {
            event.samples.pop_front();
        }
    }

    /// Every kind by name.
    pub fn events(&self) -> impl ExactSizeIterator<Item = (&'static str, &Event)> {
        self.events.iter().map(|(name, event)| (*name, event))
    }

    /// The kind of this name, in any case.
    pub fn event(&self, name: &[u8]) -> Option<(&'static str, &Event)> {
        self.events().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Forgets the kinds whose names `wanted` takes; returns how many these were.
    pub fn reset(&mut self, wanted: impl Fn(&str) -> bool) -> usize {
        let before = self.events.len();
        self.events.retain(|name, _| !wanted(name));
        before - self.events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_a_second_and_the_latest_are_kept() {
        let mut monitor = LatencyMonitor::default();
        for at_s in 0..200 {
            monitor.add("command", Sample { at_s, took_ms: 5 });
            monitor.add("command", Sample { at_s, took_ms: 9 });
            monitor.add("command", Sample { at_s, took_ms: 7 });
        }
        let (name, event) = monitor.event(b"COMMAND").expect("it occurred");
        assert_eq!((name, event.most_ms(), event.samples().len()), ("command", 9, SAMPLES));
        assert_eq!(event.samples().next_back(), Some(Sample { at_s: 199, took_ms: 9 }));
        monitor.add("fast-command", Sample { at_s: 0, took_ms: 1 });
        assert_eq!(monitor.reset(|name| name == "nothing"), 0);
        assert_eq!(monitor.reset(|name| name == "command"), 1);
        assert_eq!(monitor.reset(|_| true), 1);
        assert_eq!(monitor.events().len(), 0);
    }
}
