//! The thread `snapshot`: walks the keyspace, and writes what it takes.
//!
//! A step takes some µs of a shard's lock, or of nothing: what was handed over by those who change keys comes first, so that it
//! does not pile up. Encoding, compressing, writing and syncing happen outside of gate and locks, where they hold up nobody.
//!
//! The thread visits the gate: a worker that is alone is so again when the snapshot is over. It runs at the workers' priority, since it
//! holds locks; it pauses only where a shard is locked.
//!
//! If writing fails the walk goes on without, since it is the walk that brings every entry to the new epoch.

use super::{Done, Failure, Job, Kind, Request, start};
use crate::shared::Shared;
use crate::{notice, warning};
use gimmal_store::{DetachedDatabase, OwnedEntry, SnapshotStep, Taken, Visit};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Entries that one step looks at, about, and such as were handed over that it takes first.
const STEP: usize = 128;
const HANDED: usize = 256;
/// Before a shard that was locked is tried again.
const BUSY_PAUSE: Duration = Duration::from_micros(20);

/// Starts the thread.
///
/// # Errors
/// If no thread can be made.
///
/// # Panics
/// If it was started before.
pub fn start_thread(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let its = shared.clone();
    let handle = std::thread::Builder::new().name("snapshot".into()).spawn(move || run(&its))?;
    assert!(shared.persist.save.thread.set(handle.thread().clone()).is_ok(), "the thread is started once");
    Ok(handle)
}

fn run(shared: &Arc<Shared>) {
    let saving = &shared.persist.save;
    shared.lazyfree.serve_this_thread();
    while !saving.stopping.load(SeqCst) {
        match next(shared) {
            Some(job) => make(shared, job),
            // What is handed to it from here on leaves a token, with which this returns at once.
            None => std::thread::park(),
        }
    }
    // Those who wait have nothing to wait for any more: the server ends.
    let left: Vec<Request> = saving.state().waiting.drain(..).collect();
    left.into_iter().for_each(|request| (request.done)(shared, Err(Failure::Cancelled)));
}

/// The snapshot that has begun, or that the first in line wants.
fn next(shared: &Arc<Shared>) -> Option<Job> {
    let saving = &shared.persist.save;
    loop {
        let mut request = {
            let mut state = saving.state();
            if let Some(job) = state.next.take() {
                return Some(job);
            }
            if state.running.is_some() {
                return None;
            }
            let request = state.waiting.pop_front()?;
            state.prepared = Some(request.kind);
            request
        };
        if let Err(error) = request.sink.prepare(shared) {
            let result = Err(Failure::Io(error));
            report(shared, &mut request, &result);
            saving.state().prepared = None;
            (request.done)(shared, result);
            continue;
        }
        let begun = flip(shared, request);
        let mut state = saving.state();
        state.prepared = None;
        match begun {
            Ok(job) => return Some(job),
            // Another one came in between, or the server ends: this one keeps its place.
            Err(request) => state.waiting.push_front(request),
        }
        return None;
    }
}

/// Begins a snapshot as soon as the gate can be closed, unless another one runs then, or the server ends.
fn flip(shared: &Shared, request: Request) -> Result<Job, Request> {
    let visit = shared.keyspace.gate().visit(shared.snapshot_participant());
    while !shared.persist.save.stopping.load(SeqCst) {
        let batch = visit.enter();
        if let Some(_closed) = batch.try_close() {
            return start(shared, &batch, request);
        }
        drop(batch);
        std::thread::yield_now();
    }
    Err(request)
}

/// Makes a snapshot, and says what became of it.
fn make(shared: &Arc<Shared>, mut job: Job) {
    let saving = &shared.persist.save;
    let kind = job.request.kind;
    if kind != Kind::Rewrite {
        notice!("Background saving started by thread snapshot");
    }
    let began = Instant::now();
    let result = {
        let visit = shared.keyspace.gate().visit(shared.snapshot_participant());
        walk(shared, &visit, &mut job)
    };
    let result = result.and_then(|keys| {
        let bytes = job.request.sink.finish(shared).map_err(Failure::Io)?;
        Ok(Done { keys, bytes, took: began.elapsed() })
    });
    report(shared, &mut job.request, &result);
    saving.ended(kind, &result, crate::now_ms() / 1000);
    (job.request.done)(shared, result);
}

