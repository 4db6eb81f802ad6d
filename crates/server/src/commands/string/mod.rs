//! Strings: GET, SET and their kin. What a string is: `gimmal_store`; what the wire says about it: here.
//!
//! Strings over 4 KiB are ropes: they are answered, appended to and cut by reference, never copied together.

mod digest;
mod get;
mod lcs;
mod number;
mod set;

pub use number::NOT_A_FLOAT;

use crate::args::Args;
use crate::arguments::{block, double, integer, key, one_of, string, unix_time, word};
use crate::command::{Argument, Begin, Command, Find, KeySpec, acl, flag::*, key_range, key1, keyflag::*};
use crate::exec::{Exec, ReplyError, Stop, WRONG_TYPE};
use gimmal_store::{Entry, NewValue, Rope, StringRef};

const KEY: Argument = key("key", 0);
const VALUE: Argument = string("value");
const INCREMENT: Argument = integer("increment");
const PAIRS: Argument = block("data", &[KEY, VALUE]).many();

const SECONDS: Argument = integer("seconds").after("EX");
const MILLISECONDS: Argument = integer("milliseconds").after("PX");
const AT_SECONDS: Argument = unix_time("unix-time-seconds").after("EXAT");
const AT_MILLISECONDS: Argument = unix_time("unix-time-milliseconds").after("PXAT");
const KEEPTTL: Argument = word("keepttl", "KEEPTTL");
const NX: Argument = word("nx", "NX");
const XX: Argument = word("xx", "XX");

