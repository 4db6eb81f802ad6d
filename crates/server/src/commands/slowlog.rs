//! SLOWLOG and COMMANDLOG: the slow commands that are remembered, and those with large requests and replies.

use crate::args::Args;
use crate::arguments::{integer, string};
use crate::command::{Command, flag::*};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::slowlog::Kind;

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "slowlog",
        arity: -2,
        since: "2.2.12",
        group: "server",
        complexity: "Depends on subcommand",
        summary: "Commands about the log of slow commands.",
        subcommands: &[
            Command {
                name: "get",
                run: get,
                arity: -2,
                flags: ADMIN | LOADING | STALE,
                since: "2.2.12",
                group: "server",
                complexity: "O(N) where N is the number of entries returned",
                summary: "Answers the latest slow commands.",
                arguments: &[integer("count").optional()],
                tips: &["request_policy:all_nodes", "nondeterministic_output"],
                history: &[("4.0.0", "Entries have the client's address and name.")],
                ..Command::DEFAULT
            },
            Command {
                name: "len",
                run: len,
                arity: 2,
                flags: ADMIN | LOADING | STALE,
                since: "2.2.12",
                group: "server",
                complexity: "O(1)",
                summary: "Answers how many slow commands are remembered.",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
                ..Command::DEFAULT
            },
            Command {
                name: "reset",
                run: reset,
                arity: 2,
                flags: ADMIN | LOADING | STALE,
                since: "2.2.12",
                group: "server",
                complexity: "O(N) where N is the number of entries in the slowlog",
                summary: "Forgets the slow commands.",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                ..Command::DEFAULT
            },
            Command { run: help, since: "6.2.0", group: "server", ..HELP_ENTRY },
        ],
        ..Command::DEFAULT
    },
    Command {
        name: "commandlog",
        arity: -2,
        since: "8.1.0",
        group: "server",
        complexity: "Depends on subcommand",
        summary: "Commands about the logs of slow commands, large requests and large replies.",
        subcommands: &[
            Command {
                name: "get",
                run: entries_of,
                arity: 4,
                flags: ADMIN | LOADING | STALE,
                since: "8.1.0",
                group: "server",
                complexity: "O(N) where N is the number of entries returned",
                summary: "Answers the latest commands of a log.",
                arguments: &[integer("count"), string("type")],
                tips: &["request_policy:all_nodes", "nondeterministic_output"],
                ..Command::DEFAULT
            },
            Command {
                name: "len",
                run: len_of,
                arity: 3,
                flags: ADMIN | LOADING | STALE,
                since: "8.1.0",
                group: "server",
                complexity: "O(1)",
                summary: "Answers how many commands a log remembers.",
                arguments: &[string("type")],
                tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
                ..Command::DEFAULT
            },
            Command {
                name: "reset",
                run: reset_of,
                arity: 3,
                flags: ADMIN | LOADING | STALE,
                since: "8.1.0",
                group: "server",
                complexity: "O(N) where N is the number of entries in the log",
                summary: "Forgets the commands of a log.",
                arguments: &[string("type")],
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                ..Command::DEFAULT
            },
            Command { run: help_kinds, since: "8.1.0", group: "server", ..HELP_ENTRY },
        ],
        ..Command::DEFAULT
    },
];

/// How many GET answers unless told.
const USUAL: usize = 10;

fn get(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => USUAL,
        3 => count_of(args)?,
        _ => return Err(wrong_arguments(args).into()),
    };
    answer(exec, Kind::Slow, count)
}

/// Argument 2 as the number of entries that are asked for.
fn count_of(args: &Args<'_>) -> Result<usize, ReplyError> {
    match args.int(2) {
        Ok(-1) => Ok(usize::MAX),
        Ok(count @ 0..) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        _ => Err(error("ERR count should be greater than or equal to -1")),
    }
}

/// The log that argument `i` names.
fn kind_of(args: &Args<'_>, i: usize) -> Result<Kind, ReplyError> {
    [("slow", Kind::Slow), ("large-request", Kind::LargeRequest), ("large-reply", Kind::LargeReply)]
        .into_iter()
        .find_map(|(word, kind)| args.is(i, word).then_some(kind))
        .ok_or(error("ERR type should be one of the following: slow, large-request, large-reply"))
}

fn answer(exec: &mut Exec<'_>, kind: Kind, count: usize) -> Outcome {
    let log = exec.shared.command_logs.of(kind);
    let newest = log.newest(count);
    let mut reply = exec.reply.put();
    reply.array(newest.len());
    for slow in newest {
        reply.array(6);
        reply.integer(slow.id.cast_signed());
        reply.integer(slow.at_s);
        reply.integer(i64::try_from(slow.amount).unwrap_or(i64::MAX));
        reply.array(slow.args.len());
        slow.args.iter().for_each(|word| reply.bulk(word));
        reply.bulk_str(&slow.client.0);
        reply.bulk_str(&slow.client.1);
    }
    Ok(())
}

fn len(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let len = exec.shared.command_logs.of(Kind::Slow).len();
    exec.reply.put().count(len);
    Ok(())
}

fn reset(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.shared.command_logs.of(Kind::Slow).clear();
    exec.reply.put().ok();
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "GET [<count>]",
    "    The latest slow commands, 10 unless told, -1 for all. Each is",
    "    number, time, microseconds, arguments, the client's address and name.",
    "LEN",
    "    How many are remembered.",
    "RESET",
    "    Forget them.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "SLOWLOG", HELP)
}

fn entries_of(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = count_of(args)?;
    answer(exec, kind_of(args, 3)?, count)
}

fn len_of(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let len = exec.shared.command_logs.of(kind_of(args, 2)?).len();
    exec.reply.put().count(len);
    Ok(())
}

fn reset_of(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    exec.shared.command_logs.of(kind_of(args, 2)?).clear();
    exec.reply.put().ok();
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP_KINDS: &[&str] = &[
    "GET <count> <type>",
    "    The latest commands of a log: slow, large-request or large-reply; -1",
    "    for all. Each is number, time, microseconds or bytes, arguments, the",
    "    client's address and name.",
    "LEN <type>",
    "    How many are remembered.",
    "RESET <type>",
    "    Forget them.",
];

fn help_kinds(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "COMMANDLOG", HELP_KINDS)
}
