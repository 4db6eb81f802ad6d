//! Turns fuzz input into what a client sends: commands of the server's own table with hostile arguments, inline commands,
//! large arguments, broken headers and raw bytes.
//!
//! Every choice is one byte of the input, so that a change of a byte changes one thing.

use gimmal_resp::{LARGE, encode_command};
use gimmal_server::command::{Argument, Entry, Table, flag};
use std::sync::OnceLock;

/// What a client sends, and what is known of the answer.
#[derive(Debug, Default)]
pub struct Script {
    /// The stream.
    pub bytes: Vec<u8>,
    /// Commands in it.
    pub commands: usize,
    /// Each command is answered by exactly one reply.
    pub is_countable: bool,
    /// It may make the connection wait for longer than a test wants to.
    pub may_wait: bool,
}

/// The most commands of a script.
const COMMANDS: usize = 64;
const KEYS: [&[u8]; 6] = [b"k", b"key:2", b"{t}a", b"{t}b", b"", b"\xff\x00\r\n"];
const NUMBERS: [&[u8]; 28] = [
    b"0",
    b"1",
    b"-1",
    b"2",
    b"7",
    b"10",
    b"-0",
    b"00",
    b"+1",
    b" 1",
    b"1 ",
    b"1.5",
    b"1e309",
    b"-1e-400",
    b"nan",
    b"inf",
    b"-inf",
    b"0x10",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"18446744073709551615",
    b"4294967296",
    b"2147483647",
    b"-2147483649",
    b"1048575",
    b"536870912",
    b"0.30000000000000004",
];
/// Words that are in no table.
const WORDS: [&[u8]; 10] = [
    b"*",
    b"?*[a-z]\\",
    b"[",
    b"v",
    b"(1",
    b"-",
    b"+",
    b"$",
    b"\"quoted\"",
    b"a fairly long word that is stored apart",
];
/// Words after which the process, its files or its peers are changed, or nothing can be said of the time it takes.
const FORBIDDEN: [&[u8]; 12] = [
    b"shutdown",
    b"sleep",
    b"rewrite",
    b"save",
    b"logfile",
    b"pidfile",
    b"dir",
    b"replicaof",
    b"slaveof",
    b"migrate",
    b"failover",
    b"loadaof",
];
/// Commands that are answered by none or several replies, or whose answers others get.
const UNCOUNTABLE: [&str; 14] = [
    "client",
    "quit",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "monitor",
    "sync",
    "psync",
    "replconf",
    "debug",
    "wait",
];

/// Reads the script; `None`: it does what is not to be done here.
pub fn read(input: &[u8], table: &Table) -> Option<Script> {
    let mut source = Source(input);
    let mut script = Script { is_countable: true, ..Script::default() };
    static TOKENS: OnceLock<Vec<&'static str>> = OnceLock::new();
    let tokens = TOKENS.get_or_init(|| tokens(table));
    for _ in 0..COMMANDS {
        let Some(choice) = source.next() else { break };
        match choice {
            0..=199 => command(&mut script, &mut source, table, tokens),
            200..=214 => raw(&mut script, &mut source),
            215..=229 => inline(&mut script, &mut source, table),
            230..=239 => broken_header(&mut script, &mut source),
            _ => large(&mut script, &mut source),
        }
    }
    (!is_forbidden(&script.bytes)).then_some(script)
}

fn command(script: &mut Script, source: &mut Source<'_>, table: &Table, tokens: &[&'static str]) {
    let entries = table.entries();
    let entry = &entries[source.number() % entries.len()];
    let mut words = vec![entry.command.name.as_bytes().to_vec()];
    let mut declared = entry;
    if !entry.subcommands.is_empty() && source.below(4) > 0 {
        declared = &entry.subcommands[source.below(entry.subcommands.len())];
        words.push(declared.command.name.as_bytes().to_vec());
    }
    let least =
        usize::try_from(declared.command.arity.unsigned_abs()).expect("a small number").saturating_sub(words.len());
    // Mostly what the arity asks for, sometimes one less, sometimes many more.
    let count = match source.below(8) {
        0 => least.saturating_sub(1),
        1..=4 => least,
        more => least + more - 4,
    };
    words.extend((0..count).map(|_| argument(source, declared, tokens)));
    note(script, entry);
    script.commands += 1;
    encode_command(&mut script.bytes, &words);
}

