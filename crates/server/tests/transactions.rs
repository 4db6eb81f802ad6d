//! Transactions under load: money moves between accounts and none is made or lost, however many workers meet; whoever
//! looks, looks at a moment between two transactions. And every command can be part of one.

mod in_process;
mod running;

use gimmal_lab::wire::{Action, Script};
use gimmal_resp::{Reply, encode_command};
use in_process::{InProcess, Random};
use running::Client;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long each mix runs.
const RUN: Duration = Duration::from_millis(2500);
/// One worker has no one to meet, two have each other, eight share the processors.
const WORKERS: [usize; 3] = [1, 2, 8];
const ACCOUNTS: usize = 12;
const EACH: i64 = 1000;

fn account(i: usize) -> String {
    format!("account:{i}")
}

fn number(reply: &Reply) -> i64 {
    let text = reply.as_bytes().unwrap_or_else(|| panic!("no number: {reply:?}"));
    std::str::from_utf8(text).expect("digits").parse().expect("a number")
}

/// Two accounts that differ.
fn pair(random: &mut Random) -> (String, String) {
    let from = random.below(ACCOUNTS);
    let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
    (account(from), account(to))
}

/// Sends commands as one pipeline; the last reply.
fn pipeline(client: &mut Client, lines: &[String]) -> Reply {
    let mut bytes = Vec::new();
    for line in lines {
        encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
    }
    client.send(&bytes);
    for line in &lines[1..] {
        let reply = client.reply();
        assert!(!reply.is_error(), "before {line}: {reply:?}");
    }
    client.reply()
}

/// What the clients of one mix have done.
#[derive(Default)]
struct Done {
    moved: AtomicU64,
    refused: AtomicU64,
    looked: AtomicU64,
    wide: AtomicU64,
}

/// Reads both accounts, then writes what they become, if they are what they were.
fn move_watched(client: &mut Client, random: &mut Random, done: &Done) {
    let (from, to) = pair(random);
    assert_eq!(client.ask(&format!("WATCH {from} {to}")), Reply::Simple(b"OK".to_vec()));
    let [have, had] = [&from, &to].map(|name| number(&client.ask(&format!("GET {name}"))));
    let sum = i64::try_from(random.below(100)).expect("small");
    let lines = [
        "MULTI".to_owned(),
        format!("SET {from} {}", have - sum),
        format!("SET {to} {}", had + sum),
        "EXEC".to_owned(),
    ];
    match pipeline(client, &lines) {
        Reply::Array(_) => done.moved.fetch_add(1, Relaxed),
        Reply::NullArray => done.refused.fetch_add(1, Relaxed),
        other => panic!("{other:?}"),
    };
}

/// Moves without looking; it cannot fail.
fn move_blindly(client: &mut Client, random: &mut Random, done: &Done) {
    let (from, to) = pair(random);
    let sum = random.below(100);
    // A transaction of several commands for one key, too.
    let lines = [
        "MULTI".to_owned(),
        format!("DECRBY {from} {sum}"),
        format!("INCRBY {to} {sum}"),
        format!("DECRBY {from} 1"),
        format!("INCRBY {to} 1"),
        "EXEC".to_owned(),
    ];
    let reply = pipeline(client, &lines);
    assert!(reply.as_list().is_some_and(|list| list.len() == 4), "{reply:?}");
    done.moved.fetch_add(1, Relaxed);
}

/// The sum of all accounts, read by several commands of one transaction, now and then by one that closes the gate.
fn look(client: &mut Client, random: &mut Random, done: &Done) {
    let half = |range: std::ops::Range<usize>| format!("MGET {}", range.map(account).collect::<Vec<_>>().join(" "));
    let mut lines = vec!["MULTI".to_owned(), half(0..ACCOUNTS / 2), half(ACCOUNTS / 2..ACCOUNTS)];
    if random.once_in(10) {
        lines.extend(["SWAPDB 3 4".to_owned(), "DBSIZE".to_owned(), half(0..1)]);
        done.wide.fetch_add(1, Relaxed);
    }
    lines.push("EXEC".to_owned());
    let reply = pipeline(client, &lines);
    let list = reply.as_list().unwrap_or_else(|| panic!("{reply:?}"));
    let all = list[..2].iter().flat_map(|half| half.as_list().expect("an array"));
    let sum: i64 = all.map(number).sum();
    assert_eq!(sum, EACH * i64::try_from(ACCOUNTS).expect("small"), "half of a transaction was seen: {list:?}");
    if let [_, _, _, size, again] = list {
        assert_eq!(size, &Reply::Integer(i64::try_from(ACCOUNTS).expect("small")));
        assert_eq!(again.as_list().map(|one| number(&one[0])), list[0].as_list().map(|half| number(&half[0])));
    }
    done.looked.fetch_add(1, Relaxed);
}

