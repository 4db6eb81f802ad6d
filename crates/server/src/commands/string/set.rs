//! Storing strings, whole and in part.

use super::digest::Condition;
use super::{ExpireUnit, answer, deadline, equals, length, raw, string_of};
use crate::args::Args;
use crate::command::keyflag;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, LockedMany, Outcome, ReplyError, Stop, error};
use crate::lazyfree::removal;
use crate::notify;
use crate::worker::value_arg;
use gimmal_store::NewValue;

const TOO_LONG: ReplyError = error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

/// What SET and its kin were asked, parsed before any lock.
#[derive(Debug, Default, PartialEq, Eq)]
struct SetOptions {
    only_if_missing: bool,
    only_if_there: bool,
    /// Only if the string, or its digest, is or is not what is given.
    condition: Option<Condition>,
    answer_old: bool,
    keep_ttl: bool,
    expire_at_ms: Option<i64>,
}

impl SetOptions {
    /// The options from argument `from` on. GET and what looks at the value are for SET alone; MSETEX has the others.
    #[inline]
    fn parse(args: &Args<'_>, from: usize, now_ms: i64, command: &str) -> Result<SetOptions, ReplyError> {
        let mut options = SetOptions::default();
        let mut ttl = None;
        let alone = command == "set";
        let mut i = from;
        while i < args.len() {
            let compared = options.condition.is_some();
            let more = i + 1 < args.len();
            let compares = alone && more && !compared && !options.only_if_missing && !options.only_if_there;
            if args.is(i, "nx") && !options.only_if_there && !compared {
                options.only_if_missing = true;
            } else if args.is(i, "xx") && !options.only_if_missing && !compared {
                options.only_if_there = true;
            } else if alone && args.is(i, "get") {
                options.answer_old = true;
            } else if args.is(i, "keepttl") && ttl.is_none() {
                options.keep_ttl = true;
            } else if let (Some(unit), true) = (ExpireUnit::again(args, i, ttl), !options.keep_ttl) {
                ttl = Some((unit, i + 1));
                i += 1;
            } else if let (Some(condition), true) = (Condition::parse(args, i), compares) {
                options.condition = Some(condition);
                i += 1;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        // Only now: any other mistake is named before a number that is none.
        if let Some((unit, i)) = ttl {
            options.expire_at_ms = Some(deadline(args.int(i)?, unit, now_ms, command)?);
        }
        Ok(options)
    }

    /// Whether the old value matters.
    #[inline]
    fn look_first(&self) -> bool {
        self.only_if_missing || self.only_if_there || self.condition.is_some() || self.answer_old || self.keep_ttl
    }
}

/// The key of SET and what this SET does to it: it reads only if it answers or compares.
pub(super) fn keys_of_set(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    let reads = (3..args.len()).any(|i| args.is(i, "get") || Condition::parse(args, i).is_some());
    let flags = if reads { keyflag::RW | keyflag::ACCESS | keyflag::UPDATE } else { keyflag::OW | keyflag::UPDATE };
    (args.len() > 1).then(|| vec![(1, flags)])
}

pub(super) fn set(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = match args.len() {
        3 => SetOptions::default(),
        _ => SetOptions::parse(args, 3, exec.clock_ms(), "set")?,
    };
    let mut locked = exec.lock(args.at(1))?;
    let mut expire_at_ms = options.expire_at_ms;
    if options.look_first() {
        let old = if options.answer_old { exec.read(locked.key()) } else { exec.peek(locked.key()) };
        let there = old.is_some();
        if options.keep_ttl {
            expire_at_ms = old.as_ref().and_then(|entry| entry.expire_at_ms());
        }
        let mut wanted = !(options.only_if_missing && there || options.only_if_there && !there);
        // The old value's type matters only to who looks at the value.
        if options.answer_old || options.condition.is_some() {
            let old = old.as_ref().map(string_of).transpose()?;
            if let Some(condition) = options.condition {
                wanted &= condition.holds(old.as_ref(), args)?;
            }
            if options.answer_old {
                answer(exec, old);
            }
        }
        if !wanted {
            if !options.answer_old {
                exec.reply.put().null();
            }
            return Ok(());
        }
    }
    store(exec, locked.key(), args.value(2), expire_at_ms);
    expires(exec, args.at(1), options.expire_at_ms);
    if !options.answer_old {
        exec.reply.put().ok();
    }
    Ok(())
}

pub(super) fn setnx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let missing = exec.peek(locked.key()).is_none();
    if missing {
        store(exec, locked.key(), args.value(2), None);
    }
    exec.reply.put().integer(i64::from(missing));
    Ok(())
}

pub(super) fn setex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set_with_ttl(exec, args, ExpireUnit::In { ms: 1000 }, "setex")
}