/// What all commands of the family have in common.
const STRING: Command = Command {
    arity: 2,
    acl: acl::STRING,
    group: "string",
    complexity: "O(1)",
    keys: &[key1(RW | ACCESS | UPDATE)],
    arguments: &[KEY],
    ..Command::DEFAULT
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "get",
        run: get::get,
        flags: READONLY | FAST,
        keys: &[key1(RO | ACCESS)],
        summary: "Answers the string at a key.",
        ..STRING
    },
    Command {
        name: "set",
        run: set::set,
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: &[KeySpec {
            notes: "Reads the key only with `GET` or a condition on its value",
            ..key1(RW | ACCESS | UPDATE | VARIABLE_FLAGS)
        }],
        keys_fn: Some(set::keys_of_set),
        summary: "Stores a string at a key, whatever was there before.",
        arguments: &[
            KEY,
            VALUE,
            one_of(
                "condition",
                &[
                    NX,
                    XX,
                    string("comparison-value").after("IFEQ").since("8.1.0"),
                    string("ifne-value").after("IFNE").since("8.4.0"),
                    string("ifdeq-digest").after("IFDEQ").since("8.4.0"),
                    string("ifdne-digest").after("IFDNE").since("8.4.0"),
                ],
            )
            .optional()
            .since("2.6.12"),
            word("get", "GET").optional().since("6.2.0"),
            one_of(
                "expiration",
                &[
                    SECONDS.since("2.6.12"),
                    MILLISECONDS.since("2.6.12"),
                    AT_SECONDS.since("6.2.0"),
                    AT_MILLISECONDS.since("6.2.0"),
                    KEEPTTL.since("6.0.0"),
                ],
            )
            .optional(),
        ],
        history: &[
            ("2.6.12", "`EX`, `PX`, `NX` and `XX`."),
            ("6.0.0", "`KEEPTTL`."),
            ("6.2.0", "`GET`, `EXAT` and `PXAT`."),
            ("7.0.0", "`NX` and `GET` may stand together."),
            ("8.1.0", "`IFEQ`."),
            ("8.4.0", "`IFNE`, `IFDEQ` and `IFDNE`, as in Redis."),
        ],
        ..STRING
    },
    Command {
        name: "setnx",
        run: set::setnx,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(OW | INSERT)],
        summary: "Stores a string at a key that does not exist.",
        arguments: &[KEY, VALUE],
        deprecated: Some(("2.6.12", "`SET` with the `NX` argument")),
        ..STRING
    },
    Command {
        name: "setex",
        run: set::setex,
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE)],
        since: "2.0.0",
        summary: "Stores a string at a key with a time to live in seconds.",
        arguments: &[KEY, integer("seconds"), VALUE],
        deprecated: Some(("2.6.12", "`SET` with the `EX` argument")),
        ..STRING
    },
    Command {
        name: "psetex",
        run: set::psetex,
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE)],
        since: "2.6.0",
        summary: "Stores a string at a key with a time to live in milliseconds.",
        arguments: &[KEY, integer("milliseconds"), VALUE],
        deprecated: Some(("2.6.12", "`SET` with the `PX` argument")),
        ..STRING
    },
    Command {
        name: "getset",
        run: set::getset,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        summary: "Stores a string at a key and answers the one before.",
        arguments: &[KEY, VALUE],
        deprecated: Some(("6.2.0", "`SET` with the `!GET` argument")),
        ..STRING
    },
    Command {
        name: "getdel",
        run: get::getdel,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | DELETE)],
        since: "6.2.0",
        summary: "Removes a key and answers the string that it had.",
        ..STRING
    },
    Command {
        name: "getex",
        run: get::getex,
        arity: -2,
        flags: WRITE | FAST,
        keys: &[KeySpec { notes: "A write, because it may change the time to live", ..key1(RW | ACCESS | UPDATE) }],
        since: "6.2.0",
        summary: "Answers the string at a key and sets or removes its time to live.",
        arguments: &[
            KEY,
            one_of("expiration", &[SECONDS, MILLISECONDS, AT_SECONDS, AT_MILLISECONDS, word("persist", "PERSIST")])
                .optional(),
        ],
        ..STRING
    },
    Command {
        name: "getrange",
        run: get::getrange,
        arity: 4,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        since: "2.4.0",
        complexity: "O(N) where N is the length of the answer; large parts are not copied",
        summary: "Answers a part of the string at a key.",
        arguments: &[KEY, integer("start"), integer("end")],
        ..STRING
    },
    Command {
        name: "substr",
        run: get::getrange,
        arity: 4,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        complexity: "O(N) where N is the length of the answer; large parts are not copied",
        summary: "Answers a part of the string at a key.",
        arguments: &[KEY, integer("start"), integer("end")],
        deprecated: Some(("2.0.0", "`GETRANGE`")),
        ..STRING
    },
    Command {
        name: "strlen",
        run: get::strlen,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        since: "2.2.0",
        summary: "Answers the length of the string at a key.",
        ..STRING
    },
    Command {
        name: "append",
        run: set::append,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | INSERT)],
        since: "2.0.0",
        complexity: "O(N) where N is the length of what is appended, amortized",
        summary: "Adds to the end of the string at a key; a missing key counts as empty.",
        arguments: &[KEY, VALUE],
        ..STRING
    },
    Command {
        name: "setrange",
        run: set::setrange,
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: &[key1(RW | UPDATE)],
        since: "2.2.0",
        complexity: "O(N) where N is the number of bytes written, with those of a gap before them",
        summary: "Overwrites a part of the string at a key; a missing key counts as empty.",
        arguments: &[KEY, integer("offset"), VALUE],
        ..STRING
    },
    Command {
        name: "incr",
        run: number::incr,
        flags: WRITE | DENYOOM | FAST,
        summary: "Adds one to the integer at a key; a missing key counts as 0.",
        ..STRING
    },
    Command {
        name: "decr",
        run: number::decr,
        flags: WRITE | DENYOOM | FAST,
        summary: "Subtracts one from the integer at a key; a missing key counts as 0.",
        ..STRING
    },
    Command {
        name: "incrby",
        run: number::incrby,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        summary: "Adds to the integer at a key; a missing key counts as 0.",
        arguments: &[KEY, INCREMENT],
        ..STRING
    },
    Command {
        name: "decrby",
        run: number::decrby,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        summary: "Subtracts from the integer at a key; a missing key counts as 0.",
        arguments: &[KEY, integer("decrement")],
        ..STRING
    },
    Command {
        name: "incrbyfloat",
        run: number::incrbyfloat,
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        since: "2.6.0",
        summary: "Adds to the decimal number at a key; a missing key counts as 0.",
        arguments: &[KEY, double("increment")],
        ..STRING
    },
    Command {
        name: "mget",
        run: get::mget,
        arity: -2,
        flags: READONLY | FAST,
        keys: &[key_range(1, -1, 1, RO | ACCESS)],
        complexity: "O(N) where N is the number of keys",
        summary: "Answers the strings at several keys, all of one moment.",
        arguments: &[KEY.many()],
        tips: &["request_policy:multi_shard"],
        ..STRING
    },
    Command {
        name: "mset",
        run: set::mset,
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: &[key_range(1, -1, 2, OW | UPDATE)],
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys",
        summary: "Stores strings at several keys at once.",
        arguments: &[PAIRS],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        ..STRING
    },
    Command {
        name: "msetnx",
        run: set::msetnx,
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: &[key_range(1, -1, 2, OW | INSERT)],
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys",
        summary: "Stores strings at several keys at once, if none of them exists.",
        arguments: &[PAIRS],
        ..STRING
    },
    Command {
        name: "msetex",
        run: set::msetex,
        arity: -4,
        flags: WRITE | DENYOOM,
        keys: &[KeySpec {
            flags: OW | UPDATE,
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 2 },
            notes: "",
        }],
        since: "9.1.0",
        complexity: "O(N) where N is the number of keys",
        summary: "Stores strings at several keys at once, with one condition and one time to live for all.",
        arguments: &[
            integer("numkeys"),
            PAIRS,
            one_of("condition", &[NX, XX]).optional(),
            one_of("expiration", &[SECONDS, MILLISECONDS, AT_SECONDS, AT_MILLISECONDS, KEEPTTL]).optional(),
        ],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        ..STRING
    },
    Command {
        name: "delifeq",
        run: set::delifeq,
        arity: 3,
        flags: WRITE,
        keys: &[key1(RM | ACCESS | DELETE)],
        since: "9.0.0",
        summary: "Removes a key if its string is the one given.",
        arguments: &[KEY, VALUE],
        ..STRING
    },
    Command {
        name: "delex",
        run: digest::delex,
        arity: -2,
        flags: WRITE | FAST,
        keys: &[key1(RM | ACCESS | DELETE)],
        since: "8.4.0",
        complexity: "O(1) without a condition, otherwise O(N) where N is the length of the string",
        summary: "Removes a key, if its string or the string's digest is as expected.",
        arguments: &[
            KEY,
            one_of(
                "condition",
                &[
                    string("ifeq-value").after("IFEQ"),
                    string("ifne-value").after("IFNE"),
                    string("ifdeq-digest").after("IFDEQ"),
                    string("ifdne-digest").after("IFDNE"),
                ],
            )
            .optional(),
        ],
        ..STRING
    },
    Command {
        name: "digest",
        run: digest::digest,
        flags: READONLY | FAST,
        keys: &[key1(RO | ACCESS)],
        since: "8.4.0",
        complexity: "O(N) where N is the length of the string",
        summary: "Answers the XXH3 hash of the string at a key, as hexadecimal digits.",
        ..STRING
    },
    Command {
        name: "lcs",
        run: lcs::lcs,
        arity: -3,
        flags: READONLY,
        keys: &[key_range(1, 1, 1, RO | ACCESS)],
        since: "7.0.0",
        complexity: "O(N*M) where N and M are the lengths of the strings",
        summary: "Finds the longest common subsequence of two strings.",
        arguments: &[
            key("key1", 0),
            key("key2", 0),
            word("len", "LEN").optional(),
            word("idx", "IDX").optional(),
            integer("min-match-len").after("MINMATCHLEN").optional(),
            word("withmatchlen", "WITHMATCHLEN").optional(),
        ],
        ..STRING
    },
];

