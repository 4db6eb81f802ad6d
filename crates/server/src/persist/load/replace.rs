//! Replacing the data set of a running server by what is on disk: DEBUG RELOAD and DEBUG LOADAOF.
//!
//! A thread of its own does it, from beginning to end, so that it does not matter whether the client that asked stays. All commands
//! are held meanwhile (`shared::Hold`), and nothing expires or is evicted: what is loaded is what there was. Nobody sees half a data
//! set. A load that takes longer than [`PATIENCE_MS`] refuses commands with `-LOADING`, as at the start of the server, instead of
//! having them wait.
//!
//! The first worker empties the databases, since that is a command's work (watched keys, waiting clients, caches); what it took out is
//! kept until the load is over, and put back if it fails. So there is twice the memory for a while, where a Redis that fails is
//! left with what it had loaded so far, or ends. No snapshot begins meanwhile: it would be one of half a data set.
//!
//! None of this is logged: for the log nothing has happened, and its positions go on. Only what was left out as expired is, as a
//! removal, since the log knows no time.

use super::super::{aof, save, start};
use super::{LoadError, Rules, begin, end, load_by};
use crate::connection::Connection;
use crate::exec::{Exec, Outcome, Stop};
use crate::session::{Peer, Session};
use crate::shared::Shared;
use crate::worker::State;
use crate::{notice, tx, warning};
use gimmal_store::{Batch, DetachedDatabase};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long commands wait before they are refused.
pub(super) const PATIENCE_MS: i64 = 1000;
/// Between two looks of the thread at what it waits for.
const PAUSE: Duration = Duration::from_micros(200);

/// What somebody wants to be loaded.
pub struct Order {
    /// From where.
    pub source: Source,
    /// Called when commands run again.
    pub done: WhenDone,
}

/// What is told how it has ended.
pub type WhenDone = Box<dyn FnOnce(&Shared, Result<(), Failure>) + Send>;

/// Where a data set is loaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The file that `dbfilename` names.
    Snapshot {
        /// The data set is written to it before.
        saves: bool,
        /// What is not in it goes.
        flushes: bool,
        /// Keys that are there are replaced; else it is an error if there are any.
        merges: bool,
    },
    /// The append-only file.
    Log,
}

/// Why the data set is not replaced.
#[derive(Debug)]
pub enum Failure {
    /// It could not be saved: it is as it was.
    Save(save::Failure),
    /// It could not be loaded; the log says what is there now.
    Load,
}

/// What the first worker is to do behind the closed gate, or has done.
#[derive(Default)]
pub(super) struct Exchange {
    asked: AtomicBool,
    step: Mutex<Step>,
}

#[derive(Default)]
enum Step {
    #[default]
    Nothing,
    /// Only to close the gate: from then on every worker holds its commands.
    Close,
    Empty,
    Emptied(Vec<DetachedDatabase>),
    PutBack(Vec<DetachedDatabase>),
}

