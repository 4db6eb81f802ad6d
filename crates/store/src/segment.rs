//! A small open-addressed table of up to 15 buckets of 8 slots: the unit that grows, splits, merges and is visited whole.
//!
//! A bucket is one cache line of 8 slots; a slot is one word, the entry's address below a 16-bit fingerprint. The fingerprint also
//! names the home bucket, `fingerprint * buckets >> 16`, so that a segment is rebuilt at another size without reading a single
//! entry. An entry is in its home bucket or the next one; when both are full, an entry that has a free alternative is moved aside.
//! Segments so fill to about 95 % before they grow, by steps of a fifth.
//!
//! A segment whose fingerprints collide too much to be placed that way is marked `spilled`: its entries may be in any slot, and
//! lookups read them all. With a keyed hash that does not happen; it keeps the table correct for every hash.
//!
//! Invariants: the number of buckets and the depth never change in one allocation; header and slots are atomics, written by the
//! holder of the shard's lock, read without it by prefetching only (slots, never what they point to).
//!
//! Dropped: one bucket array per table (growth would stall), and cuckoo hashing (its second bucket needs the key's hash).
//!
//! # Safety
//! [`Segment`] is a copyable address. Its invariant: it came from [`Segment::allocate`] and is not freed while the value is used.
//! The table that links it frees it through `reclaim.rs`; the lock-free reader of a slot is inside a batch. Header and slots were
//! initialised before the address was published, and are only touched as atomics afterwards.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU16, Ordering::Relaxed};

use crate::entry::RawEntry;
use crate::prefetch::{prefetch, prefetch_to_write};

/// Slots in a bucket: 8 words are one cache line.
const BUCKET: usize = 8;

/// Numbers of buckets that segments grow through: with the header's line they fill the allocator's size classes (128, 192, 256 ...
/// 512, 640 ... 1024 bytes).
const STEPS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15];

/// Most buckets of a segment that can be split instead.
pub(crate) const BUCKETS_MAX: usize = STEPS[STEPS.len() - 1];

/// Most buckets of a segment that cannot be split since its keys' hashes are the same: what the byte in the directory can say.
/// Reached after 2040 keys of one 64-bit hash, which a keyed hash makes impossible.
const OVERGROWN_MAX: usize = 255;

/// The share of slots filled, at most, when a segment is built for a known number of entries: in sixteenths.
const BUILD_FILL: usize = 14;

const SLOT_SHIFT: u32 = 48;
const ADDRESS: usize = (1 << SLOT_SHIFT) - 1;

/// Start of the allocation; the buckets follow.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// No key of the segment expires before this; `i64::MAX` if none does. May be too early after removals.
    deadline_ms: AtomicI64,
    len: AtomicU16,
    /// Entries with a time of expiry.
    volatile: AtomicU16,
    buckets: u8,
    /// Leading directory bits that all keys of the segment share.
    depth: u8,
    spilled: AtomicBool,
}

const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == 64);

/// Address of a segment; see the module's `Safety`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment(NonNull<Header>);

impl Segment {
    /// An empty segment.
    pub(crate) fn allocate(buckets: usize, depth: u8) -> Self {
        let layout = layout(buckets);
        // SAFETY: the layout's size is not 0.
        let pointer = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(pointer.cast::<Header>()) else { handle_alloc_error(layout) };
        assert_eq!(
            pointer.addr() >> SLOT_SHIFT,
            0,
            "the allocator returned an address above 48 bits, which a directory cannot hold"
        );
        let header = Header {
            deadline_ms: AtomicI64::new(i64::MAX),
            len: AtomicU16::new(0),
            volatile: AtomicU16::new(0),
            buckets: u8::try_from(buckets).expect("at most OVERGROWN_MAX buckets"),
            depth,
            spilled: AtomicBool::new(false),
        };
        // SAFETY: the allocation is aligned to 64 and holds the header and `buckets * BUCKET` words; the all-zero word is the null
        // pointer.
        unsafe {
            base.write(header);
            base.add(1).cast::<AtomicPtr<u8>>().write_bytes(0, buckets * BUCKET);
        }
        Self(base)
    }

