//! PFSELFTEST: registers keep what they are given, sparse and dense sketches agree, and estimates are near the truth.
//!
//! It takes a while, in slices between which the worker serves its other connections.

use super::estimate::{REGISTERS, estimate, place};
use super::sketch::{Cursor, DENSE, Sketch, dense_register, histogram, is_dense, set_dense_register};
use super::{CORRUPT, sparse_max};
use crate::args::Args;
use crate::exec::{Continuation, Exec, Outcome, SLICE_US, Stop};
use std::time::{Duration, Instant};

/// Times that all registers get random values.
const ROUNDS: u32 = 1000;
/// Elements that are added.
const ELEMENTS: u64 = 10_000_000;
/// Elements between two looks at the clock.
const STEPS: u64 = 256;

pub(super) fn pfselftest(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let mut sketch = Sketch::new();
    sketch.make_dense().map_err(|_| Stop::Error(CORRUPT))?;
    let seed = exec.local.random.next();
    let mut test = Test { rounds: 0, seed, added: 0, checkpoint: 1, dense: sketch, sparse: Sketch::new() };
    match test.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(test))),
    }
}

struct Test {
    rounds: u32,
    seed: u64,
    added: u64,
    /// The next number of elements at which estimates are looked at.
    checkpoint: u64,
    dense: Sketch,
    sparse: Sketch,
}

impl Continuation for Test {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let until = Instant::now() + Duration::from_micros(SLICE_US);
        while self.rounds < ROUNDS {
            self.round()?;
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        let sparse_max = sparse_max(exec);
        while self.added < ELEMENTS {
            for _ in 0..STEPS {
                self.add(sparse_max)?;
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        exec.reply.put().ok();
        Ok(true)
    }
}

impl Test {
    /// Gives all registers values, and reads them again.
    fn round(&mut self) -> Result<(), Stop> {
        let mut bytes = vec![0; DENSE];
        let expected = |index: usize, seed: u64| {
            let mixed = (index as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed.to_be_bytes()[0] & 63
        };
        let seed = self.seed.rotate_left(self.rounds % 64) ^ u64::from(self.rounds);
        (0..REGISTERS).for_each(|index| set_dense_register(&mut bytes, index, expected(index, seed)));
        for index in 0..REGISTERS {
            let (is, should) = (dense_register(&bytes, index), expected(index, seed));
            if is != should {
                return Err(format!("TESTFAILED Register {index} should be {should} but is {is}").into());
            }
        }
        self.rounds += 1;
        Ok(())
    }

    /// Adds an element to both sketches, and compares them at every power of ten.
    fn add(&mut self, sparse_max: usize) -> Result<(), Stop> {
        self.added += 1;
        let (index, value) = place(&(self.added ^ self.seed).to_le_bytes());
        for sketch in [&mut self.dense, &mut self.sparse] {
            sketch.raise(index, value, sparse_max, &mut { Cursor::START })?;
        }
        if self.added != self.checkpoint {
            return Ok(());
        }
        if self.added < sparse_max as u64 / 2 && is_dense(self.sparse.bytes()) {
            return Err("TESTFAILED sparse encoding not used".into());
        }
        let count = estimate(&histogram(self.dense.bytes())?);
        if estimate(&histogram(self.sparse.bytes())?) != count {
            return Err("TESTFAILED dense/sparse disagree".into());
        }
        // Six times the standard error; among ten elements two may meet in a register.
        let standard = 1.04 / (REGISTERS as f64).sqrt();
        let allowed = if self.added == 10 { 1.0 } else { (standard * 6.0 * self.added as f64).ceil() };
        let error = count.abs_diff(self.added);
        if error as f64 > allowed {
            return Err(format!("TESTFAILED Too big error. card:{} abserr:{error}", self.added).into());
        }
        self.checkpoint *= 10;
        Ok(())
    }
}
