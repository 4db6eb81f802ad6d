//! The process's allocator: mimalloc, asked so that its size classes are used in full.
//!
//! It lives here because entries and segments are laid out for its classes: every 8 bytes up to 64, then four to each doubling.
//! Two things would spoil that. By default classes are 16 bytes apart, which `.cargo/config.toml` changes. And mimalloc 3 widens
//! every block for which an alignment is asked explicitly, as the crate `mimalloc` does for all: 56 bytes become 64, a segment of
//! 1024 becomes 1280. Blocks whose size is a multiple of their alignment nearly always come out aligned when none is asked for, so
//! that is tried first.
//!
//! Measured (2,000,000 blocks of 56 bytes, RSS): 64.7 bytes through the crate, 55.6 asked like this. mimalloc 2 does not widen, but
//! keeps blocks that other threads freed: refilling from a second thread took 1.94 times the memory, with mimalloc 3 1.13 times.
//!
//! Blocks of [`MAPPED_FROM`] bytes on are the kernel's mappings, which grow without being copied: while a command of many arguments
//! arrives its buffer doubles, and to copy 4 MiB into fresh memory took 2 ms. The size says whose a block is, as whoever frees or
//! grows it names it.
//!
//! # Safety
//! Each function passes the caller's contract on to mimalloc, or to the kernel: sizes are not 0, pointers came from here, with the
//! layout that is named. All of mimalloc's allocating functions return blocks that `mi_free` and `mi_realloc` take, and every block is
//! aligned to 8 at least; mappings are aligned to pages.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

/// To be declared as `#[global_allocator]`.
pub struct Allocator;

/// mimalloc's number of the option `purge_delay`, for which `libmimalloc-sys` has no name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// Likewise of `page_max_reclaim`.
const PAGE_MAX_RECLAIM: libmimalloc_sys::mi_option_t = 41;
/// Pages of one size class beyond which a thread takes no more of those that it has filled earlier.
const OWN_PAGES: u8 = 4;

impl Allocator {
    /// Bounds what a thread's heap has to be looked through for, in a collection and in 10,000 slow allocations. To be called early in
    /// `main`.
    ///
    /// A page belongs to the thread that fills it until it is full, and again once that thread frees a block of it. So without a bound a
    /// thread comes to own most pages, and looks at all of them: 1.1 ms with one sorted set of 10,000,000 members, 33 ms when another
    /// thread has freed that. With a bound of 4 it is some 10 µs and at most 1.8 ms; with 0 SET of other values would cost a third more.
    pub fn bound_heaps() {
        // SAFETY: sets a number in the allocator's table of options; safe at any time.
        unsafe { libmimalloc_sys::mi_option_set(PAGE_MAX_RECLAIM, OWN_PAGES.into()) }
    }

    /// Sets how long free memory is kept before the kernel gets it back. To be called early in `main`.
    ///
    /// mimalloc's default of a second (ten for large pieces) keeps what a change of the values' sizes has left behind: after all of
    /// 2,000,000 values were overwritten with shorter ones by another thread, 1.65 times the memory stays resident; with 10 ms it is
    /// 0.9 times two seconds later.
    ///
    /// Whichever thread comes by when the time is over gives all of it back, which takes 8 ms after a sorted set of 1,000,000 members was
    /// freed. Who cannot have that says a long time and calls `mi_collect(true)` on a thread that may.
    pub fn set_purge_delay_ms(delay_ms: u32) {
        // SAFETY: sets a number in the allocator's table of options; safe at any time.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay_ms.into()) }
    }
}

/// Alignment of every block, whatever was asked.
const ALWAYS: usize = 8;

/// Bytes from which on a block is a mapping of its own.
const MAPPED_FROM: usize = 1 << 20;
/// Mappings are aligned to this.
const PAGE: usize = 4096;

