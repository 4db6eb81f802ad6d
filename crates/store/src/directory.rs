//! The array of a table's segments, indexed by the top bits of the hash below the shard's.
//!
//! An element is a segment's address with its number of buckets in the byte above, so that a lookup goes from the element to the
//! bucket's line without reading the segment's header. The directory itself is an address with its depth in the byte above, so
//! that it needs no header either. A segment of depth d fills 2^(depth - d) consecutive elements.
//!
//! Behind the elements there is a lower bound of the times of expiry for each group of 8 elements: of the keys of the segments
//! that *start* in the group. Active expiry reads these in sequence instead of a header, and so a cache miss, per segment.
//!
//! Invariant: the depth of an allocation never changes; doubling and halving make a new one and retire the old.
//!
//! Dropped: a `Vec` in the table (a lock-free reader could not follow it), and a trie of directories (a miss more per level).
//!
//! # Safety
//! [`Directory`] is a copyable address. Its invariant: it came from `allocate` and is not freed while the value is
//! used: by the holder of the lock, or inside a batch. Elements are atomics, all set before the directory is published; each holds
//! a segment that is linked, or was when the reader's batch began.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use crate::prefetch::prefetch;
use crate::segment::{self, Segment};

/// Most bits that a directory uses: 2^26 segments of about 90 keys are 6 thousand million keys in one table.
pub(crate) const DEPTH_MAX: u8 = 26;

const TAG_SHIFT: u32 = 56;
const ADDRESS: usize = (1 << TAG_SHIFT) - 1;

/// Elements that share a bound of their keys' times of expiry.
const GROUP: usize = 8;

type Element = AtomicPtr<segment::Header>;

/// Address of a directory with its depth; see the module's `Safety`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directory {
    elements: NonNull<Element>,
    depth: u8,
}

impl Directory {
    /// A directory of one element, without keys that expire.
    pub(crate) fn of(segment: Segment) -> Self {
        Self::allocate(0, |_| tagged(segment), |_| i64::MAX)
    }

    /// A directory of 2^`depth` segments, without keys that expire.
    pub(crate) fn of_all(depth: u8, segments: &[Segment]) -> Self {
        assert_eq!(segments.len(), 1 << depth);
        Self::allocate(depth, |index| tagged(segments[index]), |_| i64::MAX)
    }

    /// A directory of twice the length with the same segments.
    pub(crate) fn doubled(self) -> Self {
        let word_at = |index| self.element(index / 2).load(Ordering::Relaxed);
        Self::allocate(self.depth + 1, word_at, |group| self.deadline_ms(group / 2))
    }

    /// A directory of half the length with the same segments, all of which must be shallower.
    pub(crate) fn halved(self) -> Self {
        let word_at = |index| self.element(index * 2).load(Ordering::Relaxed);
        let last = groups(self.depth) - 1;
        let deadline_of = |group| self.deadline_ms(group * 2).min(self.deadline_ms(last.min(group * 2 + 1)));
        Self::allocate(self.depth - 1, word_at, deadline_of)
    }

    /// Elements are copied as words: looking at the segments would be a cache miss for each.
    fn allocate(
        depth: u8,
        word_at: impl Fn(usize) -> *mut segment::Header,
        deadline_of: impl Fn(usize) -> i64,
    ) -> Self {
        assert!(depth <= DEPTH_MAX);
        let layout = layout(depth);
        // SAFETY: the layout's size is at least 16.
        let pointer = unsafe { alloc(layout) };
        let Some(elements) = NonNull::new(pointer.cast::<Element>()) else { handle_alloc_error(layout) };
        assert_eq!(pointer.addr() >> TAG_SHIFT, 0, "the allocator returned an address above 56 bits");
        let len = 1 << depth;
        for index in 0..len {
            // SAFETY: the allocation has 2^depth elements.
            unsafe { elements.add(index).write(Element::new(word_at(index))) };
        }
        for group in 0..groups(depth) {
            // SAFETY: behind the elements the allocation has a word for each group.
            unsafe { elements.add(len + group).cast::<AtomicI64>().write(AtomicI64::new(deadline_of(group))) };
        }
        Self { elements, depth }
    }

