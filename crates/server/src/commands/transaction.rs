//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH. How they work is in `tx.rs`; queueing is `dispatch.rs`'s.

use crate::args::Args;
use crate::arguments::key;
use crate::command::{Command, acl, flag::*, key_range, keyflag};
use crate::exec::{Exec, Outcome};
use crate::tx;

const TRANSACTION: Command = Command {
    arity: 1,
    flags: NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY,
    acl: acl::TRANSACTION,
    since: "2.2.0",
    group: "transactions",
    complexity: "O(1)",
    ..Command::DEFAULT
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "multi",
        run: multi,
        flags: TRANSACTION.flags | NO_MULTI,
        since: "1.2.0",
        summary: "Begins a transaction.",
        ..TRANSACTION
    },
    Command {
        name: "exec",
        run: exec,
        flags: NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG,
        since: "1.2.0",
        complexity: "Depends on commands in the transaction",
        summary: "Carries out the commands of a transaction.",
        ..TRANSACTION
    },
    Command {
        name: "discard",
        run: discard,
        since: "2.0.0",
        complexity: "O(N), when N is the number of queued commands",
        summary: "Forgets the commands of a transaction.",
        ..TRANSACTION
    },
    Command {
        name: "watch",
        run: watch,
        arity: -2,
        flags: TRANSACTION.flags | NO_MULTI,
        keys: &[key_range(1, -1, 1, keyflag::RO)],
        complexity: "O(1) for every key.",
        summary: "Lets the next transaction fail if a key is changed before it.",
        arguments: &[key("key", 0).many()],
        ..TRANSACTION
    },
    Command { name: "unwatch", run: unwatch, summary: "Forgets all watched keys.", ..TRANSACTION },
];

/// In MULTI it is refused before it comes here.
fn multi(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.session.begin();
    exec.reply.put().ok();
    Ok(())
}

fn exec(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    tx::execute(exec)
}

fn discard(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    if exec.session.multi.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    exec.session.discard();
    exec.reply.put().ok();
    Ok(())
}

fn watch(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    tx::watch(exec, args)?;
    exec.reply.put().ok();
    Ok(())
}

fn unwatch(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.session.watch = None;
    exec.reply.put().ok();
    Ok(())
}
