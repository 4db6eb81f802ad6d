//! What a HyperLogLog is: the bytes of a string, in Redis's format.
//!
//! ```text
//! "HYLL" | encoding u8: 0 dense, 1 sparse | 3 bytes 0 | cached estimate: u64, its highest bit set while it is not known | registers
//! dense:  16384 values of 6 bits, the lower bits of a byte first: 12288 bytes
//! sparse: runs of equal registers: 00nnnnnn n+1 zeros | 01nnnnnn nnnnnnnn n+1 zeros | 1vvvvvnn n+1 registers of value v+1
//! ```
//! A client can store any bytes and call them a HyperLogLog: every function checks what it walks over and says [`Corrupt`].
//! How runs are split and merged is fixed too: the same additions leave the same bytes as in Redis.

use super::estimate::{Histogram, REGISTERS, VALUES};

/// Bytes before the registers.
pub const HEADER: usize = 16;
/// Length of a dense sketch.
pub const DENSE: usize = HEADER + REGISTERS * 6 / 8;
/// A sparse sketch that is longer than this has runs for more registers than there are.
pub const SPARSE_MAX: usize = HEADER + 2 * REGISTERS;
/// The largest value of a register that a run can have.
const RUN_VALUE_MAX: u8 = 32;
/// Longest runs: of a value, and of zeros in one byte.
const RUN_LEN_MAX: usize = 4;
const ZEROS_LEN_MAX: usize = 64;
/// Runs that are looked at for merging after a change.
const MERGE_RUNS: usize = 5;

const ENCODING_AT: usize = 4;
const CACHE_AT: usize = 8;
const SPARSE_CODE: u8 = 1;
const CACHE_UNKNOWN: u64 = 1 << 63;

/// The bytes are no HyperLogLog after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// One value for each register, in a byte each.
pub type Registers = [u8; REGISTERS];

/// Whether a string looks like a sketch: magic, encoding, and the length of a dense one.
pub fn is_sketch(bytes: &[u8]) -> bool {
    match bytes {
        [b'H', b'Y', b'L', b'L', encoding, ..] if bytes.len() >= HEADER => match encoding {
            0 => bytes.len() == DENSE,
            _ => *encoding == SPARSE_CODE,
        },
        _ => false,
    }
}

/// Whether a sketch is dense.
pub fn is_dense(bytes: &[u8]) -> bool {
    bytes[ENCODING_AT] != SPARSE_CODE
}

/// The estimate that is kept in the sketch, if it still holds.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let cached = u64::from_le_bytes(bytes[CACHE_AT..HEADER].try_into().expect("8 bytes"));
    (cached & CACHE_UNKNOWN == 0).then_some(cached)
}

/// Keeps an estimate in the sketch.
pub fn cache(bytes: &mut [u8], estimate: u64) {
    bytes[CACHE_AT..HEADER].copy_from_slice(&estimate.to_le_bytes());
}

/// Marks the kept estimate as unknown.
pub fn forget(bytes: &mut [u8]) {
    bytes[HEADER - 1] |= 0x80;
}

/// The value of a register of a dense sketch.
pub fn dense_register(bytes: &[u8], index: usize) -> u8 {
    let (at, shift) = (HEADER + index * 6 / 8, index * 6 % 8);
    let pair = u16::from_le_bytes([bytes[at], bytes.get(at + 1).copied().unwrap_or(0)]);
    let [low, _] = (pair >> shift & 63).to_le_bytes();
    low
}

/// Sets a register of a dense sketch.
pub fn set_dense_register(bytes: &mut [u8], index: usize, value: u8) {
    let (at, shift) = (HEADER + index * 6 / 8, index * 6 % 8);
    let [low_mask, high_mask] = (63u16 << shift).to_le_bytes();
    let [low, high] = (u16::from(value) << shift).to_le_bytes();
    bytes[at] = bytes[at] & !low_mask | low;
    // The last register ends with the last byte.
    if let Some(byte) = bytes.get_mut(at + 1) {
        *byte = *byte & !high_mask | high;
    }
}

/// Calls `each` with the registers of a dense sketch, four at a time.
fn dense_registers(bytes: &[u8], mut each: impl FnMut(usize, [u8; 4])) {
    let (groups, _) = bytes[HEADER..].as_chunks::<3>();
    for (i, [a, b, c]) in groups.iter().enumerate() {
        each(4 * i, [a & 63, (a >> 6 | b << 2) & 63, (b >> 4 | c << 4) & 63, c >> 2]);
    }
}

