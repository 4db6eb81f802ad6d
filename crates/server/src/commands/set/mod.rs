//! Sets: distinct members under one key. What a set is: `gimmal_store::types::set`; what the wire says about it: here.
//!
//! Whole sets are answered, sampled and combined outside of the locks, from their roots.

mod combine;
mod read;
mod write;

use crate::args::{Args, parse_int};
use crate::arguments::{integer, key, pattern, string};
use crate::command::{
    Argument, Begin, Command, Find, KeySpec, Sought, acl, flag::*, key_at, key_range, key1, keyflag::*,
};
use crate::exec::{Exec, Key, Stop, WRONG_TYPE};
use gimmal_store::types::{SetLimits, SetRef};
use gimmal_store::{Entry, ValueRef};

const KEY: Argument = key("key", 0);
const MEMBER: Argument = string("member");
const DESTINATION: Argument = key("destination", 0);
const SOURCES: Argument = key("key", 1).many();

/// What all commands of the family have in common.
const SET: Command = Command {
    acl: acl::SET,
    group: "set",
    complexity: "O(1)",
    keys: &[key1(RO | ACCESS)],
    arguments: &[KEY, MEMBER],
    ..Command::DEFAULT
};

/// What the commands have in common that answer a combination of sets.
const COMBINE: Command = Command {
    arity: -2,
    flags: READONLY,
    keys: &[key_range(1, -1, 1, RO | ACCESS)],
    complexity: "O(N) where N is the number of members of all sets",
    arguments: &[KEY.many()],
    tips: &["nondeterministic_output_order"],
    ..SET
};

/// What the commands have in common that store one.
const STORE: Command = Command {
    arity: -3,
    flags: WRITE | DENYOOM,
    keys: &[key1(OW | UPDATE), key_range(2, -1, 1, RO | ACCESS)],
    arguments: &[DESTINATION, SOURCES],
    tips: &[],
    ..COMBINE
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "sadd",
        run: write::sadd,
        sought: Some(Sought::from(2)),
        arity: -3,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | INSERT)],
        complexity: "O(1) for each member",
        summary: "Adds members to the set at a key and answers how many are new.",
        arguments: &[KEY, MEMBER.many()],
        history: &[("2.4.0", "Several members.")],
        ..SET
    },
    Command {
        name: "srem",
        run: write::srem,
        sought: Some(Sought::from(2)),
        arity: -3,
        flags: WRITE | FAST,
        keys: &[key1(RW | DELETE)],
        complexity: "O(N) where N is the number of members",
        summary: "Removes members from the set at a key, and the key with the last one.",
        arguments: &[KEY, MEMBER.many()],
        history: &[("2.4.0", "Several members.")],
        ..SET
    },
    Command {
        name: "sismember",
        run: read::sismember,
        sought: Some(Sought::from(2)),
        arity: 3,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        summary: "Answers whether the set at a key has a member.",
        ..SET
    },
    Command {
        name: "smismember",
        run: read::smismember,
        sought: Some(Sought::from(2)),
        arity: -3,
        flags: READONLY | FAST,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members",
        summary: "Answers which of several members the set at a key has.",
        arguments: &[KEY, MEMBER.many()],
        ..SET
    },
    Command {
        name: "smembers",
        run: read::smembers,
        arity: 2,
        flags: READONLY,
        complexity: "O(N) where N is the number of members",
        summary: "Answers all members of the set at a key.",
        arguments: &[KEY],
        tips: &["nondeterministic_output_order"],
        ..SET
    },
    Command {
        name: "scard",
        run: read::scard,
        arity: 2,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        summary: "Answers how many members the set at a key has.",
        arguments: &[KEY],
        ..SET
    },
    Command {
        name: "spop",
        run: write::spop,
        arity: -2,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | DELETE)],
        complexity: "O(N) where N is the number of members removed",
        summary: "Removes random members from the set at a key and answers them.",
        arguments: &[KEY, integer("count").optional().since("3.2.0")],
        tips: &["nondeterministic_output"],
        history: &[("3.2.0", "A count.")],
        ..SET
    },
    Command {
        name: "srandmember",
        run: read::srandmember,
        arity: -2,
        flags: READONLY,
        complexity: "O(N) where N is the number of members answered",
        summary: "Answers random members of the set at a key.",
        arguments: &[KEY, integer("count").optional().since("2.6.0")],
        tips: &["nondeterministic_output"],
        history: &[("2.6.0", "A count.")],
        ..SET
    },
    Command {
        name: "smove",
        run: write::smove,
        arity: 4,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | DELETE), key_at(2, RW | INSERT)],
        summary: "Moves a member from one set to another.",
        arguments: &[key("source", 0), key("destination", 1), MEMBER],
        ..SET
    },
    Command {
        name: "sinter",
        run: combine::sinter,
        summary: "Answers the members that all of several sets have.",
        ..COMBINE
    },
    Command {
        name: "sunion",
        run: combine::sunion,
        summary: "Answers the members that any of several sets has.",
        ..COMBINE
    },
    Command {
        name: "sdiff",
        run: combine::sdiff,
        summary: "Answers the members of one set that none of several others has.",
        ..COMBINE
    },
    Command {
        name: "sinterstore",
        run: combine::sinterstore,
        summary: "Stores the members that all of several sets have.",
        ..STORE
    },
    Command {
        name: "sunionstore",
        run: combine::sunionstore,
        summary: "Stores the members that any of several sets has.",
        ..STORE
    },
    Command {
        name: "sdiffstore",
        run: combine::sdiffstore,
        summary: "Stores the members of one set that none of several others has.",
        ..STORE
    },
    Command {
        name: "sintercard",
        run: combine::sintercard,
        arity: -3,
        keys: &[KeySpec {
            flags: RO | ACCESS,
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
            notes: "",
        }],
        keys_fn: Some(keys_of_sintercard),
        since: "7.0.0",
        summary: "Answers how many members all of several sets have.",
        arguments: &[integer("numkeys"), KEY.many(), integer("limit").after("LIMIT").optional()],
        tips: &[],
        ..COMBINE
    },
    Command {
        name: "sscan",
        run: read::sscan,
        arity: -3,
        flags: READONLY,
        since: "2.8.0",
        complexity: "O(1) for every call, O(N) for a walk over all N members",
        summary: "Walks over the members of the set at a key, some at a time.",
        arguments: &[
            KEY,
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
        ],
        tips: &["nondeterministic_output"],
        ..SET
    },
];

