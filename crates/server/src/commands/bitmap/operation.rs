//! BITOP: bits of several strings combined into one.
//!
//! Short strings are combined under the locks. For long ones the sources are taken in O(1) and combined in slices without
//! any lock; then the keys are locked again, and if the sources still are what they were, the result is stored: so it is
//! one of its moment, as the log says. If they were changed, it begins again, and after [`TRIES`] it keeps the locks.

use super::words;
use crate::args::Args;
use crate::commands::string::string_of;
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, LockedMany, Outcome, ReplyError, SLICE_US, Stop, error};
use crate::notify;
use gimmal_store::{INLINE_MAX, NewValue, Rope, RopeBuilder, StringRef};
use std::time::{Duration, Instant};

/// Bytes of the result that are made at once: they and a source's stay in the processor's caches.
const BLOCK: usize = 16 * 1024;
/// Up to so many bytes of sources are combined under the locks.
const UNDER_LOCKS: usize = 512 * 1024;
/// Beginnings without the locks.
const TRIES: u32 = 3;

/// How bits are combined. `X` is the first source, `Y` any other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// Set in X and in no Y.
    Diff,
    /// Set in some Y and not in X.
    Diff1,
    /// Set in X and in some Y.
    AndOr,
    /// Set in exactly one.
    One,
}

const NAMES: [(&str, Operation); 8] = [
    ("AND", Operation::And),
    ("OR", Operation::Or),
    ("XOR", Operation::Xor),
    ("NOT", Operation::Not),
    ("DIFF", Operation::Diff),
    ("DIFF1", Operation::Diff1),
    ("ANDOR", Operation::AndOr),
    ("ONE", Operation::One),
];

const ONE_SOURCE: ReplyError = error("ERR BITOP NOT must be called with a single source key.");

impl Operation {
    fn parse(args: &Args<'_>) -> Result<(&'static str, Operation), ReplyError> {
        let named = NAMES.iter().find(|(name, _)| args.is(1, name)).copied();
        let (name, operation) = named.ok_or(SYNTAX)?;
        match operation {
            Operation::Not if args.len() != 4 => Err(ONE_SOURCE),
            Operation::Diff | Operation::Diff1 | Operation::AndOr if args.len() < 5 => {
                Err(format!("ERR BITOP {name} must be called with at least two source keys.").into())
            }
            _ => Ok((name, operation)),
        }
    }
}

pub(super) fn bitop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (name, operation) = Operation::parse(args)?;
    let mut work = {
        let mut keys = exec.lock_all(args.rest(2))?;
        let sources = sources(exec, &mut keys)?;
        let bytes: usize = sources.iter().map(Source::len).sum();
        let mut sum = Sum::new(operation, sources);
        if bytes <= UNDER_LOCKS {
            sum.finish();
            let names: Vec<&[u8]> = args.rest(2).collect();
            store(exec, &mut keys, name, &names, sum);
            return Ok(());
        }
        Work { name, names: args.rest(2).map(<[u8]>::to_vec).collect(), sum, tries: 1 }
    };
    // The locks are released.
    match work.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(work))),
    }
}

/// The values of all keys but the first; missing ones are empty.
fn sources(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>) -> Result<Vec<Source>, Stop> {
    let count = keys.len();
    let source = |i| match exec.read(keys.key(i)) {
        Some(entry) => string_of(&entry).map(|value| Source::of(&value)),
        None => Ok(Source::Small(Vec::new())),
    };
    (1..count).map(source).collect()
}

