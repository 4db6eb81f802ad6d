//! Where the keys are in a command's arguments: what the declared key specs say, or the command's own function.

use crate::args::{Args, parse_int};
use crate::command::{Begin, Command, Find, KeySpec, keyflag};

/// Positions of keys among the arguments, each with bits of [`keyflag`]. `None` if the arguments do not say: the command
/// would answer a syntax error.
pub fn find(command: &Command, args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    let specs = || command.keys.iter().filter(|spec| spec.flags & keyflag::NOT_KEY == 0);
    let vary = command.keys.iter().any(|spec| spec.flags & keyflag::VARIABLE_FLAGS != 0);
    match command.keys_fn {
        Some(find) if vary => find(args),
        Some(find) => by_specs(specs(), args).or_else(|| find(args)),
        None => by_specs(specs(), args),
    }
}

/// Whether a command has keys at all.
pub fn has_keys(command: &Command) -> bool {
    command.keys_fn.is_some() || command.keys.iter().any(|spec| spec.flags & keyflag::NOT_KEY == 0)
}

fn by_specs<'s>(specs: impl Iterator<Item = &'s KeySpec>, args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    let mut keys = Vec::new();
    for spec in specs {
        let first = match spec.begin {
            Begin::Index(at) => at,
            Begin::Keyword(word, from) => match after_word(args, word, from) {
                Some(first) => first,
                None => continue,
            },
            Begin::Unknown => return None,
        };
        let (first, last, step) = extent(spec.find, first, args)?;
        if first > last || last >= args.len() {
            return None;
        }
        keys.extend((first..=last).step_by(step.max(1)).map(|at| (at, spec.flags)));
        if spec.flags & keyflag::INCOMPLETE != 0 {
            return None;
        }
    }
    Some(keys)
}

/// The argument behind a word, searched forward from `from`, or backward from the end if that is negative.
fn after_word(args: &Args<'_>, word: &str, from: i32) -> Option<usize> {
    let from_end = usize::try_from(from.unsigned_abs()).ok()?;
    let at = match from > 0 {
        true => (from_end..args.len()).find(|i| args.is(*i, word)),
        false => (1..=args.len().checked_sub(from_end)?).rev().find(|i| *i < args.len() && args.is(*i, word)),
    };
    at.map(|at| at + 1)
}

/// First and last key and the step between two.
fn extent(find: Find, first: usize, args: &Args<'_>) -> Option<(usize, usize, usize)> {
    match find {
        Find::Range { last, step, limit } => {
            let back = usize::try_from(last.unsigned_abs()).ok()?;
            let last = match (last >= 0, limit) {
                (true, _) => first.checked_add(back)?,
                (false, 0) => args.len().checked_sub(back)?,
                (false, _) => (first + args.len().checked_sub(first)? / limit).checked_sub(back)?,
            };
            Some((first, last, step))
        }
        Find::KeyNum { at, first: behind, step } => {
            let count = first.checked_add(at).filter(|at| *at < args.len()).and_then(|at| parse_int(args.at(at)))?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
            let first = first.checked_add(behind)?;
            Some((first, first.checked_add((count - 1).checked_mul(step)?)?, step))
        }
        Find::Unknown => None,
    }
}

/// First key, last key and step as COMMAND has always told them: of the plain ranges, the span of those that follow one
/// another. Zeros if there is none.
pub fn legacy_range(command: &Command) -> (i64, i64, i64) {
    let plain = |spec: &KeySpec| match (spec.begin, spec.find) {
        (Begin::Index(at), Find::Range { last, step, .. }) => {
            let first = i64::try_from(at).expect("declared positions are small");
            let last = if last >= 0 { first + i64::from(last) } else { i64::from(last) };
            Some((first, last, i64::try_from(step).expect("declared steps are small")))
        }
        _ => None,
    };
    if let [spec] = command.keys
        && let Some(range) = plain(spec)
    {
        return range;
    }
    let mut span: Option<(i64, i64)> = None;
    for (first, last, step) in command.keys.iter().filter_map(plain) {
        match span {
            _ if step != 1 => {}
            None => span = Some((first, last)),
            Some((begin, end)) if end == first - 1 => span = Some((begin, last)),
            Some(_) => {}
        }
    }
    span.map_or((0, 0, 0), |(first, last)| (first, last, 1))
}