/// The keys behind a number of keys.
fn keys_of_sintercard(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    let count = usize::try_from(parse_int(args.at(1))?).ok().filter(|count| (1..=args.len() - 2).contains(count))?;
    Some((2..2 + count).map(|at| (at, RO | ACCESS)).collect())
}

/// The set of an entry, or the error that it is something else.
#[inline]
fn set_of<'e>(entry: &Entry<'e>) -> Result<SetRef<'e>, Stop> {
    match entry.value() {
        ValueRef::Set(set) => Ok(set),
        _ => Err(Stop::Error(WRONG_TYPE)),
    }
}

/// The set at a key, for a command that reads it.
#[inline]
fn read<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<Option<SetRef<'m>>, Stop> {
    exec.read(key).as_ref().map(set_of).transpose()
}

/// The set at a key, for a command that is going to change it.
fn peek<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<Option<SetRef<'m>>, Stop> {
    exec.peek(key).as_ref().map(set_of).transpose()
}

/// Up to where a set is compact.
fn limits(exec: &Exec<'_>) -> SetLimits {
    let config = &exec.local.config;
    SetLimits {
        integers: config.set_max_intset_entries(),
        entries: config.set_max_listpack_entries(),
        value: config.set_max_listpack_value(),
    }
}

/// Records a command of several words as the effect of `changes` changes.
fn effect<'w>(exec: &mut Exec<'_>, key: Key<'_, '_>, changes: usize, words: impl Iterator<Item = &'w [u8]>) {
    let words: Vec<&[u8]> = if exec.local.log_active { words.collect() } else { Vec::new() };
    exec.effect(key, &words);
    exec.changed((changes as u64).saturating_sub(1));
}
