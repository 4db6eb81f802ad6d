//! Snapshots: who wants one, one at a time, and what became of the last.
//!
//! A snapshot begins where the gate is closed ([`begin`]): the keyspace's epoch flips, the log's end is noted, and the [`Sink`] that is
//! to take it is told of both. From there on it is the thread `snapshot`'s ([`thread`]): it walks the keyspace in steps of some µs,
//! and gives what it takes to the sink; [`file`] writes a file of Redis's format, and a rewrite of the log ([`super::aof::rewrite`])
//! its base. Nobody waits for it: SAVE parks its client and the others go on, which is better than Redis, where everybody waits.
//!
//! What is asked for while a snapshot runs waits in line ([`submit`]) or is refused; which of the two, and with which words, is
//! the asker's to say, as [`running`](Saving::running) tells.

pub mod commands;
pub mod file;
pub mod points;
pub mod shutdown;
pub mod thread;

use crate::config::Config;
use crate::shared::Shared;
use gimmal_log::Lsn;
use gimmal_store::{Batch, DatabaseSize, Entry};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SAVE: a client waits for it.
    Foreground,
    /// BGSAVE, a save point, FLUSHALL.
    Background,
    /// The end of the server.
    Shutdown,
    /// The base of a rewritten append-only file.
    Rewrite,
}

/// What takes a snapshot in. Called by the snapshot's thread, but for [`Sink::flipped`].
pub trait Sink: Send {
    /// The snapshot is the next one; the gate is open, and it may take its time. Not called where a worker begins the snapshot
    /// itself; called again if another snapshot came in between.
    ///
    /// # Errors
    /// There is to be no snapshot.
    fn prepare(&mut self, _shared: &Arc<Shared>) -> io::Result<()> {
        Ok(())
    }

    /// It begins: the gate is closed, and the snapshot is what the log says up to `lsn`. Must not wait for anything.
    fn flipped(&mut self, _lsn: Lsn) {}

    /// The snapshot has begun.
    fn begin(&mut self, shared: &Shared, begun: &Begun) -> io::Result<()>;

    /// A key of a database, in no particular order.
    fn entry(&mut self, db: usize, entry: &Entry<'_>) -> io::Result<()>;

    /// All is there: it is to be kept for good. Answers how many bytes it has.
    fn finish(&mut self, shared: &Shared) -> io::Result<u64>;

    /// It failed or was given up: nothing of it is to be left.
    fn abandon(&mut self, shared: &Shared);
}

/// A snapshot that somebody wants.
pub struct Request {
    /// What for.
    pub kind: Kind,
    /// Where it goes.
    pub sink: Box<dyn Sink>,
    /// Called by the thread when it is over, and another one may begin.
    pub done: WhenDone,
}

/// What is told how a snapshot has ended.
pub type WhenDone = Box<dyn FnOnce(&Shared, Result<Done, Failure>) + Send>;

/// A snapshot that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Where the log ended.
    pub lsn: Lsn,
    /// What there was, by database.
    pub sizes: Vec<DatabaseSize>,
    /// When, Unix time in ms.
    pub at_ms: i64,
}

/// A snapshot that was completed.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Keys in it.
    pub keys: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Why there is no snapshot.
#[derive(Debug)]
pub enum Failure {
    /// It was given up: BGSAVE CANCEL, FLUSHALL, SHUTDOWN.
    Cancelled,
    /// It could not be written.
    Io(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Cancelled => f.write_str("it was given up"),
            Failure::Io(error) => write!(f, "{error}"),
        }
    }
}

/// The snapshots of this server.
#[derive(Default)]
pub struct Saving {
    state: Mutex<State>,
    thread: OnceLock<Thread>,
    /// The process ends: what runs is left as it is.
    stopping: AtomicBool,
    /// The snapshot that runs is given up.
    cancelled: AtomicBool,
    /// The last snapshot in the background failed.
    failed: AtomicBool,
    progress: Progress,
}

