//! Waking the reader's thread: workers ring after a batch of appends, and pay a system call only if the reader sleeps.
//!
//! The reader announces that it will sleep and looks at the log once more; a worker appends and looks at the
//! announcement. Each does its store, a fence, and its load, so at least one of them sees the other.
//! The announcement is only written by read-modify-writes, so that its values follow each other as those who wrote them
//! saw them. `tests/loom_doorbell.rs` is the model.

use std::fmt;
use std::sync::OnceLock;

use crate::sync::{AcqRel, AtomicBool, Padded, Relaxed, SeqCst, fence};

pub(crate) struct Doorbell {
    sleeping: Padded<AtomicBool>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Doorbell {
    pub(crate) fn new() -> Doorbell {
        Doorbell { sleeping: Padded(AtomicBool::new(false)), waker: OnceLock::new() }
    }

    pub(crate) fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        assert!(self.waker.set(waker).is_ok(), "the reader's waker is set once");
    }

    /// Reader: "I will sleep". It must look at the log after this, and before it sleeps.
    pub(crate) fn announce(&self) {
        self.sleeping.0.swap(true, AcqRel);
        fence(SeqCst);
    }

    /// Reader: "I did not sleep after all". A waker that was called meanwhile wakes it once for nothing.
    pub(crate) fn withdraw(&self) {
        self.sleeping.0.swap(false, AcqRel);
    }

    /// Worker, after its appends.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(SeqCst);
        if self.sleeping.0.load(Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // One of several ringing workers makes the call.
        if self.sleeping.0.swap(false, AcqRel)
            && let Some(waker) = self.waker.get()
        {
            waker();
        }
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("sleeping", &self.sleeping).finish_non_exhaustive()
    }
}
