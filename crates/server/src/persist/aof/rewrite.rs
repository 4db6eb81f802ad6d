//! Rewriting the log: a new base, and a new file to go on in, while commands run. And switching it on, which is a rewrite of a log that
//! is not there yet.
//!
//! # The switch, step by step
//! A crash after any of these leaves a directory that recovers to the same state, since a recovery takes what the manifest names.
//! 1. [`prepare`](Sink::prepare): the new increment is made, synced, and named last by a synced manifest. It is empty.
//! 2. [`flipped`](Sink::flipped), behind the closed gate: the snapshot's epoch begins, and the writer is told to go on in the new
//!    increment at the log's end. What comes before goes to the old file to its last byte, which is synced and marked before
//!    anything of the new file is acknowledged.
//! 3. The snapshot is written to a temporary file, as the thread `snapshot` walks the keyspace, and synced.
//! 4. [`finish`](Sink::finish): it gets its name, and a manifest calls it the base, and the old base and increments history.
//! 5. Files of history are removed.
//!
//! A rewrite that fails between 2 and 4 leaves one increment more, and is tried again.
//!
//! Switched on, a log has no base to begin with: its increment is named with its base (4). Until then a restart finds what was there
//! before, as in Redis, and `aof_pending_rewrite` is 1. If that first base cannot be written the log is ended, and begun anew.

use super::{Aof, Beginning};
use crate::config::Config;
use crate::persist::save::commands::CommandsFile;
use crate::persist::save::file::RdbFile;
use crate::persist::save::{self, Begun, Done, Failure, Kind, Request, Sink, Turn};
use crate::persist::start::open_directory;
use crate::shared::Shared;
use crate::worker::State;
use crate::{notice, warning};
use gimmal_log::Lsn;
use gimmal_log::aof::{BaseKind, Directory, Increment};
use gimmal_log::mutant::{self, Mutant};
use gimmal_store::Entry;
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known of the rewrites of this server.
#[derive(Default)]
pub struct Rewrites(Mutex<History>);

/// The rewrites so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    /// How long the last one took.
    pub took: Option<Duration>,
    /// Those that succeeded.
    pub count: u64,
    /// Those that failed since one succeeded.
    pub failures: u32,
    /// No rewrite begins by itself before.
    not_before: Option<Instant>,
}

/// Failures after which rewrites that begin by themselves are put off, by twice as long each time, but not longer than an hour.
const FAILURES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Before a log that was switched on and could not be begun is begun again.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);

impl Rewrites {
    /// The rewrites so far.
    pub fn history(&self) -> History {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, result: &Result<Done, Failure>, took: Duration) {
        let mut history = self.lock();
        match result {
            Ok(_) => *history = History { took: Some(took), count: history.count + 1, ..History::default() },
            Err(Failure::Cancelled) => {}
            Err(Failure::Io(_)) => {
                history.took = Some(took);
                history.failures += 1;
                let doublings = history.failures.saturating_sub(FAILURES);
                let pause = PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE);
                let pause = if history.failures < FAILURES { BEGIN_AGAIN } else { pause };
                history.not_before = Some(Instant::now() + pause);
            }
        }
    }
}

/// Rewrites the log as soon as no snapshot runs. Without a log a base is written, with which one could begin.
pub fn submit(shared: &Shared) -> Turn {
    save::submit_once(shared, Kind::Rewrite, || {
        let config = shared.settings.current();
        let asked = Instant::now();
        let sink = Rewrite { config, purpose: None, next: None, first: None, file: None, problem: None };
        let done = move |shared: &Shared, result: Result<Done, Failure>| ended(shared, &result, asked.elapsed());
        Request { kind: Kind::Rewrite, sink: Box::new(sink), done: Box::new(done) }
    })
}

/// CONFIG SET appendonly no, behind the closed gate.
///
/// # Errors
/// As [`Aof::switch_off`].
pub fn switch_off(shared: &Shared) -> io::Result<()> {
    shared.persist.aof.switch_off(&shared.log)?;
    save::withdraw(shared, Kind::Rewrite);
    shared.persist.save.cancel(|kind| kind == Kind::Rewrite);
    Ok(())
}

/// A rewrite is over.
fn ended(shared: &Shared, result: &Result<Done, Failure>, took: Duration) {
    shared.persist.aof.rewrites.note(result, took);
    match result {
        Ok(Done { keys, bytes, took }) => {
            notice!("Background AOF rewrite terminated with success");
            notice!("The base has {keys} keys, {bytes} bytes, written in {:.3} seconds", took.as_secs_f64());
            notice!("Background AOF rewrite finished successfully");
        }
        Err(Failure::Cancelled) => warning!("Background AOF rewrite was given up"),
        Err(Failure::Io(error)) => warning!("Background AOF rewrite terminated with error: {error}"),
    }
    if result.is_err() {
        shared.persist.aof.give_up_first(shared);
    }
}

