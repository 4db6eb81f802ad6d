//! Making room for a key, and giving room back.
//!
//! A segment that is full is built larger by a fifth; at its largest it is split by the next bit of the hash, which doubles the
//! directory when the segment was as deep as that. A segment less than a quarter full is merged with its sibling or built smaller.
//! Each step costs one or two segments, or 8 bytes per segment of the table for the directory.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use super::Table;
use crate::directory::{DEPTH_MAX, Directory};
use crate::entry::RawEntry;
use crate::hash::Hash;
use crate::segment::{self, BUCKETS_MAX, Segment};

/// Siblings with together at most this many entries become one segment: a quarter of its slots.
const MERGE_MAX: usize = BUCKETS_MAX * 8 / 4;

/// Most keys that a segment has on average when room is reserved.
const RESERVED_MEAN: usize = BUCKETS_MAX * 8 * 3 / 4;

/// A split must separate keys within this many further bits; else the hash is at fault, and doubling the directory no help.
const SEPARABLE_BITS: u32 = 8;

/// An entry of a segment being split: its directory bits, and what its slot holds.
type Rehashed = (u64, (u16, RawEntry));

impl Table {
    /// The directory, made with one small segment if there is none.
    pub(super) fn directory_or_first(&mut self) -> Directory {
        if let Some(directory) = self.directory() {
            return directory;
        }
        let segment = Segment::allocate(1, 0);
        let directory = Directory::of(segment);
        self.deepest = 1;
        self.account(segment.size() + directory.size(), 0);
        self.set_directory(directory);
        directory
    }

    /// Changes the segment in which a key could not be placed, so that trying again gets closer to success.
    #[cold]
    pub(super) fn make_room(&mut self, bits: u64) {
        let directory = self.directory().expect("there is a segment that is full");
        let index = directory.index(bits);
        let segment = directory.segment(index);
        let (len, slots) = (segment.len(), segment.slots());
        if segment.buckets() < BUCKETS_MAX {
            self.rebuild(directory, index, segment::step_above(segment.buckets()));
        } else if len * 2 < slots {
            // Half empty, yet no place: the fingerprints collide, which a split would not cure soon.
            segment.spill();
        } else if let Some(entries) = self.separable(segment, bits) {
            self.split(directory, index, &entries);
        } else if len < slots {
            segment.spill();
        } else {
            self.rebuild(directory, index, segment::step_above(segment.buckets()));
        }
    }

    /// Makes room for so many keys if there is none yet: while they come hardly a segment has to be built larger or split. As the
    /// number is a guess, no key needs the room, and none is refused beyond it.
    pub fn reserve(&mut self, keys: usize) {
        // A single segment is made fast enough when it is needed.
        if !self.is_empty() || keys <= RESERVED_MEAN {
            return;
        }
        self.release();
        let segments = keys.div_ceil(RESERVED_MEAN).next_power_of_two();
        let depth = u8::try_from(segments.trailing_zeros()).expect("fewer than 2^64").min(DEPTH_MAX);
        let mean = keys >> depth;
        // Some have more keys than others.
        let buckets = segment::step_for(mean + mean / 8);
        let segments: Vec<Segment> = (0..1 << depth).map(|_| Segment::allocate(buckets, depth)).collect();
        let directory = Directory::of_all(depth, &segments);
        self.deepest = u32::try_from(segments.len()).expect("at most 2^26");
        self.account(directory.size() + segments.iter().map(|segment| segment.size()).sum::<usize>(), 0);
        self.set_directory(directory);
    }

    /// Merges or shrinks the segment from which a key was just removed, if it is nearly empty.
    #[inline]
    pub(super) fn give_back(&mut self, hash: Hash) {
        let bits = self.bits(hash);
        let Some(directory) = self.directory() else {
            return;
        };
        let segment = directory.segment(directory.index(bits));
        if segment.len() * 4 < segment.slots() {
            self.shrink(bits);
        }
    }

    /// Gives back what an empty table keeps for its next key: with a thousand tables and a small memory limit that matters. Nothing
    /// happens if there are keys.
    pub fn release(&mut self) {
        let Some(directory) = self.directory().filter(|_| self.is_empty()) else {
            return;
        };
        // A deadline may be left of a key that was removed before its time.
        self.root().deadline_ms.store(i64::MAX, Relaxed);
        (self.pass_position, self.pass_deadline_ms, self.deepest) = (0, i64::MAX, 0);
        self.root().directory.store(null_mut(), Relaxed);
        let mut index = 0;
        while index < directory.len() {
            let segment = directory.segment(index);
            index = directory.span(index, segment.depth()).end;
            self.account(0, segment.size());
            self.context().retire(segment.block());
        }
        self.account(0, directory.size());
        self.context().retire(directory.block());
    }

    #[cold]
    pub(super) fn shrink(&mut self, bits: u64) {
        while self.merge(bits) {}
        let directory = self.directory().expect("it was just there");
        let index = directory.index(bits);
        let segment = directory.segment(index);
        let buckets = segment::step_for(segment.len());
        if segment.len() * 4 < segment.slots() && buckets < segment.buckets() {
            self.rebuild(directory, index, buckets);
        }
    }

