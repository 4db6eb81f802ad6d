//! ACL, as far as there is one user: the default one, who may do everything once it is let in.

use crate::args::Args;
use crate::arguments::string;
use crate::command::{Command, Entry, acl, flag::*};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::dispatch::echoed;
use crate::exec::{Exec, Outcome};
use sha2::{Digest, Sha256};

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "acl",
    arity: -2,
    since: "6.0.0",
    group: "server",
    complexity: "Depends on subcommand",
    summary: "Commands about users and what they may do.",
    subcommands: &[
        Command {
            name: "whoami",
            run: whoami,
            arity: 2,
            flags: NOSCRIPT | LOADING | STALE,
            since: "6.0.0",
            group: "server",
            complexity: "O(1)",
            summary: "Answers the name of the connection's user.",
            ..Command::DEFAULT
        },
        Command {
            name: "cat",
            run: cat,
            arity: -2,
            flags: NOSCRIPT | LOADING | STALE,
            since: "6.0.0",
            group: "server",
            complexity: "O(1) since the categories and commands are a fixed set",
            summary: "Answers the categories, or the commands of one.",
            arguments: &[string("category").optional()],
            ..Command::DEFAULT
        },
        Command {
            name: "users",
            run: users,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "6.0.0",
            group: "server",
            complexity: "O(N). Where N is the number of configured users",
            summary: "Answers the names of the users.",
            ..Command::DEFAULT
        },
        Command {
            name: "list",
            run: list,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "6.0.0",
            group: "server",
            complexity: "O(N). Where N is the number of configured users",
            summary: "Answers the rules of every user.",
            ..Command::DEFAULT
        },
        Command {
            name: "getuser",
            run: getuser,
            arity: 3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "6.0.0",
            group: "server",
            complexity: "O(N). Where N is the number of password, command and pattern rules that the user has",
            summary: "Answers the rules of one user.",
            arguments: &[string("username")],
            history: &[("6.2.0", "Channels."), ("7.0.0", "Selectors; keys and channels are shown as rules.")],
            ..Command::DEFAULT
        },
        Command { run: help, since: "6.0.0", group: "server", ..HELP_ENTRY },
    ],
    ..Command::DEFAULT
}];

/// The default user's password as ACL rules show it: its SHA-256 in hexadecimal.
fn password_hash(exec: &Exec<'_>) -> Option<String> {
    let password = exec.local.config.requirepass();
    let hex = |digest: &[u8]| digest.iter().map(|byte| format!("{byte:02x}")).collect();
    (!password.is_empty()).then(|| hex(&Sha256::digest(password)))
}

fn whoami(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let user = exec.session.user();
    exec.reply.put().bulk_str(user);
    Ok(())
}

fn users(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().array(1);
    exec.reply.put().bulk_str("default");
    Ok(())
}

fn list(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let password = password_hash(exec).map_or("nopass".into(), |hash| format!("#{hash}"));
    exec.reply.put().array(1);
    exec.reply.put().bulk_str(&format!("user default on {password} ~* &* +@all"));
    Ok(())
}

fn getuser(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.at(2) != b"default" {
        exec.reply.put().null();
        return Ok(());
    }
    let password = password_hash(exec);
    let mut reply = exec.reply.put();
    reply.map(6);
    reply.bulk_str("flags");
    reply.set(if password.is_some() { 1 } else { 2 });
    reply.bulk_str("on");
    if password.is_none() {
        reply.bulk_str("nopass");
    }
    reply.bulk_str("passwords");
    reply.array(usize::from(password.is_some()));
    if let Some(hash) = password {
        reply.bulk_str(&hash);
    }
    for (name, rules) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk_str(name);
        reply.bulk_str(rules);
    }
    reply.bulk_str("selectors");
    reply.array(0);
    Ok(())
}

fn cat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() == 2 {
        exec.reply.put().array(acl::NAMES.len());
        for (_, name) in acl::NAMES {
            exec.reply.put().bulk_str(name);
        }
        return Ok(());
    }
    if args.len() > 3 {
        return Err(crate::dispatch::wrong_arguments(args).into());
    }
    let bit = acl::category(args.at(2)).ok_or_else(|| format!("ERR Unknown category '{}'", echoed(args.at(2))))?;
    let entries = exec.commands().entries().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands));
    let inside: Vec<&Entry> = entries.filter(|entry| entry.command.categories() & bit != 0).collect();
    exec.reply.put().array(inside.len());
    for entry in inside {
        exec.reply.put().bulk_str(&entry.full_name);
    }
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "CAT [<category>]",
    "    The categories of commands, or the commands of one.",
    "GETUSER <username>",
    "    What a user may do.",
    "LIST",
    "    Every user, as the rules that would make it.",
    "USERS",
    "    The names of the users.",
    "WHOAMI",
    "    The name of this connection's user.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "ACL", HELP)
}
