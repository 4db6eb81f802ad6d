//! Streams: entries under ids that rise, and groups of consumers that share them. What a stream is:
//! `gimmal_store::types::stream`; what the wire says about it: here.
//!
//! A stream stays when its last entry goes. What a consumer reads is a write: it is logged as what came of it (`group.rs`).

mod add;
mod group;
mod id;
mod info;
mod pending;
mod range;
mod read;
mod release;

use crate::arguments::{block, integer, key, one_of, string, unix_time, word};
use crate::command::{Argument, Begin, Command, Find, KeySpec, acl, flag::*, key_at, key1, keyflag::*};
use crate::commands::help::HELP_ENTRY;
use crate::exec::{Exec, Key, Stop, WRONG_TYPE};
use crate::notify;
use gimmal_store::types::Stream;
use gimmal_store::{Entry, ValueRef};

const KEY: Argument = key("key", 0);
const GROUP: Argument = string("group");
const CONSUMER: Argument = string("consumer");
const ID: Argument = string("ID");
const IDLE: Argument = string("min-idle-time");
const COUNT: Argument = integer("count").after("COUNT").optional();
const JUST_ID: Argument = word("justid", "JUSTID").optional();
const REFERENCES: Argument =
    one_of("condition", &[word("keepref", "KEEPREF"), word("delref", "DELREF"), word("acked", "ACKED")])
        .since("8.2.0")
        .optional();
const IDS: Argument = block("ids", &[integer("numids"), string("id").many()]).after("IDS");
const TRIM: Argument = block(
    "trim",
    &[
        one_of("strategy", &[word("maxlen", "MAXLEN"), word("minid", "MINID").since("6.2.0")]),
        one_of("operator", &[word("equal", "="), word("approximately", "~")]).optional(),
        string("threshold"),
        integer("count").after("LIMIT").since("6.2.0").optional(),
    ],
);
const GROUP_ID: Argument = one_of("id-selector", &[string("id"), word("new-id", "$")]);
const ENTRIES_READ: Argument = integer("entriesread").shown("entries-read").after("ENTRIESREAD").optional();
const STREAMS: Argument = block("streams", &[KEY.many(), ID.many()]).after("STREAMS");

/// Keys behind the word STREAMS, as many as ids behind them.
const fn keys_of_streams(from: i32) -> KeySpec {
    KeySpec {
        flags: RO | ACCESS,
        begin: Begin::Keyword("STREAMS", from),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        notes: "",
    }
}

/// What all commands of the family have in common.
const STREAM: Command = Command {
    acl: acl::STREAM,
    group: "stream",
    since: "5.0.0",
    complexity: "O(1)",
    keys: &[key1(RW | UPDATE)],
    ..Command::DEFAULT
};

/// What XGROUP's subcommands have in common.
const OF_GROUP: Command = Command { flags: WRITE, keys: &[key_at(2, RW | UPDATE)], ..STREAM };