/// Says what became of a snapshot, and removes what a failed one has left. A rewrite says so itself.
fn report(shared: &Shared, request: &mut Request, result: &Result<Done, Failure>) {
    let kind = request.kind;
    if result.is_err() {
        request.sink.abandon(shared);
    }
    if kind == Kind::Rewrite {
        return;
    }
    let progress = shared.persist.save.progress();
    match result {
        Ok(done) => {
            notice!("DB saved on disk");
            let (seconds, held) =
                (done.took.as_secs_f64(), progress.held_peak.load(Relaxed) as f64 / f64::from(1 << 20));
            notice!(
                "Saved {} keys, {} bytes in {seconds:.3} seconds; at most {held:.1} MB were held",
                done.keys,
                done.bytes
            );
            if kind == Kind::Background {
                notice!("Background saving terminated with success");
            }
        }
        Err(Failure::Cancelled) => warning!("Background saving was given up"),
        Err(Failure::Io(error)) => warning!("Background saving error: {error}"),
    }
}

/// Brings a walk to its end; answers how many keys were written.
fn walk(shared: &Shared, visit: &Visit<'_>, job: &mut Job) -> Result<u64, Failure> {
    let (saving, keyspace) = (&shared.persist.save, &shared.keyspace);
    let pause_us = u64::try_from(shared.settings.current().rdb_key_save_delay()).unwrap_or(0);
    let sink = &mut job.request.sink;
    let mut written = sink.begin(shared, &job.begun).map_err(Failure::Io);
    let (mut taken, mut handed, mut keys) = (Taken::default(), Vec::new(), 0);
    loop {
        if saving.stopping.load(Relaxed) {
            return Err(Failure::Cancelled);
        }
        if saving.cancelled.load(Relaxed) && written.is_ok() {
            written = Err(Failure::Cancelled);
        }
        saving.progress.held_peak.fetch_max(keyspace.handed_bytes(), Relaxed);
        let batch = visit.enter();
        keyspace.take_handed(&batch, HANDED, &mut handed);
        let step = match handed.len() < HANDED {
            true => keyspace.snapshot_step(&batch, STEP, written.is_ok(), &mut taken),
            false => SnapshotStep::Busy,
        };
        let is_done = matches!(step, SnapshotStep::Done);
        if is_done {
            // Before this step there may have been more than were taken; from here on there will be none.
            keyspace.take_handed(&batch, usize::MAX, &mut handed);
            keyspace.end_snapshot(&batch);
        }
        drop(batch);
        let count = (handed.len() + taken.len()) as u64;
        if written.is_ok() {
            written = write(sink.as_mut(), &handed, &step, &taken).map_err(Failure::Io);
            keys += count;
            saving.progress.keys.store(keys, Relaxed);
        }
        let was_busy = count == 0 && matches!(step, SnapshotStep::Busy);
        handed.drain(..).for_each(|(_, entry)| shared.lazyfree.discard(entry));
        taken.clear();
        if let SnapshotStep::Left(database) = step {
            free(shared, database);
        }
        if is_done {
            return written.map(|()| keys);
        }
        if pause_us > 0 && written.is_ok() {
            std::thread::sleep(Duration::from_micros(pause_us.saturating_mul(count)));
        }
        match was_busy {
            true => std::thread::sleep(BUSY_PAUSE),
            // A worker that waits for this processor has it now, and not after a whole slice of this thread's.
            false => std::thread::yield_now(),
        }
    }
}

fn write(
    sink: &mut dyn super::Sink,
    handed: &[(usize, OwnedEntry)],
    step: &SnapshotStep,
    taken: &Taken,
) -> io::Result<()> {
    for (db, entry) in handed {
        sink.entry(*db, &entry.entry())?;
    }
    if let SnapshotStep::Taken { db } = step {
        for entry in taken.entries() {
            sink.entry(*db, &entry)?;
        }
    }
    Ok(())
}

/// A database that was flushed while it was walked.
fn free(shared: &Shared, database: DetachedDatabase) {
    shared.lazyfree.discard(database);
}
