//! The word for which those race who can end a wait: who serves it, its timeout, CLIENT UNBLOCK, and the end of its connection.
//!
//! ```text
//! WAITING ── claim ──> CLAIMED ── finish ──> DONE
//!    │  <── give_back ──┘  └─ leave ─> LEFT ──^
//!    └────────── cancel, leave ───────────────┘
//! ```
//! Only one of them gets it from `WAITING`. While it is claimed, whoever wanted to cancel comes again: it is given back, or done. Who
//! cannot come again, since the connection is gone, leaves a word: a claim that is then given back ends the wait.
//! The elements that a claim pops, and the reply, belong to who claimed; nobody else looks at them.

use crate::sync::{AtomicUsize, Ordering};

/// The word; see the module's description.
#[derive(Debug)]
pub struct Claim(AtomicUsize);

const WAITING: usize = 0;
const CLAIMED: usize = 1;
const DONE: usize = 2;
const LEFT: usize = 3;

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

    /// There was nothing to serve: the wait goes on, unless the waiter has left. Only who claimed may call this.
    pub fn give_back(&self) {
        if self.0.compare_exchange(CLAIMED, WAITING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.0.store(DONE, Ordering::Release);
        }
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

    /// Ends the wait for good, as its connection ends: nobody claims it from now on, and who has claimed it serves or gives it back
    /// to nobody. Only the waiter may call this.
    pub fn leave(&self) {
        let end = |from, to| self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // Between the two tries it may be given back, and claimed by another.
        while self.is_open() && !end(WAITING, DONE) && !end(CLAIMED, LEFT) {}
    }

    /// Whether the wait is not over.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) != DONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A client that left while it was looked after, in vain, was waited for by nobody, and served next.
    #[test]
    fn who_left_is_through_however_the_claim_ends() {
        for served in [false, true] {
            let claim = Claim::default();
            assert!(claim.claim());
            claim.leave();
            assert!(claim.is_open(), "who meets it comes again");
            if served {
                claim.finish()
            } else {
                claim.give_back()
            }
            assert!(!claim.is_open() && !claim.claim() && !claim.cancel());
        }
        let claim = Claim::default();
        claim.leave();
        assert!(!claim.is_open() && !claim.claim());
    }
}
