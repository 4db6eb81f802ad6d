//! Places: GEOADD, GEOSEARCH and their kin. A place is a member of a sorted set, and its score says where it is.

mod cell;
mod position;
mod search;
mod shape;

use crate::arguments::{block, double, integer, key, one_of, string, word};
use crate::command::{Argument, Begin, Command, Find, KeySpec, acl, flag::*, key_at, key1, keyflag::*};

const KEY: Argument = key("key", 0);
const UNIT: Argument = one_of("unit", &[word("m", "m"), word("km", "km"), word("ft", "ft"), word("mi", "mi")]);
const WITHCOORD: Argument = word("withcoord", "WITHCOORD").optional();
const WITHDIST: Argument = word("withdist", "WITHDIST").optional();
const WITHHASH: Argument = word("withhash", "WITHHASH").optional();
const ORDER: Argument = one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional();
const COUNT: Argument =
    block("count-block", &[integer("count").after("COUNT"), word("any", "ANY").optional()]).optional();
const STORE: Argument =
    one_of("store", &[key("storekey", 1).after("STORE"), key("storedistkey", 2).after("STOREDIST")]).optional();
const FROM: Argument = one_of(
    "from",
    &[
        string("member").after("FROMMEMBER"),
        block("fromlonlat", &[double("longitude"), double("latitude")]).after("FROMLONLAT"),
    ],
);
const POLYGON: Argument = block(
    "polygon",
    &[integer("num-vertices").after("BYPOLYGON"), block("vertex", &[double("longitude"), double("latitude")]).many()],
)
.since("9.0.0");

/// The key behind a word.
const fn behind(word: &'static str, from: i32) -> KeySpec {
    let find = Find::Range { last: 0, step: 1, limit: 0 };
    KeySpec { flags: OW | UPDATE, begin: Begin::Keyword(word, from), find, notes: "" }
}

