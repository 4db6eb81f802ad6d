//! A regular file: what programs see, what was synced, and the changes in between, in order.
//!
//! Invariants: `durable` changed by all of `pending`, in order, is `live`, unless a sync has failed; every page in which
//! the two differ is in `dirty`, with the same exception. A failed sync empties `dirty` and `pending`: as in Linux, the
//! page cache takes the pages for clean, reads still show them, and the next sync that succeeds does not write them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::content::{Content, PAGE, index, length};

/// One change that was not synced.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Position of the operation in the recording.
    pub at: u64,
    /// What it does.
    pub change: Change,
}

/// A change of a file's bytes or size.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes written at an offset.
    Write(u64, Slice),
    /// The size set, down or up.
    Resize(u64),
    /// A range made zero; the size grows to the end given, if that is more.
    Zero(Range<u64>, u64),
}

/// Part of a shared buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    buffer: Arc<[u8]>,
    range: Range<usize>,
}

impl Slice {
    /// All of it.
    pub fn new(buffer: Arc<[u8]>) -> Self {
        let range = 0..buffer.len();
        Self { buffer, range }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }

    fn part(&self, from: u64, to: u64) -> Self {
        let start = self.range.start;
        Self { buffer: Arc::clone(&self.buffer), range: start + index(from)..start + index(to) }
    }
}

/// A regular file.
#[derive(Clone, Debug, Default)]
pub struct File {
    live: Content,
    durable: Content,
    dirty: BTreeSet<u64>,
    pending: Vec<Pending>,
    /// The smallest size since the last sync: what lay behind it is gone, whatever the size is now.
    low_size: u64,
}

impl File {
    /// What programs see.
    pub fn live(&self) -> &Content {
        &self.live
    }

    /// What no cut can take.
    pub fn durable(&self) -> &Content {
        &self.durable
    }

    /// The changes since, in order.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Writes.
    pub fn write(&mut self, at: u64, offset: u64, data: &Arc<[u8]>) {
        if data.is_empty() {
            return;
        }
        self.live.write(offset, data);
        self.dirty.extend(offset / PAGE..(offset + length(data)).div_ceil(PAGE));
        self.pending.push(Pending { at, change: Change::Write(offset, Slice::new(Arc::clone(data))) });
    }

    /// Truncates or extends.
    pub fn resize(&mut self, at: u64, size: u64) {
        if size < self.live.size() && !size.is_multiple_of(PAGE) {
            self.dirty.insert(size / PAGE);
        }
        self.live.resize(size);
        self.low_size = self.low_size.min(size);
        self.pending.push(Pending { at, change: Change::Resize(size) });
    }

    /// Makes `range` zero and the file at least `size` long: fallocate in all its modes.
    pub fn zero(&mut self, at: u64, range: Range<u64>, size: u64) {
        self.dirty.extend(self.live.page_numbers(range.start, range.end));
        self.dirty.extend(self.durable.page_numbers(range.start, range.end));
        self.live.zero(range.start, range.end.saturating_sub(range.start));
        let size = size.max(self.live.size());
        self.live.set_size(size);
        self.pending.push(Pending { at, change: Change::Zero(range, size) });
    }

    /// Everything is durable.
    pub fn sync(&mut self) {
        self.durable.resize(self.low_size.min(self.durable.size()));
        for page in std::mem::take(&mut self.dirty) {
            self.durable.share_page(&self.live, page);
        }
        self.durable.set_size(self.live.size());
        self.low_size = self.live.size();
        self.pending.clear();
    }

    /// These bytes are durable, and so much of the size as they need.
    pub fn sync_range(&mut self, offset: u64, len: u64) {
        let end = (offset + len).min(self.live.size());
        let is_truncated = |pending: &Pending| matches!(pending.change, Change::Resize(size) if size < end);
        if self.low_size < self.durable.size() || self.pending.iter().any(is_truncated) {
            // The size cannot be made durable without the truncations before it.
            self.sync();
            return;
        }
        if offset >= end {
            return;
        }
        self.durable.write(offset, &self.live.read(offset, end - offset));
        self.low_size = self.low_size.max(self.durable.size()).min(self.live.size());
        if !self.pending.is_empty() {
            self.supersede(offset, end);
        }
    }

