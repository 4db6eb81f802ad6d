//! Whole databases: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB.
//!
//! A flush takes the tables out of the keyspace behind the closed gate, whatever they hold; `lazyfree.rs` frees them
//! afterwards. ASYNC and SYNC are therefore the same.

use crate::args::Args;
use crate::arguments::{integer, one_of, word};
use crate::command::{Command, acl, flag::*};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::persist::save::points::flushed;
use crate::tx;

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "dbsize",
        run: dbsize,
        arity: 1,
        flags: READONLY | FAST,
        acl: acl::KEYSPACE,
        group: "server",
        complexity: "O(1)",
        summary: "Answers how many keys the database has.",
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        ..Command::DEFAULT
    },
    Command {
        name: "flushdb",
        run: flushdb,
        arity: -1,
        flags: WRITE,
        acl: acl::KEYSPACE | acl::DANGEROUS,
        group: "server",
        complexity: "O(N) where N is the number of keys in the selected database",
        summary: "Empties the database.",
        arguments: &[one_of(
            "flush-type",
            &[word("async", "ASYNC").since("4.0.0"), word("sync", "SYNC").since("6.2.0")],
        )
        .optional()],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        history: &[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")],
        ..Command::DEFAULT
    },
    Command {
        name: "flushall",
        run: flushall,
        arity: -1,
        flags: WRITE,
        acl: acl::KEYSPACE | acl::DANGEROUS,
        group: "server",
        complexity: "O(N) where N is the total number of keys in all databases",
        summary: "Empties every database.",
        arguments: &[one_of(
            "flush-type",
            &[word("async", "ASYNC").since("4.0.0"), word("sync", "SYNC").since("6.2.0")],
        )
        .optional()],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        history: &[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")],
        ..Command::DEFAULT
    },
    Command {
        name: "swapdb",
        run: swapdb,
        arity: 3,
        flags: WRITE | FAST,
        acl: acl::KEYSPACE | acl::DANGEROUS,
        since: "4.0.0",
        group: "server",
        complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases",
        summary: "Exchanges two databases.",
        arguments: &[integer("index1"), integer("index2")],
        ..Command::DEFAULT
    },
];

fn dbsize(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let keys = exec.shared.keyspace.len(exec.batch(), exec.session.db);
    if exec.local.log_active {
        // Whatever write was counted has ended and left its LSN once its shard's lock could be taken.
        for shard in 0..u32::try_from(exec.shared.keyspace.shards()).expect("at most 16384 shards") {
            exec.lock_shard(shard)?;
        }
    }
    exec.reply.put().count(keys);
    Ok(())
}

/// How to free does not matter here, but how it was asked for does.
fn mode(args: &Args<'_>) -> Result<(), ReplyError> {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "async") || args.is(1, "sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

fn flushdb(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    mode(args)?;
    let db = exec.session.db;
    flush(exec, db..db + 1, b"FLUSHDB")
}

fn flushall(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    mode(args)?;
    let all = 0..exec.shared.keyspace.databases();
    flush(exec, all, b"FLUSHALL")
}

fn flush(exec: &mut Exec<'_>, databases: std::ops::Range<usize>, effect: &[u8]) -> Outcome {
    let closed = exec.exclusive()?;
    exec.invalidate_all();
    tx::tell_watchers(exec, |db| databases.contains(&db).then_some(db));
    exec.wake_databases(|db| databases.contains(&db));
    let mut removed = 0;
    for db in databases {
        removed += exec.shared.keyspace.len(exec.batch(), db);
        // It is empty if a snapshot still needs what there was.
        let detached = exec.shared.keyspace.detach_database(exec.batch(), db);
        exec.shared.lazyfree.discard(detached);
    }
    exec.changed(removed as u64);
    // Propagated even if there was nothing, as Redis does: a replica may differ.
    exec.effect_exclusive(&[effect]);
    if effect == b"FLUSHALL" {
        flushed(exec, exec.batch());
    }
    drop(closed);
    exec.reply.put().ok();
    Ok(())
}

fn swapdb(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let index = |i| args.int(i).ok().filter(|number| is_c_int(*number));
    let first = index(1).ok_or("ERR invalid first DB index")?;
    let second = index(2).ok_or("ERR invalid second DB index")?;
    let (a, b) = (database(exec, first)?, database(exec, second)?);
    let closed = exec.exclusive()?;
    tx::tell_watchers(exec, |db| match db {
        _ if a == b => None,
        db if db == a => Some(b),
        db if db == b => Some(a),
        _ => None,
    });
    exec.shared.keyspace.swap_databases(exec.batch(), a, b);
    exec.wake_databases(|db| db == a || db == b);
    exec.effect_exclusive(&[b"SWAPDB", args.at(1), args.at(2)]);
    drop(closed);
    exec.reply.put().ok();
    Ok(())
}

/// A client's number as that of a database. Redis takes it for a C int, and says so.
pub fn database(exec: &Exec<'_>, number: i64) -> Result<usize, ReplyError> {
    if !is_c_int(number) {
        return Err(error("ERR value is out of range, value must between -2147483648 and 2147483647"));
    }
    let there = usize::try_from(number).ok().filter(|db| *db < exec.shared.keyspace.databases());
    there.ok_or(error("ERR DB index is out of range"))
}

fn is_c_int(number: i64) -> bool {
    i32::try_from(number).is_ok()
}
