//! Frees directories and segments that lock-free prefetching may still be reading.
//!
//! A table that replaces one of them *retires* the old one into the bin of the participant that holds the shard's lock.
//! [`Reclaim::collect`] ends the epoch, stamps what was retired in it, and frees what every participant has since left behind
//! (`gate.rs` has the argument). Bins are per participant so that memory goes back through the thread that mostly allocates it.
//!
//! Dropped: freeing when a shard is next changed (an idle shard would keep its garbage), and one bin for all (a contended line).
//!
//! # Safety
//! A retired block is owned by its bin alone, was allocated by the global allocator with the recorded layout, and holds nothing
//! that needs dropping. It is freed only under the rule above, or when the bins themselves are dropped, which takes the keyspace
//! and so every batch with it.

use std::alloc::{Layout, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::gate::Gate;
use crate::gauge::Gauge;
use crate::snapshot::Handover;
use crate::sync::Padded;

/// What the participants have in common: the gate, one bin each, and what they count together.
pub(crate) struct Reclaim {
    pub(crate) gate: Gate,
    /// Bytes of entries, segments and directories.
    pub(crate) bytes: Gauge,
    /// Keys that expire.
    pub(crate) volatile: Gauge,
    /// Entries that a snapshot gets because they change.
    pub(crate) handover: Handover,
    bins: Box<[Padded<Bin>]>,
}

#[derive(Default)]
struct Bin {
    /// Blocks in `contents`: looked at without the mutex to make collecting nothing cheap.
    count: AtomicUsize,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    /// Unlinked, not yet stamped.
    fresh: Vec<Block>,
    /// Stamped with the epoch that ended after they were unlinked; ascending.
    stamped: std::collections::VecDeque<(u64, Vec<Block>)>,
}

/// An allocation without an owner but its bin.
pub(crate) struct Block {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is an exclusively owned allocation of plain bytes; the allocator may free it on any thread.
unsafe impl Send for Block {}

impl Block {
    /// # Safety
    /// `pointer` was allocated with `layout` by the global allocator, nothing in it needs dropping, and the caller gives up
    /// ownership; other threads may read it only inside batches that began before this call.
    pub(crate) unsafe fn new(pointer: NonNull<u8>, layout: Layout) -> Self {
        Self { pointer, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and owned by this value (`Block::new`); whoever drops it knows that no reader is left.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

impl Reclaim {
    pub(crate) fn new(participants: usize) -> Self {
        Self {
            gate: Gate::new(participants),
            bytes: Gauge::new(participants),
            volatile: Gauge::new(participants),
            handover: Handover::new(participants),
            bins: (0..participants).map(|_| Padded::default()).collect(),
        }
    }

    /// Takes a block that was just unlinked by `participant`.
    pub(crate) fn retire(&self, participant: usize, block: Block) {
        let bin = &self.bins[participant].0;
        bin.contents.lock().unwrap_or_else(PoisonError::into_inner).fresh.push(block);
        bin.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the blocks of `participant`'s bin that no batch can be reading any more. One relaxed load when the bin is empty.
    pub(crate) fn collect(&self, participant: usize) {
        let bin = &self.bins[participant].0;
        if bin.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut contents = bin.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if !contents.fresh.is_empty() {
            let fresh = std::mem::take(&mut contents.fresh);
            contents.stamped.push_back((self.gate.advance(), fresh));
        }
        let oldest = self.gate.oldest();
        while contents.stamped.front().is_some_and(|(epoch, _)| *epoch < oldest) {
            let (_, blocks) = contents.stamped.pop_front().expect("just looked at");
            bin.count.fetch_sub(blocks.len(), Ordering::Relaxed);
            drop(blocks);
        }
    }

    /// Blocks that wait in all bins.
    pub(crate) fn pending(&self) -> usize {
        self.bins.iter().map(|bin| bin.0.count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn block() -> Block {
        let layout = Layout::new::<[u64; 4]>();
        // SAFETY: the layout is not empty.
        let pointer = NonNull::new(unsafe { std::alloc::alloc(layout) }).expect("memory");
        // SAFETY: allocated above with this layout, plain bytes, not used again.
        unsafe { Block::new(pointer, layout) }
    }

    #[test]
    fn a_block_outlives_the_batches_that_may_read_it() {
        let reclaim = Reclaim::new(2);
        let reader = reclaim.gate.enter(1);
        reclaim.retire(0, block());
        reclaim.collect(0);
        assert_eq!(reclaim.pending(), 1, "participant 1 is inside since before");
        drop(reader);
        let later = reclaim.gate.enter(1);
        reclaim.collect(0);
        assert_eq!(reclaim.pending(), 0, "participant 1 has passed a boundary");
        drop(later);
    }

    #[test]
    fn epochs_are_freed_in_order() {
        let reclaim = Reclaim::new(2);
        let early = reclaim.gate.enter(1);
        for _ in 0..3 {
            reclaim.retire(0, block());
            reclaim.collect(0);
        }
        assert_eq!(reclaim.pending(), 3);
        drop(early);
        reclaim.collect(0);
        assert_eq!(reclaim.pending(), 0);
    }
}
