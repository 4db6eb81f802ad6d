//! Hashes: fields with values under one key, some of which expire. What a hash is: `gimmal_store::types::fields`; what the wire says
//! about it: here.
//!
//! A field whose time is past is not there for any command, but is counted by HLEN until it is written again or active expiry takes
//! it out, as in Valkey. Whoever writes it meanwhile tells of `hexpired`.

mod number;
mod random;
mod read;
mod scan;
mod write;

use crate::args::Args;
use crate::arguments::{block, double, integer, key, pattern, string, word};
use crate::command::{Argument, Command, acl, flag::*, key1, keyflag::*};
use crate::exec::{Exec, Key, Stop, WRONG_TYPE};
use crate::notify;
use gimmal_store::types::{FieldsRef, Limits};
use gimmal_store::{Entry, ValueRef};

const KEY: Argument = key("key", 0);
const FIELD: Argument = string("field");
const VALUE: Argument = string("value");
const PAIRS: Argument = block("data", &[FIELD, VALUE]).many();

/// What all commands of the family have in common.
const HASH: Command = Command {
    acl: acl::HASH,
    group: "hash",
    since: "2.0.0",
    complexity: "O(1)",
    keys: &[key1(RO | ACCESS)],
    arguments: &[KEY, FIELD],
    ..Command::DEFAULT
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "hset",
        run: write::hset,
        arity: -4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | UPDATE)],
        complexity: "O(1) for each field",
        summary: "Sets fields of the hash at a key and answers how many are new.",
        arguments: &[KEY, PAIRS],
        history: &[("4.0.0", "Several fields.")],
        ..HASH
    },
    Command {
        name: "hmset",
        run: write::hmset,
        arity: -4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | UPDATE)],
        complexity: "O(N) where N is the number of fields",
        summary: "Sets fields of the hash at a key.",
        arguments: &[KEY, PAIRS],
        deprecated: Some(("4.0.0", "`HSET`, which takes several fields")),
        ..HASH
    },
    Command {
        name: "hsetnx",
        run: write::hsetnx,
        arity: 4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | INSERT)],
        summary: "Sets a field of the hash at a key if it has no such field.",
        arguments: &[KEY, FIELD, VALUE],
        ..HASH
    },
    Command {
        name: "hget",
        run: read::hget,
        arity: 3,
        flags: READONLY | FAST,
        summary: "Answers the value of a field of the hash at a key.",
        ..HASH
    },
    Command {
        name: "hmget",
        run: read::hmget,
        arity: -3,
        flags: READONLY | FAST,
        complexity: "O(N) where N is the number of fields",
        summary: "Answers the values of several fields of the hash at a key.",
        arguments: &[KEY, FIELD.many()],
        ..HASH
    },
    Command {
        name: "hdel",
        run: write::hdel,
        arity: -3,
        flags: WRITE | FAST,
        keys: &[key1(RW | DELETE)],
        complexity: "O(N) where N is the number of fields",
        summary: "Removes fields from the hash at a key, and the key with the last one.",
        arguments: &[KEY, FIELD.many()],
        history: &[("2.4.0", "Several fields.")],
        ..HASH
    },
    Command {
        name: "hlen",
        run: read::hlen,
        arity: 2,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        summary: "Answers how many fields the hash at a key has.",
        arguments: &[KEY],
        ..HASH
    },
    Command {
        name: "hstrlen",
        run: read::hstrlen,
        arity: 3,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        since: "3.2.0",
        summary: "Answers the length of a field's value.",
        ..HASH
    },
    Command {
        name: "hexists",
        run: read::hexists,
        arity: 3,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        summary: "Answers whether the hash at a key has a field.",
        ..HASH
    },
    Command {
        name: "hkeys",
        run: read::hkeys,
        arity: 2,
        flags: READONLY,
        complexity: "O(N) where N is the number of fields",
        summary: "Answers all fields of the hash at a key.",
        arguments: &[KEY],
        tips: &["nondeterministic_output_order"],
        ..HASH
    },
    Command {
        name: "hvals",
        run: read::hvals,
        arity: 2,
        flags: READONLY,
        complexity: "O(N) where N is the number of fields",
        summary: "Answers all values of the hash at a key.",
        arguments: &[KEY],
        tips: &["nondeterministic_output_order"],
        ..HASH
    },
    Command {
        name: "hgetall",
        run: read::hgetall,
        arity: 2,
        flags: READONLY,
        complexity: "O(N) where N is the number of fields",
        summary: "Answers all fields of the hash at a key with their values.",
        arguments: &[KEY],
        tips: &["nondeterministic_output_order"],
        ..HASH
    },
    Command {
        name: "hincrby",
        run: number::hincrby,
        arity: 4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | ACCESS | UPDATE)],
        summary: "Adds an integer to a field of the hash at a key; a missing one counts as 0.",
        arguments: &[KEY, FIELD, integer("increment")],
        ..HASH
    },
    Command {
        name: "hincrbyfloat",
        run: number::hincrbyfloat,
        arity: 4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | ACCESS | UPDATE)],
        since: "2.6.0",
        summary: "Adds a decimal number to a field of the hash at a key; a missing one counts as 0.",
        arguments: &[KEY, FIELD, double("increment")],
        ..HASH
    },
    Command {
        name: "hrandfield",
        run: random::hrandfield,
        arity: -2,
        flags: READONLY,
        since: "6.2.0",
        complexity: "O(N) where N is the number of fields answered",
        summary: "Answers random fields of the hash at a key.",
        arguments: &[
            KEY,
            block("options", &[integer("count"), word("withvalues", "WITHVALUES").optional()]).optional(),
        ],
        tips: &["nondeterministic_output"],
        ..HASH
    },
    Command {
        name: "hscan",
        run: scan::hscan,
        arity: -3,
        flags: READONLY,
        since: "2.8.0",
        complexity: "O(1) for every call, O(N) for a walk over all N fields",
        summary: "Walks over the fields of the hash at a key, some at a time.",
        arguments: &[
            KEY,
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            word("novalues", "NOVALUES").optional(),
        ],
        tips: &["nondeterministic_output"],
        ..HASH
    },
];

