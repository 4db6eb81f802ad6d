//! LZF, the compression of strings in RDB: literal runs and back references within 8 KiB.
//!
//! ```text
//! 000LLLLL                      L + 1 literal bytes follow                       (1 ..= 32)
//! LLLooooo oooooooo             copy L + 2 bytes from o + 1 bytes back           (3 ..= 8)
//! 111ooooo LLLLLLLL oooooooo    copy L + 9 bytes from o + 1 bytes back           (9 ..= 264)
//! ```
//! Own code: the format is this small, and the crates for it are wrappers or years without a release.

use crate::error::Flaw;

/// Decompresses `input` into `out` (which is emptied), which must become exactly `len` bytes.
///
/// Nothing is allocated that the input could not fill: three bytes make at most [`LONGEST`].
pub(crate) fn decompress(input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Flaw> {
    out.clear();
    if len > input.len().saturating_mul(LONGEST / 3) {
        return Err(Flaw("compressed string declares more than it can hold"));
    }
    out.resize(len, 0);
    let mut at = 0;
    let mut rest = input;
    while let [control, after @ ..] = rest {
        let control = usize::from(*control);
        if control < LITERALS {
            let (run, after) = after.split_at_checked(control + 1).ok_or(CUT)?;
            out.get_mut(at..at + run.len()).ok_or(OVERFLOW)?.copy_from_slice(run);
            at += run.len();
            rest = after;
            continue;
        }
        let (copied, after) = match (control >> 5, after) {
            (7, [more, after @ ..]) => (usize::from(*more) + 9, after),
            (7, []) => return Err(CUT),
            (short, after) => (short + 2, after),
        };
        let [low, after @ ..] = after else { return Err(CUT) };
        let distance = ((control & 0x1f) << 8 | usize::from(*low)) + 1;
        let from = at.checked_sub(distance).ok_or(Flaw("compressed string refers to before its beginning"))?;
        if copied > len - at {
            return Err(OVERFLOW);
        }
        copy_back(&mut out[from..at + copied], distance);
        at += copied;
        rest = after;
    }
    if at == len { Ok(()) } else { Err(Flaw("compressed string is shorter than declared")) }
}

/// Fills `bytes` behind its first `distance` bytes with these, again and again.
fn copy_back(bytes: &mut [u8], distance: usize) {
    if let (1, [first, rest @ ..]) = (distance, &mut *bytes) {
        rest.fill(*first);
        return;
    }
    let mut done = distance;
    while done < bytes.len() {
        // What is copied may itself be part of the copy: it doubles.
        let step = done.min(bytes.len() - done);
        bytes.copy_within(..step, done);
        done += step;
    }
}

/// Compresses strings, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    /// By the hash of three bytes: one more than where they were last seen.
    seen: Vec<u32>,
    out: Vec<u8>,
}

impl Compressor {
    /// The compressed form of `input`, if that saves at least four bytes.
    pub(crate) fn compress(&mut self, input: &[u8]) -> Option<&[u8]> {
        // A table that fits the input: clearing a large one would take longer than compressing a short string.
        let bits = (usize::BITS - input.len().leading_zeros()).clamp(6, SLOT_BITS);
        self.seen.clear();
        self.seen.resize(1 << bits, 0);
        compress(input, &mut self.seen, bits, &mut self.out).then_some(&*self.out)
    }
}

fn compress(input: &[u8], seen: &mut [u32], bits: u32, out: &mut Vec<u8>) -> bool {
    out.clear();
    let Some(limit) = input.len().checked_sub(SAVED) else { return false };
    let mut literals = 0;
    let mut at = 0;
    while let Some([a, b, c]) = input.get(at..at + 3) {
        let slot = &mut seen[slot_of(*a, *b, *c, bits)];
        let candidate = std::mem::replace(slot, u32::try_from(at + 1).unwrap_or(0));
        let matched = usize::try_from(candidate).ok().and_then(|known| known.checked_sub(1));
        match matched.filter(|from| at - from <= FARTHEST && input[*from..from + 3] == [*a, *b, *c]) {
            Some(from) => {
                push_literals(&input[literals..at], out);
                let longest = (input.len() - at).min(LONGEST);
                let same = input[from + 3..].iter().zip(&input[at + 3..at + longest]);
                let len = 3 + same.take_while(|(one, other)| one == other).count();
                push_copy(at - from - 1, len, out);
                at += len;
                literals = at;
            }
            None => at += 1,
        }
        if out.len() + (at - literals) >= limit {
            return false;
        }
    }
    push_literals(&input[literals..], out);
    out.len() <= limit
}

