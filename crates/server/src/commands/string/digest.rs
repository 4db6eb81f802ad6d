//! DIGEST and DELEX: a string's XXH3 hash of 64 bits, and removing a key if its string or the hash is, or is not, what is
//! expected.
//!
//! For DIGEST a rope is taken in O(1) under its lock and hashed without it, in slices.

use super::{equals, raw, string_of};
use crate::args::Args;
use crate::exec::{Continuation, Exec, Outcome, ReplyError, SLICE_US, Stop, error};
use crate::notify;
use gimmal_store::{Rope, StringRef};
use std::time::{Duration, Instant};
use twox_hash::xxhash3_64::Hasher;

const NO_CONDITION: ReplyError = error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
const NOT_A_STRING: ReplyError = error("ERR Key should be of string type if conditions are specified");
const NOT_A_DIGEST: ReplyError = error("ERR must be exactly 16 hexadecimal characters");

/// Digits of a digest.
const DIGITS: usize = 16;

pub(super) fn digest(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut work = {
        let mut locked = exec.lock(args.at(1))?;
        let Some(entry) = exec.read(locked.key()) else {
            exec.reply.put().null();
            return Ok(());
        };
        match string_of(&entry)? {
            StringRef::Rope(rope) => Work { rope: rope.clone(), extent: 0, hasher: Hasher::new() },
            value => {
                exec.reply.put().bulk(digest_of(&value).as_bytes());
                return Ok(());
            }
        }
    };
    match work.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(work))),
    }
}

/// The digest of a string, 16 hexadecimal digits.
fn digest_of(value: &StringRef<'_>) -> String {
    let hash = match value {
        StringRef::Int(n) => Hasher::oneshot(itoa::Buffer::new().format(*n).as_bytes()),
        StringRef::Bytes(bytes) => Hasher::oneshot(bytes),
        StringRef::Rope(rope) => {
            let mut hasher = Hasher::new();
            rope.extents().for_each(|extent| std::hash::Hasher::write(&mut hasher, extent));
            std::hash::Hasher::finish(&hasher)
        }
    };
    format!("{hash:016x}")
}

/// A digest of a large string under way.
struct Work {
    rope: Rope,
    /// The next extent.
    extent: usize,
    hasher: Hasher,
}

impl Continuation for Work {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let until = Instant::now() + Duration::from_micros(SLICE_US);
        while let Some(extent) = self.rope.extents().nth(self.extent) {
            std::hash::Hasher::write(&mut self.hasher, extent);
            self.extent += 1;
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        let hash = std::hash::Hasher::finish(&self.hasher);
        exec.reply.put().bulk(format!("{hash:016x}").as_bytes());
        Ok(true)
    }
}

/// What a string is compared with, or its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    digest: bool,
    equal: bool,
    /// The argument.
    with: usize,
}

impl Condition {
    /// The condition that argument `i` names; what is compared follows.
    pub(super) fn parse(args: &Args<'_>, i: usize) -> Option<Condition> {
        [("ifeq", false, true), ("ifne", false, false), ("ifdeq", true, true), ("ifdne", true, false)]
            .into_iter()
            .find_map(|(word, digest, equal)| args.is(i, word).then_some(Condition { digest, equal, with: i + 1 }))
    }

    /// Whether it holds for a string, or for none: that is different from every one.
    pub(super) fn holds(self, value: Option<&StringRef<'_>>, args: &Args<'_>) -> Result<bool, ReplyError> {
        let Some(value) = value else { return Ok(!self.equal) };
        if self.digest && args.length(self.with) != DIGITS {
            return Err(NOT_A_DIGEST);
        }
        let same = match self.digest {
            true => digest_of(value).as_bytes().eq_ignore_ascii_case(args.at(self.with)),
            false => equals(value, &raw(args, self.with)),
        };
        Ok(same == self.equal)
    }
}

pub(super) fn delex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() != 2 && args.len() != 4 {
        return Err("ERR wrong number of arguments for 'delex' command".into());
    }
    let mut locked = exec.lock(args.at(1))?;
    let remove = match (exec.peek(locked.key()), args.len()) {
        (None, _) => false,
        (Some(_), 2) => true,
        (Some(entry), _) => {
            // As in Redis a missing key answers before any of this is looked at.
            let value = string_of(&entry).map_err(|_| NOT_A_STRING)?;
            Condition::parse(args, 2).ok_or(NO_CONDITION)?.holds(Some(&value), args)?
        }
    };
    if remove {
        let _removed = exec.remove(locked.key());
        exec.effect(locked.key(), &[b"DEL", args.at(1)]);
        exec.notify(notify::GENERIC, "del", args.at(1));
    }
    exec.reply.put().integer(i64::from(remove));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests that Redis's documentation and tests name.
    #[test]
    fn digests_are_those_of_the_reference() {
        assert_eq!(digest_of(&StringRef::Bytes(b"")), "2d06800538d394c2");
        assert_eq!(digest_of(&StringRef::Bytes(b"Hello world")), "b6acb9d84a38ff74");
        let zeros = b"v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd";
        assert_eq!(digest_of(&StringRef::Bytes(zeros)), "00006c38adf31777");
        assert_eq!(digest_of(&StringRef::Int(-12)), digest_of(&StringRef::Bytes(b"-12")));
        let long: Vec<u8> = (0..700_000u32).map(|i| i.to_be_bytes()[3]).collect();
        assert_eq!(digest_of(&StringRef::Rope(&Rope::from_slice(&long))), digest_of(&StringRef::Bytes(&long)));
    }
}