    /// A sync failed: nothing more became durable, and nothing is left to be written.
    pub fn sync_failed(&mut self) {
        self.dirty.clear();
        self.pending.clear();
    }

    /// Earlier writes of these bytes must not come back at a cut.
    fn supersede(&mut self, offset: u64, end: u64) {
        let mut kept = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            let at = pending.at;
            match pending.change {
                Change::Write(start, slice) if start < end && start + length(slice.bytes()) > offset => {
                    let stop = start + length(slice.bytes());
                    if start < offset {
                        kept.push(Pending { at, change: Change::Write(start, slice.part(0, offset - start)) });
                    }
                    if stop > end {
                        kept.push(Pending { at, change: Change::Write(end, slice.part(end - start, stop - start)) });
                    }
                }
                Change::Zero(range, size) if range.start < end && range.end > offset => {
                    kept.push(Pending { at, change: Change::Zero(range.start..offset.max(range.start), size) });
                    kept.push(Pending { at, change: Change::Zero(end.min(range.end)..range.end, size) });
                }
                change => kept.push(Pending { at, change }),
            }
        }
        self.pending = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn data(text: &str) -> Arc<[u8]> {
        text.as_bytes().into()
    }

    fn replayed(file: &File) -> Content {
        let mut content = file.durable.clone();
        for pending in &file.pending {
            match &pending.change {
                Change::Write(offset, slice) => content.write(*offset, slice.bytes()),
                Change::Resize(size) => content.resize(*size),
                Change::Zero(range, size) => {
                    content.zero(range.start, range.end.saturating_sub(range.start));
                    content.set_size((*size).max(content.size()));
                }
            }
        }
        content
    }

    #[test]
    fn durable_and_pending_make_live_whatever_happens() {
        let mut random = Random::new(3);
        let mut file = File::default();
        for at in 0..5000 {
            let offset = random.below(30_000);
            let len = 1 + random.below(6000);
            match random.below(12) {
                0..6 => file.write(at, offset, &vec![random.any().to_le_bytes()[0]; index(len)].into()),
                6 => file.resize(at, offset),
                7 => file.zero(at, offset..offset + len, 0),
                8 => file.zero(at, 0..0, offset),
                9..11 => file.sync_range(offset, len),
                _ => {
                    file.sync();
                    assert!(file.durable.bytes() == file.live.bytes(), "at {at}");
                }
            }
            assert!(replayed(&file).bytes() == file.live.bytes(), "at {at}");
        }
    }

    #[test]
    fn a_synced_range_is_durable_and_nothing_else_is() {
        let mut file = File::default();
        file.write(0, 0, &data("aaaaaaaaaa"));
        file.write(1, 3, &data("bbb"));
        file.sync_range(3, 3);
        assert_eq!(file.durable.bytes(), b"\0\0\0bbb");
        assert_eq!(file.pending.len(), 2);
        assert_eq!(replayed(&file).bytes(), b"aaabbbaaaa");
    }

    /// What PostgreSQL met in 2018: the second fsync says that all is well, and the bytes are on no disk.
    #[test]
    fn a_sync_after_a_failed_one_does_not_write_what_the_first_lost() {
        let mut file = File::default();
        file.write(0, 0, &data(&"a".repeat(8192)));
        file.sync_failed();
        file.write(1, 8192, &data("b"));
        file.sync();
        assert_eq!(file.live.read(0, 1), b"a");
        assert_eq!(file.durable.bytes(), [&[0; 8192][..], b"b"].concat());
        file.write(2, 0, &data("c"));
        file.sync();
        assert_eq!(file.durable.read(0, 4), b"caaa", "a page that is dirty again is written whole");
        assert_eq!(file.durable.read(4096, 4), [0; 4]);
    }

    #[test]
    fn a_truncation_between_two_syncs_leaves_nothing_behind_it() {
        let mut file = File::default();
        file.write(0, 0, &data(&"a".repeat(10_000)));
        file.sync();
        file.resize(1, 100);
        file.resize(2, 9000);
        file.sync();
        assert_eq!(file.durable, file.live);
        assert_eq!(file.durable.read(99, 3), b"a\0\0");
    }
}
