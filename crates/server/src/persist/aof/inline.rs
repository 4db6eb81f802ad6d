//! `aof-io inline`: the worker that ends its pass writes and syncs, as Redis does in its loop.
//!
//! One worker at a time is the writer. Who finds it taken goes on with its own work: its records are written by who holds it, who
//! looks once more when it lets go.
//!
//! Nothing is left behind: a worker appends, passes a fence, and tries the lock. If it fails, the holder lets go later, passes a
//! fence, and looks at the log's end; so it sees the record, and tries again.

use gimmal_log::aof::writer::{Orders, Step, Writer};
use gimmal_log::{Log, Reader};
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The writer, for whoever comes by.
#[derive(Default)]
pub(super) struct Inline {
    is_on: AtomicBool,
    writer: Mutex<Option<(Writer, Reader)>>,
}

impl Inline {
    /// Whether workers write.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// Workers write from now on.
    pub(super) fn begin(&self, writer: Writer, reader: Reader) {
        *self.lock() = Some((writer, reader));
        self.is_on.store(true, Release);
    }

    /// Writes what there is, unless somebody is at it.
    pub(super) fn write(&self, log: &Log) {
        loop {
            fence(SeqCst);
            let Ok(mut held) = self.writer.try_lock() else { return };
            let Some((writer, reader)) = &mut *held else { return };
            let last = loop {
                match writer.step(reader) {
                    Step::More => {}
                    last => break last,
                }
            };
            let written = writer.written();
            drop(held);
            fence(SeqCst);
            // A disk that is full or slow is tried again in the next pass.
            if !matches!(last, Step::Idle(_)) || log.end() == written {
                return;
            }
            // Somebody has appended meanwhile, or is just copying a record.
            std::thread::yield_now();
        }
    }

    /// Writes and syncs the rest; the log's reader comes back. The workers have ended.
    pub(super) fn end(&self, orders: &Orders) -> Reader {
        self.is_on.store(false, Release);
        let (mut writer, mut reader) = self.lock().take().expect("it was begun");
        orders.stop();
        loop {
            match writer.step(&mut reader) {
                Step::More | Step::Idle(_) | Step::Gather(..) => {}
                Step::Blocked(_) if writer.is_full() => return reader,
                Step::Blocked(limit) => std::thread::sleep(limit),
                Step::Stopped | Step::Failed => return reader,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Writer, Reader)>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
