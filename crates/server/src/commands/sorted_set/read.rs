//! ZCARD, ZSCORE, ZMSCORE, ZRANK, ZREVRANK, ZCOUNT, ZLEXCOUNT, ZRANDMEMBER and ZSCAN.

use super::{Whole, bounds, sorted_set_of, write_scored};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, Stop, error};
use crate::offload;
use crate::reply::Reply;
use crate::sample::{self, Ranked};
use crate::scan::{self, Options};
use crate::streamed::{self, Elements, WRITTEN_AT_ONCE};
use gimmal_resp::double::format_double;
use gimmal_resp::encode_bulk;
use gimmal_store::types::{Form, Scored, SortedSet, SortedSetRef};
use std::collections::HashSet;
use std::ops::Range;

/// Looks at the set of argument 1, if there is one.
fn look<R>(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    answer: impl FnOnce(Option<SortedSetRef<'_>>, &mut Reply<'_>) -> R,
) -> Result<R, Stop> {
    let mut locked = exec.lock(args.at(1))?;
    let set = exec.read(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()?;
    Ok(answer(set, &mut exec.reply))
}

pub(super) fn zcard(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    look(exec, args, |set, reply| reply.put().count(set.map_or(0, SortedSetRef::len)))
}

pub(super) fn zscore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    look(exec, args, |set, reply| put_score(reply, set.and_then(|set| set.score(args.at(2)))))
}

pub(super) fn zmscore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    each_score(exec, args, |score, reply| put_score(reply, score))
}

/// Answers something about the score of each member from argument 2 on.
pub(in crate::commands) fn each_score(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    answer: impl Fn(Option<f64>, &mut Reply<'_>) + Send + 'static,
) -> Outcome {
    let write = move |set: Option<SortedSetRef<'_>>, args: &Args<'_>, reply: &mut Reply<'_>| {
        reply.put().array(args.len() - 2);
        args.rest(2).for_each(|member| answer(set.and_then(|set| set.score(member)), reply));
    };
    if offload::is_due(exec, args.len()) {
        let set = look(exec, args, |set, _| set.map(SortedSetRef::to_owned))?;
        return offload::write(exec, args, move |args, reply| write(set.as_ref().map(SortedSet::view), args, reply));
    }
    look(exec, args, |set, reply| write(set, args, reply))
}

fn put_score(reply: &mut Reply<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.put().double(score),
        None => reply.put().null(),
    }
}

pub(super) fn zrank(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    rank(exec, args, "zrank", false)
}

pub(super) fn zrevrank(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    rank(exec, args, "zrevrank", true)
}

fn rank(exec: &mut Exec<'_>, args: &Args<'_>, name: &str, reverse: bool) -> Outcome {
    if args.len() > 4 {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let with_score = args.len() == 4;
    if with_score && !args.is(3, "withscore") {
        return Err(SYNTAX.into());
    }
    look(exec, args, |set, reply| {
        let mut reply = reply.put();
        let found = set.and_then(|set| Some((set.rank(args.at(2))?, set.len())));
        match found {
            None if with_score => reply.null_array(),
            None => reply.null(),
            Some(((rank, score), len)) => {
                if with_score {
                    reply.array(2);
                }
                reply.count(if reverse { len - 1 - rank } else { rank });
                if with_score {
                    reply.double(score);
                }
            }
        }
    })
}

pub(super) fn zcount(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = bounds::scores(args.at(2), args.at(3))?;
    look(exec, args, |set, reply| reply.put().count(set.map_or(0, |set| set.ranks_of_scores(&range).len())))
}

pub(super) fn zlexcount(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = bounds::members(args.at(2), args.at(3))?;
    look(exec, args, |set, reply| reply.put().count(set.map_or(0, |set| set.ranks_of_members(&range, false).len())))
}

pub(super) fn zscan(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let cursor = scan::cursor(args.at(2))?;
    let options = Options::parse(args, 3, Some("noscores"));
    let mut locked = exec.lock(args.at(1))?;
    let Some(set) = exec.read(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()? else {
        scan::answer(exec, 0, 0, &[]);
        return Ok(());
    };
    let options = options?;
    let (mut found, mut items) = (0, Vec::new());
    let count = scan::count(&options, set.form() == Form::Compact, set.len());
    let next = set.scan(cursor, count, |Scored { member, score }| {
        if options.fits(member) {
            found += 1;
            encode_bulk(&mut items, member);
            if !options.bare {
                encode_bulk(&mut items, format_double(score).as_bytes());
            }
        }
    });
    scan::answer(exec, next, if options.bare { found } else { 2 * found }, &items);
    Ok(())
}

/// What ZRANDMEMBER is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    count: usize,
    /// The same member may be chosen again.
    repeat: bool,
    with_scores: bool,
}

impl Wanted {
    fn parse(args: &Args<'_>) -> Result<Wanted, ReplyError> {
        const RANGE: ReplyError =
            error("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
        let count = args.int(2)?;
        if count == i64::MIN {
            return Err(RANGE);
        }
        let with_scores = args.len() == 4;
        if args.len() > 4 || with_scores && !args.is(3, "withscores") {
            return Err(SYNTAX);
        }
        // As each has a score, so many would be too many to count.
        if with_scores && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
            return Err(error("ERR value is out of range"));
        }
        let repeat = count < 0;
        Ok(Wanted { count: usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX), repeat, with_scores })
    }
}

