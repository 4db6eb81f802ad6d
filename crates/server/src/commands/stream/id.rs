//! Ids of entries, as clients write and read them.

use crate::args::{Args, parse_int};
use crate::exec::{ReplyError, error};
use gimmal_resp::Writer;
use gimmal_store::types::StreamId;

pub(super) const INVALID: ReplyError = error("ERR Invalid stream ID specified as stream command argument");
const INVALID_START: ReplyError = error("ERR invalid start ID for the interval");
const INVALID_END: ReplyError = error("ERR invalid end ID for the interval");

/// Longest text that can be an id.
const LONGEST: usize = 127;

/// An id as text: `ms-seq`.
pub(super) struct IdText {
    bytes: [u8; 41],
    len: usize,
}

impl IdText {
    /// The text of an id.
    pub(super) fn new(id: StreamId) -> IdText {
        let mut text = IdText { bytes: [0; 41], len: 0 };
        text.push(itoa::Buffer::new().format(id.ms).as_bytes());
        text.push(b"-");
        text.push(itoa::Buffer::new().format(id.seq).as_bytes());
        text
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Replies an id.
#[inline]
pub(super) fn put(writer: &mut Writer<'_>, id: StreamId) {
    writer.bulk(IdText::new(id).bytes());
}

/// The id of a new entry, as XADD takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// `*`: by the clock.
    Auto,
    /// `ms-*`: the next one in this millisecond.
    Within(u64),
    /// This one.
    Exactly(StreamId),
}

/// The id of a new entry, but for `*`.
pub(super) fn new_id(text: &[u8]) -> Result<NewId, ReplyError> {
    if let Some(ms) = text.strip_suffix(b"-*").filter(|ms| text.len() <= LONGEST && !ms.contains(&b'-')) {
        return number(ms).map(NewId::Within).ok_or(INVALID);
    }
    strict(text, 0).map(NewId::Exactly)
}

/// An id; without a number, the one that is missing.
pub(super) fn strict(text: &[u8], missing: u64) -> Result<StreamId, ReplyError> {
    parse(text, missing).ok_or(INVALID)
}

/// As [`strict`], or one of the ends `-` and `+`.
pub(super) fn open(text: &[u8], missing: u64) -> Result<StreamId, ReplyError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => strict(text, missing),
    }
}

/// All arguments from `from` on as ids.
pub(super) fn all(args: &Args<'_>, from: usize) -> Result<Vec<StreamId>, ReplyError> {
    args.rest(from).map(|text| strict(text, 0)).collect()
}

/// The lower end of a range; `(` before it leaves it out.
pub(super) fn start(text: &[u8]) -> Result<StreamId, ReplyError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => strict(id, 0)?.next().ok_or(INVALID_START),
        _ => open(text, 0),
    }
}

/// The upper end of a range.
pub(super) fn end(text: &[u8]) -> Result<StreamId, ReplyError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => strict(id, u64::MAX)?.before().ok_or(INVALID_END),
        _ => open(text, u64::MAX),
    }
}

fn parse(text: &[u8], missing: u64) -> Option<StreamId> {
    if text.len() > LONGEST {
        return None;
    }
    let mut parts = text.splitn(2, |byte| *byte == b'-');
    let ms = number(parts.next()?)?;
    let seq = parts.next().map_or(Some(missing), number)?;
    Some(StreamId { ms, seq })
}

/// A number of 64 bits without a sign. What is no canonical integer is read as C's `strtoull` does, as in Redis: blanks and a sign
/// before it, and zeros.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_int(text) {
        return u64::try_from(number).ok();
    }
    let digits = text.trim_ascii_start();
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn ids_are_read_as_in_redis() {
        assert_eq!(strict(b"5", 0), Ok(id(5, 0)));
        assert_eq!(strict(b"5", 9), Ok(id(5, 9)));
        assert_eq!(strict(b"5-18446744073709551615", 0), Ok(id(5, u64::MAX)));
        assert_eq!(strict(b"007-+3", 0), Ok(id(7, 3)));
        for wrong in [&b""[..], b"-", b"+", b"-1", b"1-", b"1-2-3", b"a", b"18446744073709551616", b"1-*", &[b'1'; 128]]
        {
            assert_eq!(strict(wrong, 0), Err(INVALID), "{}", String::from_utf8_lossy(wrong));
        }
        assert_eq!((start(b"-"), end(b"+")), (Ok(StreamId::MIN), Ok(StreamId::MAX)));
        assert_eq!((start(b"(5"), end(b"(5")), (Ok(id(5, 1)), Ok(id(5, u64::MAX - 1))));
        assert_eq!(
            (start(b"(18446744073709551615-18446744073709551615"), end(b"(0-0")),
            (Err(INVALID_START), Err(INVALID_END))
        );
        assert_eq!((start(b"("), end(b"(-")), (Err(INVALID), Err(INVALID)));
        assert_eq!((new_id(b"7-*"), new_id(b"7-1")), (Ok(NewId::Within(7)), Ok(NewId::Exactly(id(7, 1)))));
        assert_eq!((new_id(b"7-1-*"), new_id(b"-*")), (Err(INVALID), Err(INVALID)));
    }

    #[test]
    fn ids_are_written_in_full() {
        assert_eq!(IdText::new(id(0, 0)).bytes(), b"0-0");
        assert_eq!(IdText::new(StreamId::MAX).bytes(), b"18446744073709551615-18446744073709551615");
    }
}
