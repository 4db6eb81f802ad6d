//! Deadlines: EXPIRE and its kin, TTL and its kin, PERSIST.

use crate::args::Args;
use crate::commands::string::ExpireUnit;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::lazyfree::removal;
use crate::notify;
use std::ops::Range;

/// When EXPIRE acts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Only if there is no deadline.
    only_if_none: bool,
    /// Only if there is one.
    only_if_some: bool,
    /// Only if the new one is later; none is the latest.
    only_later: bool,
    /// Only if the new one is earlier.
    only_earlier: bool,
}

impl Conditions {
    /// The conditions that these arguments name.
    pub fn parse(args: &Args<'_>, range: Range<usize>) -> Result<Conditions, ReplyError> {
        let mut when = Conditions::default();
        for i in range {
            let flag = if args.is(i, "nx") {
                &mut when.only_if_none
            } else if args.is(i, "xx") {
                &mut when.only_if_some
            } else if args.is(i, "gt") {
                &mut when.only_later
            } else if args.is(i, "lt") {
                &mut when.only_earlier
            } else {
                return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(args.at(i))).into());
            };
            *flag = true;
        }
        if when.only_if_none && (when.only_if_some || when.only_later || when.only_earlier) {
            return Err(error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if when.only_later && when.only_earlier {
            return Err(error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(when)
    }

    /// Whether a new deadline may take the place of the old one.
    pub fn allow(self, old_ms: Option<i64>, new_ms: i64) -> bool {
        let refused = match old_ms {
            None => self.only_if_some || self.only_later,
            Some(old_ms) => {
                self.only_if_none || self.only_later && new_ms <= old_ms || self.only_earlier && new_ms >= old_ms
            }
        };
        !refused
    }
}

pub(super) fn expire(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    expire_key(exec, args, ExpireUnit::In { ms: 1000 }, "expire")
}

pub(super) fn pexpire(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    expire_key(exec, args, ExpireUnit::In { ms: 1 }, "pexpire")
}

pub(super) fn expireat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    expire_key(exec, args, ExpireUnit::At { ms: 1000 }, "expireat")
}

pub(super) fn pexpireat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    expire_key(exec, args, ExpireUnit::At { ms: 1 }, "pexpireat")
}

/// Any time, in the past too, as a deadline in ms.
fn deadline(n: i64, unit: ExpireUnit, now_ms: i64, command: &str) -> Result<i64, ReplyError> {
    let at = match unit {
        ExpireUnit::In { ms } => n.checked_mul(ms).and_then(|n| n.checked_add(now_ms)),
        ExpireUnit::At { ms } => n.checked_mul(ms),
    };
    at.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

fn expire_key(exec: &mut Exec<'_>, args: &Args<'_>, unit: ExpireUnit, command: &str) -> Outcome {
    let when = Conditions::parse(args, 3..args.len())?;
    let at_ms = deadline(args.int(2)?, unit, exec.clock_ms(), command)?;
    let removed;
    let mut locked = exec.lock(args.at(1))?;
    let old = exec.peek(locked.key()).map(|entry| entry.expire_at_ms());
    let allowed = old.is_some_and(|old_ms| when.allow(old_ms, at_ms));
    if allowed && at_ms <= exec.now_ms() {
        removed = exec.remove(locked.key());
        exec.effect(locked.key(), &[removal(exec.local.config.lazyfree_lazy_expire()), args.at(1)]);
        exec.notify(notify::GENERIC, "del", args.at(1));
    } else if allowed {
        removed = None;
        exec.write(locked.key()).expect("it was just seen").set_expire(Some(at_ms));
        exec.effect(locked.key(), &[b"PEXPIREAT", args.at(1), itoa::Buffer::new().format(at_ms).as_bytes()]);
        exec.notify(notify::GENERIC, "expire", args.at(1));
    } else {
        removed = None;
    }
    exec.reply.put().integer(i64::from(allowed));
    drop(locked);
    drop(removed);
    Ok(())
}

pub(super) fn persist(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let volatile = exec.peek(locked.key()).is_some_and(|entry| entry.expire_at_ms().is_some());
    if volatile {
        exec.write(locked.key()).expect("it was just seen").set_expire(None);
        exec.effect(locked.key(), &[b"PERSIST", args.at(1)]);
        exec.notify(notify::GENERIC, "persist", args.at(1));
    }
    exec.reply.put().integer(i64::from(volatile));
    Ok(())
}

pub(super) fn ttl(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, now_ms| in_seconds(at_ms.saturating_sub(now_ms).max(0)))
}

pub(super) fn pttl(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, now_ms| at_ms.saturating_sub(now_ms).max(0))
}

pub(super) fn expiretime(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, _| in_seconds(at_ms))
}

pub(super) fn pexpiretime(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, args, |at_ms, _| at_ms)
}

/// Milliseconds as seconds, rounded to the nearest as in Redis.
fn in_seconds(ms: i64) -> i64 {
    i64::try_from((i128::from(ms) + 500) / 1000).expect("a thousandth of 64 bits")
}

/// Answers -2 for a missing key, -1 for one without deadline, else what `of` makes of the deadline and the time.
fn answer(exec: &mut Exec<'_>, args: &Args<'_>, of: impl FnOnce(i64, i64) -> i64) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let deadline = exec.inspect(locked.key()).map(|entry| entry.expire_at_ms());
    let n = match deadline {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => of(at_ms, exec.now_ms()),
    };
    exec.reply.put().integer(n);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_with_the_deadline_there_is() {
        let none = Conditions::default();
        let nx = Conditions { only_if_none: true, ..none };
        let xx = Conditions { only_if_some: true, ..none };
        let gt = Conditions { only_later: true, ..none };
        let lt = Conditions { only_earlier: true, ..none };
        for (when, old, expected) in [
            (none, None, true),
            (none, Some(5), true),
            (nx, None, true),
            (nx, Some(5), false),
            (xx, None, false),
            (xx, Some(5), true),
            (gt, None, false),
            (gt, Some(9), true),
            (gt, Some(10), false),
            (lt, None, true),
            (lt, Some(10), false),
            (lt, Some(11), true),
        ] {
            assert_eq!(when.allow(old, 10), expected, "{when:?} {old:?}");
        }
    }

    #[test]
    fn deadlines_do_not_overflow() {
        let unit = ExpireUnit::In { ms: 1000 };
        assert_eq!(deadline(-5, unit, 1000, "expire"), Ok(-4000));
        for (n, unit) in [(i64::MAX, unit), (i64::MIN, unit), (i64::MAX, ExpireUnit::In { ms: 1 })] {
            let error = deadline(n, unit, 1000, "expire").expect_err("beyond 64 bits");
            assert_eq!(error, "ERR invalid expire time in 'expire' command");
        }
        assert_eq!(deadline(i64::MIN, ExpireUnit::At { ms: 1 }, 0, "pexpireat"), Ok(i64::MIN));
        assert_eq!((in_seconds(1499), in_seconds(1500), in_seconds(i64::MAX)), (1, 2, i64::MAX / 1000 + 1));
    }
}
