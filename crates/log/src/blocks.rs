//! The memory of the stream: blocks of [`BLOCK`] bytes, found by number through a ring of pointers.
//!
//! # Safety
//! A block is reached through its slot by appenders that write disjoint reserved ranges of it and by the reader, that
//! reads filled ranges of it. The three facts on which all `unsafe` here rests are the callers' to keep, and are argued in
//! the crate's documentation:
//! 1. *Exclusive writes*: a range is written once, by the appender that reserved it, before it is readable.
//! 2. *Reads after writes*: a range is read only when it is readable, which the reader learned by acquiring what the
//!    appender released after its copy.
//! 3. *Recycling last*: a block leaves its slot only when all its positions are consumed, when no appender holds a
//!    reservation in it, and no slice of it is borrowed from the reader.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use crate::sync::{AcqRel, Acquire, AtomicPtr, Mutex};

/// Bytes per block. One allocation per mebibyte of log; and a log whose reader keeps up cycles through two or three
/// blocks, which stay in the second-level cache.
#[cfg(not(loom))]
pub(crate) const BLOCK: usize = 1024 * 1024;
/// Slots in the ring: 4 GiB of stream.
#[cfg(not(loom))]
pub(crate) const SLOTS: u64 = 4096;
#[cfg(loom)]
pub(crate) const BLOCK: usize = 8;
#[cfg(loom)]
pub(crate) const SLOTS: u64 = 2;
/// Consumed blocks that are kept for reuse: more than a reader that keeps up ever needs.
const POOL: usize = 8;

/// All blocks of a log.
#[derive(Debug)]
pub(crate) struct Blocks {
    slots: Box<[AtomicPtr<u8>]>,
    pool: Mutex<Vec<Memory>>,
    shadow: Shadow,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        let slots = (0..SLOTS).map(|_| AtomicPtr::new(null_mut())).collect();
        Blocks { slots, pool: Mutex::new(Vec::new()), shadow: Shadow::new() }
    }

    /// The block with this number, made if it does not exist. Only for numbers less than [`SLOTS`] above the block of the
    /// consumed position: its slot is then its own.
    pub(crate) fn locate(&self, number: u64) -> BlockRef {
        let slot = self.slot(number);
        let found = NonNull::new(slot.load(Acquire));
        BlockRef { number, start: found.unwrap_or_else(|| self.install(slot)) }
    }

    /// Puts a block into an empty slot, unless another thread was faster.
    #[cold]
    fn install(&self, slot: &AtomicPtr<u8>) -> NonNull<u8> {
        // Appenders come here with shard locks held, so they do not wait for the pool.
        let pooled = self.pool.try_lock().ok().and_then(|mut pool| pool.pop());
        let memory = pooled.unwrap_or_else(Memory::new);
        let start = memory.0;
        match slot.compare_exchange(null_mut(), start.as_ptr(), AcqRel, Acquire) {
            Ok(_) => {
                std::mem::forget(memory);
                start
            }
            Err(winner) => {
                self.put_back(memory);
                NonNull::new(winner).expect("a slot is emptied only after its block was consumed")
            }
        }
    }

    fn put_back(&self, memory: Memory) {
        if let Ok(mut pool) = self.pool.try_lock()
            && pool.len() < POOL
        {
            pool.push(memory);
        }
    }

    /// Copies `bytes` to offset `at` of a block.
    ///
    /// # Safety
    /// The caller has reserved these positions, has not published them, and writes them once; `block` is the block that
    /// [`Blocks::locate`] of the same log gave for them; `at + bytes.len() <= BLOCK`.
    #[inline]
    pub(crate) unsafe fn write(&self, block: BlockRef, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= BLOCK);
        self.shadow.written(block.number, at, bytes.len());
        // SAFETY: the range is inside the block, whose memory lives while the reservation is unfilled (fact 3), and
        // nobody else accesses the range (facts 1 and 2). `bytes` cannot overlap it: no slice of an unreadable range exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.start.as_ptr().add(at), bytes.len()) }
    }

    /// Requests the memory behind offset `at` of a block for writing: what the next records are copied to. Their stores would
    /// otherwise wait for it, and the next reservation for them.
    #[inline]
    pub(crate) fn request(&self, block: BlockRef, at: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in [at + 128, at + 192] {
            let address = block.start.as_ptr().wrapping_add(line);
            // SAFETY: PREFETCHW is a hint that does not fault for any address; processors without it treat it as no operation.
            unsafe {
                std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (block, at);
    }

    /// A readable range of a block. `None`: there is no such block, because no record has bytes in it.
    ///
    /// # Safety
    /// The range is inside the block, all of it was filled, the caller has acquired that (fact 2), and the block is not
    /// recycled while the slice lives (fact 3).
    pub(crate) unsafe fn read(&self, number: u64, range: Range<usize>) -> Option<&[u8]> {
        debug_assert!(range.end <= BLOCK);
        let start = NonNull::new(self.slot(number).load(Acquire))?;
        self.shadow.read(number, range.start, range.len());
        // SAFETY: by the caller's promise the range is initialised, no longer written, and outlives the slice.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr().add(range.start), range.len()) })
    }

    /// Takes the blocks out of their slots, for reuse.
    ///
    /// # Safety
    /// All positions of these blocks are consumed, and no slice of them lives (fact 3). At most one thread at a time.
    pub(crate) unsafe fn recycle(&self, numbers: Range<u64>) {
        // Blocks further than the ring is long were never installed.
        let end = numbers.end.min(numbers.start.saturating_add(SLOTS));
        for number in numbers.start..end {
            let taken = self.slot(number).swap(null_mut(), AcqRel);
            if let Some(start) = NonNull::new(taken) {
                self.shadow.recycled(number);
                self.put_back(Memory(start));
            }
        }
    }

    fn slot(&self, number: u64) -> &AtomicPtr<u8> {
        let index = usize::try_from(number % SLOTS).expect("a slot's index is small");
        &self.slots[index]
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for slot in &self.slots {
            // Dropping the memory frees it; nobody else can reach the log any more.
            drop(NonNull::new(slot.load(Acquire)).map(Memory));
        }
    }
}

/// A block as an appender remembers it. Valid while the appender holds a reservation in block `number`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRef {
    pub(crate) number: u64,
    start: NonNull<u8>,
}

