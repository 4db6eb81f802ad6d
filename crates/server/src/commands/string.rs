//! Strings: GET, SET and their kin. What a string is: `gimmal_store`; what the wire says about it: here.

use crate::args::{Args, parse_int};
use crate::command::{Argument, Command, acl, flag::*, key_range, key1, keyflag::*};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, Outcome, ReplyError, Stop, error};
use crate::worker::value_arg;
use gimmal_store::{NewValue, ValueRef};

const KEY: Argument = Argument { name: "key", kind: "key", key_spec: Some(0), ..Argument::DEFAULT };
const VALUE: Argument = Argument { name: "value", ..Argument::DEFAULT };
const INCREMENT: Argument = Argument { name: "increment", kind: "integer", ..Argument::DEFAULT };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "get",
        run: get,
        arity: 2,
        flags: READONLY | FAST,
        acl: acl::STRING,
        keys: &[key1(RO | ACCESS)],
        group: "string",
        complexity: "O(1)",
        summary: "Answers the string at a key.",
        arguments: &[KEY],
        ..Command::DEFAULT
    },
    Command {
        name: "set",
        run: set,
        arity: -3,
        flags: WRITE | DENYOOM,
        acl: acl::STRING,
        keys: &[key1(RW | ACCESS | UPDATE | VARIABLE_FLAGS)],
        group: "string",
        complexity: "O(1)",
        summary: "Stores a string at a key, whatever was there before.",
        arguments: &[
            KEY,
            VALUE,
            Argument {
                name: "condition",
                kind: "oneof",
                flags: Argument::OPTIONAL,
                since: "2.6.12",
                parts: &[
                    Argument { name: "nx", kind: "pure-token", token: "NX", ..Argument::DEFAULT },
                    Argument { name: "xx", kind: "pure-token", token: "XX", ..Argument::DEFAULT },
                ],
                ..Argument::DEFAULT
            },
            Argument {
                name: "get",
                kind: "pure-token",
                token: "GET",
                flags: Argument::OPTIONAL,
                since: "6.2.0",
                ..Argument::DEFAULT
            },
            Argument {
                name: "expiration",
                kind: "oneof",
                flags: Argument::OPTIONAL,
                parts: &[
                    Argument { name: "seconds", kind: "integer", token: "EX", since: "2.6.12", ..Argument::DEFAULT },
                    Argument {
                        name: "milliseconds",
                        kind: "integer",
                        token: "PX",
                        since: "2.6.12",
                        ..Argument::DEFAULT
                    },
                    Argument {
                        name: "unix-time-seconds",
                        kind: "unix-time",
                        token: "EXAT",
                        since: "6.2.0",
                        ..Argument::DEFAULT
                    },
                    Argument {
                        name: "unix-time-milliseconds",
                        kind: "unix-time",
                        token: "PXAT",
                        since: "6.2.0",
                        ..Argument::DEFAULT
                    },
                    Argument {
                        name: "keepttl",
                        kind: "pure-token",
                        token: "KEEPTTL",
                        since: "6.0.0",
                        ..Argument::DEFAULT
                    },
                ],
                ..Argument::DEFAULT
            },
        ],
        ..Command::DEFAULT
    },
    Command {
        name: "incrby",
        run: incrby,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        acl: acl::STRING,
        keys: &[key1(RW | ACCESS | UPDATE)],
        group: "string",
        complexity: "O(1)",
        summary: "Adds to the integer at a key; a missing key counts as 0.",
        arguments: &[KEY, INCREMENT],
        ..Command::DEFAULT
    },
    Command {
        name: "mget",
        run: mget,
        arity: -2,
        flags: READONLY | FAST,
        acl: acl::STRING,
        keys: &[key_range(1, -1, 1, RO | ACCESS)],
        group: "string",
        complexity: "O(N) where N is the number of keys",
        summary: "Answers the strings at several keys.",
        arguments: &[Argument { flags: Argument::MULTIPLE, ..KEY }],
        tips: &["request_policy:multi_shard"],
        ..Command::DEFAULT
    },
    Command {
        name: "mset",
        run: mset,
        arity: -3,
        flags: WRITE | DENYOOM,
        acl: acl::STRING,
        keys: &[key_range(1, -1, 2, OW | UPDATE)],
        since: "1.0.1",
        group: "string",
        complexity: "O(N) where N is the number of keys",
        summary: "Stores strings at several keys at once.",
        arguments: &[Argument {
            name: "data",
            kind: "block",
            flags: Argument::MULTIPLE,
            parts: &[KEY, VALUE],
            ..Argument::DEFAULT
        }],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        ..Command::DEFAULT
    },
];