    /// # Safety
    /// `base` came from [`Segment::as_ptr`] of a segment that is not freed while the value is used.
    #[inline]
    pub(crate) unsafe fn from_ptr(base: NonNull<Header>) -> Self {
        Self(base)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> NonNull<Header> {
        self.0
    }

    /// Address and layout, for freeing.
    pub(crate) fn block(self) -> (NonNull<u8>, Layout) {
        (self.0.cast(), layout(self.buckets()))
    }

    /// Bytes of a segment.
    pub(crate) fn size(self) -> usize {
        layout(self.buckets()).size()
    }

    #[inline]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: the segment is not freed while in use, and its header only has atomics and fields that never change.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn slot<'a>(self, index: usize) -> &'a AtomicPtr<u8> {
        debug_assert!(index < self.slots());
        // SAFETY: within the segment's words by the caller's range (checked above in debug builds); only atomics are there.
        unsafe { self.0.add(1).cast::<AtomicPtr<u8>>().add(index).as_ref() }
    }

    #[inline]
    pub(crate) fn buckets(self) -> usize {
        usize::from(self.header().buckets)
    }

    #[inline]
    pub(crate) fn slots(self) -> usize {
        self.buckets() * BUCKET
    }

    #[inline]
    pub(crate) fn depth(self) -> u8 {
        self.header().depth
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        usize::from(self.header().len.load(Relaxed))
    }

    pub(crate) fn volatile(self) -> usize {
        usize::from(self.header().volatile.load(Relaxed))
    }

    /// Adjusts the number of entries that expire.
    pub(crate) fn add_volatile(self, change: i16) {
        let count = &self.header().volatile;
        count.store(
            count.load(Relaxed).checked_add_signed(change).expect("counts of volatile entries are exact"),
            Relaxed,
        );
    }

    pub(crate) fn deadline_ms(self) -> i64 {
        self.header().deadline_ms.load(Relaxed)
    }

    pub(crate) fn set_deadline_ms(self, at_ms: i64) {
        self.header().deadline_ms.store(at_ms, Relaxed);
    }

    /// Lowers the deadline.
    pub(crate) fn note_deadline_ms(self, at_ms: i64) {
        self.set_deadline_ms(self.deadline_ms().min(at_ms));
    }

    fn is_spilled(self) -> bool {
        self.header().spilled.load(Relaxed)
    }

    /// Allows entries in any slot.
    pub(crate) fn spill(self) {
        self.header().spilled.store(true, Relaxed);
    }

    /// The entry in a slot with its fingerprint.
    #[inline]
    pub(crate) fn at(self, index: usize) -> Option<(u16, RawEntry)> {
        let word = self.slot(index).load(Relaxed);
        let address = NonNull::new(word.map_addr(|a| a & ADDRESS))?;
        // SAFETY: a slot holds the address of an entry that it owns, under the fingerprint.
        Some((fingerprint_of(word), unsafe { RawEntry::from_ptr(address) }))
    }

    /// The entry with this fingerprint for which `is_it` says yes, and its index.
    #[inline(always)]
    pub(crate) fn find(
        self,
        buckets: usize,
        fingerprint: u16,
        is_it: impl Fn(RawEntry) -> bool,
    ) -> Option<(usize, RawEntry)> {
        debug_assert_eq!(buckets, self.buckets());
        let home = home(fingerprint, buckets);
        let mut bucket = home;
        // A loop, so that the comparison is inlined once.
        loop {
            if let Some(found) = self.find_in(bucket, fingerprint, &is_it) {
                return Some(found);
            }
            if bucket != home || buckets == 1 {
                break;
            }
            bucket = next(home, buckets);
        }
        if self.is_spilled() { self.find_spilled(buckets, fingerprint, &is_it) } else { None }
    }

    #[cold]
    fn find_spilled(
        self,
        buckets: usize,
        fingerprint: u16,
        is_it: &impl Fn(RawEntry) -> bool,
    ) -> Option<(usize, RawEntry)> {
        (0..buckets).find_map(|bucket| self.find_in(bucket, fingerprint, is_it))
    }

