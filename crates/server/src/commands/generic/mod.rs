//! Keys of any type: DEL, EXPIRE, RENAME, SCAN and their kin.

mod dump;
mod expire;
mod keys;
mod migrate;
mod object;
mod random;
mod restore;
mod sort;
mod sort_number;
mod wait;
mod walk;

pub use expire::Conditions;

use crate::arguments::{block, integer, key, one_of, pattern, string, unix_time, word};
use crate::command::{Argument, Begin, Command, Find, KeySpec, acl, flag::*, key_at, key_range, key1, keyflag::*};

const KEY: Argument = key("key", 0);
const KEYS: Argument = KEY.many();
const CONDITION: Argument =
    one_of("condition", &[word("nx", "NX"), word("xx", "XX"), word("gt", "GT"), word("lt", "LT")])
        .optional()
        .since("7.0.0");
const EXPIRE_HISTORY: &[(&str, &str)] = &[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")];
const TTL_HISTORY: &[(&str, &str)] = &[("2.8.0", "Answers -2 for a missing key.")];

/// What all commands of the family have in common.
const GENERIC: Command = Command {
    arity: 2,
    acl: acl::KEYSPACE,
    group: "generic",
    complexity: "O(1)",
    arguments: &[KEY],
    ..Command::DEFAULT
};

/// What EXPIRE and its kin have in common.
const EXPIRE: Command =
    Command { arity: -3, flags: WRITE | FAST, keys: &[key1(RW | UPDATE)], history: EXPIRE_HISTORY, ..GENERIC };

/// What the questions about one key have in common.
const ABOUT: Command = Command { flags: READONLY | FAST, keys: &[key1(RO | ACCESS)], ..GENERIC };

/// What the commands on any number of keys have in common.
const MANY: Command = Command {
    arity: -2,
    complexity: "O(N) where N is the number of keys",
    arguments: &[KEYS],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..GENERIC
};

/// What OBJECT's questions have in common.
const OBJECT: Command = Command {
    arity: 3,
    flags: READONLY,
    keys: &[key_at(2, RO)],
    since: "2.2.3",
    tips: &["nondeterministic_output"],
    ..GENERIC
};

const BY: Argument = Argument { key_spec: Some(1), ..pattern("by-pattern") }.after("BY").shown("pattern").optional();
const LIMIT: Argument = block("limit", &[integer("offset"), integer("count")]).after("LIMIT").optional();
const GET: Argument = Argument { key_spec: Some(1), ..pattern("get-pattern") }
    .after("GET")
    .shown("pattern")
    .optional()
    .many()
    .many_tokens();
const ORDER: Argument = one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional();
const ALPHA: Argument = word("sorting", "ALPHA").optional();

/// Keys of SORT that only the elements or the options name.
const UNKNOWN: KeySpec = KeySpec { flags: RO | ACCESS, begin: Begin::Unknown, find: Find::Unknown, notes: "" };

/// What SORT and SORT_RO have in common.
const SORT: Command = Command {
    arity: -2,
    acl: acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS,
    complexity: "O(N+M*log(M)) where N is the number of elements and M that of those answered; O(N) if nothing is sorted",
    ..GENERIC
};

/// What RESTORE and its twin for clusters have in common.
const RESTORE: Command = Command {
    run: restore::restore,
    arity: -4,
    flags: WRITE | DENYOOM,
    acl: acl::KEYSPACE | acl::DANGEROUS,
    keys: &[key1(OW | UPDATE)],
    since: "2.6.0",
    complexity: "O(N*log(N)) at most, where N is the size of the value",
    summary: "Makes a key of a payload that DUMP has answered.",
    arguments: &[
        KEY,
        integer("ttl"),
        string("serialized-value"),
        word("replace", "REPLACE").optional().since("3.0.0"),
        word("absttl", "ABSTTL").optional().since("5.0.0"),
        integer("seconds").after("IDLETIME").optional().since("5.0.0"),
        integer("frequency").after("FREQ").optional().since("5.0.0"),
    ],
    history: &[("3.0.0", "`REPLACE`."), ("5.0.0", "`ABSTTL`."), ("5.0.0", "`IDLETIME` and `FREQ`.")],
    ..GENERIC
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "del",
        run: keys::del,
        flags: WRITE,
        keys: &[key_range(1, -1, 1, RM | DELETE)],
        summary: "Removes keys.",
        ..MANY
    },
    Command {
        name: "unlink",
        run: keys::unlink,
        flags: WRITE | FAST,
        keys: &[key_range(1, -1, 1, RM | DELETE)],
        since: "4.0.0",
        summary: "Removes keys; as DEL, which frees large values without holding anything up, too.",
        ..MANY
    },
    Command {
        name: "exists",
        run: keys::exists,
        flags: READONLY | FAST,
        keys: &[key_range(1, -1, 1, RO)],
        summary: "Counts which of some keys exist; one named twice counts twice.",
        history: &[("3.0.3", "Takes several keys.")],
        ..MANY
    },
    Command {
        name: "touch",
        run: keys::touch,
        flags: READONLY | FAST,
        keys: &[key_range(1, -1, 1, RO)],
        since: "3.2.1",
        summary: "Notes an access to keys, and counts which of them exist.",
        ..MANY
    },
    Command {
        name: "sort",
        run: sort::sort,
        flags: WRITE | DENYOOM | MOVABLE_KEYS,
        keys: &[
            key1(RO | ACCESS),
            KeySpec { notes: "Keys that `BY` and `GET` make of the elements", ..UNKNOWN },
            KeySpec { flags: OW | UPDATE, notes: "The key behind `STORE`, wherever that is", ..UNKNOWN },
        ],
        keys_fn: Some(sort::keys_of_sort),
        summary: "Answers or stores the elements of a list, a set or a sorted set in order.",
        arguments: &[KEY, BY, LIMIT, GET, ORDER, ALPHA, key("destination", 2).after("STORE").optional()],
        ..SORT
    },
    Command {
        name: "sort_ro",
        run: sort::sort_ro,
        flags: READONLY | MOVABLE_KEYS,
        keys: &[key1(RO | ACCESS), KeySpec { notes: "Keys that `BY` and `GET` make of the elements", ..UNKNOWN }],
        keys_fn: Some(sort::keys_of_sort_ro),
        since: "7.0.0",
        summary: "Answers the elements of a list, a set or a sorted set in order.",
        arguments: &[KEY, BY, LIMIT, GET, ORDER, ALPHA],
        ..SORT
    },
    Command {
        name: "type",
        run: keys::type_of,
        keys: &[key1(RO)],
        summary: "Answers the type of the value at a key.",
        ..ABOUT
    },
    Command {
        name: "expire",
        run: expire::expire,
        summary: "Sets a key's time to live in seconds.",
        arguments: &[KEY, integer("seconds"), CONDITION],
        ..EXPIRE
    },
    Command {
        name: "pexpire",
        run: expire::pexpire,
        since: "2.6.0",
        summary: "Sets a key's time to live in milliseconds.",
        arguments: &[KEY, integer("milliseconds"), CONDITION],
        ..EXPIRE
    },
    Command {
        name: "expireat",
        run: expire::expireat,
        since: "1.2.0",
        summary: "Sets the Unix time in seconds at which a key expires.",
        arguments: &[KEY, unix_time("unix-time-seconds"), CONDITION],
        ..EXPIRE
    },
    Command {
        name: "pexpireat",
        run: expire::pexpireat,
        since: "2.6.0",
        summary: "Sets the Unix time in milliseconds at which a key expires.",
        arguments: &[KEY, unix_time("unix-time-milliseconds"), CONDITION],
        ..EXPIRE
    },
    Command {
        name: "persist",
        run: expire::persist,
        arity: 2,
        since: "2.2.0",
        summary: "Takes a key's time to live away.",
        arguments: &[KEY],
        history: &[],
        ..EXPIRE
    },
    Command {
        name: "ttl",
        run: expire::ttl,
        summary: "Answers a key's time to live in seconds.",
        tips: &["nondeterministic_output"],
        history: TTL_HISTORY,
        ..ABOUT
    },
    Command {
        name: "pttl",
        run: expire::pttl,
        since: "2.6.0",
        summary: "Answers a key's time to live in milliseconds.",
        tips: &["nondeterministic_output"],
        history: TTL_HISTORY,
        ..ABOUT
    },
    Command {
        name: "expiretime",
        run: expire::expiretime,
        since: "7.0.0",
        summary: "Answers the Unix time in seconds at which a key expires.",
        ..ABOUT
    },
    Command {
        name: "pexpiretime",
        run: expire::pexpiretime,
        since: "7.0.0",
        summary: "Answers the Unix time in milliseconds at which a key expires.",
        ..ABOUT
    },
    Command {
        name: "rename",
        run: keys::rename,
        arity: 3,
        flags: WRITE,
        keys: &[key1(RW | ACCESS | DELETE), key_at(2, OW | UPDATE)],
        summary: "Gives a key another name, in place of whatever has it.",
        arguments: &[KEY, key("newkey", 1)],
        ..GENERIC
    },
    Command {
        name: "renamenx",
        run: keys::renamenx,
        arity: 3,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | DELETE), key_at(2, OW | INSERT)],
        summary: "Gives a key another name, if no key has it.",
        arguments: &[KEY, key("newkey", 1)],
        history: &[("3.2.0", "Answers 0, and no error, if both names are the same.")],
        ..GENERIC
    },
    Command {
        name: "copy",
        run: keys::copy,
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: &[key1(RO | ACCESS), key_at(2, OW | UPDATE)],
        since: "6.2.0",
        complexity: "O(N) where N is the number of elements; O(1) for a string",
        summary: "Copies a key's value and deadline to another key.",
        arguments: &[
            key("source", 0),
            key("destination", 1),
            integer("destination-db").after("DB").optional(),
            word("replace", "REPLACE").optional(),
        ],
        ..GENERIC
    },
    Command {
        name: "move",
        run: keys::move_key,
        arity: 3,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | UPDATE)],
        summary: "Moves a key to another database, if it is not there.",
        arguments: &[KEY, integer("db")],
        ..GENERIC
    },
    Command {
        name: "dump",
        run: dump::dump,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        since: "2.6.0",
        complexity: "O(N) where N is the size of the value, in slices if it is large",
        summary: "Answers a key's value as a payload for RESTORE.",
        tips: &["nondeterministic_output"],
        ..GENERIC
    },
    Command {
        name: "migrate",
        run: migrate::migrate,
        arity: -6,
        flags: WRITE | MOVABLE_KEYS,
        acl: acl::KEYSPACE | acl::DANGEROUS,
        keys: &[
            key_at(3, RW | ACCESS | DELETE),
            KeySpec {
                flags: RW | ACCESS | DELETE | INCOMPLETE,
                begin: Begin::Keyword("KEYS", -2),
                find: Find::Range { last: -1, step: 1, limit: 0 },
                notes: "",
            },
        ],
        keys_fn: Some(migrate::keys),
        since: "2.6.0",
        complexity: "O(N) where N is the size of the values, and the time that the other server takes",
        summary: "Moves keys to another server.",
        arguments: &[
            string("host"),
            integer("port"),
            one_of("key-selector", &[KEY, word("empty-string", "\"\"")]),
            integer("destination-db"),
            integer("timeout"),
            word("copy", "COPY").optional().since("3.0.0"),
            word("replace", "REPLACE").optional().since("3.0.0"),
            one_of(
                "authentication",
                &[
                    string("auth").after("AUTH").shown("password").since("4.0.7"),
                    block("auth2", &[string("username"), string("password")]).after("AUTH2").since("6.0.0"),
                ],
            )
            .optional(),
            key("keys", 1).after("KEYS").shown("key").optional().many().since("3.0.6"),
        ],
        tips: &["nondeterministic_output"],
        history: &[
            ("3.0.0", "`COPY` and `REPLACE`."),
            ("3.0.6", "`KEYS`."),
            ("4.0.7", "`AUTH`."),
            ("6.0.0", "`AUTH2`."),
        ],
        ..GENERIC
    },
    Command { name: "restore", ..RESTORE },
    Command {
        name: "restore-asking",
        flags: RESTORE.flags | ASKING | SYSCMD,
        since: "3.0.0",
        group: "server",
        summary: "As RESTORE, for a key that moves between nodes of a cluster.",
        ..RESTORE
    },
    Command {
        name: "keys",
        run: walk::keys,
        flags: READONLY,
        acl: acl::KEYSPACE | acl::DANGEROUS,
        complexity: "O(N) where N is the number of keys in the database, in slices",
        summary: "Answers all keys that match a pattern.",
        arguments: &[pattern("pattern")],
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        ..GENERIC
    },
    Command {
        name: "scan",
        run: walk::scan,
        arity: -2,
        flags: READONLY | TOUCHES_ARBITRARY_KEYS,
        since: "2.8.0",
        complexity: "O(1) for each call, O(N) for all of them, where N is the number of keys in the database",
        summary: "Answers some keys and where to go on.",
        arguments: &[
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            string("type").after("TYPE").optional().since("6.0.0"),
        ],
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        history: &[("6.0.0", "`TYPE`.")],
        ..GENERIC
    },
    Command {
        name: "wait",
        run: wait::wait,
        arity: 3,
        flags: BLOCKING,
        acl: acl::CONNECTION,
        keys: &[],
        since: "3.0.0",
        complexity: "O(1)",
        summary: "Waits until replicas have what this connection wrote, and answers how many.",
        arguments: &[integer("numreplicas"), integer("timeout")],
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        ..GENERIC
    },
    Command {
        name: "waitaof",
        run: wait::waitaof,
        arity: 4,
        flags: BLOCKING,
        acl: acl::CONNECTION,
        keys: &[],
        since: "7.2.0",
        complexity: "O(1)",
        summary: "Waits until files, here and on replicas, have what this connection wrote, and answers how many.",
        arguments: &[integer("numlocal"), integer("numreplicas"), integer("timeout")],
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        ..GENERIC
    },
    Command {
        name: "randomkey",
        run: random::randomkey,
        arity: 1,
        flags: READONLY | TOUCHES_ARBITRARY_KEYS,
        complexity: "O(S) where S is the number of shards",
        summary: "Answers a random key of the database.",
        arguments: &[],
        tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        ..GENERIC
    },
    Command {
        name: "object",
        arity: -2,
        acl: 0,
        since: "2.2.3",
        complexity: "Depends on subcommand.",
        summary: "A container for questions about how a value is kept.",
        arguments: &[],
        subcommands: &[
            Command {
                name: "encoding",
                run: object::encoding,
                summary: "Answers the name of a value's encoding.",
                ..OBJECT
            },
            Command {
                name: "freq",
                run: object::freq,
                since: "4.0.0",
                summary: "Answers how often a key is used, on a logarithmic scale.",
                ..OBJECT
            },
            Command {
                name: "idletime",
                run: object::idletime,
                summary: "Answers the seconds since a key was last used.",
                ..OBJECT
            },
            Command {
                name: "refcount",
                run: object::refcount,
                summary: "Answers the number of references to a value.",
                ..OBJECT
            },
            Command {
                name: "help",
                run: object::help,
                arity: 2,
                flags: LOADING | STALE,
                keys: &[],
                since: "6.2.0",
                summary: "Answers what the subcommands are.",
                arguments: &[],
                tips: &[],
                ..OBJECT
            },
        ],
        ..GENERIC
    },
];
