//! Messages under load, over workers: none is lost, none comes twice, each publisher's come in order, and PUBLISH counts
//! exactly those who get it, while others come and go. Events of a key come in the order of its changes.

mod in_process;
mod running;

use gimmal_resp::Reply;
use in_process::{InProcess, Random};
use running::Client;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

/// One worker has no one to meet, two have each other, eight share the processors.
const WORKERS: [usize; 3] = [1, 2, 8];
const PUBLISHERS: usize = 4;
const MESSAGES: u64 = 9000;
/// Commands that a publisher sends at once.
const PIPELINE: u64 = 30;

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned()
}

fn parts(reply: &Reply) -> Vec<String> {
    reply.as_list().unwrap_or_else(|| panic!("no array: {reply:?}")).iter().map(text).collect()
}

fn integer(reply: &Reply) -> u64 {
    match reply {
        Reply::Integer(n) => u64::try_from(*n).expect("a count"),
        other => panic!("no count: {other:?}"),
    }
}

/// Publishes `MESSAGES` numbered messages to `channel`; the sum of the replies.
fn publish(client: &mut Client, publisher: usize, channel: &str) -> u64 {
    let mut receivers = 0;
    for first in (0..MESSAGES).step_by(usize::try_from(PIPELINE).expect("small")) {
        let numbers = first..first + PIPELINE;
        let lines: String = numbers.clone().map(|n| format!("PUBLISH {channel} {publisher}:{n}\r\n")).collect();
        client.send(lines.as_bytes());
        receivers += numbers.map(|_| integer(&client.reply())).sum::<u64>();
    }
    receivers
}

/// Takes messages until the one that ends it all; checks that each publisher's are in order without a gap.
fn take_all(client: &mut Client) -> u64 {
    let mut next = BTreeMap::<String, u64>::new();
    let mut count = 0;
    loop {
        let message = parts(&client.reply());
        let payload = message.last().expect("a message has parts");
        if payload == "end" {
            let complete = next.iter().all(|(publisher, n)| *n == MESSAGES || publisher == "last");
            assert!(complete, "some are missing: {next:?}");
            return count;
        }
        let (publisher, number) = payload.split_once(':').expect("a numbered message");
        let expected = next.entry(publisher.to_owned()).or_default();
        assert_eq!(number.parse(), Ok(*expected), "lost, twice or out of order");
        *expected += 1;
        count += 1;
    }
}

/// Listens for a while, again and again, and counts what comes; nothing may come at other times.
fn come_and_go(client: &mut Client, random: &mut Random, stop: &AtomicBool) -> u64 {
    let mut count = 0;
    while !stop.load(SeqCst) {
        let by_pattern = random.once_in(2);
        let (begin, end) = match by_pattern {
            true => ("PSUBSCRIBE c*\r\n", "PUNSUBSCRIBE c*\r\n"),
            false => ("SUBSCRIBE ch\r\n", "UNSUBSCRIBE ch\r\n"),
        };
        client.send(begin.as_bytes());
        assert!(parts(&client.reply())[0].ends_with("subscribe"), "a message before the confirmation");
        for _ in 0..random.below(40) {
            if stop.load(SeqCst) {
                break;
            }
            assert!(parts(&client.reply())[0].ends_with("message"));
            count += 1;
        }
        // The echo is allowed since nothing is listened to any more.
        client.send(end.as_bytes());
        client.send(b"ECHO away\r\n");
        while !parts(&client.reply())[0].ends_with("unsubscribe") {
            count += 1;
        }
        assert_eq!(client.reply().as_bytes(), Some(&b"away"[..]), "a message after the confirmation");
    }
    count
}

