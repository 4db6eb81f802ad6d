//! COMMAND and COMMAND INFO: a command as ten elements.

use crate::args::Args;
use crate::command::{Begin, Entry, Find, KeySpec, acl, flag, keyflag};
use crate::exec::{Exec, Outcome};
use crate::keys;

pub fn info(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() == 2 {
        all(exec);
        return Ok(());
    }
    exec.reply.put().array(args.len() - 2);
    for name in args.rest(2) {
        match exec.commands().find_full(name) {
            Some(entry) => describe(exec, entry),
            None => exec.reply.put().null(),
        }
    }
    Ok(())
}

/// Every command.
pub fn all(exec: &mut Exec<'_>) {
    let entries = exec.commands().entries();
    exec.reply.put().array(entries.len());
    for entry in entries {
        describe(exec, entry);
    }
}

fn describe(exec: &mut Exec<'_>, entry: &Entry) {
    let command = entry.command;
    let (first, last, step) = keys::legacy_range(command);
    exec.reply.put().array(10);
    exec.reply.put().bulk_str(&entry.full_name);
    exec.reply.put().integer(i64::from(command.arity));
    let movable = if keys::are_movable(command) { flag::MOVABLE_KEYS } else { 0 };
    names(exec, command.flags | movable, flag::NAMES);
    for number in [first, last, step] {
        exec.reply.put().integer(number);
    }
    categories(exec, command.categories());
    exec.reply.put().set(command.tips.len());
    for tip in command.tips {
        exec.reply.put().bulk_str(tip);
    }
    exec.reply.put().set(command.keys.len());
    for spec in command.keys {
        key_spec(exec, spec);
    }
    // As in Redis, an array of them, but a set if there are none.
    match entry.subcommands.len() {
        0 => exec.reply.put().set(0),
        len => exec.reply.put().array(len),
    }
    for sub in &entry.subcommands {
        describe(exec, sub);
    }
}

/// The names of bits, as a set of status replies.
pub fn names(exec: &mut Exec<'_>, bits: u32, names: &[(u32, &str)]) {
    let set = || names.iter().filter(|(bit, _)| bits & bit != 0);
    exec.reply.put().set(set().count());
    for (_, name) in set() {
        exec.reply.put().simple(name);
    }
}

fn categories(exec: &mut Exec<'_>, bits: u32) {
    let set = || acl::NAMES.iter().filter(|(bit, _)| bits & bit != 0);
    exec.reply.put().set(set().count());
    for (_, name) in set() {
        exec.reply.put().simple(format!("@{name}"));
    }
}

fn key_spec(exec: &mut Exec<'_>, spec: &KeySpec) {
    exec.reply.put().map(if spec.notes.is_empty() { 3 } else { 4 });
    if !spec.notes.is_empty() {
        exec.reply.put().bulk_str("notes");
        exec.reply.put().bulk_str(spec.notes);
    }
    exec.reply.put().bulk_str("flags");
    names(exec, spec.flags, keyflag::NAMES);
    exec.reply.put().bulk_str("begin_search");
    match spec.begin {
        Begin::Index(at) => {
            part(exec, "index", 1);
            number(exec, "index", at);
        }
        Begin::Keyword(word, from) => {
            part(exec, "keyword", 2);
            exec.reply.put().bulk_str("keyword");
            exec.reply.put().bulk_str(word);
            exec.reply.put().bulk_str("startfrom");
            exec.reply.put().integer(i64::from(from));
        }
        Begin::Unknown => part(exec, "unknown", 0),
    }
    exec.reply.put().bulk_str("find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            part(exec, "range", 3);
            exec.reply.put().bulk_str("lastkey");
            exec.reply.put().integer(i64::from(last));
            number(exec, "keystep", step);
            number(exec, "limit", limit);
        }
        Find::KeyNum { at, first, step } => {
            part(exec, "keynum", 3);
            number(exec, "keynumidx", at);
            number(exec, "firstkey", first);
            number(exec, "keystep", step);
        }
        Find::Unknown => part(exec, "unknown", 0),
    }
}

/// The head of one half of a key spec: its type, and the map with its numbers, which follow.
fn part(exec: &mut Exec<'_>, kind: &str, numbers: usize) {
    let mut reply = exec.reply.put();
    reply.map(2);
    reply.bulk_str("type");
    reply.bulk_str(kind);
    reply.bulk_str("spec");
    reply.map(numbers);
}

fn number(exec: &mut Exec<'_>, name: &str, value: usize) {
    exec.reply.put().bulk_str(name);
    exec.reply.put().count(value);
}
