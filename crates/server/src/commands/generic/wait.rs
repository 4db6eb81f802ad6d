//! WAIT and WAITAOF: waiting until replicas, or the file, have what this connection wrote. There are no replicas and there is no
//! file: whoever asks for any waits for the whole of its timeout, and is told of none.

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
    for_nothing(exec, args, until_ms, 1)
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
    if local > 0 {
        return Err("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into());
    }
    if replicas == 0 {
        let mut reply = exec.reply.put();
        reply.array(2);
        reply.integer(0);
        reply.integer(0);
        return Ok(());
    }
    for_nothing(exec, args, until_ms, 2)
}

/// Waits for no key, until the time is over; then so many zeros are answered.
fn for_nothing(exec: &mut Exec<'_>, args: &Args<'_>, until_ms: Option<i64>, zeros: usize) -> Outcome {
    let mut keys = exec.lock_all(std::iter::empty())?;
    let wait = Wait { kind: Type::String, until_ms, again_ms: None, nothing: Nothing::Zeros(zeros), keys_stay: false };
    exec.block(&mut keys, 0, args, wait)
}
