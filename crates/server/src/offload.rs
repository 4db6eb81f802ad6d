//! A part of a command on a thread of its own: for what would hold its worker up and cannot be cut into slices, such as
//! decoding a large payload or talking to another server.
//!
//! The connection waits as for any reply that comes by message. What the thread returns is the rest of the command, a
//! continuation that runs on the connection's worker, with locks and all; the thread itself sees no keyspace. A connection that is
//! closed meanwhile does not find its rest, which is dropped. Threads are started as needed and are few: a pool would
//! keep its threads for commands that hardly ever come.

use crate::exec::{Continuation, Exec, Outcome, Stop};
use crate::mail::Message;
use crate::session::ReplyMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most threads at a time: more would take memory and processors from the workers.
const THREADS: usize = 16;

/// Threads that are at work, in the whole process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Whether a part of this command may run elsewhere now. Not in a transaction, which waits for nobody, nor if the reply's fate
/// depends on the commands around it.
pub fn is_possible(exec: &Exec<'_>) -> bool {
    !exec.in_transaction() && exec.session.reply_mode == ReplyMode::On && RUNNING.load(Relaxed) < THREADS
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
