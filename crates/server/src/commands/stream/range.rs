//! Reading entries by id.

use super::{id, read};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome};
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_resp::Writer;
use gimmal_store::types::{Entries, StreamEntry};
use std::ops::Range;

pub(super) fn xlen(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let len = read(exec, key.key())?.map_or(0, |stream| stream.len());
    exec.reply.put().count(len);
    Ok(())
}

pub(super) fn xrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, false)
}

pub(super) fn xrevrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    range(exec, args, true)
}

fn range(exec: &mut Exec<'_>, args: &Args<'_>, reverse: bool) -> Outcome {
    let (start_at, end_at) = if reverse { (3, 2) } else { (2, 3) };
    let (start, end) = (id::start(args.at(start_at))?, id::end(args.at(end_at))?);
    let (mut count, mut at) = (None, 4);
    while at < args.len() {
        if !args.is(at, "COUNT") || at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        count = Some(usize::try_from(args.int(at + 1)?).unwrap_or(0));
        at += 2;
    }
    let mut key = exec.lock(args.at(1))?;
    let Some(stream) = read(exec, key.key())? else {
        exec.reply.put().array(0);
        return Ok(());
    };
    if count == Some(0) {
        exec.reply.put().null_array();
        return Ok(());
    }
    let entries = stream.entries();
    let (from, behind) = (entries.rank(start), entries.rank_behind(end));
    let len = behind.saturating_sub(from).min(count.unwrap_or(usize::MAX));
    exec.reply.put().array(len);
    let source = Between { entries: entries.clone(), from: if reverse { behind } else { from }, reverse };
    drop(key);
    streamed::elements(exec, 0..len, source)
}

/// Entries from a place on, in either direction.
struct Between {
    entries: Entries,
    from: usize,
    reverse: bool,
}

impl Elements for Between {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        let mut writer = reply.put();
        if self.reverse {
            let entries = self.entries.iter_back_from(self.from - ranks.start);
            entries.take(ranks.len()).for_each(|entry| put(&mut writer, &entry));
        } else {
            let entries = self.entries.iter_from(self.from + ranks.start);
            entries.take(ranks.len()).for_each(|entry| put(&mut writer, &entry));
        }
    }
}

/// Replies an entry: its id, and its fields with their values.
pub(super) fn put(writer: &mut Writer<'_>, entry: &StreamEntry<'_>) {
    writer.array(2);
    put_parts(writer, entry);
}

/// As [`put`], without the length, for an array of more.
pub(super) fn put_parts(writer: &mut Writer<'_>, entry: &StreamEntry<'_>) {
    id::put(writer, entry.id);
    writer.array(2 * entry.len());
    for (name, value) in entry.fields() {
        writer.bulk(name);
        writer.bulk(value);
    }
}
