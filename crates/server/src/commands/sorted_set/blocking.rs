//! BZPOPMIN, BZPOPMAX and BZMPOP: the commands without the B, and waiting where those find nothing (`blocking.rs`).

use super::pop::{End, MultiPop, answer, pop};
use super::sorted_set_of;
use crate::args::Args;
use crate::blocking::{Nothing, Wait, until_ms};
use crate::exec::{Exec, LockedMany, Outcome, Stop};
use gimmal_store::types::Type;

pub(super) fn bzpopmin(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_first(exec, args, End::Min)
}

pub(super) fn bzpopmax(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_first(exec, args, End::Max)
}

fn pop_first(exec: &mut Exec<'_>, args: &Args<'_>, end: End) -> Outcome {
    let last = args.len() - 1;
    let until_ms = until_ms(exec, args, last)?;
    let names: Vec<&[u8]> = (1..last).map(|i| args.at(i)).collect();
    let mut keys = exec.lock_all(names.iter().copied())?;
    let Some(i) = first(exec, &mut keys)? else { return wait(exec, keys, args, until_ms) };
    let popped = pop(exec, keys.key(i), end, 1, false)?;
    let mut reply = exec.reply.put();
    reply.array(3);
    reply.bulk(names[i]);
    for (member, score) in &popped {
        reply.bulk(member);
        reply.double(*score);
    }
    Ok(())
}

pub(super) fn bzmpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = MultiPop::parse(args, 2)?;
    let until_ms = until_ms(exec, args, 1)?;
    let names: Vec<&[u8]> = args.rest(3).take(options.keys).collect();
    let mut keys = exec.lock_all(names.iter().copied())?;
    let Some(i) = first(exec, &mut keys)? else { return wait(exec, keys, args, until_ms) };
    let popped = pop(exec, keys.key(i), options.end, options.count, true)?;
    answer(exec, names[i], &popped);
    Ok(())
}

/// The first of the keys that holds a sorted set, and that nobody waits for.
fn first(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>) -> Result<Option<usize>, Stop> {
    for i in 0..keys.len() {
        if exec.queues(&mut keys.key(i), Type::SortedSet) {
            continue;
        }
        if let Some(entry) = exec.peek(keys.key(i)) {
            sorted_set_of(&entry)?;
            return Ok(Some(i));
        }
    }
    Ok(None)
}

fn wait(exec: &mut Exec<'_>, mut keys: LockedMany<'_>, args: &Args<'_>, until_ms: Option<i64>) -> Outcome {
    let waited = keys.len();
    exec.block(
        &mut keys,
        waited,
        args,
        Wait { kind: Type::SortedSet, until_ms, again_ms: None, nothing: Nothing::Array, keys_stay: false },
    )
}
