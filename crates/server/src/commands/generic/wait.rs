//! WAIT and WAITAOF: waiting until replicas, or the disk, have what was written so far. There are no replicas: whoever asks for any
//! waits for the whole of its timeout, and is told of none.

use crate::args::Args;
use crate::blocking::{Nothing, Wait, until_whole_ms};
use crate::exec::{Exec, Outcome};
use gimmal_store::types::Type;

pub(super) fn wait(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let replicas = args.int(1)?;
    let until_ms = until_whole_ms(exec, args, 2)?;
    if replicas <= 0 {
        exec.reply.put().integer(0);
        return Ok(());
    }
    let mut keys = exec.lock_all(std::iter::empty())?;
    let wait = Wait { kind: Type::String, until_ms, again_ms: None, nothing: Nothing::Zeros(1), keys_stay: false };
    exec.block(&mut keys, 0, args, wait)
}

pub(super) fn waitaof(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let local = args.int(1)?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    let replicas = args.int(2)?;
    if replicas < 0 {
        return Err("ERR value is out of range, must be positive".into());
    }
    let until_ms = until_whole_ms(exec, args, 3)?;
    let durable = exec.shared.persist.aof.durable_lsn();
    if local > 0 && durable.is_none() {
        return Err("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into());
    }
    // What it waits for is settled when it begins, although it looks again and again.
    let (lsn, until_ms) = *exec.session.awaits.get_or_insert((exec.shared.log.end(), until_ms));
    let is_durable = durable.is_some_and(|durable| durable >= lsn);
    let now_ms = exec.now_ms();
    let is_over =
        i64::from(is_durable) >= local && replicas == 0 || until_ms.is_some_and(|until_ms| until_ms <= now_ms);
    if is_over || exec.in_transaction() {
        exec.session.awaits = None;
        let mut reply = exec.reply.put();
        reply.array(2);
        reply.integer(i64::from(is_durable));
        reply.integer(0);
        return Ok(());
    }
    let mut keys = exec.lock_all(std::iter::empty())?;
    let again_ms = Some(until_ms.map_or(i64::MAX, |until_ms| until_ms).min(now_ms + LOOK_MS));
    let wait = Wait { kind: Type::String, until_ms, again_ms, nothing: Nothing::Zeros(2), keys_stay: false };
    exec.block(&mut keys, 0, args, wait)
}

/// How often a WAITAOF looks how far the disk is, in ms. Only `everysec`, whose syncs are a second apart, lets it wait at all.
const LOOK_MS: i64 = 5;
