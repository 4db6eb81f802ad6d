//! OBJECT: how a value is kept.

use crate::args::Args;
use crate::commands::help::help as help_lines;
use crate::exec::{Exec, Locked, Outcome, ReplyError, error};
use gimmal_store::{Entry, StringRef};

const NOT_LFU: ReplyError = error(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
     policies at runtime LRU and LFU data will take some time to adjust.",
);
const LFU: ReplyError = error(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at \
     runtime LRU and LFU data will take some time to adjust.",
);

/// Integers below this are shared by all keys in Redis, and said to have this many references.
const SHARED_INTEGERS: i64 = 10_000;
const SHARED_REFERENCES: i64 = i32::MAX as i64;

const HELP: &[&str] = &[
    "ENCODING <key>",
    "    Answers the name of the encoding in which the value at <key> is kept.",
    "FREQ <key>",
    "    Answers how often <key> was used of late: a counter that grows with the",
    "    logarithm of the accesses. Only with an LFU maxmemory policy.",
    "IDLETIME <key>",
    "    Answers the seconds since <key> was last used. Not with an LFU maxmemory",
    "    policy.",
    "REFCOUNT <key>",
    "    Answers how many references there are to the value at <key>.",
];

pub(super) fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "OBJECT", HELP)
}

pub(super) fn encoding(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        exec.reply.put().bulk_str(entry.encoding().name());
    }
    Ok(())
}

pub(super) fn refcount(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let shares = !exec.local.evictor.reads_clocks();
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        let references = match entry.value().as_string() {
            Some(StringRef::Int(0..SHARED_INTEGERS)) if shares => SHARED_REFERENCES,
            _ => 1,
        };
        exec.reply.put().integer(references);
    }
    Ok(())
}

pub(super) fn idletime(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let clock = exec.local.access;
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        if clock.is_lfu() {
            return Err(LFU.into());
        }
        exec.reply.put().integer(i64::from(clock.idle_s(entry.clock())));
    }
    Ok(())
}

pub(super) fn freq(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let clock = exec.local.access;
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        if !clock.is_lfu() {
            return Err(NOT_LFU.into());
        }
        exec.reply.put().integer(i64::from(clock.frequency(entry.clock())));
    }
    Ok(())
}

/// The key's entry; null is answered if there is none.
fn found<'m>(exec: &mut Exec<'_>, locked: &'m mut Locked<'_>) -> Option<Entry<'m>> {
    // A hit or a miss, but as in Redis no event.
    let entry = exec.peek(locked.key());
    let stats = &exec.local.stats;
    let counter = if entry.is_some() { &stats.keyspace_hits } else { &stats.keyspace_misses };
    counter.add(1);
    if entry.is_none() {
        exec.reply.put().null();
    }
    entry
}
