//! The command line as `redis-server` takes it: `[file] [-] [--directive value …]`.
//!
//! Options become lines of configuration, read after the file and after standard input, so the last one wins. An option's
//! values are the arguments up to the next one that begins with `--`; the first argument after an option is always its
//! value, whatever it looks like, except that `--save` may come without one.

use super::words::{quote, split};
use std::ffi::OsStr;
use std::path::PathBuf;

/// What to print instead of serving, if the arguments (without the program's name) ask for that.
pub fn answer<S: AsRef<OsStr>>(arguments: &[S]) -> Option<String> {
    match arguments.first().and_then(|first| first.as_ref().to_str()) {
        Some("-v" | "--version") => Some(format!("Gimmal server v={} bits=64", env!("CARGO_PKG_VERSION"))),
        Some("-h" | "--help") => Some(HELP.into()),
        _ => None,
    }
}

const HELP: &str = "\
Usage: gimmal-server [/path/to/gimmal.conf] [options] [-]
       gimmal-server - (reads the configuration from standard input)
       gimmal-server -v or --version
       gimmal-server -h or --help
       gimmal-server --check-rdb <file> (goes through a snapshot)
       gimmal-server --check-aof [--fix] <directory or manifest> (goes through a log)

Every directive of the configuration file is an option too; options win over the file:
       gimmal-server (all defaults)
       gimmal-server /etc/gimmal.conf
       gimmal-server --port 7777 --bind 127.0.0.1 10.0.0.1 --save ''
       gimmal-server /etc/gimmal.conf --workers 4 --appendonly yes --appendfsync always
       echo 'maxmemory 128mb' | gimmal-server --port 7777 -";

/// A command line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// Whether standard input is read after it.
    pub stdin: bool,
    /// Options as lines of configuration.
    pub lines: Vec<String>,
}

/// Takes the arguments (without the program's name) apart.
///
/// # Errors
/// An option that is not UTF-8.
pub fn parse<S: AsRef<OsStr>>(arguments: &[S]) -> Result<CommandLine, String> {
    let mut parsed = CommandLine::default();
    let mut rest = arguments;
    if let [first, after @ ..] = arguments
        && !first.as_ref().as_encoded_bytes().starts_with(b"-")
    {
        parsed.file = Some(PathBuf::from(first.as_ref()));
        rest = after;
    }
    // An option that has no value yet takes the next argument, even one like `--1`.
    let mut wants_value = false;
    for (index, argument) in rest.iter().enumerate() {
        let argument = argument.as_ref().to_str().ok_or("an option is not valid UTF-8")?;
        let (first, last) = (index == 0 && parsed.file.is_none(), index + 1 == rest.len());
        if argument == "-" && (first || last) {
            parsed.stdin = true;
        } else if let Some(option) = argument.strip_prefix("--").filter(|_| !wants_value) {
            parsed.lines.push(option.to_owned());
            wants_value = split(argument.as_bytes()).is_some_and(|words| words.len() == 1);
            let next_is_option =
                rest.get(index + 1).is_some_and(|next| next.as_ref().as_encoded_bytes().starts_with(b"--"));
            if option.eq_ignore_ascii_case("save") && (last || next_is_option) {
                add_word(&mut parsed.lines, "");
                wants_value = false;
            } else if option.eq_ignore_ascii_case("sentinel") {
                wants_value = !next_is_option;
            }
        } else {
            add_word(&mut parsed.lines, argument);
            wants_value = false;
        }
    }
    Ok(parsed)
}

fn add_word(lines: &mut Vec<String>, word: &str) {
    match lines.last_mut() {
        Some(line) => {
            line.push(' ');
            line.push_str(&quote(word));
        }
        None => lines.push(quote(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::{answer, parse};

    #[track_caller]
    fn lines(arguments: &[&str], expected: &[&str]) {
        assert_eq!(parse(arguments).expect("UTF-8").lines, expected, "{arguments:?}");
    }

    #[test]
    fn options_become_lines() {
        lines(
            &["--port", "7000", "--save", "", "--bind", "a", "b"],
            &["port \"7000\"", "save \"\"", "bind \"a\" \"b\""],
        );
        lines(&["--port 7000", "--hz 10"], &["port 7000", "hz 10"]);
        lines(&["--save", "--port", "1"], &["save \"\"", "port \"1\""]);
        lines(&["--save"], &["save \"\""]);
        lines(&["--port", "--1"], &["port \"--1\""]);
        lines(&["--port", "1", "-x"], &["port \"1\" \"-x\""]);
        lines(&["--replicaof", "127.0.0.1 6379"], &["replicaof \"127.0.0.1 6379\""]);
        lines(&["-x"], &["\"-x\""]);
    }

    #[test]
    fn file_and_standard_input() {
        let parsed = parse(&["my.conf", "--port", "1", "-"]).expect("UTF-8");
        assert_eq!(parsed.file.as_deref(), Some("my.conf".as_ref()));
        assert!(parsed.stdin);
        assert_eq!(parsed.lines, ["port \"1\""]);
        assert!(parse(&["-", "--port", "1"]).expect("UTF-8").stdin);
        assert_eq!(parse(&["--port", "-", "1"]).expect("UTF-8").lines, ["port \"-\" \"1\""]);
        assert_eq!(parse::<&str>(&[]).expect("UTF-8").lines, Vec::<String>::new());
    }

    #[test]
    fn version_and_help_are_answered() {
        assert!(answer(&["--version"]).expect("an answer").contains(env!("CARGO_PKG_VERSION")));
        assert_eq!(answer(&["-v"]), answer(&["--version"]));
        assert!(answer(&["-h"]).expect("an answer").starts_with("Usage: gimmal-server"));
        assert_eq!(answer(&["-h"]), answer(&["--help"]));
        assert_eq!(answer(&["--port", "-v"]), None);
        assert_eq!(answer::<&str>(&[]), None);
    }
}
