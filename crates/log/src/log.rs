//! The log itself: its positions, who may append, whether anybody reads.

use std::sync::Arc;

use crate::Lsn;
use crate::append::Appender;
use crate::aside::AsideStack;
use crate::blocks::{BLOCK, Blocks};
use crate::doorbell::Doorbell;
use crate::read::Reader;
use crate::release::Watermark;
use crate::sync::{Acquire, AtomicBool, AtomicU64, Padded, Relaxed, Release};

/// One log, shared by the workers, the reader and whoever moves the watermark.
#[derive(Debug)]
pub struct Log {
    /// Where the next record begins. The only word that all workers write.
    pub(crate) tail: Padded<AtomicU64>,
    /// What the reader has given back. Written by the reader only.
    pub(crate) consumed: Padded<AtomicU64>,
    pub(crate) blocks: Blocks,
    pub(crate) aside: AsideStack,
    pub(crate) watermark: Watermark,
    pub(crate) doorbell: Doorbell,
    workers: Box<[Padded<WorkerState>]>,
    active: AtomicBool,
    has_reader: AtomicBool,
    soft_limit: u64,
}

#[derive(Debug)]
struct WorkerState {
    /// A lower bound of this worker's lowest reserved and unfilled position, or [`FILLED`].
    filling: AtomicU64,
    has_appender: AtomicBool,
}

/// The value of `filling` of a worker that has nothing to fill.
pub(crate) const FILLED: Lsn = Lsn::MAX;

impl Log {
    /// A log with `workers` appenders, that is not active. Appending beyond `soft_limit_bytes` not yet consumed bytes is
    /// allowed, but [`Log::has_room`] then says no.
    pub fn new(workers: usize, soft_limit_bytes: usize) -> Arc<Log> {
        let worker = || Padded(WorkerState { filling: AtomicU64::new(FILLED), has_appender: AtomicBool::new(false) });
        Arc::new(Log {
            tail: Padded(AtomicU64::new(0)),
            consumed: Padded(AtomicU64::new(0)),
            blocks: Blocks::new(),
            aside: AsideStack::new(),
            watermark: Watermark::new(workers),
            doorbell: Doorbell::new(),
            workers: (0..workers).map(|_| worker()).collect(),
            active: AtomicBool::new(false),
            has_reader: AtomicBool::new(false),
            soft_limit: u64::try_from(soft_limit_bytes).unwrap_or(u64::MAX),
        })
    }

    /// Whether anything consumes the log. While it is not active there is nothing to encode and nothing to append.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Whether there are bytes that may still wait for their reader: while the log is active, and until it is deactivated.
    #[inline]
    pub fn has_reader(&self) -> bool {
        self.has_reader.load(Relaxed)
    }

    /// Starts the log at its end, or at `at_least` if that is later (the position that recovery reached). The reader gets
    /// every record appended from now on. To be called while no worker runs a command (under the gate), so that a write
    /// is either wholly before the start or logged.
    ///
    /// # Panics
    /// When the log has a reader already, or an append is under way.
    pub fn activate(self: &Arc<Log>, at_least: Lsn) -> Reader {
        assert!(!self.has_reader.swap(true, Acquire), "the log has one reader");
        self.tail.0.fetch_max(at_least, crate::sync::AcqRel);
        let reader = Reader::new(Arc::clone(self));
        self.watermark.advance(reader.position());
        self.active.store(true, Release);
        reader
    }

    /// Nothing is appended from now on; what was is still the reader's, until [`Log::deactivate`]. To be called under the gate.
    pub fn close(&self) {
        self.active.store(false, Release);
    }

    /// Stops the log. What the reader did not consume is dropped; who waits for a position must be released by the caller.
    /// To be called under the gate, as [`Log::activate`].
    ///
    /// # Panics
    /// When `reader` belongs to another log.
    pub fn deactivate(self: &Arc<Log>, mut reader: Reader) {
        assert!(reader.reads(self), "the reader belongs to this log");
        self.active.store(false, Release);
        let readable = reader.readable();
        reader.consumed(readable);
        drop(reader);
        self.has_reader.store(false, Release);
    }

    /// Whether a command that writes may start. To be checked before any lock is taken; a connection for which there is
    /// none is parked (see [`Log::room_after`]).
    #[inline]
    pub fn has_room(&self) -> bool {
        // Two loads that are not of one moment; each only grows, and the limit is soft.
        self.end().saturating_sub(self.consumed.0.load(Relaxed)) < self.soft_limit
    }

    /// The position whose consumption gives room again, for half of the limit. A worker with parked connections can
    /// [`await`](Appender::await_release) its release, if the reader's owner calls [`Reader::consumed`] before
    /// [`Log::release`].
    pub fn room_after(&self) -> Lsn {
        self.end().saturating_sub(self.soft_limit / 2)
    }

    /// The position after the last reserved record.
    #[inline]
    pub fn end(&self) -> Lsn {
        self.tail.0.load(Acquire)
    }

    /// How many bytes were appended and not consumed.
    pub fn pending(&self) -> u64 {
        let consumed = self.consumed.0.load(Acquire);
        self.end().saturating_sub(consumed)
    }

    /// The watermark: replies that depend on positions up to this one may be sent.
    #[inline]
    pub fn released(&self) -> Lsn {
        self.watermark.released()
    }

    /// Moves the watermark up (never down), and wakes at most two of the workers that sleep until a position up to it is
    /// released; these wake the others. Answers how many it has woken itself.
    pub fn release(&self, up_to: Lsn) -> usize {
        self.watermark.release(up_to)
    }

    /// Sets what wakes a worker out of its wait. Once per worker.
    ///
    /// # Panics
    /// When the worker does not exist or has a waker.
    pub fn set_waker(&self, worker: usize, waker: Box<dyn Fn() + Send + Sync>) {
        self.watermark.set_waker(worker, waker);
    }

    /// Sets what wakes the reader's thread out of its wait (see [`Reader::may_sleep`]). Once.
    ///
    /// # Panics
    /// When it was set.
    pub fn set_reader_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.doorbell.set_waker(waker);
    }

    /// Wakes the reader if it sleeps. To be called by a worker after a pass that appended: once per batch, not per record.
    #[inline]
    pub fn ring(&self) {
        self.doorbell.ring(|| self.end());
    }

    /// The worker's end of the log.
    ///
    /// # Panics
    /// When there is no such worker, or its appender exists already.
    pub fn appender(self: &Arc<Log>, worker: usize) -> Appender {
        assert!(!self.workers[worker].0.has_appender.swap(true, Acquire), "one appender per worker");
        Appender::new(Arc::clone(self), worker)
    }

    pub(crate) fn appender_dropped(&self, worker: usize) {
        self.workers[worker].0.has_appender.store(false, Release);
    }

    #[inline(always)]
    pub(crate) fn filling(&self, worker: usize) -> &AtomicU64 {
        &self.workers[worker].0.filling
    }

    /// The position below which every byte is filled. See the crate's documentation for why.
    pub(crate) fn filled(&self) -> Lsn {
        let end = self.end();
        self.workers.iter().fold(end, |low, worker| low.min(worker.0.filling.load(Acquire)))
    }
}

#[inline(always)]
pub(crate) fn block_of(lsn: Lsn) -> u64 {
    lsn / BLOCK as u64
}
