//! [`Slots`]: where a connection's output lies while the writers have it.
//!
//! A slot belongs to a connection's number. Its lock is the recursive lock per client of Curto (2021): who writes holds it
//! while writing. It is never contended, as a connection is in the reply queue, with a writer, or in the queue back, but
//! only once in all: the lock only says to the compiler what the queues see to.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use crate::Output;
use crate::chunked::Chunked;

/// Every connection's slot.
pub(super) struct Slots(Chunked<Slot>);

/// One connection's.
#[derive(Default)]
pub(super) struct Slot {
    job: Mutex<Option<Job>>,
    /// Bytes of the output that the kernel has not taken yet.
    unsent: AtomicUsize,
    /// The connection is closed: what was not written yet need not be.
    cancelled: AtomicBool,
}

/// An output on its way.
pub(super) struct Job {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) output: Output,
    /// When it was put into the reply queue.
    pub(super) queued: Instant,
    pub(super) outcome: Outcome,
    pub(super) tally: Tally,
}

/// What has become of an output.
pub(super) enum Outcome {
    /// It waits for a writer.
    Queued,
    /// The socket is full.
    Full,
    /// It is over.
    Done(io::Result<()>),
}

/// What writers have done, brought home with the output.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) sends: u64,
    pub(super) short_sends: u64,
    /// How long it lay in the queue.
    pub(super) waited_ns: u64,
    /// Partial queues that were looked at for it.
    pub(super) visits: u64,
    /// Times a writer put it in again, because the socket would have taken more.
    pub(super) queued: u64,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots(Chunked::new())
    }

    /// Makes slots for numbers below `len`; returns how many there are now, if some are new.
    pub(super) fn grow(&self, len: usize) -> Option<usize> {
        let new = self.0.grow(len, Slot::default);
        (!new.is_empty()).then_some(new.end as usize)
    }

    pub(super) fn at(&self, index: u32) -> &Slot {
        self.0.at(index)
    }
}

impl Slot {
    pub(super) fn job(&self) -> MutexGuard<'_, Option<Job>> {
        self.job.lock().expect("nothing panics while it writes")
    }

    /// A new output; the writers find it through the queue.
    pub(super) fn begin(&self, job: Job) {
        self.unsent.store(job.output.len(), Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Relaxed);
        let before = self.job().replace(job);
        debug_assert!(before.is_none(), "a send is in flight already");
    }

    pub(super) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }

    pub(super) fn set_unsent(&self, bytes: usize) {
        self.unsent.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