/// How far the snapshot that runs has come.
#[derive(Default)]
pub struct Progress {
    /// Keys written.
    pub keys: AtomicU64,
    /// Keys there are to write.
    pub total: AtomicU64,
    /// The most bytes that waited to be written since they were about to change.
    pub held_peak: AtomicUsize,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// What is being prepared, and begins next.
    prepared: Option<Kind>,
    /// A snapshot that has begun and is the thread's to walk.
    next: Option<Job>,
    waiting: VecDeque<Request>,
    /// BGSAVE SCHEDULE.
    scheduled: bool,
    last: Last,
}

/// The snapshot that runs.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// What it is for.
    pub kind: Kind,
    /// When it began.
    pub since: Instant,
    /// Changes there had been then.
    dirty: u64,
}

/// What is known of the snapshots before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    /// When the last one was completed, Unix time in seconds; none since the start.
    pub saved_s: Option<i64>,
    /// When the last one was tried.
    pub tried_s: Option<i64>,
    /// How long the last one in the background took.
    pub took: Option<Duration>,
    /// Completed since the start, or since CONFIG RESETSTAT.
    pub count: u64,
    /// Changes that are in the last one.
    pub dirty: u64,
    /// The most bytes that the last one held.
    pub held_peak: usize,
}

/// What the thread walks.
struct Job {
    request: Request,
    begun: Begun,
}

impl Saving {
    /// The snapshot that runs.
    pub fn running(&self) -> Option<Running> {
        self.state().running
    }

    /// What is known of the snapshots before.
    pub fn last(&self) -> Last {
        self.state().last
    }

    /// Whether the last snapshot in the background failed.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Whether writes are refused because of that.
    #[inline]
    pub fn refuses_writes(&self, config: &Config) -> bool {
        self.has_failed() && config.stop_writes_on_bgsave_error() && !config.save().is_empty()
    }

    /// How far the one that runs has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether there is a thread to make snapshots.
    pub fn has_thread(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Has a snapshot begin in the background as soon as none runs. False if that was so already.
    pub fn schedule(&self) -> bool {
        !std::mem::replace(&mut self.state().scheduled, true)
    }

    /// Takes back what was scheduled. False if nothing was.
    pub fn unschedule(&self) -> bool {
        std::mem::take(&mut self.state().scheduled)
    }

    /// Whether a snapshot of this kind waits in line.
    pub fn is_waiting(&self, kind: Kind) -> bool {
        self.state().waiting.iter().any(|request| request.kind == kind)
    }

    /// Whether a snapshot of this kind runs, is about to, or waits in line.
    pub fn is_wanted(&self, kind: Kind) -> bool {
        self.under_way() == Some(kind) || self.is_waiting(kind)
    }

    /// What the snapshot is for that runs, or is about to.
    pub fn under_way(&self) -> Option<Kind> {
        let state = self.state();
        // The thread may not have woken up yet for the first in line.
        let next = || state.waiting.front().map(|request| request.kind);
        state.running.map(|running| running.kind).or(state.prepared).or_else(next)
    }

    /// Gives up the snapshot that runs, if it is of a kind that `which` names. False if it is not, or none runs.
    pub fn cancel(&self, which: impl FnOnce(Kind) -> bool) -> bool {
        let state = self.state();
        let kind = state.running.map(|running| running.kind);
        let is_meant = kind.is_some_and(which);
        if is_meant {
            self.cancelled.store(true, Relaxed);
        }
        is_meant
    }

    /// Forgets what CONFIG RESETSTAT resets.
    pub fn reset(&self) {
        self.state().last.count = 0;
    }

    /// Has the thread look again at what waits.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Ends the thread, and what it is doing.
    pub fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot is over.
    fn ended(&self, kind: Kind, result: &Result<Done, Failure>, now_s: i64) {
        let mut state = self.state();
        let running = state.running.take().expect("a snapshot ran");
        self.cancelled.store(false, Relaxed);
        if kind == Kind::Rewrite {
            return;
        }
        state.last.held_peak = self.progress.held_peak.load(Relaxed);
        match result {
            Ok(done) => {
                state.last.saved_s = Some(now_s);
                state.last.count += 1;
                state.last.dirty = running.dirty;
                self.failed.store(false, Relaxed);
                if kind == Kind::Background {
                    state.last.took = Some(done.took);
                }
            }
            Err(Failure::Io(_)) if kind == Kind::Background => {
                state.last.took = Some(running.since.elapsed());
                self.failed.store(true, Relaxed);
            }
            Err(_) => {}
        }
    }
}

impl Shared {
    /// When the last snapshot was completed, Unix time in seconds; when the server was started, if none was since, as in Redis.
    pub fn last_save_s(&self) -> i64 {
        self.persist.save.last().saved_s.unwrap_or(self.identity.started_ms / 1000)
    }
}

/// Begins a snapshot now, and has the thread make it. Hands the request back if another one runs, or there is no thread.
///
/// # Panics
/// If `batch` has not closed the gate, or holds a shard.
pub fn begin(shared: &Shared, batch: &Batch<'_>, request: Request) -> Result<(), Request> {
    let saving = &shared.persist.save;
    let Some(thread) = saving.thread.get() else { return Err(request) };
    let job = start(shared, batch, request)?;
    saving.state().next = Some(job);
    thread.unpark();
    Ok(())
}

/// Has a snapshot begin when those before it are over: after all others that wait, or, if it is the last one of all, before them.
pub fn submit(shared: &Shared, request: Request) {
    let saving = &shared.persist.save;
    let mut state = saving.state();
    match request.kind {
        Kind::Shutdown => state.waiting.push_front(request),
        _ => state.waiting.push_back(request),
    }
    drop(state);
    saving.wake();
}

/// When a snapshot begins that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// When those before it are over.
    Later,
    /// One of its kind runs; there will be no other.
    UnderWay,
}

