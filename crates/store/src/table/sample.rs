//! Some entries from a place taken at random, for whoever chooses which of them to evict.
//!
//! A sample is a run of neighbouring slots: where a key lies follows from its hash, not from its use, so that neighbours are as
//! good as entries from all over, at the price of one segment's cache misses. Keys that expire are found by the directory's
//! bounds and the segments' counts, so that segments without any are not opened.

use super::{Entry, Table};
use crate::prefetch::prefetch;
use crate::segment::Segment;

/// Segments without a fitting entry that one sample looks at.
const SEGMENTS_MAX: usize = 64;

impl Table {
    /// Visits up to `count` entries from a place that `random` picks; with `volatile` only such that expire, if not at the
    /// last millisecond there is. Returns how many: at least one, unless there is none, or those that expire are so rare that none
    /// was near.
    pub fn sample(&self, random: u64, count: usize, volatile: bool, f: &mut dyn FnMut(Entry<'_>)) -> usize {
        let fitting = if volatile { self.volatile_len() } else { self.len() };
        let Some(directory) = self.directory().filter(|_| fitting > 0) else { return 0 };
        let wanted = count.min(fitting);
        let (mut index, mut seen, mut opened, mut passed) = (directory.index(random), 0, 0, 0);
        // The high bits chose the segment, the low ones choose the slot in it.
        let mut slot = random & u64::from(u32::MAX);
        while seen < wanted && passed < directory.len() && opened < SEGMENTS_MAX {
            let (group, elements) = directory.group(index);
            // The bound is that of the segments that start in the group; one that began before it is met where it starts.
            let end = if volatile && directory.deadline_ms(group) == i64::MAX {
                elements.end
            } else {
                let segment = directory.segment(index);
                if !volatile || segment.volatile() > 0 {
                    seen += visit(segment, slot, wanted - seen, volatile, f);
                }
                opened += 1;
                slot = 0;
                directory.span(index, segment.depth()).end
            };
            passed += end - index;
            index = end % directory.len();
        }
        seen
    }
}

/// Visits up to `count` entries of a segment from the slot on that 32 random bits pick; returns how many.
fn visit(segment: Segment, random: u64, count: usize, volatile: bool, f: &mut dyn FnMut(Entry<'_>)) -> usize {
    // Multiply-shift: an index below the number of slots.
    let start = ((random * segment.slots() as u64) >> 32) as usize;
    let entries = || (start..segment.slots()).chain(0..start).filter_map(|index| segment.at(index));
    entries().take(count).for_each(|(_, entry)| prefetch(entry.as_ptr().as_ptr()));
    let fitting = entries().filter(|(_, entry)| !volatile || entry.expire_at_ms().is_some()).take(count);
    fitting.map(|(_, entry)| f(Entry::new(entry))).count()
}
