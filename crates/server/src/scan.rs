//! What HSCAN, SSCAN and ZSCAN have in common: cursor, options and the form of the reply.
//!
//! Of a value that is said to be compact all elements are visited at once, whatever COUNT says, as in Redis.

use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, ReplyError, error};
use crate::glob;

const INVALID_CURSOR: ReplyError = error("ERR invalid cursor");
/// Elements that are visited unless told otherwise.
const COUNT: usize = 10;
/// Elements that a compact value may have to be visited at once: some 10 µs.
const AT_ONCE: usize = 1024;
/// Elements that a slice visits at most, whatever COUNT says: a scan may answer fewer.
const MOST: usize = 4096;

/// What an element must be like, and how many are visited.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `None`: all.
    pattern: Option<Vec<u8>>,
    /// Elements to visit.
    count: Option<usize>,
    /// Only fields or members, without their values or scores.
    pub bare: bool,
}

impl Options {
    /// The options from argument `from` on; `bare` is the word that leaves values or scores out, if there are any. An error is to be
    /// answered only if there is a value of the right type.
    pub fn parse(args: &Args<'_>, from: usize, bare: Option<&str>) -> Result<Options, ReplyError> {
        let mut options = Options::default();
        let mut i = from;
        while i < args.len() {
            let more = i + 1 < args.len();
            if more && args.is(i, "count") {
                let count = usize::try_from(args.int(i + 1)?).ok().filter(|count| *count > 0);
                options.count = Some(count.ok_or(SYNTAX)?);
                i += 2;
            } else if more && args.is(i, "match") {
                options.pattern = (args.at(i + 1) != b"*").then(|| args.at(i + 1).to_vec());
                i += 2;
            } else if bare.is_some_and(|word| args.is(i, word)) {
                options.bare = true;
                i += 1;
            } else if args.is(i, "novalues") {
                return Err(error("ERR NOVALUES option can only be used in HSCAN"));
            } else if args.is(i, "noscores") {
                return Err(error("ERR NOSCORES option can only be used in ZSCAN"));
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// Whether an element is wanted.
    pub fn fits(&self, element: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, element))
    }
}

/// A cursor as a client gives it: what C's `strtoul` reads of the whole word, with the empty word for 0.
pub fn cursor(word: &[u8]) -> Result<u64, ReplyError> {
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => (false, word),
    };
    if digits.is_empty() != word.is_empty() {
        return Err(INVALID_CURSOR);
    }
    let mut number = 0_u64;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0')).ok_or(INVALID_CURSOR)?;
        number = number.checked_mul(10).and_then(|number| number.checked_add(digit)).ok_or(INVALID_CURSOR)?;
    }
    Ok(if negative { number.wrapping_neg() } else { number })
}

/// How many elements of a value of this length to visit.
pub fn count(options: &Options, compact: bool, len: usize) -> usize {
    if compact && len <= AT_ONCE { len } else { options.count.unwrap_or(COUNT).min(MOST) }
}

/// The reply: the next cursor, and `count` bulk strings, which are encoded in `items`.
pub fn answer(exec: &mut Exec<'_>, cursor: u64, count: usize, items: &[u8]) {
    exec.reply.put().array(2);
    exec.reply.put().bulk_str(itoa::Buffer::new().format(cursor));
    exec.reply.put().array(count);
    exec.reply.put().buffer().extend_from_slice(items);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_unsigned_decimals() {
        for (word, expected) in [
            ("0", Some(0)),
            ("", Some(0)),
            ("+7", Some(7)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            (" 0", None),
            ("x", None),
            ("-", None),
        ] {
            assert_eq!(cursor(word.as_bytes()).ok(), expected, "{word:?}");
        }
    }

    #[test]
    fn a_compact_value_is_visited_at_once() {
        let options = Options { count: Some(5), ..Options::default() };
        assert_eq!((count(&options, true, 500), count(&options, false, 500), count(&options, true, 5000)), (500, 5, 5));
        assert_eq!(count(&Options::default(), false, 500), 10);
    }
}
