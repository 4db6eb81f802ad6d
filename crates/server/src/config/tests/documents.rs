//! The sample file and the reference.

use super::{Scratch, config, loaded};
use crate::config::directive::Effect;
use crate::config::{Config, Id, reference, sample};
use std::path::Path;

#[test]
fn the_sample_changes_nothing() {
    let scratch = Scratch::new();
    let file = scratch.write("gimmal.conf", sample());
    let loaded = loaded(&[&file]);
    assert_eq!(loaded.config.changes_since(&Config::default()), []);
    assert_eq!(loaded.notes, Vec::<String>::new());
}

#[test]
fn the_sample_names_every_directive_that_is_not_hidden() {
    let sample = sample();
    for id in Id::all() {
        let name = id.directive().name;
        let named = sample.lines().any(|line| line.trim_start_matches("# ").split(' ').next() == Some(name));
        assert_eq!(named, !id.directive().hidden, "{name}");
    }
}

#[test]
fn the_sample_loads_with_its_defaults_uncommented() {
    let scratch = Scratch::new();
    let lines: Vec<String> = sample()
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .filter(|line| {
            line.split(' ').next().is_some_and(|name| Id::find(name).is_some_and(|id| id.directive().name == name))
        })
        .filter(|line| line.contains(' ') && !line.ends_with('.'))
        .map(str::to_owned)
        .collect();
    // One line each, and three for the three classes of client-output-buffer-limit.
    assert_eq!(lines.len(), Id::all().filter(|id| !id.directive().hidden).count() + 2);
    let file = scratch.write("all.conf", lines.join("\n"));
    assert_eq!(config(&[&file]).changes_since(&Config::default()), []);
}

/// A directive that is said to work must be asked for by the server: a user who sets `appendonly yes` believes it.
#[test]
fn what_is_said_to_work_is_asked_for() {
    let mut sources = String::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    // The rule is due as soon as there is a server beside the configuration.
    if sources.is_empty() {
        eprintln!("NOT RUN: there is no server yet");
        return;
    }
    let works = |id: &Id| id.directive().effect == Effect::Works && id.directive().name != "enable-protected-configs";
    for id in Id::all().filter(works) {
        let name = id.directive().name;
        let (method, id) = (format!(".{}(", name.replace('-', "_")), format!("{name:?}"));
        assert!(
            sources.contains(&method) || sources.contains(&id),
            "{name}: nothing acts on it, so it is `.not_yet()`"
        );
    }
}

/// Adds the server's sources, without those of the configuration itself.
fn read_sources(directory: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(directory).expect("the sources") {
        let path = entry.expect("an entry").path();
        let own = ["config", "glob.rs", "lib.rs", "main.rs"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !own {
            read_sources(&path, sources);
        } else if !own {
            sources.push_str(&std::fs::read_to_string(&path).expect("UTF-8"));
        }
    }
}

/// The generated files are in the repository, so that they can be read there. To renew them, run this test with
/// `GIMMAL_GENERATE=1` in the environment.
#[test]
fn the_generated_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, text) in [("gimmal.conf", sample()), ("docs/configuration.md", reference())] {
        let path = root.join(name);
        if std::env::var_os("GIMMAL_GENERATE").is_some() {
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("docs");
            std::fs::write(&path, &text).expect("written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == text, "{name} is out of date; run this test with GIMMAL_GENERATE=1");
    }
}
