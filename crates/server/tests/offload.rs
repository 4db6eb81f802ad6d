//! Commands whose work a thread does: they act at once, on what there is when they act, whatever others do meanwhile.

mod in_process;
mod running;

use gimmal_resp::Reply;
use in_process::InProcess;
use running::Client;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Enough for a thread.
const MANY: i64 = 6000;

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(number) => *number,
        other => panic!("no number: {other:?}"),
    }
}

fn strings(reply: &Reply) -> Vec<String> {
    let list = reply.as_list().unwrap_or_else(|| panic!("no array: {reply:?}"));
    list.iter().map(|item| String::from_utf8_lossy(item.as_bytes().expect("a string")).into_owned()).collect()
}

/// Adds members of these numbers, with themselves as scores if it is a sorted set.
fn add(client: &mut Client, command: &str, key: &str, numbers: std::ops::Range<i64>) -> i64 {
    let numbers: Vec<i64> = numbers.collect();
    let mut added = 0;
    for part in numbers.chunks(500) {
        let mut words = vec![command.to_owned(), key.to_owned()];
        for number in part {
            match command {
                "ZADD" => words.extend([number.to_string(), format!("m{number}")]),
                "XADD" => words.extend([format!("{number}-1"), "f".into(), "v".into()]),
                _ => words.push(format!("m{number}")),
            }
        }
        added += number(&client.call(&words.iter().map(String::as_bytes).collect::<Vec<_>>()));
    }
    added
}

/// Members that were popped by one client are nobody else's; what comes meanwhile is not lost.
#[test]
fn every_member_is_popped_once() {
    for (add_command, pop, workers) in [("SADD", "SPOP", 1), ("SADD", "SPOP", 2), ("ZADD", "ZPOPMIN", 2)] {
        let server = InProcess::start(workers);
        let total = 60_000;
        let adding = AtomicBool::new(true);
        let popped = Mutex::new(Vec::new());
        add(&mut server.connect(), add_command, "k", 0..total / 2);
        std::thread::scope(|scope| {
            let (server, adding, popped) = (&server, &adding, &popped);
            scope.spawn(move || {
                let mut client = server.connect();
                for from in (total / 2..total).step_by(500) {
                    add(&mut client, add_command, "k", from..from + 500);
                }
                adding.store(false, Relaxed);
            });
            for _ in 0..3 {
                scope.spawn(move || {
                    let mut client = server.connect();
                    loop {
                        let last = !adding.load(Relaxed);
                        let members = strings(&client.ask(&format!("{pop} k {MANY}")));
                        if last && members.is_empty() {
                            return;
                        }
                        popped.lock().expect("no panic").extend(members);
                    }
                });
            }
        });
        let popped = popped.into_inner().expect("no panic");
        // Of a sorted set each comes with its score.
        let members: Vec<&String> = popped.iter().filter(|word| word.starts_with('m')).collect();
        let different: BTreeSet<&String> = members.iter().copied().collect();
        assert_eq!((members.len(), different.len()), (60_000, 60_000), "{pop}, {workers} workers");
        assert_eq!(number(&server.connect().ask("EXISTS k")), 0);
    }
}

/// A change by others between the beginning and the end of a command is part of what the command answers, or comes after it.
#[test]
fn a_removal_counts_what_it_removes() {
    let server = InProcess::start(2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        scope.spawn(move || {
            let mut client = server.connect();
            let mut next = 1_000_000;
            while !stop.load(Relaxed) {
                client.ask(&format!("ZADD z {next} other{next}"));
                client.ask(&format!("ZREM z other{next}"));
                next += 1;
            }
        });
        let mut client = server.connect();
        for _ in 0..15 {
            assert_eq!(add(&mut client, "ZADD", "z", 0..MANY * 2), MANY * 2);
            assert_eq!(number(&client.ask(&format!("ZREMRANGEBYSCORE z 0 {}", MANY - 1))), MANY);
            assert_eq!(number(&client.ask(&format!("ZCOUNT z 0 {}", MANY * 2))), MANY);
            assert_eq!(number(&client.ask("ZREMRANGEBYRANK z 0 5900")), 5901);
            assert_eq!(number(&client.ask(&format!("ZREMRANGEBYSCORE z 0 {}", MANY * 2))), MANY - 5901);
        }
        stop.store(true, Relaxed);
    });
    let mut client = server.connect();
    assert_eq!(number(&client.ask("ZCARD z")), 0);
}

