//! Sorted sets: ZADD, ZRANGE and their kin. What a sorted set is: `gimmal_store`; what the wire says about it: here.
//!
//! Long replies are written from the set's root after the lock is released.

pub(in crate::commands) mod add;
mod blocking;
mod bounds;
mod combine;
pub mod pop;
mod range;
pub(in crate::commands) mod read;
mod remove;

use crate::args::Args;
use crate::arguments::{block, double, integer, key, one_of, pattern, string, word};
use crate::command::{
    Argument, Begin, Command, Find, KeySpec, Sought, acl, flag::*, key_at, key_range, key1, keyflag::*,
};
use crate::exec::{Exec, Key, Stop, WRONG_TYPE};
use crate::notify;
use crate::reply::Reply;
use crate::streamed::Elements;
use gimmal_store::types::{Aggregate, Limits, Scored, SortedSet, SortedSetRef};
use gimmal_store::{Entry, ValueRef};
use std::ops::Range;

const KEY: Argument = key("key", 0);
const WITHSCORES: Argument = word("withscores", "WITHSCORES").optional();
const WEIGHTS: Argument = integer("weight").after("WEIGHTS").optional().many();
const AGGREGATE: Argument =
    one_of("aggregate", &[word("sum", "SUM"), word("min", "MIN"), word("max", "MAX")]).after("AGGREGATE").optional();
const LIMIT: Argument = block("limit", &[integer("offset"), integer("count")]).after("LIMIT").optional();
const SORT_BY: Argument = one_of("sortby", &[word("byscore", "BYSCORE"), word("bylex", "BYLEX")]).optional();

/// Keys behind their number, which is argument `at`.
const fn keynum(at: usize, flags: u32) -> KeySpec {
    KeySpec { flags, begin: Begin::Index(at), find: Find::KeyNum { at: 0, first: 1, step: 1 }, notes: "" }
}

