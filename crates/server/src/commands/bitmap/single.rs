//! One bit: GETBIT and SETBIT.

use super::{Bytes, offset};
use crate::args::{Args, parse_int};
use crate::commands::string::string_of;
use crate::exec::{Exec, Outcome, error};
use crate::notify;
use gimmal_store::{Encoding, NewValue};

pub(super) fn getbit(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let at = offset(exec, args, 2, None)?;
    let mut locked = exec.lock(args.at(1))?;
    let set = match exec.read(locked.key()) {
        Some(entry) => Bytes::new(string_of(&entry)?, &mut itoa::Buffer::new()).byte(at / 8) & mask(at) != 0,
        None => false,
    };
    exec.reply.put().integer(i64::from(set));
    Ok(())
}

pub(super) fn setbit(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let at = offset(exec, args, 2, None)?;
    let on = match parse_int(args.at(3)) {
        Some(bit @ (0 | 1)) => bit == 1,
        _ => return Err(error("ERR bit is not an integer or out of range").into()),
    };
    let byte = usize::try_from(at / 8).expect("within the largest length of a string");
    let mut locked = exec.lock(args.at(1))?;
    let (before, there, raw) = match exec.peek(locked.key()) {
        Some(entry) => {
            let mut digits = itoa::Buffer::new();
            let bytes = Bytes::new(string_of(&entry)?, &mut digits);
            (bytes.byte(at / 8), bytes.len() > byte, entry.encoding() == Encoding::Raw)
        }
        None => {
            let _none = exec.put(locked.key(), NewValue::Bytes(b""), None);
            (0, false, false)
        }
    };
    let was = before & mask(at) != 0;
    let changed = !there || was != on;
    // Like Redis's, the string is in its changeable form afterwards even if the bit was as it was to be.
    if changed || !raw {
        let after = if on { before | mask(at) } else { before & !mask(at) };
        exec.write(locked.key()).expect("it was just read or put").set_range(byte, &[after]);
    }
    if changed {
        exec.effect(locked.key(), &[b"SETBIT", args.at(1), args.at(2), args.at(3)]);
        exec.notify(notify::STRING, "setbit", args.at(1));
    }
    exec.reply.put().integer(i64::from(was));
    Ok(())
}

/// The bit in its byte.
fn mask(at: u64) -> u8 {
    0x80 >> (at % 8)
}
