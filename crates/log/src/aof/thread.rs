//! A thread that runs a [`Writer`] (`aof-io thread`): while one group is synced, the next fills; nothing else batches.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, Builder, JoinHandle, Thread};
use std::time::Duration;

use super::progress::Progress;
use super::slice;
use super::writer::{Orders, Step, Writer};
use crate::Log;
use crate::read::Reader;

/// What wakes the thread that writes. A log's waker is set once; the threads may come and go.
#[derive(Debug, Default)]
pub struct Bell(Mutex<Option<Thread>>);

impl Bell {
    /// The bell of a log: its workers' [`Log::ring`] wakes the thread that writes.
    ///
    /// # Panics
    /// When the log has a waker.
    pub fn of(log: &Log) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        log.set_reader_waker(Box::new(move || rung.ring()));
        bell
    }

    /// Wakes the thread.
    pub fn ring(&self) {
        if let Some(thread) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    fn answer(&self, thread: Option<Thread>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }
}

/// A writer on a thread of its own.
#[derive(Debug)]
pub struct WriterThread {
    orders: Arc<Orders>,
    progress: Arc<Progress>,
    bell: Arc<Bell>,
    thread: JoinHandle<Reader>,
}

impl WriterThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel starts no thread. The reader comes back.
    pub fn start(writer: Writer, reader: Reader, bell: Arc<Bell>) -> Result<WriterThread, (io::Error, Reader)> {
        let (orders, progress) = (Arc::clone(writer.orders()), Arc::clone(writer.progress()));
        let answers = Arc::clone(&bell);
        let (give, take) = mpsc::sync_channel(1);
        let body = move || {
            let (writer, reader) = take.recv().expect("who starts the thread gives it what it needs");
            run(writer, reader, &answers)
        };
        match Builder::new().name("aof".to_owned()).spawn(body) {
            Ok(thread) => {
                give.send((writer, reader)).expect("the thread takes it");
                Ok(WriterThread { orders, progress, bell, thread })
            }
            Err(error) => Err((error, reader)),
        }
    }

    /// What others can ask of the writer. Ring after asking.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// How far it is.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Makes the thread look at its orders.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Writes and syncs all that was appended, marks the end and ends. The reader, for [`Log::deactivate`]. Whether all was
    /// written [`Progress::durable_lsn`] says.
    ///
    /// # Panics
    /// When the thread did.
    pub fn stop(self) -> Reader {
        self.orders.stop();
        self.bell.ring();
        self.thread.join().expect("the writer does not panic")
    }
}

fn run(mut writer: Writer, mut reader: Reader, bell: &Bell) -> Reader {
    bell.answer(Some(thread::current()));
    writer.gather();
    // Without it the log is as good, and slower where processors are shared.
    let _refused = slice::set(slice::SHORT).is_err();
    loop {
        match writer.step(&mut reader) {
            Step::More => {}
            Step::Gather(up_to, limit) => {
                if reader.may_gather(up_to) {
                    thread::park_timeout(limit);
                    reader.awake();
                }
                writer.gathered();
            }
            // The bell leaves a token, so what was asked meanwhile ends the sleep at once.
            Step::Idle(limit) if reader.may_sleep(writer.written()) => sleep(limit),
            Step::Idle(_) => {}
            Step::Blocked(_) if writer.orders().is_stopped() && writer.is_full() => break,
            Step::Blocked(limit) => sleep(Some(limit)),
            Step::Failed if writer.orders().is_stopped() => break,
            Step::Failed => thread::park(),
            Step::Stopped => break,
        }
    }
    bell.answer(None);
    reader
}

fn sleep(limit: Option<Duration>) {
    match limit {
        Some(limit) => thread::park_timeout(limit),
        None => thread::park(),
    }
}
