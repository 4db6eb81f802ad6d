//! The sample file and the reference.

use super::{Scratch, config, loaded};
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
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.split(' ').next().is_some_and(|name| Id::find(name).is_some_and(|id| id.directive().name == name)))
        .filter(|line| line.contains(' ') && !line.ends_with('.'))
        .map(str::to_owned)
        .collect();
    assert!(lines.len() > 80, "{}", lines.len());
    let file = scratch.write("all.conf", lines.join("\n"));
    assert_eq!(config(&[&file]).changes_since(&Config::default()), []);
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