/// The string of an entry, or the error that it is something else: the one place where the family looks at types.
#[inline(always)]
pub fn string_of<'e>(entry: &Entry<'e>) -> Result<StringRef<'e>, Stop> {
    // Not made ahead: an error that is not needed would have to be dropped.
    entry.string().ok_or_else(|| Stop::Error(WRONG_TYPE))
}

/// A string or null.
#[inline]
fn answer(exec: &mut Exec<'_>, value: Option<StringRef<'_>>) {
    match value {
        Some(value) => exec.reply.string(value),
        None => exec.reply.put().null(),
    }
}

/// Length of a string in bytes.
fn length(value: &StringRef<'_>) -> usize {
    match value {
        StringRef::Int(n) => itoa::Buffer::new().format(*n).len(),
        StringRef::Bytes(bytes) => bytes.len(),
        StringRef::Rope(rope) => rope.len(),
    }
}

/// Argument `i` as the bytes it is: an integer stays text.
fn raw<'a>(args: &Args<'a>, i: usize) -> NewValue<'a> {
    match args.rope(i) {
        Some(rope) => NewValue::Rope(rope.clone()),
        None => NewValue::Bytes(args.at(i)),
    }
}

/// Whether a string is these bytes, which come from [`raw`].
fn equals(value: &StringRef<'_>, bytes: &NewValue<'_>) -> bool {
    match (value, bytes) {
        (StringRef::Int(n), NewValue::Bytes(bytes)) => itoa::Buffer::new().format(*n).as_bytes() == *bytes,
        (StringRef::Bytes(value), NewValue::Bytes(bytes)) => value == bytes,
        (StringRef::Rope(value), NewValue::Rope(rope)) => *value == rope,
        (StringRef::Rope(rope), NewValue::Bytes(bytes)) => rope_is(rope, bytes),
        (StringRef::Bytes(bytes), NewValue::Rope(rope)) => rope_is(rope, bytes),
        (StringRef::Int(_), NewValue::Rope(_)) | (_, NewValue::Int(_)) => false,
    }
}