pub(super) fn psetex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set_with_ttl(exec, args, ExpireUnit::In { ms: 1 }, "psetex")
}

fn set_with_ttl(exec: &mut Exec<'_>, args: &Args<'_>, unit: ExpireUnit, command: &str) -> Outcome {
    let expire_at_ms = deadline(args.int(2)?, unit, exec.clock_ms(), command)?;
    let mut locked = exec.lock(args.at(1))?;
    store(exec, locked.key(), args.value(3), Some(expire_at_ms));
    expires(exec, args.at(1), Some(expire_at_ms));
    exec.reply.put().ok();
    Ok(())
}

pub(super) fn getset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let old = exec.read(locked.key()).map(|entry| string_of(&entry)).transpose()?;
    answer(exec, old);
    store(exec, locked.key(), args.value(2), None);
    Ok(())
}

pub(super) fn delifeq(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let old = exec.peek(locked.key()).map(|entry| string_of(&entry)).transpose()?;
    let equal = old.is_some_and(|old| equals(&old, &raw(args, 2)));
    if equal {
        let _removed = exec.remove(locked.key());
        exec.effect(locked.key(), &[b"DEL", args.at(1)]);
        exec.notify(notify::GENERIC, "del", args.at(1));
    }
    exec.reply.put().integer(i64::from(equal));
    Ok(())
}

/// Stores a string and logs it as Redis propagates it: with an absolute deadline. What expires at once is removed.
#[inline]
fn store(exec: &mut Exec<'_>, mut key: Key<'_, '_>, value: NewValue<'_>, expire_at_ms: Option<i64>) {
    let name = key.name();
    match expire_at_ms {
        None => exec.effect_value(key.again(), &[b"SET", name], &value, &[]),
        Some(at) if at <= exec.now_ms() => {
            if exec.remove(key.again()).is_some() {
                exec.effect(key, &[removal(exec.local.config.lazyfree_lazy_expire()), name]);
                exec.notify(notify::GENERIC, "del", name);
            }
            return;
        }
        Some(at) => {
            let mut text = itoa::Buffer::new();
            let at = text.format(at).as_bytes();
            exec.effect_value(key.again(), &[b"SET", name], &value, &[b"PXAT", at]);
        }
    }
    // A large old value is dropped here: its extents are few and freeing them is O(extents).
    let _old = exec.put(key, value, expire_at_ms);
    exec.notify(notify::STRING, "set", name);
}

/// Tells that a key was given a deadline, unless that has passed: then it was removed.
#[inline]
fn expires(exec: &mut Exec<'_>, key: &[u8], expire_at_ms: Option<i64>) {
    if expire_at_ms.is_some_and(|at| at > exec.now_ms()) {
        exec.notify(notify::GENERIC, "expire", key);
    }
}

pub(super) fn mset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = lock_pairs(exec, args, "mset")?;
    put_pairs(exec, args, &mut keys, b"MSET");
    exec.reply.put().ok();
    Ok(())
}

pub(super) fn msetnx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = lock_pairs(exec, args, "msetnx")?;
    let free = (0..keys.len()).all(|i| exec.peek(keys.key(i)).is_none());
    if free {
        put_pairs(exec, args, &mut keys, b"MSETNX");
    }
    exec.reply.put().integer(i64::from(free));
    Ok(())
}

