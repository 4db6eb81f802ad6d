//! The joined command table against the definitions of Valkey, where these are at hand: arity, flags, ACL categories, key
//! specs, tips, history, deprecation and argument trees of every command that is here.
//!
//! Words (summaries, notes) are this project's own and not compared. The definitions are looked for beside the repository,
//! or where `COMMAND_DEFINITIONS` says; without them the test says that it was not run.

use gimmal_server::command::{Argument, Begin, Command, Entry, Find, KeySpec, acl, flag, keyflag};
use gimmal_server::commands;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::path::Path;

const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/commands");

/// Commands that are newer than the definitions.
const NEWER: [&str; 23] = [
    "xdelex",
    "xackdel",
    "hexpire",
    "hpexpire",
    "hexpireat",
    "hpexpireat",
    "httl",
    "hpttl",
    "hexpiretime",
    "hpexpiretime",
    "hpersist",
    "hgetex",
    "hsetex",
    "hgetdel",
    "msetex",
    "delifeq",
    "delex",
    "digest",
    "commandlog",
    "commandlog|get",
    "commandlog|len",
    "commandlog|reset",
    "commandlog|help",
];

/// Arguments of later versions that the definitions have all the same.
const BACKPORTED: [&str; 1] = ["CANCEL"];

/// Whether a version came after the definitions (Valkey 8.0): what it added is not compared.
fn is_newer(version: &str) -> bool {
    let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    parts.as_slice() >= [8, 1].as_slice()
}

/// Definitions by full name (`config|get`).
fn definitions(directory: &Path) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for file in std::fs::read_dir(directory).expect("the definitions can be listed") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("a definition");
        let Value::Object(whole) = serde_json::from_str(&text).expect("JSON") else { panic!("an object per file") };
        for (name, definition) in whole {
            let name = match text_of(&definition, "container") {
                "" => name.to_lowercase(),
                container => format!("{container}|{name}").to_lowercase(),
            };
            all.insert(name, definition);
        }
    }
    all
}

#[test]
fn declarations_equal_the_definitions() {
    let named = std::env::var("COMMAND_DEFINITIONS").ok();
    let directory = Path::new(named.as_deref().unwrap_or(DEFINITIONS));
    if !directory.is_dir() {
        assert!(named.is_none(), "COMMAND_DEFINITIONS names no directory");
        say(&format!("not run: no command definitions at {DEFINITIONS}"));
        return;
    }
    let definitions = definitions(directory);
    assert!(definitions.len() > 300, "{} definitions", definitions.len());
    let table = commands::table();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for entry in table.entries().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands)) {
        match definitions.get(&entry.full_name) {
            Some(definition) => {
                compared += 1;
                compare(entry, definition, &mut wrong);
            }
            None if NEWER.contains(&entry.full_name.as_str()) => {}
            None => wrong.push(format!("{}: there is no such definition", entry.full_name)),
        }
    }
    say(&format!("{compared} of {} definitions compared", definitions.len()));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Says something even when the test passes: only the printing macros are caught.
fn say(text: &str) {
    writeln!(std::io::stderr(), "command_table: {text}").expect("standard error takes a line");
}

fn compare(entry: &Entry, definition: &Value, wrong: &mut Vec<String>) {
    let command = entry.command;
    let mut check = |what: &str, ours: &dyn Debug, theirs: &dyn Debug| {
        let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
        if ours != theirs {
            wrong.push(format!("{}: {what}: {ours}, defined as {theirs}", entry.full_name));
        }
    };
    check("arity", &i64::from(command.arity), &definition["arity"].as_i64().expect("an arity"));
    check("flags", &flag_names(command), &defined_flags(definition));
    check("ACL categories", &category_names(command.categories()), &defined_categories(command, definition));
    check("since", &command.since, &text_of(definition, "since"));
    check("group", &command.group, &text_of(definition, "group"));
    let theirs: Vec<String> = list(definition, "key_specs").map(defined_key_spec).collect();
    check("key specs", &command.keys.iter().map(key_spec).collect::<Vec<_>>(), &theirs);
    let theirs: Vec<String> = words(definition, "command_tips").map(str::to_lowercase).collect();
    check("tips", &command.tips, &theirs);
    let theirs: Vec<&str> = list(definition, "history").map(|change| change[0].as_str().expect("a version")).collect();
    let versions = command.history.iter().map(|(version, _)| *version);
    let ours = versions.filter(|version| !is_newer(version) || theirs.contains(version));
    check("history", &ours.collect::<Vec<_>>(), &theirs);
    let deprecated = command.deprecated.map_or("", |(since, _)| since);
    check("deprecated", &deprecated, &text_of(definition, "deprecated_since"));
    let theirs: Vec<String> = list(definition, "arguments").map(defined_argument).collect();
    check("arguments", &arguments(command.arguments), &theirs);
}