    /// Replaces a segment by one of another size with the same entries.
    fn rebuild(&mut self, directory: Directory, index: usize, buckets: usize) {
        let old = directory.segment(index);
        let new = Segment::build(old.entries(), buckets, old.depth());
        new.add_volatile_of(old);
        self.account(new.size(), old.size());
        directory.link(directory.span(index, old.depth()), new);
        self.context().retire(old.block());
    }

    /// The segment's entries with their hashes, if a split can tell them from each other or from `bits`.
    fn separable(&self, segment: Segment, bits: u64) -> Option<Vec<Rehashed>> {
        let depth = segment.depth();
        if depth >= DEPTH_MAX {
            return None;
        }
        // The keys are about to be read: let their lines come together.
        segment.entries().for_each(|(_, entry)| crate::prefetch::prefetch(entry.as_ptr().as_ptr()));
        let rehash = |slot: (u16, RawEntry)| (self.bits(self.context().hasher.hash(slot.1.key())), slot);
        let entries: Vec<Rehashed> = segment.entries().map(rehash).collect();
        let window = 64 - u32::from(depth) - SEPARABLE_BITS;
        entries.iter().any(|(other, _)| (other ^ bits) >> window != 0).then_some(entries)
    }

    /// Replaces a segment by two that are one bit deeper.
    fn split(&mut self, directory: Directory, index: usize, entries: &[Rehashed]) {
        let old = directory.segment(index);
        let depth = old.depth();
        let (directory, index) = if depth == directory.depth() {
            let doubled = directory.doubled();
            self.exchange_directory(directory, doubled, 0);
            (doubled, index * 2)
        } else {
            (directory, index)
        };
        let span = directory.span(index, depth);
        let middle = span.start + span.len() / 2;
        let half = |high: bool| {
            let of_half = move |entry: &&Rehashed| (entry.0 << depth >> 63 == 1) == high;
            let count = entries.iter().filter(of_half).count();
            let slots = entries.iter().filter(of_half).map(|entry| entry.1);
            let segment = Segment::build(slots.clone(), segment::step_for(count), depth + 1);
            for (_, entry) in slots {
                segment.add_volatile(i16::from(entry.expire_at_ms().is_some()));
                segment.note_deadline_ms(entry.due_ms());
            }
            segment
        };
        let (low, high) = (half(false), half(true));
        for (start, end, segment) in [(span.start, middle, low), (middle, span.end, high)] {
            directory.link(start..end, segment);
            directory.note_deadline_ms(start, depth + 1, segment.deadline_ms());
        }
        if depth + 1 == directory.depth() {
            self.deepest += 2;
        }
        self.account(low.size() + high.size(), old.size());
        self.context().retire(old.block());
    }

    /// Merges the segment for `bits` with its sibling if both are nearly empty; true if it did.
    fn merge(&mut self, bits: u64) -> bool {
        let directory = self.directory().expect("there is a segment");
        let index = directory.index(bits);
        let one = directory.segment(index);
        let depth = one.depth();
        let Some(above) = depth.checked_sub(1) else {
            return false;
        };
        let (span, own) = (directory.span(index, above), directory.span(index, depth));
        let other = directory.segment(if own.start == span.start { own.end } else { span.start });
        let len = one.len() + other.len();
        if other.depth() != depth || len > MERGE_MAX {
            return false;
        }
        let merged = Segment::build(one.entries().chain(other.entries()), segment::step_for(len), above);
        merged.add_volatile_of(one);
        merged.add_volatile_of(other);
        directory.note_deadline_ms(span.start, above, merged.deadline_ms());
        directory.link(span, merged);
        self.account(merged.size(), one.size() + other.size());
        self.context().retire(one.block());
        self.context().retire(other.block());
        if depth == directory.depth() {
            self.deepest -= 2;
            self.halve();
        }
        true
    }

    /// Halves the directory while no segment needs its last bit.
    fn halve(&mut self) {
        while let Some(directory) = self.directory().filter(|d| d.depth() > 0 && self.deepest == 0) {
            let halved = directory.halved();
            // A segment as deep as the directory fills one element, a shallower one both of an aligned pair.
            let pairs = (0..halved.len() / 2).filter(|pair| halved.segment(pair * 2) != halved.segment(pair * 2 + 1));
            let deepest = if halved.depth() == 0 { 1 } else { 2 * pairs.count() };
            self.exchange_directory(directory, halved, u32::try_from(deepest).expect("at most 2^26 segments"));
        }
    }

    fn exchange_directory(&mut self, old: Directory, new: Directory, deepest: u32) {
        self.account(new.size(), old.size());
        self.set_directory(new);
        self.context().retire(old.block());
        self.deepest = deepest;
    }
}

impl Segment {
    /// Takes over the count of volatile entries and the deadline of a segment that it replaces.
    fn add_volatile_of(self, old: Segment) {
        self.add_volatile(i16::try_from(old.volatile()).expect("at most 2040 entries"));
        self.note_deadline_ms(old.deadline_ms());
    }
}
