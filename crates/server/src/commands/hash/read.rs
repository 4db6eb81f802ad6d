//! Reading hashes, by field and whole.

use super::read;
use crate::args::Args;
use crate::exec::{Exec, Outcome};
use crate::offload;
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_store::types::{Field, Fields, FieldsRef};
use std::ops::Range;

pub(super) fn hget(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let field = read(exec, key.key())?.and_then(|fields| fields.find(args.at(2), exec.now_ms()));
    answer(&mut exec.reply, field);
    Ok(())
}

pub(super) fn hmget(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    each(exec, args, 2, |field, _, reply| answer(reply, field))
}

/// Answers something about each of the fields that are named from argument `first` on; `answer` is told the time.
pub(super) fn each(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    first: usize,
    answer: impl Fn(Option<Field<'_>>, i64, &mut Reply<'_>) + Send + 'static,
) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let (fields, now_ms) = (read(exec, key.key())?, exec.now_ms());
    let write = move |fields: Option<FieldsRef<'_>>, args: &Args<'_>, reply: &mut Reply<'_>| {
        reply.put().array(args.len() - first);
        args.rest(first).for_each(|name| answer(fields.and_then(|fields| fields.find(name, now_ms)), now_ms, reply));
    };
    if offload::is_due(exec, args.len()) {
        let fields = fields.map(|fields| fields.to_owned());
        drop(key);
        return offload::write(exec, args, move |args, reply| write(fields.as_ref().map(Fields::view), args, reply));
    }
    write(fields, args, &mut exec.reply);
    Ok(())
}

/// The value of a field, or null.
#[inline]
pub(super) fn answer(reply: &mut Reply<'_>, field: Option<Field<'_>>) {
    match field {
        Some(field) => reply.put().bulk(field.value),
        None => reply.put().null(),
    }
}

pub(super) fn hlen(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let len = read(exec, key.key())?.map_or(0, |fields| fields.len());
    exec.reply.put().count(len);
    Ok(())
}

pub(super) fn hstrlen(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let field = read(exec, key.key())?.and_then(|fields| fields.find(args.at(2), exec.now_ms()));
    exec.reply.put().count(field.map_or(0, |field| field.value.len()));
    Ok(())
}

pub(super) fn hexists(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let field = read(exec, key.key())?.and_then(|fields| fields.find(args.at(2), exec.now_ms()));
    exec.reply.put().integer(i64::from(field.is_some()));
    Ok(())
}

/// What of each field is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Names,
    Values,
    Both,
}

pub(super) fn hkeys(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    whole(exec, args, What::Names)
}

pub(super) fn hvals(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    whole(exec, args, What::Values)
}

pub(super) fn hgetall(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    whole(exec, args, What::Both)
}

fn whole(exec: &mut Exec<'_>, args: &Args<'_>, what: What) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let fields = read(exec, key.key())?;
    let now_ms = exec.now_ms();
    let live = fields.map_or(0, |fields| fields.live_len(now_ms));
    match what {
        What::Both => exec.reply.put().map(live),
        What::Names | What::Values => exec.reply.put().array(live),
    }
    let Some(fields) = fields else { return Ok(()) };
    if fields.len() <= streamed::WRITTEN_AT_ONCE || fields.is_read_whole() {
        fields.iter(now_ms).for_each(|field| what.write(field, &mut exec.reply));
        return Ok(());
    }
    let (ranks, source) = (0..fields.len(), Whole { fields: fields.to_owned(), now_ms, what });
    drop(key);
    streamed::elements(exec, ranks, source)
}

impl What {
    fn write(self, field: Field<'_>, reply: &mut Reply<'_>) {
        if self != What::Values {
            reply.put().bulk(field.name);
        }
        if self != What::Names {
            reply.put().bulk(field.value);
        }
    }
}

/// A hash as it was at a time.
struct Whole {
    fields: Fields,
    now_ms: i64,
    what: What,
}

impl Elements for Whole {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        let fields = self.fields.view().iter_from(ranks.start).take(ranks.len());
        fields.filter(|field| field.is_live(self.now_ms)).for_each(|field| self.what.write(field, reply));
    }
}
