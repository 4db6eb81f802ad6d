//! COMMAND: what there is to know about commands, out of their declarations.

mod describe;
mod docs;
mod list;

use crate::args::Args;
use crate::arguments::{one_of, pattern, string};
use crate::command::{Command, Entry, acl, flag, flag::*, keyflag};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::exec::{Exec, Outcome};
use crate::keys;

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "command",
    run: all,
    arity: -1,
    flags: LOADING | STALE,
    acl: acl::CONNECTION,
    since: "2.8.13",
    group: "server",
    complexity: "O(N) where N is the total number of commands",
    summary: "Describes every command.",
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        Command {
            name: "count",
            run: count,
            arity: 2,
            flags: LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Answers how many commands there are.",
            ..Command::DEFAULT
        },
        Command {
            name: "info",
            run: describe::info,
            arity: -2,
            flags: LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.8.13",
            group: "server",
            complexity: "O(N) where N is the number of commands to look up",
            summary: "Describes commands: arity, flags, keys, categories.",
            arguments: &[string("command-name").optional().many()],
            tips: &["nondeterministic_output_order"],
            history: &[("7.0.0", "Without a name: every command.")],
            ..Command::DEFAULT
        },
        Command {
            name: "docs",
            run: docs::docs,
            arity: -2,
            flags: LOADING | STALE,
            acl: acl::CONNECTION,
            since: "7.0.0",
            group: "server",
            complexity: "O(N) where N is the number of commands to look up",
            summary: "Answers the documentation of commands.",
            arguments: &[string("command-name").optional().many()],
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "list",
            run: list::list,
            arity: -2,
            flags: LOADING | STALE,
            acl: acl::CONNECTION,
            since: "7.0.0",
            group: "server",
            complexity: "O(N) where N is the total number of commands",
            summary: "Answers the names of commands.",
            arguments: &[one_of(
                "filterby",
                &[
                    string("module-name").after("MODULE"),
                    string("category").after("ACLCAT"),
                    pattern("pattern").after("PATTERN"),
                ],
            )
            .after("FILTERBY")
            .optional()],
            tips: &["nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        Command {
            name: "getkeys",
            run: getkeys,
            arity: -3,
            flags: LOADING | STALE,
            acl: acl::CONNECTION,
            since: "2.8.13",
            group: "server",
            complexity: "O(N) where N is the number of arguments to the command",
            summary: "Finds the keys in a command.",
            arguments: &[string("command"), string("arg").optional().many()],
            ..Command::DEFAULT
        },
        Command {
            name: "getkeysandflags",
            run: getkeysandflags,
            arity: -3,
            flags: LOADING | STALE,
            acl: acl::CONNECTION,
            since: "7.0.0",
            group: "server",
            complexity: "O(N) where N is the number of arguments to the command",
            summary: "Finds the keys in a command, and what it would do to each.",
            arguments: &[string("command"), string("arg").optional().many()],
            ..Command::DEFAULT
        },
        Command { run: help, acl: acl::CONNECTION, since: "5.0.0", group: "server", ..HELP_ENTRY },
    ],
    ..Command::DEFAULT
}];

fn all(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    describe::all(exec);
    Ok(())
}

fn count(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let count = exec.commands().entries().len();
    exec.reply.put().count(count);
    Ok(())
}

fn getkeys(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer_keys(exec, &args.skip(2), false)
}

fn getkeysandflags(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer_keys(exec, &args.skip(2), true)
}

/// The keys of the command that `args` would be.
fn answer_keys(exec: &mut Exec<'_>, args: &Args<'_>, with_flags: bool) -> Outcome {
    let entry = looked_up(exec, args).ok_or("ERR Invalid command specified")?;
    if !keys::has_keys(entry.command) {
        return Err("ERR The command has no key arguments".into());
    }
    if !entry.command.accepts(args.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let optional = entry.command.flags & flag::NO_MANDATORY_KEYS != 0;
    let found = match keys::find(entry.command, args) {
        Some(found) if optional || !found.is_empty() => found,
        _ if optional => Vec::new(),
        _ => return Err("ERR Invalid arguments specified for command".into()),
    };
    exec.reply.put().array(found.len());
    for (at, flags) in found {
        if with_flags {
            exec.reply.put().array(2);
        }
        exec.reply.put().bulk(args.at(at));
        if with_flags {
            describe::names(exec, flags, keyflag::NAMES);
        }
    }
    Ok(())
}

fn looked_up<'a>(exec: &Exec<'a>, args: &Args<'_>) -> Option<&'a Entry> {
    let entry = exec.commands().find(args.at(0))?;
    match entry.subcommands.is_empty() || args.len() < 2 {
        true => Some(entry),
        false => entry.subcommand(args.at(1)),
    }
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "(no subcommand)",
    "    Every command with arity, flags, keys and categories.",
    "COUNT",
    "    How many commands there are.",
    "DOCS [<command-name> ...]",
    "    Documentation of these commands, or of every one.",
    "GETKEYS <full-command>",
    "    The keys in a command.",
    "GETKEYSANDFLAGS <full-command>",
    "    The keys in a command, and what it would do to each.",
    "INFO [<command-name> ...]",
    "    Arity, flags, keys and categories of these commands, or of every one.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <glob>)]",
    "    The names of commands.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "COMMAND", HELP)
}
