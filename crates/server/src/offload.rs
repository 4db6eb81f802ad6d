//! A part of a command on a thread of its own: for what would hold its worker up and cannot be cut into slices, such as
//! decoding a large payload or talking to another server.
//!
//! The connection waits as for any reply that comes by message. What the thread returns is the rest of the command, a
//! continuation that runs on the connection's worker, with locks and all; the thread itself sees no keyspace. A connection that is
//! closed meanwhile does not find its rest, which is dropped. So a command that works on a large value takes its root, lets go of
//! the lock, and comes back with a result ([`change`]). If the value is still the same by then it is put in its place, as one change
//! of that moment; if others have changed it the command begins anew, and after [`TRIES`] does everything under its lock. Threads are started as needed and are few: a pool would
//! keep its threads for commands that hardly ever come.

use crate::args::Args;
use crate::exec::{Continuation, Edited, Exec, Locked, Outcome, Stop};
use crate::kept::Kept;
use crate::mail::Message;
use crate::reply::Reply;
use crate::session::ReplyMode;
use gimmal_io::Output;
use gimmal_store::types::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most threads at a time: more would take memory and processors from the workers.
const THREADS: usize = 16;

/// Elements from which on a command's work is done here: it takes about a ms, and a thread some 50 µs.
pub const MANY: usize = 4096;
/// Times that a command begins with a thread.
const TRIES: u32 = 3;

/// Threads that are at work, in the whole process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Whether a part of this command may run elsewhere now. Not in a transaction, which waits for nobody, nor if the reply's fate
/// depends on the commands around it.
pub fn is_possible(exec: &Exec<'_>) -> bool {
    let alone = !exec.in_transaction() && !exec.local.serving && exec.session.reply_mode == ReplyMode::On;
    alone && exec.local.begun_anew < TRIES && RUNNING.load(Relaxed) < THREADS
}

/// Whether a command that works on so many elements should have a thread, and may.
#[inline]
pub fn is_due(exec: &Exec<'_>, elements: usize) -> bool {
    elements > MANY && is_possible(exec)
}

/// Starts a thread for `work`; what that returns goes on with the command.
///
/// # Errors
/// [`Stop::Wait`], with which the handler ends; an error if there can be no thread.
pub fn start(exec: &Exec<'_>, work: impl FnOnce() -> Box<dyn Continuation> + Send + 'static) -> Outcome {
    let (mail, worker, conn) = (Arc::clone(&exec.shared.mail), exec.local.id, exec.local.conn);
    let counted = Counted::new();
    let run = move || {
        let rest = work();
        drop(counted);
        mail[worker].post(Message::Resume { conn, rest });
    };
    match std::thread::Builder::new().name("offload".into()).spawn(run) {
        Ok(_) => Err(Stop::Wait),
        Err(error) => Err(format!("ERR no thread for it: {error}").into()),
    }
}

/// The step of a continuation whose result is no use, as others have changed what it was made of: the command begins anew.
pub fn anew(exec: &mut Exec<'_>, tries: u32, begin: impl FnOnce(&mut Exec<'_>) -> Outcome) -> Result<bool, Stop> {
    exec.local.begun_anew = tries + 1;
    let outcome = begin(exec);
    exec.local.begun_anew = 0;
    outcome.map(|()| true)
}

/// What a command table names.
pub type Handler = fn(&mut Exec<'_>, &Args<'_>) -> Outcome;

/// Has a thread write the reply of a command that changes nothing, from values that were taken by their roots.
///
/// # Errors
/// As [`start`].
pub fn write(
    exec: &Exec<'_>,
    args: &Args<'_>,
    write: impl FnOnce(&Args<'_>, &mut Reply<'_>) + Send + 'static,
) -> Outcome {
    let (kept, resp3) = (exec.keep(args), exec.session.resp3);
    start(exec, move || {
        let mut output = Output::default();
        write(&kept.args(), &mut Reply::new(&mut output, resp3));
        Box::new(Written(output))
    })
}

/// A reply that a thread has written.
struct Written(Output);

impl Continuation for Written {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        exec.reply.output().append(std::mem::take(&mut self.0));
        Ok(true)
    }
}

/// A command that changes a value.
#[derive(Clone, Copy)]
pub struct Command {
    /// Which argument is the key.
    pub key: usize,
    /// To begin anew.
    pub handler: Handler,
}

/// What a command does with a key that is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It changes an empty value.
    Create,
    /// It has nothing to change.
    Leave,
}

