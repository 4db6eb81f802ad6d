//! BITCOUNT and BITPOS: a walk over the bits of a part of a string.
//!
//! A rope is taken in O(1) under its lock and walked without it, in slices.

use super::range::Range;
use super::{Bytes, words};
use crate::args::{Args, parse_int};
use crate::commands::string::string_of;
use crate::exec::{Continuation, Exec, Outcome, SLICE_US, Stop, error};
use gimmal_store::{EXTENT, Rope};
use std::time::{Duration, Instant};

/// Bytes between two looks at the clock: some µs.
const STRIDE: usize = 64 * 1024;

pub(super) fn bitcount(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = Range::parse(args, 2)?;
    let found = {
        let mut locked = exec.lock(args.at(1))?;
        match exec.read(locked.key()) {
            None => Found::Number(0),
            Some(entry) => {
                let mut digits = itoa::Buffer::new();
                let bytes = Bytes::new(string_of(&entry)?, &mut digits);
                match range.bits(bytes.len()).filter(|_| !range.is_reversed()) {
                    None => Found::Number(0),
                    Some((from, to)) => Walk::new(Aim::Count { so_far: 0 }, from, to).through(&bytes),
                }
            }
        }
    };
    answer(exec, found)
}

pub(super) fn bitpos(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let bit = match parse_int(args.at(2)) {
        Some(bit @ (0 | 1)) => bit == 1,
        Some(_) => return Err(error("ERR The bit argument must be 1 or 0.").into()),
        None => return Err(error("ERR value is not an integer or out of range").into()),
    };
    let range = Range::parse(args, 3)?;
    let found = {
        let mut locked = exec.lock(args.at(1))?;
        match exec.read(locked.key()) {
            // A missing key is an endless row of zeros.
            None => Found::Number(if bit { -1 } else { 0 }),
            Some(entry) => {
                let mut digits = itoa::Buffer::new();
                let bytes = Bytes::new(string_of(&entry)?, &mut digits);
                match range.bits(bytes.len()) {
                    None => Found::Number(-1),
                    Some((from, to)) => {
                        // Without an end the string goes on with zeros.
                        let otherwise = if bit || range.has_end() { -1 } else { number(to) };
                        Walk::new(Aim::Find { bit, otherwise }, from, to).through(&bytes)
                    }
                }
            }
        }
    };
    answer(exec, found)
}

fn number(n: u64) -> i64 {
    i64::try_from(n).expect("a string has fewer bits")
}

/// The answer, or a large string that is still to be walked.
enum Found {
    Number(i64),
    Later(Walk, Rope),
}

fn answer(exec: &mut Exec<'_>, found: Found) -> Outcome {
    match found {
        Found::Number(n) => {
            exec.reply.put().integer(n);
            Ok(())
        }
        Found::Later(walk, rope) => {
            let mut work = Work { walk, rope };
            match work.step(exec)? {
                true => Ok(()),
                false => Err(Stop::Continue(Box::new(work))),
            }
        }
    }
}

/// What is sought.
#[derive(Debug, Clone, Copy)]
enum Aim {
    Count { so_far: u64 },
    Find { bit: bool, otherwise: i64 },
}

/// A walk over the bits `from..to`.
#[derive(Debug)]
struct Walk {
    aim: Aim,
    from: u64,
    to: u64,
}

impl Walk {
    fn new(aim: Aim, from: u64, to: u64) -> Walk {
        Walk { aim, from, to }
    }

    fn through(mut self, bytes: &Bytes<'_>) -> Found {
        match bytes.large {
            Some(rope) => Found::Later(self, rope.clone()),
            None => Found::Number(self.take(0, bytes.small).unwrap_or_else(|| self.end())),
        }
    }

