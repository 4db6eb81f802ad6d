//! COMMAND DOCS: a command's documentation as a map.

use super::describe::names;
use crate::args::Args;
use crate::command::{Argument, Entry, flag};
use crate::exec::{Exec, Outcome};

pub fn docs(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let table = exec.commands();
    let wanted: Vec<&Entry> = match args.len() {
        2 => table.entries().iter().collect(),
        _ => args.rest(2).filter_map(|name| table.find_full(name)).collect(),
    };
    exec.reply.put().map(wanted.len());
    for entry in wanted {
        exec.reply.put().bulk_str(&entry.full_name);
        document(exec, entry);
    }
    Ok(())
}

const DEPRECATED: u32 = 1;
const SYSCMD: u32 = 2;

fn document(exec: &mut Exec<'_>, entry: &Entry) {
    let command = entry.command;
    let mut doc_flags = if command.deprecated.is_some() { DEPRECATED } else { 0 };
    if command.flags & flag::SYSCMD != 0 {
        doc_flags |= SYSCMD;
    }
    let (deprecated_since, replaced_by) = command.deprecated.unwrap_or_default();
    let group = command.group.replace('_', "-");
    let texts = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", group.as_str()),
        ("complexity", command.complexity),
    ];
    let late = [("deprecated_since", deprecated_since), ("replaced_by", replaced_by)];
    let lists =
        [doc_flags != 0, !command.history.is_empty(), !command.arguments.is_empty(), !entry.subcommands.is_empty()];
    let filled = texts.iter().chain(&late).filter(|(_, text)| !text.is_empty()).count();
    exec.reply.put().map(filled + lists.iter().filter(|there| **there).count());
    put_texts(exec, &texts);
    if doc_flags != 0 {
        exec.reply.put().bulk_str("doc_flags");
        names(exec, doc_flags, &[(DEPRECATED, "deprecated"), (SYSCMD, "syscmd")]);
    }
    put_texts(exec, &late);
    if !command.history.is_empty() {
        exec.reply.put().bulk_str("history");
        exec.reply.put().set(command.history.len());
        for (version, change) in command.history {
            exec.reply.put().array(2);
            exec.reply.put().bulk_str(version);
            exec.reply.put().bulk_str(change);
        }
    }
    if !command.arguments.is_empty() {
        exec.reply.put().bulk_str("arguments");
        arguments(exec, command.arguments);
    }
    if !entry.subcommands.is_empty() {
        exec.reply.put().bulk_str("subcommands");
        exec.reply.put().map(entry.subcommands.len());
        for sub in &entry.subcommands {
            exec.reply.put().bulk_str(&sub.full_name);
            document(exec, sub);
        }
    }
}

fn put_texts(exec: &mut Exec<'_>, texts: &[(&str, &str)]) {
    for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        exec.reply.put().bulk_str(name);
        exec.reply.put().bulk_str(text);
    }
}

fn arguments(exec: &mut Exec<'_>, list: &[Argument]) {
    exec.reply.put().array(list.len());
    for argument in list {
        let nested = matches!(argument.kind, "oneof" | "block");
        let shown = match (nested, argument.shown) {
            (true, _) => "",
            (false, "") => argument.name,
            (false, shown) => shown,
        };
        let early = [("name", argument.name), ("type", argument.kind), ("display_text", shown)];
        let late = [("token", argument.token), ("since", argument.since), ("deprecated_since", argument.deprecated)];
        let filled = early.iter().chain(&late).filter(|(_, text)| !text.is_empty()).count();
        let more = [argument.key_spec.is_some(), argument.flags != 0, nested];
        exec.reply.put().map(filled + more.iter().filter(|there| **there).count());
        put_texts(exec, &early);
        if let Some(spec) = argument.key_spec {
            exec.reply.put().bulk_str("key_spec_index");
            exec.reply.put().count(spec);
        }
        put_texts(exec, &late);
        if argument.flags != 0 {
            exec.reply.put().bulk_str("flags");
            let bits = [
                (u32::from(Argument::OPTIONAL), "optional"),
                (u32::from(Argument::MULTIPLE), "multiple"),
                (u32::from(Argument::MULTIPLE_TOKEN), "multiple_token"),
            ];
            names(exec, u32::from(argument.flags), &bits);
        }
        if nested {
            exec.reply.put().bulk_str("arguments");
            arguments(exec, argument.parts);
        }
    }
}
