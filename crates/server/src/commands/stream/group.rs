//! XGROUP, and what of groups is logged.
//!
//! A log or a replica is not told what a consumer read but what came of it, as in Redis: XCLAIM with absolute times makes entries
//! pending, XGROUP SETID says how far the group has read. One XCLAIM names many entries.

use super::id::{self, IdText};
use super::{peek, ready};
use crate::args::Args;
use crate::commands::help::help as help_lines;
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Key, Locked, Outcome, ReplyError, Stop, error};
use crate::notify;
use crate::offload;
use gimmal_store::types::{Consumer, Group, Stream, StreamId, Type};

const NO_KEY: ReplyError = error(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create \
     an empty stream automatically.",
);
const BUSY: ReplyError = error("BUSYGROUP Consumer Group name already exists");

/// Ids in one logged XCLAIM.
const CLAIMED_AT_ONCE: usize = 1000;

/// Whom a command speaks of.
pub(super) struct Spoken<'w> {
    /// The stream's key.
    pub(super) key: &'w [u8],
    /// The group's name.
    pub(super) group: &'w [u8],
    /// The consumer's name.
    pub(super) consumer: &'w [u8],
}

/// A name as an error shows it.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The error that there is no such group.
pub(super) fn no_group(args: &Args<'_>, group: usize, key: usize) -> Stop {
    let (group, key) = (shown(args.at(group)), shown(args.at(key)));
    Stop::Error(format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into())
}

/// The error that there is no such key or group; both follow the command's name.
pub(super) fn no_key_or_group(args: &Args<'_>) -> Stop {
    let (key, group) = (shown(args.at(1)), shown(args.at(2)));
    Stop::Error(format!("NOGROUP No such key '{key}' or consumer group '{group}'").into())
}

/// A consumer was made.
pub(super) fn tell_of_consumer(exec: &mut Exec<'_>, key: Key<'_, '_>, who: &Spoken<'_>) {
    exec.effect_unwatched(key, &[b"XGROUP", b"CREATECONSUMER", who.key, who.group, who.consumer]);
    exec.notify(notify::STREAM, "xgroup-createconsumer", who.key);
}

/// `len` entries became a consumer's, delivered at a time and so many times.
pub(super) fn log_claims(
    exec: &mut Exec<'_>,
    mut key: Key<'_, '_>,
    who: &Spoken<'_>,
    ids: impl Iterator<Item = StreamId>,
    len: usize,
    (delivered_ms, deliveries): (i64, u64),
    last_id: StreamId,
) {
    if !exec.local.log_active {
        exec.effect_unwatched(key, &[]);
        exec.changed((len as u64).saturating_sub(1));
        return;
    }
    let ids: Vec<IdText> = ids.map(IdText::new).collect();
    let (mut time, mut count, last_id) = (itoa::Buffer::new(), itoa::Buffer::new(), IdText::new(last_id));
    let (time, count) = (time.format(delivered_ms).as_bytes(), count.format(deliveries).as_bytes());
    for ids in ids.chunks(CLAIMED_AT_ONCE) {
        let mut words: Vec<&[u8]> = vec![b"XCLAIM", who.key, who.group, who.consumer, b"0"];
        words.extend(ids.iter().map(IdText::bytes));
        words.extend([&b"TIME"[..], time, b"RETRYCOUNT", count, b"FORCE", b"JUSTID", b"LASTID", last_id.bytes()]);
        exec.effect_unwatched(key.again(), &words);
        exec.changed(ids.len() as u64 - 1);
    }
}

/// The group has read up to an id.
pub(super) fn log_last_id(
    exec: &mut Exec<'_>,
    key: Key<'_, '_>,
    who: &Spoken<'_>,
    last_id: StreamId,
    entries_read: Option<u64>,
) {
    let (last_id, mut read) = (IdText::new(last_id), itoa::Buffer::new());
    let read = entries_read.map_or("-1", |entries| read.format(entries)).as_bytes();
    exec.effect_unwatched(key, &[b"XGROUP", b"SETID", who.key, who.group, last_id.bytes(), b"ENTRIESREAD", read]);
}

/// The options behind a group's id.
struct Options {
    make_stream: bool,
    entries_read: Option<u64>,
}

fn options(args: &Args<'_>, creates: bool) -> Result<Options, ReplyError> {
    let (mut options, mut at) = (Options { make_stream: false, entries_read: None }, 5);
    while at < args.len() {
        if creates && args.is(at, "MKSTREAM") {
            options.make_stream = true;
            at += 1;
        } else if args.is(at, "ENTRIESREAD") && at + 1 < args.len() {
            options.entries_read = match args.int(at + 1)? {
                -1 => None,
                entries => {
                    let entries = u64::try_from(entries);
                    Some(entries.map_err(|_| error("ERR value for ENTRIESREAD must be positive or -1"))?)
                }
            };
            at += 2;
        } else {
            return Err(wrong_arguments(args));
        }
    }
    Ok(options)
}

