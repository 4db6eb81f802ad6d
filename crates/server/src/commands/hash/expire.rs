//! Deadlines of fields: HEXPIRE and its kin, HTTL and its kin, HPERSIST.

use super::read::each;
use super::{NUMFIELDS, effect, fields_from, limits};
use crate::args::Args;
use crate::commands::generic::Conditions;
use crate::commands::string::ExpireUnit;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Locked, Outcome, ReplyError};
use crate::notify;
use crate::offload::{self, Command, Handler, Missing};
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_store::types::Fields;
use std::ops::Range;

/// What HEXPIRE answers for a field that is not there.
const MISSING: i64 = -2;
/// What HTTL and HPERSIST answer for one without a deadline.
const NO_DEADLINE: i64 = -1;

pub(super) fn hexpire(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set(exec, args, hexpire, ExpireUnit::In { ms: 1000 }, "hexpire")
}

pub(super) fn hpexpire(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set(exec, args, hpexpire, ExpireUnit::In { ms: 1 }, "hpexpire")
}

pub(super) fn hexpireat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set(exec, args, hexpireat, ExpireUnit::At { ms: 1000 }, "hexpireat")
}

pub(super) fn hpexpireat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set(exec, args, hpexpireat, ExpireUnit::At { ms: 1 }, "hpexpireat")
}

/// A time to live or point in time, which may be past but not negative, as a deadline in ms.
pub(super) fn deadline(n: i64, unit: ExpireUnit, now_ms: i64, command: &str) -> Result<i64, ReplyError> {
    let at = match unit {
        _ if n < 0 => None,
        ExpireUnit::In { ms } => n.checked_mul(ms).and_then(|n| n.checked_add(now_ms)),
        ExpireUnit::At { ms } => n.checked_mul(ms),
    };
    at.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

/// What became of the fields that were to expire.
#[derive(Default)]
struct Changes {
    answers: Vec<i64>,
    /// Argument numbers of the fields that were changed.
    changed: Vec<usize>,
}

impl Elements for Vec<i64> {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        self[ranks].iter().for_each(|answer| reply.put().integer(*answer));
    }
}

/// Answers a number for each field.
fn answer_all(exec: &mut Exec<'_>, answers: Vec<i64>) -> Outcome {
    exec.reply.put().array(answers.len());
    streamed::elements(exec, 0..answers.len(), answers)
}

fn set(exec: &mut Exec<'_>, args: &Args<'_>, handler: Handler, unit: ExpireUnit, command: &'static str) -> Outcome {
    let word = (3..args.len() - 1).find(|i| args.is(*i, "fields")).ok_or(NUMFIELDS)?;
    let when = Conditions::parse(args, 3..word)?;
    let first = fields_from(args, word + 1, 1, NUMFIELDS)?;
    let limits = limits(exec);
    let n = args.int(2)?;
    let clock_ms = exec.clock_ms();
    deadline(n, unit, clock_ms, command)?;
    let alter = move |fields: &mut Fields, args: &Args<'_>, now_ms| -> Result<(i64, bool, Changes), ReplyError> {
        // The time under the lock may be later.
        let at_ms = deadline(n, unit, clock_ms.max(now_ms), command)?;
        let (past, mut changes) = (at_ms <= now_ms, Changes::default());
        for i in first..args.len() {
            let name = args.at(i);
            let old_ms = fields.view().find(name, now_ms).map(|field| field.expire_at_ms);
            let answer = match old_ms {
                None => MISSING,
                Some(old_ms) if !when.allow(old_ms, at_ms) => 0,
                Some(_) if past => 2,
                Some(_) => 1,
            };
            match answer {
                1 => fields.set_expire(name, Some(at_ms), limits),
                2 => _ = fields.remove(name, now_ms),
                _ => {}
            }
            changes.answers.push(answer);
            if answer > 0 {
                changes.changed.push(i);
            }
        }
        Ok((at_ms, past, changes))
    };
    let command = Command { key: 1, handler };
    offload::edit(exec, args, command, Missing::Leave, args.len(), alter, move |exec, args, key, edited| {
        let Some(edited) = edited else { return answer_all(exec, vec![MISSING; args.len() - first]) };
        let (at_ms, past, changes) = edited.result?;
        if !changes.changed.is_empty() {
            was_set(exec, args, key, at_ms, past, &changes.changed);
            if edited.emptied {
                exec.notify(notify::GENERIC, "del", args.at(1));
            }
        }
        answer_all(exec, changes.answers)
    })
}

