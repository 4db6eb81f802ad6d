//! A command with placeholders, encoded once per key as a RESP array of bulk strings.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `__KEY__` | the key's number in 12 digits, the same one wherever it stands in the command |
//! | `__rand_int__` | a number of 12 digits, drawn anew wherever it stands; as it is when there are no keys to draw from (both as in `redis-benchmark`) |
//! | `__N__`, `__N+9__` | the key's number, or so many above it, without leading zeros: an index or a stream id |
//! | `__V64__` | a value of 64 bytes |
//!
//! All may stand inside a word. A command whose first word is `__INLINE__` is sent as one line, not as an array. Several commands,
//! with the word `__THEN__` between them, are sent in turn.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};

use crate::words;

/// Commands whose words are cut at their placeholders.
#[derive(Clone, Debug)]
pub struct Template {
    commands: Vec<Command>,
}

#[derive(Clone, Debug)]
struct Command {
    words: Vec<Vec<Piece>>,
    inline: bool,
}

#[derive(Clone, Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Key,
    Drawn,
    Number { above: u64 },
}

/// Keys in no order, the same ones in every run (Marsaglia's xorshift).
#[derive(Clone, Debug)]
pub struct Keys {
    state: u64,
    count: u64,
}

impl Keys {
    /// Numbers below `count`; only 0 when it is 0.
    pub fn of(count: u64) -> Self {
        Self { state: 88_172_645_463_325_252, count }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.checked_rem(self.count).unwrap_or(0)
    }
}

const RANDOM: &[u8] = b"__rand_int__";

impl Template {
    /// From a line with quoted words.
    pub fn parse(line: &str) -> Result<Self> {
        Self::from_words(&words::split(line)?)
    }

    /// From words that are already apart.
    ///
    /// # Errors
    /// No word at all.
    pub fn from_words<W: AsRef<[u8]>>(words: &[W]) -> Result<Self> {
        let commands = words.split(|word| word.as_ref() == b"__THEN__").map(Command::from_words);
        Ok(Self { commands: commands.collect::<Result<_>>()? })
    }

    /// Appends the command whose turn it is, for `key`, to `out`; what it draws beside comes from `keys`.
    pub fn encode(&self, turn: usize, key: u64, keys: &mut Keys, out: &mut Vec<u8>) {
        self.commands[turn % self.commands.len()].encode(key, keys, out);
    }
}

impl Command {
    fn from_words<W: AsRef<[u8]>>(words: &[W]) -> Result<Self> {
        let inline = words.first().is_some_and(|word| word.as_ref() == b"__INLINE__");
        let words = &words[usize::from(inline)..];
        ensure!(!words.is_empty(), "an empty command");
        let words = words.iter().map(|word| Ok(cut(&expand_values(word.as_ref())?))).collect::<Result<_>>()?;
        Ok(Self { words, inline })
    }