    /// The directory that `word` stands for; `None` for null.
    ///
    /// # Safety
    /// `word` is null or came from [`Directory::word`] of a directory that is not freed while the value is used.
    #[inline]
    pub(crate) unsafe fn from_word(word: *mut Element) -> Option<Self> {
        let elements = NonNull::new(word.map_addr(|a| a & ADDRESS))?;
        // The byte above the address.
        Some(Self { elements, depth: (word.addr() >> TAG_SHIFT) as u8 })
    }

    /// Address and depth in one word, to be published.
    pub(crate) fn word(self) -> *mut Element {
        self.elements.as_ptr().map_addr(|a| a | usize::from(self.depth) << TAG_SHIFT)
    }

    /// Address and layout, for freeing.
    pub(crate) fn block(self) -> (NonNull<u8>, Layout) {
        (self.elements.cast(), layout(self.depth))
    }

    /// Bytes of the directory.
    pub(crate) fn size(self) -> usize {
        layout(self.depth).size()
    }

    #[inline]
    pub(crate) fn depth(self) -> u8 {
        self.depth
    }

    /// Number of elements.
    #[inline]
    pub(crate) fn len(self) -> usize {
        1 << self.depth
    }

    /// Index of the element for a hash whose directory bits are at the top of `bits`.
    #[inline]
    pub(crate) fn index(self, bits: u64) -> usize {
        // At most 26 bits are left.
        (bits >> 1 >> (63 - self.depth)) as usize
    }

    /// Requests the element at an index.
    #[inline]
    pub(crate) fn prefetch(self, index: usize) {
        prefetch(std::ptr::from_ref(self.element(index)));
    }

    /// The segment at an index, for the holder of the lock.
    #[inline]
    pub(crate) fn segment(self, index: usize) -> Segment {
        self.tagged_segment(index).0
    }

    /// The segment at an index with its number of buckets, which is read without touching the segment.
    #[inline]
    pub(crate) fn tagged_segment(self, index: usize) -> (Segment, usize) {
        let word = self.element(index).load(Ordering::Acquire);
        let base = NonNull::new(word.map_addr(|a| a & ADDRESS)).expect("elements are never null");
        // SAFETY: an element holds a segment that is linked, or retired during the reader's batch and so not freed.
        (unsafe { Segment::from_ptr(base) }, word.addr() >> TAG_SHIFT)
    }

    /// The consecutive elements that a segment of `depth` at `index` fills.
    pub(crate) fn span(self, index: usize, depth: u8) -> std::ops::Range<usize> {
        let width = 1 << (self.depth - depth);
        let start = index & !(width - 1);
        start..start + width
    }

    /// Links a segment at each index of `span`. Release: its slots are written before its address can be seen.
    pub(crate) fn link(self, span: std::ops::Range<usize>, segment: Segment) {
        for index in span {
            self.element(index).store(tagged(segment), Ordering::Release);
        }
    }

    /// The elements that share a bound with `index`, and the group's number.
    pub(crate) fn group(self, index: usize) -> (usize, std::ops::Range<usize>) {
        let start = index - index % GROUP;
        (index / GROUP, start..self.len().min(start + GROUP))
    }

    /// No key of a segment that starts in the group expires before this. May be too early.
    pub(crate) fn deadline_ms(self, group: usize) -> i64 {
        self.deadline(group).load(Ordering::Relaxed)
    }

    pub(crate) fn set_deadline_ms(self, group: usize, at_ms: i64) {
        self.deadline(group).store(at_ms, Ordering::Relaxed);
    }