/// What XINFO's subcommands have in common.
const OF_INFO: Command = Command { flags: READONLY, keys: &[key_at(2, RO | ACCESS)], arguments: &[KEY], ..STREAM };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "xadd",
        run: add::xadd,
        arity: -5,
        flags: WRITE | DENYOOM | FAST,
        keys: &[KeySpec { notes: "It updates, as it may also trim.", ..key1(RW | UPDATE) }],
        complexity: "O(1), and O(N) for N entries that it trims",
        summary: "Adds an entry to the stream at a key, which is made if it is missing.",
        arguments: &[
            KEY,
            word("nomkstream", "NOMKSTREAM").since("6.2.0").optional(),
            REFERENCES,
            TRIM.optional(),
            one_of("id-selector", &[word("auto-id", "*"), string("id")]),
            block("data", &[string("field"), string("value")]).many(),
        ],
        tips: &["nondeterministic_output"],
        history: &[
            ("6.2.0", "`NOMKSTREAM`, `MINID` and `LIMIT`."),
            ("7.0.0", "Ids of the form `<ms>-*`."),
            ("8.2.0", "`KEEPREF`, `DELREF` and `ACKED`, as in Redis."),
        ],
        ..STREAM
    },
    Command {
        name: "xlen",
        run: range::xlen,
        arity: 2,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        summary: "Answers how many entries the stream at a key has.",
        arguments: &[KEY],
        ..STREAM
    },
    Command {
        name: "xrange",
        run: range::xrange,
        arity: -4,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        complexity: "O(log N + M) where M is the number of entries answered",
        summary: "Answers the entries of the stream at a key between two ids.",
        arguments: &[KEY, string("start"), string("end"), COUNT],
        history: &[("6.2.0", "Ends that are left out.")],
        ..STREAM
    },
    Command {
        name: "xrevrange",
        run: range::xrevrange,
        arity: -4,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        complexity: "O(log N + M) where M is the number of entries answered",
        summary: "Answers the entries of the stream at a key between two ids, the last first.",
        arguments: &[KEY, string("end"), string("start"), COUNT],
        history: &[("6.2.0", "Ends that are left out.")],
        ..STREAM
    },
    Command {
        name: "xread",
        run: read::xread,
        arity: -4,
        flags: BLOCKING | READONLY,
        keys: &[keys_of_streams(1)],
        keys_fn: Some(read::keys),
        complexity: "O(M) where M is the number of entries answered",
        summary: "Answers the entries of several streams behind an id each, and waits for them if asked to.",
        arguments: &[COUNT, integer("milliseconds").after("BLOCK").optional(), STREAMS],
        ..STREAM
    },
    Command {
        name: "xreadgroup",
        run: read::xreadgroup,
        arity: -7,
        flags: BLOCKING | WRITE,
        keys: &[keys_of_streams(4)],
        keys_fn: Some(read::keys),
        complexity: "O(M) where M is the number of entries answered",
        summary: "Answers entries of several streams to a consumer of a group, new ones or those it has not acknowledged.",
        arguments: &[
            block("group-block", &[GROUP, CONSUMER]).after("GROUP"),
            COUNT,
            integer("milliseconds").after("BLOCK").optional(),
            integer("min-idle-time").after("CLAIM").optional().since("8.4.0"),
            word("noack", "NOACK").optional(),
            STREAMS,
        ],
        history: &[("8.4.0", "`CLAIM`, as in Redis.")],
        ..STREAM
    },
    Command {
        name: "xdel",
        run: add::xdel,
        arity: -3,
        flags: WRITE | FAST,
        keys: &[key1(RW | DELETE)],
        complexity: "O(log N) for each entry",
        summary: "Removes entries from the stream at a key, and answers how many there were.",
        arguments: &[KEY, ID.many()],
        ..STREAM
    },
    Command {
        name: "xtrim",
        run: add::xtrim,
        arity: -4,
        flags: WRITE,
        keys: &[key1(RW | DELETE)],
        complexity: "O(N) for N entries that it removes, most of them by the page",
        summary: "Removes the oldest entries of the stream at a key.",
        arguments: &[KEY, TRIM, REFERENCES],
        tips: &["nondeterministic_output"],
        history: &[("6.2.0", "`MINID` and `LIMIT`."), ("8.2.0", "`KEEPREF`, `DELREF` and `ACKED`, as in Redis.")],
        ..STREAM
    },
    Command {
        name: "xdelex",
        run: release::xdelex,
        arity: -5,
        flags: WRITE | FAST,
        keys: &[key1(RW | DELETE)],
        since: "8.2.0",
        complexity: "O(log N) for each entry and group",
        summary: "Removes entries from the stream at a key, with an eye to the groups that have them pending.",
        arguments: &[KEY, REFERENCES, IDS],
        ..STREAM
    },
    Command {
        name: "xackdel",
        run: release::xackdel,
        arity: -6,
        flags: WRITE | FAST,
        keys: &[key1(RW | UPDATE | DELETE)],
        since: "8.2.0",
        complexity: "O(log N) for each entry and group",
        summary: "Acknowledges entries that a group delivered, and removes them from the stream at a key.",
        arguments: &[KEY, GROUP, REFERENCES, IDS],
        ..STREAM
    },
    Command {
        name: "xsetid",
        run: add::xsetid,
        arity: -3,
        flags: WRITE | DENYOOM | FAST,
        summary: "Sets the last id of the stream at a key. For replication.",
        arguments: &[
            KEY,
            string("last-id"),
            integer("entries-added").after("ENTRIESADDED").since("7.0.0").optional(),
            string("max-deleted-id").after("MAXDELETEDID").since("7.0.0").optional(),
        ],
        history: &[("7.0.0", "`ENTRIESADDED` and `MAXDELETEDID`.")],
        ..STREAM
    },
    Command {
        name: "xack",
        run: pending::xack,
        arity: -4,
        flags: WRITE | FAST,
        complexity: "O(log N) for each entry",
        summary: "Acknowledges entries that a group delivered, and answers how many were pending.",
        arguments: &[KEY, GROUP, ID.many()],
        ..STREAM
    },
    Command {
        name: "xpending",
        run: pending::xpending,
        arity: -3,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        complexity: "O(log N + M) where M is the number of pending entries looked at, or of consumers without a range",
        summary: "Answers what a group delivered and was not acknowledged.",
        arguments: &[
            KEY,
            GROUP,
            block(
                "filters",
                &[
                    integer("min-idle-time").after("IDLE").since("6.2.0").optional(),
                    string("start"),
                    string("end"),
                    integer("count"),
                    CONSUMER.optional(),
                ],
            )
            .optional(),
        ],
        tips: &["nondeterministic_output"],
        history: &[("6.2.0", "`IDLE`, and ends that are left out.")],
        ..STREAM
    },
    Command {
        name: "xclaim",
        run: pending::xclaim,
        arity: -6,
        flags: WRITE | FAST,
        complexity: "O(log N) for each entry, of N that are pending",
        summary: "Gives pending entries to a consumer, as if they were delivered to it.",
        arguments: &[
            KEY,
            GROUP,
            CONSUMER,
            IDLE,
            ID.many(),
            integer("ms").after("IDLE").optional(),
            unix_time("unix-time-milliseconds").after("TIME").optional(),
            integer("count").after("RETRYCOUNT").optional(),
            word("force", "FORCE").optional(),
            JUST_ID,
            string("lastid").after("LASTID").optional(),
        ],
        tips: &["nondeterministic_output"],
        ..STREAM
    },
    Command {
        name: "xautoclaim",
        run: pending::xautoclaim,
        arity: -6,
        flags: WRITE | FAST,
        keys: &[key1(RW | DELETE)],
        since: "6.2.0",
        complexity: "O(log N) for each entry claimed, of N that are pending",
        summary: "Gives entries that have been pending for long to a consumer, as if they were delivered to it.",
        arguments: &[KEY, GROUP, CONSUMER, IDLE, string("start"), COUNT, JUST_ID],
        tips: &["nondeterministic_output"],
        history: &[("7.0.0", "The ids of entries that are gone, which are no longer pending.")],
        ..STREAM
    },
    Command {
        name: "xgroup",
        arity: -2,
        group: "stream",
        since: "5.0.0",
        complexity: "Depends on subcommand.",
        summary: "Commands that manage groups of consumers.",
        subcommands: XGROUP,
        ..Command::DEFAULT
    },
    Command {
        name: "xinfo",
        arity: -2,
        group: "stream",
        since: "5.0.0",
        complexity: "Depends on subcommand.",
        summary: "Commands that describe streams, groups and consumers.",
        subcommands: XINFO,
        ..Command::DEFAULT
    },
];

