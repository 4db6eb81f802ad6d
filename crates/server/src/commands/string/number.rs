//! Strings that are numbers: INCR and its kin.

use super::string_of;
use crate::args::{Args, parse_int};
use crate::exec::{Exec, Outcome, ReplyError, Stop, error};
use crate::extended::{self, Extended, Parsed};
use crate::notify;
use gimmal_store::{NewValue, StringRef};

const NOT_AN_INTEGER: ReplyError = error("ERR value is not an integer or out of range");
const OVERFLOW: ReplyError = error("ERR increment or decrement would overflow");
/// The text is no number.
pub const NOT_A_FLOAT: ReplyError = error("ERR value is not a valid float");
const NOT_FINITE: ReplyError = error("ERR increment would produce NaN or Infinity");

pub(super) fn incr(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    add(exec, args, 1)
}

pub(super) fn decr(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    add(exec, args, -1)
}

pub(super) fn incrby(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let by = args.int(2)?;
    add(exec, args, by)
}

pub(super) fn decrby(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let by = args.int(2)?.checked_neg().ok_or(error("ERR decrement would overflow"))?;
    add(exec, args, by)
}

/// Adds to the integer at argument 1; the deadline stays.
#[inline]
fn add(exec: &mut Exec<'_>, args: &Args<'_>, by: i64) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let sum = match exec.write(locked.key()) {
        Some(mut entry) => {
            let sum = integer(string_of(&entry.entry())?)?.checked_add(by).ok_or(OVERFLOW)?;
            entry.set_int(sum);
            sum
        }
        None => {
            drop(exec.put(locked.key(), NewValue::Int(by), None));
            by
        }
    };
    exec.effect_given(locked.key(), args, 1);
    exec.notify(notify::STRING, "incrby", args.at(1));
    exec.reply.put().integer(sum);
    Ok(())
}

/// A stored string as an integer.
#[inline]
fn integer(value: StringRef<'_>) -> Result<i64, Stop> {
    match value {
        StringRef::Int(n) => Ok(n),
        StringRef::Bytes(bytes) => parse_int(bytes).ok_or(NOT_AN_INTEGER.into()),
        StringRef::Rope(_) => Err(NOT_AN_INTEGER.into()),
    }
}

pub(super) fn incrbyfloat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let by = extended::parse(args.at(2));
    let mut locked = exec.lock(args.at(1))?;
    let old = match exec.peek(locked.key()) {
        None => None,
        Some(entry) => Some(decimal(string_of(&entry)?)?),
    };
    let by = by.ok_or(NOT_A_FLOAT)?;
    let sum = match (old.unwrap_or(Parsed::Finite(Extended::from_int(0))), by) {
        (Parsed::Finite(old), Parsed::Finite(by)) => old.plus(by).ok_or(NOT_FINITE)?,
        _ => return Err(NOT_FINITE.into()),
    };
    let text = sum.text();
    // As in Redis the sum is stored as text, even if it is whole.
    let value = NewValue::Bytes(text.as_bytes());
    match old {
        Some(_) => drop(exec.write(locked.key()).expect("it was just read").replace(value)),
        None => drop(exec.put(locked.key(), value, None)),
    }
    // The result is logged, not the sum: another machine might round it otherwise.
    exec.effect(locked.key(), &[b"SET", args.at(1), text.as_bytes(), b"KEEPTTL"]);
    exec.notify(notify::STRING, "incrbyfloat", args.at(1));
    exec.reply.put().bulk(text.as_bytes());
    Ok(())
}

/// A stored string as a decimal number.
fn decimal(value: StringRef<'_>) -> Result<Parsed, Stop> {
    let parsed = match value {
        StringRef::Int(n) => Some(Parsed::Finite(Extended::from_int(n))),
        StringRef::Bytes(bytes) => extended::parse(bytes),
        StringRef::Rope(rope) => rope.as_single().and_then(extended::parse),
    };
    parsed.ok_or(NOT_A_FLOAT.into())
}
