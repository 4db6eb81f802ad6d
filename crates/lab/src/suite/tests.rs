//! What the suites send, and what is asked of each answer.
//!
//! `redis-benchmark` is the list of that program's default tests with the very commands it sends by default (values
//! of 3 bytes, no random keys) or, with `--keys N`, with `-r N`. What differs: commands that take elements away find
//! 1,000,000 before each load, which ends when all are taken, so that no empty key is measured; random keys all
//! exist beforehand, so that a faster server does not meet another mix of new and old keys.

use anyhow::{Result, bail};

use crate::sample::Load;

/// Tests that share what a server is filled with.
pub struct Group {
    pub fills: Vec<Fill>,
    pub tests: Vec<Test>,
}

/// A command sent once for each key; once when there are none.
#[derive(Clone, Debug)]
pub struct Fill {
    pub command: String,
    pub keys: u64,
}

/// One command.
pub struct Test {
    pub name: &'static str,
    pub command: String,
    pub keys: u64,
    pub loads: Vec<Load>,
    /// Sent before each load.
    pub refills: Vec<Fill>,
    /// After so many a load ends.
    pub requests: Option<u64>,
    /// One request takes milliseconds: its loads are small and not changed by the caller.
    pub is_slow: bool,
    pub least_seconds: f64,
    is_large: bool,
}

/// What a test's ratios to the peer must reach.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asks {
    /// Least ratio of throughputs.
    pub throughput: Option<f64>,
    /// Greatest ratio of processor time for a request.
    pub cpu: Option<f64>,
}

impl Test {
    /// What is asked under this load.
    pub fn asks(&self, load: Load) -> Asks {
        match load.pipeline {
            _ if self.is_large => Asks { throughput: Some(1.5), cpu: None },
            1 => Asks { throughput: None, cpu: Some(1.0) },
            16 => Asks { throughput: Some(1.8), cpu: Some(0.6) },
            _ => Asks::default(),
        }
    }
}

const UNPIPELINED: Load = Load { connections: 50, pipeline: 1 };
const PIPELINED: Load = Load { connections: 50, pipeline: 16 };
/// For requests that take milliseconds: one waits while one is served.
const PAIR: Load = Load { connections: 2, pipeline: 1 };

/// The suite of that name; `keys` replaces its number of random keys.
pub fn suite(name: &str, keys: Option<u64>) -> Result<Vec<Group>> {
    match name {
        "redis-benchmark" => Ok(match keys {
            None | Some(0) => redis_benchmark(),
            Some(keys) => redis_benchmark_random(keys),
        }),
        "large" => Ok(large()),
        _ => bail!("no suite {name:?}: there are redis-benchmark and large"),
    }
}

fn redis_benchmark() -> Vec<Group> {
    let mset = format!("MSET{}", " key:__rand_int__ VXK".repeat(10));
    let plain = [
        ("PING_INLINE", "__INLINE__ PING"),
        ("PING_MBULK", "PING"),
        ("SET", "SET key:__rand_int__ VXK"),
        ("GET", "GET key:__rand_int__"),
        ("INCR", "INCR counter:__rand_int__"),
        ("SADD", "SADD myset element:__rand_int__"),
        ("HSET", "HSET myhash element:__rand_int__ VXK"),
        ("ZADD", "ZADD myzset 0 element:__rand_int__"),
        ("MSET", &mset),
    ];
    let ranges = [
        ("LRANGE_100", "LRANGE mylist 0 99"),
        ("LRANGE_300", "LRANGE mylist 0 299"),
        ("LRANGE_500", "LRANGE mylist 0 499"),
        ("LRANGE_600", "LRANGE mylist 0 599"),
    ];
    let small = |(name, command)| small(name, command, 0);
    let alone = |test: Test| Group { fills: Vec::new(), tests: vec![test] };
    let pushes = format!("RPUSH mylist{}", " VXK".repeat(100));
    vec![
        Group { fills: vec![fill("SET key:__rand_int__ VXK", 0)], tests: plain.map(small).into() },
        alone(small(("LPUSH", "LPUSH mylist VXK"))),
        alone(small(("RPUSH", "RPUSH mylist VXK"))),
        alone(taking("LPOP", "LPOP mylist", fill(&pushes, TAKEN / 100))),
        alone(taking("RPOP", "RPOP mylist", fill(&pushes, TAKEN / 100))),
        alone(taking("SPOP", "SPOP myset", fill("SADD myset element:__KEY__", TAKEN))),
        alone(taking("ZPOPMIN", "ZPOPMIN myzset", fill("ZADD myzset 0 element:__KEY__", TAKEN))),
        Group { fills: vec![fill("LPUSH mylist VXK", 100_000)], tests: ranges.map(small).into() },
        alone(small(("XADD", "XADD mystream * myfield VXK"))),
    ]
}

/// The tests whose commands have random parts; sorted set scores are such too, as with `-r`.
fn redis_benchmark_random(keys: u64) -> Vec<Group> {
    let mset = format!("MSET{}", " key:__rand_int__ VXK".repeat(10));
    let test = |(name, command, filling): (_, &str, &str)| Group {
        fills: vec![fill(filling, keys)],
        tests: vec![small(name, command, keys)],
    };
    let tests = [
        ("SET", "SET key:__rand_int__ VXK", "SET key:__KEY__ VXK"),
        ("GET", "GET key:__rand_int__", "SET key:__KEY__ VXK"),
        ("INCR", "INCR counter:__rand_int__", "INCR counter:__KEY__"),
        ("SADD", "SADD myset element:__rand_int__", "SADD myset element:__KEY__"),
        ("HSET", "HSET myhash element:__rand_int__ VXK", "HSET myhash element:__KEY__ VXK"),
        ("ZADD", "ZADD myzset __rand_int__ element:__rand_int__", "ZADD myzset __KEY__ element:__KEY__"),
        ("MSET", &mset, "SET key:__KEY__ VXK"),
    ];
    tests.map(test).into()
}