/// Stores a finished result at the first key.
fn store(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>, operation: &str, names: &[&[u8]], sum: Sum) {
    let len = sum.len;
    let changed = match len {
        0 => exec.peek(keys.key(0)).is_some() && exec.remove(keys.key(0)).is_some(),
        1..=INLINE_MAX => {
            // As after SETBIT the string is in its changeable form.
            let _old = exec.put(keys.key(0), NewValue::Bytes(b""), None);
            let mut entry = exec.write(keys.key(0)).expect("it was just put");
            sum.result.finish().extents().for_each(|extent| _ = entry.append(extent));
            true
        }
        _ => {
            let _old = exec.put(keys.key(0), NewValue::Rope(sum.result.finish()), None);
            true
        }
    };
    if changed {
        let words: Vec<&[u8]> = [&b"BITOP"[..], operation.as_bytes()].iter().chain(names).copied().collect();
        exec.effect(keys.key(0), &words);
        match len {
            0 => exec.notify(notify::GENERIC, "del", names[0]),
            _ => exec.notify(notify::STRING, "set", names[0]),
        }
    }
    exec.reply.put().count(len);
}

/// A string outside of its key.
enum Source {
    Small(Vec<u8>),
    Large(Rope),
}

impl Source {
    fn of(value: &StringRef<'_>) -> Source {
        match value {
            StringRef::Int(n) => Source::Small(itoa::Buffer::new().format(*n).as_bytes().to_vec()),
            StringRef::Bytes(bytes) => Source::Small(bytes.to_vec()),
            StringRef::Rope(rope) => Source::Large((*rope).clone()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Source::Small(bytes) => bytes.len(),
            Source::Large(rope) => rope.len(),
        }
    }

    /// The bytes from `at` on, up to the end of their extent.
    fn piece(&self, at: usize, most: usize) -> &[u8] {
        match self {
            Source::Small(bytes) => &bytes[at.min(bytes.len())..(at + most).min(bytes.len())],
            Source::Large(rope) => rope.pieces(at, at + most).next().unwrap_or(&[]),
        }
    }

    /// Whether it certainly is what `other` was.
    fn is_same(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Small(bytes), Source::Small(others)) => bytes == others,
            (Source::Large(rope), Source::Large(other)) => rope.is_same(other),
            _ => false,
        }
    }
}

/// A result that is being made.
struct Sum {
    operation: Operation,
    sources: Vec<Source>,
    /// Length of the result.
    len: usize,
    result: RopeBuilder,
    block: Vec<u8>,
    /// For `One`: bits that were seen more than once.
    several: Vec<u8>,
}

impl Sum {
    fn new(operation: Operation, sources: Vec<Source>) -> Sum {
        let len = sources.iter().map(Source::len).max().unwrap_or(0);
        Sum { operation, sources, len, result: RopeBuilder::new(len), block: Vec::new(), several: Vec::new() }
    }

    fn is_finished(&self) -> bool {
        self.result.missing() == 0
    }

    fn finish(&mut self) {
        while !self.is_finished() {
            self.step();
        }
    }

    /// Makes the next block.
    fn step(&mut self) {
        let at = self.result.filled();
        // Extents hold whole blocks: a block's bytes are in one piece in every source.
        let size = BLOCK.min(self.len - at);
        let block = &mut self.block;
        block.clear();
        let (first, others) = self.sources.split_first().expect("the arity asks for a source");
        let first = first.piece(at, size);
        let others = others.iter().map(|source| source.piece(at, size));
        match self.operation {
            Operation::And | Operation::Or | Operation::Xor | Operation::Not | Operation::Diff => {
                block.extend_from_slice(first);
                block.resize(size, 0);
            }
            Operation::Diff1 | Operation::AndOr | Operation::One => block.resize(size, 0),
        }
        match self.operation {
            Operation::And => others.for_each(|other| intersect(block, other)),
            Operation::Or => others.for_each(|other| merge(block, other, |a, b| a | b)),
            Operation::Xor => others.for_each(|other| merge(block, other, |a, b| a ^ b)),
            Operation::Not => block.iter_mut().for_each(|byte| *byte = !*byte),
            Operation::Diff => others.for_each(|other| merge(block, other, |a, b| a & !b)),
            Operation::Diff1 => {
                others.for_each(|other| merge(block, other, |a, b| a | b));
                merge(block, first, |a, b| a & !b);
            }
            Operation::AndOr => {
                others.for_each(|other| merge(block, other, |a, b| a | b));
                intersect(block, first);
            }
            Operation::One => {
                self.several.clear();
                self.several.resize(size, 0);
                for source in std::iter::once(first).chain(others) {
                    let (seen, several) = (&block[..source.len()], &mut self.several[..source.len()]);
                    // Set before and in this one: more than once.
                    for ((several, seen), byte) in several.iter_mut().zip(seen).zip(source) {
                        *several |= seen & byte;
                    }
                    merge(block, source, |a, b| a | b);
                }
                merge(block, &self.several, |a, b| a & !b);
            }
        }
        self.result.push(block);
    }
}

