//! The sample configuration file and the reference, both generated from the table.

use super::directive::{Change, Directive, Effect, Form, Kind, Origin};
use super::table::SECTIONS;
use super::value::print_memory;
use super::words::quote;
use std::fmt::Write;

/// The text of `gimmal.conf`: every directive with its description and default. Directives without effect, and those with
/// nothing to say by default, are commented out.
pub fn sample() -> String {
    let mut text = String::from(SAMPLE_HEAD);
    for section in SECTIONS {
        let rule = "#".repeat(4);
        let _ = write!(text, "\n{rule} {} {rule}\n", section.title);
        for directive in section.directives.iter().filter(|directive| !directive.hidden) {
            text.push('\n');
            for line in wrap(&format!("{}{}", directive.doc, effect(directive)), 96) {
                let _ = writeln!(text, "# {line}");
            }
            let _ = writeln!(text, "# Values: {}.", range(directive));
            for arguments in default_lines(directive) {
                let mark = if active(directive) { "" } else { "# " };
                let _ = writeln!(text, "{mark}{} {arguments}", directive.name);
            }
        }
    }
    text
}

/// The text of `docs/configuration.md`: a table of all directives per section.
pub fn reference() -> String {
    let mut text = String::from(REFERENCE_HEAD);
    for section in SECTIONS {
        let _ = write!(
            text,
            "\n## {}\n\n| directive | default | values | change | meaning |\n|---|---|---|---|---|\n",
            section.title
        );
        for directive in section.directives {
            let names: Vec<String> = directive.names().map(|name| format!("`{name}`")).collect();
            let default = default_lines(directive).join(", ");
            let change = match directive.change {
                Change::Live => "any time",
                Change::Protected => "protected",
                Change::AtStart => "at start",
            };
            let origin = match directive.origin {
                Origin::Redis => "",
                Origin::Valkey => " (Valkey)",
                Origin::Gimmal => " (Gimmal)",
            };
            let hidden = if directive.hidden { " Hidden." } else { "" };
            let _ = writeln!(
                text,
                "| {}{origin} | `{default}` | {} | {change} | {}{}{hidden} |",
                names.join(", "),
                range(directive).replace('|', "\\|"),
                directive.doc,
                effect(directive),
            );
        }
    }
    text
}

const SAMPLE_HEAD: &str = "\
# Configuration of Gimmal. Every directive is here with its default; this file changes nothing.
# It is generated from the server's own table: do not edit it, copy it.
#
#   gimmal-server /path/to/gimmal.conf [--directive value ...]
#
# Sizes may have a unit: 1k is 1000 bytes, 1kb is 1024, and likewise m, mb, g and gb, in any case.
# Words with spaces are quoted: \"like this\". Further files: include /path/to/file.conf, or a pattern
# such as include /path/*.conf; what comes last wins. Commands are renamed with
# rename-command NAME NEW-NAME, or removed with rename-command NAME \"\".
";

const REFERENCE_HEAD: &str = "\
# Configuration

Generated from the table in `crates/server/src/config/table/`; a test checks that it is up to date.

Directives come from a file, standard input and the command line, in this order; the last one wins. The syntax of files and
options is that of Redis. `CONFIG GET`, `CONFIG SET` and `CONFIG REWRITE` work on the same values. *Protected* directives
change only where `enable-protected-configs` allows it. Directives marked *not yet in effect* or *ignored* are accepted, kept
and shown, and the start log names those that were set.
";

/// Whether the sample gives the directive, rather than mentioning it in a comment.
fn active(directive: &Directive) -> bool {
    let says_something = match directive.kind {
        Kind::Text { default, .. } => !default.is_empty(),
        Kind::List { form: Form::ReplicaOf, .. } => false,
        _ => true,
    };
    says_something && directive.effect == Effect::Works
}

fn effect(directive: &Directive) -> String {
    match directive.effect {
        Effect::Works => String::new(),
        Effect::NotYet => " Not yet in effect.".into(),
        Effect::Ignored(why) => format!(" Ignored: {why}."),
    }
}

/// The arguments of the lines that say the default.
fn default_lines(directive: &Directive) -> Vec<String> {
    match directive.kind {
        Kind::Bytes { default, .. } => vec![print_memory(default)],
        Kind::Text { default: "", .. } => vec!["\"\"".into()],
        Kind::Text { default, .. } if default.contains(' ') => vec![quote(default)],
        Kind::Text { default, .. } => vec![default.into()],
        Kind::List { form: Form::OutputLimits, default } => {
            let words: Vec<&str> = default.split(' ').collect();
            words.chunks(4).map(|limit| limit.join(" ")).collect()
        }
        Kind::List { default: "", .. } => vec!["\"\"".into()],
        Kind::List { default, .. } => vec![default.into()],
        _ => vec![directive.print(&directive.default_value("/".as_ref()))],
    }
}

/// Bounds that only say which C type Redis uses.
const UNBOUNDED_INT: i64 = i32::MAX as i64;
const UNBOUNDED_UINT: i64 = u32::MAX as i64;

/// What values are allowed.
fn range(directive: &Directive) -> String {
    match directive.kind {
        Kind::Flag(_) => "yes or no".into(),
        Kind::Number { min, max, .. } => match (min, max) {
            (min, UNBOUNDED_INT | UNBOUNDED_UINT | i64::MAX) if min > i64::from(i32::MIN) => format!("{min} or more"),
            (_, UNBOUNDED_INT) => "any number".into(),
            (min, max) => format!("{min} to {max}"),
        },
        Kind::Octal { max } => format!("0 to {max:o}, octal"),
        Kind::Bytes { min: 0 | 1, .. } => "a size".into(),
        Kind::Bytes { min, .. } => format!("a size of at least {}", print_memory(min)),
        Kind::BytesOrPercent { .. } => "a size or a percentage".into(),
        Kind::Choice { words, .. } => words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" | "),
        Kind::Choices { words } => words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" | ") + ", several",
        Kind::Text { .. } => "a text".into(),
        Kind::List { form, .. } => match form {
            Form::Addresses => "up to 16 addresses",
            Form::SavePoints => "pairs of seconds and writes",
            Form::OutputLimits => "class, size, size, seconds; classes are normal, replica and pubsub",
            Form::OomScores => "three numbers from -2000 to 2000",
            Form::Percentiles => "numbers from 0 to 100",
            Form::ReplicaOf => "host and port, or no one",
            Form::Events => "letters",
            Form::Directory => "a directory",
        }
        .into(),
    }
}

/// Lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}