/// Whether a block of this size and alignment is a mapping.
#[inline]
fn is_mapped(size: usize, align: usize) -> bool {
    size >= MAPPED_FROM && align <= PAGE
}

/// A new mapping, of zeros; null if there is no memory.
#[cold]
fn map(size: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping at a place that the kernel chooses touches no other.
    let mapping = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if mapping == libc::MAP_FAILED { ptr::null_mut() } else { mapping.cast() }
}

/// Gives a mapping back.
///
/// # Safety
/// It is one of [`map`] or [`remap`], of this size, and is not used again.
#[cold]
unsafe fn unmap(mapping: *mut u8, size: usize) {
    // SAFETY: the caller's contract. It fails only if the process has too many mappings to cut one in two, and this cuts none.
    unsafe { libc::munmap(mapping.cast(), size) };
}

/// A mapping of another size with the same bytes, moved if need be by its pages; null, and no change, if there is no memory.
///
/// # Safety
/// As [`unmap`], if the result is not null.
#[cold]
unsafe fn remap(mapping: *mut u8, size: usize, new_size: usize) -> *mut u8 {
    // SAFETY: the caller's contract.
    let moved = unsafe { libc::mremap(mapping.cast(), size, new_size, libc::MREMAP_MAYMOVE) };
    if moved == libc::MAP_FAILED { ptr::null_mut() } else { moved.cast() }
}

impl Allocator {
    /// Grows or shrinks a block that is a mapping or becomes one.
    ///
    /// # Safety
    /// As [`GlobalAlloc::realloc`].
    #[cold]
    unsafe fn realloc_mapped(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if is_mapped(size, align) && is_mapped(new_size, align) {
            // SAFETY: by its size it is a mapping; the caller's contract.
            return unsafe { remap(pointer, size, new_size) };
        }
        // SAFETY: the caller's contract: with this alignment the new size is that of a layout. The blocks are distinct, and both are as
        // long as what is copied.
        unsafe {
            let block = self.alloc(Layout::from_size_align_unchecked(new_size, align));
            if !block.is_null() {
                ptr::copy_nonoverlapping(pointer, block, size.min(new_size));
                self.dealloc(pointer, layout);
            }
            block
        }
    }
}

