//! SLOWLOG: the slow commands that are remembered.

use crate::args::Args;
use crate::arguments::integer;
use crate::command::{Command, flag::*};
use crate::commands::help::help as help_lines;
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Outcome};

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
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
        Command {
            name: "help",
            run: help,
            arity: 2,
            flags: LOADING | STALE,
            since: "6.2.0",
            group: "server",
            complexity: "O(1)",
            summary: "Explains the subcommands.",
            ..Command::DEFAULT
        },
    ],
    ..Command::DEFAULT
}];

/// How many GET answers unless told.
const USUAL: usize = 10;

fn get(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => USUAL,
        3 => match args.int(2) {
            Ok(-1) => usize::MAX,
            Ok(count @ 0..) => usize::try_from(count).unwrap_or(usize::MAX),
            _ => return Err("ERR count should be greater than or equal to -1".into()),
        },
        _ => return Err(wrong_arguments(args).into()),
    };
    let log = exec.shared.slowlog.lock().expect("the slow log does not panic");
    let newest = log.newest(count);
    let mut reply = exec.reply.put();
    reply.array(newest.len());
    for slow in newest {
        reply.array(6);
        reply.integer(slow.id.cast_signed());
        reply.integer(slow.at_s);
        reply.integer(i64::try_from(slow.micros).unwrap_or(i64::MAX));
        reply.array(slow.args.len());
        slow.args.iter().for_each(|word| reply.bulk(word));
        reply.bulk_str(&slow.client.0);
        reply.bulk_str(&slow.client.1);
    }
    Ok(())
}

fn len(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let len = exec.shared.slowlog.lock().expect("the slow log does not panic").len();
    exec.reply.put().count(len);
    Ok(())
}

fn reset(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.shared.slowlog.lock().expect("the slow log does not panic").clear();
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
