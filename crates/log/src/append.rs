//! The appending side: one [`Appender`] per worker.
//!
//! # Safety
//! An appender writes to blocks ([`Blocks::write`]). It reserves positions with the log's fetch-add, so they are its
//! own; it publishes them by moving its `filling` word, after the copy; it is the only user of that word, because
//! [`Log::appender`] gives each worker's appender out once at a time; and it uses a remembered block only for a reservation
//! in that block. A record whose copy panicked would stay unpublished for ever; nothing between the reservation and the
//! publication can panic, short of a broken invariant, which aborts.

use std::ops::Range;
use std::sync::Arc;

use crate::aside::Aside;
use crate::blocks::{BLOCK, BlockRef};
use crate::log::{FILLED, Log, block_of};
use crate::sync::{AcqRel, Acquire, Release};
use crate::{LARGE_RECORD, Lsn, Record};

/// A piece of a record.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Bytes that are copied.
    Bytes(&'a [u8]),
    /// A range of an immutable buffer, which is referenced if the whole record is over [`LARGE_RECORD`], else copied.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Part<'_> {
    /// The bytes of this part.
    ///
    /// # Panics
    /// When the range is not inside the shared buffer.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Bytes(bytes) => bytes,
            Part::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// A worker's end of the log.
#[derive(Debug)]
pub struct Appender {
    log: Arc<Log>,
    worker: usize,
    /// Where this worker's last record ended: a lower bound of where its next one begins.
    last_end: Lsn,
    /// The block used last.
    block: Option<BlockRef>,
    /// Where the log ended when this worker rang last because of how far it had come.
    rung: Lsn,
    /// Whether this worker announced that it sleeps (see [`Appender::await_release`]).
    announced: bool,
}

/// Bytes of the log that are worth a group of their own.
const RING_AFTER: Lsn = 32 << 10;

impl Appender {
    pub(crate) fn new(log: Arc<Log>, worker: usize) -> Appender {
        // Any value of the end, ever, is a lower bound of where the next record begins.
        let last_end = log.end();
        Appender { log, worker, last_end, block: None, rung: last_end, announced: false }
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Appends one record and returns the position after it. Never waits, never fails. While the log is not active
    /// nothing is appended, and the answer is its end.
    #[inline]
    pub fn append(&mut self, record: &[u8]) -> Lsn {
        if !self.log.is_active() || record.is_empty() {
            return self.log.end();
        }
        if record.len() > LARGE_RECORD {
            return self.append_aside(&[Part::Bytes(record)]);
        }
        let start = self.reserve(record.len());
        let within = offset_in_block(start);
        match self.block {
            Some(block) if block.number == block_of(start) && within + record.len() <= BLOCK => {
                // SAFETY: just reserved, in this block, not published before the end of `publish`.
                unsafe { self.log.blocks.write(block, within, record) }
                self.log.blocks.request(block, within + record.len());
            }
            _ => self.fill(start, &[Part::Bytes(record)]),
        }
        self.publish(start, record.len())
    }

    /// Appends one record that is given in pieces, as [`Appender::append`].
    pub fn append_parts(&mut self, parts: &[Part<'_>]) -> Lsn {
        let len = total(parts);
        if !self.log.is_active() || len == 0 {
            return self.log.end();
        }
        if len > LARGE_RECORD {
            return self.append_aside(parts);
        }
        let start = self.reserve(len);
        self.fill(start, parts);
        self.publish(start, len)
    }

    /// Appends an encoded [`Record`], as [`Appender::append`].
    #[inline]
    pub fn append_record(&mut self, record: &Record) -> Lsn {
        match record.contiguous() {
            Some(bytes) => self.append(bytes),
            None => self.append_parts(&record.parts()),
        }
    }

    /// Rings in the middle of a batch if the log has grown by [`RING_AFTER`] bytes since: the reader begins with these while the rest
    /// is being made.
    #[inline]
    pub fn ring_if_far(&mut self) {
        if self.last_end.saturating_sub(self.rung) >= RING_AFTER {
            self.rung = self.last_end;
            self.log.ring();
        }
    }

    /// Announces that this worker is about to sleep until `lsn` is released. `false`: it is already; do not sleep.
    ///
    /// The worker's waker is called once when [`Log::released`] has reached `lsn`. When the worker comes out of its wait,
    /// for whatever reason, it must call [`Appender::awake`].
    #[must_use]
    pub fn await_release(&mut self, lsn: Lsn) -> bool {
        self.awake();
        self.announced = self.log.watermark.announce(self.worker, lsn);
        if self.announced {
            self.log.doorbell.ring_idle();
        }
        self.announced
    }

    /// Withdraws the announcement, and if it was the reason for waking, wakes up to two other workers in the same position.
    /// Cheap when nothing was announced.
    #[inline]
    pub fn awake(&mut self) {
        if self.announced {
            self.announced = false;
            self.log.watermark.withdraw(self.worker);
        }
    }

    /// Takes `len` bytes of the stream, as unfilled ones.
    #[inline]
    fn reserve(&self, len: usize) -> Lsn {
        let filling = self.log.filling(self.worker);
        // Before the reservation, so that whoever sees that sees this; a release, because the reader may learn from this
        // store that the record before was filled.
        filling.store(self.last_end, Release);
        let start = self.log.tail.0.fetch_add(length(len), AcqRel);
        // The bound was stale by what the others appended meanwhile; this lets the reader go on up to here.
        filling.store(start, Release);
        start
    }

    /// Makes a filled record readable.
    #[inline]
    fn publish(&mut self, start: Lsn, len: usize) -> Lsn {
        self.log.filling(self.worker).store(FILLED, Release);
        self.last_end = start + length(len);
        self.last_end
    }

    fn append_aside(&mut self, parts: &[Part<'_>]) -> Lsn {
        let len = total(parts);
        // Copies, if any, are made before the reservation: the reader waits for no memcpy of megabytes.
        let mut items = referenced(parts);
        let start = self.reserve(len);
        for item in &mut items {
            item.start += start;
        }
        for item in items {
            self.log.aside.push(item);
        }
        self.publish(start, len)
    }

    /// Copies a record of at most [`LARGE_RECORD`] bytes to its place, over a block's end if need be.
    #[inline(never)]
    fn fill(&mut self, start: Lsn, parts: &[Part<'_>]) {
        let (first, last) = (block_of(start), block_of(start + length(total(parts)) - 1));
        // Only the consumed position frees slots, and blocks are emptied before it moves.
        let consumed = block_of(self.log.consumed.0.load(Acquire));
        if last - consumed >= crate::blocks::SLOTS {
            for item in referenced(parts) {
                self.log.aside.push(Aside { start: start + item.start, ..item });
            }
            return;
        }
        let mut block = self.block_for(first);
        let mut at = offset_in_block(start);
        for part in parts {
            let mut bytes = part.bytes();
            while !bytes.is_empty() {
                if at == BLOCK {
                    block = self.block_for(block.number + 1);
                    at = 0;
                }
                let (here, beyond) = bytes.split_at(bytes.len().min(BLOCK - at));
                // SAFETY: inside the reservation, in its block, once, and not published yet.
                unsafe { self.log.blocks.write(block, at, here) };
                at += here.len();
                bytes = beyond;
            }
        }
    }

    fn block_for(&mut self, number: u64) -> BlockRef {
        match self.block {
            Some(block) if block.number == number => block,
            _ => *self.block.insert(self.log.blocks.locate(number)),
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.awake();
        self.log.appender_dropped(self.worker);
    }
}

/// The parts as bytes to reference: shared ones as they are, runs of others copied together. Starts count from 0.
fn referenced(parts: &[Part<'_>]) -> Vec<Aside> {
    let mut items = Vec::new();
    let mut copied = Vec::new();
    let mut at: Lsn = 0;
    let flush = |copied: &mut Vec<u8>, at: Lsn, items: &mut Vec<Aside>| {
        if !copied.is_empty() {
            let bytes = Arc::new(std::mem::take(copied));
            items.push(Aside { start: at - length(bytes.len()), range: 0..bytes.len(), bytes });
        }
    };
    for part in parts {
        match part {
            Part::Shared(bytes, range) if range.len() >= MIN_SHARED => {
                flush(&mut copied, at, &mut items);
                items.push(Aside { start: at, bytes: Arc::clone(bytes), range: range.clone() });
            }
            other => copied.extend_from_slice(other.bytes()),
        }
        at += length(part.bytes().len());
    }
    flush(&mut copied, at, &mut items);
    items
}

/// A shared part below this is cheaper copied than referenced by a reader's I/O vector. Bytes.
const MIN_SHARED: usize = if cfg!(loom) { 1 } else { 1024 };

fn total(parts: &[Part<'_>]) -> usize {
    parts.iter().map(|part| part.bytes().len()).sum()
}

/// A length as a distance in the stream.
#[inline(always)]
fn length(len: usize) -> Lsn {
    const { assert!(size_of::<usize>() <= size_of::<Lsn>()) };
    len as Lsn
}

#[inline(always)]
fn offset_in_block(lsn: Lsn) -> usize {
    const { assert!(BLOCK.is_power_of_two()) };
    // Below BLOCK, which is a usize.
    (lsn % length(BLOCK)) as usize
}
