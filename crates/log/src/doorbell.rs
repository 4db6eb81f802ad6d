//! Waking the reader's thread: workers ring after a batch of appends, and pay a system call only if the reader sleeps.
//!
//! The reader announces that it will sleep until the log ends behind a position, and looks at the log once more; a worker appends
//! and looks at the announcement. Each does its store, a fence, and its load, so at least one of them sees the other. The same
//! holds between a reader that *gathers* (it sleeps although there is something to read, as there will be more in a moment) and a
//! worker that goes to sleep itself: nothing more comes from that one.
//! The announcement is only written by read-modify-writes, so that its values follow each other as those who wrote them
//! saw them. `tests/loom_doorbell.rs` is the model.

use std::fmt;
use std::sync::OnceLock;

use crate::Lsn;
use crate::sync::{AcqRel, AtomicBool, AtomicU64, Padded, Relaxed, SeqCst, fence};

pub(crate) struct Doorbell {
    sleep: Padded<Sleep>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Sleep {
    /// The reader is to be woken when the log ends behind this; [`AWAKE`] if it is.
    behind: AtomicU64,
    /// It is also to be woken when a worker goes to sleep.
    gathers: AtomicBool,
}

const AWAKE: Lsn = Lsn::MAX;

impl Doorbell {
    pub(crate) fn new() -> Doorbell {
        let sleep = Padded(Sleep { behind: AtomicU64::new(AWAKE), gathers: AtomicBool::new(false) });
        Doorbell { sleep, waker: OnceLock::new() }
    }

    pub(crate) fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        assert!(self.waker.set(waker).is_ok(), "the reader's waker is set once");
    }

    /// Reader: "I will sleep until the log ends behind `position`", or, if it `gathers`, until a worker sleeps. It must look at the
    /// log after this, and at the workers if it gathers, before it sleeps.
    pub(crate) fn announce(&self, position: Lsn, gathers: bool) {
        self.sleep.0.gathers.store(gathers, Relaxed);
        self.sleep.0.behind.swap(position, AcqRel);
        fence(SeqCst);
    }

    /// Reader: "I did not sleep after all". A waker that was called meanwhile wakes it once for nothing.
    pub(crate) fn withdraw(&self) {
        self.sleep.0.behind.swap(AWAKE, AcqRel);
    }

    /// Worker, after its appends: the log's end is at least `end`.
    #[inline]
    pub(crate) fn ring(&self, end: impl FnOnce() -> Lsn) {
        fence(SeqCst);
        let behind = self.sleep.0.behind.load(Relaxed);
        if behind != AWAKE && behind < end() {
            self.wake();
        }
    }

    /// Worker, after it has announced that it will sleep until something is released (which passes a full fence).
    #[inline]
    pub(crate) fn ring_idle(&self) {
        if self.sleep.0.gathers.load(Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // One of several ringing workers makes the call.
        if self.sleep.0.behind.swap(AWAKE, AcqRel) != AWAKE
            && let Some(waker) = self.waker.get()
        {
            waker();
        }
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("behind", &self.sleep.0.behind).finish_non_exhaustive()
    }
}