fn note(script: &mut Script, entry: &Entry) {
    let waits = entry.command.flags & flag::BLOCKING != 0;
    script.is_countable &= !waits && !UNCOUNTABLE.contains(&entry.command.name);
    script.may_wait |= waits || entry.command.name == "client";
}

fn argument(source: &mut Source<'_>, declared: &Entry, tokens: &[&'static str]) -> Vec<u8> {
    match source.below(12) {
        0..=3 => KEYS[source.below(KEYS.len())].to_vec(),
        4..=6 => NUMBERS[source.below(NUMBERS.len())].to_vec(),
        7 => WORDS[source.below(WORDS.len())].to_vec(),
        8 | 9 => {
            let mut own = Vec::new();
            collect_tokens(declared.command.arguments, &mut own);
            let from = if own.is_empty() { tokens } else { &own };
            if from.is_empty() { Vec::new() } else { from[source.below(from.len())].as_bytes().to_vec() }
        }
        10 => source.bytes(16).to_vec(),
        _ => vec![b'x'; source.number() % 2000],
    }
}

fn raw(script: &mut Script, source: &mut Source<'_>) {
    script.bytes.extend_from_slice(source.bytes(64));
    script.is_countable = false;
    script.may_wait = true;
}

fn inline(script: &mut Script, source: &mut Source<'_>, table: &Table) {
    let entries = table.entries();
    let entry = &entries[source.number() % entries.len()];
    note(script, entry);
    script.is_countable = false;
    script.bytes.extend_from_slice(entry.command.name.as_bytes());
    for _ in 0..source.below(5) {
        script.bytes.push(b' ');
        match source.below(3) {
            0 => script.bytes.extend_from_slice(KEYS[source.below(4)]),
            1 => script.bytes.extend_from_slice(NUMBERS[source.below(NUMBERS.len())]),
            _ => script.bytes.extend_from_slice(source.bytes(12)),
        }
    }
    script.bytes.extend_from_slice(b"\r\n");
}

fn broken_header(script: &mut Script, source: &mut Source<'_>) {
    script.bytes.push(b"*$+:"[source.below(4)]);
    script.bytes.extend_from_slice(NUMBERS[source.below(NUMBERS.len())]);
    script.bytes.extend_from_slice(b"\r\n");
    script.is_countable = false;
    script.may_wait = true;
}

/// A command with a large value, or with a large word where no command expects one.
fn large(script: &mut Script, source: &mut Source<'_>) {
    let value = vec![b'L'; LARGE - 2 + source.number() % (3 * LARGE)];
    let key = KEYS[source.below(KEYS.len())];
    let words: Vec<&[u8]> = match source.below(5) {
        0 => vec![b"GET", &value],
        1 => vec![&value, b"k"],
        2 => vec![b"SET", key, &value, &value],
        3 => vec![b"APPEND", key, &value],
        _ => vec![b"SET", key, &value],
    };
    script.commands += 1;
    encode_command(&mut script.bytes, &words);
}

/// Every literal word of every command's declaration.
fn tokens(table: &Table) -> Vec<&'static str> {
    let mut tokens = Vec::new();
    for entry in table.entries().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands)) {
        collect_tokens(entry.command.arguments, &mut tokens);
    }
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

fn collect_tokens(arguments: &'static [Argument], tokens: &mut Vec<&'static str>) {
    for argument in arguments {
        if !argument.token.is_empty() {
            tokens.push(argument.token);
        }
        collect_tokens(argument.parts, tokens);
    }
}

fn is_forbidden(bytes: &[u8]) -> bool {
    let lower = bytes.to_ascii_lowercase();
    FORBIDDEN.iter().any(|word| memchr::memmem::find(&lower, word).is_some())
}

/// The input, from which choices are taken; at its end every choice is 0.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next().unwrap_or(0)) % bound
    }

    /// Two bytes.
    fn number(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.next().unwrap_or(0), self.next().unwrap_or(0)]))
    }

    /// At most `most` bytes.
    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let count = self.below(most + 1).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }
}
