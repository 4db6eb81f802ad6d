//! The append-only file of a running server: who writes the log, what it is told, and what follows when it cannot.
//!
//! [`gimmal_log::aof`] is the file itself. Here is what the server adds:
//! * the writer runs on a thread (`aof-io thread`, `uring`), or in whatever worker ends its pass (`aof-io inline`, [`inline`]);
//! * workers look at [`Aof::condition`] once a pass. While the disk is full they refuse writes; what was appended before stays held.
//!   After an error that is final nothing more is acknowledged: the process ends (`aof-on-error exit`), or connections with held
//!   replies are closed, and so is, or gets `-MISCONF`, whoever asks for what is not on disk (`readonly`).
//!
//! # Who owns what
//! The [`Directory`] and the handle of the writer are behind one lock, which is taken by who starts, stops, changes or rewrites the
//! log; never by a worker's data path. `Orders` and `Progress` are shared with the writer.

mod inline;

use crate::config::{AofIo, AofUringCompletion, AofUringOrder, Appendfsync, Config, OnError};
use crate::shared::Shared;
use crate::{notice, warning};
use gimmal_log::aof::thread::Bell;
use gimmal_log::aof::writer::Orders;
use gimmal_log::aof::{
    Completion, Condition, Directory, Fsync, Increment, Order, Progress, RingSettings, Settings, Timing, Writer,
    WriterThread,
};
use gimmal_log::{Log, Lsn};
use inline::Inline;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The append-only file of this server.
#[derive(Default)]
pub struct Aof {
    /// A [`State`], for workers to look at.
    state: AtomicU8,
    bell: OnceLock<Arc<Bell>>,
    inline: Inline,
    running: Mutex<Option<Running>>,
}

/// What a worker must know of the log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All is well, or there are none.
    Fine,
    /// The disk is full: writes are refused.
    Full,
    /// Nothing will be acknowledged again.
    Failed,
}

/// A log that is being written.
pub struct Running {
    /// Its files.
    pub directory: Directory,
    /// How far the writer is.
    pub progress: Arc<Progress>,
    orders: Arc<Orders>,
    writer: Who,
    /// Lengths of the base, and of all files but the one being written, in bytes.
    closed: (u64, u64),
}

enum Who {
    Thread(WriterThread),
    /// The workers.
    Inline,
}

