//! LPOP, RPOP and LMPOP, and [`pop`], which is all that they and the blocking commands do.

use super::held::{Held, write};
use super::{End, end, list_of, name_at, node_limit};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, Outcome, ReplyError, Stop, error};
use crate::notify;
use crate::streamed::WRITTEN_AT_ONCE;
use gimmal_store::types::{List, Type};

const NOT_POSITIVE: ReplyError = error("ERR value is out of range, must be positive");
const NO_KEYS: ReplyError = error("ERR numkeys should be greater than 0");
const NO_COUNT: ReplyError = error("ERR count should be greater than 0");

/// How elements that were popped are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popped {
    /// One element: LPOP.
    One,
    /// An array of at most so many: LPOP with a count.
    Many(usize),
    /// The key and one element: BLPOP.
    KeyAndOne,
    /// The key and an array of at most so many: LMPOP, BLMPOP.
    KeyAndMany(usize),
}

pub(super) fn lpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_at(exec, args, End::Head)
}

pub(super) fn rpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_at(exec, args, End::Tail)
}

fn pop_at(exec: &mut Exec<'_>, args: &Args<'_>, end: End) -> Outcome {
    if args.len() > 3 {
        let name = name_at(end, "lpop", "rpop");
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let form = match args.len() {
        2 => Popped::One,
        _ => Popped::Many(parse_int(args.at(2)).and_then(|n| usize::try_from(n).ok()).ok_or(NOT_POSITIVE)?),
    };
    let mut locked = exec.lock(args.at(1))?;
    if !pop(exec, locked.key(), end, form)? {
        match form {
            Popped::Many(_) => exec.reply.put().null_array(),
            _ => exec.reply.put().null(),
        }
    }
    Ok(())
}

/// What LMPOP or BLMPOP was asked.
#[derive(Debug)]
pub(super) struct MultiPop {
    pub(super) keys: usize,
    pub(super) end: End,
    pub(super) count: usize,
}

impl MultiPop {
    /// The options, of which the number of keys is argument `at`.
    pub(super) fn parse(args: &Args<'_>, at: usize) -> Result<MultiPop, ReplyError> {
        let positive = |i| parse_int(args.at(i)).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let keys = positive(at).ok_or(NO_KEYS)?;
        let side = keys.checked_add(at + 1).filter(|side| *side < args.len()).ok_or(SYNTAX)?;
        let end = end(args, side)?;
        let mut count = None;
        let mut i = side + 1;
        while i < args.len() {
            if count.is_some() || !args.is(i, "count") || i + 1 == args.len() {
                return Err(SYNTAX);
            }
            count = Some(positive(i + 1).ok_or(NO_COUNT)?);
            i += 2;
        }
        Ok(MultiPop { keys, end, count: count.unwrap_or(1) })
    }
}

pub(super) fn lmpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = MultiPop::parse(args, 1)?;
    let mut keys = exec.lock_all((0..options.keys).map(|i| args.at(2 + i)))?;
    for i in 0..keys.len() {
        if pop(exec, keys.key(i), options.end, Popped::KeyAndMany(options.count))? {
            return Ok(());
        }
    }
    exec.reply.put().null_array();
    Ok(())
}

/// Pops elements from the list at a key, with their effect and events, and answers them; false, and no answer, if there is
/// no such key.
///
/// # Errors
/// WRONGTYPE, and no change, if there is no list. `Stop::Continue` if there are many elements: they were popped, and the rest of the
/// answer comes in slices.
pub fn pop(exec: &mut Exec<'_>, mut key: Key<'_, '_>, end: End, form: Popped) -> Result<bool, Stop> {
    let (limit, name) = (node_limit(exec), key.name());
    exec.give_way(&mut key, Type::List)?;
    let Some(entry) = exec.peek(key.again()) else { return Ok(false) };
    let list = list_of(&entry)?;
    let len = list.len();
    let count = match form {
        Popped::One | Popped::KeyAndOne => 1,
        Popped::Many(most) | Popped::KeyAndMany(most) => most.min(len),
    };
    if matches!(form, Popped::KeyAndOne | Popped::KeyAndMany(_)) {
        exec.reply.put().array(2);
        exec.reply.put().bulk(name);
    }
    if matches!(form, Popped::Many(_) | Popped::KeyAndMany(_)) {
        exec.reply.put().array(count);
    }
    if count == 0 {
        return Ok(true);
    }
    // Many elements are answered when they are removed and the lock is released.
    let held = match count > WRITTEN_AT_ONCE {
        true => Some(Held::new(list, end)),
        false => None,
    };
    if held.is_none() {
        write(list, end, 0..count, &mut exec.reply);
    }
    let range = match end {
        End::Head => 0..count,
        End::Tail => len - count..len,
    };
    // Under the same lock the list is still what was looked at.
    let edited = exec.edit(key.again(), |list: &mut List| list.remove_range(range, limit))?;
    let edited = edited.expect("it was just seen, under its lock");
    let command = name_at(end, "LPOP", "RPOP").as_bytes();
    match form {
        Popped::One | Popped::KeyAndOne => exec.effect(key, &[command, name]),
        Popped::Many(_) | Popped::KeyAndMany(_) => {
            exec.effect(key, &[command, name, itoa::Buffer::new().format(count).as_bytes()]);
            exec.changed(count as u64 - 1);
        }
    }
    exec.notify(notify::LIST, name_at(end, "lpop", "rpop"), name);
    if edited.emptied {
        exec.notify(notify::GENERIC, "del", name);
    }
    match held {
        Some(held) => held.answer(exec, 0..count).map(|()| true),
        None => Ok(true),
    }
}
