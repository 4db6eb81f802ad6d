//! FUNCTION and SCRIPT of a server that runs none: what is asked about them is answered, what would load them is unknown.

use crate::args::Args;
use crate::arguments::{one_of, string, word};
use crate::command::{Command, acl, flag::*};
use crate::commands::help::{HELP_ENTRY, help};
use crate::dispatch::{echoed, wrong_arguments};
use crate::exec::{Exec, Outcome};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "function",
        arity: -2,
        since: "7.0.0",
        group: "scripting",
        complexity: "Depends on subcommand",
        summary: "Commands about libraries of functions.",
        subcommands: &[
            Command {
                name: "flush",
                run: function_flush,
                arity: -2,
                flags: NOSCRIPT | WRITE,
                acl: acl::SCRIPTING,
                since: "7.0.0",
                group: "scripting",
                complexity: "O(N) where N is the number of functions deleted",
                summary: "Deletes every library.",
                arguments: &[one_of("flush-type", &[word("async", "ASYNC"), word("sync", "SYNC")]).optional()],
                tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
                ..Command::DEFAULT
            },
            Command {
                name: "list",
                run: function_list,
                arity: -2,
                flags: NOSCRIPT,
                acl: acl::SCRIPTING,
                since: "7.0.0",
                group: "scripting",
                complexity: "O(N) where N is the number of functions",
                summary: "Answers the libraries.",
                arguments: &[
                    string("library-name-pattern").after("LIBRARYNAME").optional(),
                    word("withcode", "WITHCODE").optional(),
                ],
                tips: &["nondeterministic_output_order"],
                ..Command::DEFAULT
            },
            Command {
                name: "stats",
                run: function_stats,
                arity: 2,
                flags: NOSCRIPT | ALLOW_BUSY,
                acl: acl::SCRIPTING,
                since: "7.0.0",
                group: "scripting",
                complexity: "O(1)",
                summary: "Answers what function runs, and how many there are.",
                tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
                ..Command::DEFAULT
            },
            Command { run: function_help, acl: acl::SCRIPTING, since: "7.0.0", group: "scripting", ..HELP_ENTRY },
        ],
        ..Command::DEFAULT
    },
    Command {
        name: "script",
        arity: -2,
        since: "2.6.0",
        group: "scripting",
        complexity: "Depends on subcommand",
        summary: "Commands about cached scripts.",
        subcommands: &[
            Command {
                name: "flush",
                run: script_flush,
                arity: -2,
                flags: NOSCRIPT,
                acl: acl::SCRIPTING,
                since: "2.6.0",
                group: "scripting",
                complexity: "O(N) with N being the number of scripts in cache",
                summary: "Forgets the cached scripts.",
                arguments: &[one_of("flush-type", &[word("async", "ASYNC"), word("sync", "SYNC")])
                    .optional()
                    .since("6.2.0")],
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                history: &[("6.2.0", "`ASYNC` and `SYNC`.")],
                ..Command::DEFAULT
            },
            Command {
                name: "exists",
                run: script_exists,
                arity: -3,
                flags: NOSCRIPT,
                acl: acl::SCRIPTING,
                since: "2.6.0",
                group: "scripting",
                complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation)",
                summary: "Answers which scripts are cached.",
                arguments: &[string("sha1").many()],
                tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
                ..Command::DEFAULT
            },
            Command { run: script_help, acl: acl::SCRIPTING, since: "5.0.0", group: "scripting", ..HELP_ENTRY },
        ],
        ..Command::DEFAULT
    },
];

/// Nothing is there to be flushed, but how it was asked for must be right.
fn flush(exec: &mut Exec<'_>, args: &Args<'_>, wrong_mode: &'static str) -> Outcome {
    match args.len() {
        2 => {}
        3 if args.is(2, "async") || args.is(2, "sync") => {}
        4.. if args.is(0, "function") => return Err(wrong_arguments(args).into()),
        _ => return Err(wrong_mode.into()),
    }
    exec.reply.put().ok();
    Ok(())
}

fn function_flush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    flush(exec, args, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
}

fn function_list(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut i = 2;
    while i < args.len() {
        if args.is(i, "withcode") {
            i += 1;
        } else if args.is(i, "libraryname") && i + 1 < args.len() {
            i += 2;
        } else if args.is(i, "libraryname") {
            return Err("ERR library name argument was not given".into());
        } else {
            return Err(format!("ERR Unknown argument {}", echoed(args.at(i))).into());
        }
    }
    exec.reply.put().array(0);
    Ok(())
}

fn function_stats(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let mut reply = exec.reply.put();
    reply.map(2);
    reply.bulk_str("running_script");
    reply.null();
    reply.bulk_str("engines");
    reply.map(0);
    Ok(())
}

fn function_help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    #[rustfmt::skip] // a heading and its explanation, line by line
    let lines = [
        "FLUSH [ASYNC|SYNC]",
        "    Delete every library.",
        "LIST [LIBRARYNAME <glob>] [WITHCODE]",
        "    The libraries.",
        "STATS",
        "    What function runs, and how many there are.",
    ];
    help(exec, "FUNCTION", &lines)
}

fn script_flush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    flush(exec, args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")
}

fn script_exists(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    exec.reply.put().array(args.len() - 2);
    for _ in 2..args.len() {
        exec.reply.put().integer(0);
    }
    Ok(())
}

fn script_help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    #[rustfmt::skip] // a heading and its explanation, line by line
    let lines = [
        "EXISTS <sha1> [<sha1> ...]",
        "    Which scripts are cached.",
        "FLUSH [ASYNC|SYNC]",
        "    Forget the cached scripts.",
    ];
    help(exec, "SCRIPT", &lines)
}
