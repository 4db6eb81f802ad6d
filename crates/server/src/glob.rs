//! Glob matching as KEYS, SCAN, PSUBSCRIBE, CONFIG GET and ACL patterns use it: `*`, `?`, `[a-z]`, `[^x]` and `\x`.
//!
//! Invariants: no recursion, no allocation, and never more than [`STEP_BUDGET`] steps (bytes of pattern looked at) for one call, whatever a client sends.
//! On a failure the matcher goes back to the last `*` only, which is enough: if the part after it matches nowhere in the rest
//! of the text, letting an earlier `*` take more leaves even less text for it. The part after the last `*` has a known
//! length, so it is compared once, at the end of the text.
//!
//! Dropped: compiling the pattern first. Most patterns are matched against short names, and compiling would allocate.

/// Most bytes of pattern looked at in one call: about 10 ms. A pattern that would need more does not match.
pub const STEP_BUDGET: u64 = 4 << 20;

/// A pattern with more `*` than this before its last part matches nothing, as in Redis, which limits its recursion so.
const STARS_MAX: usize = 1000;

/// Whether `pattern` matches all of `text`, byte for byte.
///
/// Semantics are those of Redis: inside a class `\` escapes, a reversed range is put in order, and a class without its `]`
/// ends with the pattern. One difference: `*` matches the empty text too.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, false)
}

/// As [`matches()`], with ASCII letters compared without regard to case.
pub fn matches_nocase(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, true)
}

fn run(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    let mut at = Position { pattern: 0, text: 0 };
    // Where to go on after a failure: behind the last `*`, with one byte more given to it.
    let mut retry: Option<Position> = None;
    let mut steps: u64 = 0;
    let mut stars = 0;
    loop {
        steps += 1;
        if steps > STEP_BUDGET {
            return false;
        }
        if pattern.get(at.pattern) == Some(&b'*') {
            while pattern.get(at.pattern) == Some(&b'*') {
                at.pattern += 1;
                steps += 1;
            }
            if at.pattern == pattern.len() {
                return true;
            }
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            if let Some(tail) = length_without_star(&pattern[at.pattern..]) {
                let Some(start) = text.len().checked_sub(tail) else { return false };
                if start < at.text {
                    return false;
                }
                at.text = start;
                retry = None;
            } else {
                retry = Some(at);
            }
            continue;
        }
        if at.pattern == pattern.len() && at.text == text.len() {
            return true;
        }
        if at.pattern < pattern.len() && at.text < text.len() {
            let (used, hit) = one(&pattern[at.pattern..], text[at.text], nocase);
            steps += used as u64; // a long class costs what it is long
            if hit {
                at.pattern += used;
                at.text += 1;
                continue;
            }
        }
        match &mut retry {
            Some(next) if next.text < text.len() => {
                next.text += 1;
                at = *next;
            }
            _ => return false,
        }
    }
}

#[derive(Clone, Copy)]
struct Position {
    pattern: usize,
    text: usize,
}

/// How many bytes of text `pattern` takes if no `*` is left in it.
fn length_without_star(pattern: &[u8]) -> Option<usize> {
    let (mut at, mut length) = (0, 0);
    while at < pattern.len() {
        if pattern[at] == b'*' {
            return None;
        }
        at += one(&pattern[at..], 0, false).0;
        length += 1;
    }
    Some(length)
}

/// Matches the first element of `pattern` (not a `*`) with one byte: the element's length and whether it matched.
fn one(pattern: &[u8], byte: u8, nocase: bool) -> (usize, bool) {
    match pattern[0] {
        b'?' => (1, true),
        b'[' => class(pattern, byte, nocase),
        b'\\' if pattern.len() >= 2 => (2, same(pattern[1], byte, nocase)),
        literal => (1, same(literal, byte, nocase)),
    }
}

fn same(a: u8, b: u8, nocase: bool) -> bool {
    a == b || (nocase && a.eq_ignore_ascii_case(&b))
}

fn class(pattern: &[u8], byte: u8, nocase: bool) -> (usize, bool) {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut hit = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            [] => return (pattern.len(), hit != negated),
            [b']', ..] => return (at + 1, hit != negated),
            [b'\\', escaped, ..] => {
                hit |= same(*escaped, byte, nocase);
                at += 2;
            }
            [first, b'-', last, ..] => {
                hit |= in_range(*first, *last, byte, nocase);
                at += 3;
            }
            [single, ..] => {
                hit |= same(*single, byte, nocase);
                at += 1;
            }
        }
    }
}

fn in_range(first: u8, last: u8, byte: u8, nocase: bool) -> bool {
    let (low, high) = if first <= last { (first, last) } else { (last, first) };
    if nocase {
        (low.to_ascii_lowercase()..=high.to_ascii_lowercase()).contains(&byte.to_ascii_lowercase())
    } else {
        (low..=high).contains(&byte)
    }
}