/// What is stored is of one moment: two keys that are always changed together have the same members in it.
#[test]
fn results_are_of_one_moment() {
    let server = InProcess::start(2);
    let mut client = server.connect();
    for key in ["a", "b"] {
        add(&mut client, "ZADD", key, 0..MANY);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        scope.spawn(move || {
            let mut client = server.connect();
            let mut next = 0;
            while !stop.load(Relaxed) {
                for command in ["MULTI", &format!("ZADD a {next} x{next}"), &format!("ZADD b {next} x{next}"), "EXEC"] {
                    client.ask(command);
                }
                next = (next + 1) % 1000;
            }
        });
        for _ in 0..5 {
            let stored = number(&client.ask("ZINTERSTORE both 2 a b"));
            assert_eq!(number(&client.ask("ZDIFFSTORE none 2 a b")), 0);
            assert!(stored >= MANY, "{stored}");
            assert_eq!(number(&client.ask("ZINTERCARD 2 both both")), stored);
            assert!(number(&client.ask("ZRANGESTORE part a 0 -2")) >= stored - 1);
        }
        stop.store(true, Relaxed);
    });
}

/// In a transaction, and for a connection that wants no replies, everything is done at once, with the same result.
#[test]
fn transactions_wait_for_nobody() {
    let server = InProcess::start(1);
    let mut client = server.connect();
    let sort = "SORT z BY nosort LIMIT 0 3 STORE l";
    add(&mut client, "ZADD", "z", 0..MANY);
    add(&mut client, "SADD", "s", 0..MANY * 2);
    assert_eq!(number(&client.ask(sort)), 3);
    let alone = [client.ask("LRANGE l 0 -1"), client.ask("SORT z ALPHA DESC LIMIT 2 2")];
    client.ask("MULTI");
    for command in [sort, "LRANGE l 0 -1", "SORT z ALPHA DESC LIMIT 2 2", "ZREMRANGEBYRANK z 1 5500", "SPOP s 5000"] {
        assert_eq!(client.ask(command), Reply::Simple(b"QUEUED".to_vec()));
    }
    let replies = client.ask("EXEC");
    let replies = replies.as_list().expect("an array");
    assert_eq!((number(&replies[0]), &replies[1..3]), (3, &alone[..]));
    assert_eq!((number(&replies[3]), strings(&replies[4]).len()), (5500, 5000));
    assert_eq!(strings(&client.ask("ZRANGE z 0 1")), ["m0", "m5501"]);
    assert_eq!(number(&client.ask("SCARD s")), MANY * 2 - 5000);
}

/// A consumer's entries are delivered, claimed and forgotten by threads as by workers.
#[test]
fn groups_of_consumers_with_many_entries() {
    let server = InProcess::start(2);
    let mut client = server.connect();
    for number in 1..=MANY {
        client.ask(&format!("XADD x {number}-1 f v"));
    }
    client.ask("XGROUP CREATE x g 0");
    let read = client.ask("XREADGROUP GROUP g one STREAMS x >");
    let streams = read.as_list().expect("one stream");
    assert_eq!(streams[0].as_list().expect("its name and entries")[1].as_list().map(<[Reply]>::len), Some(6000));
    assert_eq!(client.ask(&format!("XPENDING x g - + {}", MANY * 2)).as_list().map(<[Reply]>::len), Some(6000));
    let claimed = client.ask(&format!("XAUTOCLAIM x g two 0 0 COUNT {}", MANY * 2));
    assert_eq!(claimed.as_list().expect("three parts")[1].as_list().map(<[Reply]>::len), Some(6000));
    assert_eq!(number(&client.ask("XGROUP DELCONSUMER x g one")), 0);
    assert_eq!(number(&client.ask("XGROUP DELCONSUMER x g two")), MANY);
    assert_eq!(client.ask(&format!("XPENDING x g - + {MANY}")).as_list().map(<[Reply]>::len), Some(0));
}

/// Commands of many arguments, on keys that are there and that are not.
#[test]
fn commands_of_many_arguments() {
    let server = InProcess::start(2);
    let mut client = server.connect();
    let many = |command: &str, key: &str, from: i64, paired: bool| {
        let mut words = vec![command.to_owned(), key.to_owned()];
        for number in from..from + MANY {
            words.push(format!("m{number}"));
            words.extend(paired.then(|| number.to_string()));
        }
        words
    };
    let mut call = |words: Vec<String>| client.call(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
    for (add, remove, key, paired) in [("SADD", "SREM", "s", false), ("HSET", "HDEL", "h", true)] {
        assert_eq!(number(&call(many(add, key, 0, paired))), MANY);
        assert_eq!(number(&call(many(add, key, 1000, paired))), 1000, "the others were there");
        assert_eq!(number(&call(many(remove, key, 5000, false))), MANY + 1000 - 5000);
        assert_eq!(number(&call(many(remove, key, 0, false))), 5000);
        assert_eq!(number(&call(vec!["EXISTS".into(), key.into()])), 0);
        assert_eq!(number(&call(many(remove, key, 0, false))), 0);
    }
    call(many("SADD", "s", 0, false));
    let there = call(many("SMISMEMBER", "s", 1, false));
    let there: i64 = there.as_list().expect("an array").iter().map(number).sum();
    assert_eq!(there, MANY - 1);
    call(vec!["SET".into(), "string".into(), "x".into()]);
    assert!(call(many("SADD", "string", 0, false)).is_error());
    assert!(call(many("HSET", "string", 0, true)).is_error());
}
