//! Connections: PING, CLIENT and their kin.

use crate::args::Args;
use crate::command::{Command, acl, flag::*};
use crate::connection::Connection;
use crate::exec::{Exec, Outcome};
use crate::gather::Gather;
use crate::shared::Shared;
use crate::worker::State;
use gimmal_io::ConnId;
use std::sync::Arc;

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "ping",
    run: ping,
    arity: -1,
    flags: FAST,
    acl: acl::CONNECTION,
    group: "connection",
    complexity: "O(1)",
    summary: "Answers PONG, or the message given.",
    ..Command::DEFAULT
}];

fn ping(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    match args.len() {
        1 => exec.reply.put().simple("PONG"),
        2 => exec.reply.put().bulk(args.at(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

/// A connection's line in CLIENT LIST.
pub fn describe(_shared: &Shared, _conn: ConnId, c: &Connection, _now_ms: i64) -> String {
    format!("id={} addr={}", c.session.id, c.session.address())
}

/// This worker's answers to a question about connections.
pub fn answer(state: &mut State, gather: &Arc<Gather>) {
    gather.answer(Vec::new(), &state.shared.mail);
}

/// All workers have answered: the waiting connection gets its reply.
pub fn answered(state: &mut State, gather: &Arc<Gather>) {
    state.reply_later(gather.conn, |_, _| ());
}
