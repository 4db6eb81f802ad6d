//! LSET, LINSERT, LREM and LTRIM.

use super::{COMPARED_AT_ONCE, index_of, list_of, node_limit, range_of, symmetric};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Locked, Outcome, ReplyError, error};
use crate::notify;
use crate::offload;
use gimmal_store::Large;
use gimmal_store::types::List;

const NO_SUCH_KEY: ReplyError = error("ERR no such key");
const NO_SUCH_INDEX: ReplyError = error("ERR index out of range");

pub(super) fn lset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (index, limit) = (args.int(2), node_limit(exec));
    let mut locked = exec.lock(args.at(1))?;
    let len = match exec.peek(locked.key()) {
        Some(entry) => list_of(&entry)?.len(),
        None => return Err(NO_SUCH_KEY.into()),
    };
    // As in Redis, only where there is a list the index matters.
    let index = index_of(index?, len).ok_or(NO_SUCH_INDEX)?;
    exec.edit(locked.key(), |list: &mut List| {
        list.expect(1, args.length(3), limit);
        list.set(index, args.at(3), limit);
    })?;
    exec.effect_given(locked.key(), args, 1);
    exec.notify(notify::LIST, "lset", args.at(1));
    exec.reply.put().ok();
    Ok(())
}

pub(super) fn linsert(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let behind = match (args.is(2, "after"), args.is(2, "before")) {
        (true, _) => 1,
        (_, true) => 0,
        _ => return Err(SYNTAX.into()),
    };
    let limit = node_limit(exec);
    let mut locked = exec.lock(args.at(1))?;
    let Some(list) = exec.peek(locked.key()).map(|entry| list_of(&entry)).transpose()? else {
        exec.reply.put().integer(0);
        return Ok(());
    };
    let alter = move |list: &mut List, args: &Args<'_>| {
        list.expect(1, args.length(4), limit);
        let index = list.view().iter().position(|other| other == args.at(3))?;
        list.insert(index + behind, args.at(4));
        Some(list.view().len())
    };
    if offload::is_due(exec, list.len() / COMPARED_AT_ONCE) {
        let list = list.to_owned();
        drop(locked);
        return offload::change(exec, args, offload::Command { key: 1, handler: linsert }, list, alter, inserted);
    }
    let edited = exec.edit(locked.key(), |list: &mut List| alter(list, args))?;
    inserted(exec, args, locked, edited.and_then(|edited| edited.result))
}

fn inserted(exec: &mut Exec<'_>, args: &Args<'_>, mut locked: Locked<'_>, len: Option<usize>) -> Outcome {
    match len {
        Some(len) => {
            exec.effect_given(locked.key(), args, 1);
            exec.notify(notify::LIST, "linsert", args.at(1));
            exec.reply.put().count(len);
        }
        None => exec.reply.put().integer(-1),
    }
    Ok(())
}

pub(super) fn lrem(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = symmetric(args, 2)?;
    let most = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(most) => most,
    };
    let limit = node_limit(exec);
    let mut locked = exec.lock(args.at(1))?;
    let len = exec.peek(locked.key()).map(|entry| list_of(&entry)).transpose()?.map_or(0, |list| list.len());
    let alter = move |list: &mut List, args: &Args<'_>| {
        let removed = list.remove_equal(args.at(3), most, count < 0, limit);
        (removed, list.view().is_empty())
    };
    if offload::is_due(exec, len / COMPARED_AT_ONCE)
        && let Some(list) = exec.peek(locked.key()).map(|entry| list_of(&entry)).transpose()?
    {
        let list = list.to_owned();
        drop(locked);
        return offload::change(exec, args, offload::Command { key: 1, handler: lrem }, list, alter, removed_equal);
    }
    let edited = exec.edit(locked.key(), |list: &mut List| alter(list, args))?;
    removed_equal(exec, args, locked, edited.map_or((0, false), |edited| edited.result))
}

fn removed_equal(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut locked: Locked<'_>,
    (removed, emptied): (usize, bool),
) -> Outcome {
    if removed > 0 {
        exec.effect_given(locked.key(), args, removed as u64);
        exec.notify(notify::LIST, "lrem", args.at(1));
        if emptied {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
    }
    exec.reply.put().count(removed);
    Ok(())
}

pub(super) fn ltrim(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (start, stop, limit) = (args.int(2)?, args.int(3)?, node_limit(exec));
    let mut locked = exec.lock(args.at(1))?;
    let edited = exec.edit(locked.key(), |list: &mut List| {
        let len = list.view().len();
        let kept = range_of(start, stop, len);
        let removed = len - kept.len();
        let shared = list.shared(removed);
        if removed > 0 {
            list.remove_range(kept.end..len, limit);
            list.remove_range(0..kept.start, limit);
        }
        (removed, shared)
    })?;
    if let Some(edited) = edited {
        let (removed, shared) = edited.result;
        if removed > 0 {
            exec.effect_given(locked.key(), args, removed as u64);
        } else {
            // As in Redis, a trim that removed nothing is told of all the same.
            exec.modified(&mut locked.key());
        }
        exec.notify(notify::LIST, "ltrim", args.at(1));
        if edited.emptied {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
        if let Some(shared) = shared {
            exec.discard(Large::Tree(shared));
        }
    }
    exec.reply.put().ok();
    Ok(())
}
