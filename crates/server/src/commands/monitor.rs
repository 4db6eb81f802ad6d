//! MONITOR: a connection that is shown every command. How lines travel: `crate::monitor`.

use crate::args::Args;
use crate::command::{Command, acl, flag::*, gate};
use crate::exec::{Exec, Outcome};

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "monitor",
    run: monitor,
    arity: 1,
    flags: ADMIN | NOSCRIPT | LOADING | STALE,
    acl: acl::ADMIN,
    group: "server",
    summary: "Shows this connection every command of all clients from now on.",
    ..Command::DEFAULT
}];

/// As in Redis, a monitor that asks again gets no reply.
fn monitor(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    if exec.in_transaction() {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    if exec.session.monitors {
        return Ok(());
    }
    // No other worker is in a batch that began without a monitor.
    let closed = exec.exclusive()?;
    let (me, conn) = (exec.local.id, exec.local.conn);
    exec.local.pubsub.add_monitor(&exec.shared.mail[me], conn);
    exec.shared.pubsub.count_monitor(me, true);
    exec.session.monitors = true;
    exec.session.gates |= gate::MONITORING;
    exec.local.monitored = true;
    drop(closed);
    exec.reply.put().ok();
    Ok(())
}
