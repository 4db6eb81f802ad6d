//! A command's arguments: bytes from a client, hostile until parsed.
//!
//! They stay where they were received; only large bulk strings and inline words live in buffers of their own
//! (*detached* arguments), so that a large value is copied once on its way in.

use crate::exec::{ReplyError, error};
use gimmal_resp::Span;
/// A canonical decimal of 64 bits, as the protocol writes them (Redis's `string2ll`).
pub use gimmal_resp::parse_i64 as parse_int;
use gimmal_store::{NewValue, Rope};
use std::ops::Index;
use std::sync::OnceLock;

/// An argument that is not in the receive buffer.
#[derive(Debug, Clone)]
pub enum Detached {
    /// A word of an inline command.
    Bytes(Vec<u8>),
    /// A large bulk string, as it arrived.
    Large(Large),
}

/// A large argument: a rope, and its bytes in one piece once somebody asked for them. A clone shares the rope.
#[derive(Debug)]
pub struct Large {
    rope: Rope,
    flat: OnceLock<Vec<u8>>,
}

impl From<Rope> for Detached {
    fn from(rope: Rope) -> Detached {
        Detached::Large(Large { rope, flat: OnceLock::new() })
    }
}

impl Clone for Large {
    fn clone(&self) -> Large {
        Large { rope: self.rope.clone(), flat: OnceLock::new() }
    }
}

impl Large {
    /// All bytes together. A handler that stores the argument takes the rope; this is for keys and words that a client
    /// chose to make long, which are few.
    fn bytes(&self) -> &[u8] {
        self.rope.as_single().unwrap_or_else(|| self.flat.get_or_init(|| self.rope.to_vec()))
    }
}

/// The arguments of one command; index 0 is its name.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
    detached: &'a [Detached],
}

impl<'a> Args<'a> {
    /// Arguments given by spans into `buffer` and by detached ones.
    pub fn new(buffer: &'a [u8], spans: &'a [Span], detached: &'a [Detached]) -> Args<'a> {
        Args { buffer, spans, detached }
    }

    /// The same arguments, of which those that are not in the buffer are these.
    pub fn with_detached(self, detached: &'a [Detached]) -> Args<'a> {
        Args { detached, ..self }
    }

    /// Number of arguments, with the name.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if there is not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `i` as bytes.
    #[inline]
    pub fn at(&self, i: usize) -> &'a [u8] {
        let Span { start, len } = self.spans[i];
        if start == Span::DETACHED {
            return self.detached_bytes(len);
        }
        &self.buffer[start as usize..][..len as usize]
    }

    #[cold]
    fn detached_bytes(&self, index: u32) -> &'a [u8] {
        match &self.detached[index as usize] {
            Detached::Bytes(bytes) => bytes,
            Detached::Large(large) => large.bytes(),
        }
    }

