//! The watermark that held replies wait for, and the waking of workers that sleep until it moves.
//!
//! A worker that has nothing to do but held replies announces the lowest position it waits for, and looks at the watermark
//! again. Whoever moves the watermark looks at the announcements, *claims* an announcement that is due by taking it out
//! with a compare-and-swap, and calls that worker's waker.
//!
//! A waker is a system call (5 µs and more for an eventfd with a sleeper), and the one who releases is the log's writer,
//! whose next write waits for it. So a scan stops after [`WAKES`] calls, and each worker that was claimed scans again
//! when it comes out of its wait: the wake spreads as a binary tree.
//!
//! No wake is lost:
//! * the announcement and the watermark are stored before a full fence and the other one is loaded after it, so that the
//!   worker sees the new watermark or the scan sees the announcement;
//! * a scan that ends early has claimed workers that will scan after it; a scan that runs to its end has claimed all it saw.
//!
//! `tests/loom_release.rs` is the model. The alternative, a condition variable, was dropped: workers sleep in their I/O
//! engine, not on the log.

use std::fmt;
use std::sync::OnceLock;

use crate::Lsn;
use crate::sync::{AcqRel, Acquire, AtomicU64, Padded, Relaxed, SeqCst, fence};

/// How many workers one scan wakes.
const WAKES: usize = 2;
/// No announcement. A worker that waits for this position waits for ever.
const NOTHING: Lsn = Lsn::MAX;

pub(crate) struct Watermark {
    released: Padded<AtomicU64>,
    sleepers: Box<[Padded<Sleeper>]>,
}

struct Sleeper {
    /// The position that the worker waits for, or [`NOTHING`].
    waits_for: AtomicU64,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Watermark {
    pub(crate) fn new(workers: usize) -> Watermark {
        let sleeper = || Padded(Sleeper { waits_for: AtomicU64::new(NOTHING), waker: OnceLock::new() });
        Watermark { released: Padded(AtomicU64::new(0)), sleepers: (0..workers).map(|_| sleeper()).collect() }
    }

    pub(crate) fn set_waker(&self, worker: usize, waker: Box<dyn Fn() + Send + Sync>) {
        assert!(self.sleepers[worker].0.waker.set(waker).is_ok(), "a worker's waker is set once");
    }

    #[inline]
    pub(crate) fn released(&self) -> Lsn {
        self.released.0.load(Acquire)
    }

    /// Moves the watermark without waking anybody.
    pub(crate) fn advance(&self, up_to: Lsn) {
        self.released.0.fetch_max(up_to, AcqRel);
    }

    /// Moves the watermark, and wakes some of those who wait; how many.
    pub(crate) fn release(&self, up_to: Lsn) -> usize {
        self.advance(up_to);
        self.wake_some()
    }

    /// Whether a worker sleeps until something is released.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.iter().any(|Padded(sleeper)| sleeper.waits_for.load(Relaxed) != NOTHING)
    }

    /// Worker: "I will sleep until `lsn` is released". `false`: it is released, and nothing is announced.
    pub(crate) fn announce(&self, worker: usize, lsn: Lsn) -> bool {
        if lsn <= self.released() {
            return false;
        }
        self.sleepers[worker].0.waits_for.store(lsn, Relaxed);
        fence(SeqCst);
        if lsn <= self.released() {
            self.withdraw(worker);
            return false;
        }
        true
    }

    /// Worker: "I am awake". If a scan had claimed it, it goes on where that scan stopped.
    pub(crate) fn withdraw(&self, worker: usize) {
        if self.sleepers[worker].0.waits_for.swap(NOTHING, AcqRel) == NOTHING {
            self.wake_some();
        }
    }

    fn wake_some(&self) -> usize {
        fence(SeqCst);
        let released = self.released();
        let mut woken = 0;
        for Padded(sleeper) in &self.sleepers {
            let lsn = sleeper.waits_for.load(Relaxed);
            if lsn > released || sleeper.waits_for.compare_exchange(lsn, NOTHING, AcqRel, Relaxed).is_err() {
                continue;
            }
            if let Some(waker) = sleeper.waker.get() {
                waker();
            }
            woken += 1;
            if woken == WAKES {
                break;
            }
        }
        woken
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watermark").field("released", &self.released).field("workers", &self.sleepers.len()).finish()
    }
}