#[test]
fn no_money_is_made_or_lost() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut setup = server.connect();
        let pairs: Vec<String> = (0..ACCOUNTS).map(|i| format!("{} {EACH}", account(i))).collect();
        assert_eq!(setup.ask(&format!("MSET {}", pairs.join(" "))), Reply::Simple(b"OK".to_vec()));
        let (stop, done) = (AtomicBool::new(false), Done::default());
        std::thread::scope(|scope| {
            for number in 0..7_u64 {
                let (server, stop, done) = (&server, &stop, &done);
                scope.spawn(move || {
                    let (mut client, mut random) = (server.connect(), Random(number * 31 + workers as u64));
                    while !stop.load(Relaxed) {
                        match number {
                            0..2 => move_watched(&mut client, &mut random, done),
                            2..4 => move_blindly(&mut client, &mut random, done),
                            4..6 => look(&mut client, &mut random, done),
                            _ => {
                                // One that goes in the middle, with watches and a queue.
                                let lines = ["WATCH account:0 account:1", "MULTI", "SET account:0 0"];
                                pipeline(&mut server.connect(), &lines.map(str::to_owned));
                                std::thread::sleep(Duration::from_millis(1));
                            }
                        }
                    }
                });
            }
            let started = Instant::now();
            while started.elapsed() < RUN {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
        look(&mut setup, &mut Random(1), &done);
        let [moved, refused, looked, wide] =
            [&done.moved, &done.refused, &done.looked, &done.wide].map(|count| count.load(Relaxed));
        eprintln!("{workers} workers: {moved} moved, {refused} refused, {looked} looked, {wide} behind the gate");
        assert!(moved > 100 && looked > 100 && wide > 0, "hardly anything ran");
        await_no_watches(&server);
    }
}

/// Every client that watched is gone.
fn await_no_watches(server: &InProcess) {
    let started = Instant::now();
    let watching = &server.shared().watching;
    while watching.clients() != 0 || watching.keys() != 0 {
        assert!(started.elapsed() < running::PATIENCE, "{} clients still watch", watching.clients());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Commands that end the server or the connection, stop a worker or change how replies look. Those that subscribe, and
/// that end subscriptions, answer once for each channel.
const NOT_TRIED: [&str; 6] = ["quit", "reset", "shutdown", "debug", "hello", "auth"];

fn is_tried(words: &[Vec<u8>]) -> bool {
    let word = |i: usize| words.get(i).map(|word| String::from_utf8_lossy(word).to_lowercase()).unwrap_or_default();
    let container = (word(0), word(1));
    !NOT_TRIED.contains(&container.0.as_str())
        && !container.0.ends_with("subscribe")
        && !matches!((container.0.as_str(), container.1.as_str()), ("client", "reply" | "pause" | "tracking"))
        && !matches!((container.0.as_str(), container.1.as_str()), ("config", "set" | "rewrite"))
        && !matches!(container.0.as_str(), "monitor" | "sync" | "psync" | "multi" | "exec" | "discard" | "watch")
}

/// Each command of the wire scripts runs in a transaction of its own. With assertions on, as in tests, the server ends if
/// one locks a key that it does not declare, or would have to wait.
#[test]
fn every_command_of_the_wire_scripts_can_be_part_of_a_transaction() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wire");
    let server = InProcess::start(2);
    // The lock words are taken by compare-exchange only when two workers have come.
    let _second = (server.connect(), server.connect());
    let (mut queued, mut files) = (0, 0);
    for file in std::fs::read_dir(directory).expect("the scripts are there") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        files += 1;
        let text = std::fs::read_to_string(&path).expect("a readable script");
        let script = Script::parse(&path.display().to_string(), &text).expect("a script");
        for case in &script.cases {
            let mut client = server.connect();
            client.ask("FLUSHALL");
            for step in &case.steps {
                let Action::Command(words) = &step.action else { continue };
                if !is_tried(words) {
                    continue;
                }
                client.ask("MULTI");
                let reply = client.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
                let done = client.ask("EXEC");
                if reply == Reply::Simple(b"QUEUED".to_vec()) {
                    queued += 1;
                    assert!(done.as_list().is_some_and(|list| list.len() == 1), "{words:?}: {done:?}");
                } else {
                    assert!(reply.is_error() && done.is_error(), "{words:?}: {reply:?}, {done:?}");
                }
            }
        }
    }
    eprintln!("{queued} commands of {files} scripts");
    assert!(queued > 1000, "hardly anything was queued");
}
