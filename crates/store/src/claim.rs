//! The word for which those race who can end a wait: who serves it, its timeout, CLIENT UNBLOCK, and the end of its connection.
//!
//! ```text
//! WAITING ── claim ──> CLAIMED ── finish ──> DONE
//!    │  <── give_back ──┘                      ^
//!    └────────────── cancel ───────────────────┘
//! ```
//! Only one of them gets it from `WAITING`. While it is claimed, whoever wanted to cancel comes again: it is given back, or done.
//! The elements that a claim pops, and the reply, belong to who claimed; nobody else looks at them.

use crate::sync::{AtomicUsize, Ordering};

/// The word; see the module's description.
#[derive(Debug)]
pub struct Claim(AtomicUsize);

const WAITING: usize = 0;
const CLAIMED: usize = 1;
const DONE: usize = 2;

impl Default for Claim {
    fn default() -> Self {
        Self(AtomicUsize::new(WAITING))
    }
}

impl Claim {
    /// Takes the right to serve; false if the wait is over, or another thread serves.
    pub fn claim(&self) -> bool {
        self.0.compare_exchange(WAITING, CLAIMED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// There was nothing to serve: the wait goes on. Only who claimed may call this.
    pub fn give_back(&self) {
        self.0.store(WAITING, Ordering::Release);
    }

    /// It was served. Only who claimed may call this.
    pub fn finish(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    /// Ends the wait without serving; false if it is over, or about to be served: then the reply is on its way, or the claim will
    /// be given back and this is to be tried again.
    pub fn cancel(&self) -> bool {
        self.0.compare_exchange(WAITING, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the wait is not over.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) != DONE
    }
}
