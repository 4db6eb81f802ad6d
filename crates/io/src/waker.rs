//! [`Waker`]: ends an engine's wait from any thread.
//!
//! A flag in front of the eventfd coalesces wakes: only the first after a `Woken` pays for the system call. The engine
//! clears the flag *before* it reports `Woken`, so that what another thread published before its wake is seen by the
//! worker's look afterwards. The eventfd is never read: both engines watch it edge-triggered, and its counter cannot
//! reach its limit of 2^64 - 2.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::os;
use crate::sim::SimNet;

/// Wakes one engine. Clones wake the same one; it may outlive the engine.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pending: AtomicBool,
    signal: Signal,
}

#[derive(Debug)]
enum Signal {
    Event(OwnedFd),
    Sim(Arc<SimNet>),
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker::with(Signal::Event(os::eventfd()?)))
    }

    pub(crate) fn simulated(net: Arc<SimNet>) -> Waker {
        Waker::with(Signal::Sim(net))
    }

    fn with(signal: Signal) -> Waker {
        Waker(Arc::new(Inner { pending: AtomicBool::new(false), signal }))
    }

    /// Makes the engine's current or next `wait` return and report `Woken`.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            match &self.0.signal {
                Signal::Event(event) => os::eventfd_write(event.as_fd()),
                Signal::Sim(net) => net.poke(),
            }
        }
    }

    /// What the kernel's engines watch; `None` if this one is simulated.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.signal {
            Signal::Event(event) => Some(event.as_fd()),
            Signal::Sim(_) => None,
        }
    }

    /// Clears the flag and tells whether it was set.
    pub(crate) fn take(&self) -> bool {
        self.0.pending.swap(false, Ordering::AcqRel)
    }
}