fn words<'w>(args: &'w Args<'w>) -> Vec<&'w [u8]> {
    args.rest(0).collect()
}

pub(super) fn create(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = options(args, true)?;
    let mut key = exec.lock(args.at(2))?;
    let stream = peek(exec, key.key())?;
    if stream.is_none() && !options.make_stream {
        return Err(NO_KEY.into());
    }
    if args.len() > 8 {
        return Err(wrong_arguments(args).into());
    }
    let id = match args.at(4) {
        b"$" => stream.map_or(StreamId::MIN, |stream| stream.last_id()),
        text => id::strict(text, 0)?,
    };
    if stream.is_some_and(|stream| stream.group(args.at(3)).is_some()) {
        return Err(BUSY.into());
    }
    let group = Group::new(id, options.entries_read);
    exec.edit_or_create(key.key(), |stream: &mut Box<Stream>| stream.create_group(args.at(3), group))?;
    ready(exec, key.key(), &words(args), "xgroup-create");
    exec.reply.put().ok();
    Ok(())
}

/// The stream of a subcommand that needs a group, and the group.
fn existing<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>, args: &Args<'_>) -> Result<(&'m Stream, &'m Group), Stop> {
    let stream = peek(exec, key)?.ok_or(Stop::Error(NO_KEY))?;
    let group = stream.group(args.at(3)).ok_or_else(|| no_group(args, 3, 2))?;
    Ok((stream, group))
}

pub(super) fn setid(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = options(args, false)?;
    let mut key = exec.lock(args.at(2))?;
    let (stream, _) = existing(exec, key.key(), args)?;
    if args.len() != 5 && args.len() != 7 {
        return Err(wrong_arguments(args).into());
    }
    let id = match args.at(4) {
        b"$" => stream.last_id(),
        text => id::open(text, 0)?,
    };
    exec.edit(key.key(), |stream: &mut Box<Stream>| {
        stream.edit_group(args.at(3), |group| (group.last_id, group.entries_read) = (id, options.entries_read))
    })?;
    ready(exec, key.key(), &words(args), "xgroup-setid");
    exec.reply.put().ok();
    Ok(())
}

pub(super) fn destroy(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(2))?;
    if peek(exec, key.key())?.is_none() {
        return Err(NO_KEY.into());
    }
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| stream.destroy_group(args.at(3)))?;
    let destroyed = edited.and_then(|edited| edited.result);
    if destroyed.is_some() {
        ready(exec, key.key(), &words(args), "xgroup-destroy");
        exec.wake(&mut key.key(), Type::Stream);
    }
    exec.reply.put().integer(i64::from(destroyed.is_some()));
    Ok(())
}

pub(super) fn createconsumer(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(2))?;
    existing(exec, key.key(), args)?;
    let now_ms = exec.clock_ms();
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| {
        stream.edit_group(args.at(3), |group| group.create_consumer(args.at(4), now_ms))
    })?;
    let created = edited.and_then(|edited| edited.result) == Some(true);
    if created {
        let who = Spoken { key: args.at(2), group: args.at(3), consumer: args.at(4) };
        tell_of_consumer(exec, key.key(), &who);
    }
    exec.reply.put().integer(i64::from(created));
    Ok(())
}

pub(super) fn delconsumer(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(2))?;
    let (stream, group) = existing(exec, key.key(), args)?;
    let pending = group.consumer(args.at(4)).map_or(0, Consumer::pending_len);
    if offload::is_due(exec, pending) {
        let original = Box::new(stream.clone());
        drop(key);
        let command = offload::Command { key: 2, handler: delconsumer };
        return offload::change(exec, args, command, original, remove_consumer, consumer_removed);
    }
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| remove_consumer(stream, args))?;
    consumer_removed(exec, args, key, edited.and_then(|edited| edited.result))
}

/// Removes the consumer that DELCONSUMER names; answers how much it had pending.
fn remove_consumer(stream: &mut Box<Stream>, args: &Args<'_>) -> Option<usize> {
    stream.edit_group(args.at(3), |group| group.remove_consumer(args.at(4))).flatten()
}

fn consumer_removed(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, pending: Option<usize>) -> Outcome {
    if pending.is_some() {
        ready(exec, key.key(), &words(args), "xgroup-delconsumer");
    }
    exec.reply.put().count(pending.unwrap_or(0));
    Ok(())
}

pub(super) fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(
        exec,
        "XGROUP",
        &[
            "CREATE <key> <groupname> <id|$> [option]",
            "    Create a new consumer group. Options are:",
            "    * MKSTREAM",
            "      Create the empty stream if it does not exist.",
            "    * ENTRIESREAD entries_read",
            "      Set the group's entries_read counter (internal use).",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Create a new consumer in the specified group.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Remove the specified consumer.",
            "DESTROY <key> <groupname>",
            "    Remove the specified group.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Set the current group ID and entries_read counter.",
        ],
    )
}