impl Aof {
    /// What a worker must know, once a pass.
    #[inline]
    pub fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::Fine,
            1 => State::Full,
            _ => State::Failed,
        }
    }

    /// Whether workers write the log.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.inline.is_on()
    }

    /// A worker has ended its pass: writes what there is, unless another one is at it.
    pub fn write_inline(&self, log: &Log) {
        self.inline.write(log);
    }

    /// The log that is being written, if it is.
    pub fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to where the log is on disk, if it is written.
    pub fn durable_lsn(&self) -> Option<Lsn> {
        self.running().as_ref().map(|running| running.progress.durable_lsn())
    }

    /// What is wrong with the disk. Empty: nothing.
    pub fn reason(&self) -> String {
        self.running().as_ref().map_or_else(String::new, |running| running.progress.reason())
    }

    /// Writes the log from now on, to this file, from `lsn` on. No command that writes may run meanwhile.
    ///
    /// # Errors
    /// There is no such ring, or no thread. The log is then not active.
    pub fn start(&self, shared: &Arc<Shared>, directory: Directory, increment: Increment, lsn: Lsn) -> io::Result<()> {
        let config = shared.settings.current();
        let (base, all) = directory.sizes()?;
        let closed = (base, all - increment.length()?);
        let bell = self.bell.get_or_init(|| Bell::of(&shared.log)).clone();
        let reader = shared.log.activate(lsn);
        let progress = progress(Arc::downgrade(shared));
        let timing = Timing::default();
        let mut writer = Writer::new(&shared.log, reader.position(), increment, settings(&config), timing, progress);
        let (orders, progress) = (Arc::clone(writer.orders()), Arc::clone(writer.progress()));
        let writer = match config.aof_io() {
            AofIo::Inline => {
                self.inline.begin(writer, reader);
                Ok(Who::Inline)
            }
            AofIo::Thread => WriterThread::start(writer, reader, bell).map(Who::Thread),
            AofIo::Uring => {
                let opened = writer.use_ring(ring_settings(&config));
                let why = "aof-io uring cannot work here";
                opened
                    .map_err(|error| {
                        io::Error::new(error.kind(), format!("{why}: {error}. 'thread' works without it."))
                    })
                    .and_then(|()| WriterThread::start(writer, reader, bell))
                    .map(Who::Thread)
            }
        }?;
        *self.running() = Some(Running { directory, progress, orders, writer, closed });
        Ok(())
    }

    /// Writes and syncs what there is, and ends. No command that writes may run meanwhile.
    ///
    /// # Errors
    /// Not all could be written and synced.
    pub fn stop(&self, log: &Arc<Log>) -> io::Result<()> {
        let Some(running) = self.running().take() else { return Ok(()) };
        let end = log.end();
        let reader = match running.writer {
            Who::Thread(thread) => thread.stop(),
            Who::Inline => self.inline.end(&running.orders),
        };
        log.deactivate(reader);
        let Running { progress, .. } = running;
        if progress.durable_lsn() < end {
            let lost = end - progress.durable_lsn();
            return Err(io::Error::other(format!("{lost} bytes of the log are not on disk: {}", progress.reason())));
        }
        Ok(())
    }

    /// The configuration has changed.
    pub fn adopt(&self, config: &Config) {
        if let Some(running) = &*self.running() {
            running.orders.set(settings(config));
            running.ring();
        }
    }

    fn changed(&self, shared: &Shared, progress: &Progress) {
        let reason = progress.reason();
        let state = match progress.condition() {
            Condition::Fine => {
                notice!("The log can be written again.");
                State::Fine
            }
            Condition::Full => {
                warning!("{reason}. Writes are refused until there is room.");
                State::Full
            }
            Condition::Failed => {
                warning!("{reason}. Nothing is acknowledged from here on: what was not synced may be lost.");
                if shared.settings.current().aof_on_error() == OnError::Exit {
                    warning!("Exiting, as 'aof-on-error exit' says. A restart serves what is on disk.");
                    std::process::exit(1);
                }
                warning!("Reads of what is on disk are served, writes are refused, as 'aof-on-error readonly' says.");
                State::Failed
            }
        };
        self.state.store(state as u8, Release);
        shared.tell_all();
    }
}

impl Running {
    /// Lengths of the base and of all files, in bytes, prepared space apart.
    pub fn sizes(&self) -> (u64, u64) {
        let (base, closed) = self.closed;
        (base, closed + self.progress.file_bytes())
    }

    /// Makes the writer look at its orders.
    fn ring(&self) {
        if let Who::Thread(thread) = &self.writer {
            thread.ring();
        }
    }
}

/// Counts of a writer that tells the server when it cannot go on.
fn progress(shared: Weak<Shared>) -> Arc<Progress> {
    Arc::new_cyclic(|me: &Weak<Progress>| {
        let me = me.clone();
        Progress::new(Box::new(move || {
            if let (Some(shared), Some(progress)) = (shared.upgrade(), me.upgrade()) {
                shared.persist.aof.changed(&shared, &progress);
            }
        }))
    })
}

fn settings(config: &Config) -> Settings {
    Settings {
        fsync: match config.appendfsync() {
            Appendfsync::Always => Fsync::Always,
            Appendfsync::EverySec => Fsync::EverySecond,
            Appendfsync::No => Fsync::No,
        },
        preallocate: config.aof_preallocate(),
        timestamps: config.aof_timestamp_enabled(),
    }
}

fn ring_settings(config: &Config) -> RingSettings {
    RingSettings {
        order: match config.aof_uring_order() {
            AofUringOrder::Flush => Order::Flush,
            AofUringOrder::None => Order::Free,
        },
        completion: match config.aof_uring_completion() {
            AofUringCompletion::Event => Completion::Event,
            AofUringCompletion::Spin => Completion::Spin,
        },
        depth: config.aof_uring_depth(),
        sqpoll: config.aof_uring_sqpoll(),
        workers: config.aof_uring_workers(),
    }
}
