//! The append-only file of a running server: who writes the log, what it is told, and what follows when it cannot.
//!
//! [`gimmal_log::aof`] is the file itself. Here is what the server adds:
//! * the writer runs on a thread (`aof-io thread`, `uring`), or in whatever worker ends its pass (`aof-io inline`, [`inline`]);
//! * workers look at [`Aof::state`] once a pass. While the disk is full they refuse writes; what was appended before stays held.
//!   After an error that is final nothing more is acknowledged: the process ends (`aof-on-error exit`), or connections with held
//!   replies are closed, and so is, or gets `-MISCONF`, whoever asks for what is not on disk (`readonly`).
//!
//! * [`rewrite`]: a new base and a new file to write to, while commands run; also how the log is switched on.
//!
//! # Who owns what
//! The handle of the writer is behind a lock that is held for moments, since INFO takes it. The [`Directory`] is behind one of its own,
//! which is held while files are synced: by who starts the log, and by the thread `snapshot`; never by a worker. `Orders` and
//! `Progress` are shared with the writer.

mod inline;
pub mod rewrite;

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
use rewrite::Rewrites;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The append-only file of this server.
#[derive(Default)]
pub struct Aof {
    /// A [`State`], for workers to look at.
    state: AtomicU8,
    bell: OnceLock<Arc<Bell>>,
    inline: Inline,
    running: Mutex<Option<Running>>,
    /// The files of the log that is being written.
    directory: Mutex<Option<Directory>>,
    /// A log that was switched off is being written to its end.
    ending: AtomicBool,
    /// What is known of rewrites.
    pub rewrites: Rewrites,
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
    /// How far the writer is.
    pub progress: Arc<Progress>,
    orders: Arc<Orders>,
    writer: Who,
    server: Weak<Shared>,
    /// Bytes of all files but the one being written.
    closed: u64,
    /// Bytes there were after the last rewrite, or in the base at start.
    rewritten: u64,
    /// It has no base yet: it was switched on, and its first snapshot is being written. A restart would not find it.
    is_first: bool,
    /// Where it began.
    begun: Lsn,
}

/// Where a log begins.
pub struct Beginning {
    /// The file to write to.
    pub increment: Increment,
    /// The position of its first byte.
    pub lsn: Lsn,
    /// Bytes of the base, and of all files but the increment.
    pub closed: (u64, u64),
    /// There is no base, and no manifest that names the increment.
    pub is_first: bool,
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

    /// Whether a restart would find all that is logged: there is to be no log, or it has its base.
    pub fn has_base(&self, config: &Config) -> bool {
        !config.appendonly() || self.running().as_ref().is_some_and(|running| !running.is_first)
    }

    /// Up to where the log is on disk, if it is written.
    pub fn durable_lsn(&self) -> Option<Lsn> {
        // What no manifest names a restart does not find, be it on disk or not.
        self.running().as_ref().map(|running| match running.is_first {
            true => running.begun,
            false => running.progress.durable_lsn(),
        })
    }

    /// What is wrong with the disk. Empty: nothing.
    pub fn reason(&self) -> String {
        self.running().as_ref().map_or_else(String::new, |running| running.progress.reason())
    }

    /// Writes the log from now on, to the files of a directory that was recovered. No command that writes may run meanwhile.
    ///
    /// # Errors
    /// The file system's, or there is no such ring, or no thread. The log is then not active.
    pub fn start(&self, shared: &Arc<Shared>, directory: Directory, increment: Increment, lsn: Lsn) -> io::Result<()> {
        let closed = directory.closed_sizes(increment.seq)?;
        self.begin(shared, Beginning { increment, lsn, closed, is_first: false })?;
        *self.directory() = Some(directory);
        Ok(())
    }

    /// Writes the log from now on. No command that writes may run meanwhile.
    fn begin(&self, shared: &Arc<Shared>, beginning: Beginning) -> io::Result<()> {
        let Beginning { increment, lsn, closed: (base, closed), is_first } = beginning;
        let config = shared.settings.current();
        let bell = self.bell.get_or_init(|| Bell::of(&shared.log)).clone();
        let reader = shared.log.activate(lsn);
        let progress = progress(Arc::downgrade(shared));
        let timing = Timing::default();
        let mut writer = Writer::new(&shared.log, reader.position(), increment, settings(&config), timing, progress);
        let (orders, progress) = (Arc::clone(writer.orders()), Arc::clone(writer.progress()));
        if config.aof_io() == AofIo::Uring
            && let Err(error) = writer.use_ring(ring_settings(&config))
        {
            shared.log.deactivate(reader);
            let text = format!("aof-io uring cannot work here: {error}. 'thread' works without it.");
            return Err(io::Error::new(error.kind(), text));
        }
        let writer = match config.aof_io() {
            AofIo::Inline => {
                self.inline.begin(writer, reader);
                Who::Inline
            }
            AofIo::Thread | AofIo::Uring => match WriterThread::start(writer, reader, bell) {
                Ok(thread) => Who::Thread(thread),
                Err((error, reader)) => {
                    shared.log.deactivate(reader);
                    return Err(error);
                }
            },
        };
        let server = Arc::downgrade(shared);
        let begun = progress.durable_lsn();
        *self.running() = Some(Running { progress, orders, writer, server, closed, rewritten: base, is_first, begun });
        Ok(())
    }