/// Records and tells of a deadline of the fields that these arguments name, or of their end if it is past.
fn was_set(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, at_ms: i64, past: bool, changed: &[usize]) {
    if past {
        let names = changed.iter().map(|i| args.at(*i));
        effect(exec, key.key(), changed.len(), [b"HDEL", args.at(1)].into_iter().chain(names));
        exec.local.stats.expired_fields.add(changed.len() as u64);
        exec.notify(notify::HASH, "hexpired", args.at(1));
    } else {
        let (at, count) = (at_ms.to_string(), changed.len().to_string());
        let head = [&b"HPEXPIREAT"[..], args.at(1), at.as_bytes(), b"FIELDS", count.as_bytes()];
        effect(exec, key.key(), changed.len(), head.into_iter().chain(changed.iter().map(|i| args.at(*i))));
        exec.notify(notify::HASH, "hexpire", args.at(1));
    }
}

pub(super) fn hpersist(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let first = fields_after_word(args, NUMFIELDS)?;
    let limits = limits(exec);
    let alter = move |fields: &mut Fields, args: &Args<'_>, now_ms| {
        let mut changes = Changes::default();
        for i in first..args.len() {
            let answer = match fields.view().find(args.at(i), now_ms).map(|field| field.expire_at_ms) {
                None => MISSING,
                Some(None) => NO_DEADLINE,
                Some(Some(_)) => {
                    fields.set_expire(args.at(i), None, limits);
                    changes.changed.push(i);
                    1
                }
            };
            changes.answers.push(answer);
        }
        changes
    };
    let command = Command { key: 1, handler: hpersist };
    offload::edit(exec, args, command, Missing::Leave, args.len(), alter, move |exec, args, mut key, edited| {
        let Some(edited) = edited else { return answer_all(exec, vec![MISSING; args.len() - first]) };
        let Changes { answers, changed } = edited.result;
        if !changed.is_empty() {
            let count = changed.len().to_string();
            let head = [&b"HPERSIST"[..], args.at(1), b"FIELDS", count.as_bytes()];
            effect(exec, key.key(), changed.len(), head.into_iter().chain(changed.iter().map(|i| args.at(*i))));
            exec.notify(notify::HASH, "hpersist", args.at(1));
        }
        drop(key);
        answer_all(exec, answers)
    })
}

/// The number of the first field of a command of the form `NAME key FIELDS numfields field ...`.
pub(super) fn fields_after_word(args: &Args<'_>, wrong_count: ReplyError) -> Result<usize, ReplyError> {
    if !args.is(2, "fields") {
        return Err(SYNTAX);
    }
    fields_from(args, 3, 1, wrong_count)
}

pub(super) fn httl(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, now_ms| in_seconds(left(at_ms, now_ms)))
}

pub(super) fn hpttl(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, left)
}

pub(super) fn hexpiretime(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, _| in_seconds(at_ms))
}

pub(super) fn hpexpiretime(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, _| at_ms)
}

fn left(at_ms: i64, now_ms: i64) -> i64 {
    at_ms.saturating_sub(now_ms).max(0)
}

/// Rounded to the nearest second, as TTL does.
fn in_seconds(ms: i64) -> i64 {
    ms.saturating_add(500) / 1000
}

fn answer(exec: &mut Exec<'_>, args: &Args<'_>, of: fn(i64, i64) -> i64) -> Outcome {
    let first = fields_after_word(args, SYNTAX)?;
    each(exec, args, first, move |field, now_ms, reply| {
        reply.put().integer(match field.map(|field| field.expire_at_ms) {
            None => MISSING,
            Some(None) => NO_DEADLINE,
            Some(Some(at_ms)) => of(at_ms, now_ms),
        });
    })
}