fn push_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for run in bytes.chunks(LITERALS) {
        out.push(low_byte(run.len() - 1));
        out.extend_from_slice(run);
    }
}

/// A reference of `len` (3 to 264) bytes, `offset` (0 to 8191) bytes behind the last.
fn push_copy(offset: usize, len: usize, out: &mut Vec<u8>) {
    let high = low_byte(offset >> 8);
    if len < 9 {
        out.push(low_byte(len - 2) << 5 | high);
    } else {
        out.extend_from_slice(&[7 << 5 | high, low_byte(len - 9)]);
    }
    out.push(low_byte(offset & 0xff));
}

fn low_byte(value: usize) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low
}

/// Fibonacci hashing of three bytes to `bits` bits.
fn slot_of(a: u8, b: u8, c: u8, bits: u32) -> usize {
    let word = u32::from_le_bytes([a, b, c, 0]);
    let slot = word.wrapping_mul(0x9E37_79B1) >> (32 - bits);
    usize::try_from(slot).unwrap_or(0)
}

const CUT: Flaw = Flaw("compressed string ends in the middle of a reference");
const OVERFLOW: Flaw = Flaw("compressed string is longer than declared");
/// Control bytes below this are literal runs; also the longest run.
const LITERALS: usize = 32;
/// Longest reference.
const LONGEST: usize = 264;
/// Farthest distance of a reference, less the one that it is stored with.
const FARTHEST: usize = 8192;
/// Bytes that compression must save, so that the lengths around it do not eat up the gain.
const SAVED: usize = 4;
/// Bits of the largest table, 32 KiB: it stays in the first cache.
const SLOT_BITS: u32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(input: &[u8]) -> Option<usize> {
        let mut compressor = Compressor::default();
        let mut back = Vec::new();
        compressor.compress(input).map(|packed| {
            decompress(packed, input.len(), &mut back).expect("what was compressed");
            assert_eq!(back, input);
            packed.len()
        })
    }

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(b""), None);
        assert_eq!(round_trip(b"abcdefghijklmnopqrstuvwxyz"), None);
        assert!(round_trip(&[b'a'; 100]).expect("compressible") < 10);
        assert!(round_trip(&[0; 1_000_000]).expect("compressible") < 12_000);
        let words: Vec<u8> = (0..5000).flat_map(|n| format!("field:{} ", n % 97).into_bytes()).collect();
        assert!(round_trip(&words).expect("compressible") < words.len() / 3);
        for len in 0..600 {
            round_trip(&words[len..2 * len]);
            round_trip(&vec![b'x'; len]);
        }
    }

    #[test]
    fn every_wrong_input_is_an_error() {
        let mut compressor = Compressor::default();
        let mut out = Vec::new();
        let words = b"one two one two one two three two one two".repeat(9);
        let packed = compressor.compress(&words).expect("compressible");
        for cut in 0..packed.len() {
            assert!(decompress(&packed[..cut], words.len(), &mut out).is_err());
        }
        assert!(decompress(packed, words.len() - 1, &mut out).is_err());
        assert!(decompress(packed, words.len() + 1, &mut out).is_err());
        assert!(decompress(packed, usize::MAX, &mut out).is_err());
        assert!(decompress(&[0x20, 0], 3, &mut out).is_err(), "a reference before the beginning");
        assert!(decompress(&[], 0, &mut out).is_ok());
    }
}