fn lock_pairs<'l, 'a: 'l>(exec: &mut Exec<'a>, args: &Args<'l>, command: &str) -> Result<LockedMany<'l>, Stop> {
    if args.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{command}' command").into());
    }
    exec.lock_all((1..args.len()).step_by(2).map(|i| args.at(i)))
}

/// Stores the pairs of all arguments, the later of two for one key last, and logs them as one command.
fn put_pairs(exec: &mut Exec<'_>, args: &Args<'_>, keys: &mut LockedMany<'_>, command: &[u8]) {
    for i in 0..keys.len() {
        let _old = exec.put(keys.key(i), args.value(2 * i + 2), None);
        exec.notify(notify::STRING, "set", args.at(2 * i + 1));
    }
    let changes = keys.len() as u64;
    exec.effect_many(keys, changes, |record, db| {
        record.begin_command(db, args.len()).arg(command);
        for i in (1..args.len()).step_by(2) {
            record.arg(args.at(i));
            value_arg(record, &args.value(i + 1));
        }
    });
}

pub(super) fn msetex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = args.int(1).ok().and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 0);
    let count = count.ok_or(error("ERR invalid numkeys value or out of range"))?;
    let behind = usize::try_from(count).ok().and_then(|n| n.checked_mul(2)?.checked_add(2));
    let behind = behind.filter(|behind| *behind <= args.len()).ok_or(SYNTAX)?;
    let options = SetOptions::parse(args, behind, exec.clock_ms(), "msetex")?;
    let mut keys = exec.lock_all((2..behind).step_by(2).map(|i| args.at(i)))?;
    let conditional = options.only_if_missing || options.only_if_there;
    if conditional && (0..keys.len()).any(|i| exec.peek(keys.key(i)).is_some() != options.only_if_there) {
        exec.reply.put().integer(0);
        return Ok(());
    }
    match options.expire_at_ms {
        Some(at) if at <= exec.now_ms() => remove_all(exec, &mut keys),
        _ => put_timed_pairs(exec, args, &mut keys, behind, &options),
    }
    exec.reply.put().integer(1);
    Ok(())
}

fn put_timed_pairs(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    keys: &mut LockedMany<'_>,
    behind: usize,
    options: &SetOptions,
) {
    for i in 0..keys.len() {
        let expire_at_ms = match options.keep_ttl {
            true => exec.peek(keys.key(i)).and_then(|entry| entry.expire_at_ms()),
            false => options.expire_at_ms,
        };
        let _old = exec.put(keys.key(i), args.value(2 * i + 3), expire_at_ms);
        exec.notify(notify::STRING, "set", args.at(2 * i + 2));
        expires(exec, args.at(2 * i + 2), options.expire_at_ms);
    }
    let changes = keys.len() as u64;
    exec.effect_many(keys, changes, |record, db| {
        let words = match options.expire_at_ms {
            Some(_) => 2,
            None => usize::from(options.keep_ttl),
        };
        record.begin_command(db, behind + words).arg(b"MSETEX").arg(args.at(1));
        for i in (2..behind).step_by(2) {
            record.arg(args.at(i));
            value_arg(record, &args.value(i + 1));
        }
        if let Some(at) = options.expire_at_ms {
            record.arg(b"PXAT").arg(itoa::Buffer::new().format(at).as_bytes());
        } else if options.keep_ttl {
            record.arg(b"KEEPTTL");
        }
    });
}

/// Removes what is there of some keys.
fn remove_all(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>) {
    for i in 0..keys.len() {
        if exec.peek(keys.key(i)).is_some() {
            let _removed = exec.remove(keys.key(i));
            let key = keys.key(i);
            let name = key.name();
            exec.effect(key, &[removal(exec.local.config.lazyfree_lazy_expire()), name]);
            exec.notify(notify::GENERIC, "del", name);
        }
    }
}

