//! When two replies are the same: where Redis defines no order or no exact value.
//!
//! Everything is compared whole unless [`NORMALIZED`] says otherwise. What remains is a difference, explained by an
//! entry of `tests/differential/known.txt` or reported.

use super::grammar::Words;
use crate::reply::Reply;
use crate::wire::describe;

/// How the replies of a command are made comparable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// The same items in any order.
    AnyOrder,
    /// The same pairs in any order.
    PairsInAnyOrder,
    /// Integers at most this far apart.
    Within(i64),
    /// The same number of items.
    SameLength,
    /// The same type of reply.
    SameType,
    /// The same, but for scores with 17 digits where fewer tell them as well.
    ShorterScores,
    /// Consumers with the same names and pending entries, whatever their times.
    Consumers,
    /// The same entries of the same consumers, delivered as often and at about the same time.
    Pending,
    /// The same, but for the counts of nodes of a stream's tree.
    NodesApart,
    /// Errors that are the same up to what they quote first.
    BeforeQuotes,
}

/// One exception from comparing whole.
pub struct Normalized {
    /// The commands; none stands for all.
    pub commands: &'static [&'static str],
    /// Which of their uses.
    pub when: fn(&[Vec<u8>]) -> bool,
    /// What is compared.
    pub how: How,
    /// Why not everything.
    pub reason: &'static str,
}

/// All exceptions; the replies are the same if one that applies says so. Draws and scans are steps of their own, see `macros`.
pub const NORMALIZED: &[Normalized] = &[
    Normalized {
        commands: &["SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS"],
        when: always,
        how: How::AnyOrder,
        reason: "sets, hashes and the keyspace have no order",
    },
    Normalized { commands: &["HGETALL"], when: always, how: How::PairsInAnyOrder, reason: "hashes have no order" },
    Normalized {
        commands: &["SORT", "SORT_RO"],
        when: |words| sorts_by_nothing(words) && has(words, "LIMIT"),
        how: How::SameLength,
        reason: "with BY, elements that are not sorted, or compare equal, have any order, and LIMIT takes any of them",
    },
    Normalized {
        commands: &["SORT", "SORT_RO"],
        when: sorts_by_nothing,
        how: How::AnyOrder,
        reason: "with BY, elements that are not sorted, or compare equal, have any order",
    },
    Normalized {
        commands: &["GEORADIUS", "GEORADIUS_RO", "GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO", "GEOSEARCH"],
        when: |words| !has(words, "ASC") && !has(words, "DESC"),
        how: How::AnyOrder,
        reason: "what was not asked to be sorted comes in the order of the areas that were searched",
    },
    Normalized {
        commands: &["PUBSUB", "COMMAND"],
        when: always,
        how: How::AnyOrder,
        reason: "lists of channels and commands have no order",
    },
    Normalized {
        commands: &["TTL", "EXPIRETIME"],
        when: always,
        how: How::Within(3),
        reason: "relative deadlines start at each server's own now",
    },
    Normalized {
        commands: &["PTTL", "PEXPIRETIME"],
        when: always,
        how: How::Within(3000),
        reason: "relative deadlines start at each server's own now",
    },
    Normalized {
        commands: &["OBJECT"],
        when: |words| ["REFCOUNT", "IDLETIME", "FREQ"].iter().any(|name| is(words, 1, name)),
        how: How::SameType,
        reason: "clocks of accesses; and Redis shares small integers with their clocks, but not their copies",
    },
    Normalized {
        commands: &["DUMP"],
        when: always,
        how: How::SameType,
        reason: "the same value has many payloads; see CARRY",
    },
    Normalized {
        commands: &["SCAN", "SSCAN", "HSCAN", "ZSCAN"],
        when: always,
        how: How::SameType,
        reason: "a part of a scan depends on the table; complete scans are compared as sets",
    },
    Normalized {
        commands: &[
            "ZADD",
            "ZINCRBY",
            "ZSCORE",
            "ZMSCORE",
            "ZRANGE",
            "ZREVRANGE",
            "ZRANGEBYSCORE",
            "ZREVRANGEBYSCORE",
            "ZPOPMIN",
            "ZPOPMAX",
            "ZMPOP",
            "BZPOPMIN",
            "BZPOPMAX",
            "BZMPOP",
            "ZUNION",
            "ZINTER",
            "ZDIFF",
            "GEOPOS",
        ],
        when: always,
        how: How::ShorterScores,
        reason: "Redis 7.0 writes doubles with 17 digits, later ones and Valkey with as many as are needed; in its compact \
                 sorted sets -0 is 0, and later ones choose these at other times",
    },
    Normalized {
        commands: &["XINFO"],
        when: |words| is(words, 1, "CONSUMERS"),
        how: How::Consumers,
        reason: "since Redis 7.2 idle times begin with the last try, inactive times with the last entry",
    },
    Normalized {
        commands: &["XPENDING"],
        when: |words| words.len() > 3,
        how: How::Pending,
        reason: "how long ago an entry was delivered is measured",
    },
    Normalized {
        commands: &["SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"],
        when: always,
        how: How::SameType,
        reason: "random; what they draw is looked up in the other server",
    },
    Normalized {
        commands: &["XINFO"],
        when: |words| is(words, 1, "STREAM"),
        how: How::NodesApart,
        reason: "Redis's tree has nodes of its own; how many there are depends on what was deleted before",
    },
    Normalized {
        commands: &[],
        when: |words| words.iter().any(|word| word.contains(&0) || str::from_utf8(word).is_err()),
        how: How::BeforeQuotes,
        reason: "Redis's error texts quote words up to a byte of zero and as they are, Gimmal's are UTF-8",
    },
];

