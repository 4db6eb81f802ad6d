//! ZADD and ZINCRBY.

use super::{limits, record};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::double;
use crate::exec::{Continuation, Edited, Exec, Key, Locked, Outcome, ReplyError, Stop, error};
use crate::notify;
use crate::offload::{self, Command, Handler, Missing};
use gimmal_store::types::{Limits, SortedSet};

const NOT_A_SCORE: ReplyError = error("ERR value is not a valid float");
const NOT_A_NUMBER: ReplyError = error("ERR resulting score is not a number (NaN)");

/// What ZADD is told before its members.
#[derive(Clone, Copy, Default)]
pub(in crate::commands) struct Conditions {
    /// Only new members.
    pub nx: bool,
    /// Only members that are there.
    pub xx: bool,
    gt: bool,
    lt: bool,
    /// Answer the number of members that were added or changed.
    pub ch: bool,
    incr: bool,
}

/// What became of the members.
#[derive(Clone, Copy, Default)]
pub(in crate::commands) struct Added {
    added: usize,
    changed: usize,
    /// The new score of the last member, if it was not left alone.
    score: Option<f64>,
}

pub(super) fn zadd(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (conditions, first) = conditions(args)?;
    let count = args.len() - first;
    if count == 0 || !count.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    conditions.check(count / 2)?;
    if count == 2 {
        let score = double::parse(args.at(first)).ok_or(NOT_A_SCORE)?;
        return add(exec, args, conditions, &[(score, args.at(first + 1))], verbatim(args));
    }
    let members = Members { first, each: 2, parse: scored };
    if offload::is_due(exec, count / 2) {
        return add_many(exec, args, zadd, conditions, members, |exec, key, args, _, _, changes| {
            record(exec, key, args, changes);
        });
    }
    add(exec, args, conditions, &members.parse(args)?, verbatim(args))
}

/// The score at argument `at`, and the member behind it.
fn scored<'a>(args: &Args<'a>, at: usize) -> Result<Scored<'a>, ReplyError> {
    Ok((double::parse(args.at(at)).ok_or(NOT_A_SCORE)?, args.at(at + 1)))
}

/// A member behind its score.
type Scored<'a> = (f64, &'a [u8]);

/// Where the members of a command are among its arguments.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Members {
    /// The first argument of the first of them.
    pub first: usize,
    /// Arguments of each.
    pub each: usize,
    /// A member with its score, from these arguments.
    pub parse: for<'a> fn(&Args<'a>, usize) -> Result<Scored<'a>, ReplyError>,
}

impl Members {
    /// All members, with their scores.
    pub fn parse<'a>(self, args: &Args<'a>) -> Result<Vec<Scored<'a>>, ReplyError> {
        (self.first..args.len()).step_by(self.each).map(|at| (self.parse)(args, at)).collect()
    }
}

pub(super) fn zincrby(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    // Redis reads ZADD's options here as well, and then lacks a word.
    if conditions(args)?.1 > 2 {
        return Err(SYNTAX.into());
    }
    let by = double::parse(args.at(2)).ok_or(NOT_A_SCORE)?;
    add(exec, args, Conditions { incr: true, ..Conditions::default() }, &[(by, args.at(3))], verbatim(args))
}

/// The command as it was given is what is recorded.
fn verbatim(args: &Args<'_>) -> impl FnOnce(&mut Exec<'_>, Key<'_, '_>, usize) {
    move |exec, key, changes| record(exec, key, args, changes)
}

fn conditions(args: &Args<'_>) -> Result<(Conditions, usize), ReplyError> {
    let mut conditions = Conditions::default();
    let mut at = 2;
    while at < args.len() {
        match args.at(at) {
            word if word.eq_ignore_ascii_case(b"nx") => conditions.nx = true,
            word if word.eq_ignore_ascii_case(b"xx") => conditions.xx = true,
            word if word.eq_ignore_ascii_case(b"gt") => conditions.gt = true,
            word if word.eq_ignore_ascii_case(b"lt") => conditions.lt = true,
            word if word.eq_ignore_ascii_case(b"ch") => conditions.ch = true,
            word if word.eq_ignore_ascii_case(b"incr") => conditions.incr = true,
            _ => break,
        }
        at += 1;
    }
    Ok((conditions, at))
}