/// Changes the value at a key: at once, or if that is work on so many `elements` that it should have a thread, as [`change`] does.
/// `alter` is told the time under the lock. `finish` records the effect, tells of it and replies, under the lock in both cases; it is told nothing if there was nothing to
/// change.
///
/// # Errors
/// WRONGTYPE; what `finish` returns; as [`start`].
#[inline]
pub fn edit<T, R>(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    command: Command,
    missing: Missing,
    elements: usize,
    alter: impl FnOnce(&mut T, &Args<'_>, i64) -> R + Send + 'static,
    finish: impl FnOnce(&mut Exec<'_>, &Args<'_>, Locked<'_>, Option<Edited<R>>) -> Outcome + Send + 'static,
) -> Outcome
where
    T: Kind + Clone + Send + 'static,
    R: Send + 'static,
{
    let mut locked = exec.lock(args.at(command.key))?;
    let now_ms = exec.now_ms();
    let alter = move |value: &mut T, args: &Args<'_>| alter(value, args, now_ms);
    if is_due(exec, elements) {
        return match share(exec, &mut locked, missing)? {
            None => finish(exec, args, locked, None),
            Some(original) => {
                drop(locked);
                replace(exec, args, command, original, alter, |exec, args, locked, edited| {
                    finish(exec, args, locked, Some(edited))
                })
            }
        };
    }
    let edited = match missing {
        Missing::Create => Some(exec.edit_or_create(locked.key(), |value: &mut T| alter(value, args))?),
        Missing::Leave => exec.edit(locked.key(), |value: &mut T| alter(value, args))?,
    };
    finish(exec, args, locked, edited)
}

/// The value at a key, shared with whoever has it: what [`change`] begins with.
///
/// # Errors
/// WRONGTYPE.
pub fn share<T: Kind + Clone>(
    exec: &mut Exec<'_>,
    locked: &mut Locked<'_>,
    missing: Missing,
) -> Result<Option<T>, Stop> {
    let there = exec.edit(locked.key(), |value: &mut T| value.clone())?.map(|edited| edited.result);
    Ok(there.or_else(|| (missing == Missing::Create).then(|| T::new_in(Vec::new()))))
}

/// Makes a change of the large value at a key on a thread: `alter` changes a clone of `original`, and `finish`, with the changed
/// value in its place and the key locked, records the effect and replies. The locks should be released. An empty `original` is a key
/// that is missing.
///
/// # Errors
/// As [`start`].
pub fn change<T, R>(
    exec: &Exec<'_>,
    args: &Args<'_>,
    command: Command,
    original: T,
    alter: impl FnOnce(&mut T, &Args<'_>) -> R + Send + 'static,
    finish: impl FnOnce(&mut Exec<'_>, &Args<'_>, Locked<'_>, R) -> Outcome + Send + 'static,
) -> Outcome
where
    T: Kind + Clone + Send + 'static,
    R: Send + 'static,
{
    replace(exec, args, command, original, alter, |exec, args, locked, edited| {
        finish(exec, args, locked, edited.result)
    })
}

/// As [`change`]; `finish` is also told whether the key has gone.
///
/// # Errors
/// As [`start`].
pub fn replace<T, R>(
    exec: &Exec<'_>,
    args: &Args<'_>,
    command: Command,
    original: T,
    alter: impl FnOnce(&mut T, &Args<'_>) -> R + Send + 'static,
    finish: impl FnOnce(&mut Exec<'_>, &Args<'_>, Locked<'_>, Edited<R>) -> Outcome + Send + 'static,
) -> Outcome
where
    T: Kind + Clone + Send + 'static,
    R: Send + 'static,
{
    let (kept, tries) = (exec.keep(args), exec.local.begun_anew);
    start(exec, move || {
        let mut altered = original.clone();
        let result = Some((alter(&mut altered, &kept.args()), finish));
        Box::new(Changed { kept, command, tries, original, altered, result })
    })
}

/// A change that was made on a thread.
struct Changed<T, R, F> {
    kept: Arc<Kept>,
    command: Command,
    tries: u32,
    original: T,
    altered: T,
    result: Option<(R, F)>,
}

impl<T, R, F> Continuation for Changed<T, R, F>
where
    T: Kind + Send,
    R: Send,
    F: FnOnce(&mut Exec<'_>, &Args<'_>, Locked<'_>, Edited<R>) -> Outcome + Send,
{
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let Changed { kept, command, tries, original, altered, result } = self;
        let args = kept.args();
        let mut locked = exec.lock(args.at(command.key))?;
        let creates = original.is_void();
        let put = |value: &mut T| {
            let same = value.is_same(original);
            if same {
                std::mem::swap(value, altered);
            }
            same
        };
        let edited = match creates {
            true => exec.edit_or_create(locked.key(), put).map(Some),
            false => exec.edit(locked.key(), put),
        };
        match edited {
            Ok(Some(Edited { result: true, emptied })) => {
                let (result, finish) = result.take().expect("the value is in its place for the first time");
                finish(exec, &args, locked, Edited { result, emptied }).map(|()| true)
            }
            Ok(_) | Err(Stop::Error(_)) => {
                drop(locked);
                exec.local.kept = Some(kept.clone());
                let outcome = anew(exec, *tries, |exec| (command.handler)(exec, &args));
                exec.local.kept = None;
                outcome
            }
            Err(stop) => Err(stop),
        }
    }
}

/// A thread that counts as running.
struct Counted;

impl Counted {
    fn new() -> Counted {
        RUNNING.fetch_add(1, Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Relaxed);
    }
}