/// SORT by values that may compare equal, or by nothing: Redis breaks ties only between numbers.
fn sorts_by_nothing(words: &[Vec<u8>]) -> bool {
    has(words, "BY") && (has(words, "ALPHA") || by_no_key(words))
}

/// SORT with a pattern that names no key: nothing is sorted.
pub fn by_no_key(words: &[Vec<u8>]) -> bool {
    words.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(b"BY") && !pair[1].contains(&b'*'))
}

fn always(_: &[Vec<u8>]) -> bool {
    true
}

/// Whether a word after the first is `name`, in any case.
pub fn has(words: &[Vec<u8>], name: &str) -> bool {
    words.iter().skip(1).any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether word `at` is `name`, in any case.
pub fn is(words: &[Vec<u8>], at: usize, name: &str) -> bool {
    words.get(at).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether two replies to the command `words` are the same. `queued` are the commands of the transaction that it ends.
pub fn same(words: &[Vec<u8>], redis: &Reply, gimmal: &Reply, queued: Option<&[Words]>) -> bool {
    if redis == gimmal {
        return true;
    }
    if let (Some(queued), Reply::Array(redis), Reply::Array(gimmal)) = (queued, redis, gimmal)
        && is(words, 0, "EXEC")
    {
        return [redis.len(), gimmal.len()] == [queued.len(); 2]
            && redis.iter().zip(gimmal).zip(queued).all(|((redis, gimmal), words)| same(words, redis, gimmal, None));
    }
    let applies = |rule: &Normalized| {
        (rule.commands.is_empty() || rule.commands.iter().any(|command| is(words, 0, command))) && (rule.when)(words)
    };
    NORMALIZED.iter().any(|rule| applies(rule) && rule.how.same(redis, gimmal))
}

impl How {
    fn same(self, redis: &Reply, gimmal: &Reply) -> bool {
        match (self, redis, gimmal) {
            (Self::AnyOrder, Reply::Array(redis), Reply::Array(gimmal))
            | (Self::AnyOrder, Reply::Set(redis), Reply::Set(gimmal)) => sorted(redis.iter()) == sorted(gimmal.iter()),
            (Self::PairsInAnyOrder, Reply::Array(redis), Reply::Array(gimmal)) => {
                sorted(redis.chunks(2)) == sorted(gimmal.chunks(2))
            }
            (Self::PairsInAnyOrder, Reply::Map(redis), Reply::Map(gimmal)) => {
                sorted(redis.iter()) == sorted(gimmal.iter())
            }
            (Self::Within(far), Reply::Integer(redis), Reply::Integer(gimmal)) => {
                // Negative numbers are no measures: -1 and -2 say different things.
                *redis >= 0 && *gimmal >= 0 && redis.abs_diff(*gimmal) <= far.unsigned_abs()
            }
            (Self::SameLength, Reply::Array(redis), Reply::Array(gimmal)) => redis.len() == gimmal.len(),
            (Self::ShorterScores, redis, gimmal) => scores_shorter(redis, gimmal),
            (Self::Consumers, Reply::Array(redis), Reply::Array(gimmal)) => {
                redis.len() == gimmal.len() && redis.iter().zip(gimmal).all(|both| same_consumer(both).unwrap_or(false))
            }
            (Self::Pending, Reply::Array(redis), Reply::Array(gimmal)) => {
                redis.len() == gimmal.len() && redis.iter().zip(gimmal).all(same_pending)
            }
            (Self::NodesApart, redis, gimmal) => {
                without_nodes(redis).is_some_and(|redis| Some(redis) == without_nodes(gimmal))
            }
            (Self::BeforeQuotes, Reply::Error(redis), Reply::Error(gimmal)) => {
                let [redis, gimmal] = [redis, gimmal].map(|text| text.split(|byte| *byte == b'\'').collect::<Vec<_>>());
                redis.len() > 1 && gimmal.len() > 1 && redis[0] == gimmal[0]
            }
            (Self::SameType, Reply::Error(_), _) | (Self::SameType, _, Reply::Error(_)) => false,
            (Self::SameType, redis, gimmal) => std::mem::discriminant(redis) == std::mem::discriminant(gimmal),
            _ => false,
        }
    }
}

fn scores_shorter(redis: &Reply, gimmal: &Reply) -> bool {
    match (redis, gimmal) {
        (Reply::Array(redis), Reply::Array(gimmal)) => {
            redis.len() == gimmal.len() && redis.iter().zip(gimmal).all(|(redis, gimmal)| scores_shorter(redis, gimmal))
        }
        (Reply::Bulk(redis), Reply::Bulk(gimmal)) => redis == gimmal || is_shorter(redis, gimmal),
        (Reply::Double(redis), Reply::Double(gimmal)) => {
            redis == gimmal || is_shorter(redis.as_bytes(), gimmal.as_bytes())
        }
        (redis, gimmal) => redis == gimmal,
    }
}

/// Whether the first is a double that is not written as an integer, and the second the same double, not longer; or one
/// is zero and the other minus zero.
fn is_shorter(redis: &[u8], gimmal: &[u8]) -> bool {
    if matches!((redis, gimmal), (b"0", b"-0") | (b"-0", b"0")) {
        return true;
    }
    let number = |text: &[u8]| str::from_utf8(text).ok()?.parse::<f64>().ok().map(f64::to_bits);
    (gimmal.len() <= redis.len() || redis.contains(&b'e') || gimmal.contains(&b'e'))
        && memchr::memchr2(b'e', b'.', redis).is_some()
        && number(redis).is_some_and(|redis| number(gimmal) == Some(redis))
}

/// Measured times that are so far apart, in milliseconds, are not the same.
const MEASURED_WITHIN_MS: u64 = 3000;

fn same_measure(redis: &Reply, gimmal: &Reply) -> bool {
    matches!((redis, gimmal), (Reply::Integer(redis), Reply::Integer(gimmal))
        if *redis >= 0 && *gimmal >= 0 && redis.abs_diff(*gimmal) <= MEASURED_WITHIN_MS)
}

/// Name and pending entries of a consumer are the same. Both know an idle time, the server under test an inactive time.
fn same_consumer((redis, gimmal): (&Reply, &Reply)) -> Option<bool> {
    let (redis, gimmal) = (flat(redis)?, flat(gimmal)?);
    let ([names @ .., redis_idle], [gimmal_names @ .., gimmal_idle, inactive, since]) = (&redis[..], &gimmal[..])
    else {
        return None;
    };
    let is_idle = |idle: &Reply| matches!(idle, Reply::Integer(idle) if *idle >= 0);
    let is_inactive = matches!((*inactive, *since), (Reply::Bulk(name), Reply::Integer(since)) if name == b"inactive" && *since >= -1);
    Some(names == gimmal_names && is_idle(redis_idle) && is_idle(gimmal_idle) && is_inactive)
}

/// The names and values of a map, which is an array in RESP2.
fn flat(reply: &Reply) -> Option<Vec<&Reply>> {
    match reply {
        Reply::Map(pairs) => Some(pairs.iter().flat_map(|(name, value)| [name, value]).collect()),
        Reply::Array(items) => Some(items.iter().collect()),
        _ => None,
    }
}

/// Names and values of XINFO STREAM, but the values of the counts of nodes.
fn without_nodes(reply: &Reply) -> Option<Vec<&Reply>> {
    let is_count = |name: &Reply| matches!(name, Reply::Bulk(name) if name.starts_with(b"radix-tree-"));
    let fields = flat(reply)?;
    Some(fields.chunks(2).flat_map(|field| if is_count(field[0]) { &field[..1] } else { field }).copied().collect())
}

/// Id, consumer, milliseconds since the delivery, and deliveries.
fn same_pending((redis, gimmal): (&Reply, &Reply)) -> bool {
    match (redis, gimmal) {
        (Reply::Array(redis), Reply::Array(gimmal)) => match (&redis[..], &gimmal[..]) {
            ([id, of, ago, times], [gimmal_id, gimmal_of, gimmal_ago, gimmal_times]) => {
                [id, of, times] == [gimmal_id, gimmal_of, gimmal_times] && same_measure(ago, gimmal_ago)
            }
            _ => false,
        },
        _ => false,
    }
}

/// A score in one form, however many digits it was written with; what is none as it is.
pub fn shortest(text: &[u8]) -> Vec<u8> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number.map_or_else(|| text.to_vec(), |number| format!("{:e}", number + 0.0).into_bytes())
}

/// Items in an order that does not depend on the server.
pub fn sorted<T: std::fmt::Debug>(items: impl Iterator<Item = T>) -> Vec<String> {
    let mut items: Vec<String> = items.map(|item| format!("{item:?}")).collect();
    items.sort_unstable();
    items
}

/// A command as one would type it.
pub fn shown(words: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| match str::from_utf8(word) {
        Ok(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"'\\".contains(&b)) => {
            text.to_owned()
        }
        _ => describe(&Reply::Bulk(word.clone())),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        crate::words::split(line).expect("splits")
    }

    fn bulks(items: &[&str]) -> Reply {
        Reply::Array(items.iter().map(|item| Reply::Bulk(item.as_bytes().to_vec())).collect())
    }

    #[test]
    fn order_counts_where_it_is_defined() {
        let (ab, ba) = (bulks(&["a", "b"]), bulks(&["b", "a"]));
        assert!(same(&words("smembers k"), &ab, &ba, None));
        assert!(!same(&words("LRANGE k 0 -1"), &ab, &ba, None));
        assert!(!same(&words("SMEMBERS k"), &ab, &bulks(&["a", "a"]), None));
        assert!(!same(&words("HGETALL k"), &bulks(&["a", "b", "c", "d"]), &bulks(&["a", "d", "c", "b"]), None));
        let exec = |items: Reply| Reply::Array(vec![items]);
        assert!(same(&words("EXEC"), &exec(ab.clone()), &exec(ba.clone()), Some(&[words("KEYS *")])));
        assert!(!same(&words("EXEC"), &exec(ab.clone()), &exec(ba), Some(&[words("LRANGE k 0 -1")])));
        let (abc, cba) = (bulks(&["a", "b", "c"]), bulks(&["c", "b", "a"]));
        assert!(same(&words("SORT k BY nokey"), &abc, &cba, None));
        assert!(same(&words("SORT k BY nokey LIMIT 1 2"), &ab, &bulks(&["c", "d"]), None));
        assert!(!same(&words("SORT k BY w_* LIMIT 1 2"), &ab, &bulks(&["c", "d"]), None));
        assert!(same(&words("TTL k"), &Reply::Integer(100), &Reply::Integer(99), None));
        assert!(!same(&words("TTL k"), &Reply::Integer(-1), &Reply::Integer(-2), None));
    }

    #[test]
    fn scores_may_be_written_shorter() {
        let zrange = words("ZRANGE z 0 -1 WITHSCORES");
        assert!(same(&zrange, &bulks(&["a", "1.3999999999999999"]), &bulks(&["a", "1.4"]), None));
        assert!(!same(&zrange, &bulks(&["a", "1.3999999999999999"]), &bulks(&["a", "1.5"]), None));
        assert!(same(&zrange, &bulks(&["13801.315926777299"]), &bulks(&["1.3801315926777299e+4"]), None));
        assert!(!same(&zrange, &bulks(&["a", "3"]), &bulks(&["a", "3.0"]), None));
        assert!(same(&zrange, &bulks(&["1e+17"]), &bulks(&["100000000000000000"]), None));
        assert!(!same(&zrange, &bulks(&["1.5"]), &bulks(&["1.50"]), None));
        assert_eq!([shortest(b"1e+17"), shortest(b"-0")], [shortest(b"100000000000000000"), shortest(b"0")]);
        assert!(same(&zrange, &bulks(&["1.8446744073709552e+19"]), &bulks(&["18446744073709552000"]), None));
        assert!(!same(&zrange, &bulks(&["9223372036854775807"]), &bulks(&["9223372036854775808"]), None));
    }

    #[test]
    fn times_of_consumers_are_measured() {
        let (name, count) = (|text: &str| Reply::Bulk(text.as_bytes().to_vec()), Reply::Integer);
        let redis = |who: &str, ago| vec![name("name"), name(who), name("pending"), count(1), name("idle"), count(ago)];
        let gimmal = |who: &str, ago| [redis(who, ago), vec![name("inactive"), count(-1)]].concat();
        let both = |redis, gimmal| {
            let consumers = [redis, gimmal].map(|one| Reply::Array(vec![Reply::Array(one)]));
            same(&words("XINFO CONSUMERS x g"), &consumers[0], &consumers[1], None)
        };
        assert!(both(redis("c", 5), gimmal("c", 9)));
        assert!(!both(redis("c", 5), gimmal("d", 5)) && !both(redis("c", 5), gimmal("c", -9)));
        assert!(!both(redis("c", 5), redis("c", 9)), "one without the time is not of the server under test");
        let pending =
            |who: &str, ago| Reply::Array(vec![Reply::Array(vec![name("1-0"), name(who), count(ago), count(1)])]);
        let xpending = words("XPENDING x g - + 9");
        assert!(same(&xpending, &pending("c", 5), &pending("c", 7), None));
        assert!(!same(&xpending, &pending("c", 5), &pending("d", 5), None));
    }

    #[test]
    fn what_is_quoted_and_nodes_may_differ() {
        let [redis, gimmal] =
            ["ERR unknown option \'\'", "ERR unknown option \'x\'"].map(|text| Reply::Error(text.into()));
        assert!(same(&words("XADD \"\\x00\""), &redis, &gimmal, None));
        assert!(!same(&words("XADD k"), &redis, &gimmal, None));
        assert!(!same(&words("XADD \"\\x00\""), &redis, &Reply::Error(b"ERR another \'x\'".to_vec()), None));
        let info = |nodes: i64, length: i64| {
            let (name, count) = (|text: &str| Reply::Bulk(text.as_bytes().to_vec()), Reply::Integer);
            Reply::Array(vec![name("length"), count(length), name("radix-tree-keys"), count(nodes)])
        };
        assert!(same(&words("XINFO STREAM x"), &info(1, 5), &info(2, 5), None));
        assert!(!same(&words("XINFO STREAM x"), &info(1, 5), &info(1, 6), None));
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(NORMALIZED.iter().all(|rule| !rule.reason.is_empty()));
    }
}
