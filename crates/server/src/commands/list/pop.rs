//! LPOP, RPOP and LMPOP, and [`pop`], which is all that they and the blocking commands do.

use super::held::{Held, write};
use super::{End, end, name_at, node_limit};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Edited, Exec, Key, Outcome, ReplyError, Stop, error};
use crate::notify;
use crate::reply::Reply;
use crate::streamed::WRITTEN_AT_ONCE;
use gimmal_store::types::{List, NodeLimit, Type};

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
    let taken =
        exec.edit_and_answer(key.again(), |list: &mut List, reply| take(list, reply, name, end, form, limit))?;
    let Some(Edited { result: (count, held), emptied, .. }) = taken else { return Ok(false) };
    if count == 0 {
        return Ok(true);
    }
    let command = name_at(end, "LPOP", "RPOP").as_bytes();
    match form {
        Popped::One | Popped::KeyAndOne => exec.effect(key, &[command, name]),
        Popped::Many(_) | Popped::KeyAndMany(_) => {
            exec.effect(key, &[command, name, itoa::Buffer::new().format(count).as_bytes()]);
            exec.changed(count as u64 - 1);
        }
    }
    exec.notify(notify::LIST, name_at(end, "lpop", "rpop"), name);
    if emptied {
        exec.notify(notify::GENERIC, "del", name);
    }
    match held {
        Some(held) => held.answer(exec, 0..count).map(|()| true),
        None => Ok(true),
    }
}

/// Removes elements and answers them: how many, and the list as it was if they are so many that they are to be answered after the
/// lock is released.
fn take(
    list: &mut List,
    reply: &mut Reply<'_>,
    name: &[u8],
    end: End,
    form: Popped,
    limit: NodeLimit,
) -> (usize, Option<Held>) {
    let count = match form {
        Popped::One | Popped::KeyAndOne => 1,
        Popped::Many(most) | Popped::KeyAndMany(most) => most.min(list.view().len()),
    };
    if matches!(form, Popped::KeyAndOne | Popped::KeyAndMany(_)) {
        reply.put().array(2);
        reply.put().bulk(name);
    }
    if matches!(form, Popped::Many(_) | Popped::KeyAndMany(_)) {
        reply.put().array(count);
    }
    let held = (count > WRITTEN_AT_ONCE).then(|| Held::new(list.view(), end));
    match count {
        0 => {}
        1 => list.pop(end, limit, |element| reply.put().bulk(element)),
        _ => {
            if held.is_none() {
                write(list.view(), end, 0..count, reply);
            }
            let len = list.view().len();
            let range = if end == End::Head { 0..count } else { len - count..len };
            list.remove_range(range, limit);
        }
    }
    (count, held)
}