const HELP: Command = Command { acl: acl::STREAM, group: "stream", since: "5.0.0", ..HELP_ENTRY };

static XGROUP: &[Command] = &[
    Command {
        name: "create",
        run: group::create,
        arity: -5,
        flags: WRITE | DENYOOM,
        keys: &[key_at(2, RW | INSERT)],
        summary: "Makes a group of consumers that has read up to an id.",
        arguments: &[KEY, GROUP, GROUP_ID, word("mkstream", "MKSTREAM").optional(), ENTRIES_READ],
        history: &[("7.0.0", "`ENTRIESREAD`.")],
        ..OF_GROUP
    },
    Command {
        name: "setid",
        run: group::setid,
        arity: -5,
        summary: "Sets the id up to which a group has read.",
        arguments: &[KEY, GROUP, GROUP_ID, ENTRIES_READ],
        history: &[("7.0.0", "`ENTRIESREAD`.")],
        ..OF_GROUP
    },
    Command {
        name: "destroy",
        run: group::destroy,
        arity: 4,
        keys: &[key_at(2, RW | DELETE)],
        complexity: "O(N) where N is the number of entries that the group has pending",
        summary: "Removes a group with what it has pending.",
        arguments: &[KEY, GROUP],
        ..OF_GROUP
    },
    Command {
        name: "createconsumer",
        run: group::createconsumer,
        arity: 5,
        flags: WRITE | DENYOOM,
        keys: &[key_at(2, RW | INSERT)],
        since: "6.2.0",
        summary: "Makes a consumer in a group.",
        arguments: &[KEY, GROUP, CONSUMER],
        ..OF_GROUP
    },
    Command {
        name: "delconsumer",
        run: group::delconsumer,
        arity: 5,
        keys: &[key_at(2, RW | DELETE)],
        summary: "Removes a consumer from a group with what it has pending, and answers how much that was.",
        arguments: &[KEY, GROUP, CONSUMER],
        ..OF_GROUP
    },
    Command { run: group::help, ..HELP },
];

