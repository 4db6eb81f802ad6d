//! KEYS and SCAN while the tables under them grow and shrink: a key that is there throughout is found exactly once, and
//! what a slice has seen unreleased is not shown before its release.

mod control;
mod in_process;
mod running;

use gimmal_resp::{Reply, encode_command};
use in_process::{InProcess, Random};
use running::Client;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One at a time: one of them measures time, and the others take all there is of it.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Keys that stay, and how many come and go: the tables double and halve several times.
const STAY: usize = 5_000;
const CHURN: usize = 150_000;

fn fill(client: &mut Client, name: &str, keys: std::ops::Range<usize>) {
    for start in keys.clone().step_by(500) {
        let mut words = vec!["MSET".to_owned()];
        for i in start..keys.end.min(start + 500) {
            words.extend([format!("{name}:{i}"), i.to_string()]);
        }
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        assert_eq!(client.call(&words), Reply::Simple(b"OK".to_vec()));
    }
}

fn empty(client: &mut Client, name: &str, keys: std::ops::Range<usize>) {
    for start in keys.clone().step_by(500) {
        let words: Vec<String> = (start..keys.end.min(start + 500)).map(|i| format!("{name}:{i}")).collect();
        let words: Vec<&[u8]> = std::iter::once(b"DEL".as_slice()).chain(words.iter().map(String::as_bytes)).collect();
        client.call(&words);
    }
}

/// The cursor and the keys of a SCAN's reply.
fn scanned(reply: &Reply) -> (String, Vec<Vec<u8>>) {
    let [cursor, keys] = reply.as_list().unwrap_or_else(|| panic!("{reply:?}")) else { panic!("{reply:?}") };
    let cursor = String::from_utf8(cursor.as_bytes().expect("a cursor").to_vec()).expect("digits");
    (cursor, names(keys))
}

fn names(keys: &Reply) -> Vec<Vec<u8>> {
    keys.as_list().expect("an array").iter().map(|key| key.as_bytes().expect("a name").to_vec()).collect()
}

fn assert_once(found: Vec<Vec<u8>>, what: &str) {
    let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
    for key in found {
        *counts.entry(key).or_default() += 1;
    }
    counts.retain(|key, _| key.starts_with(b"stay"));
    assert_eq!(counts.len(), STAY, "{what} missed keys");
    assert!(counts.values().all(|count| *count == 1), "{what} found keys twice");
}

#[test]
fn keys_that_stay_are_found_once() {
    let _turn = turn();
    for workers in [1, 2] {
        let server = InProcess::start(workers);
        fill(&mut server.connect(), "stay", 0..STAY);
        let stop = AtomicBool::new(false);
        let walks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..2 {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let (mut client, name) = (server.connect(), format!("churn{number}"));
                    while !stop.load(Relaxed) {
                        fill(&mut client, &name, 0..CHURN / 2);
                        empty(&mut client, &name, 0..CHURN / 2);
                    }
                });
            }
            for number in 0..3 {
                let (server, stop, walks) = (&server, &stop, &walks);
                scope.spawn(move || {
                    let (mut client, mut random) = (server.connect(), Random(number));
                    while !stop.load(Relaxed) {
                        if number == 0 {
                            let pattern = ["KEYS *", "KEYS stay:*", "KEYS [s]*"][random.below(3)];
                            assert_once(names(&client.ask(pattern)), pattern);
                        } else {
                            let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
                            loop {
                                let count = 1 + random.below(2000);
                                let (next, keys) = scanned(&client.ask(&format!("SCAN {cursor} COUNT {count}")));
                                found.extend(keys);
                                cursor = next;
                                if cursor == "0" {
                                    break;
                                }
                            }
                            assert_once(found, "SCAN");
                        }
                        walks.fetch_add(1, Relaxed);
                    }
                });
            }
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(4) || walks.load(Relaxed) <= 5 {
                assert!(started.elapsed() < Duration::from_secs(120), "hardly anything ran");
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
        eprintln!("{workers} workers: {} walks", walks.load(Relaxed));
    }
}

#[test]
fn a_list_of_keys_waits_for_what_its_slices_saw() {
    let _turn = turn();
    let server = InProcess::start(2);
    let mut client = server.connect();
    // Enough keys for many slices.
    fill(&mut client, "stay", 0..300_000);
    let mut reader = server.shared().log.activate(0);
    let mut writer = server.connect();
    let mut bytes = Vec::new();
    // A key in some shard, seen by some slice, which is hardly ever the last.
    encode_command(&mut bytes, &["SET", "new", "1"]);
    writer.send(&bytes);
    while server.shared().log.end() == reader.position() {
        std::thread::yield_now();
    }
    let mut lister = server.connect();
    bytes.clear();
    encode_command(&mut bytes, &["KEYS", "ne*"]);
    lister.send(&bytes);
    lister.stream.set_read_timeout(Some(Duration::from_millis(1500))).expect("a legal timeout");
    let early = lister.stream.peek(&mut [0]);
    assert!(early.is_err(), "the list showed a write before its release");
    lister.stream.set_read_timeout(Some(running::PATIENCE)).expect("a legal timeout");
    let to = reader.readable();
    reader.consumed(to);
    server.shared().log.release(to);
    assert_eq!(names(&lister.reply()), [b"new"]);
    assert_eq!(writer.reply(), Reply::Simple(b"OK".to_vec()));
}

#[test]
fn listing_many_keys_delays_nobody_for_long() {
    let _turn = turn();
    let server = InProcess::start(1);
    let mut client = server.connect();
    fill(&mut client, "k", 0..400_000);
    // A busy machine may take this long for any GET; what is asserted is that they were served all along.
    let limit = Duration::from_millis(100);
    let is_good = |found: &(Duration, usize)| found.0 < limit && found.1 > 20;
    let found = control::measured(limit, |control| list_beside_reads(&server, &mut client, control), is_good);
    assert!(is_good(&found), "{} GETs, the longest took {:?}", found.1, found.0);
}

/// Lists 400,000 keys: the longest time that a GET beside that took, without what the machine added, and how many there were.
fn list_beside_reads(server: &InProcess, client: &mut Client, control: &control::Control) -> (Duration, usize) {
    let mut lister = server.connect();
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &["KEYS", "*"]);
    lister.send(&bytes);
    let (mut longest, mut asked, started) = (Duration::ZERO, 0, Instant::now());
    let listing = std::thread::spawn(move || lister.reply());
    while !listing.is_finished() {
        let before = Instant::now();
        assert_eq!(client.ask("GET k:7"), Reply::Bulk(b"7".to_vec()));
        let after = Instant::now();
        longest = longest.max((after - before).saturating_sub(control.held_up(before, after)));
        asked += 1;
    }
    let listed = names(&listing.join().expect("a reply"));
    assert_eq!(listed.len(), 400_000);
    eprintln!("{asked} GETs in {:?}, the longest took {longest:?}", started.elapsed());
    (longest, asked)
}