fn rope_is(rope: &Rope, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    rope.len() == bytes.len()
        && rope.extents().all(|extent| {
            let (piece, after) = rest.split_at(extent.len());
            rest = after;
            piece == extent.as_slice()
        })
}

/// How a time to live was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The unit that argument `i` names if a number can follow and no other unit stood before: one may be repeated.
    fn again(args: &Args<'_>, i: usize, before: Option<(ExpireUnit, usize)>) -> Option<ExpireUnit> {
        let unit = ExpireUnit::named(args, i).filter(|_| i + 1 < args.len())?;
        before.is_none_or(|(before, _)| before == unit).then_some(unit)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_compared_in_every_form() {
        let long = vec![b'7'; 300 * 1024];
        let rope = Rope::from_slice(&long);
        assert!(equals(&StringRef::Int(-12), &NewValue::Bytes(b"-12")));
        assert!(!equals(&StringRef::Int(-12), &NewValue::Bytes(b"-12 ")));
        assert!(equals(&StringRef::Bytes(b"a"), &NewValue::Bytes(b"a")));
        assert!(equals(&StringRef::Rope(&rope), &NewValue::Rope(rope.clone())));
        assert!(equals(&StringRef::Rope(&rope), &NewValue::Bytes(&long)));
        assert!(equals(&StringRef::Bytes(&long), &NewValue::Rope(rope.clone())));
        assert!(!equals(&StringRef::Rope(&rope), &NewValue::Bytes(&long[1..])));
        let mut other = long.clone();
        other[long.len() - 1] = b'8';
        assert!(!equals(&StringRef::Rope(&rope), &NewValue::Bytes(&other)));
    }

    #[test]
    fn deadlines_are_checked() {
        let in_seconds = ExpireUnit::In { ms: 1000 };
        assert_eq!(deadline(2, in_seconds, 500, "set").ok(), Some(2500));
        assert_eq!(deadline(2, ExpireUnit::At { ms: 1000 }, 500, "set").ok(), Some(2000));
        for n in [0, -1, i64::MIN, i64::MAX, i64::MAX / 1000] {
            let error = deadline(n, in_seconds, i64::MAX / 2, "getex").expect_err("not a time");
            assert_eq!(error, "ERR invalid expire time in 'getex' command", "{n}");
        }
    }
}
