//! When two replies are the same: where Redis defines no order or no exact value, and the differences that are known.
//!
//! Everything is compared whole unless [`NORMALIZED`] says otherwise. What remains is a difference, explained by an
//! entry of `tests/differential/known.txt` or reported.

use std::cell::Cell;

use anyhow::{Context, Result, ensure};

use super::grammar::Words;
use crate::reply::Reply;
use crate::wire::{describe, glob_matches};

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
}

/// One exception from comparing whole.
pub struct Normalized {
    /// The commands.
    pub commands: &'static [&'static str],
    /// Which of their uses.
    pub when: fn(&[Vec<u8>]) -> bool,
    /// What is compared.
    pub how: How,
    /// Why not everything.
    pub reason: &'static str,
}

/// All exceptions, the first that applies counts. Draws and scans are steps of their own, see `macros`.
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
        when: |words| is(words, 1, "IDLETIME") || is(words, 1, "FREQ"),
        how: How::Within(10),
        reason: "clocks of accesses",
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
        reason: "Redis 7.0 writes doubles with 17 digits, later ones and Valkey with as many as are needed",
    },
    Normalized {
        commands: &["SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"],
        when: always,
        how: How::SameType,
        reason: "random; what they draw is looked up in the other server",
    },
];

/// SORT by values that may compare equal: Redis breaks ties only between numbers.
fn sorts_by_nothing(words: &[Vec<u8>]) -> bool {
    has(words, "BY") && (has(words, "ALPHA") || has(words, "nosort") || has(words, "#"))
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
    let normalized =
        NORMALIZED.iter().find(|rule| rule.commands.iter().any(|command| is(words, 0, command)) && (rule.when)(words));
    normalized.is_some_and(|rule| rule.how.same(redis, gimmal))
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
            (Self::SameType, Reply::Error(_), _) | (Self::SameType, _, Reply::Error(_)) => false,
            (Self::SameType, redis, gimmal) => std::mem::discriminant(redis) == std::mem::discriminant(gimmal),
            _ => false,
        }
    }
}

fn scores_shorter(redis: &Reply, gimmal: &Reply) -> bool {
    let shorter =
        |redis: &[u8], gimmal: &[u8]| redis == gimmal || redis.len() > 15 && shortest(redis) == shortest(gimmal);
    match (redis, gimmal) {
        (Reply::Array(redis), Reply::Array(gimmal)) => {
            redis.len() == gimmal.len() && redis.iter().zip(gimmal).all(|(redis, gimmal)| scores_shorter(redis, gimmal))
        }
        (Reply::Bulk(redis), Reply::Bulk(gimmal)) => shorter(redis, gimmal),
        (Reply::Double(redis), Reply::Double(gimmal)) => shorter(redis.as_bytes(), gimmal.as_bytes()),
        (redis, gimmal) => redis == gimmal,
    }
}

/// A double in one form, however many digits it was written with; anything else as it is.
pub fn shortest(text: &[u8]) -> Vec<u8> {
    let is_double = memchr::memchr3(b'e', b'.', b'-', text).is_some();
    let number = str::from_utf8(text).ok().filter(|_| is_double).and_then(|text| text.parse::<f64>().ok());
    number.map_or_else(|| text.to_vec(), |number| format!("{number:e}").into_bytes())
}

/// Items in an order that does not depend on the server.
pub fn sorted<T: std::fmt::Debug>(items: impl Iterator<Item = T>) -> Vec<String> {
    let mut items: Vec<String> = items.map(|item| format!("{item:?}")).collect();
    items.sort_unstable();
    items
}

/// The differences that are known, each with its reason.
pub struct Known {
    entries: Vec<Entry>,
}

/// A known difference. The three patterns have `*` and `?` as wildcards.
pub struct Entry {
    /// Why the servers differ.
    pub reason: String,
    /// How often it was met.
    pub met: Cell<u64>,
    command: String,
    redis: String,
    gimmal: String,
    /// The servers' data differ after it, so that the episode cannot go on.
    ends: bool,
}

