//! A command with placeholders, encoded once per key as a RESP array of bulk strings.
//!
//! `__KEY__` becomes the key's number in 12 digits, `__V64__` a value of 64 bytes. Both may stand inside a word.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};

use crate::words;

/// A command whose words are cut at their `__KEY__`s.
#[derive(Clone, Debug)]
pub struct Template {
    words: Vec<Vec<Vec<u8>>>,
}

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
        ensure!(!words.is_empty(), "an empty command");
        let words = words.iter().map(|word| Ok(cut_at_keys(&expand_values(word.as_ref())?))).collect::<Result<_>>()?;
        Ok(Self { words })
    }

    /// Appends the command for `key` to `out`.
    pub fn encode(&self, key: u64, out: &mut Vec<u8>) {
        let digits = format!("{key:012}");
        append(out, format_args!("*{}\r\n", self.words.len()));
        for pieces in &self.words {
            let length = pieces.iter().map(Vec::len).sum::<usize>() + (pieces.len() - 1) * digits.len();
            append(out, format_args!("${length}\r\n"));
            for (i, piece) in pieces.iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(digits.as_bytes());
                }
                out.extend_from_slice(piece);
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every byte");
}

fn cut_at_keys(word: &[u8]) -> Vec<Vec<u8>> {
    const KEY: &[u8] = b"__KEY__";
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some(at) = memchr::memmem::find(rest, KEY) {
        pieces.push(rest[..at].to_vec());
        rest = &rest[at + KEY.len()..];
    }
    pieces.push(rest.to_vec());
    pieces
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

    #[test]
    fn placeholders_become_keys_and_values() {
        let template = Template::parse("SET key:__KEY__:x \"a__V3__\"").expect("parses");
        let mut out = Vec::new();
        template.encode(42, &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$18\r\nkey:000000000042:x\r\n$4\r\navvv\r\n");
    }

    #[test]
    fn what_only_looks_like_a_placeholder_stays() {
        let mut out = Vec::new();
        Template::parse("GET __VAL__").expect("parses").encode(1, &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$7\r\n__VAL__\r\n");
        assert!(Template::parse("").is_err());
    }
}
