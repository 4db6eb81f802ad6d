//! LCS: the longest common subsequence of two strings, by dynamic programming.
//!
//! With `L(i, j)` the length for the first `i` bytes of `a` and `j` of `b`: equal last bytes extend `L(i-1, j-1)`, else
//! it is the larger of `L(i-1, j)` and `L(i, j-1)`. Of the table only one row is kept, along the shorter string; to walk
//! back, one bit per cell says whether `L(i-1, j) > L(i, j-1)`, which is all that the walk asks. Both strings are taken
//! in O(1) under their locks; the work is done in slices without any, so that nothing else waits for it.
//!
//! Dropped: the whole table of 4-byte lengths (32 times the memory), and Hirschberg's algorithm (it finds another
//! subsequence than Redis when there are several).

use super::string_of;
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, Outcome, ReplyError, SLICE_US, Stop, error};
use gimmal_store::{EXTENT, Rope, StringRef};
use std::time::{Duration, Instant};

const NOT_STRINGS: ReplyError = error("ERR The specified keys must contain string values");
const BOTH: ReplyError = error("ERR If you want both the length and indexes, please just use IDX.");
const TOO_LONG: ReplyError = error("ERR String too long for LCS");
const TOO_LARGE: ReplyError = error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");

/// Steps between two looks at the clock: some µs.
const STEPS: usize = 16 * 1024;

/// What LCS was asked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Options {
    length: bool,
    indexes: bool,
    with_lengths: bool,
    /// Shortest match to be named.
    at_least: usize,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, ReplyError> {
        let mut options = Options::default();
        let mut i = 3;
        while i < args.len() {
            if args.is(i, "idx") {
                options.indexes = true;
            } else if args.is(i, "len") {
                options.length = true;
            } else if args.is(i, "withmatchlen") {
                options.with_lengths = true;
            } else if args.is(i, "minmatchlen") && i + 1 < args.len() {
                options.at_least = usize::try_from(args.int(i + 1)?).unwrap_or(0);
                i += 1;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        if options.length && options.indexes { Err(BOTH) } else { Ok(options) }
    }
}

pub(super) fn lcs(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = Options::parse(args);
    let (a, b) = {
        let mut keys = exec.lock_all([args.at(1), args.at(2)].into_iter())?;
        let mut text = |i| match exec.read(keys.key(i)) {
            Some(entry) => string_of(&entry).map(|value| Text::of(&value)).map_err(|_| Stop::Error(NOT_STRINGS)),
            None => Ok(Text::Small(Vec::new())),
        };
        (text(0)?, text(1)?)
    };
    // Redis complains about the keys first.
    let options = options?;
    // The limits are Redis's, whose table has 4 bytes for each cell.
    let longest = u32::MAX as usize - 1;
    if a.len() >= longest || b.len() >= longest {
        return Err(TOO_LONG.into());
    }
    let limit = exec.local.config.proto_max_bulk_len();
    let bytes = (a.len() + 1).checked_mul(b.len() + 1).and_then(|cells| cells.checked_mul(4));
    if bytes.is_none_or(|bytes| bytes > limit) {
        return Err(TOO_LARGE.into());
    }
    let mut work = Work::new(a, b, options);
    // The locks are released: the rest needs none.
    match work.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(work))),
    }
}

/// A string outside of its key.
enum Text {
    Small(Vec<u8>),
    Large(Rope),
}

