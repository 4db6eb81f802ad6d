//! Fields that are numbers: HINCRBY and HINCRBYFLOAT.

use super::{limits, peek, tell_of_write};
use crate::args::{Args, parse_int};
use crate::commands::string::NOT_A_FLOAT;
use crate::exec::{Exec, Key, Outcome, ReplyError, error};
use crate::extended::{self, Extended, Parsed};
use gimmal_store::types::{Field, Fields, FieldsRef};

const NOT_AN_INTEGER: ReplyError = error("ERR hash value is not an integer");
const OVERFLOW: ReplyError = error("ERR increment or decrement would overflow");
const NOT_FLOAT: ReplyError = error("ERR hash value is not a float");
const INFINITE: ReplyError = error("ERR value is NaN or Infinity");
const NOT_FINITE: ReplyError = error("ERR increment would produce NaN or Infinity");

pub(super) fn hincrby(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let by = args.int(3)?;
    let mut key = exec.lock(args.at(1))?;
    let (fields, now_ms) = (peek(exec, key.key())?, exec.now_ms());
    let field = fields.and_then(|fields| fields.find(args.at(2), now_ms));
    let old = field.map_or(Some(0), |field| parse_int(field.value)).ok_or(NOT_AN_INTEGER)?;
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    let expire_at_ms = field.and_then(|field| field.expire_at_ms);
    let volatile = fields.is_some_and(has_deadlines);
    let mut digits = itoa::Buffer::new();
    let text = digits.format(sum).as_bytes();
    store(exec, key.key(), args, text, expire_at_ms, volatile, "hincrby")?;
    exec.reply.put().integer(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let Parsed::Finite(by) = extended::parse(args.at(3)).ok_or(NOT_A_FLOAT)? else { return Err(INFINITE.into()) };
    let mut key = exec.lock(args.at(1))?;
    let (fields, now_ms) = (peek(exec, key.key())?, exec.now_ms());
    let field = fields.and_then(|fields| fields.find(args.at(2), now_ms));
    let old = match field {
        None => Parsed::Finite(Extended::from_int(0)),
        Some(field) => extended::parse(field.value).ok_or(NOT_FLOAT)?,
    };
    let Parsed::Finite(old) = old else { return Err(NOT_FINITE.into()) };
    let sum = old.plus(by).ok_or(NOT_FINITE)?.text();
    let expire_at_ms = field.and_then(|field| field.expire_at_ms);
    // The result is logged, not the sum: another machine might round it otherwise.
    store(exec, key.key(), args, sum.as_bytes(), expire_at_ms, true, "hincrbyfloat")?;
    exec.reply.put().bulk(sum.as_bytes());
    Ok(())
}

/// Whether a field of the hash expires, now or earlier: a replica may see another field expired than was seen here.
fn has_deadlines(fields: FieldsRef<'_>) -> bool {
    fields.deadline_ms().is_some()
}

/// Stores the sum in argument 2, which keeps its deadline; `by_result` logs it rather than the increment.
fn store(
    exec: &mut Exec<'_>,
    mut key: Key<'_, '_>,
    args: &Args<'_>,
    sum: &[u8],
    expire_at_ms: Option<i64>,
    by_result: bool,
    event: &'static str,
) -> Outcome {
    let (limits, now_ms) = (limits(exec), exec.now_ms());
    let name = args.at(2);
    let edited = exec.edit_or_create(key.again(), |fields: &mut Fields| {
        fields.put(Field { name, value: sum, expire_at_ms }, limits)
    })?;
    match expire_at_ms {
        Some(at_ms) => {
            let at = itoa::Buffer::new().format(at_ms).to_owned();
            exec.effect(key, &[b"HSETEX", args.at(1), b"PXAT", at.as_bytes(), b"FIELDS", b"1", name, sum]);
        }
        None if by_result => exec.effect(key, &[b"HSET", args.at(1), name, sum]),
        None => exec.effect(key, &[b"HINCRBY", args.at(1), name, args.at(3)]),
    }
    tell_of_write(exec, args.at(1), usize::from(edited.result.was_past(now_ms)), event);
    Ok(())
}
