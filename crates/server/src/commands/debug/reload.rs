//! DEBUG RELOAD and DEBUG LOADAOF: the data set goes to disk and comes back.

use crate::args::Args;
use crate::commands::save::has_thread;
use crate::dispatch::IS_LOADING;
use crate::exec::{Continuation, Exec, Outcome, ReplyError, Stop, error};
use crate::mail::Message;
use crate::persist::load::replace::{Failure, Order, Source};
use crate::persist::save::points::failure_text;
use crate::session::ReplyMode;
use crate::shared::{Hold, Shared};

const OPTIONS: ReplyError = error("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
const NOT_IN_MULTI: ReplyError = error("ERR the data set cannot be replaced inside a transaction");
const NO_SNAPSHOT: ReplyError = error("ERR Error trying to load the RDB dump, check server logs.");
const NO_LOG: ReplyError = error("ERR Error trying to load the AOF files, check server logs.");

pub fn reload(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (mut saves, mut flushes, mut merges) = (true, true, false);
    for i in 2..args.len() {
        match () {
            () if args.is(i, "nosave") => saves = false,
            () if args.is(i, "noflush") => flushes = false,
            () if args.is(i, "merge") => merges = true,
            () => return Err(OPTIONS.into()),
        }
    }
    if saves {
        has_thread(exec)?;
    }
    replace(exec, Source::Snapshot { saves, flushes, merges })
}

pub fn load_aof(exec: &mut Exec<'_>) -> Outcome {
    replace(exec, Source::Log)
}

/// The client waits; who else asks for anything is held meanwhile.
fn replace(exec: &mut Exec<'_>, source: Source) -> Outcome {
    if exec.in_transaction() {
        return Err(NOT_IN_MULTI.into());
    }
    if exec.shared.persist.load.is_under_way() {
        return Err(IS_LOADING.into());
    }
    // What is held already, by a shutdown or another client, is waited for.
    exec.shared.lifecycle.begin_hold(Hold::Replacement).map_err(|_| Stop::Paused)?;
    let (mail, worker, conn) = (exec.shared.mail.clone(), exec.local.id, exec.local.conn);
    let waits = exec.session.reply_mode == ReplyMode::On;
    let done = move |_: &Shared, outcome: Result<(), Failure>| {
        if waits {
            let rest = Box::new(Replaced { source, outcome });
            mail[worker].post(Message::Resume { conn, rest });
        }
    };
    exec.shared.mail[worker].post(Message::Replace(Order { source, done: Box::new(done) }));
    if waits { Err(Stop::Wait) } else { Ok(()) }
}

/// What became of it.
struct Replaced {
    source: Source,
    outcome: Result<(), Failure>,
}

impl Continuation for Replaced {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        match &self.outcome {
            Ok(()) => {
                exec.reply.put().ok();
                Ok(true)
            }
            Err(Failure::Save(failure)) => Err(failure_text(failure).into()),
            Err(Failure::Load) if self.source == Source::Log => Err(NO_LOG.into()),
            Err(Failure::Load) => Err(NO_SNAPSHOT.into()),
        }
    }
}