/// Begins. All commands are held already, for this.
pub fn start(shared: &Arc<Shared>, order: Order) {
    let its = Arc::clone(shared);
    let slot = Arc::new(Mutex::new(Some(order)));
    let take = |slot: &Mutex<Option<Order>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = Arc::clone(&slot);
    let body = move || {
        its.lazyfree.serve_this_thread();
        if let Some(order) = take(&theirs) {
            let outcome = replace(&its, order.source);
            finish(&its, order, outcome);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("reload".into()).spawn(body)
        && let Some(order) = take(&slot)
    {
        warning!("The data set is not replaced, as there is no thread: {error}");
        finish(shared, order, Err(Failure::Load));
    }
}

fn finish(shared: &Shared, order: Order, outcome: Result<(), Failure>) {
    shared.lifecycle.end_hold();
    shared.tell_all();
    (order.done)(shared, outcome);
}

fn replace(shared: &Arc<Shared>, source: Source) -> Result<(), Failure> {
    if let Source::Snapshot { saves: true, .. } = source {
        save(shared).map_err(Failure::Save)?;
    }
    if source == Source::Log {
        await_files(shared).map_err(|error| failed(&error))?;
    }
    begin(shared, 0);
    shared.persist.load.progress.begin_snapshot();
    let outcome = load(shared, source);
    end(shared);
    shared.persist.save.wake();
    outcome.map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Failure {
    warning!("The data set was not replaced: {error}");
    Failure::Load
}

/// Waits for a log that is being switched on to have its base, and for one that was switched off to be at its end.
fn await_files(shared: &Shared) -> io::Result<()> {
    while shared.persist.save.is_wanted(save::Kind::Rewrite) {
        pause(shared)?;
    }
    shared.persist.aof.wait_for_end();
    match shared.persist.aof.has_base(&shared.settings.current()) {
        true => Ok(()),
        false => Err(io::Error::other("there is no log yet: it was switched on, and could not be begun")),
    }
}

/// Saves; the commands that are held from its beginning on have no part in it.
fn save(shared: &Shared) -> Result<(), save::Failure> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let done = move |_: &Shared, result: Result<save::Done, save::Failure>| {
        // There is room for it, and somebody waits.
        let _told = tell.send(result.map(drop)).is_ok();
    };
    save::submit(shared, save::file::request(shared, save::Kind::Foreground, done));
    told.recv().unwrap_or(Err(save::Failure::Cancelled))
}

fn load(shared: &Arc<Shared>, source: Source) -> io::Result<()> {
    ask(shared, Step::Close)?;
    let kept = match source {
        Source::Snapshot { flushes: false, .. } => None,
        Source::Snapshot { .. } => Some(empty(shared)?),
        Source::Log => {
            await_log(shared)?;
            Some(empty(shared)?)
        }
    };
    let outcome = match source {
        Source::Snapshot { flushes, merges, .. } => load_snapshot(shared, flushes, merges),
        Source::Log => load_log(shared),
    };
    shared.persist.load.settle(shared, outcome.is_err());
    match (&outcome, kept) {
        (Ok(()), kept) => kept.into_iter().flatten().for_each(|database| shared.lazyfree.discard(database)),
        (Err(_), Some(kept)) => {
            ask(shared, Step::PutBack(kept))?;
            warning!("What there was before was put back: the data set is as it was.");
        }
        (Err(_), None) => {
            let keys = shared.persist.load.progress.keys();
            warning!("{keys} keys were loaded before the failure: they stay, beside what was there.");
        }
    }
    outcome
}

fn load_snapshot(shared: &Shared, flushes: bool, merges: bool) -> io::Result<()> {
    let config = shared.settings.current();
    let path = config.dir().join(config.dbfilename());
    let named = |error| LoadError::Io(path.clone(), error);
    let bytes = fs::metadata(&path).map_err(named)?.len();
    shared.persist.load.progress.set_total(bytes);
    let rules = Rules { keeps_expired: false, logs_expired: flushes && shared.log.is_active(), merges };
    load_by(shared, &path, rules)?;
    notice!("DB reloaded by DEBUG RELOAD");
    Ok(())
}

fn load_log(shared: &Arc<Shared>) -> io::Result<()> {
    let (recovered, is_active) = (start::reload_log(shared)?, shared.log.is_active());
    let end = shared.log.end();
    if is_active && recovered.lsn != Some(end) {
        let lsn = recovered.lsn.map_or("an unknown position".into(), |lsn| format!("LSN {lsn}"));
        return Err(io::Error::other(format!("the log is at LSN {end}, but its files end at {lsn}")));
    }
    notice!("Append Only File loaded by DEBUG LOADAOF");
    Ok(())
}

/// Waits until what was appended is in the files. The gate was closed since commands are held: there will be no more.
fn await_log(shared: &Shared) -> io::Result<()> {
    let end = shared.log.end();
    shared.log.ring();
    shared.tell_all();
    while shared.log.is_active() && shared.log.released() < end {
        if shared.persist.aof.state() != aof::State::Fine {
            return Err(io::Error::other(format!("the log cannot be written: {}", shared.persist.aof.reason())));
        }
        pause(shared)?;
    }
    Ok(())
}

/// Takes everything out.
fn empty(shared: &Shared) -> io::Result<Vec<DetachedDatabase>> {
    ask(shared, Step::Empty)?;
    match std::mem::take(&mut *shared.persist.load.exchange.step()) {
        Step::Emptied(kept) => Ok(kept),
        _ => Err(io::Error::other("the data set was not emptied")),
    }
}

/// Has the first worker do a step, and waits for it.
fn ask(shared: &Shared, step: Step) -> io::Result<()> {
    let load = &shared.persist.load;
    // It would keep what is taken out, or come to see what is put back. No other one begins during a load.
    while !matches!(step, Step::Close) && shared.persist.save.running().is_some() {
        pause(shared)?;
    }
    *load.exchange.step() = step;
    load.exchange.asked.store(true, Release);
    shared.mail[super::REPLAYER].wake_if_asleep();
    while load.exchange.is_asked() {
        pause(shared)?;
    }
    Ok(())
}

fn pause(shared: &Shared) -> io::Result<()> {
    if shared.lifecycle.is_stopping() {
        return Err(LoadError::Stopped.into());
    }
    std::thread::sleep(PAUSE);
    Ok(())
}

impl Exchange {
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Acquire)
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker's part.
pub(super) fn step(state: &mut State, batch: &Batch<'_>) {
    let shared = state.shared.clone();
    let exchange = &shared.persist.load.exchange;
    if !exchange.is_asked() {
        return;
    }
    // As a command of nobody's.
    let mut nobody = Connection::new(Session::new(0, Peer::Unix, true, state.local.now_ms));
    let outcome = state.with_context(&mut nobody, None, batch, &mut 0, |exec| carry_out(exec, exchange));
    match outcome {
        Ok(()) => exchange.asked.store(false, Release),
        // Another worker closes the gate: in the next pass.
        Err(Stop::Park) => {}
        Err(_) => unreachable!("it can only be parked"),
    }
}

fn carry_out(exec: &mut Exec<'_>, exchange: &Exchange) -> Outcome {
    let closed = exec.exclusive()?;
    let mut step = exchange.step();
    *step = match std::mem::take(&mut *step) {
        Step::Close | Step::Nothing => Step::Nothing,
        Step::Empty => {
            // In this order a watched key is still there when its watcher is told.
            exec.invalidate_all();
            tx::tell_watchers(exec, Some);
            exec.wake_databases(|_| true);
            let keyspace = &exec.shared.keyspace;
            Step::Emptied((0..keyspace.databases()).map(|db| keyspace.detach_database(exec.batch(), db)).collect())
        }
        Step::PutBack(kept) => {
            for (db, database) in kept.into_iter().enumerate() {
                exec.discard(exec.shared.keyspace.attach_database(exec.batch(), db, database));
            }
            Step::Nothing
        }
        done @ Step::Emptied(_) => done,
    };
    drop(closed);
    Ok(())
}