    /// Argument `i` as a value to store: a large one by reference, a decimal integer as an integer.
    #[inline]
    pub fn value(&self, i: usize) -> NewValue<'a> {
        let Span { start, len } = self.spans[i];
        if start == Span::DETACHED {
            match &self.detached[len as usize] {
                Detached::Large(large) => return NewValue::Rope(large.rope.clone()),
                Detached::Bytes(bytes) => return new_value(bytes),
            }
        }
        new_value(self.at(i))
    }

    /// Length of argument `i` in bytes.
    pub fn length(&self, i: usize) -> usize {
        let Span { start, len } = self.spans[i];
        match start == Span::DETACHED {
            true => match &self.detached[len as usize] {
                Detached::Bytes(bytes) => bytes.len(),
                Detached::Large(large) => large.rope.len(),
            },
            false => len as usize,
        }
    }

    /// A bound of [`Args::encoded_bytes`] that is known at once.
    #[inline]
    pub fn bytes_at_most(&self) -> usize {
        if self.detached.is_empty() { self.buffer.len() } else { self.encoded_bytes() }
    }

    /// Bytes of the command as a client sends it.
    pub fn encoded_bytes(&self) -> usize {
        // There may be very many arguments: lengths are nearly always of one or two digits.
        let digits = |n: usize| match n {
            0..10 => 1,
            10..100 => 2,
            _ => n.ilog10() as usize + 1,
        };
        let bulk = |len: usize| len + digits(len) + 5;
        let arguments: usize = (0..self.len()).map(|i| bulk(self.length(i))).sum();
        arguments + digits(self.len()) + 3
    }

    /// The rope of argument `i`, if it is a large one.
    pub fn rope(&self, i: usize) -> Option<&'a Rope> {
        let Span { start, len } = self.spans[i];
        match (start == Span::DETACHED).then(|| &self.detached[len as usize]) {
            Some(Detached::Large(large)) => Some(&large.rope),
            _ => None,
        }
    }

    /// Argument `i` as a signed 64-bit decimal, in Redis's strict form.
    pub fn int(&self, i: usize) -> Result<i64, ReplyError> {
        parse_int(self.at(i)).ok_or(error("ERR value is not an integer or out of range"))
    }

    /// True if argument `i` is this word, in any case.
    #[inline]
    pub fn is(&self, i: usize, word: &str) -> bool {
        self.spans[i].start != Span::DETACHED && self.at(i).eq_ignore_ascii_case(word.as_bytes())
            || self.spans[i].start == Span::DETACHED
                && self.length(i) == word.len()
                && self.at(i).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The arguments from `from` on.
    pub fn rest(&self, from: usize) -> impl Iterator<Item = &'a [u8]> + '_ {
        (from..self.len()).map(|i| self.at(i))
    }

    /// The same arguments without the first `n`.
    pub fn skip(&self, n: usize) -> Args<'a> {
        Args { spans: &self.spans[n..], ..*self }
    }

    /// The argument that is not in the buffer, if `i` is one.
    pub fn detached(&self, i: usize) -> Option<&'a Detached> {
        let Span { start, len } = self.spans[i];
        (start == Span::DETACHED).then(|| &self.detached[len as usize])
    }

    /// The raw parts, to keep a command that could not run yet.
    pub fn spans(&self) -> &'a [Span] {
        self.spans
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];
    #[inline]
    fn index(&self, i: usize) -> &[u8] {
        self.at(i)
    }
}

/// Bytes as a value to store: canonical decimal integers of 64 bits become integers, as in Redis.
#[inline]
pub fn new_value(bytes: &[u8]) -> NewValue<'_> {
    match bytes {
        [b'0'..=b'9' | b'-', ..] if bytes.len() <= 20 => match parse_int(bytes) {
            Some(n) => NewValue::Int(n),
            None => NewValue::Bytes(bytes),
        },
        _ => NewValue::Bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_store::EXTENT;

    /// A key of several extents was once taken for one slice: any client could end the server with `SET <long key> v`.
    #[test]
    fn a_long_word_is_read_in_one_piece() {
        let bytes: Vec<u8> = (0..2 * EXTENT + 3).map(|i| b'a' + u8::try_from(i % 26).expect("a letter")).collect();
        let detached = [Detached::from(Rope::from_slice(&bytes))];
        let spans = [Span { start: Span::DETACHED, len: 0 }];
        let args = Args::new(&[], &spans, &detached);
        assert!(args.at(0) == bytes && args.length(0) == bytes.len());
        assert_eq!(args.rope(0).map(Rope::len), Some(bytes.len()));
        assert!(matches!(args.value(0), NewValue::Rope(rope) if rope.len() == bytes.len()));
        assert!(!args.is(0, "get"));
    }

    #[test]
    fn integers_are_strict_as_in_redis() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", None),
            ("01", None),
            ("+1", None),
            ("", None),
            ("-", None),
            (" 1", None),
            ("1 ", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_int(text.as_bytes()), expected, "{text:?}");
        }
    }
}
