//! The log of slow commands. One for the server; only commands over the threshold come here.

use crate::args::Args;
use crate::command::{Command, flag};
use crate::exec::Exec;
use std::collections::VecDeque;

/// Arguments kept of one command, and bytes kept of one argument, as in Redis.
const MAX_ARGS: usize = 32;
const MAX_ARG_BYTES: usize = 128;

/// One slow command.
#[derive(Debug, Clone)]
pub struct SlowCommand {
    /// Unique number.
    pub id: u64,
    /// When it ended, in seconds.
    pub at_s: i64,
    /// What it took.
    pub micros: u64,
    /// Its arguments, cut.
    pub args: Vec<Vec<u8>>,
    /// The client's address and name.
    pub client: (String, String),
}

/// The latest slow commands, newest first.
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

/// Enters a command that took longer than the threshold.
#[cold]
pub fn consider(exec: &mut Exec<'_>, command: &Command, args: &Args<'_>, micros: u64) {
    if exec.local.slower_than_us < 0 || command.flags & flag::SKIP_SLOWLOG != 0 {
        return;
    }
    let max_len = exec.local.slowlog_max_len;
    let client = (exec.session.address(), exec.session.name.as_deref().unwrap_or("").to_string());
    let at_s = exec.now_ms() / 1000;
    let slow = SlowCommand { id: 0, at_s, micros, args: kept(args), client };
    exec.shared.slowlog.lock().expect("the slow log does not panic").push(slow, max_len);
}

fn kept(args: &Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > MAX_ARGS { MAX_ARGS - 1 } else { args.len() };
    let mut words: Vec<Vec<u8>> = (0..shown).map(|i| cut(args, i)).collect();
    if shown < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    words
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

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let mut log = Slowlog::default();
        for micros in 1..=5 {
            let slow = SlowCommand { id: 0, at_s: 0, micros, args: vec![], client: Default::default() };
            log.push(slow, 3);
        }
        assert_eq!(log.newest(10).map(|s| s.micros).collect::<Vec<_>>(), [5, 4, 3]);
        assert_eq!(log.newest(1).map(|s| s.id).collect::<Vec<_>>(), [4]);
        log.clear();
        assert!(log.is_empty());
    }
}