/// What all commands of the family have in common.
const GEO: Command = Command {
    acl: acl::GEO,
    group: "geo",
    complexity: "O(N+log(M)) for N members in the cells around the area and M in the set",
    keys: &[key1(RO | ACCESS)],
    ..Command::DEFAULT
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "geoadd",
        run: position::geoadd,
        arity: -5,
        flags: WRITE | DENYOOM,
        keys: &[key1(RW | UPDATE)],
        since: "3.2.0",
        complexity: "O(log(N)) for each place",
        summary: "Adds places to a sorted set, or moves them.",
        arguments: &[
            KEY,
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).optional().since("6.2.0"),
            word("change", "CH").optional().since("6.2.0"),
            block("data", &[double("longitude"), double("latitude"), string("member")]).many(),
        ],
        history: &[("6.2.0", "`CH`, `NX` and `XX`.")],
        ..GEO
    },
    Command {
        name: "geopos",
        run: position::geopos,
        arity: -2,
        flags: READONLY,
        since: "3.2.0",
        complexity: "O(1) for each member",
        summary: "Answers the longitudes and latitudes of members.",
        arguments: &[KEY, string("member").optional().many()],
        ..GEO
    },
    Command {
        name: "geodist",
        run: position::geodist,
        arity: -4,
        flags: READONLY,
        since: "3.2.0",
        complexity: "O(1)",
        summary: "Answers the distance between two members.",
        arguments: &[KEY, string("member1"), string("member2"), UNIT.optional()],
        ..GEO
    },
    Command {
        name: "geohash",
        run: position::geohash,
        arity: -2,
        flags: READONLY,
        since: "3.2.0",
        complexity: "O(1) for each member",
        summary: "Answers members' places as geohashes of eleven letters.",
        arguments: &[KEY, string("member").optional().many()],
        ..GEO
    },
    Command {
        name: "geosearch",
        run: search::geosearch,
        arity: -7,
        flags: READONLY,
        since: "6.2.0",
        summary: "Finds the members within a circle, a rectangle or a polygon.",
        arguments: &[
            KEY,
            FROM,
            one_of(
                "by",
                &[
                    block("circle", &[double("radius").after("BYRADIUS"), UNIT]),
                    block("box", &[double("width").after("BYBOX"), double("height"), UNIT]),
                    POLYGON,
                ],
            ),
            ORDER,
            COUNT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
        ],
        history: &[("7.0.0", "Names of units in any case."), ("9.0.0", "`BYPOLYGON`.")],
        ..GEO
    },
    Command {
        name: "geosearchstore",
        run: search::geosearchstore,
        arity: -8,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE), key_at(2, RO | ACCESS)],
        since: "6.2.0",
        summary: "Stores the members within a circle, a rectangle or a polygon at another key.",
        arguments: &[
            key("destination", 0),
            key("source", 1),
            FROM,
            one_of(
                "by",
                &[
                    block("circle", &[double("radius").after("BYRADIUS"), UNIT]),
                    block("box", &[double("width").after("BYBOX"), double("height"), UNIT]),
                    POLYGON,
                ],
            ),
            ORDER,
            COUNT,
            word("storedist", "STOREDIST").optional(),
        ],
        history: &[("7.0.0", "Names of units in any case."), ("9.0.0", "`BYPOLYGON`.")],
        ..GEO
    },
    Command {
        name: "georadius",
        run: search::georadius,
        arity: -6,
        flags: WRITE | DENYOOM,
        keys: &[key1(RO | ACCESS), behind("STORE", 6), behind("STOREDIST", 6)],
        keys_fn: Some(search::keys),
        since: "3.2.0",
        summary: "Finds the members within a distance of a place, and stores them if that is wanted.",
        arguments: &[
            KEY,
            double("longitude"),
            double("latitude"),
            double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            block("count-block", &[integer("count").after("COUNT"), word("any", "ANY").optional().since("6.2.0")])
                .optional(),
            ORDER,
            STORE,
        ],
        history: &[("6.2.0", "`ANY`."), ("7.0.0", "Names of units in any case.")],
        deprecated: Some(("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument")),
        ..GEO
    },
    Command {
        name: "georadius_ro",
        run: search::georadius_ro,
        arity: -6,
        flags: READONLY,
        since: "3.2.10",
        summary: "Finds the members within a distance of a place.",
        arguments: &[
            KEY,
            double("longitude"),
            double("latitude"),
            double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            block("count-block", &[integer("count").after("COUNT"), word("any", "ANY").optional().since("6.2.0")])
                .optional(),
            ORDER,
        ],
        history: &[("6.2.0", "`ANY`."), ("7.0.0", "Names of units in any case.")],
        deprecated: Some(("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")),
        ..GEO
    },
    Command {
        name: "georadiusbymember",
        run: search::georadiusbymember,
        arity: -5,
        flags: WRITE | DENYOOM,
        keys: &[key1(RO | ACCESS), behind("STORE", 5), behind("STOREDIST", 5)],
        keys_fn: Some(search::keys),
        since: "3.2.0",
        summary: "Finds the members within a distance of a member, and stores them if that is wanted.",
        arguments: &[KEY, string("member"), double("radius"), UNIT, WITHCOORD, WITHDIST, WITHHASH, COUNT, ORDER, STORE],
        history: &[("6.2.0", "`ANY`."), ("7.0.0", "Names of units in any case.")],
        deprecated: Some(("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments")),
        ..GEO
    },
    Command {
        name: "georadiusbymember_ro",
        run: search::georadiusbymember_ro,
        arity: -5,
        flags: READONLY,
        since: "3.2.10",
        summary: "Finds the members within a distance of a member.",
        arguments: &[KEY, string("member"), double("radius"), UNIT, WITHCOORD, WITHDIST, WITHHASH, COUNT, ORDER],
        history: &[("6.2.0", "`ANY`."), ("7.0.0", "Names of units in any case.")],
        deprecated: Some(("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments")),
        ..GEO
    },
];