impl Conditions {
    fn check(self, members: usize) -> Result<(), ReplyError> {
        let Conditions { nx, xx, gt, lt, incr, .. } = self;
        if nx && xx {
            return Err(error("ERR XX and NX options at the same time are not compatible"));
        }
        if nx && (gt || lt) || gt && lt {
            return Err(error("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if incr && members > 1 {
            return Err(error("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The score that a member gets.
    fn decide(self, old: Option<f64>, given: f64) -> Result<Option<f64>, ReplyError> {
        let Some(old) = old else { return Ok((!self.xx).then_some(given)) };
        if self.nx {
            return Ok(None);
        }
        let new = if self.incr { old + given } else { given };
        if new.is_nan() {
            return Err(NOT_A_NUMBER);
        }
        Ok((!(self.lt && new >= old || self.gt && new <= old)).then_some(new))
    }

    fn apply(self, set: &mut SortedSet, members: &[(f64, &[u8])], limits: Limits) -> Result<Added, ReplyError> {
        let mut added = Added::default();
        let longest = members.iter().map(|(_, member)| member.len()).max().unwrap_or(0);
        set.expect(members.len(), longest, limits);
        for &(given, member) in members {
            let mut decided = Ok(None);
            let old = set.update(member, limits, |old| {
                decided = self.decide(old, given);
                // A member without a new score is left alone; the error is told below.
                decided.as_ref().ok().copied().flatten()
            });
            added.score = decided?;
            if let Some(score) = added.score {
                match old {
                    None => added.added += 1,
                    Some(old) => added.changed += usize::from(old != score),
                }
            }
        }
        Ok(added)
    }
}

/// Records that so many members with these scores were added or changed.
type Record = fn(&mut Exec<'_>, Key<'_, '_>, &Args<'_>, Members, &[f64], usize);

/// As [`add`], by a thread, which also parses the members.
pub(in crate::commands) fn add_many(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    handler: Handler,
    conditions: Conditions,
    members: Members,
    record: Record,
) -> Outcome {
    let limits = limits(exec);
    let mut locked = exec.lock(args.at(1))?;
    let missing = if conditions.xx { Missing::Leave } else { Missing::Create };
    let original = offload::share(exec, &mut locked, missing);
    drop(locked);
    let refused = match original {
        Ok(Some(original)) => {
            let alter = move |set: &mut SortedSet, args: &Args<'_>| -> Result<(Added, Vec<f64>), ReplyError> {
                let members = members.parse(args)?;
                let added = conditions.apply(set, &members, limits)?;
                Ok((added, members.iter().map(|(score, _)| *score).collect()))
            };
            let command = Command { key: 1, handler };
            return offload::replace(exec, args, command, original, alter, move |exec, args, locked, edited| {
                let (done, scores) = edited.result?;
                added(exec, args, locked, conditions, done, |exec, key, changes| {
                    record(exec, key, args, members, &scores, changes);
                })
            });
        }
        Ok(None) => None,
        Err(Stop::Error(refused)) => Some(refused),
        Err(stop) => return Err(stop),
    };
    // Nothing is added, but what is no score is told of first.
    let kept = exec.keep(args);
    offload::start(exec, move || Box::new(Unchanged(members.parse(&kept.args()).err().or(refused))))
}

/// A command that has added nothing, with an error or without.
struct Unchanged(Option<ReplyError>);

impl Continuation for Unchanged {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        match self.0.take() {
            Some(error) => Err(error.into()),
            None => {
                exec.reply.put().count(0);
                Ok(true)
            }
        }
    }
}

/// Adds members as ZADD does and answers as it does; `record` is told the number of changes, if there are any.
pub(in crate::commands) fn add(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    conditions: Conditions,
    members: &[(f64, &[u8])],
    record: impl FnOnce(&mut Exec<'_>, Key<'_, '_>, usize),
) -> Outcome {
    let limits = limits(exec);
    let mut locked = exec.lock(args.at(1))?;
    let edited = if conditions.xx {
        let edited = exec.edit(locked.key(), |set: &mut SortedSet| conditions.apply(set, members, limits))?;
        edited.unwrap_or(Edited { result: Ok(Added::default()), emptied: false })
    } else {
        exec.edit_or_create(locked.key(), |set: &mut SortedSet| conditions.apply(set, members, limits))?
    };
    added(exec, args, locked, conditions, edited.result?, record)
}

/// Members were added: it is recorded, told and answered.
#[inline]
fn added(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut locked: Locked<'_>,
    conditions: Conditions,
    done: Added,
    record: impl FnOnce(&mut Exec<'_>, Key<'_, '_>, usize),
) -> Outcome {
    let changes = done.added + done.changed;
    if changes > 0 {
        record(exec, locked.key(), changes);
        exec.notify(notify::ZSET, if conditions.incr { "zincr" } else { "zadd" }, args.at(1));
    }
    let mut reply = exec.reply.put();
    match (conditions.incr, done.score) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.count(if conditions.ch { changes } else { done.added }),
    }
    Ok(())
}