    /// Walks through `piece`, which begins at byte `at` and has byte `from / 8` in it; the answer if that is known then.
    fn take(&mut self, at: usize, piece: &[u8]) -> Option<i64> {
        let first = 8 * at as u64;
        let to = self.to.min(first + 8 * piece.len() as u64);
        let bytes = &piece[index(self.from - first)..index((to - first).div_ceil(8).saturating_mul(8))];
        // Bits of the first and the last byte that are outside.
        let head = !(0xFF >> (self.from % 8));
        let tail = match to % 8 {
            0 => 0,
            used => 0xFF >> used,
        };
        let (begin, last) = (self.from - self.from % 8, bytes.len() - 1);
        match &mut self.aim {
            Aim::Count { so_far } => {
                let outside = (bytes[0] & head).count_ones() + (bytes[last] & tail).count_ones();
                *so_far += words::count(bytes) - u64::from(outside);
            }
            Aim::Find { bit, .. } => {
                let within = match (head, first_of(bytes[0], head, *bit)) {
                    (0, _) => words::find(bytes, *bit),
                    (_, Some(found)) => Some(found),
                    (_, None) => words::find(&bytes[1..], *bit).map(|found| found + 8),
                };
                // What lies behind the end is not found: bits of the last byte.
                if let Some(found) = within.map(|found| begin + found).filter(|found| *found < to) {
                    return Some(number(found));
                }
            }
        }
        self.from = to;
        None
    }

    /// The answer at the end of the range.
    fn end(&self) -> i64 {
        match self.aim {
            Aim::Count { so_far } => number(so_far),
            Aim::Find { otherwise, .. } => otherwise,
        }
    }
}

/// The byte of a bit.
fn index(bit: u64) -> usize {
    usize::try_from(bit / 8).expect("within a string that is in memory")
}

/// The first bit of a byte that is `bit` and not masked.
fn first_of(byte: u8, masked: u8, bit: bool) -> Option<u64> {
    words::find(&[if bit { byte & !masked } else { byte | masked }], bit)
}

/// A walk through a large string.
struct Work {
    walk: Walk,
    rope: Rope,
}

impl Continuation for Work {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let until = Instant::now() + Duration::from_micros(SLICE_US);
        while self.walk.from < self.walk.to {
            let at = index(self.walk.from);
            let extent = self.rope.extents().nth(at / EXTENT).expect("the range was cut to the string");
            let piece = &extent[at % EXTENT..];
            let piece = &piece[..piece.len().min(STRIDE)];
            if let Some(found) = self.walk.take(at, piece) {
                exec.reply.put().integer(found);
                return Ok(true);
            }
            if Instant::now() >= until && self.walk.from < self.walk.to {
                return Ok(false);
            }
        }
        exec.reply.put().integer(self.walk.end());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(bytes: &[u8], at: u64) -> bool {
        bytes[index(at)] & (0x80 >> (at % 8)) != 0
    }

    fn walked(aim: Aim, from: u64, to: u64, bytes: &[u8], piece: usize) -> i64 {
        let mut walk = Walk::new(aim, from, to);
        while walk.from < to {
            let at = index(walk.from);
            let end = (at - at % piece + piece).min(bytes.len());
            if let Some(found) = walk.take(at, &bytes[at..end]) {
                return found;
            }
        }
        walk.end()
    }

    #[test]
    fn walks_agree_with_single_bits() {
        let rare: Vec<u8> = (0..40u8).map(|i| if i % 7 == 3 { 1 << (i % 8) } else { 0 }).collect();
        let common: Vec<u8> = rare.iter().map(|byte| !byte).collect();
        for bytes in [rare, common] {
            for from in 0..320u64 {
                for to in (from + 1..=320).step_by(3) {
                    for piece in [1, 8, 13, 40] {
                        let ones = (from..to).filter(|at| bit(&bytes, *at)).count();
                        let counted = walked(Aim::Count { so_far: 0 }, from, to, &bytes, piece);
                        assert_eq!(counted, i64::try_from(ones).expect("small"), "{from}..{to} by {piece}");
                        for sought in [false, true] {
                            let expected = (from..to).find(|at| bit(&bytes, *at) == sought).map_or(-7, number);
                            let found = walked(Aim::Find { bit: sought, otherwise: -7 }, from, to, &bytes, piece);
                            assert_eq!(found, expected, "{sought} in {from}..{to} by {piece}");
                        }
                    }
                }
            }
        }
    }
}