    /// Writes and syncs what there is, and ends. No command that writes may run meanwhile, or ever again.
    ///
    /// # Errors
    /// Not all could be written and synced.
    pub fn stop(&self, log: &Arc<Log>) -> io::Result<()> {
        self.wait_for_end();
        let Some(running) = self.running().take() else { return Ok(()) };
        let end = log.end();
        let progress = self.end(running, log);
        if progress.durable_lsn() < end {
            let lost = end - progress.durable_lsn();
            return Err(io::Error::other(format!("{lost} bytes of the log are not on disk: {}", progress.reason())));
        }
        Ok(())
    }

    /// CONFIG SET appendonly no, behind the closed gate: nothing is appended from here on. What was is written and synced by a thread
    /// of its own, as workers do not wait for the disk; what waits for it is then released.
    ///
    /// # Errors
    /// There is no thread to be had. The log goes on.
    pub fn switch_off(&self, log: &Log) -> io::Result<()> {
        let server = self.running().as_ref().and_then(|running| running.server.upgrade());
        let Some(server) = server else { return Ok(()) };
        let (hand_over, take_over) = std::sync::mpsc::sync_channel::<Running>(1);
        let body = move || {
            let aof = &server.persist.aof;
            // Whoever began this has the log to give, or could not and has hung up.
            if let Ok(running) = take_over.recv() {
                aof.end_in_background(&server, running);
            }
        };
        std::thread::Builder::new().name("aof-end".into()).spawn(body)?;
        if let Some(running) = self.take(log, |_| true) {
            // The thread is there until it has it.
            let _sent = hand_over.send(running).is_ok();
        }
        Ok(())
    }

    /// Takes the log out, to be ended, if it is such a one. Behind the closed gate. From one moment to the other there is none, and
    /// one is being ended.
    fn take(&self, log: &Log, which: impl FnOnce(&mut Running) -> bool) -> Option<Running> {
        let mut slot = self.running();
        let running = slot.take_if(which)?;
        self.ending.store(true, SeqCst);
        log.close();
        Some(running)
    }

    /// What is to be done about the log, as the configuration and what there is say; waits until none is being ended.
    fn settled<T>(&self, look: impl Fn(Option<&Running>) -> T) -> T {
        loop {
            self.wait_for_end();
            let running = self.running();
            if !self.ending.load(SeqCst) {
                return look(running.as_ref());
            }
        }
    }

    /// A log that has no base, and will not get it: ends it. By the thread `snapshot`.
    fn give_up_first(&self, shared: &Shared) {
        let is_first = || self.running().as_ref().is_some_and(|running| running.is_first);
        if !is_first() {
            return;
        }
        let visit = shared.keyspace.gate().visit(shared.snapshot_participant());
        // At the end of the server whoever ends it ends the log.
        while is_first() && !shared.lifecycle.is_stopping() {
            let batch = visit.enter();
            let Some(closed) = batch.try_close() else {
                drop(batch);
                std::thread::yield_now();
                continue;
            };
            let running = self.take(&shared.log, |running| running.is_first);
            drop(closed);
            drop(batch);
            if let Some(running) = running {
                self.end_in_background(shared, running);
            }
        }
    }

    fn end_in_background(&self, shared: &Shared, running: Running) {
        let end = shared.log.end();
        let progress = self.end(running, &shared.log);
        // A rewrite that is under way notices that its log is gone; nobody else uses the files.
        *self.directory() = None;
        match progress.durable_lsn() < end {
            true => warning!("The log was switched off and does not end on disk: {}", progress.reason()),
            false => notice!("The log was switched off, at LSN {end}."),
        }
        self.state.store(State::Fine as u8, Release);
        // Who waits for the disk waits for nothing any more.
        shared.log.release(end);
        self.ending.store(false, SeqCst);
        shared.tell_all();
    }

    fn end(&self, running: Running, log: &Arc<Log>) -> Arc<Progress> {
        let reader = match running.writer {
            Who::Thread(thread) => thread.stop(),
            Who::Inline => self.inline.end(&running.orders),
        };
        log.deactivate(reader);
        running.progress
    }

    /// Waits until a log that was switched off is at its end.
    pub fn wait_for_end(&self) {
        while self.ending.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn directory(&self) -> MutexGuard<'_, Option<Directory>> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Bytes there were after the last rewrite, and those of all files now; prepared space apart.
    pub fn sizes(&self) -> (u64, u64) {
        (self.rewritten, self.closed + self.progress.file_bytes())
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
