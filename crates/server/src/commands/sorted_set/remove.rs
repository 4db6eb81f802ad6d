//! ZREM and ZREMRANGEBYRANK, -SCORE and -LEX.

use super::{bounds, record, sorted_set_of};
use crate::args::Args;
use crate::exec::{Edited, Exec, Locked, Outcome};
use crate::notify;
use crate::offload::{self, Command, Handler, Missing};
use gimmal_store::types::{SortedSet, SortedSetRef};
use std::ops::Range;

pub(super) fn zrem(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let alter =
        |set: &mut SortedSet, args: &Args<'_>, _| args.rest(2).filter(|member| set.remove(member).is_some()).count();
    let command = Command { key: 1, handler: zrem };
    offload::edit(exec, args, command, Missing::Leave, args.len(), alter, removed_members)
}

fn removed_members(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut locked: Locked<'_>,
    edited: Option<Edited<usize>>,
) -> Outcome {
    let (removed, emptied) = edited.map_or((0, false), |edited| (edited.result, edited.emptied));
    if removed > 0 {
        record(exec, locked.key(), args, removed);
        exec.notify(notify::ZSET, "zrem", args.at(1));
        if emptied {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
    }
    exec.reply.put().count(removed);
    Ok(())
}

pub(super) fn zremrangebyrank(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    remove(exec, args, "zremrangebyrank", zremrangebyrank, |set| {
        bounds::ranks(start, stop, set.len()).unwrap_or_default()
    })
}

pub(super) fn zremrangebyscore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = bounds::scores(args.at(2), args.at(3))?;
    remove(exec, args, "zremrangebyscore", zremrangebyscore, |set| set.ranks_of_scores(&range))
}

pub(super) fn zremrangebylex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = bounds::members(args.at(2), args.at(3))?;
    remove(exec, args, "zremrangebylex", zremrangebylex, |set| set.ranks_of_members(&range, false))
}

fn remove(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    event: &'static str,
    handler: Handler,
    ranks: impl Fn(SortedSetRef<'_>) -> Range<usize>,
) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let set = exec.peek(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()?;
    let Some((set, ranks)) = set.map(|set| (set, ranks(set))) else {
        exec.reply.put().count(0);
        return Ok(());
    };
    let whole = ranks.len() == set.len();
    if !whole && offload::is_due(exec, ranks.len()) {
        let (original, removed) = (set.to_owned(), ranks.len());
        drop(locked);
        let command = Command { key: 1, handler };
        let alter = move |set: &mut SortedSet, _: &Args<'_>| set.remove_ranks(ranks);
        return offload::change(exec, args, command, original, alter, move |exec, args, locked, ()| {
            removed_from(exec, args, locked, event, removed, false)
        });
    }
    let removed = ranks.len();
    // A set that goes altogether is freed elsewhere.
    match whole {
        true => drop(exec.remove(locked.key())),
        false => _ = exec.edit(locked.key(), |set: &mut SortedSet| set.remove_ranks(ranks))?,
    }
    removed_from(exec, args, locked, event, removed, whole)
}

/// So many members were removed from the set at a key: it is recorded, told and answered.
fn removed_from(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut locked: Locked<'_>,
    event: &'static str,
    removed: usize,
    whole: bool,
) -> Outcome {
    if removed > 0 {
        record(exec, locked.key(), args, removed);
        exec.notify(notify::ZSET, event, args.at(1));
        if whole {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
    }
    exec.reply.put().count(removed);
    Ok(())
}
