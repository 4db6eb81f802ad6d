//! The reading side: one [`Reader`] takes the bytes in order and gives their memory back.
//!
//! # Safety
//! The reader reads ranges below its `readable` position, which it got from [`Log::filled`] with acquiring loads. It
//! recycles blocks below its consumed position in [`Reader::consumed`], which takes `&mut self`, so that no [`Chunk`]
//! borrowed from it lives; that position is at most `readable`. There is one reader per log at a time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::Lsn;
use crate::aside::Aside;
use crate::blocks::BLOCK;
use crate::log::{Log, block_of};
use crate::sync::{Acquire, Release};

/// The consumer of a log.
#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    consumed: Lsn,
    readable: Lsn,
    /// Bytes that are not in blocks, by position.
    aside: BTreeMap<Lsn, Aside>,
}

impl Reader {
    pub(crate) fn new(log: Arc<Log>) -> Reader {
        let consumed = log.consumed.0.load(Acquire);
        let mut reader = Reader { log, consumed, readable: consumed, aside: BTreeMap::new() };
        let start = reader.readable();
        assert_eq!(start, reader.log.end(), "no append is under way when a reader starts");
        reader.consumed(start);
        reader
    }

    /// The position up to which all was consumed.
    pub fn position(&self) -> Lsn {
        self.consumed
    }

    /// Looks how far the log can be read now: to the end of the last record before which every record is filled. Never
    /// less than before.
    pub fn readable(&mut self) -> Lsn {
        // The bound of a worker can be older than what was readable before; then it says nothing new.
        self.readable = self.readable.max(self.log.filled());
        // After the above: what belongs to a filled record was pushed before the record was published.
        let aside = &mut self.aside;
        self.log.aside.take_all(|item| drop(aside.insert(item.start, item)));
        self.readable
    }

    /// The bytes of a range that is readable and not consumed, in contiguous pieces.
    ///
    /// # Panics
    /// When the range is not readable, or partly consumed.
    pub fn chunks(&self, range: Range<Lsn>) -> Chunks<'_> {
        assert!(self.consumed <= range.start && range.start <= range.end && range.end <= self.readable);
        Chunks { reader: self, at: range.start, end: range.end }
    }

    /// Gives back everything before `up_to`.
    ///
    /// # Panics
    /// When `up_to` is not readable.
    pub fn consumed(&mut self, up_to: Lsn) {
        assert!(up_to <= self.readable, "only what is readable can be consumed");
        if up_to <= self.consumed {
            return;
        }
        // SAFETY: `up_to` is readable, so every reservation in a block wholly below it is filled; `&mut self` and the
        // lifetime of `Chunk` exclude slices; there is one reader.
        unsafe { self.log.blocks.recycle(block_of(self.consumed)..block_of(up_to)) };
        // Drop what lies wholly before; an item that `up_to` cuts stays.
        while let Some(first) = self.aside.first_entry() {
            if end_of(first.get()) > up_to {
                break;
            }
            first.remove();
        }
        self.consumed = up_to;
        // After the slots were emptied: an appender that sees this position may use them.
        self.log.consumed.0.store(up_to, Release);
    }

    /// Announces that the reader's thread is about to sleep, having read up to `position`. `false`: there is more to read
    /// already; do not sleep. The waker given to [`Log::set_reader_waker`] is called when a worker calls [`Log::ring`].
    #[must_use]
    pub fn may_sleep(&mut self, position: Lsn) -> bool {
        self.log.doorbell.announce(position, false);
        if self.readable() > position {
            self.log.doorbell.withdraw();
            return false;
        }
        true
    }

    /// Announces that the reader's thread is about to sleep for a moment although there may be something to read: until the log can
    /// be read up to `position`, or a worker goes to sleep that waits for a release. `false`: that is so already.
    #[must_use]
    pub fn may_gather(&mut self, position: Lsn) -> bool {
        self.log.doorbell.announce(position.saturating_sub(1), true);
        if self.readable() >= position || self.log.watermark.has_sleepers() {
            self.log.doorbell.withdraw();
            return false;
        }
        true
    }

    /// The reader's thread has not slept until it was woken, but until its time was over.
    pub fn awake(&self) {
        self.log.doorbell.withdraw();
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    pub(crate) fn reads(&self, log: &Arc<Log>) -> bool {
        Arc::ptr_eq(&self.log, log)
    }
}

/// A contiguous piece of the log.
#[derive(Clone, Debug)]
pub enum Chunk<'a> {
    /// Bytes in a block.
    Bytes(&'a [u8]),
    /// A range of a large record's buffer, which may be kept by cloning the `Arc`.
    Shared(&'a Arc<Vec<u8>>, Range<usize>),
}

impl<'a> Chunk<'a> {
    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Chunk::Bytes(bytes) => bytes,
            Chunk::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// The pieces of a range of the log. See [`Reader::chunks`].
#[derive(Debug)]
pub struct Chunks<'a> {
    reader: &'a Reader,
    at: Lsn,
    end: Lsn,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        if self.at == self.end {
            return None;
        }
        let reader = self.reader;
        let before = reader.aside.range(..=self.at).next_back().map(|(_, item)| item);
        if let Some(item) = before.filter(|item| self.at < end_of(item)) {
            let skipped = distance(item.start, self.at);
            let len = (item.range.len() - skipped).min(distance(self.at, self.end));
            let start = item.range.start + skipped;
            self.at += len as Lsn;
            return Some(Chunk::Shared(&item.bytes, start..start + len));
        }
        let next_aside = reader.aside.range(self.at..).next().map_or(self.end, |(start, _)| *start);
        let block = block_of(self.at);
        let block_start = block * BLOCK as Lsn;
        let stop = self.end.min(next_aside).min(block_start + BLOCK as Lsn);
        let range = distance(block_start, self.at)..distance(block_start, stop);
        self.at = stop;
        // SAFETY: the range is readable (checked in `chunks`), in one block, and not aside, so an appender has filled it;
        // the slice borrows the reader, so the block is not recycled while it lives.
        let bytes = unsafe { reader.log.blocks.read(block, range) };
        Some(Chunk::Bytes(bytes.expect("a readable position is in a block or aside")))
    }
}

fn end_of(item: &Aside) -> Lsn {
    item.start + item.range.len() as Lsn
}

/// The distance between two positions of bytes that are in memory, which fits a `usize`.
fn distance(from: Lsn, to: Lsn) -> usize {
    usize::try_from(to - from).expect("bytes in memory")
}