// SAFETY: blocks are distinct, of the size and alignment asked, until they are freed; nothing here unwinds.
unsafe impl GlobalAlloc for Allocator {
    // SAFETY: the contract is that of `GlobalAlloc`.
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if is_mapped(size, align) {
            return map(size);
        }
        if align > ALWAYS && !size.is_multiple_of(align) {
            // SAFETY: the caller's contract; alignments of a `Layout` are powers of two.
            return unsafe { libmimalloc_sys::mi_malloc_aligned(size, align) }.cast();
        }
        // SAFETY: the caller's contract.
        let block = unsafe { libmimalloc_sys::mi_malloc(size) };
        if align > ALWAYS && !block.addr().is_multiple_of(align) {
            // SAFETY: the block is ours and unused; the caller's contract.
            return unsafe {
                libmimalloc_sys::mi_free(block);
                libmimalloc_sys::mi_malloc_aligned(size, align)
            }
            .cast();
        }
        block.cast()
    }

    // SAFETY: the contract is that of `GlobalAlloc`.
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        if layout.align() > ALWAYS {
            // SAFETY: the caller's contract; alignments of a `Layout` are powers of two.
            return unsafe { libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align()) }.cast();
        }
        // SAFETY: the caller's contract.
        unsafe { libmimalloc_sys::mi_zalloc(layout.size()) }.cast()
    }

    // SAFETY: the contract is that of `GlobalAlloc`.
    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_mapped(layout.size(), layout.align()) {
            // SAFETY: by its size it is a mapping; the caller's contract.
            return unsafe { unmap(pointer, layout.size()) };
        }
        // SAFETY: the caller's contract: the block came from here and is not used again.
        unsafe { libmimalloc_sys::mi_free(pointer.cast()) }
    }

    // SAFETY: the contract is that of `GlobalAlloc`.
    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_mapped(layout.size().max(new_size), layout.align()) {
            // SAFETY: the caller's contract.
            return unsafe { self.realloc_mapped(pointer, layout, new_size) };
        }
        if layout.align() > ALWAYS {
            // SAFETY: the caller's contract: the block came from here and is given up.
            return unsafe { libmimalloc_sys::mi_realloc_aligned(pointer.cast(), new_size, layout.align()) }.cast();
        }
        // SAFETY: the caller's contract: the block came from here and is given up.
        unsafe { libmimalloc_sys::mi_realloc(pointer.cast(), new_size) }.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for align in [1, 2, 8, 16, 64, 128, 4096] {
            for size in [1, 8, 24, 56, 64, 100, 192, 1024, 1280, 5000, 300_000, MAPPED_FROM - 1, MAPPED_FROM, 3_000_001]
            {
                let layout = Layout::from_size_align(size, align).expect("valid");
                // SAFETY: sizes are not 0; each block is written within its size, and freed once.
                unsafe {
                    let block = Allocator.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{size} bytes aligned to {align}");
                    block.write_bytes(0xAB, size);
                    let block = Allocator.realloc(block, layout, size * 2);
                    assert!(block.addr().is_multiple_of(align));
                    assert!((0..size).all(|at| block.add(at).read() == 0xAB));
                    Allocator.dealloc(block, Layout::from_size_align(size * 2, align).expect("valid"));
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align) && (0..size).all(|at| zeroed.add(at).read() == 0));
                    Allocator.dealloc(zeroed, layout);
                }
            }
        }
    }

    #[test]
    fn blocks_become_mappings_and_cease_to_be() {
        let layout = |size| Layout::from_size_align(size, 1).expect("valid");
        // SAFETY: sizes are not 0; the block is read and written within its size, and freed once.
        unsafe {
            let mut block = Allocator.alloc(layout(1000));
            block.write_bytes(0xCD, 1000);
            let mut size = 1000;
            for next in [MAPPED_FROM - 1, MAPPED_FROM, 5 * MAPPED_FROM + 7, MAPPED_FROM + 1, 2000] {
                block = Allocator.realloc(block, layout(size), next);
                size = next;
                assert!((0..1000).all(|at| block.add(at).read() == 0xCD), "{size}");
                block.add(size - 1).write(0xEF);
            }
            assert_eq!(block.add(1999).read(), 0xEF);
            Allocator.dealloc(block, layout(size));
        }
    }

    #[test]
    fn purge_delay_has_its_number() {
        // SAFETY: reads a number from the allocator's table of options.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "no other option has this default");
        Allocator::set_purge_delay_ms(10);
        assert_eq!(delay(), 10);
    }

    #[test]
    fn the_bound_of_heaps_has_its_number() {
        // SAFETY: reads a number from the allocator's table of options.
        let option = |number| unsafe { libmimalloc_sys::mi_option_get(number) };
        assert_eq!((option(PAGE_MAX_RECLAIM), option(PAGE_MAX_RECLAIM + 1)), (-1, 32), "these defaults stand together");
        Allocator::bound_heaps();
        assert_eq!(option(PAGE_MAX_RECLAIM), 4);
    }

    #[test]
    fn sizes_of_entries_and_segments_are_not_rounded_up() {
        for (size, align) in [(24, 8), (40, 8), (56, 8), (64, 64), (192, 64), (448, 64), (896, 64), (1024, 64)] {
            let layout = Layout::from_size_align(size, align).expect("valid");
            // SAFETY: sizes are not 0, and each block is freed once.
            unsafe {
                let block = Allocator.alloc(layout);
                assert_eq!(libmimalloc_sys::mi_usable_size(block.cast()), size);
                Allocator.dealloc(block, layout);
            }
        }
    }
}