impl Text {
    fn of(value: &StringRef<'_>) -> Text {
        match value {
            StringRef::Int(n) => Text::Small(itoa::Buffer::new().format(*n).as_bytes().to_vec()),
            StringRef::Bytes(bytes) => Text::Small(bytes.to_vec()),
            StringRef::Rope(rope) => Text::Large((*rope).clone()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Text::Small(bytes) => bytes.len(),
            Text::Large(rope) => rope.len(),
        }
    }

    /// The contiguous bytes from `at` on.
    fn from(&self, at: usize) -> &[u8] {
        match self {
            Text::Small(bytes) => &bytes[at..],
            Text::Large(rope) => match rope.extents().nth(at / EXTENT) {
                Some(extent) => &extent[at % EXTENT..],
                None => &[],
            },
        }
    }

    fn flat(&self) -> Vec<u8> {
        match self {
            Text::Small(bytes) => bytes.clone(),
            Text::Large(rope) => rope.to_vec(),
        }
    }
}

/// A match: where it begins in the two strings, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// An LCS under way.
struct Work {
    options: Options,
    /// The longer string, and the shorter one.
    outer: Text,
    inner: Vec<u8>,
    /// The outer string is `b`.
    swapped: bool,
    /// Bytes of the outer string that are done.
    done: usize,
    /// The row: lengths for so much of the outer string and each prefix of the inner one.
    row: Vec<u32>,
    /// Whether the walk goes back in `a`, by cell; empty if only the length is asked.
    back_in_a: Vec<u64>,
    walk: Option<Walk>,
}

/// The walk back through the table.
struct Walk {
    outer: usize,
    inner: usize,
    /// The subsequence, last byte first.
    found: Vec<u8>,
    matches: Vec<Match>,
    /// The match that grows, in outer and inner positions.
    growing: Option<(usize, usize, usize)>,
}

impl Continuation for Work {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let until = Instant::now() + Duration::from_micros(SLICE_US);
        while self.done < self.outer.len() {
            self.fill_rows();
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        while !self.options.length && !self.walk_back() {
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        self.reply(exec);
        Ok(true)
    }
}

impl Work {
    fn new(a: Text, b: Text, options: Options) -> Work {
        let swapped = b.len() > a.len();
        let (outer, inner) = if swapped { (b, a) } else { (a, b) };
        let inner = inner.flat();
        let row = vec![0; inner.len() + 1];
        Work { options, outer, inner, swapped, done: 0, row, back_in_a: Vec::new(), walk: None }
    }

    /// Fills rows for about `STEPS` cells.
    fn fill_rows(&mut self) {
        let width = self.inner.len();
        let rows = (STEPS / width.max(1)).max(1);
        let bytes: Vec<u8> = self.outer.from(self.done).iter().copied().take(rows).collect();
        for byte in bytes {
            let first = self.done * width;
            if !self.options.length {
                self.back_in_a.resize((first + width).div_ceil(64), 0);
            }
            // `above_left` and `above` are of the row before, `left` of this one.
            let (mut above_left, mut left) = (0, 0);
            for (cell, (length, inner)) in (first..).zip(self.row[1..].iter_mut().zip(&self.inner)) {
                let above = *length;
                if byte == *inner {
                    *length = above_left + 1;
                } else {
                    let back_in_a = if self.swapped { left > above } else { above > left };
                    if back_in_a && !self.options.length {
                        self.back_in_a[cell / 64] |= 1 << (cell % 64);
                    }
                    *length = above.max(left);
                }
                (above_left, left) = (above, *length);
            }
            self.done += 1;
        }
    }

    /// Walks back about `STEPS` cells; true at the end.
    fn walk_back(&mut self) -> bool {
        let (outer, inner) = (self.outer.len(), self.inner.len());
        let walk = self.walk.get_or_insert_with(|| Walk {
            outer,
            inner,
            found: Vec::new(),
            matches: Vec::new(),
            growing: None,
        });
        for _ in 0..STEPS {
            if walk.outer == 0 || walk.inner == 0 {
                walk.end_match(self.swapped, self.options.at_least);
                return true;
            }
            let byte = self.outer.from(walk.outer - 1)[0];
            if byte == self.inner[walk.inner - 1] {
                walk.found.push(byte);
                walk.outer -= 1;
                walk.inner -= 1;
                let len = walk.growing.map_or(0, |(_, _, len)| len);
                walk.growing = Some((walk.outer, walk.inner, len + 1));
                continue;
            }
            walk.end_match(self.swapped, self.options.at_least);
            let cell = (walk.outer - 1) * self.inner.len() + walk.inner - 1;
            let back_in_a = self.back_in_a[cell / 64] >> (cell % 64) & 1 == 1;
            if back_in_a != self.swapped { walk.outer -= 1 } else { walk.inner -= 1 }
        }
        false
    }