fn text_of<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn words<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v str> {
    list(value, name).map(|word| word.as_str().expect("a word"))
}

/// Every flag of the definitions by its bit; those of Sentinel do not concern this server.
const FLAGS: [(u32, &str); 22] = [
    (flag::WRITE, "WRITE"),
    (flag::READONLY, "READONLY"),
    (flag::DENYOOM, "DENYOOM"),
    (flag::ADMIN, "ADMIN"),
    (flag::PUBSUB, "PUBSUB"),
    (flag::NOSCRIPT, "NOSCRIPT"),
    (flag::BLOCKING, "BLOCKING"),
    (flag::LOADING, "LOADING"),
    (flag::STALE, "STALE"),
    (flag::SKIP_MONITOR, "SKIP_MONITOR"),
    (flag::SKIP_SLOWLOG, "SKIP_SLOWLOG"),
    (flag::ASKING, "ASKING"),
    (flag::FAST, "FAST"),
    (flag::NO_AUTH, "NO_AUTH"),
    (flag::MAY_REPLICATE, "MAY_REPLICATE"),
    (flag::NO_MANDATORY_KEYS, "NO_MANDATORY_KEYS"),
    (flag::PROTECTED, "PROTECTED"),
    (flag::NO_ASYNC_LOADING, "NO_ASYNC_LOADING"),
    (flag::NO_MULTI, "NO_MULTI"),
    (flag::ALLOW_BUSY, "ALLOW_BUSY"),
    (flag::TOUCHES_ARBITRARY_KEYS, "TOUCHES_ARBITRARY_KEYS"),
    (flag::SYSCMD, "SYSCMD"),
];

fn flag_names(command: &Command) -> Vec<&'static str> {
    let mut names: Vec<_> = FLAGS.iter().filter(|(bit, _)| command.flags & bit != 0).map(|(_, name)| *name).collect();
    names.sort_unstable();
    names
}

fn defined_flags(definition: &Value) -> Vec<&str> {
    let document = words(definition, "doc_flags").filter(|word| *word == "SYSCMD");
    let mut names: Vec<_> = words(definition, "command_flags").chain(document).collect();
    names.retain(|name| !name.ends_with("SENTINEL"));
    names.sort_unstable();
    names
}

fn category_names(bits: u32) -> Vec<String> {
    let mut names: Vec<_> =
        acl::NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name.to_uppercase()).collect();
    names.sort_unstable();
    names
}

/// The categories that a definition names, and those that its flags imply.
fn defined_categories(command: &Command, definition: &Value) -> Vec<String> {
    let mut names: Vec<String> = words(definition, "acl_categories").map(str::to_owned).collect();
    let flags: Vec<&str> = words(definition, "command_flags").collect();
    let scripting = names.iter().any(|name| name == "SCRIPTING");
    for (flag, implied) in [
        ("WRITE", "WRITE"),
        ("ADMIN", "ADMIN"),
        ("ADMIN", "DANGEROUS"),
        ("PUBSUB", "PUBSUB"),
        ("BLOCKING", "BLOCKING"),
        ("FAST", "FAST"),
    ] {
        if flags.contains(&flag) {
            names.push(implied.into());
        }
    }
    if flags.contains(&"READONLY") && !scripting {
        names.push("READ".into());
    }
    if !flags.contains(&"FAST") {
        names.push("SLOW".into());
    }
    names.sort_unstable();
    names.dedup();
    assert!(command.arity != 0, "no command has this arity");
    names
}

fn key_flag_names(bits: u32) -> Vec<String> {
    let names = keyflag::NAMES.iter().filter(|(bit, _)| bits & bit != 0);
    let mut names: Vec<String> = names.map(|(_, name)| name.to_uppercase()).collect();
    names.sort_unstable();
    names
}