/// Combines a source, which may be shorter than the block.
fn merge(block: &mut [u8], source: &[u8], with: impl Fn(u64, u64) -> u64) {
    words::combine(&mut block[..source.len()], source, with);
}

/// What is behind the end of the source is 0.
fn intersect(block: &mut [u8], source: &[u8]) {
    merge(block, source, |a, b| a & b);
    block[source.len()..].fill(0);
}

/// A BITOP of long strings under way.
struct Work {
    name: &'static str,
    names: Vec<Vec<u8>>,
    sum: Sum,
    tries: u32,
}

impl Continuation for Work {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let until = Instant::now() + Duration::from_micros(SLICE_US);
        while !self.sum.is_finished() {
            self.sum.step();
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        let names: Vec<&[u8]> = self.names.iter().map(Vec::as_slice).collect();
        let mut keys = exec.lock_all(names.iter().copied())?;
        let now = sources(exec, &mut keys)?;
        let operation = self.sum.operation;
        if !now.iter().zip(&self.sum.sources).all(|(now, then)| now.is_same(then)) {
            self.sum = Sum::new(operation, now);
            self.tries += 1;
            if self.tries <= TRIES {
                return Ok(false);
            }
            self.sum.finish();
        }
        let sum = std::mem::replace(&mut self.sum, Sum::new(operation, Vec::new()));
        store(exec, &mut keys, self.name, &names, sum);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined(operation: Operation, sources: &[Vec<u8>]) -> Vec<u8> {
        let large = |bytes: &Vec<u8>| match bytes.len() {
            0..=INLINE_MAX => Source::Small(bytes.clone()),
            _ => Source::Large(Rope::from_slice(bytes)),
        };
        let mut sum = Sum::new(operation, sources.iter().map(large).collect());
        sum.finish();
        sum.result.finish().to_vec()
    }

    fn expected(operation: Operation, sources: &[Vec<u8>]) -> Vec<u8> {
        let len = sources.iter().map(Vec::len).max().unwrap_or(0);
        let bit = |at: usize| {
            let set = |source: &Vec<u8>| source.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0);
            let (x, y) = (set(&sources[0]), sources[1..].iter().any(set));
            let count = sources.iter().filter(|source| set(source)).count();
            match operation {
                Operation::And => count == sources.len(),
                Operation::Or => x || y,
                Operation::Xor => count % 2 == 1,
                Operation::Not => !x,
                Operation::Diff => x && !y,
                Operation::Diff1 => !x && y,
                Operation::AndOr => x && y,
                Operation::One => count == 1,
            }
        };
        let byte = |i: usize| (0..8).fold(0, |byte, b| byte << 1 | u8::from(bit(8 * i + b)));
        (0..len).map(byte).collect()
    }

    #[test]
    fn every_operation_is_what_it_is_bit_by_bit() {
        let noise = |len: usize, seed: usize| -> Vec<u8> {
            (0..len).map(|i| u8::try_from((i * i + seed * (i + 77)) % 251).expect("below 251")).collect()
        };
        for lens in [vec![0], vec![5], vec![3, 9], vec![9, 3, 0], vec![17, 40, 40], vec![20_000, 5000, 16_390, 3]] {
            let sources: Vec<Vec<u8>> = (1..).zip(&lens).map(|(seed, len)| noise(*len, 13 * seed)).collect();
            for (name, operation) in NAMES {
                let sources = if operation == Operation::Not { &sources[..1] } else { &sources };
                assert!(combined(operation, sources) == expected(operation, sources), "{name} of {lens:?}");
            }
        }
    }
}
