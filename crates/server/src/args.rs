//! A command's arguments: bytes from a client, hostile until parsed.
//!
//! They stay where they were received; only large bulk strings and inline words live in buffers of their own
//! (*detached* arguments), so that a large value is copied once on its way in.

use crate::exec::{ReplyError, error};
use gimmal_resp::Span;
use gimmal_store::{NewValue, Rope};
use std::ops::Index;

/// An argument that is not in the receive buffer.
#[derive(Debug)]
pub enum Detached {
    /// A word of an inline command, or a flattened large value.
    Bytes(Vec<u8>),
    /// A large bulk string, as it arrived.
    Rope(Rope),
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
            // Dispatch flattens ropes for commands that do not take large values, and a handler that takes them asks `value`.
            Detached::Rope(rope) => rope.as_single().expect("a large argument was read as one slice"),
        }
    }

    /// Argument `i` as a value to store: a large one by reference, a decimal integer as an integer.
    #[inline]
    pub fn value(&self, i: usize) -> NewValue<'a> {
        let Span { start, len } = self.spans[i];
        if start == Span::DETACHED {
            match &self.detached[len as usize] {
                Detached::Rope(rope) => return NewValue::Rope(rope.clone()),
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
                Detached::Rope(rope) => rope.len(),
            },
            false => len as usize,
        }
    }

    /// The rope of argument `i`, if it is a large one.
    pub fn rope(&self, i: usize) -> Option<&'a Rope> {
        let Span { start, len } = self.spans[i];
        match (start == Span::DETACHED).then(|| &self.detached[len as usize]) {
            Some(Detached::Rope(rope)) => Some(rope),
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

/// A canonical decimal: no sign but `-`, no leading zero, no spaces, within 64 bits (Redis's `string2ll`).
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    match negative {
        false => i64::try_from(magnitude).ok(),
        true => 0i64.checked_sub_unsigned(magnitude),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