/// What a known difference means for what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The data are the same.
    GoesOn,
    /// They are not.
    Ends,
}

impl Known {
    /// Reads a list: `== reason`, then lines `command …`, `redis …`, `gimmal …`, and `ends` if the data differ.
    ///
    /// # Errors
    /// A line that is none of these, or an entry that lacks one.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (rest, entry) = (rest.to_owned(), entries.last_mut());
            match (name, entry) {
                ("==", _) => entries.push(Entry {
                    reason: rest,
                    met: Cell::new(0),
                    command: String::new(),
                    redis: String::new(),
                    gimmal: String::new(),
                    ends: false,
                }),
                ("command", Some(entry)) => entry.command = rest,
                ("redis", Some(entry)) => entry.redis = rest,
                ("gimmal", Some(entry)) => entry.gimmal = rest,
                ("ends", Some(entry)) => entry.ends = true,
                _ => return Err(anyhow::anyhow!("not a line of a known difference: {line}")),
            }
        }
        for entry in &entries {
            let complete = ![&entry.reason, &entry.command, &entry.redis, &entry.gimmal].iter().any(|s| s.is_empty());
            ensure!(complete, "a known difference that lacks a line: {}", entry.reason);
        }
        Ok(Self { entries })
    }

    /// Whether the difference is known.
    pub fn explains(
        &self,
        words: &[Vec<u8>],
        redis: &Reply,
        gimmal: &Reply,
        queued: Option<&[Words]>,
    ) -> Option<After> {
        if let (Some(queued), Reply::Array(redis), Reply::Array(gimmal)) = (queued, redis, gimmal)
            && is(words, 0, "EXEC")
        {
            return self.explains_each(queued, redis, gimmal);
        }
        let (command, redis, gimmal) = (shown(words).to_ascii_lowercase(), describe(redis), describe(gimmal));
        let fits = |pattern: &str, text: &str| glob_matches(pattern.as_bytes(), text.as_bytes());
        let entry = self.entries.iter().find(|entry| {
            fits(&entry.command.to_ascii_lowercase(), &command)
                && fits(&entry.redis, &redis)
                && fits(&entry.gimmal, &gimmal)
        })?;
        entry.met.set(entry.met.get() + 1);
        Some(if entry.ends { After::Ends } else { After::GoesOn })
    }

    fn explains_each(&self, queued: &[Words], redis: &[Reply], gimmal: &[Reply]) -> Option<After> {
        if [redis.len(), gimmal.len()] != [queued.len(); 2] {
            return None;
        }
        let mut after = After::GoesOn;
        for ((redis, gimmal), words) in redis.iter().zip(gimmal).zip(queued) {
            if !same(words, redis, gimmal, None) && self.explains(words, redis, gimmal, None)? == After::Ends {
                after = After::Ends;
            }
        }
        Some(after)
    }

    /// All of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
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

/// The list in the repository.
pub fn known() -> Result<Known> {
    Known::parse(include_str!("../../../../tests/differential/known.txt")).context("known.txt")
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
        assert!(!same(&words("EXEC"), &exec(ab), &exec(ba), Some(&[words("LRANGE k 0 -1")])));
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
    }

    #[test]
    fn the_list_is_read_and_explains() {
        let known = Known::parse("== why\ncommand GET *\nredis -ERR a*\ngimmal _\nends\n").expect("a list");
        let error = Reply::Error(b"ERR abc".to_vec());
        assert_eq!(known.explains(&words("get k"), &error, &Reply::Null, None), Some(After::Ends));
        assert_eq!(known.explains(&words("get k"), &Reply::Null, &error, None), None);
        assert!(Known::parse("== why\ncommand GET *\n").is_err());
        assert!(Known::parse("redis x\n").is_err());
        assert!(super::known().is_ok());
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(NORMALIZED.iter().all(|rule| !rule.reason.is_empty() && !rule.commands.is_empty()));
    }
}
