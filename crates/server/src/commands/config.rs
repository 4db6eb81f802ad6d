//! CONFIG: directives read, changed and written back, and the statistics put to zero.
//!
//! SET makes a new configuration, applies what is more than a value (the directory, the log level, the limit of open
//! files), and puts it in place while the gate is closed: after its reply no worker uses an old value.

use crate::args::Args;
use crate::arguments::{block, string};
use crate::command::{Command, flag::*};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::config::{Caller, Config, Id, SetError};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, Stop};
use crate::persist::aof::rewrite as log;
use crate::session::{Peer, Session};
use crate::{logging, os, start};

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "config",
    arity: -2,
    since: "2.0.0",
    group: "server",
    complexity: "Depends on subcommand",
    summary: "Commands about the configuration.",
    subcommands: &[
        Command {
            name: "get",
            run: get,
            arity: -3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.0.0",
            group: "server",
            complexity: "O(N) when N is the number of configuration parameters provided",
            summary: "Answers directives and their values.",
            arguments: &[string("parameter").many()],
            history: &[("7.0.0", "Several patterns.")],
            ..Command::DEFAULT
        },
        Command {
            name: "set",
            run: set,
            arity: -4,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.0.0",
            group: "server",
            complexity: "O(N) when N is the number of configuration parameters provided",
            summary: "Changes directives while the server runs, all or none.",
            arguments: &[block("data", &[string("parameter"), string("value")]).many()],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            history: &[("7.0.0", "Several directives.")],
            ..Command::DEFAULT
        },
        Command {
            name: "resetstat",
            run: resetstat,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.0.0",
            group: "server",
            complexity: "O(1)",
            summary: "Puts the statistics back to zero.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "rewrite",
            run: rewrite,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.8.0",
            group: "server",
            complexity: "O(1)",
            summary: "Writes the configuration in force into its file.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command { run: help, since: "5.0.0", group: "server", ..HELP_ENTRY },
    ],
    ..Command::DEFAULT
}];

impl From<SetError> for Stop {
    fn from(error: SetError) -> Stop {
        error.to_string().into()
    }
}

fn get(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let patterns: Vec<&[u8]> = args.rest(2).collect();
    let found = exec.local.config.matching(&patterns);
    let mut reply = exec.reply.put();
    reply.map(found.len());
    for (name, value) in &found {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    Ok(())
}

fn set(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() % 2 == 1 {
        return Err(SYNTAX.into());
    }
    let pairs: Vec<(&[u8], &[u8])> = (2..args.len()).step_by(2).map(|i| (args.at(i), args.at(i + 1))).collect();
    let closed = exec.exclusive()?;
    let old = exec.shared.settings.current();
    let caller = Caller { local: is_local(exec.session), loading: exec.shared.persist.load.is_under_way() };
    let new = old.set_by(caller, &pairs)?;
    apply(&old, &new)?;
    let switch = Some(new.appendonly()).filter(|is_on| *is_on != old.appendonly());
    if switch == Some(false) {
        log::switch_off(exec.shared).map_err(|error| SetError::refused(APPENDONLY, os::reason(&error)))?;
    }
    exec.shared.persist.aof.adopt(&new);
    exec.shared.settings.replace(new);
    exec.local.look_at(&exec.shared.settings);
    exec.local.look_at_log(exec.shared);
    if switch == Some(true) {
        // It begins with a snapshot; nobody waits for that, as in Redis.
        log::submit(exec.shared);
    }
    drop(closed);
    exec.reply.put().ok();
    Ok(())
}

/// Whether the client is on this host.
pub fn is_local(session: &Session) -> bool {
    match &session.peer {
        Peer::Tcp(peer, _) => peer.ip().to_canonical().is_loopback(),
        Peer::Unix => true,
        Peer::Sim => false,
    }
}

/// Directives of listening sockets, which are opened once, and what Redis says when it cannot open them.
const LISTENERS: [(Id, &str); 3] = [
    (Id::of("port"), "Unable to listen on this port"),
    (Id::of("bind"), "Failed to bind to specified addresses"),
    (Id::of("tls-port"), "Unable to listen on this port"),
];
const APPENDONLY: Id = Id::of("appendonly");
const MAXCLIENTS: Id = Id::of("maxclients");
const LOGLEVEL: Id = Id::of("loglevel");
const DIR: Id = Id::of("dir");

/// Does what is more than a value. What may fail comes first, so that nothing is half done.
fn apply(old: &Config, new: &Config) -> Result<(), SetError> {
    let changes = new.changes_since(old);
    for id in &changes {
        if let Some((_, words)) = LISTENERS.iter().find(|(listener, _)| listener == id) {
            let reason = format!("{words}: the server listens where it was started; restart it to change that");
            return Err(SetError::refused(*id, reason));
        }
    }
    if changes.contains(&MAXCLIENTS) {
        let limit = start::raise_file_limit(new.maxclients());
        limit.map_err(|possible| {
            let reason = "The operating system is not able to handle the specified number of clients, try with";
            SetError::refused(MAXCLIENTS, format!("{reason} {possible}"))
        })?;
    }
    if changes.contains(&DIR) {
        std::env::set_current_dir(new.dir()).map_err(|error| SetError::refused(DIR, os::reason(&error)))?;
    }
    if changes.contains(&LOGLEVEL) {
        logging::set_level(start::level(new.loglevel()));
    }
    Ok(())
}

fn resetstat(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    // Counters have one writer each: none of them writes while the gate is closed.
    let closed = exec.exclusive()?;
    exec.shared.reset_stats();
    drop(closed);
    exec.reply.put().ok();
    Ok(())
}

fn rewrite(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    if exec.local.config.file().is_none() {
        return Err("ERR The server is running without a config file".into());
    }
    if let Err(error) = exec.local.config.rewrite_file(None) {
        crate::warning!("CONFIG REWRITE failed: {error}");
        return Err(format!("ERR Rewriting config file: {}", os::reason(&error)).into());
    }
    crate::notice!("CONFIG REWRITE executed with success.");
    exec.reply.put().ok();
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    The directives that match, and their values.",
    "RESETSTAT",
    "    Put the statistics that INFO reports back to zero.",
    "REWRITE",
    "    Write the configuration in force into its file.",
    "SET <directive> <value> [<directive> <value> ...]",
    "    Change directives, all or none.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "CONFIG", HELP)
}
