//! Commands over several shards act at once: no reader ever sees half of one, and none hangs, however many workers meet.
//!
//! Each test runs clients against invariants that hold between any two commands: keys that are only ever set together
//! are equal, tokens that are only ever renamed keep their number, what is taken was put.

mod in_process;
mod running;

use gimmal_resp::{Reply, encode_command};
use in_process::{InProcess, Random};
use running::Client;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long each mix runs.
const RUN: Duration = Duration::from_millis(2500);

/// One worker has no one to meet, two have each other, eight share the processors.
const WORKERS: [usize; 3] = [1, 2, 8];

/// Runs `clients` threads of `body(number, client, random, stop)` against a new server until the time is over.
fn stress(clients: usize, body: impl Fn(usize, &mut Client, &mut Random, &AtomicBool) + Sync) {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..clients {
                let (body, stop, server) = (&body, &stop, &server);
                scope.spawn(move || {
                    let mut random = Random(number as u64 * 7919 + workers as u64);
                    body(number, &mut server.connect(), &mut random, stop);
                });
            }
            let started = Instant::now();
            while started.elapsed() < RUN {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
    }
}

fn words(command: &str, rest: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(command.to_owned()).chain(rest).collect()
}

fn call(client: &mut Client, words: &[String]) -> Reply {
    client.call(&words.iter().map(String::as_bytes).collect::<Vec<_>>())
}

fn strings(reply: &Reply) -> Vec<Option<String>> {
    let list = reply.as_list().unwrap_or_else(|| panic!("no array: {reply:?}"));
    list.iter().map(|item| item.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())).collect()
}

