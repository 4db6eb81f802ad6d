//! What the loader hands to the workers: a bounded queue, and the count of what is not done with.
//!
//! Taking never waits. The loader, which has nothing else to do, looks again after [`PAUSE`] when the queue is full: what is
//! in it keeps the workers busy for longer than that.

use super::LoadError;
use crate::shared::Shared;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

/// Most items that wait: with [`CHUNK_BYTES`](super::insert::CHUNK_BYTES) each, some 2 MiB.
const ROOM: usize = 16;
/// Between two looks of the loader.
const PAUSE: Duration = Duration::from_micros(200);

pub(super) struct Queue<T> {
    items: ArrayQueue<T>,
    /// What was handed out and is not done with.
    unfinished: AtomicUsize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { items: ArrayQueue::new(ROOM), unfinished: AtomicUsize::new(0) }
    }
}

impl<T> Queue<T> {
    /// Hands something to the workers; waits for room.
    pub(super) fn hand_out(&self, shared: &Shared, mut item: T) -> Result<(), LoadError> {
        self.unfinished.fetch_add(1, AcqRel);
        loop {
            if let Err(error) = shared.persist.load.check(shared) {
                self.done(1);
                return Err(error);
            }
            match self.items.push(item) {
                Ok(()) => break,
                Err(back) => item = back,
            }
            std::thread::sleep(PAUSE);
        }
        shared.mail.iter().for_each(|mailbox| mailbox.wake_if_asleep());
        shared.persist.load.progress.report();
        Ok(())
    }

    /// Waits until everything is done with.
    pub(super) fn wait(&self, shared: &Shared) -> Result<(), LoadError> {
        loop {
            // An error is noted before its item is done with.
            let done = self.unfinished.load(Acquire) == 0;
            shared.persist.load.check(shared)?;
            shared.persist.load.progress.report();
            if done {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Drops what nobody has taken yet.
    pub(super) fn abandon(&self) {
        while self.items.pop().is_some() {
            self.done(1);
        }
    }

    /// A worker takes something.
    pub(super) fn take(&self) -> Option<T> {
        self.items.pop()
    }

    /// A worker has made so many more of what it took.
    pub(super) fn add(&self, items: usize) {
        self.unfinished.fetch_add(items, AcqRel);
    }

    /// A worker is done with so many that it took.
    pub(super) fn done(&self, items: usize) {
        self.unfinished.fetch_sub(items, AcqRel);
    }

    /// Nothing is left of what was handed out.
    pub(super) fn is_done(&self) -> bool {
        self.unfinished.load(Acquire) == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}