#[test]
fn every_subscriber_gets_every_message_once_and_in_order() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut listeners: Vec<Client> = (0..6).map(|_| server.connect()).collect();
        for (i, listener) in listeners.iter_mut().enumerate() {
            listener.ask(if i % 2 == 0 { "SUBSCRIBE ch" } else { "PSUBSCRIBE c?" });
        }
        let all = listeners.len() as u64;
        let (mut sent, mut got) = (0, 0);
        thread::scope(|scope| {
            let takers: Vec<_> = listeners.iter_mut().map(|listener| scope.spawn(move || take_all(listener))).collect();
            let server = &server;
            let publishers: Vec<_> =
                (0..PUBLISHERS).map(|n| scope.spawn(move || publish(&mut server.connect(), n, "ch"))).collect();
            sent = publishers.into_iter().map(|p| p.join().expect("a publisher")).sum();
            server.connect().ask("PUBLISH ch end");
            got = takers.into_iter().map(|t| t.join().expect("a listener")).sum();
        });
        assert_eq!(sent, all * PUBLISHERS as u64 * MESSAGES, "{workers} workers");
        assert_eq!(got, sent);
    }
}

#[test]
fn those_who_come_and_go_are_counted_exactly() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut steady = server.connect();
        steady.ask("SUBSCRIBE ch");
        let (stop, passing, passing_by) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(5));
        let (mut sent, mut got) = (0, 0);
        thread::scope(|scope| {
            let (server, stop, passing, passing_by) = (&server, &stop, &passing, &passing_by);
            for n in 0..5 {
                scope.spawn(move || {
                    let mut random = Random(n * 31 + 7);
                    passing.fetch_add(come_and_go(&mut server.connect(), &mut random, stop), SeqCst);
                    passing_by.fetch_sub(1, SeqCst);
                });
            }
            let taker = scope.spawn(|| take_all(&mut steady));
            let publishers: Vec<_> =
                (0..PUBLISHERS).map(|n| scope.spawn(move || publish(&mut server.connect(), n, "ch"))).collect();
            sent = publishers.into_iter().map(|p| p.join().expect("a publisher")).sum();
            stop.store(true, SeqCst);
            // Whoever waits for a message gets some more, until nobody listens but one.
            let mut last = server.connect();
            let mut extra = 0;
            while passing_by.load(SeqCst) > 0 {
                sent += integer(&last.ask(&format!("PUBLISH ch last:{extra}")));
                extra += 1;
            }
            last.ask("PUBLISH ch end");
            got = taker.join().expect("the listener that stays");
            assert_eq!(got, PUBLISHERS as u64 * MESSAGES + extra);
        });
        got += passing.load(SeqCst);
        assert_eq!(got, sent, "{workers} workers: counted is not received");
    }
}

#[test]
fn events_of_a_key_come_in_the_order_of_its_changes() {
    const CHANGES: usize = 4000;
    for workers in WORKERS {
        let server = InProcess::start(workers);
        server.connect().ask("CONFIG SET notify-keyspace-events KA");
        let mut listeners: Vec<Client> = (0..3).map(|_| server.connect()).collect();
        listeners.iter_mut().for_each(|listener| drop(listener.ask("SUBSCRIBE __keyspace@0__:k end")));
        listeners.iter_mut().for_each(|listener| drop(listener.reply()));
        thread::scope(|scope| {
            let server = &server;
            // A key that is set only if it is missing, and removed only if it is there, is set and removed in turn.
            let changers: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn(move || {
                        let mut client = server.connect();
                        let command = if n % 2 == 0 { "SETNX k v\r\n" } else { "DEL k\r\n" };
                        for _ in 0..CHANGES / 20 {
                            client.send(command.repeat(20).as_bytes());
                            (0..20).for_each(|_| drop(client.reply()));
                        }
                    })
                })
                .collect();
            let takers: Vec<_> =
                listeners.iter_mut().map(|listener| scope.spawn(move || take_events(listener))).collect();
            changers.into_iter().for_each(|changer| changer.join().expect("a client"));
            server.connect().ask("PUBLISH end end");
            let counts: Vec<u64> = takers.into_iter().map(|taker| taker.join().expect("a listener")).collect();
            assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{workers} workers: {counts:?}");
        });
    }
}