/// How many registers have each value.
pub fn histogram(bytes: &[u8]) -> Result<Histogram, Corrupt> {
    let mut histogram = [0; VALUES];
    if is_dense(bytes) {
        dense_registers(bytes, |_, four| four.iter().for_each(|value| histogram[usize::from(*value)] += 1));
    } else {
        each_run(bytes, |run| histogram[usize::from(run.value)] += u32::try_from(run.len).expect("at most 16384"))?;
    }
    Ok(histogram)
}

/// The histogram of registers in bytes.
pub fn histogram_of(registers: &Registers) -> Histogram {
    let mut histogram = [0; VALUES];
    registers.iter().for_each(|value| histogram[usize::from(*value)] += 1);
    histogram
}

/// Raises `registers` to those of the sketch.
pub fn merge(bytes: &[u8], registers: &mut Registers) -> Result<(), Corrupt> {
    if is_dense(bytes) {
        dense_registers(bytes, |at, four| {
            for (register, value) in registers[at..at + 4].iter_mut().zip(four) {
                *register = (*register).max(value);
            }
        });
        return Ok(());
    }
    let mut at = 0;
    each_run(bytes, |run| {
        if run.value > 0 {
            registers[at..at + run.len].iter_mut().for_each(|register| *register = (*register).max(run.value));
        }
        at += run.len;
    })
}

/// A run of equal registers in a sparse sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The value, 0 to 32.
    pub value: u8,
    /// Number of registers.
    pub len: usize,
    /// Bytes that say so.
    pub bytes: usize,
}

impl Run {
    fn at(bytes: &[u8], at: usize) -> Run {
        let code = bytes[at];
        match code >> 6 {
            0 => Run { value: 0, len: usize::from(code & 63) + 1, bytes: 1 },
            1 => {
                // Behind the last byte Redis reads the zero that ends its strings.
                let low = bytes.get(at + 1).copied().unwrap_or(0);
                Run { value: 0, len: (usize::from(code & 63) << 8 | usize::from(low)) + 1, bytes: 2 }
            }
            _ => Run { value: (code >> 2 & 31) + 1, len: usize::from(code & 3) + 1, bytes: 1 },
        }
    }
}

/// Calls `each` with all runs, which never reach beyond the last register and reach it in the end, or it is corrupt.
pub fn each_run(bytes: &[u8], mut each: impl FnMut(Run)) -> Result<(), Corrupt> {
    let mut registers = 0;
    for run in runs(bytes) {
        registers += run.len;
        if registers > REGISTERS {
            return Err(Corrupt);
        }
        each(run);
    }
    if registers == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// The runs of a sparse sketch one after the other, sound or not.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        let run = (at < bytes.len()).then(|| Run::at(bytes, at))?;
        at += run.bytes;
        Some(run)
    })
}

/// Where a sparse sketch was changed last: a walk to a later register can begin there.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    at: usize,
    first: usize,
}

impl Cursor {
    /// The beginning.
    pub const START: Cursor = Cursor { at: HEADER, first: 0 };
}

/// A sketch to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

impl Sketch {
    /// One that has seen nothing.
    pub fn new() -> Sketch {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        push_zeros(&mut bytes, REGISTERS);
        Sketch(bytes)
    }

    /// That of a string for which [`is_sketch`] holds.
    pub fn of(bytes: &[u8]) -> Result<Sketch, Corrupt> {
        if bytes.len() > SPARSE_MAX { Err(Corrupt) } else { Ok(Sketch(bytes.to_vec())) }
    }

    /// The bytes to store.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to change without their length.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Raises a register; whether it was lower. A sparse sketch that would grow beyond `sparse_max` bytes becomes dense.
    /// `cursor` is one of this sketch, of a change of a register before this one.
    pub fn raise(&mut self, index: usize, value: u8, sparse_max: usize, cursor: &mut Cursor) -> Result<bool, Corrupt> {
        if !is_dense(&self.0) {
            if value <= RUN_VALUE_MAX
                && let Some(raised) = self.raise_sparse(index, value, sparse_max, cursor)?
            {
                return Ok(raised);
            }
            self.make_dense()?;
        }
        let lower = dense_register(&self.0, index) < value;
        if lower {
            set_dense_register(&mut self.0, index, value);
        }
        Ok(lower)
    }

