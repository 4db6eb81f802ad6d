//! LMOVE and RPOPLPUSH, and [`transfer`], which is all that they and the blocking commands do.

use super::{End, end, list_of, name_at, node_limit};
use crate::args::Args;
use crate::exec::{Exec, LockedMany, Outcome, Stop};
use crate::notify;
use gimmal_store::types::{List, Type};

pub(super) fn lmove(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (from, to) = (end(args, 3)?, end(args, 4)?);
    run(exec, args, from, to, &[b"LMOVE", args.at(1), args.at(2), args.at(3), args.at(4)])
}

pub(super) fn rpoplpush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    run(exec, args, End::Tail, End::Head, &[b"RPOPLPUSH", args.at(1), args.at(2)])
}

fn run(exec: &mut Exec<'_>, args: &Args<'_>, from: End, to: End, command: &[&[u8]]) -> Outcome {
    let mut keys = exec.lock_all([args.at(1), args.at(2)].into_iter())?;
    if !transfer(exec, &mut keys, from, to, command)? {
        exec.reply.put().null();
    }
    Ok(())
}

/// Moves an element from the list at the first of two locked keys to that at the second, which may be the same key, and
/// answers it; false, and no answer, if there is no source. `command` is what is logged: LMOVE or RPOPLPUSH with these keys.
///
/// # Errors
/// WRONGTYPE, and no change, if one of them is no list.
pub fn transfer(
    exec: &mut Exec<'_>,
    keys: &mut LockedMany<'_>,
    from: End,
    to: End,
    command: &[&[u8]],
) -> Result<bool, Stop> {
    let limit = node_limit(exec);
    let (source, destination) = (command[1], command[2]);
    let same = source == destination;
    exec.give_way(&mut keys.key(0), Type::List)?;
    let Some(entry) = exec.peek(keys.key(0)) else { return Ok(false) };
    list_of(&entry)?;
    if !same && let Some(entry) = exec.peek(keys.key(1)) {
        list_of(&entry)?;
    }
    let edited = exec.edit(keys.key(0), |list: &mut List| {
        let index = match from {
            End::Head => 0,
            End::Tail => list.view().len() - 1,
        };
        let element = list.view().nth(index).expect("a list has elements").to_vec();
        list.remove_range(index..index + 1, limit);
        if same {
            list.expect(1, element.len(), limit);
            list.push(to, &element);
        }
        element
    })?;
    let edited = edited.expect("it was just seen, under its lock");
    let element = edited.result;
    if !same {
        exec.edit_or_create(keys.key(1), |list: &mut List| {
            list.expect(1, element.len(), limit);
            list.push(to, &element);
        })?;
    }
    exec.effect_many(keys, 1, |record, db| {
        record.command(db, command);
    });
    exec.notify(notify::LIST, name_at(to, "lpush", "rpush"), destination);
    exec.notify(notify::LIST, name_at(from, "lpop", "rpop"), source);
    if edited.emptied {
        exec.notify(notify::GENERIC, "del", source);
    }
    exec.reply.put().bulk(&element);
    Ok(true)
}