/// Whether the legacy range does not tell all keys.
pub fn are_movable(command: &Command) -> bool {
    let simple = |spec: &KeySpec| {
        matches!((spec.begin, spec.find), (Begin::Index(_), Find::Range { .. }))
            && spec.flags & keyflag::INCOMPLETE == 0
    };
    if let [spec] = command.keys {
        return !simple(spec);
    }
    let mut end = None;
    command.keys.iter().any(|spec| match (spec.begin, spec.find) {
        (Begin::Index(at), Find::Range { last, step: 1, .. }) if simple(spec) => {
            let first = i64::try_from(at).expect("declared positions are small");
            let follows = end.is_none_or(|end| end == first - 1);
            end = Some(if last >= 0 { first + i64::from(last) } else { i64::from(last) });
            !follows
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Detached;
    use crate::command::{key_range, key1, keyflag::*};
    use gimmal_resp::Span;

    fn keys(specs: &'static [KeySpec], line: &str) -> Option<Vec<usize>> {
        let words: Vec<Detached> = line.split(' ').map(|word| Detached::Bytes(word.as_bytes().to_vec())).collect();
        let spans: Vec<Span> = (0..).zip(&words).map(|(i, _)| Span { start: Span::DETACHED, len: i }).collect();
        let command = Command { keys: specs, ..Command::DEFAULT };
        find(&command, &Args::new(&[], &spans, &words)).map(|found| found.into_iter().map(|(at, _)| at).collect())
    }

    const NUMBERED: &[KeySpec] = &[KeySpec {
        flags: RO | ACCESS,
        begin: Begin::Index(1),
        find: Find::KeyNum { at: 0, first: 1, step: 1 },
        notes: "",
    }];
    const STREAMS: &[KeySpec] = &[KeySpec {
        flags: RO | ACCESS,
        begin: Begin::Keyword("STREAMS", 1),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        notes: "",
    }];
    const KEYS_AT_END: &[KeySpec] = &[KeySpec {
        flags: RW,
        begin: Begin::Keyword("KEYS", -2),
        find: Find::Range { last: -1, step: 1, limit: 0 },
        notes: "",
    }];

    #[test]
    fn ranges_counts_and_words_lead_to_keys() {
        assert_eq!(keys(const { &[key1(RO)] }, "get a"), Some(vec![1]));
        assert_eq!(keys(const { &[key_range(1, -1, 2, OW)] }, "mset a 1 b 2"), Some(vec![1, 3]));
        assert_eq!(keys(NUMBERED, "x 2 a b c"), Some(vec![2, 3]));
        assert_eq!(keys(STREAMS, "xread count 5 streams a b 0 0"), Some(vec![4, 5]));
        assert_eq!(keys(KEYS_AT_END, "migrate h p \"\" 0 5 keys a b"), Some(vec![7, 8]));
        assert_eq!(keys(KEYS_AT_END, "migrate h p k 0 5"), Some(vec![]));
    }

    #[test]
    fn counts_that_lie_give_no_keys() {
        for line in ["x", "x 0 a", "x -1 a", "x 3 a b", "x 9223372036854775807 a", "x a b"] {
            assert_eq!(keys(NUMBERED, line), None, "{line}");
        }
    }

    #[test]
    fn the_legacy_range_joins_neighbours() {
        const TWO: &[KeySpec] = &[key1(RW), key_range(2, 0, 1, OW)];
        let command = Command { keys: TWO, ..Command::DEFAULT };
        assert_eq!(legacy_range(&command), (1, 2, 1));
        assert!(!are_movable(&command));
        assert_eq!(legacy_range(&Command { keys: NUMBERED, ..Command::DEFAULT }), (0, 0, 0));
        assert!(are_movable(&Command { keys: NUMBERED, ..Command::DEFAULT }));
    }
}