    /// Gives every register its own place. What the header says stays.
    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if is_dense(&self.0) {
            return Ok(());
        }
        let mut dense = vec![0; DENSE];
        dense[..HEADER].copy_from_slice(&self.0[..HEADER]);
        dense[ENCODING_AT] = 0;
        let mut at = 0;
        each_run(&self.0, |run| {
            if run.value > 0 {
                (at..at + run.len).for_each(|index| set_dense_register(&mut dense, index, run.value));
            }
            at += run.len;
        })?;
        self.0 = dense;
        Ok(())
    }

    /// As [`Sketch::raise`] without becoming dense: nothing if that is due.
    fn raise_sparse(
        &mut self,
        index: usize,
        value: u8,
        sparse_max: usize,
        cursor: &mut Cursor,
    ) -> Result<Option<bool>, Corrupt> {
        let Found { before, at, first, run } = self.find(index, *cursor)?;
        if run.value >= value {
            return Ok(Some(false));
        }
        let mut split = Vec::with_capacity(5);
        push_run(&mut split, run.value, index - first);
        push_run(&mut split, value, 1);
        push_run(&mut split, run.value, first + run.len - 1 - index);
        let len = self.0.len() + split.len() - run.bytes;
        if split.len() > run.bytes && len > sparse_max {
            return Ok(None);
        }
        // Where the run's second byte is missing, the last of the new ones has no room either, as in Redis.
        self.0.splice(at..self.0.len().min(at + run.bytes), split);
        self.0.truncate(len);
        let (merge_at, merge_first) = before.unwrap_or((HEADER, 0));
        *cursor = Cursor { at: merge_at, first: merge_first };
        self.merge_runs(merge_at);
        forget(&mut self.0);
        Ok(Some(true))
    }

    /// The run with this register, and the one before it.
    fn find(&self, index: usize, from: Cursor) -> Result<Found, Corrupt> {
        let (mut at, mut first, mut before) = (from.at, from.first, None);
        while at < self.0.len() {
            let run = Run::at(&self.0, at);
            if index < first + run.len {
                // The run before is needed, and is not known when the first one fits.
                if before.is_none() && at > HEADER {
                    return self.find(index, Cursor::START);
                }
                return Ok(Found { before, at, first, run });
            }
            before = Some((at, first));
            at += run.bytes;
            first += run.len;
        }
        Err(Corrupt)
    }

    /// Joins neighbours of one value among a few runs from `at` on, as far as a run can be long.
    fn merge_runs(&mut self, mut at: usize) {
        for _ in 0..MERGE_RUNS {
            if at >= self.0.len() {
                return;
            }
            let run = Run::at(&self.0, at);
            if run.value > 0 && at + 1 < self.0.len() {
                let next = Run::at(&self.0, at + 1);
                if next.value == run.value && run.len + next.len <= RUN_LEN_MAX {
                    self.0[at + 1] = value_run(run.value, run.len + next.len);
                    self.0.remove(at);
                    continue;
                }
            }
            at += run.bytes;
        }
    }
}

struct Found {
    /// Where the run before begins, and its first register.
    before: Option<(usize, usize)>,
    at: usize,
    first: usize,
    run: Run,
}

/// Adds a run unless it is empty.
fn push_run(out: &mut Vec<u8>, value: u8, len: usize) {
    match (value, len) {
        (_, 0) => {}
        (0, _) => push_zeros(out, len),
        _ => out.push(value_run(value, len)),
    }
}

fn push_zeros(out: &mut Vec<u8>, len: usize) {
    let [high, low] = u16::try_from(len - 1).expect("at most 16384 registers").to_be_bytes();
    match len {
        0..=ZEROS_LEN_MAX => out.push(low),
        _ => out.extend([0x40 | high, low]),
    }
}

fn value_run(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | u8::try_from(len - 1).expect("at most 4 registers")
}

#[cfg(test)]
mod tests {
    use super::super::estimate::place;
    use super::*;

    fn registers_of(bytes: &[u8]) -> Box<Registers> {
        let mut registers = Box::new([0; REGISTERS]);
        merge(bytes, &mut registers).expect("sound");
        registers
    }

