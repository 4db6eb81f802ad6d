//! The logs of slow commands, large requests and large replies. One each for the server; only commands over a threshold
//! come here.

use crate::args::Args;
use crate::command::{Command, flag};
use crate::config::Config;
use crate::session::Session;
use crate::shared::Shared;
use crate::worker::Local;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// Arguments kept of one command, and bytes kept of one argument, as in Redis.
const MAX_ARGS: usize = 32;
const MAX_ARG_BYTES: usize = 128;

/// What made a command notable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It took long.
    Slow,
    /// Its arguments are many or long.
    LargeRequest,
    /// So is its reply.
    LargeReply,
}

/// A log for each kind.
#[derive(Debug, Default)]
pub struct CommandLogs([Mutex<Slowlog>; 3]);

impl CommandLogs {
    /// The log of a kind.
    pub fn of(&self, kind: Kind) -> MutexGuard<'_, Slowlog> {
        self.0[kind as usize].lock().expect("a command log does not panic")
    }
}

/// One slow or large command.
#[derive(Debug, Clone)]
pub struct SlowCommand {
    /// Unique number.
    pub id: u64,
    /// When it ended, in seconds.
    pub at_s: i64,
    /// Microseconds that it took, or bytes that it had.
    pub amount: u64,
    /// Its arguments, cut.
    pub args: Vec<Vec<u8>>,
    /// The client's address and name.
    pub client: (String, String),
}

/// The latest commands of a kind, newest first.
#[derive(Debug, Default)]
pub struct Slowlog {
    entries: VecDeque<SlowCommand>,
    next_id: u64,
}

impl Slowlog {
    /// Adds one, and forgets the oldest beyond `max_len`.
    pub fn push(&mut self, mut slow: SlowCommand, max_len: usize) {
        slow.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(slow);
        self.entries.truncate(max_len);
    }

    /// The newest `count`.
    pub fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &SlowCommand> {
        self.entries.iter().take(count)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Enters a command that is over a threshold, with the microseconds or bytes that are.
#[cold]
pub fn enter(
    shared: &Shared,
    local: &Local,
    session: &Session,
    kind: Kind,
    command: &Command,
    args: &Args<'_>,
    amount: u64,
) {
    if command.flags & flag::SKIP_SLOWLOG != 0 {
        return;
    }
    let config = &local.config;
    let max_len = match kind {
        Kind::Slow => config.slowlog_max_len(),
        Kind::LargeRequest => config.commandlog_large_request_max_len(),
        Kind::LargeReply => config.commandlog_large_reply_max_len(),
    };
    let client = (session.address(), session.name.as_deref().unwrap_or("").to_string());
    let at_s = local.now_ms / 1000;
    let slow = SlowCommand { id: 0, at_s, amount, args: kept(args), client };
    shared.command_logs.of(kind).push(slow, max_len);
}

fn kept(args: &Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > MAX_ARGS { MAX_ARGS - 1 } else { args.len() };
    let word = |i: usize| if is_secret(args, i) { b"(redacted)".to_vec() } else { cut(args, i) };
    let mut words: Vec<Vec<u8>> = (0..shown).map(word).collect();
    if shown < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    words
}

/// Whether argument `i` is a password, or may hold one.
pub fn is_secret(args: &Args<'_>, i: usize) -> bool {
    let follows =
        |word: &str, from: usize, reach: usize| (i.saturating_sub(reach).max(from)..i).any(|at| args.is(at, word));
    if args.is(0, "hello") {
        return follows("auth", 2, 2);
    }
    if args.is(0, "config") && args.len() > 1 && args.is(1, "set") {
        return i > 2 && i % 2 == 1 && Config::is_sensitive(args.at(i - 1));
    }
    if args.is(0, "acl") && args.len() > 1 && ["setuser", "deluser", "getuser"].iter().any(|sub| args.is(1, sub)) {
        return i >= 2;
    }
    args.is(0, "auth") && i >= 1 || args.is(0, "migrate") && (follows("auth", 6, 1) || follows("auth2", 6, 2))
}

fn cut(args: &Args<'_>, i: usize) -> Vec<u8> {
    let len = args.length(i);
    let mut word = match args.rope(i) {
        Some(rope) => {
            rope.range(0, MAX_ARG_BYTES.min(len)).flat_map(|(extent, range)| extent[range].to_vec()).collect()
        }
        None => args.at(i)[..MAX_ARG_BYTES.min(len)].to_vec(),
    };
    if len > MAX_ARG_BYTES {
        word.extend(format!("... ({} more bytes)", len - MAX_ARG_BYTES).bytes());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Detached;
    use gimmal_resp::Span;

    fn shown(line: &str) -> String {
        let words: Vec<Detached> = line.split(' ').map(|word| Detached::Bytes(word.as_bytes().to_vec())).collect();
        let spans: Vec<Span> = (0..).zip(&words).map(|(i, _)| Span { start: Span::DETACHED, len: i }).collect();
        let kept = kept(&Args::new(&[], &spans, &words));
        kept.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn passwords_are_not_kept() {
        for (line, kept) in [
            ("hello 3 auth me pw setname x", "hello 3 auth (redacted) (redacted) setname x"),
            ("config set maxmemory 1 requirepass pw", "config set maxmemory 1 requirepass (redacted)"),
            ("CONFIG SET masterauth pw", "CONFIG SET masterauth (redacted)"),
            ("acl setuser joe >pw", "acl setuser (redacted) (redacted)"),
            ("migrate h 1 k 0 5 auth pw", "migrate h 1 k 0 5 auth (redacted)"),
            ("migrate h 1 k 0 5 auth2 u pw keys a", "migrate h 1 k 0 5 auth2 (redacted) (redacted) keys a"),
            ("set auth auth", "set auth auth"),
        ] {
            assert_eq!(shown(line), kept);
        }
    }

    #[test]
    fn long_commands_are_cut() {
        let many = (0..40).map(|i| i.to_string()).collect::<Vec<_>>().join(" ");
        assert!(shown(&many).ends_with("30 ... (9 more arguments)"), "{}", shown(&many));
        assert_eq!(shown(&"x".repeat(130)), format!("{}... (2 more bytes)", "x".repeat(128)));
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let mut log = Slowlog::default();
        for amount in 1..=5 {
            let slow = SlowCommand { id: 0, at_s: 0, amount, args: vec![], client: Default::default() };
            log.push(slow, 3);
        }
        assert_eq!(log.newest(10).map(|s| s.amount).collect::<Vec<_>>(), [5, 4, 3]);
        assert_eq!(log.newest(1).map(|s| s.id).collect::<Vec<_>>(), [4]);
        log.clear();
        assert!(log.is_empty());
    }
}
