//! The part of a string that BITCOUNT and BITPOS look at.

use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::ReplyError;

/// A range as it was asked for; both ends are included, and negative ones count from the end of the string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    start: i64,
    end: Option<i64>,
    in_bits: bool,
}

impl Range {
    /// The range that begins at argument `at`, or the whole string if there is none.
    pub(super) fn parse(args: &Args<'_>, at: usize) -> Result<Range, ReplyError> {
        let mut range = Range { start: 0, end: None, in_bits: false };
        if args.len() > at + 3 {
            return Err(SYNTAX);
        }
        if args.len() > at {
            range.start = args.int(at)?;
        }
        if args.len() > at + 2 {
            range.in_bits = args.is(at + 2, "bit");
            if !range.in_bits && !args.is(at + 2, "byte") {
                return Err(SYNTAX);
            }
        }
        if args.len() > at + 1 {
            range.end = Some(args.int(at + 1)?);
        }
        Ok(range)
    }

    /// Whether an end was given.
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Whether both ends count from the string's, the first behind the last: nothing, whatever the length.
    pub(super) fn is_reversed(&self) -> bool {
        self.start < 0 && self.end.is_some_and(|end| end < 0 && self.start > end)
    }

    /// The bits of a string of `len` bytes that are meant, as a half-open range; `None` if there are none.
    pub(super) fn bits(&self, len: usize) -> Option<(u64, u64)> {
        let unit = if self.in_bits { 1 } else { 8 };
        let total = i64::try_from(len).ok()?.checked_mul(8 / unit)?;
        let from_front = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
        let start = from_front(self.start);
        let end = self.end.map_or(total - 1, from_front).min(total - 1);
        if start > end {
            return None;
        }
        let (start, end) = (u64::try_from(start).ok()?, u64::try_from(end).ok()?);
        let unit = unit.unsigned_abs();
        Some((start * unit, (end + 1) * unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_string() {
        let range = |start, end, in_bits| Range { start, end, in_bits };
        for (asked, len, expected) in [
            (range(0, None, false), 3, Some((0, 24))),
            (range(0, None, false), 0, None),
            (range(1, Some(-1), false), 3, Some((8, 24))),
            (range(-2, Some(100), false), 3, Some((8, 24))),
            (range(3, Some(5), false), 3, None),
            (range(2, Some(1), false), 3, None),
            (range(-100, Some(-90), false), 3, Some((0, 8))),
            (range(5, Some(-2), true), 3, Some((5, 23))),
            (range(23, Some(23), true), 3, Some((23, 24))),
            (range(24, None, true), 3, None),
            (range(i64::MIN, Some(i64::MAX), true), 3, Some((0, 24))),
            (range(i64::MAX, Some(i64::MIN), true), 3, None),
        ] {
            assert_eq!(asked.bits(len), expected, "{asked:?} of {len}");
        }
        assert!(range(-1, Some(-2), false).is_reversed());
        assert!(!range(-2, Some(-1), false).is_reversed() && !range(1, Some(-2), false).is_reversed());
    }
}
