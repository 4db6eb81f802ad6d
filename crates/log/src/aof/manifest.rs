//! The manifest of a multi-part append-only directory, as Redis 7 writes it: a line for each file,
//! `file NAME seq NUMBER type b|h|i`. The base comes first, then files that are only to be removed, then the increments.
//!
//! Reading is strict: a manifest that is damaged must not lead to a part of the data. As in Redis, lines that begin with
//! `#` and unknown pairs of words are skipped, so that later versions can add to it.

use std::collections::BTreeSet;
use std::fmt;

/// A file of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// Its number, from 1 on, counted for bases and increments separately.
    pub seq: u64,
}

/// What a directory consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The state at some position of the log.
    pub base: Option<Entry>,
    /// Files that a rewrite replaced and that are still to be removed.
    pub history: Vec<Entry>,
    /// The log from the base on, in order.
    pub increments: Vec<Entry>,
}

/// Why a text is no manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub reason: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ManifestError {}

/// Lines are shorter, as in Redis.
const LINE: usize = 1024;
/// No manifest is longer. Bytes.
pub(super) const LONGEST: u64 = 16 << 20;

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// The first line that is not as it must be.
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        let mut manifest = Manifest::default();
        let mut names = BTreeSet::new();
        let wrong = |line: usize, reason| ManifestError { line: line + 1, reason };
        if text.is_empty() {
            return Err(wrong(0, "the manifest is empty"));
        }
        let body = text.strip_suffix(b"\n").ok_or(wrong(0, "the last line has no end"))?;
        for (at, line) in body.split(|byte| *byte == b'\n').enumerate() {
            if line.starts_with(b"#") {
                continue;
            }
            let (kind, entry) = parse_line(line).map_err(|reason| wrong(at, reason))?;
            if !names.insert(entry.name.clone()) {
                return Err(wrong(at, "a file is named twice"));
            }
            match kind {
                b'b' if manifest.base.is_some() => return Err(wrong(at, "there are two base files")),
                b'b' => manifest.base = Some(entry),
                b'h' => manifest.history.push(entry),
                _ if manifest.increments.last().is_some_and(|last| last.seq >= entry.seq) => {
                    return Err(wrong(at, "the increments' numbers do not grow"));
                }
                _ => manifest.increments.push(entry),
            }
        }
        Ok(manifest)
    }

    /// The manifest's text.
    pub fn to_text(&self) -> String {
        let line = |entry: &Entry, kind| format!("file {} seq {} type {kind}\n", quoted(&entry.name), entry.seq);
        let base = self.base.iter().map(|entry| line(entry, 'b'));
        let history = self.history.iter().map(|entry| line(entry, 'h'));
        base.chain(history).chain(self.increments.iter().map(|entry| line(entry, 'i'))).collect()
    }

    /// Whether it names nothing to load.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.increments.is_empty()
    }

    /// The number of the next base. Numbers of files that wait for their removal are not used again.
    pub fn next_base(&self) -> u64 {
        next(self.base.iter().chain(self.history.iter()))
    }

    /// The number of the next increment.
    pub fn next_increment(&self) -> u64 {
        next(self.increments.iter().chain(self.history.iter()))
    }
}

fn next<'a>(entries: impl Iterator<Item = &'a Entry>) -> u64 {
    entries.map(|entry| entry.seq).max().unwrap_or(0).saturating_add(1)
}

fn parse_line(line: &[u8]) -> Result<(u8, Entry), &'static str> {
    const FORMAT: &str = "not `file NAME seq NUMBER type b|h|i`";
    if line.len() >= LINE {
        return Err("the line is too long");
    }
    let words = gimmal_resp::split_args(line).ok_or("unbalanced quotes")?;
    if words.len() < 6 || words.len() % 2 == 1 {
        return Err(FORMAT);
    }
    let (mut name, mut seq, mut kind) = (None, None, None);
    for pair in words.chunks_exact(2) {
        let (key, value) = (pair[0].to_ascii_lowercase(), &pair[1]);
        let known = match key.as_slice() {
            b"file" => name.replace(base_name(value)?).is_some(),
            b"seq" => seq.replace(number(value).ok_or("the number is not one from 1 on")?).is_some(),
            b"type" => match value.as_slice() {
                [letter @ (b'b' | b'h' | b'i')] => kind.replace(*letter).is_some(),
                _ => return Err("unknown type of file"),
            },
            _ => false,
        };
        if known {
            return Err("a word comes twice");
        }
    }
    match (name, seq, kind) {
        (Some(name), Some(seq), Some(kind)) => Ok((kind, Entry { name, seq })),
        _ => Err(FORMAT),
    }
}

