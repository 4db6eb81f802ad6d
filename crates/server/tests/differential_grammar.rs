//! The differential test's grammar against the command table: what can be compared with the oracle is drawn.
//!
//! A command of the data model that `tests/differential` does not draw is listed in `absent.txt` with a reason, and nothing
//! is listed there that is drawn, or that is no command.

use gimmal_server::commands;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const GRAMMAR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/differential");

/// Groups of the command table that are the data model.
const GROUPS: [&str; 11] = [
    "string",
    "hash",
    "list",
    "set",
    "sorted_set",
    "stream",
    "geo",
    "hyperloglog",
    "bitmap",
    "generic",
    "transactions",
];

/// The words of all commands in the grammar by the command's name, small.
fn drawn() -> BTreeMap<String, BTreeSet<String>> {
    let mut drawn: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in std::fs::read_dir(GRAMMAR).expect("the grammar is there") {
        let path = file.expect("a file").path();
        if ["known", "absent"].iter().any(|name| path.file_stem().is_some_and(|stem| stem == *name)) {
            continue;
        }
        for line in std::fs::read_to_string(&path).expect("a text").lines() {
            let line = line
                .split_once(": ")
                .filter(|(weight, _)| weight.parse::<u32>().is_ok())
                .map_or(line, |(_, rest)| rest);
            let mut words = line.split([' ', '(', ')', '|', '[', ']']).filter(|word| !word.is_empty());
            if let Some(name) = words.next().filter(|name| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')) {
                drawn.entry(name.to_ascii_lowercase()).or_default().extend(words.map(str::to_ascii_lowercase));
            }
        }
    }
    // A step of its own: what one server dumps, the other restores.
    assert!(drawn.contains_key("carry"));
    drawn
}

/// The commands that are not drawn, by full name.
fn absent() -> BTreeSet<String> {
    let text = std::fs::read_to_string(Path::new(GRAMMAR).join("absent.txt")).expect("the list");
    let (mut absent, mut has_reason) = (BTreeSet::new(), false);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("== ") {
            Some(reason) => has_reason = !reason.is_empty(),
            None => {
                assert!(has_reason, "{line} without a reason");
                for name in line.split(' ') {
                    assert!(absent.insert(name.to_ascii_lowercase()), "{name} is listed twice");
                }
            }
        }
    }
    absent
}

#[test]
fn every_command_of_the_data_model_is_drawn_or_listed() {
    let (drawn, mut absent) = (drawn(), absent());
    let table = commands::table();
    let (mut missing, mut both, mut found) = (Vec::new(), Vec::new(), 0);
    for entry in table.entries().iter().filter(|entry| GROUPS.contains(&entry.command.group)) {
        let words = drawn.get(&entry.full_name);
        let mut judge = |name: &str, is_drawn: bool| match (is_drawn, absent.remove(name)) {
            (true, true) => both.push(name.to_owned()),
            (false, false) => missing.push(name.to_owned()),
            (true, false) => found += 1,
            (false, true) => {}
        };
        if entry.subcommands.is_empty() {
            judge(&entry.full_name, words.is_some());
        }
        for subcommand in &entry.subcommands {
            judge(&subcommand.full_name, words.is_some_and(|words| words.contains(subcommand.command.name)));
        }
    }
    assert!(missing.is_empty(), "neither drawn nor listed in absent.txt: {missing:?}");
    assert!(both.is_empty(), "drawn, though listed in absent.txt: {both:?}");
    assert!(absent.is_empty(), "listed in absent.txt, but no command of the data model: {absent:?}");
    assert!(found > 150, "{found} commands are drawn");
}
