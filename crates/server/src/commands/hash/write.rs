//! Setting and removing fields.

use super::{effect, limits, peek, tell_of_write, words};
use crate::args::Args;
use crate::exec::{Edited, Exec, Locked, Outcome};
use crate::notify;
use crate::offload::{self, Command, Handler, Missing};
use gimmal_store::types::{Field, Fields};

pub(super) fn hset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set(exec, args, hset, |exec, new| exec.reply.put().count(new))
}

pub(super) fn hmset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set(exec, args, hmset, |exec, _| exec.reply.put().ok())
}

/// Sets the fields that are named; `answer` is told how many are new.
fn set(exec: &mut Exec<'_>, args: &Args<'_>, handler: Handler, answer: fn(&mut Exec<'_>, usize)) -> Outcome {
    if args.len() % 2 == 1 {
        let command = String::from_utf8_lossy(args.at(0)).to_ascii_lowercase();
        return Err(format!("ERR wrong number of arguments for '{command}' command").into());
    }
    let (pairs, limits) = (args.len() / 2 - 1, limits(exec));
    let alter = move |fields: &mut Fields, args: &Args<'_>, now_ms| {
        fields.expect(pairs, limits);
        let (mut new, mut past) = (0, 0);
        for i in (2..args.len()).step_by(2) {
            let field = Field { name: args.at(i), value: args.at(i + 1), expire_at_ms: None };
            let before = fields.put(field, limits);
            new += usize::from(!before.was_live(now_ms));
            past += usize::from(before.was_past(now_ms));
        }
        (new, past)
    };
    offload::edit(
        exec,
        args,
        Command { key: 1, handler },
        Missing::Create,
        pairs,
        alter,
        move |exec, args, mut key, edited| {
            let Edited { result: (new, past), .. } = edited.expect("a hash that is missing is made");
            effect(exec, key.key(), pairs, words(b"HSET", args, 2));
            tell_of_write(exec, args.at(1), past, "hset");
            answer(exec, new);
            Ok(())
        },
    )
}

pub(super) fn hsetnx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let limits = limits(exec);
    let mut key = exec.lock(args.at(1))?;
    let now_ms = exec.now_ms();
    let there = peek(exec, key.key())?.is_some_and(|fields| fields.find(args.at(2), now_ms).is_some());
    if !there {
        let field = Field { name: args.at(2), value: args.at(3), expire_at_ms: None };
        let edited = exec.edit_or_create(key.key(), |fields: &mut Fields| fields.put(field, limits))?;
        exec.effect(key.key(), &[b"HSET", args.at(1), args.at(2), args.at(3)]);
        let past = usize::from(edited.result.was_past(now_ms));
        tell_of_write(exec, args.at(1), past, "hset");
    }
    exec.reply.put().integer(i64::from(!there));
    Ok(())
}

pub(super) fn hdel(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let alter =
        |fields: &mut Fields, args: &Args<'_>, now_ms| args.rest(2).filter(|name| fields.remove(name, now_ms)).count();
    offload::edit(exec, args, Command { key: 1, handler: hdel }, Missing::Leave, args.len(), alter, removed)
}

fn removed(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, edited: Option<Edited<usize>>) -> Outcome {
    let (removed, emptied) = edited.map_or((0, false), |edited| (edited.result, edited.emptied));
    if removed > 0 {
        effect(exec, key.key(), removed, words(b"HDEL", args, 2));
        exec.notify(notify::HASH, "hdel", args.at(1));
        if emptied {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
    }
    exec.reply.put().count(removed);
    Ok(())
}
