//! Random elements of a value: HRANDFIELD, SRANDMEMBER and their kin.
//!
//! The handler takes the value's root and lets go of the lock; the elements are then written in slices, as in `streamed.rs`. A few
//! different ones are drawn and drawn again when one comes twice; many are chosen in one walk over the value, each element with
//! the probability with which it belongs to the rest of the sample (Knuth, The Art of Computer Programming 3.4.2, algorithm S).

use crate::args::Args;
use crate::exec::{Continuation, Exec, Outcome, ReplyError, SLICE_US, Stop};
use crate::reply::Reply;
use crate::worker::Random;
use std::collections::HashSet;
use std::time::Instant;

/// Elements that are drawn one by one, if they are few of those there are.
const DRAWN: usize = 256;
/// Elements between two looks at the clock.
const STEP: usize = 64;
/// Reply bytes that one slice may add.
const SLICE_BYTES: usize = 256 * 1024;

/// How many elements were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// At most so many, all different.
    Distinct(usize),
    /// Exactly so many, each drawn from all.
    Repeated(usize),
}

impl Count {
    /// Argument `i` as a count: negative for elements that may come again.
    pub fn parse(args: &Args<'_>, i: usize) -> Result<Count, ReplyError> {
        let count = args.int(i)?;
        if count == i64::MIN {
            let (min, max) = (-i64::MAX, i64::MAX);
            return Err(format!("ERR value is out of range, value must between {min} and {max}").into());
        }
        let magnitude = usize::try_from(count.unsigned_abs()).expect("64 bits");
        Ok(if count < 0 { Count::Repeated(magnitude) } else { Count::Distinct(magnitude) })
    }

    /// The number that was given, without its sign.
    pub fn magnitude(self) -> usize {
        match self {
            Count::Distinct(count) | Count::Repeated(count) => count,
        }
    }

    /// How many elements are answered of a value that has `live`.
    pub fn of(self, live: usize) -> usize {
        match self {
            Count::Distinct(count) => count.min(live),
            Count::Repeated(_) if live == 0 => 0,
            Count::Repeated(count) => count,
        }
    }
}

/// Elements by rank, held by their value's root.
pub trait Ranked: Send {
    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Whether there is an element at this rank: a field's time may be past.
    fn is_there(&self, _rank: usize) -> bool {
        true
    }

    /// Writes the element at a rank.
    fn write(&self, rank: usize, reply: &mut Reply<'_>);
}

/// A number below `end`, from a random one.
pub fn below(random: u64, end: usize) -> usize {
    let high = (u128::from(random) * end as u128) >> 64;
    usize::try_from(high).expect("below a usize")
}

/// Writes a sample of a value that has `live` elements; the array's header was written. The locks should be released by then.
pub fn write(exec: &mut Exec<'_>, count: Count, live: usize, source: impl Ranked + 'static) -> Outcome {
    let wanted = count.of(live);
    if wanted == 0 {
        return Ok(());
    }
    let random = exec.local.random.split();
    let distinct = matches!(count, Count::Distinct(_));
    let few = wanted <= DRAWN && wanted * 3 < live && live * 2 > source.ranks();
    let plan = match distinct {
        true if few => Plan::Draw { left: wanted, seen: Some(HashSet::with_capacity(wanted)) },
        true => Plan::Walk { rank: 0, wanted, live },
        false => Plan::Draw { left: wanted, seen: None },
    };
    let mut sampling = Sampling { source, random, plan };
    match sampling.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(sampling))),
    }
}

/// A sample that is being written.
struct Sampling<S> {
    source: S,
    random: Random,
    plan: Plan,
}

enum Plan {
    /// Elements are drawn until `left` were written; with `seen`, no rank twice.
    Draw { left: usize, seen: Option<HashSet<usize>> },
    /// All elements from `rank` on are walked over, `live` of them; `wanted` of these are written.
    Walk { rank: usize, wanted: usize, live: usize },
}