fn large() -> Vec<Group> {
    const MEMBERS: u64 = 1_000_000;
    const MANY: u64 = 100_000;
    const FIELDS: u64 = 500;
    let ten_fields = (0..10).fold("HSET hash:__KEY__".to_owned(), |line, i| line + &format!(" field:{i} VXK"));
    let board = |(name, command)| large_test(name, command, MEMBERS);
    let slow = |test: Test| Test { loads: vec![PAIR], is_slow: true, least_seconds: 1.0, ..test };
    vec![
        Group {
            fills: vec![fill("ZADD board __KEY__ member:__KEY__", MEMBERS)],
            tests: [
                ("ZRANGE_10", "ZRANGE board __N__ __N+9__"),
                ("ZRANK", "ZRANK board member:__KEY__"),
                ("ZSCORE", "ZSCORE board member:__KEY__"),
                ("ZINCRBY", "ZINCRBY board 1 member:__KEY__"),
                ("ZADD", "ZADD board __rand_int__ member:__rand_int__"),
            ]
            .map(board)
            .into(),
        },
        Group {
            fills: vec![fill("HSET hash field:__KEY__ VXK", FIELDS)],
            tests: vec![
                large_test("HGET_500", "HGET hash field:__KEY__", FIELDS),
                large_test("HSET_500", "HSET hash field:__KEY__ VXK", FIELDS),
                large_test("HGETALL_500", "HGETALL hash", 0),
            ],
        },
        Group {
            fills: vec![fill(&ten_fields, MANY)],
            tests: vec![
                large_test("HGET_10", "HGET hash:__KEY__ field:5", MANY),
                large_test("HSET_10", "HSET hash:__KEY__ field:5 VXK", MANY),
                large_test("HGETALL_10", "HGETALL hash:__KEY__", MANY),
            ],
        },
        Group {
            fills: vec![fill("SADD one member:__N__", MANY), fill("SADD two member:__N+50000__", MANY)],
            tests: vec![
                large_test("SADD", "SADD one member:__N__", MANY),
                slow(large_test("SINTER", "SINTER one two", 0)),
            ],
        },
        Group {
            fills: vec![fill("XADD events __N+1__-1 field VXK", MANY)],
            tests: vec![
                large_test("XRANGE_10", "XRANGE events __N+1__-1 + COUNT 10", MANY),
                large_test("XADD", "XADD events * field VXK", 0),
            ],
        },
        Group {
            fills: vec![fill("RPUSH list VXK", MANY), fill("RPUSH numbers __rand_int__", MANY)],
            tests: vec![
                large_test("LRANGE_600", "LRANGE list 0 599", 0),
                slow(large_test("SORT", "SORT numbers LIMIT 0 10", 0)),
            ],
        },
    ]
}

/// What a load that takes away may take.
const TAKEN: u64 = 1_000_000;

fn taking(name: &'static str, command: &str, refill: Fill) -> Test {
    Test { refills: vec![refill], requests: Some(TAKEN - TAKEN / 100), ..small(name, command, 0) }
}

fn small(name: &'static str, command: &str, keys: u64) -> Test {
    Test {
        name,
        command: command.to_owned(),
        keys,
        loads: vec![UNPIPELINED, PIPELINED],
        refills: Vec::new(),
        requests: None,
        is_slow: false,
        least_seconds: 0.0,
        is_large: false,
    }
}

fn large_test(name: &'static str, command: &str, keys: u64) -> Test {
    Test { loads: vec![PIPELINED], is_large: true, ..small(name, command, keys) }
}

fn fill(command: &str, keys: u64) -> Fill {
    Fill { command: command.to_owned(), keys }
}

#[cfg(test)]
mod checks {
    use super::*;
    use crate::template::Template;

    #[test]
    fn every_command_can_be_sent_and_names_are_unique() {
        for (name, keys) in [("redis-benchmark", None), ("redis-benchmark", Some(1000)), ("large", None)] {
            let groups = suite(name, keys).expect("known");
            let mut names: Vec<&str> = groups.iter().flat_map(|group| group.tests.iter().map(|t| t.name)).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{name}");
            for test in groups.iter().flat_map(|group| &group.tests) {
                assert!(Template::parse(&test.command).is_ok() && !test.loads.is_empty(), "{}", test.name);
            }
        }
    }

    #[test]
    fn what_is_asked_depends_on_the_pipeline() {
        let groups = redis_benchmark();
        let ping = &groups[0].tests[0];
        assert_eq!(ping.asks(PIPELINED), Asks { throughput: Some(1.8), cpu: Some(0.6) });
        assert_eq!(ping.asks(UNPIPELINED), Asks { throughput: None, cpu: Some(1.0) });
        assert_eq!(ping.asks(Load { connections: 50, pipeline: 64 }), Asks::default());
        assert_eq!(large()[0].tests[0].asks(PIPELINED), Asks { throughput: Some(1.5), cpu: None });
    }
}