fn key_spec(spec: &KeySpec) -> String {
    let begin = match spec.begin {
        Begin::Index(at) => format!("index {at}"),
        Begin::Keyword(word, from) => format!("keyword {word} from {from}"),
        Begin::Unknown => "unknown".into(),
    };
    let find = match spec.find {
        Find::Range { last, step, limit } => format!("range {last} {step} {limit}"),
        Find::KeyNum { at, first, step } => format!("keynum {at} {first} {step}"),
        Find::Unknown => "unknown".into(),
    };
    format!("{:?} begin {begin} find {find}", key_flag_names(spec.flags))
}

fn defined_key_spec(spec: &Value) -> String {
    let mut flags: Vec<&str> = words(spec, "flags").collect();
    flags.sort_unstable();
    let (begin, find) = (&spec["begin_search"], &spec["find_keys"]);
    let begin = match (begin.get("index"), begin.get("keyword")) {
        (Some(index), _) => format!("index {}", index["pos"]),
        (_, Some(word)) => format!("keyword {} from {}", text_of(word, "keyword"), word["startfrom"]),
        _ => "unknown".into(),
    };
    let find = match (find.get("range"), find.get("keynum")) {
        (Some(range), _) => format!("range {} {} {}", range["lastkey"], range["step"], range["limit"]),
        (_, Some(count)) => format!("keynum {} {} {}", count["keynumidx"], count["firstkey"], count["step"]),
        _ => "unknown".into(),
    };
    format!("{flags:?} begin {begin} find {find}")
}

fn arguments(list: &[Argument]) -> Vec<String> {
    let is_defined = |argument: &&Argument| !is_newer(argument.since) || BACKPORTED.contains(&argument.token);
    list.iter().filter(is_defined).map(argument).collect()
}

fn argument(argument: &Argument) -> String {
    let flags = [
        (Argument::OPTIONAL, " optional"),
        (Argument::MULTIPLE, " multiple"),
        (Argument::MULTIPLE_TOKEN, " multiple_token"),
    ];
    let flags: String = flags.iter().filter(|(bit, _)| argument.flags & bit != 0).map(|(_, name)| *name).collect();
    let spec = argument.key_spec.map_or(String::new(), |spec| format!(" spec {spec}"));
    let parts = arguments(argument.parts);
    let Argument { name, kind, token, since, deprecated, .. } = argument;
    format!("{name} {kind} {token:?}{flags}{spec} {since:?} {deprecated:?} {parts:?}")
}

fn defined_argument(argument: &Value) -> String {
    let flags = ["optional", "multiple", "multiple_token"];
    let flags = flags.iter().filter(|name| argument.get(**name).is_some_and(|on| on == true || on == "true"));
    let flags: String = flags.map(|name| format!(" {name}")).collect();
    let spec = argument.get("key_spec_index").map_or(String::new(), |spec| format!(" spec {spec}"));
    let parts: Vec<String> = list(argument, "arguments").map(defined_argument).collect();
    let text = |name| text_of(argument, name);
    let token = text("token");
    format!(
        "{} {} {token:?}{flags}{spec} {:?} {:?} {parts:?}",
        text("name"),
        text("type"),
        text("since"),
        text("deprecated_since")
    )
}

/// What every declaration must have, whoever defined the command.
#[test]
fn declarations_are_complete() {
    let table = commands::table();
    for entry in table.entries().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands)) {
        let (name, command) = (&entry.full_name, entry.command);
        assert!(command.arity != 0, "{name}: no arity");
        assert!(command.name.bytes().all(|b| b.is_ascii_lowercase() || b"-_0123456789".contains(&b)), "{name}");
        assert!(command.summary.ends_with('.') && command.summary.len() > 10, "{name}: {:?}", command.summary);
        assert!(!command.group.is_empty() && command.since.split('.').count() == 3, "{name}");
        assert!(command.subcommands.is_empty() || command.arity < 0, "{name}: a container takes more arguments");
        let keys = command.arguments.iter().filter(|argument| argument.kind == "key");
        for key in keys {
            assert!(key.key_spec.is_some_and(|spec| spec < command.keys.len()), "{name}: {} has no spec", key.name);
        }
        for sub in &entry.subcommands {
            assert!(sub.subcommands.is_empty(), "{}: two levels of subcommands", sub.full_name);
        }
        let help = entry.subcommands.iter().any(|sub| sub.command.name == "help");
        assert!(entry.subcommands.is_empty() || help, "{name} has no HELP");
    }
}