/// The value is of another type than the command works on.
pub const WRONG_TYPE: ReplyError = error("WRONGTYPE Operation against a key holding the wrong kind of value");
const NOT_AN_INTEGER: ReplyError = error("ERR value is not an integer or out of range");
const OVERFLOW: ReplyError = error("ERR increment or decrement would overflow");

fn get(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    match exec.read(key.key()) {
        Some(entry) => exec.reply.string(entry.value()),
        None => exec.reply.put().null(),
    }
    Ok(())
}

/// What SET and its kin were asked, parsed before any lock.
#[derive(Default)]
struct SetOptions {
    only_if_missing: bool,
    only_if_there: bool,
    answer_old: bool,
    keep_ttl: bool,
    expire_at_ms: Option<i64>,
}

impl SetOptions {
    #[inline]
    fn parse(args: &Args<'_>, from: usize, now_ms: i64) -> Result<SetOptions, ReplyError> {
        let mut options = SetOptions::default();
        let mut i = from;
        while i < args.len() {
            let timed = options.expire_at_ms.is_some() || options.keep_ttl;
            if args.is(i, "nx") && !options.only_if_there {
                options.only_if_missing = true;
            } else if args.is(i, "xx") && !options.only_if_missing {
                options.only_if_there = true;
            } else if args.is(i, "get") {
                options.answer_old = true;
            } else if args.is(i, "keepttl") && options.expire_at_ms.is_none() {
                options.keep_ttl = true;
            } else if let (Some(unit), false, true) = (ExpireUnit::named(args, i), timed, i + 1 < args.len()) {
                options.expire_at_ms = Some(deadline(args.int(i + 1)?, unit, now_ms, "set")?);
                i += 1;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        Ok(options)
    }
}

/// How a time to live was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ExpireUnit {
    /// From now on, in units of so many ms.
    In {
        /// Milliseconds of one unit.
        ms: i64,
    },
    /// Since the epoch, in units of so many ms.
    At {
        /// Milliseconds of one unit.
        ms: i64,
    },
}

impl ExpireUnit {
    /// The unit that argument `i` names, if it does.
    pub fn named(args: &Args<'_>, i: usize) -> Option<ExpireUnit> {
        [
            ("ex", ExpireUnit::In { ms: 1000 }),
            ("px", ExpireUnit::In { ms: 1 }),
            ("exat", ExpireUnit::At { ms: 1000 }),
            ("pxat", ExpireUnit::At { ms: 1 }),
        ]
        .into_iter()
        .find_map(|(word, unit)| args.is(i, word).then_some(unit))
    }
}

/// A positive time to live or point in time as a deadline in ms.
pub fn deadline(n: i64, unit: ExpireUnit, now_ms: i64, command: &str) -> Result<i64, ReplyError> {
    let at = match unit {
        _ if n <= 0 => None,
        ExpireUnit::In { ms } => n.checked_mul(ms).and_then(|n| n.checked_add(now_ms)),
        ExpireUnit::At { ms } => n.checked_mul(ms),
    };
    at.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

fn set(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = SetOptions::parse(args, 3, exec.now_ms())?;
    let mut locked = exec.lock(args.at(1))?;
    let mut expire_at_ms = options.expire_at_ms;
    if options.only_if_missing || options.only_if_there || options.answer_old || options.keep_ttl {
        let old = exec.read(locked.key());
        let there = old.is_some();
        if options.keep_ttl {
            expire_at_ms = old.as_ref().and_then(|entry| entry.expire_at_ms());
        }
        if options.answer_old {
            answer(exec, old.map(|entry| entry.value()));
        }
        if (options.only_if_missing && there) || (options.only_if_there && !there) {
            if !options.answer_old {
                exec.reply.put().null();
            }
            return Ok(());
        }
    }
    store(exec, locked.key(), args.value(2), expire_at_ms);
    if !options.answer_old {
        exec.reply.put().ok();
    }
    Ok(())
}

/// Stores a string and logs it as Redis propagates it: with an absolute deadline.
#[inline]
fn store(exec: &mut Exec<'_>, mut key: Key<'_, '_>, value: NewValue<'_>, expire_at_ms: Option<i64>) {
    let name = key.name();
    match expire_at_ms {
        None => exec.effect_value(key.again(), &[b"SET", name], &value, &[]),
        Some(at) => {
            let mut text = itoa::Buffer::new();
            let at = text.format(at).as_bytes();
            exec.effect_value(key.again(), &[b"SET", name], &value, &[b"PXAT", at]);
        }
    }
    // A large old value is dropped here: its extents are few and freeing them is O(extents).
    let _old = exec.put(key, value, expire_at_ms);
}

/// A string or null.
fn answer(exec: &mut Exec<'_>, value: Option<ValueRef<'_>>) {
    match value {
        Some(value) => exec.reply.string(value),
        None => exec.reply.put().null(),
    }
}

fn incrby(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let by = args.int(2)?;
    add(exec, args, by)
}

/// Adds to the integer at argument 1; the deadline stays.
fn add(exec: &mut Exec<'_>, args: &Args<'_>, by: i64) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let old = match exec.peek(locked.key()).map(|entry| integer(entry.value())) {
        None => None,
        Some(value) => Some(value?),
    };
    let sum = old.unwrap_or(0).checked_add(by).ok_or(OVERFLOW)?;
    match old {
        Some(_) => exec.write(locked.key()).expect("it was just read").set_int(sum),
        None => drop(exec.put(locked.key(), NewValue::Int(sum), None)),
    }
    let mut text = itoa::Buffer::new();
    exec.effect(locked.key(), &[b"INCRBY", args.at(1), text.format(by).as_bytes()]);
    exec.reply.put().integer(sum);
    Ok(())
}

/// A stored string as an integer.
fn integer(value: ValueRef<'_>) -> Result<i64, Stop> {
    match value {
        ValueRef::Int(n) => Ok(n),
        ValueRef::Bytes(bytes) => parse_int(bytes).ok_or(NOT_AN_INTEGER.into()),
        ValueRef::Rope(_) => Err(NOT_AN_INTEGER.into()),
    }
}

fn mget(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = exec.lock_all(args.rest(1))?;
    exec.reply.put().array(keys.len());
    for i in 0..keys.len() {
        let value = exec.read(keys.key(i)).map(|entry| entry.value());
        answer(exec, value);
    }
    Ok(())
}

fn mset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() % 2 == 0 {
        return Err("ERR wrong number of arguments for 'mset' command".into());
    }
    let mut keys = exec.lock_all((1..args.len()).step_by(2).map(|i| args.at(i)))?;
    for i in 0..keys.len() {
        let _old = exec.put(keys.key(i), args.value(2 * i + 2), None);
    }
    let changes = keys.len() as u64;
    exec.effect_many(&mut keys, changes, |record, db| {
        record.begin_command(db, args.len()).arg(b"MSET");
        for i in (1..args.len()).step_by(2) {
            record.arg(args.at(i));
            value_arg(record, &args.value(i + 1));
        }
    });
    exec.reply.put().ok();
    Ok(())
}
