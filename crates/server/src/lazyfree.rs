//! Freeing what would hold a worker up: a thread that drops large values and flushed databases.
//!
//! Whatever leaves the keyspace ends in [`Lazyfree::discard`]. What is cheap to free is dropped there and then, by the thread that
//! has it in its cache; the rest goes to the thread. It no longer counts as memory in use: it was subtracted under the lock
//! under which it was removed. Handing it over takes no lock and never waits.
//!
//! What is freed is memory that the allocator keeps for a while; giving it back to the system takes as long as freeing it did. That
//! is this thread's work too, [`PURGE_EVERY`] so often: nobody else does it ([`crate::start`]).
//!
//! The thread runs at a lower priority than the workers, so that freeing millions of keys delays nobody. Without the thread (a
//! worker that is driven by hand) everything is dropped at once. The alternative, freeing in slices on the workers, can cut a
//! table into slices but not a single value.

use gimmal_store::types::disposal;
use gimmal_store::{DetachedDatabase, Large, OwnedEntry, Readers};
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;

/// Allocations that a worker frees itself: some µs, as in Redis.
const INLINE_COST: usize = 64;
/// Keys of a database freed between two updates of the counts.
const KEYS: usize = 64;
/// Between two times that unused memory is given back to the system. With ten times as much, values that change their size class keep
/// 1.65 times their memory for as long as that goes on.
const PURGE_EVERY: Duration = Duration::from_millis(100);

/// What is to be freed.
pub enum Garbage {
    /// A key with its value.
    Entry(OwnedEntry),
    /// A large value.
    Large(Large),
    /// A flushed database.
    Database(DetachedDatabase),
    /// Who had read which keys.
    Readers(Vec<Readers>),
    /// Anything else that takes long to free.
    Other(disposal::Garbage),
}

/// What the log calls a removal, as Redis would if the value were freed in the background.
pub fn removal(lazy: bool) -> &'static [u8] {
    if lazy { b"UNLINK" } else { b"DEL" }
}

/// The queue of what is to be freed, and its counts.
#[derive(Default)]
pub struct Lazyfree {
    queue: SegQueue<Garbage>,
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
    pending: AtomicUsize,
    freed: AtomicUsize,
}

impl Lazyfree {
    /// Starts the thread that frees.
    ///
    /// # Errors
    /// If no thread can be made.
    ///
    /// # Panics
    /// If it was started before.
    pub fn start(self: &Arc<Lazyfree>) -> io::Result<JoinHandle<()>> {
        let lazyfree = self.clone();
        let handle = std::thread::Builder::new().name("lazyfree".into()).spawn(move || lazyfree.run())?;
        assert!(self.thread.set(handle.thread().clone()).is_ok(), "the thread is started once");
        Ok(handle)
    }