// SAFETY: it is an address; what may be done with it is the contract of `Blocks::write`, which names no thread.
unsafe impl Send for BlockRef {}

/// The memory of one block, uninitialised: only filled ranges are ever read.
#[derive(Debug)]
struct Memory(NonNull<u8>);

// SAFETY: owned heap memory.
unsafe impl Send for Memory {}

impl Memory {
    const LAYOUT: Layout = match Layout::from_size_align(BLOCK, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("a block has a legal layout"),
    };

    fn new() -> Memory {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(Self::LAYOUT) };
        Memory(NonNull::new(start).unwrap_or_else(|| handle_alloc_error(Self::LAYOUT)))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and owned.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}

/// What the models see of the bytes: one loom cell per byte of the ring, so that loom reports each access that is not
/// ordered after the conflicting one. Nothing in a normal build.
#[cfg(not(loom))]
#[derive(Debug)]
struct Shadow;

#[cfg(not(loom))]
impl Shadow {
    fn new() -> Shadow {
        Shadow
    }
    #[inline(always)]
    fn written(&self, _number: u64, _at: usize, _len: usize) {}
    #[inline(always)]
    fn read(&self, _number: u64, _at: usize, _len: usize) {}
    #[inline(always)]
    fn recycled(&self, _number: u64) {}
}

#[cfg(loom)]
#[derive(Debug)]
struct Shadow(Vec<loom::cell::UnsafeCell<u64>>);

// SAFETY: loom checks at run time that the cells are accessed as the memory model allows; that is what they are for.
#[cfg(loom)]
unsafe impl Sync for Shadow {}

#[cfg(loom)]
impl Shadow {
    fn new() -> Shadow {
        let bytes = usize::try_from(SLOTS).expect("small") * BLOCK;
        Shadow((0..bytes).map(|_| loom::cell::UnsafeCell::new(u64::MAX)).collect())
    }

    fn written(&self, number: u64, at: usize, len: usize) {
        for cell in self.cells(number, at, len) {
            // SAFETY: loom runs one thread at a time, and fails the model if this is a race.
            cell.with_mut(|owner| unsafe {
                assert_eq!(*owner, u64::MAX, "written once");
                *owner = number;
            });
        }
    }

    fn read(&self, number: u64, at: usize, len: usize) {
        for cell in self.cells(number, at, len) {
            // SAFETY: as above.
            cell.with(|owner| unsafe { assert_eq!(*owner, number, "read after it was filled") });
        }
    }

    fn recycled(&self, number: u64) {
        for cell in self.cells(number, 0, BLOCK) {
            // SAFETY: as above.
            cell.with_mut(|owner| unsafe { *owner = u64::MAX });
        }
    }

    fn cells(&self, number: u64, at: usize, len: usize) -> &[loom::cell::UnsafeCell<u64>] {
        let start = usize::try_from(number % SLOTS).expect("small") * BLOCK + at;
        &self.0[start..start + len]
    }
}
