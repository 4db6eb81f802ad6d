//! ZRANGE, its older forms, and ZRANGESTORE.
//!
//! Every form comes down to a range of ranks: LIMIT cuts it, whatever its offset, in no time.

use super::read::put_header;
use super::{Whole, bounds, limits, record, sorted_set_of, store, write_scored};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, LockedMany, Outcome, ReplyError, Stop, error};
use crate::kept::Kept;
use crate::offload;
use crate::streamed::{self, WRITTEN_AT_ONCE};
use gimmal_store::types::{Form as StoredForm, Limits, MemberRange, ScoreRange, SortedSet, SortedSetRef};
use std::ops::Range;
use std::sync::Arc;

/// What a range is given by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A form of the command: what its name says, and what its options may say.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
    with_scores: bool,
}

/// What is asked for.
struct Query<'a> {
    range: Asked<'a>,
    reverse: bool,
    offset: i64,
    count: i64,
    with_scores: bool,
}

enum Asked<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(MemberRange<'a>),
}

pub(super) fn zrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, Form { by: None, reverse: None, with_scores: true })
}

pub(super) fn zrevrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, Form { by: Some(By::Rank), reverse: Some(true), with_scores: true })
}

pub(super) fn zrangebyscore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, Form { by: Some(By::Score), reverse: Some(false), with_scores: true })
}

pub(super) fn zrevrangebyscore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, Form { by: Some(By::Score), reverse: Some(true), with_scores: true })
}

pub(super) fn zrangebylex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, Form { by: Some(By::Member), reverse: Some(false), with_scores: true })
}

pub(super) fn zrevrangebylex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, Form { by: Some(By::Member), reverse: Some(true), with_scores: true })
}

fn range(exec: &mut Exec<'_>, args: &Args<'_>, form: Form) -> Outcome {
    let query = Query::parse(args, 2, form)?;
    let whole = {
        let mut locked = exec.lock(args.at(1))?;
        let Some(set) = exec.read(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()? else {
            exec.reply.put().array(0);
            return Ok(());
        };
        let ranks = query.ranks(set);
        put_header(&mut exec.reply, ranks.len(), query.with_scores);
        if ranks.len() <= WRITTEN_AT_ONCE {
            for found in set.range(ranks, query.reverse) {
                write_scored(&mut exec.reply, found, query.with_scores);
            }
            return Ok(());
        }
        Whole::new(set, ranks, query.reverse, query.with_scores)
    };
    streamed::elements(exec, 0..whole.len(), whole)
}

/// What ZRANGESTORE's name says: nothing.
const STORE: Form = Form { by: None, reverse: None, with_scores: false };

pub(super) fn zrangestore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let query = Query::parse(args, 3, STORE)?;
    let limits = limits(exec);
    let mut keys = exec.lock_all([args.at(1), args.at(2)].into_iter())?;
    let set = exec.read(keys.key(1)).map(|entry| sorted_set_of(&entry)).transpose()?;
    let ranks = set.map_or(0..0, |set| query.ranks(set));
    let result = match set {
        // All of a large set is a copy of it.
        Some(set) if ranks.len() == set.len() && set.len() > limits.entries && set.form() == StoredForm::Large => {
            Some(set.to_owned())
        }
        Some(set) if offload::is_due(exec, ranks.len()) => {
            let set = set.to_owned();
            drop(keys);
            let (kept, tries) = (exec.keep(args), exec.local.begun_anew);
            return offload::start(exec, move || {
                let result = Some(copied(set.view(), ranks, limits));
                Box::new(Ranged { kept, set, result, tries })
            });
        }
        set => set.map(|set| copied(set, ranks, limits)),
    };
    put_in_place(exec, args, &mut keys, result);
    Ok(())
}

fn copied(set: SortedSetRef<'_>, ranks: Range<usize>, limits: Limits) -> SortedSet {
    let mut result = SortedSet::empty_in(Vec::new());
    set.range(ranks, false).for_each(|found| _ = result.put(found.member, found.score, limits));
    result
}

fn put_in_place(exec: &mut Exec<'_>, args: &Args<'_>, keys: &mut LockedMany<'_>, result: Option<SortedSet>) {
    let count = store(exec, keys.key(0), args.at(1), "zrangestore", result, |exec, key, _| record(exec, key, args, 1));
    exec.reply.put().count(count);
}

/// The result of a ZRANGESTORE that a thread has made.
struct Ranged {
    kept: Arc<Kept>,
    set: SortedSet,
    result: Option<SortedSet>,
    tries: u32,
}

impl Continuation for Ranged {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let args = self.kept.args();
        let mut keys = exec.lock_all([args.at(1), args.at(2)].into_iter())?;
        let now = exec.read(keys.key(1)).map(|entry| sorted_set_of(&entry)).transpose()?;
        if now.is_some_and(|now| now.is_same(self.set.view())) {
            put_in_place(exec, &args, &mut keys, self.result.take());
            return Ok(true);
        }
        drop(keys);
        offload::anew(exec, self.tries, |exec| zrangestore(exec, &args))
    }
}

impl<'a> Query<'a> {
    /// The options behind the two ends, which begin at argument `at`.
    fn parse(args: &Args<'a>, at: usize, form: Form) -> Result<Query<'a>, ReplyError> {
        let (mut by, mut reverse, mut with_scores) = (form.by, form.reverse, false);
        let (mut offset, mut count) = (0, -1);
        let mut i = at + 2;
        while i < args.len() {
            if form.with_scores && args.is(i, "withscores") {
                with_scores = true;
            } else if args.is(i, "limit") && i + 2 < args.len() {
                (offset, count) = (args.int(i + 1)?, args.int(i + 2)?);
                i += 2;
            } else if reverse.is_none() && args.is(i, "rev") {
                // What was chosen is no choice any more.
                reverse = Some(true);
            } else if by.is_none() && args.is(i, "bylex") {
                by = Some(By::Member);
            } else if by.is_none() && args.is(i, "byscore") {
                by = Some(By::Score);
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(error("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"));
        }
        if with_scores && by == By::Member {
            return Err(error("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (min, max) = if reverse { (args.at(at + 1), args.at(at)) } else { (args.at(at), args.at(at + 1)) };
        let range = match by {
            By::Rank => Asked::Ranks(args.int(at)?, args.int(at + 1)?),
            By::Score => Asked::Scores(bounds::scores(min, max)?),
            By::Member => Asked::Members(bounds::members(min, max)?),
        };
        Ok(Query { range, reverse, offset, count, with_scores })
    }

    /// The ranks that are asked for, counted from the lowest score.
    fn ranks(&self, set: SortedSetRef<'_>) -> Range<usize> {
        let ranks = match &self.range {
            Asked::Ranks(start, stop) => {
                let len = set.len();
                let ranks = bounds::ranks(*start, *stop, len).unwrap_or_default();
                return if self.reverse { len - ranks.end..len - ranks.start } else { ranks };
            }
            Asked::Scores(range) => set.ranks_of_scores(range),
            Asked::Members(range) => set.ranks_of_members(range, self.reverse),
        };
        // A negative offset leaves nothing; a negative count all.
        let skip = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let count = usize::try_from(self.count).unwrap_or(usize::MAX).min(ranks.len() - skip);
        if self.reverse {
            let end = ranks.end - skip;
            end - count..end
        } else {
            let start = ranks.start + skip;
            start..start + count
        }
    }
}