pub(super) fn append(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let old = exec.peek(locked.key()).map(|entry| string_of(&entry)).transpose()?.map(|old| length(&old));
    let len = match old {
        None => {
            let _none = exec.put(locked.key(), args.value(2), None);
            args.length(2)
        }
        Some(old) => {
            check_length(exec, old, args.length(2))?;
            let mut entry = exec.write(locked.key()).expect("it was just read");
            match args.rope(2) {
                None => entry.append(args.at(2)),
                Some(rope) => rope.extents().fold(old, |_, extent| entry.append(extent)),
            }
        }
    };
    exec.effect_value(locked.key(), &[b"APPEND", args.at(1)], &raw(args, 2), &[]);
    exec.notify(notify::STRING, "append", args.at(1));
    exec.reply.put().count(len);
    Ok(())
}

pub(super) fn setrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let offset = usize::try_from(args.int(2)?).map_err(|_| error("ERR offset is out of range"))?;
    let mut locked = exec.lock(args.at(1))?;
    let old = exec.peek(locked.key()).map(|entry| string_of(&entry)).transpose()?.map(|old| length(&old));
    if args.length(3) == 0 {
        exec.reply.put().count(old.unwrap_or(0));
        return Ok(());
    }
    check_length(exec, offset, args.length(3))?;
    if old.is_none() {
        let _none = exec.put(locked.key(), NewValue::Bytes(b""), None);
    }
    let mut entry = exec.write(locked.key()).expect("it was just read or put");
    let len = match args.rope(3) {
        None => entry.set_range(offset, args.at(3)),
        Some(rope) => {
            let (_, len) =
                rope.extents().fold((offset, 0), |(at, _), extent| (at + extent.len(), entry.set_range(at, extent)));
            len
        }
    };
    exec.effect_value(locked.key(), &[b"SETRANGE", args.at(1), args.at(2)], &raw(args, 3), &[]);
    exec.notify(notify::STRING, "setrange", args.at(1));
    exec.reply.put().count(len);
    Ok(())
}

/// A string grown to `len + more` bytes must stay within the configured limit.
fn check_length(exec: &Exec<'_>, len: usize, more: usize) -> Result<(), ReplyError> {
    let limit = exec.local.config.proto_max_bulk_len();
    match len.checked_add(more) {
        Some(total) if total <= limit => Ok(()),
        _ => Err(TOO_LONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_resp::Span;

    fn parsed(words: &str) -> Result<SetOptions, ReplyError> {
        let buffer = words.as_bytes();
        let spans: Vec<Span> = words
            .split(' ')
            .map(|word| {
                let start = word.as_ptr() as usize - words.as_ptr() as usize;
                Span { start: u32::try_from(start).expect("short"), len: u32::try_from(word.len()).expect("short") }
            })
            .collect();
        SetOptions::parse(&Args::new(buffer, &spans, &[]), 3, 1000, "set")
    }

    #[test]
    fn options_of_set() {
        assert_eq!(parsed("set k v"), Ok(SetOptions::default()));
        let options = parsed("set k v ex 2 NX Get").expect("options");
        assert_eq!((options.expire_at_ms, options.only_if_missing, options.answer_old), (Some(3000), true, true));
        let options = parsed("set k v keepttl ifeq xx").expect("options");
        assert!(options.keep_ttl && options.condition.is_some());
        assert_eq!(parsed("set k v pxat 5 xx").expect("options").expire_at_ms, Some(5));
        assert_eq!(parsed("set k v pxat x pxat 5").expect("the last one counts").expire_at_ms, Some(5));
        for wrong in [
            "set k v nx xx",
            "set k v ifeq a nx",
            "set k v ifeq a ifne b",
            "set k v nx ifdne 0123456789abcdef",
            "set k v ifdeq",
            "set k v xx ifeq a",
            "set k v ifeq",
            "set k v ex",
            "set k v ex 1 px 1",
            "set k v ex 1 keepttl",
            "set k v keepttl ex 1",
            "set k v persist",
            "set k v ex x what",
            "set k v what",
        ] {
            assert_eq!(parsed(wrong), Err(SYNTAX), "{wrong}");
        }
    }
}