fn take_events(listener: &mut Client) -> u64 {
    let mut count = 0;
    loop {
        let event = parts(&listener.reply()).pop().expect("a message has parts");
        if event == "end" {
            return count;
        }
        assert_eq!(event, if count % 2 == 0 { "set" } else { "del" }, "event number {count}");
        count += 1;
    }
}

/// The quoted words of a monitor's line.
fn shown(line: &Reply) -> String {
    let Reply::Simple(line) = line else { panic!("no line: {line:?}") };
    let line = String::from_utf8_lossy(line).into_owned();
    let (time, rest) = line.split_once(" [").expect("a time");
    let (seconds, micros) = time.split_once('.').expect("seconds");
    assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6 && micros.parse::<u32>().is_ok(), "{line}");
    let (from, words) = rest.split_once("] ").expect("where it comes from");
    assert!(from.split_once(' ').is_some_and(|(db, address)| db.parse::<u32>().is_ok() && address.contains(':')));
    format!("{} {words}", from.split(' ').next().unwrap_or_default())
}

#[test]
fn a_monitor_sees_what_clients_send() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let (mut monitor, mut client) = (server.connect(), server.connect());
        assert_eq!(monitor.ask("MONITOR"), Reply::Simple(b"OK".to_vec()));
        client.call(&[b"set", b"a\r\n\"\\\x00\xff", b"1"]);
        client.ask("SELECT 2");
        client.ask("Get k");
        client.ask("CONFIG GET port");
        client.ask("HELLO 2 AUTH default secret");
        client.ask("NOSUCH");
        client.ask("GET");
        client.ask("LPUSH");
        for line in ["MULTI", "SET k v", "PING", "EXEC", "FLUSHALL"] {
            client.ask(line);
        }
        let expected = [
            r#"0 "set" "a\r\n\"\\\x00\xff" "1""#,
            r#"2 "SELECT" "2""#,
            r#"2 "Get" "k""#,
            r#"2 "HELLO" "2" "AUTH" "(redacted)" "(redacted)""#,
            r#"2 "MULTI""#,
            r#"2 "SET" "k" "v""#,
            r#"2 "PING""#,
            r#"2 "EXEC""#,
            r#"2 "FLUSHALL""#,
        ];
        for expected in expected {
            assert_eq!(shown(&monitor.reply()), expected, "{workers} workers");
        }
        let text = running::error_text(&monitor.ask("GET k"));
        assert_eq!(text, "ERR Replica can't interact with the keyspace");
        monitor.send(b"PING\r\nRESET\r\nGET k\r\n");
        assert_eq!(monitor.reply(), Reply::Simple(b"PONG".to_vec()));
        assert_eq!(shown(&monitor.reply()), r#"0 "PING""#);
        assert_eq!(monitor.reply(), Reply::Simple(b"RESET".to_vec()));
        assert!(monitor.reply().is_null());
    }
}

/// The key's final value is that of the last SET that was shown, and each GET answers the SET shown before it.
#[test]
fn a_monitor_sees_commands_of_one_key_in_the_order_in_which_they_took_effect() {
    const COMMANDS: usize = 2000;
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut monitor = server.connect();
        monitor.ask("MONITOR");
        let history = AtomicU64::new(0);
        let answers: Vec<Vec<(String, String)>> = thread::scope(|scope| {
            let (server, history) = (&server, &history);
            let clients: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn(move || {
                        let mut client = server.connect();
                        let mut answers = Vec::new();
                        for _ in 0..COMMANDS {
                            let id = format!("{n}:{}", history.fetch_add(1, SeqCst));
                            let before = text(&client.ask(&format!("GETSET k {id}")));
                            answers.push((id, before));
                        }
                        answers
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        let before: BTreeMap<String, String> = answers.into_iter().flatten().collect();
        let mut last = String::new();
        for _ in 0..before.len() {
            let line = shown(&monitor.reply());
            let id = line.rsplit('"').nth(1).expect("a word").to_owned();
            assert_eq!(before[&id], last, "{workers} workers: {line}");
            last = id;
        }
    }
}
