//! Visiting entries: all of them in slices, or one at random.
//!
//! A cursor is a position in the space of directory hashes, not an index: splits and merges move the borders between segments but
//! never an entry's position. A segment is visited whole, and the next cursor is its upper border. Where a merge has put that
//! border inside a segment, the entries below it are left out. A key that is there throughout is therefore visited exactly once,
//! whatever the table does between the calls.

use super::Table;
use crate::directory::Directory;
use crate::entry::{Entry, RawEntry};
use crate::segment::Segment;
use crate::snapshot::Epoch;

/// Bits of a cursor: [`Table::scan`] returns values below `1 << POSITION_BITS`.
pub const POSITION_BITS: u32 = 32;

/// One past the highest position.
pub(super) const END: u64 = 1 << POSITION_BITS;

impl Table {
    /// Visits whole segments from `cursor` on until at least `budget` entries were visited; returns where to go on, 0 at the end.
    pub fn scan(&self, cursor: u64, budget: usize, f: &mut dyn FnMut(Entry<'_>)) -> u64 {
        let Some(directory) = self.directory() else {
            return 0;
        };
        let (mut position, mut visited) = (cursor, 0);
        while position < END && visited < budget.max(1) {
            let (segment, next) = segment_at(directory, position);
            let merged = next - (END >> segment.depth()) < position;
            for (_, entry) in segment.entries() {
                if !merged || self.position_of(entry.key()) >= position {
                    f(Entry::new(entry));
                }
            }
            // An empty segment costs something, too.
            visited += segment.len().max(1);
            position = next;
        }
        if position < END { position } else { 0 }
    }

    /// As [`Table::scan`], for the entries that are not of this epoch: each is moved to it and given to `f`. Answers how many were
    /// looked at, too.
    pub(crate) fn take_earlier(
        &mut self,
        epoch: Epoch,
        cursor: u64,
        budget: usize,
        f: &mut dyn FnMut(RawEntry),
    ) -> (u64, usize) {
        let Some(directory) = self.directory() else {
            return (0, 0);
        };
        let (mut position, mut visited) = (cursor, 0);
        while position < END && visited < budget.max(1) {
            let (segment, next) = segment_at(directory, position);
            segment.entries().for_each(|(_, entry)| crate::prefetch::prefetch(entry.as_ptr().as_ptr()));
            // Where segments were merged some have been here before: these are of the epoch already.
            for (_, entry) in segment.entries().filter(|(_, entry)| entry.epoch() != epoch) {
                entry.set_epoch(epoch);
                f(entry);
            }
            visited += segment.len().max(1);
            position = next;
        }
        (if position < END { position } else { 0 }, visited)
    }

    /// Where a key is in the space of directory hashes.
    fn position_of(&self, key: &[u8]) -> u64 {
        self.bits(self.context().hasher.hash(key)) >> (64 - POSITION_BITS)
    }

    /// An entry at a place that `random` picks; `None` if the table is empty. Fair within a segment; segments are picked by the
    /// share of the hash space that they cover, so that the chance of a key varies with how full its segment is.
    pub fn random(&self, random: u64) -> Option<Entry<'_>> {
        /// Draws before any entry from here on will do: at a fill of a quarter, 32 fail once in 10,000 times.
        const DRAWS: usize = 32;
        let directory = self.directory().filter(|_| !self.is_empty())?;
        let mut random = random;
        for _ in 0..DRAWS {
            random = mixed(random);
            let segment = directory.segment(directory.index(random));
            // Multiply-shift of the low half: an index below the number of slots.
            let index = ((random & u64::from(u32::MAX)) * segment.slots() as u64) >> 32;
            if let Some((_, entry)) = segment.at(index as usize) {
                return Some(Entry::new(entry));
            }
        }
        let start = directory.index(random);
        let mut around = (start..directory.len()).chain(0..start);
        around.find_map(|index| directory.segment(index).entries().next()).map(|(_, entry)| Entry::new(entry))
    }
}

/// The segment that covers a position, and the position where the next one begins.
fn segment_at(directory: Directory, position: u64) -> (Segment, u64) {
    let segment = directory.segment(directory.index(position << (64 - POSITION_BITS)));
    let width = END >> segment.depth();
    (segment, (position / width + 1) * width)
}

/// SplitMix64 (Steele, Lea, Flood 2014): the next of a sequence of well-mixed words.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