impl<S: Ranked> Sampling<S> {
    /// Draws or looks at one element; true when the sample is complete.
    fn next(&mut self, reply: &mut Reply<'_>) -> bool {
        match &mut self.plan {
            Plan::Draw { left, seen } => {
                let rank = draw(&self.source, &mut self.random);
                if seen.as_mut().is_none_or(|seen| seen.insert(rank)) {
                    self.source.write(rank, reply);
                    *left -= 1;
                }
                *left == 0
            }
            Plan::Walk { rank, wanted, live } => {
                if self.source.is_there(*rank) {
                    if below(self.random.next(), *live) < *wanted {
                        self.source.write(*rank, reply);
                        *wanted -= 1;
                    }
                    *live -= 1;
                }
                *rank += 1;
                *wanted == 0
            }
        }
    }
}

/// A random rank with an element, of which there is one.
pub fn draw(source: &(impl Ranked + ?Sized), random: &mut Random) -> usize {
    for _ in 0..STEP {
        let rank = below(random.next(), source.ranks());
        if source.is_there(rank) {
            return rank;
        }
    }
    // Most elements' time is past: the next one that is there.
    let start = below(random.next(), source.ranks());
    let ranks = (start..source.ranks()).chain(0..start);
    ranks.into_iter().find(|rank| source.is_there(*rank)).expect("the caller has counted those that are there")
}

impl<S: Ranked> Continuation for Sampling<S> {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let (started, before) = (Instant::now(), exec.reply.output().len());
        loop {
            for _ in 0..STEP {
                if self.next(&mut exec.reply) {
                    return Ok(true);
                }
            }
            let written = exec.reply.output().len() - before;
            if written >= SLICE_BYTES || started.elapsed().as_micros() >= u128::from(SLICE_US) {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_io::Output;

    /// Ranks as elements; every third one is not there.
    struct Ranks(usize);

    impl Ranked for Ranks {
        fn ranks(&self) -> usize {
            self.0
        }

        fn is_there(&self, rank: usize) -> bool {
            rank % 3 != 2
        }

        fn write(&self, rank: usize, reply: &mut Reply<'_>) {
            reply.put().count(rank);
        }
    }

    fn sample(plan: Plan, len: usize, seed: u64) -> Vec<usize> {
        let mut output = Output::default();
        let mut sampling = Sampling { source: Ranks(len), random: Random::from_seed(seed), plan };
        while !sampling.next(&mut Reply::new(&mut output, false)) {}
        let text = String::from_utf8(output.bytes_mut().clone()).expect("digits");
        text.lines().map(|line| line[1..].parse().expect("a rank")).collect()
    }

    #[test]
    fn every_element_comes_equally_often() {
        let live = 20;
        let mut times = [[0_u32; 30]; 2];
        for seed in 0..6000 {
            let walked = sample(Plan::Walk { rank: 0, wanted: 5, live }, 30, seed);
            let drawn = sample(Plan::Draw { left: 5, seen: Some(HashSet::new()) }, 30, seed);
            for (ranks, times) in [walked, drawn].into_iter().zip(&mut times) {
                let mut sorted = ranks.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!((ranks.len(), sorted.len()), (5, 5), "all different");
                ranks.iter().for_each(|rank| times[*rank] += 1);
            }
        }
        for (rank, times) in times.iter().flat_map(|times| times.iter().enumerate()) {
            // 6000 · 5 / 20 is 1500; the deviation of such a sum is below 40.
            assert!(if rank % 3 == 2 { *times == 0 } else { times.abs_diff(1500) < 200 }, "{rank}: {times}");
        }
    }

    #[test]
    fn one_that_is_there_is_found_among_many_that_are_not() {
        struct Last;
        impl Ranked for Last {
            fn ranks(&self) -> usize {
                100_000
            }
            fn is_there(&self, rank: usize) -> bool {
                rank == 7
            }
            fn write(&self, _: usize, _: &mut Reply<'_>) {}
        }
        assert_eq!(draw(&Last, &mut Random::from_seed(3)), 7);
    }
}
