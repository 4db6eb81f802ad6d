//! ZADD and ZINCRBY.

use super::{limits, record};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::double;
use crate::exec::{Edited, Exec, Key, Outcome, ReplyError, error};
use crate::notify;
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
    let pair = |i| double::parse(args.at(i)).map(|score| (score, args.at(i + 1))).ok_or(NOT_A_SCORE);
    let members: Vec<(f64, &[u8])> = (first..args.len()).step_by(2).map(pair).collect::<Result<_, _>>()?;
    add(exec, args, conditions, &members, verbatim(args))
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
        edited.unwrap_or(Edited { result: Ok(Added::default()), created: false, emptied: false })
    } else {
        exec.edit_or_create(locked.key(), |set: &mut SortedSet| conditions.apply(set, members, limits))?
    };
    let done = edited.result?;
    let changes = done.added + done.changed;
    if changes > 0 {
        record(exec, locked.key(), changes);
        if edited.created {
            exec.notify(notify::NEW, "new", args.at(1));
        }
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
