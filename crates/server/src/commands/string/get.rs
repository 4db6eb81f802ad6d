//! Reading strings, with what GETDEL and GETEX change on the way.

use super::{ExpireUnit, answer, deadline, length, string_of};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError};
use crate::lazyfree::removal;
use crate::notify;
use gimmal_store::StringRef;

pub(super) fn get(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    match exec.read(key.key()) {
        Some(entry) => exec.reply.string(string_of(&entry)?),
        None => exec.reply.put().null(),
    }
    Ok(())
}

pub(super) fn mget(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = exec.lock_all(args.rest(1))?;
    exec.reply.put().array(keys.len());
    for i in 0..keys.len() {
        // A key of another type answers null, as in Redis.
        let value = exec.read(keys.key(i)).and_then(|entry| string_of(&entry).ok());
        answer(exec, value);
    }
    Ok(())
}

pub(super) fn strlen(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let len = match exec.read(key.key()) {
        Some(entry) => length(&string_of(&entry)?),
        None => 0,
    };
    exec.reply.put().count(len);
    Ok(())
}

pub(super) fn getrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let mut key = exec.lock(args.at(1))?;
    let Some(entry) = exec.read(key.key()) else {
        exec.reply.put().bulk(b"");
        return Ok(());
    };
    let value = string_of(&entry)?;
    let (start, end) = range(start, end, length(&value));
    match value {
        StringRef::Int(n) => exec.reply.put().bulk(&itoa::Buffer::new().format(n).as_bytes()[start..end]),
        StringRef::Bytes(bytes) => exec.reply.put().bulk(&bytes[start..end]),
        StringRef::Rope(rope) => exec.reply.rope(rope, start, end),
    }
    Ok(())
}

/// The bytes from `start` to `end`, both included and negative ones counted from the end, as a half-open range.
fn range(start: i64, end: i64, len: usize) -> (usize, usize) {
    let count = i64::try_from(len).unwrap_or(i64::MAX);
    let from_front = |at: i64| if at < 0 { at.saturating_add(count).max(0) } else { at };
    if start < 0 && end < 0 && start > end {
        return (0, 0);
    }
    let (start, end) = (from_front(start), from_front(end).min(count - 1));
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => (start, end + 1),
        _ => (0, 0),
    }
}

pub(super) fn getdel(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let Some(entry) = exec.read(locked.key()) else {
        exec.reply.put().null();
        return Ok(());
    };
    exec.reply.string(string_of(&entry)?);
    let _removed = exec.remove(locked.key());
    exec.effect(locked.key(), &[b"DEL", args.at(1)]);
    exec.notify(notify::GENERIC, "del", args.at(1));
    Ok(())
}

/// What GETEX is to do with the time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Persist,
    /// At the time in argument `at`. It is read once the key turned out to be a string: before that nobody asks for it.
    Expire {
        unit: ExpireUnit,
        at: usize,
    },
}

impl Change {
    fn parse(args: &Args<'_>) -> Result<Change, ReplyError> {
        let (mut persist, mut ttl) = (false, None);
        let mut i = 2;
        while i < args.len() {
            if args.is(i, "persist") && ttl.is_none() {
                persist = true;
            } else if let (Some(unit), false) = (ExpireUnit::again(args, i, ttl), persist) {
                ttl = Some((unit, i + 1));
                i += 1;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        Ok(match ttl {
            Some((unit, at)) => Change::Expire { unit, at },
            None if persist => Change::Persist,
            None => Change::Nothing,
        })
    }

    /// The deadline that it sets, in ms.
    fn expire_at_ms(self, args: &Args<'_>, now_ms: i64) -> Result<Option<i64>, ReplyError> {
        match self {
            Change::Expire { unit, at } => deadline(args.int(at)?, unit, now_ms, "getex").map(Some),
            Change::Nothing | Change::Persist => Ok(None),
        }
    }
}

pub(super) fn getex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let change = Change::parse(args)?;
    let now_ms = exec.clock_ms();
    let mut locked = exec.lock(args.at(1))?;
    let Some(entry) = exec.read(locked.key()) else {
        exec.reply.put().null();
        return Ok(());
    };
    let value = string_of(&entry)?;
    let expire_at_ms = change.expire_at_ms(args, now_ms)?;
    exec.reply.string(value);
    match expire_at_ms {
        None if change == Change::Persist && entry.expire_at_ms().is_some() => {
            exec.write(locked.key()).expect("it was just read").set_expire(None);
            exec.effect(locked.key(), &[b"PERSIST", args.at(1)]);
            exec.notify(notify::GENERIC, "persist", args.at(1));
        }
        None => {}
        Some(ms) if ms <= exec.now_ms() => {
            let _removed = exec.remove(locked.key());
            exec.effect(locked.key(), &[removal(exec.local.config.lazyfree_lazy_expire()), args.at(1)]);
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
        Some(ms) => {
            exec.write(locked.key()).expect("it was just read").set_expire(Some(ms));
            exec.effect(locked.key(), &[b"PEXPIREAT", args.at(1), itoa::Buffer::new().format(ms).as_bytes()]);
            exec.notify(notify::GENERIC, "expire", args.at(1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_string() {
        for (start, end, len, expected) in [
            (0, -1, 5, (0, 5)),
            (0, 0, 5, (0, 1)),
            (-3, -1, 5, (2, 5)),
            (-1, -3, 5, (0, 0)),
            (3, 1, 5, (0, 0)),
            (1, 100, 5, (1, 5)),
            (-100, 100, 5, (0, 5)),
            (-100, -90, 5, (0, 1)),
            (5, 9, 5, (0, 0)),
            (0, -1, 0, (0, 0)),
            (i64::MIN, i64::MAX, 5, (0, 5)),
            (i64::MAX, i64::MAX, 5, (0, 0)),
            (i64::MIN, i64::MIN, 5, (0, 1)),
        ] {
            assert_eq!(range(start, end, len), expected, "{start}..={end} of {len}");
        }
    }
}