    /// The slots of a bucket that have this fingerprint, as bits at [`PER_SLOT`] times their numbers. All eight are compared without
    /// a branch; but for the key itself one in 2^13 matches.
    #[inline]
    #[cfg(target_arch = "x86_64")]
    fn matches(self, bucket: usize, fingerprint: u16) -> u32 {
        use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};
        let [a, b, c, d] = self.bucket_line(bucket);
        // SAFETY: these need SSE2, which every x86-64 processor has.
        unsafe {
            let wanted = _mm_set1_epi16(fingerprint.cast_signed());
            let ab = _mm_packs_epi16(_mm_cmpeq_epi16(a, wanted), _mm_cmpeq_epi16(b, wanted));
            let cd = _mm_packs_epi16(_mm_cmpeq_epi16(c, wanted), _mm_cmpeq_epi16(d, wanted));
            // A bit for each 16 bits of a slot, of which the fourth is the fingerprint's.
            (_mm_movemask_epi8(ab) | _mm_movemask_epi8(cd) << 16).cast_unsigned() & 0x8888_8888
        }
    }

    /// The eight words of a bucket, read without the lock: a word may change between two of them.
    #[inline]
    #[cfg(target_arch = "x86_64")]
    fn bucket_line(self, bucket: usize) -> [std::arch::x86_64::__m128i; 4] {
        let line = std::ptr::from_ref(self.slot(bucket * BUCKET));
        let (a, b, c, d);
        // SAFETY: the 64 bytes of one bucket, aligned to 64. In assembly, since the words may be stored to by another thread at the
        // same time, of which the language only allows atomic reads; the processor reads each aligned word of eight bytes whole.
        unsafe {
            std::arch::asm!(
                "movdqa {a}, [{line}]",
                "movdqa {b}, [{line} + 16]",
                "movdqa {c}, [{line} + 32]",
                "movdqa {d}, [{line} + 48]",
                line = in(reg) line, a = lateout(xmm_reg) a, b = lateout(xmm_reg) b, c = lateout(xmm_reg) c,
                d = lateout(xmm_reg) d, options(nostack, readonly, preserves_flags)
            );
        }
        [a, b, c, d]
    }

    #[inline]
    #[cfg(not(target_arch = "x86_64"))]
    fn matches(self, bucket: usize, fingerprint: u16) -> u32 {
        let mut matches = 0;
        for at in 0..BUCKET {
            let word = self.slot(bucket * BUCKET + at).load(Relaxed);
            matches |= u32::from(fingerprint_of(word) == fingerprint) << (at as u32 * PER_SLOT + PER_SLOT - 1);
        }
        matches
    }

    #[inline(always)]
    fn find_in(self, bucket: usize, fingerprint: u16, is_it: &impl Fn(RawEntry) -> bool) -> Option<(usize, RawEntry)> {
        let mut matches = self.matches(bucket, fingerprint);
        while matches != 0 {
            let index = bucket * BUCKET + first_of(matches);
            matches &= matches - 1;
            let word = self.slot(index).load(Relaxed);
            let address = NonNull::new(word.map_addr(|a| a & ADDRESS)).expect("an empty slot has fingerprint 0");
            // SAFETY: a slot holds the address of an entry that it owns, under the fingerprint.
            let entry = unsafe { RawEntry::from_ptr(address) };
            if is_it(entry) {
                return Some((index, entry));
            }
        }
        None
    }

    /// Stores an entry and counts it. `None` if there is no place: build a larger segment, split, or [`Segment::spill`].
    pub(crate) fn insert(self, fingerprint: u16, entry: RawEntry) -> Option<usize> {
        let index = self.place(fingerprint)?;
        self.set(index, fingerprint, entry);
        let len = &self.header().len;
        len.store(len.load(Relaxed) + 1, Relaxed);
        Some(index)
    }

    /// Puts an entry into a slot in place of what it held. Release: its bytes are written before its address can be seen.
    pub(crate) fn set(self, index: usize, fingerprint: u16, entry: RawEntry) {
        let tag = usize::from(fingerprint) << SLOT_SHIFT;
        self.slot(index).store(entry.as_ptr().as_ptr().map_addr(|a| a | tag), std::sync::atomic::Ordering::Release);
    }

    /// Empties a slot and uncounts its entry.
    pub(crate) fn clear(self, index: usize) {
        debug_assert!(self.at(index).is_some());
        self.slot(index).store(null_mut(), Relaxed);
        let len = &self.header().len;
        len.store(len.load(Relaxed) - 1, Relaxed);
    }

    /// Finds or makes a free slot for a fingerprint.
    fn place(self, fingerprint: u16) -> Option<usize> {
        let buckets = self.buckets();
        if self.is_spilled() {
            return (0..buckets).find_map(|bucket| self.free_in(bucket));
        }
        let home = home(fingerprint, buckets);
        let beside = next(home, buckets);
        let near = self.free_in(home).or_else(|| self.free_in(beside));
        // Chains so short do not come around to the bucket where they began.
        let hops = buckets.saturating_sub(2);
        near.or_else(|| self.shift_forward(beside, hops)).or_else(|| self.shift_back(home, hops))
    }

    fn free_in(self, bucket: usize) -> Option<usize> {
        (bucket * BUCKET..(bucket + 1) * BUCKET).find(|index| self.slot(*index).load(Relaxed).is_null())
    }

    /// A free slot in `bucket`, made by moving an entry that is at home there one bucket on, up to `hops` times in a chain.
    fn shift_forward(self, bucket: usize, hops: usize) -> Option<usize> {
        self.free_in(bucket).or_else(|| {
            let movable = self.first_of_home(bucket, bucket)?;
            let place = self.shift_forward(next(bucket, self.buckets()), hops.checked_sub(1)?)?;
            Some(self.shift(movable, place))
        })
    }

    /// A free slot in `bucket`, made by moving an entry whose home is the bucket before back to it, in a chain likewise.
    fn shift_back(self, bucket: usize, hops: usize) -> Option<usize> {
        self.free_in(bucket).or_else(|| {
            let before = if bucket == 0 { self.buckets() - 1 } else { bucket - 1 };
            let movable = self.first_of_home(bucket, before)?;
            let place = self.shift_back(before, hops.checked_sub(1)?)?;
            Some(self.shift(movable, place))
        })
    }

    /// The first slot of a full bucket whose entry has this home.
    fn first_of_home(self, bucket: usize, of_home: usize) -> Option<usize> {
        let buckets = self.buckets();
        let is_of = |index: &usize| home(fingerprint_of(self.slot(*index).load(Relaxed)), buckets) == of_home;
        (bucket * BUCKET..(bucket + 1) * BUCKET).find(is_of)
    }

    /// Moves what is in slot `from` to the free slot `to`; `from` is then free.
    fn shift(self, from: usize, to: usize) -> usize {
        let word = self.slot(from).load(Relaxed);
        self.slot(to).store(word, std::sync::atomic::Ordering::Release);
        self.slot(from).store(null_mut(), Relaxed);
        from
    }

    /// A segment for these entries, of `buckets` or the next number up at which they can be placed. Volatile count and deadline
    /// are left to the caller.
    pub(crate) fn build(entries: impl Iterator<Item = (u16, RawEntry)> + Clone, buckets: usize, depth: u8) -> Self {
        let mut buckets = buckets;
        loop {
            for spilled in [false, true] {
                if spilled && buckets < BUCKETS_MAX {
                    continue;
                }
                let segment = Self::allocate(buckets, depth);
                segment.header().spilled.store(spilled, Relaxed);
                if entries.clone().all(|(fingerprint, entry)| segment.insert(fingerprint, entry).is_some()) {
                    return segment;
                }
                segment.free();
            }
            buckets = step_above(buckets);
        }
    }

    /// Fingerprints and entries of all used slots.
    pub(crate) fn entries(self) -> impl Iterator<Item = (u16, RawEntry)> + Clone {
        (0..self.slots()).filter_map(move |index| self.at(index))
    }

    /// Frees a segment that was never linked, or that no other thread can reach any more. Its entries are the caller's.
    pub(crate) fn free(self) {
        let (pointer, layout) = self.block();
        // SAFETY: allocated with this layout; the caller does not use it again.
        unsafe { std::alloc::dealloc(pointer.as_ptr(), layout) }
    }

    /// Requests the lines of the buckets in which a fingerprint can be.
    #[inline]
    pub(crate) fn prefetch_buckets(base: NonNull<Header>, buckets: usize, fingerprint: u16) {
        let line = base.as_ptr().wrapping_add(1 + home(fingerprint, buckets));
        prefetch(line);
    }

    /// Requests what adding a fingerprint reads and changes: the header, and the buckets in which it can be.
    #[inline]
    pub(crate) fn prefetch_room(base: NonNull<Header>, buckets: usize, fingerprint: u16) {
        let home = home(fingerprint, buckets);
        for line in [0, 1 + home, 1 + next(home, buckets)] {
            prefetch_to_write(base.as_ptr().wrapping_add(line));
        }
    }

    /// Requests the entries that the home bucket has for a fingerprint.
    #[inline]
    pub(crate) fn prefetch_entries(self, buckets: usize, fingerprint: u16) {
        let home = home(fingerprint, buckets);
        for bucket in [home, next(home, buckets)] {
            let matches = self.matches(bucket, fingerprint);
            if matches != 0 {
                let word = self.slot(bucket * BUCKET + first_of(matches)).load(Relaxed);
                // Two lines: a small entry mostly lies across a border, and a large one is copied from its start.
                let entry = word.map_addr(|a| a & ADDRESS);
                prefetch(entry);
                prefetch(entry.wrapping_add(64));
                return;
            }
        }
        // To say that a key is not there, and to add it, takes the header.
        prefetch(self.as_ptr().as_ptr());
    }
}

