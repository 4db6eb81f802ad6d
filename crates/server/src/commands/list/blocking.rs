//! BLPOP, BRPOP, BLMPOP, BLMOVE and BRPOPLPUSH: the commands without the B, and waiting where those find nothing (`blocking.rs`).

use super::pop::{MultiPop, Popped, pop};
use super::transfer::transfer;
use super::{End, end};
use crate::args::Args;
use crate::blocking::{Nothing, Wait, until_ms};
use crate::exec::{Exec, Outcome};
use gimmal_store::types::Type;

pub(super) fn blpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_first(exec, args, End::Head)
}

pub(super) fn brpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_first(exec, args, End::Tail)
}

fn pop_first(exec: &mut Exec<'_>, args: &Args<'_>, end: End) -> Outcome {
    let last = args.len() - 1;
    let until_ms = until_ms(exec, args, last)?;
    pop_or_wait(exec, args, 1..last, end, Popped::KeyAndOne, until_ms)
}

pub(super) fn blmpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let MultiPop { keys, end, count } = MultiPop::parse(args, 2)?;
    let until_ms = until_ms(exec, args, 1)?;
    pop_or_wait(exec, args, 3..3 + keys, end, Popped::KeyAndMany(count), until_ms)
}

fn pop_or_wait(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    names: std::ops::Range<usize>,
    end: End,
    form: Popped,
    until_ms: Option<i64>,
) -> Outcome {
    let mut keys = exec.lock_all(names.map(|i| args.at(i)))?;
    for i in 0..keys.len() {
        if !exec.queues(&mut keys.key(i), Type::List) && pop(exec, keys.key(i), end, form)? {
            return Ok(());
        }
    }
    let waited = keys.len();
    exec.block(
        &mut keys,
        waited,
        args,
        Wait { kind: Type::List, until_ms, again_ms: None, nothing: Nothing::Array, keys_stay: false },
    )
}

pub(super) fn blmove(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (from, to) = (end(args, 3)?, end(args, 4)?);
    let until_ms = until_ms(exec, args, 5)?;
    move_or_wait(exec, args, from, to, &[b"LMOVE", args.at(1), args.at(2), args.at(3), args.at(4)], until_ms)
}

pub(super) fn brpoplpush(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let until_ms = until_ms(exec, args, 3)?;
    move_or_wait(exec, args, End::Tail, End::Head, &[b"RPOPLPUSH", args.at(1), args.at(2)], until_ms)
}

fn move_or_wait(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    command: &[&[u8]],
    until_ms: Option<i64>,
) -> Outcome {
    let mut keys = exec.lock_all([args.at(1), args.at(2)].into_iter())?;
    if !exec.queues(&mut keys.key(0), Type::List) && transfer(exec, &mut keys, from, to, command)? {
        return Ok(());
    }
    // Only the source can serve.
    exec.block(
        &mut keys,
        1,
        args,
        Wait { kind: Type::List, until_ms, again_ms: None, nothing: Nothing::String, keys_stay: false },
    )
}