#[cfg(test)]
mod tests {
    use super::{STARS_MAX, matches, matches_nocase};
    use std::time::{Duration, Instant};

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: bool) {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern:?} against {text:?}");
    }

    #[test]
    fn literals_stars_and_single_bytes() {
        check("", "", true);
        check("", "a", false);
        check("abc", "abc", true);
        check("abc", "abcd", false);
        check("abcd", "abc", false);
        check("*", "", true);
        check("*", "anything", true);
        check("a*", "a", true);
        check("a**", "a", true);
        check("*a", "bba", true);
        check("*ab*cd*", "xxabyycdzz", true);
        check("*ab*cd", "xxabyycdzz", false);
        check("a*a", "a", false);
        check("?", "", false);
        check("h?llo", "hello", true);
        check("h??lo", "hlo", false);
        check("*?", "ab", true);
        check("news.*.uk", "news.a.b.uk", true);
    }

    #[test]
    fn classes() {
        check("h[ae]llo", "hallo", true);
        check("h[ae]llo", "hillo", false);
        check("h[^e]llo", "hallo", true);
        check("h[^e]llo", "hello", false);
        check("[a-c]", "b", true);
        check("[c-a]", "b", true);
        check("[a-c]", "d", false);
        check("[\\]]", "]", true);
        check("[a-]", "^", true); // the range from ] to a, not closed
        check("[]a]", "a]", false);
        check("[abc", "c", true);
        check("[", "[", false);
        check("[^", "x", true);
        check("*[0-9]", "key7", true);
        check("[a-z]*[0-9]x", "bcd5x", true);
    }

    #[test]
    fn escapes() {
        check("a\\*", "a*", true);
        check("a\\*", "ab", false);
        check("\\?", "?", true);
        check("a\\", "a\\", true);
        check("*\\**", "x*y", true);
    }

    #[test]
    fn case_is_ignored_on_request() {
        assert!(matches_nocase(b"MaxMem*[A-C]", b"maxmemory-b"));
        assert!(!matches(b"MaxMem*", b"maxmemory"));
        assert!(matches_nocase(b"[X]\\Y", b"xy"));
    }

    #[test]
    fn a_reference_matcher_agrees_on_all_short_inputs() {
        fn reference(pattern: &[u8], text: &[u8]) -> bool {
            match pattern.first() {
                None => text.is_empty(),
                Some(b'*') => (0..=text.len()).any(|skip| reference(&pattern[1..], &text[skip..])),
                Some(b'?') => !text.is_empty() && reference(&pattern[1..], &text[1..]),
                Some(byte) => text.first() == Some(byte) && reference(&pattern[1..], &text[1..]),
            }
        }
        let words = |alphabet: &[u8], length: u32| -> Vec<Vec<u8>> {
            let base = alphabet.len();
            (0..base.pow(length)).map(|n| (0..length).map(|i| alphabet[n / base.pow(i) % base]).collect()).collect()
        };
        let texts: Vec<_> = (0..=5).flat_map(|n| words(b"ab", n)).collect();
        let mut compared = 0;
        for pattern in (0..=5).flat_map(|n| words(b"ab*?", n)) {
            for text in &texts {
                assert_eq!(matches(&pattern, text), reference(&pattern, text), "{pattern:?} {text:?}");
                compared += 1;
            }
        }
        assert!(compared > 80_000, "{compared}");
    }

    #[test]
    fn more_stars_than_redis_follows_match_nothing() {
        let text = "a".repeat(3000);
        check(&"*?".repeat(STARS_MAX), &text, true);
        check(&"*?".repeat(STARS_MAX + 1), &text, false);
        check(&("*?".repeat(STARS_MAX) + "*"), &text, true);
    }

    #[test]
    fn adversarial_patterns_end_quickly() {
        // Redis once took exponential time for `a*a*a*…b`; nested retries are what made it so.
        let text = vec![b'a'; 1 << 20];
        let mut stars = b"a*".repeat(50);
        stars.push(b'b');
        let mut literal = b"*".to_vec();
        literal.extend(vec![b'a'; 10_000]);
        literal.extend(b"b*");
        let mut classes = b"*".to_vec();
        classes.extend(b"[^b-z]".repeat(5_000));
        classes.extend(b"b*");
        let open_class = [b"*[".to_vec(), vec![b'x'; 1 << 20], b"]*".to_vec()].concat();
        for (pattern, limit_ms) in [(&stars, 10), (&literal, 200), (&classes, 400), (&open_class, 1_000)] {
            let limit = Duration::from_millis(if cfg!(debug_assertions) { limit_ms * 5 } else { limit_ms });
            // What a pattern takes it takes each time; a machine that stands still does not. The first that is quick will do.
            let mut times = (0..5).map(|_| {
                let begun = Instant::now();
                assert!(!matches(pattern, &text));
                begun.elapsed()
            });
            let mut spent = times.next().expect("five");
            while spent >= limit
                && let Some(again) = times.next()
            {
                spent = again;
            }
            assert!(spent < limit, "{spent:?} for {:?}…", &pattern[..8]);
        }
    }
}