/// The next number of buckets to grow to.
pub(crate) fn step_above(buckets: usize) -> usize {
    let overgrown = || (buckets + buckets / 4).min(OVERGROWN_MAX);
    let above = STEPS.iter().copied().find(|step| *step > buckets).unwrap_or_else(overgrown);
    assert!(above > buckets, "2040 keys share one 64-bit hash: the hash function is broken");
    above
}

/// The number of buckets for `len` entries, with some room to grow.
pub(crate) fn step_for(len: usize) -> usize {
    STEPS.iter().copied().find(|step| step * BUCKET * BUILD_FILL / 16 > len).unwrap_or(BUCKETS_MAX)
}

/// Bits that a slot has in what [`Segment::matches`] returns.
const PER_SLOT: u32 = 4;

/// The first slot in what [`Segment::matches`] returned.
#[inline]
fn first_of(matches: u32) -> usize {
    (matches.trailing_zeros() / PER_SLOT) as usize
}

#[inline]
fn home(fingerprint: u16, buckets: usize) -> usize {
    (usize::from(fingerprint) * buckets) >> 16
}

#[inline]
fn next(bucket: usize, buckets: usize) -> usize {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

#[inline]
fn fingerprint_of(word: *mut u8) -> u16 {
    // The 16 bits above the address.
    (word.addr() >> SLOT_SHIFT) as u16
}

fn layout(buckets: usize) -> Layout {
    Layout::from_size_align(HEADER + buckets * BUCKET * size_of::<usize>(), 64).expect("a segment is at most 17 KiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Body, Content, OwnedEntry};
    use crate::snapshot::Epoch;
    use crate::value::NewValue;

    fn entry(number: i64) -> RawEntry {
        let (body, epoch) = (Body::new(NewValue::Int(number)), Epoch::default());
        RawEntry::allocate(b"k", Content { body, expire_at_ms: None, clock: 0, modified: false, epoch })
    }

    fn free_all(segment: Segment) {
        segment.entries().for_each(|(_, raw)| drop(OwnedEntry::new(raw)));
        segment.free();
    }

    #[test]
    fn full_size_segments_fill_beyond_nine_tenths() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut filled = 0;
        for _ in 0..200 {
            let segment = Segment::allocate(BUCKETS_MAX, 0);
            loop {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let fingerprint = u16::try_from(random >> 48).expect("16 bits").max(1);
                let raw = entry(1);
                if segment.insert(fingerprint, raw).is_none() {
                    drop(OwnedEntry::new(raw));
                    break;
                }
            }
            filled += segment.len();
            free_all(segment);
        }
        let mean = filled / 200;
        assert!(mean * 10 > BUCKETS_MAX * BUCKET * 9, "filled {mean} slots on average");
    }

    #[test]
    fn moved_entries_are_still_found() {
        let segment = Segment::allocate(4, 0);
        // 16 entries at home in buckets 0 and 1, then 8 more that are at home in bucket 1: some must move to bucket 2.
        let prints: Vec<u16> =
            (0..12).map(|i| 100 + i).chain((0..8).map(|i| 0x4000 + i)).chain((0..4).map(|i| 200 + i)).collect();
        for (number, print) in prints.iter().enumerate() {
            let placed = segment.insert(*print, entry(i64::try_from(number).expect("small")));
            assert!(placed.is_some(), "entry {number}");
        }
        for print in &prints {
            assert!(segment.find(4, *print, |_| true).is_some());
        }
        assert!(segment.find(4, 0x4100, |_| true).is_none());
        free_all(segment);
    }

    #[test]
    fn one_fingerprint_for_all_spills_and_is_found() {
        let entries: Vec<(u16, RawEntry)> = (0..100).map(|i| (7, entry(i))).collect();
        let segment = Segment::build(entries.iter().copied(), 1, 3);
        assert!(segment.is_spilled());
        assert_eq!((segment.len(), segment.depth(), segment.buckets()), (100, 3, BUCKETS_MAX));
        for (_, raw) in &entries {
            assert!(segment.find(BUCKETS_MAX, 7, |found| found == *raw).is_some());
        }
        free_all(segment);
    }

    #[test]
    fn steps_grow_and_leave_room() {
        assert_eq!(step_for(0), 1);
        assert_eq!(step_above(1), 2);
        assert_eq!(step_above(BUCKETS_MAX), 18);
        for len in 0..100 {
            assert!(step_for(len) * BUCKET > len);
        }
    }
}