/// What all commands of the family have in common.
const SORTED_SET: Command =
    Command { acl: acl::SORTEDSET, group: "sorted_set", keys: &[key1(RO | ACCESS)], ..Command::DEFAULT };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "zadd",
        run: add::zadd,
        sought: Some(Sought::pairs(3).with_places()),
        arity: -4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | UPDATE)],
        since: "1.2.0",
        complexity: "O(log(N)) for each member",
        summary: "Adds members to a sorted set, or changes their scores.",
        arguments: &[
            KEY,
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).optional().since("3.0.2"),
            one_of("comparison", &[word("gt", "GT"), word("lt", "LT")]).optional().since("6.2.0"),
            word("change", "CH").optional().since("3.0.2"),
            word("increment", "INCR").optional().since("3.0.2"),
            block("data", &[double("score"), string("member")]).many(),
        ],
        history: &[
            ("2.4.0", "Several members at once."),
            ("3.0.2", "`XX`, `NX`, `CH` and `INCR`."),
            ("6.2.0", "`GT` and `LT`."),
        ],
        ..SORTED_SET
    },
    Command {
        name: "zincrby",
        run: add::zincrby,
        sought: Some(Sought::at(3).with_places()),
        arity: 4,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | ACCESS | UPDATE)],
        since: "1.2.0",
        complexity: "O(log(N))",
        summary: "Adds to the score of a member of a sorted set.",
        arguments: &[KEY, integer("increment"), string("member")],
        ..SORTED_SET
    },
    Command {
        name: "zrem",
        run: remove::zrem,
        sought: Some(Sought::from(2).with_places()),
        arity: -3,
        flags: WRITE | FAST,
        keys: &[key1(RW | DELETE)],
        since: "1.2.0",
        complexity: "O(M*log(N)) for M members",
        summary: "Removes members from a sorted set.",
        arguments: &[KEY, string("member").many()],
        history: &[("2.4.0", "Several members at once.")],
        ..SORTED_SET
    },
    Command {
        name: "zremrangebyrank",
        run: remove::zremrangebyrank,
        arity: 4,
        flags: WRITE,
        keys: &[key1(RW | DELETE)],
        since: "2.0.0",
        complexity: "O(log(N)+M) for M members removed",
        summary: "Removes the members of a range of ranks.",
        arguments: &[KEY, integer("start"), integer("stop")],
        ..SORTED_SET
    },
    Command {
        name: "zremrangebyscore",
        run: remove::zremrangebyscore,
        arity: 4,
        flags: WRITE,
        keys: &[key1(RW | DELETE)],
        since: "1.2.0",
        complexity: "O(log(N)+M) for M members removed",
        summary: "Removes the members of a range of scores.",
        arguments: &[KEY, double("min"), double("max")],
        ..SORTED_SET
    },
    Command {
        name: "zremrangebylex",
        run: remove::zremrangebylex,
        arity: 4,
        flags: WRITE,
        keys: &[key1(RW | DELETE)],
        since: "2.8.9",
        complexity: "O(log(N)+M) for M members removed",
        summary: "Removes the members of a range of members, where all scores are the same.",
        arguments: &[KEY, string("min"), string("max")],
        ..SORTED_SET
    },
    Command {
        name: "zcard",
        run: read::zcard,
        arity: 2,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        since: "1.2.0",
        complexity: "O(1)",
        summary: "Counts the members of a sorted set.",
        arguments: &[KEY],
        ..SORTED_SET
    },
    Command {
        name: "zscore",
        run: read::zscore,
        sought: Some(Sought::at(2)),
        arity: 3,
        flags: READONLY | FAST,
        since: "1.2.0",
        complexity: "O(1)",
        summary: "Answers the score of a member.",
        arguments: &[KEY, string("member")],
        ..SORTED_SET
    },
    Command {
        name: "zmscore",
        run: read::zmscore,
        sought: Some(Sought::from(2)),
        arity: -3,
        flags: READONLY | FAST,
        since: "6.2.0",
        complexity: "O(M) for M members",
        summary: "Answers the scores of several members.",
        arguments: &[KEY, string("member").many()],
        ..SORTED_SET
    },
    Command {
        name: "zrank",
        run: read::zrank,
        sought: Some(Sought::at(2).with_places()),
        arity: -3,
        flags: READONLY | FAST,
        since: "2.0.0",
        complexity: "O(log(N))",
        summary: "Answers how many members of a sorted set lie before a member.",
        arguments: &[KEY, string("member"), word("withscore", "WITHSCORE").optional()],
        history: &[("7.2.0", "`WITHSCORE`.")],
        ..SORTED_SET
    },
    Command {
        name: "zrevrank",
        run: read::zrevrank,
        sought: Some(Sought::at(2).with_places()),
        arity: -3,
        flags: READONLY | FAST,
        since: "2.0.0",
        complexity: "O(log(N))",
        summary: "Answers how many members of a sorted set lie behind a member.",
        arguments: &[KEY, string("member"), word("withscore", "WITHSCORE").optional()],
        history: &[("7.2.0", "`WITHSCORE`.")],
        ..SORTED_SET
    },
    Command {
        name: "zcount",
        run: read::zcount,
        arity: 4,
        flags: READONLY | FAST,
        since: "2.0.0",
        complexity: "O(log(N))",
        summary: "Counts the members in a range of scores.",
        arguments: &[KEY, double("min"), double("max")],
        ..SORTED_SET
    },
    Command {
        name: "zlexcount",
        run: read::zlexcount,
        arity: 4,
        flags: READONLY | FAST,
        since: "2.8.9",
        complexity: "O(log(N))",
        summary: "Counts the members in a range of members, where all scores are the same.",
        arguments: &[KEY, string("min"), string("max")],
        ..SORTED_SET
    },
    Command {
        name: "zrandmember",
        run: read::zrandmember,
        arity: -2,
        flags: READONLY,
        since: "6.2.0",
        complexity: "O(M) for M members answered",
        summary: "Answers one or several members, chosen at random.",
        arguments: &[KEY, block("options", &[integer("count"), WITHSCORES]).optional()],
        tips: &["nondeterministic_output"],
        ..SORTED_SET
    },
    Command {
        name: "zscan",
        run: read::zscan,
        arity: -3,
        flags: READONLY,
        since: "2.8.0",
        complexity: "O(1) for each call",
        summary: "Visits the members of a sorted set, some with each call.",
        arguments: &[
            KEY,
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            word("noscores", "NOSCORES").optional(),
        ],
        tips: &["nondeterministic_output"],
        history: &[("8.0.0", "`NOSCORES`.")],
        ..SORTED_SET
    },
    Command {
        name: "zrange",
        run: range::zrange,
        arity: -4,
        flags: READONLY,
        since: "1.2.0",
        complexity: "O(log(N)+M) for M members answered",
        summary: "Answers the members in a range of ranks, scores or members.",
        arguments: &[
            KEY,
            string("start"),
            string("stop"),
            SORT_BY.since("6.2.0"),
            word("rev", "REV").optional().since("6.2.0"),
            LIMIT.since("6.2.0"),
            WITHSCORES,
        ],
        history: &[("6.2.0", "`REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")],
        ..SORTED_SET
    },
    Command {
        name: "zrevrange",
        run: range::zrevrange,
        arity: -4,
        flags: READONLY,
        since: "1.2.0",
        complexity: "O(log(N)+M) for M members answered",
        summary: "Answers the members in a range of ranks that are counted from the highest score.",
        arguments: &[KEY, integer("start"), integer("stop"), WITHSCORES],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `REV` argument")),
        ..SORTED_SET
    },
    Command {
        name: "zrangebyscore",
        run: range::zrangebyscore,
        arity: -4,
        flags: READONLY,
        since: "1.0.5",
        complexity: "O(log(N)+M) for M members answered",
        summary: "Answers the members in a range of scores.",
        arguments: &[KEY, double("min"), double("max"), WITHSCORES.since("2.0.0"), LIMIT],
        history: &[("2.0.0", "`WITHSCORES`.")],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `BYSCORE` argument")),
        ..SORTED_SET
    },
    Command {
        name: "zrevrangebyscore",
        run: range::zrevrangebyscore,
        arity: -4,
        flags: READONLY,
        since: "2.2.0",
        complexity: "O(log(N)+M) for M members answered",
        summary: "Answers the members in a range of scores, the highest score first.",
        arguments: &[KEY, double("max"), double("min"), WITHSCORES, LIMIT],
        history: &[("2.1.6", "Ends can be excluded.")],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")),
        ..SORTED_SET
    },
    Command {
        name: "zrangebylex",
        run: range::zrangebylex,
        arity: -4,
        flags: READONLY,
        since: "2.8.9",
        complexity: "O(log(N)+M) for M members answered",
        summary: "Answers the members in a range of members, where all scores are the same.",
        arguments: &[KEY, string("min"), string("max"), LIMIT],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `BYLEX` argument")),
        ..SORTED_SET
    },
    Command {
        name: "zrevrangebylex",
        run: range::zrevrangebylex,
        arity: -4,
        flags: READONLY,
        since: "2.8.9",
        complexity: "O(log(N)+M) for M members answered",
        summary: "Answers the members in a range of members from its end, where all scores are the same.",
        arguments: &[KEY, string("max"), string("min"), LIMIT],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")),
        ..SORTED_SET
    },
    Command {
        name: "zrangestore",
        run: range::zrangestore,
        arity: -5,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE), key_at(2, RO | ACCESS)],
        since: "6.2.0",
        complexity: "O(log(N)+M) for M members stored",
        summary: "Stores the members in a range of a sorted set at another key.",
        arguments: &[
            key("dst", 0),
            key("src", 1),
            string("min"),
            string("max"),
            SORT_BY,
            word("rev", "REV").optional(),
            LIMIT,
        ],
        ..SORTED_SET
    },
    Command {
        name: "zpopmin",
        run: pop::zpopmin,
        arity: -2,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | DELETE)],
        since: "5.0.0",
        complexity: "O(M*log(N)) for M members",
        summary: "Takes members of the lowest scores out of a sorted set.",
        arguments: &[KEY, integer("count").optional()],
        ..SORTED_SET
    },
    Command {
        name: "zpopmax",
        run: pop::zpopmax,
        arity: -2,
        flags: WRITE | FAST,
        keys: &[key1(RW | ACCESS | DELETE)],
        since: "5.0.0",
        complexity: "O(M*log(N)) for M members",
        summary: "Takes members of the highest scores out of a sorted set.",
        arguments: &[KEY, integer("count").optional()],
        ..SORTED_SET
    },
    Command {
        name: "zmpop",
        run: pop::zmpop,
        arity: -4,
        flags: WRITE,
        keys: &[keynum(1, RW | ACCESS | DELETE)],
        since: "7.0.0",
        complexity: "O(K)+O(M*log(N)) for K keys and M members",
        summary: "Takes members out of the first of several sorted sets that has any.",
        arguments: &[
            integer("numkeys"),
            KEY.many(),
            one_of("where", &[word("min", "MIN"), word("max", "MAX")]),
            integer("count").after("COUNT").optional(),
        ],
        ..SORTED_SET
    },
    Command {
        name: "bzpopmin",
        run: blocking::bzpopmin,
        arity: -3,
        flags: WRITE | FAST | BLOCKING,
        keys: &[key_range(1, -2, 1, RW | ACCESS | DELETE)],
        since: "5.0.0",
        complexity: "O(log(N))",
        summary: "Takes the member of the lowest score out of the first of several sorted sets that has any, or waits for one.",
        arguments: &[KEY.many(), double("timeout")],
        history: &[("6.0.0", "The timeout may have a fraction.")],
        ..SORTED_SET
    },
    Command {
        name: "bzpopmax",
        run: blocking::bzpopmax,
        arity: -3,
        flags: WRITE | FAST | BLOCKING,
        keys: &[key_range(1, -2, 1, RW | ACCESS | DELETE)],
        since: "5.0.0",
        complexity: "O(log(N))",
        summary: "Takes the member of the highest score out of the first of several sorted sets that has any, or waits for one.",
        arguments: &[KEY.many(), double("timeout")],
        history: &[("6.0.0", "The timeout may have a fraction.")],
        ..SORTED_SET
    },
    Command {
        name: "bzmpop",
        run: blocking::bzmpop,
        arity: -5,
        flags: WRITE | BLOCKING,
        keys: &[keynum(2, RW | ACCESS | DELETE)],
        since: "7.0.0",
        complexity: "O(K)+O(M*log(N)) for K keys and M members",
        summary: "Takes members out of the first of several sorted sets that has any, or waits for one.",
        arguments: &[
            double("timeout"),
            integer("numkeys"),
            KEY.many(),
            one_of("where", &[word("min", "MIN"), word("max", "MAX")]),
            integer("count").after("COUNT").optional(),
        ],
        ..SORTED_SET
    },
    Command {
        name: "zunion",
        run: combine::zunion,
        arity: -3,
        flags: READONLY,
        keys: &[keynum(1, RO | ACCESS)],
        since: "6.2.0",
        complexity: "O(N)+O(M*log(M)) for N members in all sets and M answered",
        summary: "Answers the members that are in any of several sorted sets.",
        arguments: &[integer("numkeys"), KEY.many(), WEIGHTS, AGGREGATE, WITHSCORES],
        ..SORTED_SET
    },
    Command {
        name: "zunionstore",
        run: combine::zunionstore,
        arity: -4,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE), keynum(2, RO | ACCESS)],
        since: "2.0.0",
        complexity: "O(N)+O(M*log(M)) for N members in all sets and M stored",
        summary: "Stores the members that are in any of several sorted sets.",
        arguments: &[key("destination", 0), integer("numkeys"), key("key", 1).many(), WEIGHTS, AGGREGATE],
        ..SORTED_SET
    },
    Command {
        name: "zinter",
        run: combine::zinter,
        arity: -3,
        flags: READONLY,
        keys: &[keynum(1, RO | ACCESS)],
        since: "6.2.0",
        complexity: "O(N*K)+O(M*log(M)) for N members in the smallest of K sets and M answered",
        summary: "Answers the members that are in all of several sorted sets.",
        arguments: &[integer("numkeys"), KEY.many(), WEIGHTS, AGGREGATE, WITHSCORES],
        ..SORTED_SET
    },
    Command {
        name: "zinterstore",
        run: combine::zinterstore,
        arity: -4,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE), keynum(2, RO | ACCESS)],
        since: "2.0.0",
        complexity: "O(N*K)+O(M*log(M)) for N members in the smallest of K sets and M stored",
        summary: "Stores the members that are in all of several sorted sets.",
        arguments: &[key("destination", 0), integer("numkeys"), key("key", 1).many(), WEIGHTS, AGGREGATE],
        ..SORTED_SET
    },
    Command {
        name: "zintercard",
        run: combine::zintercard,
        arity: -3,
        flags: READONLY,
        keys: &[keynum(1, RO | ACCESS)],
        since: "7.0.0",
        complexity: "O(N*K) for N members in the smallest of K sets",
        summary: "Counts the members that are in all of several sorted sets.",
        arguments: &[integer("numkeys"), KEY.many(), integer("limit").after("LIMIT").optional()],
        ..SORTED_SET
    },
    Command {
        name: "zdiff",
        run: combine::zdiff,
        arity: -3,
        flags: READONLY,
        keys: &[keynum(1, RO | ACCESS)],
        since: "6.2.0",
        complexity: "O(L+(N-K)*log(N)) for L members in all sets, N in the first and K in the result",
        summary: "Answers the members of the first of several sorted sets that are in none of the others.",
        arguments: &[integer("numkeys"), KEY.many(), WITHSCORES],
        ..SORTED_SET
    },
    Command {
        name: "zdiffstore",
        run: combine::zdiffstore,
        arity: -4,
        flags: WRITE | DENYOOM,
        keys: &[key1(OW | UPDATE), keynum(2, RO | ACCESS)],
        since: "6.2.0",
        complexity: "O(L+(N-K)*log(N)) for L members in all sets, N in the first and K in the result",
        summary: "Stores the members of the first of several sorted sets that are in none of the others.",
        arguments: &[key("destination", 0), integer("numkeys"), key("key", 1).many()],
        ..SORTED_SET
    },
];