/// Begins what is due: a log that has grown, or that was switched on and is not there. Called by the first worker at every tick.
pub fn tick(state: &mut State) {
    let (shared, config) = (&state.shared, &state.local.config);
    let aof = &shared.persist.aof;
    let ends = shared.lifecycle.hold().is_some() || shared.lifecycle.is_stopping();
    if !config.appendonly() || ends || shared.persist.load.is_under_way() || !is_due(aof, config) {
        return;
    }
    let saving = &shared.persist.save;
    if !saving.has_thread() || saving.under_way().is_some() || saving.is_waiting(Kind::Rewrite) {
        return;
    }
    if submit(shared) != Turn::UnderWay
        && let Some(running) = &*aof.running()
    {
        let (base, all) = running.sizes();
        notice!("Starting automatic rewriting of AOF on {}% growth", growth(base, all));
    }
}

fn is_due(aof: &Aof, config: &Config) -> bool {
    if aof.rewrites.lock().not_before.is_some_and(|at| Instant::now() < at) {
        return false;
    }
    let running = aof.running();
    // It was to be switched on, and failed.
    let Some(running) = &*running else { return true };
    let (percentage, (base, all)) = (config.auto_aof_rewrite_percentage(), running.sizes());
    percentage > 0 && all > config.auto_aof_rewrite_min_size() && growth(base, all) >= percentage.cast_unsigned()
}

/// How much a log has grown, in percent.
fn growth(base: u64, all: u64) -> u64 {
    u64::try_from(u128::from(all) * 100 / u128::from(base.max(1))).unwrap_or(u64::MAX).saturating_sub(100)
}

/// What a rewrite is to end in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A shorter log.
    Shorter,
    /// A log where there is none.
    First,
    /// A base alone: there is to be no log.
    Base,
}

/// The rewrite that is next, or runs.
struct Rewrite {
    config: Arc<Config>,
    /// None until it is prepared.
    purpose: Option<Purpose>,
    /// What [`Rewrite::prepare`] has made.
    next: Option<(Arc<Shared>, Option<Increment>)>,
    /// The number and name of the increment that begins with the base.
    first: Option<(u64, String)>,
    file: Option<BaseFile>,
    /// Why it cannot go on, found where nothing could be done about it.
    problem: Option<io::Error>,
}

/// What the base is written to.
enum BaseFile {
    Rdb(Box<RdbFile>),
    /// `aof-use-rdb-preamble no`.
    Commands(CommandsFile),
}

impl BaseFile {
    fn new(config: &Arc<Config>, directory: &Directory) -> BaseFile {
        let temporary = directory.temporary_base();
        match config.aof_use_rdb_preamble() {
            true => BaseFile::Rdb(Box::new(RdbFile::new(config.clone(), temporary, true))),
            false => BaseFile::Commands(CommandsFile::new(temporary)),
        }
    }

    fn kind(&self) -> BaseKind {
        match self {
            BaseFile::Rdb(_) => BaseKind::Rdb,
            BaseFile::Commands(_) => BaseKind::Resp,
        }
    }

    fn complete(&mut self) -> io::Result<u64> {
        match self {
            BaseFile::Rdb(file) => file.complete(),
            BaseFile::Commands(file) => file.complete(),
        }
    }

    fn abandon(&mut self) {
        match self {
            BaseFile::Rdb(file) => file.abandon(),
            BaseFile::Commands(file) => file.abandon(),
        }
    }
}

impl Sink for Rewrite {
    fn prepare(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        if self.next.is_some() {
            return Ok(());
        }
        let aof = &shared.persist.aof;
        let (config, purpose) = aof.settled(|running| {
            let config = shared.settings.current();
            let purpose = match (config.appendonly(), running) {
                (_, Some(running)) if running.orders.is_rotating() => None,
                (_, Some(_)) => Some(Purpose::Shorter),
                (true, None) => Some(Purpose::First),
                (false, None) => Some(Purpose::Base),
            };
            (config, purpose)
        });
        let Some(purpose) = purpose else {
            return Err(io::Error::other("the rewrite before this one waits for the disk"));
        };
        (self.config, self.purpose) = (config, Some(purpose));
        let mut slot = aof.directory();
        if purpose != Purpose::Shorter {
            let directory = open_directory(&self.config)?;
            directory.create()?;
            *slot = Some(directory);
        }
        let Some(directory) = slot.as_mut() else { return Err(switched_off()) };
        let increment = match purpose {
            Purpose::Shorter => Some(directory.add_increment()?),
            Purpose::First => Some(directory.create_increment()?),
            Purpose::Base => None,
        };
        self.file = Some(BaseFile::new(&self.config, directory));
        self.first = increment.as_ref().map(|increment| (increment.seq, increment.name.clone()));
        self.next = Some((shared.clone(), increment));
        notice!("Background append only file rewriting started by thread snapshot");
        Ok(())
    }