/// The hash of an entry, or the error that it is something else.
#[inline]
fn hash_of<'e>(entry: &Entry<'e>) -> Result<FieldsRef<'e>, Stop> {
    match entry.value() {
        ValueRef::Hash(fields) => Ok(fields),
        _ => Err(Stop::Error(WRONG_TYPE)),
    }
}

/// The hash at a key, for a command that reads it.
#[inline]
fn read<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<Option<FieldsRef<'m>>, Stop> {
    exec.read(key).as_ref().map(hash_of).transpose()
}

/// The hash at a key, for a command that is going to change it.
fn peek<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<Option<FieldsRef<'m>>, Stop> {
    exec.peek(key).as_ref().map(hash_of).transpose()
}

/// Up to where a hash is compact.
fn limits(exec: &Exec<'_>) -> Limits {
    let config = &exec.local.config;
    Limits { entries: config.hash_max_listpack_entries(), value: config.hash_max_listpack_value() }
}

/// Records a command of several words as the effect of `changes` changes.
fn effect<'w>(exec: &mut Exec<'_>, key: Key<'_, '_>, changes: usize, words: impl Iterator<Item = &'w [u8]>) {
    let words: Vec<&[u8]> = if exec.local.log_active { words.collect() } else { Vec::new() };
    exec.effect(key, &words);
    exec.changed((changes as u64).saturating_sub(1));
}

/// The arguments from `from` on behind a name and the key, as words of an effect.
fn words<'w>(name: &'static [u8], args: &'w Args<'w>, from: usize) -> impl Iterator<Item = &'w [u8]> {
    [name, args.at(1)].into_iter().chain(args.rest(from))
}

/// Tells that fields were written: the key may be new, and some of them had expired before.
fn tell_of_write(exec: &mut Exec<'_>, key: &[u8], created: bool, past: usize, event: &'static str) {
    if created {
        exec.notify(notify::NEW, "new", key);
    }
    if past > 0 {
        exec.local.stats.expired_fields.add(past as u64);
        exec.notify(notify::HASH, "hexpired", key);
    }
    exec.notify(notify::HASH, event, key);
}
