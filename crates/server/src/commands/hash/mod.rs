//! Hashes: fields with values under one key, some of which expire. What a hash is: `gimmal_store::types::fields`; what the wire says
//! about it: here.
//!
//! A field whose time is past is not there for any command, but is counted by HLEN until it is written again or active expiry takes
//! it out, as in Valkey. Whoever writes it meanwhile tells of `hexpired`.

mod exchange;
mod expire;
mod number;
mod random;
mod read;
mod scan;
mod write;

use crate::args::Args;
use crate::arguments::{block, double, integer, key, one_of, pattern, string, unix_time, word};
use crate::command::{Argument, Command, Sought, acl, flag::*, key1, keyflag::*};
use crate::exec::{Exec, Key, ReplyError, Stop, WRONG_TYPE, error};
use crate::notify;
use gimmal_store::types::{FieldsRef, Limits};
use gimmal_store::{Entry, ValueRef};

const KEY: Argument = key("key", 0);
const FIELD: Argument = string("field");
const VALUE: Argument = string("value");
const PAIRS: Argument = block("data", &[FIELD, VALUE]).many();

const FIELDS: Argument = block("fields", &[integer("numfields"), FIELD.many()]).after("FIELDS");
const CONDITION: Argument =
    one_of("condition", &[word("nx", "NX"), word("xx", "XX"), word("gt", "GT"), word("lt", "LT")]).optional();
const EX: Argument = integer("seconds").after("EX");
const PX: Argument = integer("milliseconds").after("PX");
const EXAT: Argument = unix_time("unix-time-seconds").after("EXAT");
const PXAT: Argument = unix_time("unix-time-milliseconds").after("PXAT");

const NUMFIELDS: ReplyError = error("ERR numfields should be greater than 0 and match the provided number of fields");

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

/// What the commands have in common that look at deadlines of fields.
const TTL: Command = Command {
    arity: -5,
    flags: READONLY | FAST,
    since: "9.0.0",
    complexity: "O(N) where N is the number of fields",
    arguments: &[KEY, FIELDS],
    ..HASH
};

/// What the commands have in common that set them.
const EXPIRE: Command = Command { arity: -6, flags: WRITE | FAST, keys: &[key1(RW | UPDATE)], ..TTL };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "hset",
        run: write::hset,
        sought: Some(Sought::pairs(2)),
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
        sought: Some(Sought::pairs(2)),
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
        sought: Some(Sought::at(2)),
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
        sought: Some(Sought::at(2)),
        arity: 3,
        flags: READONLY | FAST,
        summary: "Answers the value of a field of the hash at a key.",
        ..HASH
    },
    Command {
        name: "hmget",
        run: read::hmget,
        sought: Some(Sought::from(2)),
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
        sought: Some(Sought::from(2)),
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
        sought: Some(Sought::at(2)),
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
        sought: Some(Sought::at(2)),
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
        sought: Some(Sought::at(2)),
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
        sought: Some(Sought::at(2)),
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
    Command {
        name: "hexpire",
        run: expire::hexpire,
        summary: "Gives fields of the hash at a key a time to live in seconds.",
        arguments: &[KEY, integer("seconds"), CONDITION, FIELDS],
        ..EXPIRE
    },
    Command {
        name: "hpexpire",
        run: expire::hpexpire,
        summary: "Gives fields of the hash at a key a time to live in milliseconds.",
        arguments: &[KEY, integer("milliseconds"), CONDITION, FIELDS],
        ..EXPIRE
    },
    Command {
        name: "hexpireat",
        run: expire::hexpireat,
        summary: "Gives fields of the hash at a key a time of expiry, in seconds since the epoch.",
        arguments: &[KEY, unix_time("unix-time-seconds"), CONDITION, FIELDS],
        ..EXPIRE
    },
    Command {
        name: "hpexpireat",
        run: expire::hpexpireat,
        summary: "Gives fields of the hash at a key a time of expiry, in milliseconds since the epoch.",
        arguments: &[KEY, unix_time("unix-time-milliseconds"), CONDITION, FIELDS],
        ..EXPIRE
    },
    Command {
        name: "httl",
        run: expire::httl,
        summary: "Answers how many seconds fields of the hash at a key have to live.",
        ..TTL
    },
    Command {
        name: "hpttl",
        run: expire::hpttl,
        summary: "Answers how many milliseconds fields of the hash at a key have to live.",
        ..TTL
    },
    Command {
        name: "hexpiretime",
        run: expire::hexpiretime,
        summary: "Answers when fields of the hash at a key expire, in seconds since the epoch.",
        ..TTL
    },
    Command {
        name: "hpexpiretime",
        run: expire::hpexpiretime,
        summary: "Answers when fields of the hash at a key expire, in milliseconds since the epoch.",
        ..TTL
    },
    Command {
        name: "hpersist",
        run: expire::hpersist,
        arity: -5,
        summary: "Lets fields of the hash at a key live for ever.",
        ..EXPIRE
    },
    Command {
        name: "hgetex",
        run: exchange::hgetex,
        arity: -5,
        keys: &[key1(RW | ACCESS)],
        summary: "Answers the values of fields and sets or removes their time to live.",
        arguments: &[KEY, one_of("expiration", &[EX, PX, EXAT, PXAT, word("persist", "PERSIST")]).optional(), FIELDS],
        ..EXPIRE
    },
    Command {
        name: "hsetex",
        run: exchange::hsetex,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | INSERT)],
        summary: "Sets fields of the hash at a key, with a time to live.",
        arguments: &[
            KEY,
            one_of("key-condition", &[word("nx", "NX"), word("xx", "XX")]).optional(),
            one_of("fields-condition", &[word("fnx", "FNX"), word("fxx", "FXX")]).optional(),
            one_of("expiration", &[EX, PX, EXAT, PXAT, word("keepttl", "KEEPTTL")]).optional(),
            block("fields", &[integer("numfields"), PAIRS]).after("FIELDS"),
        ],
        ..EXPIRE
    },
    Command {
        name: "hgetdel",
        run: exchange::hgetdel,
        arity: -5,
        keys: &[key1(RW | ACCESS | DELETE)],
        since: "9.1.0",
        summary: "Answers the values of fields and removes these.",
        arguments: &[KEY, FIELDS],
        ..EXPIRE
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

/// Argument `at` as the number of fields that follow and end the command, each of so many words; where they begin.
fn fields_from(args: &Args<'_>, at: usize, words: usize, wrong_count: ReplyError) -> Result<usize, ReplyError> {
    let count = usize::try_from(args.int(at)?).ok().filter(|count| *count > 0).and_then(|n| n.checked_mul(words));
    if count == Some(args.len() - at - 1) { Ok(at + 1) } else { Err(wrong_count) }
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

/// Tells that fields were written, some of which had expired before.
fn tell_of_write(exec: &mut Exec<'_>, key: &[u8], past: usize, event: &'static str) {
    if past > 0 {
        exec.local.stats.expired_fields.add(past as u64);
        exec.notify(notify::HASH, "hexpired", key);
    }
    exec.notify(notify::HASH, event, key);
}