static XINFO: &[Command] = &[
    Command {
        name: "stream",
        run: info::stream,
        arity: -3,
        summary: "Describes the stream at a key.",
        arguments: &[KEY, block("full-block", &[word("full", "FULL"), COUNT]).optional()],
        history: &[
            ("6.0.0", "`FULL`."),
            ("7.0.0", "What was deleted and added, the first id, and how far groups have read."),
            ("7.2.0", "`active-time`; `seen-time` is when a consumer last tried."),
        ],
        ..OF_INFO
    },
    Command {
        name: "groups",
        run: info::groups,
        arity: 3,
        summary: "Describes the groups of the stream at a key.",
        history: &[("7.0.0", "How far they have read.")],
        ..OF_INFO
    },
    Command {
        name: "consumers",
        run: info::consumers,
        arity: 4,
        summary: "Describes the consumers of a group.",
        arguments: &[KEY, GROUP],
        tips: &["nondeterministic_output"],
        history: &[("7.2.0", "`inactive`; `idle` is since a consumer last tried.")],
        ..OF_INFO
    },
    Command { run: info::help, ..HELP },
];

/// The stream of an entry, or the error that it is something else.
#[inline]
fn stream_of<'e>(entry: &Entry<'e>) -> Result<&'e Stream, Stop> {
    match entry.value() {
        ValueRef::Stream(stream) => Ok(stream),
        _ => Err(Stop::Error(WRONG_TYPE)),
    }
}

/// The stream at a key, for a command that reads it.
#[inline]
fn read<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<Option<&'m Stream>, Stop> {
    exec.read(key).as_ref().map(stream_of).transpose()
}

/// The stream at a key, for a command that is going to change it.
fn peek<'m>(exec: &mut Exec<'_>, key: Key<'m, '_>) -> Result<Option<&'m Stream>, Stop> {
    exec.peek(key).as_ref().map(stream_of).transpose()
}

/// Records a command as the effect of a change that watchers are not told of, and tells of it.
fn ready(exec: &mut Exec<'_>, key: Key<'_, '_>, words: &[&[u8]], event: &'static str) {
    let name = key.name();
    exec.effect_unwatched(key, words);
    exec.notify(notify::STREAM, event, name);
}
