//! XINFO.

use super::group::no_group;
use super::{id, range, stream_of};
use crate::args::Args;
use crate::commands::help::help as help_lines;
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Key, Outcome, Stop};
use crate::offload;
use gimmal_resp::Writer;
use gimmal_store::types::{Group, Stream, StreamId};

/// Entries and pending entries that XINFO STREAM FULL shows if it is not told how many.
const FULL_COUNT: usize = 10;
/// Entries of a node of Redis, as its default configuration has it: what its counts of nodes are made up from.
const NODE_ENTRIES: usize = 100;

fn existing<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<&'m Stream, Stop> {
    let entry = exec.read(key).ok_or(Stop::from("ERR no such key"))?;
    stream_of(&entry)
}

pub(super) fn stream(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(2))?;
    let stream = existing(exec, key.key())?;
    let count = match args.len() {
        3 => None,
        4 if args.is(3, "FULL") => Some(FULL_COUNT),
        6 if args.is(3, "FULL") && args.is(4, "COUNT") => match usize::try_from(args.int(5)?).unwrap_or(FULL_COUNT) {
            // As in Redis, none are all.
            0 => Some(usize::MAX),
            count => Some(count),
        },
        _ => return Err(wrong_arguments(args).into()),
    };
    let pending: usize = stream.groups().map(|(_, group)| group.pending_len()).sum();
    let shown = count.map_or(0, |count| (stream.len() + 2 * pending).min(count));
    if offload::is_due(exec, shown) {
        let stream = stream.clone();
        drop(key);
        return offload::write(exec, args, move |_, reply| describe(&mut reply.put(), &stream, count));
    }
    describe(&mut exec.reply.put(), stream, count);
    Ok(())
}

/// All about a stream; with so many entries and pending entries, or, without a count, with its first and last entry.
fn describe(writer: &mut Writer<'_>, stream: &Stream, count: Option<usize>) {
    writer.map(if count.is_some() { 9 } else { 10 });
    let nodes = stream.len().div_ceil(NODE_ENTRIES);
    for (name, number) in [("length", stream.len()), ("radix-tree-keys", nodes), ("radix-tree-nodes", nodes + 1)] {
        writer.bulk_str(name);
        writer.count(number);
    }
    named_id(writer, "last-generated-id", stream.last_id());
    named_id(writer, "max-deleted-entry-id", stream.max_deleted_id());
    writer.bulk_str("entries-added");
    writer.integer(stream.entries_added().cast_signed());
    named_id(writer, "recorded-first-entry-id", stream.first_id());
    match count {
        None => ends(writer, stream),
        Some(count) => full(writer, stream, count),
    }
}

fn named_id(writer: &mut Writer<'_>, name: &str, id: StreamId) {
    writer.bulk_str(name);
    id::put(writer, id);
}

fn ends(writer: &mut Writer<'_>, stream: &Stream) {
    writer.bulk_str("groups");
    writer.count(stream.groups_len());
    let entries = stream.entries();
    for (name, entry) in
        [("first-entry", entries.iter_from(0).next()), ("last-entry", entries.iter_back_from(usize::MAX).next())]
    {
        writer.bulk_str(name);
        match entry {
            Some(entry) => range::put(writer, &entry),
            None => writer.null(),
        }
    }
}

fn full(writer: &mut Writer<'_>, stream: &Stream, count: usize) {
    writer.bulk_str("entries");
    writer.array(stream.len().min(count));
    stream.entries().iter_from(0).take(count).for_each(|entry| range::put(writer, &entry));
    writer.bulk_str("groups");
    writer.array(stream.groups_len());
    for (name, group) in stream.groups() {
        writer.map(7);
        writer.bulk_str("name");
        writer.bulk(name);
        progress(writer, stream, group);
        writer.bulk_str("pel-count");
        writer.count(group.pending_len());
        writer.bulk_str("pending");
        writer.array(group.pending_len().min(count));
        for one in group.pending_from(StreamId::MIN).take(count) {
            writer.array(4);
            id::put(writer, one.id);
            writer.bulk(group.owner(&one).name());
            writer.integer(one.delivered_ms);
            writer.integer(one.deliveries.cast_signed());
        }
        writer.bulk_str("consumers");
        writer.array(group.consumers_len());
        for consumer in group.consumers() {
            writer.map(5);
            writer.bulk_str("name");
            writer.bulk(consumer.name());
            writer.bulk_str("seen-time");
            writer.integer(consumer.seen_ms);
            writer.bulk_str("active-time");
            writer.integer(consumer.active_ms);
            writer.bulk_str("pel-count");
            writer.count(consumer.pending_len());
            writer.bulk_str("pending");
            writer.array(consumer.pending_len().min(count));
            for one in group.pending_of(consumer, StreamId::MIN).take(count) {
                writer.array(3);
                id::put(writer, one.id);
                writer.integer(one.delivered_ms);
                writer.integer(one.deliveries.cast_signed());
            }
        }
    }
}

/// How far a group has read, and how much is left.
fn progress(writer: &mut Writer<'_>, stream: &Stream, group: &Group) {
    named_id(writer, "last-delivered-id", group.last_id);
    let read = group.entries_read.map(u64::cast_signed);
    for (name, number) in [("entries-read", read), ("lag", stream.lag(group))] {
        writer.bulk_str(name);
        match number {
            Some(number) => writer.integer(number),
            None => writer.null(),
        }
    }
}

pub(super) fn groups(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(2))?;
    let stream = existing(exec, key.key())?;
    let mut writer = exec.reply.put();
    writer.array(stream.groups_len());
    for (name, group) in stream.groups() {
        writer.map(6);
        writer.bulk_str("name");
        writer.bulk(name);
        writer.bulk_str("consumers");
        writer.count(group.consumers_len());
        writer.bulk_str("pending");
        writer.count(group.pending_len());
        progress(&mut writer, stream, group);
    }
    Ok(())
}

pub(super) fn consumers(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(2))?;
    let group = existing(exec, key.key())?.group(args.at(3)).ok_or_else(|| no_group(args, 3, 2))?;
    let now_ms = exec.now_ms();
    let mut writer = exec.reply.put();
    writer.array(group.consumers_len());
    for consumer in group.consumers() {
        writer.map(4);
        writer.bulk_str("name");
        writer.bulk(consumer.name());
        writer.bulk_str("pending");
        writer.count(consumer.pending_len());
        writer.bulk_str("idle");
        writer.integer(now_ms.saturating_sub(consumer.seen_ms).max(0));
        writer.bulk_str("inactive");
        let active_ms = Some(consumer.active_ms).filter(|at_ms| *at_ms != -1);
        writer.integer(active_ms.map_or(-1, |at_ms| now_ms.saturating_sub(at_ms)));
    }
    Ok(())
}

pub(super) fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(
        exec,
        "XINFO",
        &[
            "CONSUMERS <key> <groupname>",
            "    Show consumers of <groupname>.",
            "GROUPS <key>",
            "    Show the stream consumer groups.",
            "STREAM <key> [FULL [COUNT <count>]",
            "    Show information about the stream.",
        ],
    )
}
