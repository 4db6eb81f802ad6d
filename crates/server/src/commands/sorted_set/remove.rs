//! ZREM and ZREMRANGEBYRANK, -SCORE and -LEX.

use super::{bounds, record};
use crate::args::Args;
use crate::exec::{Exec, Outcome};
use crate::notify;
use gimmal_store::types::{SortedSet, SortedSetRef};
use std::ops::Range;

pub(super) fn zrem(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let edited = exec
        .edit(locked.key(), |set: &mut SortedSet| args.rest(2).filter(|member| set.remove(member).is_some()).count())?;
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
    remove(exec, args, "zremrangebyrank", |set| bounds::ranks(start, stop, set.len()).unwrap_or_default())
}

pub(super) fn zremrangebyscore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = bounds::scores(args.at(2), args.at(3))?;
    remove(exec, args, "zremrangebyscore", |set| set.ranks_of_scores(&range))
}

pub(super) fn zremrangebylex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let range = bounds::members(args.at(2), args.at(3))?;
    remove(exec, args, "zremrangebylex", |set| set.ranks_of_members(&range, false))
}

fn remove(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    event: &'static str,
    ranks: impl FnOnce(SortedSetRef<'_>) -> Range<usize>,
) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let edited = exec.edit(locked.key(), |set: &mut SortedSet| {
        let ranks = ranks(set.view());
        let whole = ranks.len() == set.view().len();
        // A set that goes altogether is left to the caller, who has it freed elsewhere.
        if !whole {
            set.remove_ranks(ranks.clone());
        }
        (ranks.len(), whole)
    })?;
    let (removed, whole) = edited.map_or((0, false), |edited| edited.result);
    if whole {
        drop(exec.remove(locked.key()));
    }
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