    #[test]
    fn every_register_of_six_bits_is_its_own() {
        let mut bytes = vec![0; DENSE];
        for index in 0..REGISTERS {
            set_dense_register(&mut bytes, index, u8::try_from(index * 7 % 64).expect("6 bits"));
        }
        for index in 0..REGISTERS {
            assert_eq!(usize::from(dense_register(&bytes, index)), index * 7 % 64);
        }
        let registers = registers_of(&bytes);
        assert!((0..REGISTERS).all(|index| registers[index] == dense_register(&bytes, index)));
    }

    #[test]
    fn sparse_and_dense_agree_while_they_fill() {
        let mut sparse = Sketch::new();
        let mut dense = Sketch::new();
        dense.make_dense().expect("sound");
        for n in 0..3000u64 {
            let (index, value) = place(&n.to_le_bytes());
            let raised = sparse.raise(index, value, 3000, &mut { Cursor::START });
            assert_eq!(raised, dense.raise(index, value, 3000, &mut { Cursor::START }));
            if n % 97 == 0 {
                assert!(*registers_of(sparse.bytes()) == *registers_of(dense.bytes()), "{n}");
                assert_eq!(histogram(sparse.bytes()), histogram(dense.bytes()));
            }
        }
        assert!(is_dense(sparse.bytes()), "it outgrew its runs");
    }

    /// With a cursor registers are raised in ascending order without walking from the beginning each time.
    #[test]
    fn a_cursor_changes_nothing_but_the_time() {
        for seed in 0..20u64 {
            let mut registers = [0u8; REGISTERS];
            for n in 0..40 + 60 * seed {
                let (index, value) = place(&(n << 8 | seed).to_le_bytes());
                registers[index] = registers[index].max(value.min(3));
                registers[(index + 1) % REGISTERS] = 2;
            }
            let (mut slow, mut fast) = (Sketch::new(), Sketch::new());
            for n in 0..50 {
                let (index, value) = place(format!("{seed} {n}").as_bytes());
                slow.raise(index, value, 5000, &mut { Cursor::START }).expect("sound");
            }
            fast.0.clone_from(&slow.0);
            let mut cursor = Cursor::START;
            for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
                let expected = slow.raise(index, *value, 20_000, &mut { Cursor::START });
                assert_eq!(fast.raise(index, *value, 20_000, &mut cursor), expected);
                assert!(slow == fast, "seed {seed}, register {index}");
            }
        }
    }

    #[test]
    fn large_values_and_long_sketches_become_dense() {
        let mut sketch = Sketch::new();
        assert_eq!(sketch.raise(5, 33, 3000, &mut { Cursor::START }), Ok(true));
        assert!(is_dense(sketch.bytes()) && dense_register(sketch.bytes(), 5) == 33);
        let mut sketch = Sketch::new();
        assert_eq!(sketch.raise(5, 3, 18, &mut { Cursor::START }), Ok(true));
        assert!(is_dense(sketch.bytes()), "18 bytes are full with one run of zeros");
    }

    #[test]
    fn broken_runs_are_noticed() {
        let with = |runs: &[u8]| [&b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0"[..], runs].concat();
        for runs in [&b""[..], b"\x7f", b"\x7f\xfe", b"\x7f\xff\x00", b"\x7f\xff\x80", b"\x00\x00", b"\x40"] {
            let bytes = with(runs);
            assert!(is_sketch(&bytes));
            assert_eq!(histogram(&bytes), Err(Corrupt), "{runs:x?}");
            assert_eq!(merge(&bytes, &mut [0; REGISTERS]), Err(Corrupt));
            let mut sketch = Sketch::of(&bytes).expect("short");
            assert_eq!(sketch.make_dense(), Err(Corrupt));
            let last = sketch.raise(REGISTERS - 1, 1, 3000, &mut { Cursor::START });
            assert!(last == Err(Corrupt) || runs.len() == 3, "{runs:x?}");
        }
        assert!(Sketch::of(&with(&[0; 2 * REGISTERS + 1])).is_err());
        for no_sketch in [&b"HYLL"[..], b"HYLM\x01\0\0\0\0\0\0\0\0\0\0\0", b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0", b""] {
            assert!(!is_sketch(no_sketch));
        }
        assert!(!is_sketch(b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0"), "a dense one has one length");
    }
}