pub(super) fn zrandmember(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() == 2 {
        let random = exec.local.random.next();
        return look(exec, args, |set, reply| match set.and_then(|set| set.nth(below(random, set.len()))) {
            Some(found) => reply.put().bulk(found.member),
            None => reply.put().null(),
        });
    }
    let wanted = Wanted::parse(args)?;
    let whole = {
        let mut locked = exec.lock(args.at(1))?;
        let set = exec.read(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()?;
        let Some(set) = set.filter(|_| wanted.count > 0) else {
            exec.reply.put().array(0);
            return Ok(());
        };
        if !wanted.repeat && wanted.count < set.len() && wanted.count <= WRITTEN_AT_ONCE {
            let ranks = distinct(wanted.count, set.len(), || exec.local.random.next());
            put_header(&mut exec.reply, ranks.len(), wanted.with_scores);
            for rank in ranks {
                let found = set.nth(rank).expect("below the number of members");
                write_scored(&mut exec.reply, found, wanted.with_scores);
            }
            return Ok(());
        }
        Whole::new(set, 0..set.len(), false, wanted.with_scores)
    };
    if !wanted.repeat && wanted.count < whole.len() {
        put_header(&mut exec.reply, wanted.count, wanted.with_scores);
        let len = whole.len();
        return sample::write(exec, sample::Count::Distinct(wanted.count), len, whole);
    }
    if !wanted.repeat {
        put_header(&mut exec.reply, whole.len(), wanted.with_scores);
        return streamed::elements(exec, 0..whole.len(), whole);
    }
    put_header(&mut exec.reply, wanted.count, wanted.with_scores);
    let random = exec.local.random.next();
    streamed::elements(exec, 0..wanted.count, Repeated { whole, random })
}

/// The header of a list of members, with their scores or without.
pub(super) fn put_header(reply: &mut Reply<'_>, count: usize, with_scores: bool) {
    let mut reply = reply.put();
    let flat = with_scores && !reply.is_proto3();
    reply.array(if flat { count * 2 } else { count });
}

fn below(random: u64, len: usize) -> usize {
    // The upper half of the product: as even as the remainder, without the division.
    usize::try_from((u128::from(random) * len as u128) >> 64).expect("below the length")
}

/// So many different numbers below `len`, in order (Floyd's algorithm).
fn distinct(count: usize, len: usize, mut random: impl FnMut() -> u64) -> Vec<usize> {
    let mut chosen = HashSet::with_capacity(count);
    for end in len - count..len {
        let pick = below(random(), end + 1);
        if !chosen.insert(pick) {
            chosen.insert(end);
        }
    }
    let mut ranks: Vec<usize> = chosen.into_iter().collect();
    ranks.sort_unstable();
    ranks
}

impl Ranked for Whole {
    fn ranks(&self) -> usize {
        self.len()
    }

    fn write(&self, rank: usize, reply: &mut Reply<'_>) {
        Elements::write(self, rank..rank + 1, reply);
    }
}

/// Members chosen at random, one as often as it comes.
struct Repeated {
    whole: Whole,
    random: u64,
}

impl Elements for Repeated {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        for rank in ranks {
            // Numbers of their own for each place, whatever the slices (SplitMix64; Steele, Lea, Flood 2014).
            let z = self.random.wrapping_add((rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let at = below(z ^ (z >> 31), self.whole.len());
            Elements::write(&self.whole, at..at + 1, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ranks_differ() {
        let mut state = 5_u64;
        for (count, len) in [(1, 1), (3, 4), (10, 1000), (999, 1000)] {
            let ranks = distinct(count, len, || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state
            });
            assert!(ranks.len() == count && ranks.windows(2).all(|pair| pair[0] < pair[1]) && ranks[count - 1] < len);
        }
    }
}
