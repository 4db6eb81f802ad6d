//! Clients that wait: CLIENT PAUSE and UNPAUSE, and waking one that a command blocks.

use super::NOT_IN_TRANSACTION;
use crate::args::Args;
use crate::command::gate;
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Outcome, ReplyError, Stop};
use crate::gather::{Gather, Question};
use crate::reply::Reply;
use crate::worker::State;

pub fn pause(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let all = match args.len() {
        3 => true,
        4 if args.is(3, "all") => true,
        4 if args.is(3, "write") => false,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return Err(wrong_arguments(args).into()),
    };
    let until_ms = deadline(args, 2, exec.now_ms())?;
    // No other worker is in a batch that began before the pause: after our reply nothing slips through.
    let closed = exec.exclusive()?;
    exec.shared.pause.begin(exec.now_ms(), until_ms, all);
    drop(closed);
    exec.local.gates |= match exec.shared.pause.at(exec.now_ms()) {
        Some(true) => gate::PAUSED_ALL,
        Some(false) => gate::PAUSED_WRITES,
        None => 0,
    };
    exec.reply.put().ok();
    Ok(())
}

/// A time to wait, in ms, as a point in time.
fn deadline(args: &Args<'_>, i: usize, now_ms: i64) -> Result<i64, ReplyError> {
    let wait_ms = args.int(i).map_err(|_| "ERR timeout is not an integer or out of range")?;
    if wait_ms < 0 {
        return Err("ERR timeout is negative".into());
    }
    now_ms.checked_add(wait_ms).ok_or_else(|| "ERR timeout is out of range".into())
}

pub fn unpause(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.shared.pause.end();
    exec.local.gates &= !(gate::PAUSED_ALL | gate::PAUSED_WRITES);
    // The others have clients that wait.
    exec.shared.tell_all();
    exec.reply.put().ok();
    Ok(())
}

/// Ends the wait of a client of any worker.
pub fn unblock(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() > 4 {
        return Err(wrong_arguments(args).into());
    }
    let with_error = args.len() == 4 && args.is(3, "error");
    if args.len() == 4 && !with_error && !args.is(3, "timeout") {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
    }
    let id = args.int(2)?;
    if exec.in_transaction() {
        return Err(NOT_IN_TRANSACTION.into());
    }
    let Ok(id) = u64::try_from(id) else {
        exec.reply.put().integer(0);
        return Ok(());
    };
    Gather::ask(Question::Unblock(id, with_error), exec);
    Err(Stop::Wait)
}

/// Tells whether there was one.
pub fn unblocked(state: &mut State, gather: &Gather) {
    let found = gather.take().len();
    state.reply_later(gather.conn, |c, _| {
        if !gather.silent {
            Reply::new(&mut c.output, c.session.resp3).put().count(found);
        }
    });
}
