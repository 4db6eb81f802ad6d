//! CLIENT: what connections there are, their names and modes, and closing them.
//!
//! LIST and KILL concern the connections of every worker: they are questions to all of them (`gather.rs`), and the
//! asking connection waits for the answers.

mod kill;
mod line;
mod list;
mod modes;
mod pause;
mod tracking;

pub use line::{Buffers, describe, line};
pub use tracking::Redirection;

use crate::args::Args;
use crate::arguments::{integer, one_of, string, word};
use crate::command::{Command, acl, flag::*};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::exec::{Exec, Outcome, ReplyError};
use crate::gather::{Gather, Question};
use crate::worker::State;
use std::sync::Arc;

/// A transaction is not interrupted, and so cannot wait for what the other workers answer.
const NOT_IN_TRANSACTION: ReplyError = crate::tx::NEEDS_TO_WAIT;

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: -2,
    since: "2.4.0",
    group: "connection",
    complexity: "Depends on subcommand",
    summary: "Commands about connections.",
    subcommands: &[
        Command {
            name: "id",
            run: modes::id,
            arity: 2,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "5.0.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Answers the connection's number.",
            ..Command::DEFAULT
        },
        Command {
            name: "info",
            run: list::info,
            arity: 2,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "6.2.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Describes this connection.",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "list",
            run: list::list,
            arity: -2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.4.0",
            group: "connection",
            complexity: "O(N) where N is the number of client connections",
            summary: "Describes every connection, or those asked for.",
            arguments: &[
                one_of(
                    "client-type",
                    &[
                        word("normal", "normal"),
                        word("master", "master"),
                        word("replica", "replica"),
                        word("pubsub", "pubsub"),
                    ],
                )
                .after("TYPE")
                .optional()
                .since("5.0.0"),
                integer("client-id").after("ID").optional().many().since("6.2.0"),
            ],
            tips: &["nondeterministic_output"],
            history: &[
                ("2.8.12", "Lines have `id`."),
                ("5.0.0", "`TYPE` chooses a class."),
                ("6.0.0", "Lines have `user`."),
                ("6.2.0", "`ID` chooses connections; lines have `argv-mem`, `tot-mem`, `laddr` and `redir`."),
                ("7.0.0", "Lines have `resp`, `multi-mem`, `rbs` and `rbp`."),
                ("7.0.3", "Lines have `ssub`."),
                ("8.0.0", "`TYPE primary` is a name for `TYPE master`."),
            ],
            ..Command::DEFAULT
        },
        Command {
            name: "kill",
            run: kill::kill,
            arity: -3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.4.0",
            group: "connection",
            complexity: "O(N) where N is the number of client connections",
            summary: "Closes connections.",
            arguments: &[one_of(
                "filter",
                &[
                    string("old-format").shown("ip:port").deprecated("2.8.12"),
                    one_of(
                        "new-format",
                        &[
                            integer("client-id").after("ID").optional().since("2.8.12"),
                            one_of(
                                "client-type",
                                &[
                                    word("normal", "normal"),
                                    word("master", "master").since("3.2.0"),
                                    word("primary", "primary").since("8.0.0"),
                                    word("slave", "slave"),
                                    word("replica", "replica").since("5.0.0"),
                                    word("pubsub", "pubsub"),
                                ],
                            )
                            .after("TYPE")
                            .optional()
                            .since("2.8.12"),
                            string("username").after("USER").optional(),
                            string("addr").after("ADDR").shown("ip:port").optional(),
                            string("laddr").after("LADDR").shown("ip:port").optional().since("6.2.0"),
                            one_of("skipme", &[word("yes", "YES"), word("no", "NO")]).after("SKIPME").optional(),
                            integer("maxage").after("MAXAGE").optional().since("8.0.0"),
                        ],
                    )
                    .many(),
                ],
            )],
            history: &[
                ("2.8.12", "Filters."),
                ("2.8.12", "The filter `ID`."),
                ("3.2.0", "`TYPE master`."),
                ("5.0.0", "`TYPE replica` is a name for `TYPE slave`."),
                ("6.2.0", "The filter `LADDR`."),
                ("8.0.0", "The filter `MAXAGE`."),
                ("8.0.0", "`TYPE primary` is a name for `TYPE master`."),
            ],
            ..Command::DEFAULT
        },
        Command {
            name: "setname",
            run: modes::setname,
            arity: 3,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.6.9",
            group: "connection",
            complexity: "O(1)",
            summary: "Names the connection.",
            arguments: &[string("connection-name")],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "getname",
            run: modes::getname,
            arity: 2,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.6.9",
            group: "connection",
            complexity: "O(1)",
            summary: "Answers the connection's name.",
            ..Command::DEFAULT
        },
        Command {
            name: "setinfo",
            run: modes::setinfo,
            arity: 4,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "7.2.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Tells which library the client uses.",
            arguments: &[one_of("attr", &[string("libname").after("lib-name"), string("libver").after("lib-ver")])],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "reply",
            run: modes::reply,
            arity: 3,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "3.2.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Switches the replies of this connection on or off.",
            arguments: &[one_of("action", &[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")])],
            ..Command::DEFAULT
        },
        Command {
            name: "no-evict",
            run: modes::no_evict,
            arity: 3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "7.0.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Spares this connection when clients are closed for their memory.",
            arguments: &[one_of("enabled", &[word("on", "ON"), word("off", "OFF")])],
            ..Command::DEFAULT
        },
        Command {
            name: "no-touch",
            run: modes::no_touch,
            arity: 3,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "7.2.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Lets this connection's reads leave access times alone.",
            arguments: &[one_of("enabled", &[word("on", "ON"), word("off", "OFF")])],
            ..Command::DEFAULT
        },
        Command {
            name: "pause",
            run: pause::pause,
            arity: -3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "3.0.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Lets commands wait for a while.",
            arguments: &[
                integer("timeout"),
                one_of("mode", &[word("write", "WRITE"), word("all", "ALL")]).optional().since("6.2.0"),
            ],
            history: &[("6.2.0", "`WRITE` lets reads through.")],
            ..Command::DEFAULT
        },
        Command {
            name: "unpause",
            run: pause::unpause,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "6.2.0",
            group: "connection",
            complexity: "O(N) Where N is the number of paused clients",
            summary: "Ends a pause.",
            ..Command::DEFAULT
        },
        Command {
            name: "unblock",
            run: pause::unblock,
            arity: -3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "5.0.0",
            group: "connection",
            complexity: "O(log N) where N is the number of client connections",
            summary: "Wakes a client that waits in a blocking command.",
            arguments: &[
                integer("client-id"),
                one_of("unblock-type", &[word("timeout", "TIMEOUT"), word("error", "ERROR")]).optional(),
            ],
            ..Command::DEFAULT
        },
        Command {
            name: "tracking",
            run: tracking::tracking,
            arity: -3,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "6.0.0",
            group: "connection",
            complexity: "O(1). Some options may introduce additional complexity.",
            summary: "Tells this connection, or another one, when keys change that it has read.",
            arguments: &[
                one_of("status", &[word("on", "ON"), word("off", "OFF")]),
                integer("client-id").after("REDIRECT").optional(),
                string("prefix").after("PREFIX").optional().many().many_tokens(),
                word("BCAST", "BCAST").optional(),
                word("OPTIN", "OPTIN").optional(),
                word("OPTOUT", "OPTOUT").optional(),
                word("NOLOOP", "NOLOOP").optional(),
            ],
            ..Command::DEFAULT
        },
        Command {
            name: "caching",
            run: tracking::caching,
            arity: 3,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "6.0.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Says whether the keys of the next command are tracked.",
            arguments: &[one_of("mode", &[word("yes", "YES"), word("no", "NO")])],
            ..Command::DEFAULT
        },
        Command {
            name: "getredir",
            run: tracking::getredir,
            arity: 2,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "6.0.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Answers which client gets this connection's invalidations.",
            ..Command::DEFAULT
        },
        Command {
            name: "trackinginfo",
            run: tracking::trackinginfo,
            arity: 2,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "6.2.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Describes how keys are tracked for this connection.",
            ..Command::DEFAULT
        },
        Command {
            name: "capa",
            run: modes::capa,
            arity: -3,
            flags: NOSCRIPT | LOADING | STALE,
            acl: acl::CONNECTION,
            since: "8.0.0",
            group: "connection",
            complexity: "O(1)",
            summary: "Tells what the client can handle.",
            arguments: &[string("capability").many()],
            ..Command::DEFAULT
        },
        Command { run: help, acl: acl::CONNECTION, since: "5.0.0", group: "connection", ..HELP_ENTRY },
    ],
    ..Command::DEFAULT
}];

/// This worker's answers to a question about connections.
pub fn answer(state: &mut State, gather: &Arc<Gather>) {
    let answers = match &gather.question {
        Question::List(filter) => list::answer(state, filter),
        Question::Kill(filter, _) => kill::answer(state, filter, gather.client),
        Question::Redirect(redirection) => tracking::answer(state, redirection),
        Question::Unblock(id, with_error) => {
            if state.unblock(*id, *with_error) {
                vec![(*id, String::new())]
            } else {
                Vec::new()
            }
        }
    };
    gather.answer(answers, &state.shared.mail);
}

/// All workers have answered: the waiting connection gets its reply.
pub fn answered(state: &mut State, gather: &Arc<Gather>) {
    match &gather.question {
        Question::List(filter) => list::answered(state, gather, filter),
        Question::Kill(_, old_form) => kill::answered(state, gather, *old_form),
        Question::Redirect(redirection) => tracking::answered(state, gather, redirection),
        Question::Unblock(..) => pause::unblocked(state, gather),
    }
}

/// A class of clients by the names that filters know.
fn class(args: &Args<'_>, i: usize) -> Result<&'static str, crate::exec::ReplyError> {
    const NAMES: [(&str, &str); 6] = [
        ("normal", "normal"),
        ("slave", "replica"),
        ("replica", "replica"),
        ("pubsub", "pubsub"),
        ("master", "master"),
        ("primary", "master"),
    ];
    let known = NAMES.iter().find(|(name, _)| args.is(i, name)).map(|(_, class)| *class);
    known.ok_or_else(|| format!("ERR Unknown client type '{}'", crate::dispatch::echoed(args.at(i))).into())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Whether the keys of the next command are tracked (with OPTIN, OPTOUT).",
    "CAPA <word> [<word> ...]",
    "    Say what this client can handle; unknown words are accepted.",
    "GETNAME",
    "    The name of this connection.",
    "GETREDIR",
    "    The client that gets this connection's invalidations, or -1.",
    "ID",
    "    The number of this connection.",
    "INFO",
    "    This connection's line of LIST.",
    "KILL <ip:port>",
    "    Close the connection from that address.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections that fit all of:",
    "    * ADDR <ip:port>, LADDR <ip:port>: the client's address, the server's",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB), USER <name>, ID <number>",
    "    * MAXAGE <seconds>: connected for at least so long",
    "    * SKIPME (YES|NO): not this connection (yes unless said otherwise)",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <number> [<number> ...]]",
    "    A line for each connection.",
    "NO-EVICT (ON|OFF)",
    "    Spare this connection when clients are closed for their memory.",
    "NO-TOUCH (ON|OFF)",
    "    Reads of this connection leave access times alone.",
    "PAUSE <milliseconds> [WRITE|ALL]",
    "    Let commands, or only those that write, wait.",
    "REPLY (ON|OFF|SKIP)",
    "    Send replies, none, or none to the next command.",
    "SETINFO (LIB-NAME <name>|LIB-VER <version>)",
    "    Say which library this client uses.",
    "SETNAME <name>",
    "    Name this connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Tell this connection, or client <id>, when keys change that were read.",
    "TRACKINGINFO",
    "    How keys are tracked for this connection.",
    "UNBLOCK <number> [TIMEOUT|ERROR]",
    "    Wake a client out of a blocking command.",
    "UNPAUSE",
    "    End a pause.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "CLIENT", HELP)
}
