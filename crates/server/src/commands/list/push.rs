//! LPUSH, RPUSH, LPUSHX and RPUSHX.

use super::{End, name_at, node_limit};
use crate::args::Args;
use crate::exec::{Exec, Outcome};
use crate::notify;
use gimmal_store::types::List;

pub(super) fn lpush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, End::Head, true)
}

pub(super) fn rpush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, End::Tail, true)
}

pub(super) fn lpushx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, End::Head, false)
}

pub(super) fn rpushx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, End::Tail, false)
}

fn push(exec: &mut Exec<'_>, args: &Args<'_>, end: End, create: bool) -> Outcome {
    let limit = node_limit(exec);
    let count = args.len() - 2;
    let bytes = (2..args.len()).map(|i| args.length(i)).sum();
    let mut locked = exec.lock(args.at(1))?;
    let change = |list: &mut List| {
        list.expect(count, bytes, limit);
        args.rest(2).for_each(|element| list.push(end, element));
        list.view().len()
    };
    let edited = match create {
        true => Some(exec.edit_or_create(locked.key(), change)?),
        false => exec.edit(locked.key(), change)?,
    };
    if let Some(edited) = &edited {
        exec.effect_given(locked.key(), args, count as u64);
        if edited.created {
            exec.notify(notify::NEW, "new", args.at(1));
        }
        exec.notify(notify::LIST, name_at(end, "lpush", "rpush"), args.at(1));
    }
    exec.reply.put().count(edited.map_or(0, |edited| edited.result));
    Ok(())
}
