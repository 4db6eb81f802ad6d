//! OBJECT: how a value is kept.

use crate::args::Args;
use crate::commands::help::help as help_lines;
use crate::config::MaxmemoryPolicy;
use crate::exec::{Exec, Locked, Outcome, ReplyError, error};
use gimmal_store::{CLOCK_LIMIT, Entry, StringRef};

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
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        let references = match entry.value().as_string() {
            Some(StringRef::Int(0..SHARED_INTEGERS)) => SHARED_REFERENCES,
            _ => 1,
        };
        exec.reply.put().integer(references);
    }
    Ok(())
}

pub(super) fn idletime(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (lfu, now) = (is_lfu(exec), exec.local.clock);
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        if lfu {
            return Err(LFU.into());
        }
        exec.reply.put().integer(i64::from(idle_s(now, entry.clock())));
    }
    Ok(())
}

pub(super) fn freq(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let lfu = is_lfu(exec);
    let mut locked = exec.lock(args.at(2))?;
    if let Some(entry) = found(exec, &mut locked) {
        if !lfu {
            return Err(NOT_LFU.into());
        }
        exec.reply.put().integer(i64::from(entry.clock() & 0xff));
    }
    Ok(())
}

/// The key's entry; null is answered if there is none.
fn found<'m>(exec: &mut Exec<'_>, locked: &'m mut Locked<'_>) -> Option<Entry<'m>> {
    let entry = exec.inspect(locked.key());
    if entry.is_none() {
        exec.reply.put().null();
    }
    entry
}

fn is_lfu(exec: &Exec<'_>) -> bool {
    matches!(exec.local.config.maxmemory_policy(), MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu)
}

/// Seconds between two readings of the access clock, which goes round. Another worker's reading may be a little ahead.
fn idle_s(now: u32, then: u32) -> u32 {
    let apart = now.wrapping_sub(then) % CLOCK_LIMIT;
    if apart > CLOCK_LIMIT / 2 { 0 } else { apart }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times_go_round_with_the_clock() {
        assert_eq!(idle_s(100, 90), 10);
        assert_eq!(idle_s(3, CLOCK_LIMIT - 2), 5);
        assert_eq!(idle_s(99, 100), 0);
    }
}
