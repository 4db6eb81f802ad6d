//! MONITOR's lines: every command of every client, in the order in which commands that touch the same keys took effect.
//!
//! A command's line is published when it has *its locks* (or, if it locks nothing, when it has run). Of two commands that
//! touch a common key the one that locks first changes first, and its line is in the monitors' queues before the other's:
//! each monitor sees commit order. Commands that have nothing in common may be shown in either order, and two monitors on
//! different workers may disagree about those. The lines of a transaction stand together before that of its EXEC, as far
//! as its own keys are concerned.
//!
//! Without a monitor this costs a look at a flag for each command and each lock. The flag is looked at once a pass; MONITOR
//! closes the gate, so that every command that begins after its reply is shown.
//!
//! Dropped: numbering all commands and sorting them on the receiving worker, which makes every line wait for the slowest
//! command that runs.

use crate::args::Args;
use crate::command::{Entry, flag};
use crate::dispatch;
use crate::exec::{Exec, Outcome, Stop};
use crate::session::Peer;
use crate::slowlog::is_secret;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Calls a command and shows it; one that is to be run again is shown once.
#[cold]
pub fn call(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) -> Outcome {
    let was_shown = std::mem::take(&mut exec.session.shown);
    if was_shown || entry.command.flags & (flag::SKIP_MONITOR | flag::ADMIN) != 0 {
        let outcome = dispatch::carry_out(exec, entry, args);
        exec.session.shown = was_shown && is_run_again(&outcome);
        return outcome;
    }
    let line = line(exec, args);
    // EXEC is shown behind what it carries out.
    let (at_lock, at_end) = if entry.full_name == "exec" { (None, Some(line)) } else { (Some(line), None) };
    let outer = std::mem::replace(&mut exec.local.line, at_lock);
    let outcome = dispatch::carry_out(exec, entry, args);
    let left = std::mem::replace(&mut exec.local.line, outer).or(at_end);
    if is_run_again(&outcome) {
        exec.session.shown = left.is_none();
    } else if let Some(left) = left {
        // SELECT is shown with the database that it chose.
        let shown = if entry.full_name == "select" { self::line(exec, args) } else { left };
        exec.local.show(exec.shared, shown);
    }
    outcome
}

fn is_run_again(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Stop::Park | Stop::Paused))
}

/// `+seconds.micros [db address] "word" "word"`, with passwords left out.
fn line(exec: &Exec<'_>, args: &Args<'_>) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let from = match exec.session.peer {
        Peer::Unix => format!("unix:{}", exec.local.config.unixsocket().unwrap_or_default()),
        _ => exec.session.address(),
    };
    let head = format!("+{}.{:06} [{} {from}]", now.as_secs(), now.subsec_micros(), exec.session.db);
    let mut line = head.into_bytes();
    for i in 0..args.len() {
        line.push(b' ');
        quote(&mut line, if is_secret(args, i) { b"(redacted)" } else { args.at(i) });
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// A word in quotes, with what is not printable as escapes.
fn quote(line: &mut Vec<u8>, word: &[u8]) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => write!(line, "\\x{byte:02x}").expect("a vector takes everything"),
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_redis_does() {
        let mut line = Vec::new();
        quote(&mut line, b"a \"b\"\\\r\n\t\x07\x08\x00\x7f\xff~");
        assert_eq!(line, br#""a \"b\"\\\r\n\t\a\b\x00\x7f\xff~""#);
    }
}
