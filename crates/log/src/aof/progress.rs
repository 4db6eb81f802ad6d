//! How far the log's files are, for everybody to look at.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::Lsn;

/// Whether the log can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It can.
    Fine,
    /// There is no room on the disk. Nothing is lost; it is tried again.
    Full,
    /// A write or sync failed. Nothing will be acknowledged again.
    Failed,
}

/// Watermarks and counts. Written by the log's writer only.
pub struct Progress {
    written: AtomicU64,
    durable: AtomicU64,
    condition: AtomicU8,
    reason: Mutex<String>,
    changed: Box<dyn Fn() + Send + Sync>,
    pub(super) counts: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) groups: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) last_sync_us: AtomicU64,
    pub(super) file_bytes: AtomicU64,
    pub(super) increment: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) wakes: AtomicU64,
    pub(super) resubmitted: AtomicU64,
}

impl Progress {
    /// `changed` is called after each change of the condition, by the thread that writes.
    pub fn new(changed: Box<dyn Fn() + Send + Sync>) -> Progress {
        Progress {
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            condition: AtomicU8::new(FINE),
            reason: Mutex::new(String::new()),
            changed,
            counts: Counts::default(),
        }
    }

    /// Everything before this position is in the kernel: a killed process does not lose it.
    pub fn written_lsn(&self) -> Lsn {
        self.written.load(Ordering::Acquire)
    }

    /// Everything before this position was synced: a power cut does not lose it.
    pub fn durable_lsn(&self) -> Lsn {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether the log can be written.
    pub fn condition(&self) -> Condition {
        match self.condition.load(Ordering::Acquire) {
            FINE => Condition::Fine,
            FULL => Condition::Full,
            _ => Condition::Failed,
        }
    }

    /// What went wrong last. Empty: nothing.
    pub fn reason(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Groups written.
    pub fn groups(&self) -> u64 {
        self.counts.groups.load(Ordering::Relaxed)
    }

    /// Syncs done.
    pub fn syncs(&self) -> u64 {
        self.counts.syncs.load(Ordering::Relaxed)
    }

    /// How long the last sync took.
    pub fn last_sync(&self) -> Duration {
        Duration::from_micros(self.counts.last_sync_us.load(Ordering::Relaxed))
    }

    /// Bytes in the file that is written to, without prepared space.
    pub fn file_bytes(&self) -> u64 {
        self.counts.file_bytes.load(Ordering::Relaxed)
    }

    /// The number of the increment that is written to.
    pub fn increment(&self) -> u64 {
        self.counts.increment.load(Ordering::Relaxed)
    }

    /// How often writing waited for a sync of another thread that did not end (`aof_delayed_fsync`).
    pub fn delayed(&self) -> u64 {
        self.counts.delayed.load(Ordering::Relaxed)
    }

    /// Workers that the writer has woken itself, a system call each.
    pub fn wakes(&self) -> u64 {
        self.counts.wakes.load(Ordering::Relaxed)
    }

    /// How often a chain of ring operations was broken and submitted again.
    pub fn resubmitted(&self) -> u64 {
        self.counts.resubmitted.load(Ordering::Relaxed)
    }

    pub(super) fn set_written(&self, lsn: Lsn) {
        self.written.store(lsn, Ordering::Release);
    }

    pub(super) fn set_durable(&self, lsn: Lsn) {
        self.durable.store(lsn, Ordering::Release);
    }

    pub(super) fn synced(&self, took: Duration) {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.counts.last_sync_us.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn set_condition(&self, condition: Condition, reason: String) {
        let before = self.condition();
        // A failure is for ever.
        if before == condition || before == Condition::Failed {
            return;
        }
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        let value = match condition {
            Condition::Fine => FINE,
            Condition::Full => FULL,
            Condition::Failed => FAILED,
        };
        self.condition.store(value, Ordering::Release);
        (self.changed)();
    }
}

const FINE: u8 = 0;
const FULL: u8 = 1;
const FAILED: u8 = 2;

impl fmt::Debug for Progress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Progress")
            .field("written", &self.written)
            .field("durable", &self.durable)
            .field("condition", &self.condition())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
