//! MEMORY: what keys and the whole server take.

use crate::args::Args;
use crate::arguments::{integer, key};
use crate::command::{Command, flag::*, key_at, keyflag::*};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::commands::info::human;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome};
use crate::{alloc, os};

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "memory",
    arity: -2,
    since: "4.0.0",
    group: "server",
    complexity: "Depends on subcommand",
    summary: "Commands about memory.",
    subcommands: &[
        Command {
            name: "usage",
            run: usage,
            arity: -3,
            flags: READONLY,
            keys: &[key_at(2, RO)],
            since: "4.0.0",
            group: "server",
            complexity: "O(N) where N is the number of samples",
            summary: "Answers how many bytes a key and its value take.",
            arguments: &[key("key", 0), integer("count").after("SAMPLES").optional()],
            ..Command::DEFAULT
        },
        Command {
            name: "doctor",
            run: doctor,
            arity: 2,
            since: "4.0.0",
            group: "server",
            complexity: "O(1)",
            summary: "Says what is unusual about the use of memory.",
            tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "stats",
            run: stats,
            arity: 2,
            since: "4.0.0",
            group: "server",
            complexity: "O(1)",
            summary: "Answers what memory is used for.",
            tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "malloc-stats",
            run: malloc_stats,
            arity: 2,
            since: "4.0.0",
            group: "server",
            complexity: "Depends on how much memory is allocated, could be slow",
            summary: "Answers the allocator's own report.",
            tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "purge",
            run: purge,
            arity: 2,
            since: "4.0.0",
            group: "server",
            complexity: "Depends on how much memory is allocated, could be slow",
            summary: "Asks the allocator to give unused memory back.",
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command { run: help, since: "4.0.0", group: "server", ..HELP_ENTRY },
    ],
    ..Command::DEFAULT
}];

/// Bytes of a key's slot in its bucket, beside the entry.
const SLOT_BYTES: usize = 8;

fn usage(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    match args.len() {
        3 => {}
        5 if args.is(3, "samples") && args.int(4)? >= 0 => {}
        _ => return Err(SYNTAX.into()),
    }
    let mut locked = exec.lock(args.at(2))?;
    match exec.peek(locked.key()).map(|entry| entry.memory_bytes() + SLOT_BYTES) {
        Some(bytes) => exec.reply.put().count(bytes),
        None => exec.reply.put().null(),
    }
    Ok(())
}

fn stats(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let shared = exec.shared;
    let dataset = shared.dataset_bytes();
    let used = shared.used_bytes(dataset);
    let peak = shared.rates.peak(used);
    let startup = shared.identity.startup_bytes;
    let rss = os::rss_bytes();
    let keys: usize = (0..shared.keyspace.databases()).map(|db| shared.keyspace.len(exec.batch(), db)).sum();
    let clients = shared.client_bytes.total() as u64;
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let counts = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", clients),
        ("cluster.links", 0),
        ("aof.buffer", shared.log.pending()),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.db.hashtable.lut", keys as u64 * SLOT_BYTES as u64),
        // Segments split at once: a table is never between two sizes.
        ("overhead.db.hashtable.rehashing", 0),
        ("overhead.total", used - dataset),
        ("db.dict.rehashing.count", 0),
        ("keys.count", keys as u64),
        ("keys.bytes-per-key", dataset / (keys as u64).max(1)),
        ("dataset.bytes", dataset),
        ("allocator.allocated", used),
        ("allocator.active", rss),
        ("allocator.resident", rss),
    ];
    let shares = [
        ("dataset.percentage", percent(dataset, used - startup)),
        ("peak.percentage", percent(used, peak)),
        ("fragmentation", rss as f64 / used.max(1) as f64),
    ];
    let mut reply = exec.reply.put();
    reply.map(counts.len() + shares.len());
    for (name, bytes) in counts {
        reply.bulk_str(name);
        reply.integer(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    for (name, share) in shares {
        reply.bulk_str(name);
        reply.double(share);
    }
    Ok(())
}

fn doctor(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    const LITTLE: u64 = 5 << 20;
    let used = exec.shared.used_bytes(exec.shared.dataset_bytes()) - exec.shared.identity.startup_bytes;
    let rss = os::rss_bytes();
    let all = used + exec.shared.identity.startup_bytes;
    let mut text = format!("The data and what waits for clients take {}, the process {}.\n", human(used), human(rss));
    if used < LITTLE {
        text += "There is too little data to judge by.\n";
    } else if rss > all + all / 2 {
        text += "The process takes more than one and a half times what is in use: much was freed lately (MEMORY PURGE \
                 gives it back), or values of many sizes were replaced.\n";
    } else {
        text += "Nothing is unusual.\n";
    }
    exec.reply.put().verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn malloc_stats(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let text = alloc::report();
    exec.reply.put().verbatim(b"txt", text.as_bytes());
    Ok(())
}

/// Each worker has a heap of its own; the others give back what they do not use at their next tick.
fn purge(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    alloc::purge();
    exec.reply.put().ok();
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "DOCTOR",
    "    What is unusual about the use of memory.",
    "MALLOC-STATS",
    "    The allocator's own report.",
    "PURGE",
    "    Give unused memory back.",
    "STATS",
    "    What memory is used for.",
    "USAGE <key> [SAMPLES <count>]",
    "    How many bytes a key and its value take; what is counted is exact, so",
    "    the number of samples does not matter.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "MEMORY", HELP)
}