    fn encode(&self, key: u64, keys: &mut Keys, out: &mut Vec<u8>) {
        if !self.inline {
            append(out, format_args!("*{}\r\n", self.words.len()));
        }
        let mut word = Vec::new();
        for (i, pieces) in self.words.iter().enumerate() {
            word.clear();
            pieces.iter().for_each(|piece| piece.encode(key, keys, &mut word));
            if !self.inline {
                append(out, format_args!("${}\r\n", word.len()));
            } else if i > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(&word);
            if !self.inline || i + 1 == self.words.len() {
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

impl Piece {
    fn encode(&self, key: u64, keys: &mut Keys, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Key => append(out, format_args!("{key:012}")),
            Self::Drawn if keys.count == 0 => out.extend_from_slice(RANDOM),
            Self::Drawn => append(out, format_args!("{:012}", keys.draw())),
            Self::Number { above } => append(out, format_args!("{}", key + above)),
        }
    }
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every byte");
}

fn cut(word: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while at < word.len() {
        let Some((piece, length)) = placeholder(&word[at..]) else {
            at += 1;
            continue;
        };
        pieces.push(Piece::Bytes(word[from..at].to_vec()));
        pieces.push(piece);
        at += length;
        from = at;
    }
    pieces.push(Piece::Bytes(word[from..].to_vec()));
    pieces
}

/// The placeholder that `text` starts with, and its length.
fn placeholder(text: &[u8]) -> Option<(Piece, usize)> {
    const KEY: &[u8] = b"__KEY__";
    const NUMBER: &[u8] = b"__N__";
    const ABOVE: &[u8] = b"__N+";
    if text.starts_with(KEY) {
        return Some((Piece::Key, KEY.len()));
    }
    if text.starts_with(RANDOM) {
        return Some((Piece::Drawn, RANDOM.len()));
    }
    if text.starts_with(NUMBER) {
        return Some((Piece::Number { above: 0 }, NUMBER.len()));
    }
    let digits = text.strip_prefix(ABOVE)?;
    let end = memchr::memmem::find(digits, b"__")?;
    let above = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    Some((Piece::Number { above }, ABOVE.len() + end + 2))
}

fn expand_values(word: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = word;
    while let Some(at) = memchr::memmem::find(rest, b"__V") {
        let digits = &rest[at + 3..];
        let Some(end) = memchr::memmem::find(digits, b"__").filter(|end| digits[..*end].iter().all(u8::is_ascii_digit))
        else {
            break;
        };
        let length: usize = std::str::from_utf8(&digits[..end])?.parse().context("the n of __Vn__")?;
        out.extend_from_slice(&rest[..at]);
        out.resize(out.len() + length, b'v');
        rest = &digits[end + 2..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(line: &str, key: u64, keys: u64) -> String {
        let mut out = Vec::new();
        Template::parse(line).expect("parses").encode(0, key, &mut Keys::of(keys), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn placeholders_become_keys_and_values() {
        assert_eq!(
            encoded("SET key:__KEY__:x \"a__V3__\"", 42, 0),
            "*3\r\n$3\r\nSET\r\n$18\r\nkey:000000000042:x\r\n$4\r\navvv\r\n"
        );
        assert_eq!(encoded("R __N__ __N+9__-1", 95, 0), "*3\r\n$1\r\nR\r\n$2\r\n95\r\n$5\r\n104-1\r\n");
    }

    #[test]
    fn what_only_looks_like_a_placeholder_stays() {
        assert_eq!(encoded("GET __VAL__", 1, 0), "*2\r\n$3\r\nGET\r\n$7\r\n__VAL__\r\n");
        assert_eq!(encoded("__N+x__", 1, 0), "*1\r\n$7\r\n__N+x__\r\n");
        assert!(Template::parse("").is_err());
        assert!(Template::parse("__INLINE__").is_err());
    }

    #[test]
    fn a_drawn_number_differs_wherever_it_stands_and_is_literal_without_keys() {
        assert_eq!(encoded("GET k:__rand_int__", 1, 0), "*2\r\n$3\r\nGET\r\n$14\r\nk:__rand_int__\r\n");
        let drawn = encoded("MSET __rand_int__ __rand_int__", 1, 1_000_000);
        let lines: Vec<&str> = drawn.split("\r\n").collect();
        assert!(lines[4] != lines[6] && lines[4].len() == 12 && lines[6].starts_with("000000"), "{drawn}");
    }

    #[test]
    fn commands_take_turns() {
        let template = Template::parse("GET __N__ __THEN__ DEL __N__").expect("parses");
        let mut out = Vec::new();
        (0..3).for_each(|turn| template.encode(turn, turn as u64, &mut Keys::of(9), &mut out));
        let one = |name: &str, key: u64| format!("*2\r\n$3\r\n{name}\r\n$1\r\n{key}\r\n");
        assert_eq!(String::from_utf8(out).expect("text"), one("GET", 0) + &one("DEL", 1) + &one("GET", 2));
        assert!(Template::parse("GET a __THEN__").is_err());
    }

    #[test]
    fn an_inline_command_is_one_line() {
        assert_eq!(encoded("__INLINE__ SET k:__N__ v", 7, 0), "SET k:7 v\r\n");
    }
}
