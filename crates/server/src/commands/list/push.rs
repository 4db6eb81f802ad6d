//! LPUSH, RPUSH, LPUSHX and RPUSHX.

use super::{End, name_at, node_limit};
use crate::args::Args;
use crate::exec::{Exec, Outcome};
use crate::notify;
use crate::offload::{self, Command, Handler, Missing};
use gimmal_store::types::List;

pub(super) fn lpush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, lpush, End::Head, Missing::Create)
}

pub(super) fn rpush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, rpush, End::Tail, Missing::Create)
}

pub(super) fn lpushx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, lpushx, End::Head, Missing::Leave)
}

pub(super) fn rpushx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    push(exec, args, rpushx, End::Tail, Missing::Leave)
}

fn push(exec: &mut Exec<'_>, args: &Args<'_>, handler: Handler, end: End, missing: Missing) -> Outcome {
    let limit = node_limit(exec);
    let alter = move |list: &mut List, args: &Args<'_>, _| {
        list.expect(args.len() - 2, (2..args.len()).map(|i| args.length(i)).sum(), limit);
        args.rest(2).for_each(|element| list.push(end, element));
        list.view().len()
    };
    let command = Command { key: 1, handler };
    offload::edit(exec, args, command, missing, args.len(), alter, move |exec, args, mut locked, edited| {
        if edited.is_some() {
            exec.effect_given(locked.key(), args, args.len() as u64 - 2);
            exec.notify(notify::LIST, name_at(end, "lpush", "rpush"), args.at(1));
        }
        exec.reply.put().count(edited.map_or(0, |edited| edited.result));
        Ok(())
    })
}