    /// Ends the thread, which leaves in the queue what is in it.
    pub fn stop(&self) {
        self.stopping.store(true, SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Frees `garbage`, or has it freed by the thread if that would take long.
    #[inline]
    pub fn discard(&self, garbage: impl Into<Garbage>) {
        let garbage = garbage.into();
        if garbage.cost() > INLINE_COST {
            self.hand_over(garbage);
        }
    }

    #[cold]
    fn hand_over(&self, garbage: Garbage) {
        let Some(thread) = self.thread.get() else { return };
        self.pending.fetch_add(garbage.objects(), Relaxed);
        self.queue.push(garbage);
        thread.unpark();
    }

    fn run(&self) {
        crate::os::lower_priority();
        let mut purged = Instant::now();
        while !self.stopping.load(SeqCst) {
            match self.queue.pop() {
                Some(garbage) => self.free(garbage, &mut purged),
                // A piece that is pushed from here on leaves a token, with which this returns at once.
                None => std::thread::park_timeout(PURGE_EVERY),
            }
            purge_if_due(&mut purged);
        }
    }

    fn free(&self, garbage: Garbage, purged: &mut Instant) {
        match garbage {
            Garbage::Entry(_) | Garbage::Large(_) | Garbage::Readers(_) | Garbage::Other(_) => {
                drop(garbage);
                self.count(1);
            }
            Garbage::Database(mut database) => loop {
                let before = database.len();
                let done = database.free_slice(KEYS);
                self.count(before - database.len());
                if done || self.stopping.load(Relaxed) {
                    return;
                }
                purge_if_due(purged);
            },
        }
    }

    fn count(&self, freed: usize) {
        self.freed.fetch_add(freed, Relaxed);
        self.pending.fetch_sub(freed, Relaxed);
    }

    /// Values and keys that wait to be freed.
    pub fn pending(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Has the thread that calls hand over the pages of large values that it is the last to hold, from now on.
    pub fn serve_this_thread(self: &Arc<Lazyfree>) {
        let lazyfree = self.clone();
        disposal::give_to(move |garbage| lazyfree.discard(Garbage::Other(garbage)));
    }

    /// Values and keys that the thread has freed since the start or the last reset.
    pub fn freed(&self) -> usize {
        self.freed.load(Relaxed)
    }

    /// Puts the count of what was freed to zero.
    pub fn reset(&self) {
        self.freed.store(0, Relaxed);
    }
}

impl Garbage {
    /// About how many allocations are to be freed.
    #[inline]
    fn cost(&self) -> usize {
        match self {
            Garbage::Entry(entry) => entry.free_cost(),
            Garbage::Large(large) => large.free_cost(),
            // An empty one has its directories and cells all the same.
            Garbage::Database(database) => database.len().saturating_add(INLINE_COST),
            Garbage::Readers(readers) => readers.iter().map(Readers::len).sum(),
            Garbage::Other(_) => usize::MAX,
        }
    }

    fn objects(&self) -> usize {
        match self {
            Garbage::Entry(_) | Garbage::Large(_) | Garbage::Readers(_) | Garbage::Other(_) => 1,
            Garbage::Database(database) => database.len(),
        }
    }
}

/// Gives unused memory back, from time to time.
fn purge_if_due(purged: &mut Instant) {
    if purged.elapsed() >= PURGE_EVERY {
        crate::alloc::purge();
        *purged = Instant::now();
    }
}

impl From<OwnedEntry> for Garbage {
    fn from(entry: OwnedEntry) -> Garbage {
        Garbage::Entry(entry)
    }
}

impl From<Large> for Garbage {
    fn from(large: Large) -> Garbage {
        Garbage::Large(large)
    }
}

impl From<DetachedDatabase> for Garbage {
    fn from(database: DetachedDatabase) -> Garbage {
        Garbage::Database(database)
    }
}

/// An entry that was taken out of the keyspace. Dropping it discards it.
pub struct Taken<'a> {
    entry: Option<OwnedEntry>,
    lazyfree: &'a Lazyfree,
}

impl<'a> Taken<'a> {
    /// An entry that `lazyfree` will have, unless it is put under another key.
    #[inline]
    pub fn new(entry: OwnedEntry, lazyfree: &'a Lazyfree) -> Taken<'a> {
        Taken { entry: Some(entry), lazyfree }
    }
}

impl std::ops::Deref for Taken<'_> {
    type Target = OwnedEntry;

    fn deref(&self) -> &OwnedEntry {
        self.entry.as_ref().expect("there until it is dropped")
    }
}

impl From<Taken<'_>> for OwnedEntry {
    fn from(mut taken: Taken<'_>) -> OwnedEntry {
        taken.entry.take().expect("there until it is dropped")
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.lazyfree.discard(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_store::Rope;
    use std::sync::Weak;

    /// A string of so many bytes, and a look at whether it is still there.
    fn watched(bytes: usize) -> (Rope, Weak<Vec<u8>>) {
        let rope = Rope::from_slice(&vec![1; bytes]);
        let extent = Arc::downgrade(rope.extents().next().expect("not empty"));
        (rope, extent)
    }

    const LARGE: usize = 40 * gimmal_store::EXTENT;

    #[test]
    fn small_values_are_freed_at_once_and_large_ones_by_the_thread() {
        let lazyfree = Arc::new(Lazyfree::default());
        let thread = lazyfree.start().expect("a thread");
        let (small, there) = watched(10_000);
        lazyfree.discard(Large::Rope(small));
        assert_eq!((there.strong_count(), lazyfree.freed()), (0, 0));
        for _ in 0..20 {
            lazyfree.discard(Large::Rope(watched(LARGE).0));
        }
        while lazyfree.pending() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(lazyfree.freed(), 20);
        lazyfree.stop();
        thread.join().expect("it ends");
    }

    #[test]
    fn without_a_thread_nothing_is_left_lying() {
        let lazyfree = Lazyfree::default();
        let (large, there) = watched(LARGE);
        lazyfree.discard(Large::Rope(large));
        assert_eq!((there.strong_count(), lazyfree.pending()), (0, 0));
    }

    #[test]
    fn what_is_shared_is_let_go_of_at_once() {
        let lazyfree = Arc::new(Lazyfree::default());
        let thread = lazyfree.start().expect("a thread");
        let (large, there) = watched(LARGE);
        lazyfree.discard(Large::Rope(large.clone()));
        assert_eq!((there.strong_count(), lazyfree.pending(), lazyfree.freed()), (1, 0, 0));
        lazyfree.stop();
        thread.join().expect("it ends");
    }
}