    fn reply(&self, exec: &mut Exec<'_>) {
        let length = i64::from(*self.row.last().expect("a row has at least one cell"));
        let mut put = exec.reply.put();
        let Some(walk) = self.walk.as_ref().filter(|_| !self.options.length) else {
            return put.integer(length);
        };
        if !self.options.indexes {
            let found: Vec<u8> = walk.found.iter().rev().copied().collect();
            return put.bulk(&found);
        }
        put.map(2);
        put.bulk(b"matches");
        put.array(walk.matches.len());
        for found in &walk.matches {
            put.array(if self.options.with_lengths { 3 } else { 2 });
            for start in [found.a, found.b] {
                put.array(2);
                put.count(start);
                put.count(start + found.len - 1);
            }
            if self.options.with_lengths {
                put.count(found.len);
            }
        }
        put.bulk(b"len");
        put.integer(length);
    }
}

impl Walk {
    /// Notes the match that grew, if it is long enough.
    fn end_match(&mut self, swapped: bool, at_least: usize) {
        if let Some((outer, inner, len)) = self.growing.take()
            && len >= at_least
        {
            let (a, b) = if swapped { (inner, outer) } else { (outer, inner) };
            self.matches.push(Match { a, b, len });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, as the definition says.
    fn by_definition(a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Match>) {
        let mut table = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] = match a[i - 1] == b[j - 1] {
                    true => table[i - 1][j - 1] + 1,
                    false => table[i - 1][j].max(table[i][j - 1]),
                };
            }
        }
        let (mut i, mut j, mut found, mut matches) = (a.len(), b.len(), Vec::new(), Vec::<Match>::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                found.insert(0, a[i - 1]);
                match matches.last_mut() {
                    Some(last) if last.a == i && last.b == j => *last = Match { a: i - 1, b: j - 1, len: last.len + 1 },
                    _ => matches.push(Match { a: i - 1, b: j - 1, len: 1 }),
                }
                (i, j) = (i - 1, j - 1);
            } else if table[i - 1][j] > table[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        (found, matches)
    }

    fn in_slices(a: &[u8], b: &[u8], length: bool) -> (u32, Vec<u8>, Vec<Match>) {
        let text = |bytes: &[u8]| Text::Large(Rope::from_slice(bytes));
        let mut work = Work::new(text(a), text(b), Options { length, ..Options::default() });
        while work.done < work.outer.len() {
            work.fill_rows();
        }
        while !length && !work.walk_back() {}
        let walk = work.walk.map(|walk| (walk.found.into_iter().rev().collect(), walk.matches));
        let (found, matches) = walk.unwrap_or_default();
        (*work.row.last().expect("a row"), found, matches)
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let mut text = |letters| {
                let len = random(40);
                (0..len).map(|_| b'a' + u8::try_from(random(letters)).expect("few letters")).collect::<Vec<u8>>()
            };
            let (a, b) = (text(3), text(4));
            let (found, matches) = by_definition(&a, &b);
            let length = u32::try_from(found.len()).expect("short");
            assert_eq!(in_slices(&a, &b, false), (length, found, matches), "{a:?} {b:?}");
            assert_eq!(in_slices(&a, &b, true).0, length);
        }
    }

    #[test]
    fn a_long_string_is_walked_over_its_extents() {
        let mut long = vec![b'x'; 2 * EXTENT + 10];
        long[EXTENT - 1] = b'o';
        long[EXTENT] = b'k';
        let expected = vec![Match { a: EXTENT - 1, b: 0, len: 2 }];
        assert_eq!(in_slices(&long, b"ok", false), (2, b"ok".to_vec(), expected));
        assert_eq!(in_slices(b"ok", &long, false).2, [Match { a: 0, b: EXTENT - 1, len: 2 }]);
    }
}
