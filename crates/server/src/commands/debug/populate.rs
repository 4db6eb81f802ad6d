//! DEBUG POPULATE: many strings at once, in slices, so that millions of them hold nobody up.

use crate::args::{Args, new_value};
use crate::exec::{Continuation, Exec, Outcome, ReplyError, SLICE_US, Stop};
use std::io::Write;
use std::time::{Duration, Instant};

/// Keys stored between two looks at the clock.
const KEYS: usize = 32;
/// Longest value: more is a mistake.
const LONGEST_VALUE: usize = 512 << 20;

struct Populate {
    next: u64,
    count: u64,
    prefix: Vec<u8>,
    size: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

pub fn populate(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = u64::try_from(positive(args, 2)?).unwrap_or(0);
    let prefix = if args.len() > 3 { args.at(3).to_vec() } else { b"key".to_vec() };
    let size = if args.len() > 4 { positive(args, 4)? } else { 0 };
    let size = usize::try_from(size).ok().filter(|size| *size <= LONGEST_VALUE);
    let size = size.ok_or("ERR value is out of range")?;
    let mut whole = Populate { next: 0, count, prefix, size, key: Vec::new(), value: Vec::new() };
    match whole.step(exec) {
        Ok(true) => Ok(()),
        Ok(false) | Err(Stop::Park) => Err(Stop::Continue(Box::new(whole))),
        Err(stop) => Err(stop),
    }
}

fn positive(args: &Args<'_>, i: usize) -> Result<i64, ReplyError> {
    match args.int(i) {
        Ok(n @ 0..) => Ok(n),
        _ => Err("ERR value is out of range, must be positive".into()),
    }
}

impl Continuation for Populate {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let started = Instant::now();
        let slice = Duration::from_micros(SLICE_US);
        while self.next < self.count {
            // The log takes no more for now: wait a pass.
            if started.elapsed() > slice
                || exec.local.log_active && !exec.in_transaction() && !exec.shared.log.has_room()
            {
                return Ok(false);
            }
            for _ in 0..KEYS {
                if self.next < self.count {
                    self.one(exec)?;
                    self.next += 1;
                }
            }
        }
        exec.reply.put().ok();
        Ok(true)
    }
}

impl Populate {
    /// Stores key number `next`, unless it is there.
    fn one(&mut self, exec: &mut Exec<'_>) -> Result<(), Stop> {
        let Populate { next, key, value, .. } = self;
        key.clear();
        key.extend_from_slice(&self.prefix);
        write!(key, ":{next}").expect("a vector takes everything");
        value.clear();
        write!(value, "value:{next}").expect("a vector takes everything");
        if self.size > 0 {
            value.resize(self.size, 0);
        }
        let mut locked = exec.lock(key)?;
        if exec.peek(locked.key()).is_none() {
            exec.effect_value(locked.key(), &[b"SET", key], &new_value(value), &[]);
            let _nothing_was_there = exec.put(locked.key(), new_value(value), None);
        }
        Ok(())
    }
}
