//! Ends of ranges as clients write them: `(1.5` and `+inf` of scores, `[a`, `(b`, `-` and `+` of members.

use crate::double;
use crate::exec::{ReplyError, error};
use gimmal_store::types::{MemberBound, MemberRange, ScoreRange};
use std::ops::Bound;

const NO_SCORES: ReplyError = error("ERR min or max is not a float");
const NO_MEMBERS: ReplyError = error("ERR min or max not valid string range item");

/// A range of scores.
pub(super) fn scores(min: &[u8], max: &[u8]) -> Result<ScoreRange, ReplyError> {
    let bound = |text: &[u8]| match text {
        [b'(', rest @ ..] => double::parse_bound(rest).map(Bound::Excluded),
        _ => double::parse_bound(text).map(Bound::Included),
    };
    Ok(ScoreRange { min: bound(min).ok_or(NO_SCORES)?, max: bound(max).ok_or(NO_SCORES)? })
}

/// A range of members.
pub(super) fn members<'a>(min: &'a [u8], max: &'a [u8]) -> Result<MemberRange<'a>, ReplyError> {
    Ok(MemberRange { min: member(min)?, max: member(max)? })
}

fn member(text: &[u8]) -> Result<MemberBound<'_>, ReplyError> {
    match text {
        [b'(', member @ ..] => Ok(MemberBound::Excluded(member)),
        [b'[', member @ ..] => Ok(MemberBound::Included(member)),
        // As in C, a zero byte ends the word.
        [b'-'] | [b'-', 0, ..] => Ok(MemberBound::Lowest),
        [b'+'] | [b'+', 0, ..] => Ok(MemberBound::Highest),
        _ => Err(NO_MEMBERS),
    }
}

/// The ranks from `start` to `stop`, both included and counted from the end if negative, of `len`; `None` if there are none.
pub(super) fn ranks(start: i64, stop: i64, len: usize) -> Option<std::ops::Range<usize>> {
    let len = i64::try_from(len).ok()?;
    let from_front = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, stop) = (from_front(start).max(0), from_front(stop).min(len - 1));
    if start > stop {
        return None;
    }
    Some(usize::try_from(start).ok()?..usize::try_from(stop).ok()? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_cut_to_the_set() {
        for (start, stop, len, expected) in [
            (0, -1, 3, Some(0..3)),
            (0, 100, 3, Some(0..3)),
            (-2, -1, 3, Some(1..3)),
            (-100, 0, 3, Some(0..1)),
            (3, 5, 3, None),
            (2, 1, 3, None),
            (0, -4, 3, None),
            (0, -1, 0, None),
            (i64::MIN, i64::MAX, 3, Some(0..3)),
            (i64::MAX, i64::MIN, 3, None),
        ] {
            assert_eq!(ranks(start, stop, len), expected, "{start} {stop} of {len}");
        }
    }

    #[test]
    fn ends_are_open_or_closed() {
        let range = scores(b"(1", b" +inf").expect("a range");
        assert_eq!((range.min, range.max), (Bound::Excluded(1.0), Bound::Included(f64::INFINITY)));
        assert!(scores(b"((1", b"2").is_err() && scores(b"1", b"nan").is_err());
        let range = members(b"-", b"(b").expect("a range");
        assert_eq!((range.min, range.max), (MemberBound::Lowest, MemberBound::Excluded(&b"b"[..])));
        assert!(members(b"a", b"[b").is_err() && members(b"", b"+").is_err() && members(b"-x", b"+").is_err());
    }
}
