//! Replies with the elements of a large value, written in slices.
//!
//! The handler takes the value's root, which costs the same at any size, and lets go of the lock; the elements of that moment are
//! then written about 100 µs at a time, while the worker serves its other connections and the value may change, or go. A reply that
//! fills the connection's output waits until the client has read some of it. In a transaction the slices follow each other at once.

use crate::exec::{Continuation, Exec, Outcome, SLICE_US, Stop};
use crate::reply::Reply;
use std::ops::Range;
use std::time::Instant;

/// Elements that are written under the lock rather than in slices: some µs.
pub const WRITTEN_AT_ONCE: usize = 256;

/// Elements between two looks at the clock.
const STEP: usize = 128;
/// Reply bytes that one slice may add.
const SLICE_BYTES: usize = 256 * 1024;

/// Elements of a value, held by its root.
pub trait Elements: Send {
    /// Writes the elements of these ranks.
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>);
}

/// Writes elements of these ranks in slices; the array's header was written. The locks should be released by then.
pub fn elements(exec: &mut Exec<'_>, ranks: Range<usize>, source: impl Elements + 'static) -> Outcome {
    if ranks.len() <= WRITTEN_AT_ONCE {
        source.write(ranks, &mut exec.reply);
        return Ok(());
    }
    Err(Stop::Continue(Box::new(Streamed { source, ranks })))
}

struct Streamed<S> {
    source: S,
    ranks: Range<usize>,
}

impl<S: Elements> Continuation for Streamed<S> {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let (started, before) = (Instant::now(), exec.reply.output().len());
        while !self.ranks.is_empty() {
            let end = self.ranks.end.min(self.ranks.start + STEP);
            self.source.write(self.ranks.start..end, &mut exec.reply);
            self.ranks.start = end;
            let written = exec.reply.output().len() - before;
            if written >= SLICE_BYTES || started.elapsed().as_micros() >= u128::from(SLICE_US) {
                break;
            }
        }
        Ok(self.ranks.is_empty())
    }
}