/// As [`submit`], unless a snapshot of this kind runs or waits.
pub fn submit_once(shared: &Shared, kind: Kind, request: impl FnOnce() -> Request) -> Turn {
    let saving = &shared.persist.save;
    let mut state = saving.state();
    if state.prepared == Some(kind) || state.running.is_some_and(|running| running.kind == kind) {
        return Turn::UnderWay;
    }
    let is_first = state.running.is_none() && state.prepared.is_none() && state.waiting.is_empty();
    if !state.waiting.iter().any(|request| request.kind == kind) {
        state.waiting.push_back(request());
    }
    drop(state);
    saving.wake();
    if is_first { Turn::Now } else { Turn::Later }
}

/// Takes a snapshot that waits out of the line: it will not be made.
pub fn withdraw(shared: &Shared, kind: Kind) {
    let mut state = shared.persist.save.state();
    let at = state.waiting.iter().position(|request| request.kind == kind);
    let waiting = at.and_then(|at| state.waiting.remove(at));
    drop(state);
    if let Some(request) = waiting {
        (request.done)(shared, Err(Failure::Cancelled));
    }
}

/// Flips the epoch, if no snapshot runs.
fn start(shared: &Shared, batch: &Batch<'_>, mut request: Request) -> Result<Job, Request> {
    let saving = &shared.persist.save;
    let kind = request.kind;
    let at_ms = crate::now_ms();
    {
        let mut state = saving.state();
        // Nor is half a data set one: who ends the load wakes the thread.
        if state.running.is_some() || shared.persist.load.is_under_way() {
            return Err(request);
        }
        // The workers are outside: the sum is exact.
        let dirty = shared.sum(|stats| stats.dirty.value());
        state.running = Some(Running { kind, since: Instant::now(), dirty });
        state.last.tried_s = if kind == Kind::Rewrite { state.last.tried_s } else { Some(at_ms / 1000) };
    }
    let sizes = shared.keyspace.begin_snapshot(batch);
    let begun = Begun { lsn: shared.log.end(), sizes, at_ms };
    let progress = &saving.progress;
    progress.keys.store(0, Relaxed);
    progress.total.store(begun.sizes.iter().map(|size| size.keys as u64).sum(), Relaxed);
    progress.held_peak.store(0, Relaxed);
    request.sink.flipped(begun.lsn);
    Ok(Job { request, begun })
}
