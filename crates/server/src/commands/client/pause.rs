//! Clients that wait: CLIENT PAUSE and UNPAUSE, and waking one that a command blocks.

use crate::args::Args;
use crate::command::gate;
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Outcome, ReplyError};

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

/// No command blocks its client in this server, so there is nobody to wake.
pub fn unblock(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let reason_known = args.len() < 4 || args.is(3, "timeout") || args.is(3, "error");
    if args.len() > 4 {
        return Err(wrong_arguments(args).into());
    }
    if !reason_known {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
    }
    args.int(2)?;
    exec.reply.put().integer(0);
    Ok(())
}