fn base_name(bytes: &[u8]) -> Result<String, &'static str> {
    let name = std::str::from_utf8(bytes).map_err(|_| "the file's name is not UTF-8")?;
    let is_path = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if is_path { Err("the file's name is a path") } else { Ok(name.to_owned()) }
}

fn number(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(bytes).ok()?.parse::<u64>().ok()?;
    // Redis reads it as a signed 64-bit number.
    (digits && (1..i64::MAX as u64).contains(&value)).then_some(value)
}

/// A name, in quotes if it needs them.
fn quoted(name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\'));
    if plain {
        return name.to_owned();
    }
    let mut out = String::from('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, seq: u64) -> Entry {
        Entry { name: name.to_owned(), seq }
    }

    #[test]
    fn the_example_of_redis_is_read_and_written() {
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\n\
                    file appendonly.aof.1.incr.aof seq 1 type h\n\
                    file appendonly.aof.4.incr.aof seq 4 type i\n\
                    file appendonly.aof.5.incr.aof seq 5 type i\n";
        let manifest = Manifest::parse(text.as_bytes()).expect("a manifest");
        assert_eq!(manifest.base, Some(entry("appendonly.aof.2.base.rdb", 2)));
        assert_eq!(manifest.history, [entry("appendonly.aof.1.incr.aof", 1)]);
        assert_eq!(manifest.increments.len(), 2);
        assert_eq!((manifest.next_base(), manifest.next_increment()), (3, 6));
        assert_eq!(manifest.to_text(), text);
    }

    #[test]
    fn names_with_any_character_survive() {
        for name in ["a b", "a\"b", "a\\x41", "tab\there", "ümlaut", "'single'", "#x"] {
            let manifest = Manifest { base: Some(entry(name, 1)), ..Manifest::default() };
            assert_eq!(Manifest::parse(manifest.to_text().as_bytes()), Ok(manifest), "{name}");
        }
    }

    #[test]
    fn comments_order_and_unknown_words_are_taken() {
        let text = b"# made by hand\nTYPE i seq 3 FILE x startoffset 12\n";
        assert_eq!(Manifest::parse(text).map(|manifest| manifest.increments), Ok(vec![entry("x", 3)]));
    }

    #[test]
    fn anything_else_is_refused() {
        let long = format!("file {} seq 1 type i\n", "x".repeat(LINE));
        for text in [
            "",
            "\n",
            "file a seq 1 type i",
            "file a seq 1\n",
            "file a seq 0 type i\n",
            "file a seq -1 type i\n",
            "file a seq +1 type i\n",
            "file a seq 9223372036854775807 type i\n",
            "file a seq 99999999999999999999 type i\n",
            "file a seq 1 type x\n",
            "file a seq 1 type ii\n",
            "file a seq 1 seq 2\n",
            "file a seq 1 type i type b\n",
            "file ../a seq 1 type i\n",
            "file .. seq 1 type i\n",
            "file \"\" seq 1 type i\n",
            "file a/b seq 1 type i\n",
            "file \"a\\x00\" seq 1 type i\n",
            "file \"a seq 1 type i\n",
            "file a seq 1 type b\nfile b seq 2 type b\n",
            "file a seq 2 type i\nfile b seq 2 type i\n",
            "file a seq 1 type i\nfile a seq 2 type i\n",
            "file a seq 1 type i\n\nfile b seq 2 type i\n",
            long.as_str(),
        ] {
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