#[test]
fn keys_that_are_set_together_are_equal() {
    // From a few shards to nearly all: wide commands only get their locks behind the closed gate.
    const WIDTHS: [usize; 4] = [3, 12, 100, 1500];
    let group = |g: usize| (0..WIDTHS[g]).map(move |i| format!("group{g}:{i}"));
    let (writes, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    stress(6, |number, client, random, stop| {
        let mut n = 0;
        while !stop.load(Relaxed) {
            let g = random.below(WIDTHS.len());
            if number % 2 == 0 {
                n += 1;
                let value = format!("{number}-{n}");
                let pairs = group(g).flat_map(|key| [key, value.clone()]);
                assert_eq!(call(client, &words("MSET", pairs)), Reply::Simple(b"OK".to_vec()));
                writes.fetch_add(1, Relaxed);
            } else {
                let values = strings(&call(client, &words("MGET", group(g))));
                let torn = values.iter().find(|value| **value != values[0]);
                assert!(torn.is_none(), "a torn read of {} keys: {:?} and {torn:?}", values.len(), values[0]);
                reads.fetch_add(1, Relaxed);
            }
        }
    });
    eprintln!("{} MSET, {} MGET", writes.load(Relaxed), reads.load(Relaxed));
    assert!(writes.load(Relaxed) > 100 && reads.load(Relaxed) > 100, "hardly anything ran");
}

#[test]
fn conditional_sets_are_all_or_nothing() {
    let keys = |i: usize| (0..6).map(move |j| format!("nx{i}:{j}")).collect::<Vec<_>>();
    stress(6, |number, client, random, stop| {
        let mut n = 0;
        while !stop.load(Relaxed) {
            let keys = keys(random.below(4));
            n += 1;
            let value = format!("{number}-{n}");
            match random.below(3) {
                0 => {
                    let pairs = keys.iter().flat_map(|key| [key.clone(), value.clone()]);
                    let reply = call(client, &words("MSETNX", pairs));
                    assert!(matches!(reply, Reply::Integer(0 | 1)), "{reply:?}");
                }
                1 => {
                    // All were there or none: the counts of DEL and EXISTS are 0 or all.
                    let reply = call(client, &words("DEL", keys));
                    assert!(matches!(reply, Reply::Integer(0 | 6)), "{reply:?}");
                }
                _ => {
                    let values = strings(&call(client, &words("MGET", keys)));
                    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                }
            }
        }
    });
}

#[test]
fn renamed_tokens_keep_their_number() {
    const SLOTS: usize = 8;
    const TOKENS: usize = 5;
    const CLIENTS: usize = 5;
    // Each client has a hand, into which it takes a token before it puts it elsewhere.
    let places = |ring: usize| {
        let hands = (0..CLIENTS).map(move |hand| format!("hand{ring}:{hand}"));
        (0..SLOTS).map(move |slot| format!("slot{ring}:{slot}")).chain(hands)
    };
    let moved = AtomicU64::new(0);
    stress(CLIENTS + 1, |number, client, random, stop| {
        let ring = random.below(2);
        if number == CLIENTS {
            for ring in 0..2 {
                let tokens = (0..TOKENS).flat_map(|i| [format!("slot{ring}:{i}"), format!("token{i}")]);
                // Once only: the movers may have begun.
                call(client, &words("MSETNX", tokens));
            }
            while !stop.load(Relaxed) {
                let mut tokens = strings(&call(client, &words("MGET", places(random.below(2)))));
                tokens.retain(Option::is_some);
                tokens.sort();
                let expected: Vec<_> = (0..TOKENS).map(|i| Some(format!("token{i}"))).collect();
                assert_eq!(tokens, expected, "tokens were lost or doubled");
            }
            return;
        }
        let hand = format!("hand{ring}:{number}");
        while !stop.load(Relaxed) {
            let from = format!("slot{ring}:{}", random.below(SLOTS));
            // The hand is empty, so RENAME overwrites nothing.
            let reply = call(client, &["RENAME".to_owned(), from, hand.clone()]);
            if reply.is_error() {
                assert_eq!(reply, Reply::Error(b"ERR no such key".to_vec()));
                continue;
            }
            loop {
                let to = format!("slot{ring}:{}", random.below(SLOTS));
                match call(client, &["RENAMENX".to_owned(), hand.clone(), to]) {
                    Reply::Integer(1) => break,
                    Reply::Integer(0) => {}
                    other => panic!("{other:?}"),
                }
            }
            moved.fetch_add(1, Relaxed);
        }
    });
    eprintln!("{} tokens moved", moved.load(Relaxed));
    assert!(moved.load(Relaxed) > 100, "hardly anything ran");
}

#[test]
fn copies_show_a_state_that_was() {
    // One writer raises `source` and `shadow` together; copies are taken by others, within and between databases.
    stress(5, |number, client, random, stop| {
        let mut last = 0;
        let number_of =
            |value: &Option<String>| value.as_ref().map_or(0, |text| text.parse::<u64>().expect("a number"));
        while !stop.load(Relaxed) {
            match number {
                0 => {
                    last += 1;
                    let pairs = ["source", "shadow"].map(|key| [key.to_owned(), last.to_string()]);
                    call(client, &words("MSET", pairs.concat()));
                }
                1 | 2 => {
                    let to_copy = ["COPY", "source", "copy", "REPLACE"].map(str::to_owned);
                    let across = ["COPY", "source", "copy", "DB", "1", "REPLACE"].map(str::to_owned);
                    let reply = match random.once_in(2) {
                        true => call(client, &to_copy),
                        false => call(client, &across),
                    };
                    assert!(matches!(reply, Reply::Integer(0 | 1)), "{reply:?}");
                }
                _ => {
                    let keys = ["source", "shadow", "copy"].map(str::to_owned);
                    let values = strings(&call(client, &words("MGET", keys)));
                    assert_eq!(values[0], values[1], "a torn MSET");
                    let copy = number_of(&values[2]);
                    assert!(copy <= number_of(&values[0]), "a copy of the future: {values:?}");
                    assert!(copy >= last, "the copy went back from {last} to {copy}");
                    last = copy;
                }
            }
        }
    });
}

#[test]
fn counters_lose_nothing() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let stop = AtomicBool::new(false);
        let (added, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..5_u64 {
                let (server, stop, added, taken) = (&server, &stop, &added, &taken);
                scope.spawn(move || {
                    let (mut client, mut random) = (server.connect(), Random(number));
                    while !stop.load(Relaxed) {
                        // Pipelines, so that batches of several connections overlap.
                        let mut bytes = Vec::new();
                        let count = 1 + random.below(20);
                        for _ in 0..count {
                            encode_command(&mut bytes, &["INCR", &format!("counter{}", random.below(3))]);
                        }
                        encode_command(&mut bytes, &["GETDEL", &format!("counter{}", random.below(3))]);
                        client.send(&bytes);
                        for _ in 0..count {
                            let reply = client.reply();
                            assert!(matches!(reply, Reply::Integer(1..)), "{reply:?}");
                        }
                        added.fetch_add(count as u64, Relaxed);
                        if let Reply::Bulk(text) = client.reply() {
                            let text = String::from_utf8(text).expect("digits");
                            taken.fetch_add(text.parse().expect("a number"), Relaxed);
                        }
                    }
                });
            }
            std::thread::sleep(RUN);
            stop.store(true, Relaxed);
        });
        let mut client = server.connect();
        for i in 0..3 {
            if let Reply::Bulk(text) = client.ask(&format!("GETDEL counter{i}")) {
                taken.fetch_add(String::from_utf8(text).expect("digits").parse().expect("a number"), Relaxed);
            }
        }
        eprintln!("{workers} workers: {} added", added.load(Relaxed));
        assert_eq!(added.load(Relaxed), taken.load(Relaxed));
    }
}