    fn flipped(&mut self, lsn: Lsn) {
        let Some((shared, increment)) = self.next.take() else { return };
        let aof = &shared.persist.aof;
        let begun = match (self.purpose, increment) {
            (Some(Purpose::Shorter), Some(increment)) => match &*aof.running() {
                Some(running) => {
                    running.orders.rotate_at(lsn, increment);
                    running.ring();
                    Ok(())
                }
                None => Err(switched_off()),
            },
            // Whatever has become of the log since: there is to be one, and there is none, nor one that is being ended.
            (Some(Purpose::First), Some(increment)) if aof.may_begin(&shared) => {
                aof.begin(&shared, Beginning { increment, lsn, closed: (0, 0), is_first: true })
            }
            (Some(Purpose::First), _) => Err(switched_off()),
            _ => Ok(()),
        };
        self.problem = begun.err();
    }

    fn begin(&mut self, shared: &Shared, begun: &Begun) -> io::Result<()> {
        self.problem.take().map_or(Ok(()), Err)?;
        let aof = &shared.persist.aof;
        if aof.is_inline() {
            // No worker needs to come by for the new file to begin.
            aof.write_inline(&shared.log);
        }
        let config = self.config.clone();
        match self.file() {
            BaseFile::Rdb(file) => file.begin(shared, begun),
            BaseFile::Commands(file) => file.begin(&config, begun.at_ms),
        }
    }

    fn entry(&mut self, db: usize, entry: &Entry<'_>) -> io::Result<()> {
        if mutant::is(Mutant::RewriteDrops) && entry.key().iter().fold(0, |sum, byte| sum ^ byte).is_multiple_of(8) {
            return Ok(());
        }
        match self.file() {
            BaseFile::Rdb(file) => file.entry(db, entry),
            BaseFile::Commands(file) => file.entry(db, entry),
        }
    }

    fn finish(&mut self, shared: &Shared) -> io::Result<u64> {
        let (kind, bytes) = (self.file().kind(), self.file().complete()?);
        let aof = &shared.persist.aof;
        let mut slot = aof.directory();
        let Some(directory) = slot.as_mut() else { return Err(switched_off()) };
        directory.replace_base(kind, self.first.as_ref().map(|(seq, _)| *seq))?;
        // The log has another base: what goes wrong from here on does not change that.
        if let Err(error) = aof.rewritten(directory) {
            warning!("Measuring the log: {error}");
        }
        if !self.config.aof_disable_auto_gc()
            && let Err(error) = directory.remove_history()
        {
            warning!("{error}. It is tried again with the next rewrite, or the next start.");
        }
        if self.purpose == Some(Purpose::Base) {
            *slot = None;
        }
        Ok(bytes)
    }

    fn abandon(&mut self, shared: &Shared) {
        if let Some(file) = &mut self.file {
            file.abandon();
        }
        let aof = &shared.persist.aof;
        let mut slot = aof.directory();
        let (Some(purpose), Some(directory)) = (self.purpose, slot.as_ref()) else { return };
        match (purpose, &self.first) {
            (Purpose::Shorter, _) => {
                // There is one increment more; it may be that the sizes cannot be told for now.
                if let Err(error) = aof.measure(directory) {
                    warning!("Measuring the log: {error}");
                }
            }
            (Purpose::First, Some((_, name))) => {
                // The log that writes to it, if it has begun, is about to be ended. If a manifest names it, as only the last sync
                // of all has failed, it stays.
                if let Err(error) = directory.remove_unnamed(name) {
                    warning!("{error}");
                }
            }
            (Purpose::First | Purpose::Base, _) => *slot = None,
        }
    }
}

impl Rewrite {
    fn file(&mut self) -> &mut BaseFile {
        self.file.as_mut().expect("it was prepared")
    }
}

fn switched_off() -> io::Error {
    io::Error::other("the log was switched off meanwhile")
}

impl Aof {
    /// Whether a log may begin. Behind the closed gate.
    fn may_begin(&self, shared: &Shared) -> bool {
        let running = self.running();
        shared.settings.current().appendonly() && running.is_none() && !self.ending.load(SeqCst)
    }

    /// The directory has another base.
    fn rewritten(&self, directory: &Directory) -> io::Result<()> {
        if let Some(running) = &mut *self.running() {
            running.is_first = false;
        }
        self.measure(directory)?;
        if let Some(running) = &mut *self.running() {
            running.rewritten = running.sizes().1;
        }
        Ok(())
    }

    /// How large the log's files are. One that waits to be gone on from is counted again with the next measure.
    fn measure(&self, directory: &Directory) -> io::Result<()> {
        let Some(seq) = self.running().as_ref().map(|running| running.progress.increment()) else { return Ok(()) };
        let (_, closed) = directory.closed_sizes(seq)?;
        if let Some(running) = &mut *self.running() {
            running.closed = closed;
        }
        Ok(())
    }
}