/// The sorted set of an entry.
///
/// # Errors
/// WRONGTYPE if it is of another type.
pub fn sorted_set_of<'m>(entry: &Entry<'m>) -> Result<SortedSetRef<'m>, Stop> {
    match entry.value() {
        ValueRef::SortedSet(set) => Ok(set),
        _ => Err(Stop::Error(WRONG_TYPE)),
    }
}

/// The thresholds of the compact encoding.
pub fn limits(exec: &Exec<'_>) -> Limits {
    let config = &exec.local.config;
    Limits { entries: config.zset_max_listpack_entries(), value: config.zset_max_listpack_value() }
}

/// A new sorted set of these members, which are in order and different.
pub(super) fn sorted(members: &[Scored<'_>], limits: Limits) -> SortedSet {
    let mut set = SortedSet::empty_in(Vec::new());
    set.expect(members.len(), members.iter().map(|found| found.member.len()).max().unwrap_or(0), limits);
    members.iter().for_each(|found| _ = set.put(found.member, found.score, limits));
    set
}

/// Records a change of a key as the command that was given.
pub(super) fn record(exec: &mut Exec<'_>, key: Key<'_, '_>, args: &Args<'_>, changes: usize) {
    const FEW: usize = 8;
    if args.len() <= FEW {
        let mut words: [&[u8]; FEW] = [&[]; FEW];
        args.rest(0).zip(&mut words).for_each(|(arg, word)| *word = arg);
        exec.effect(key, &words[..args.len()]);
    } else {
        let words: Vec<&[u8]> = if exec.local.log_active { args.rest(0).collect() } else { Vec::new() };
        exec.effect(key, &words);
    }
    exec.changed(changes as u64 - 1);
}

/// Stores the result of a command at its destination of this name, or removes that if there is no result; `record` is told the number
/// of changes. Returns the number of members.
pub(super) fn store<'l>(
    exec: &mut Exec<'_>,
    mut key: Key<'_, 'l>,
    name: &[u8],
    event: &'static str,
    result: Option<SortedSet>,
    record: impl FnOnce(&mut Exec<'_>, Key<'_, 'l>, usize),
) -> usize {
    let there = exec.peek(key.again()).is_some();
    let Some(result) = result.filter(|result| !result.view().is_empty()) else {
        if there {
            drop(exec.remove(key.again()));
            record(exec, key, 1);
            exec.notify(notify::GENERIC, "del", name);
        }
        return 0;
    };
    let count = result.view().len();
    let _old = exec.put_aggregate(key.again(), Aggregate::SortedSet(result), None);
    record(exec, key, count);
    exec.notify(notify::ZSET, event, name);
    count
}

/// Writes a member, and its score if that is wanted; in RESP3 the two are an array.
#[inline]
fn write_scored(reply: &mut Reply<'_>, found: Scored<'_>, with_score: bool) {
    let mut reply = reply.put();
    if !with_score {
        return reply.bulk(found.member);
    }
    if reply.is_proto3() {
        reply.array(2);
    }
    reply.bulk(found.member);
    reply.double(found.score);
}

/// Members of a set of a moment, held by its root, to be written in slices.
struct Whole {
    set: SortedSet,
    ranks: Range<usize>,
    reverse: bool,
    with_scores: bool,
}

impl Whole {
    fn new(set: SortedSetRef<'_>, ranks: Range<usize>, reverse: bool, with_scores: bool) -> Whole {
        Whole { set: set.to_owned(), ranks, reverse, with_scores }
    }

    fn len(&self) -> usize {
        self.ranks.len()
    }
}

impl Elements for Whole {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        let ranks = if self.reverse {
            self.ranks.end - ranks.end..self.ranks.end - ranks.start
        } else {
            self.ranks.start + ranks.start..self.ranks.start + ranks.end
        };
        for found in self.set.view().range(ranks, self.reverse) {
            write_scored(reply, found, self.with_scores);
        }
    }
}