    /// Lowers the bound of the group in which the segment of `depth` at `index` starts.
    #[inline]
    pub(crate) fn note_deadline_ms(self, index: usize, depth: u8, at_ms: i64) {
        let deadline = self.deadline(self.span(index, depth).start / GROUP);
        if deadline.load(Ordering::Relaxed) > at_ms {
            deadline.store(at_ms, Ordering::Relaxed);
        }
    }

    #[inline]
    fn deadline<'a>(self, group: usize) -> &'a AtomicI64 {
        debug_assert!(group < groups(self.depth));
        // SAFETY: the words behind the elements, one per group (checked above in debug builds); only atomics are there.
        unsafe { self.elements.add(self.len() + group).cast::<AtomicI64>().as_ref() }
    }

    #[inline]
    fn element<'a>(self, index: usize) -> &'a Element {
        debug_assert!(index < self.len());
        // SAFETY: within the 2^depth elements: `index` masks to them, `span` stays inside (checked above in debug builds).
        unsafe { self.elements.add(index).as_ref() }
    }

    /// Frees a directory that no other thread can reach any more. Its segments are the caller's.
    pub(crate) fn free(self) {
        let (pointer, layout) = self.block();
        // SAFETY: allocated with this layout; the caller does not use it again.
        unsafe { std::alloc::dealloc(pointer.as_ptr(), layout) }
    }
}

fn tagged(segment: Segment) -> *mut segment::Header {
    segment.as_ptr().as_ptr().map_addr(|a| a | segment.buckets() << TAG_SHIFT)
}

fn groups(depth: u8) -> usize {
    (1_usize << depth).div_ceil(GROUP)
}

fn layout(depth: u8) -> Layout {
    const { assert!(size_of::<AtomicI64>() == size_of::<Element>()) };
    Layout::array::<Element>((1 << depth) + groups(depth)).expect("at most 2^26 elements")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_depth(depth: u8, segment: Segment) -> Directory {
        Directory::allocate(depth, |_| tagged(segment), |_| i64::MAX)
    }

    #[test]
    fn index_takes_the_top_bits() {
        let segment = Segment::allocate(1, 0);
        for depth in [0, 1, 7] {
            let directory = of_depth(depth, segment);
            assert_eq!(directory.index(u64::MAX), directory.len() - 1);
            assert_eq!(directory.index(u64::MAX >> 1), (directory.len() - 1) / 2);
            // SAFETY: the word is that of a live directory.
            assert!(unsafe { Directory::from_word(directory.word()) } == Some(directory));
            directory.free();
        }
        segment.free();
    }

    #[test]
    fn bounds_follow_doubling_and_halving() {
        let segment = Segment::allocate(1, 0);
        for depth in [0, 2, 3, 4, 6] {
            let directory = of_depth(depth, segment);
            for group in 0..groups(depth) {
                directory.set_deadline_ms(group, 100 - i64::try_from(group).expect("small"));
            }
            let doubled = directory.doubled();
            for index in 0..doubled.len() {
                let of_old = directory.deadline_ms(directory.group(index / 2).0);
                assert_eq!(doubled.deadline_ms(doubled.group(index).0), of_old);
            }
            let halved = doubled.halved();
            for index in 0..doubled.len() {
                let group = doubled.group(index).0;
                assert!(halved.deadline_ms(halved.group(index / 2).0) <= doubled.deadline_ms(group));
            }
            [directory, doubled, halved].into_iter().for_each(Directory::free);
        }
        segment.free();
    }

    #[test]
    fn spans_are_aligned_to_their_width() {
        let segment = Segment::allocate(3, 1);
        let directory = of_depth(3, segment);
        assert_eq!(directory.span(5, 1), 4..8);
        assert_eq!(directory.span(5, 3), 5..6);
        assert_eq!(directory.span(5, 0), 0..8);
        assert!(directory.tagged_segment(2) == (segment, 3));
        directory.free();
        segment.free();
    }
}
