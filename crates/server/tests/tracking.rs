//! Copies of keys under load, over workers: a copy that was not invalidated is the value, whoever changed it and however:
//! commands, transactions, expiry, flushes; also while the table is too small for all keys, and for connections that are told
//! for others.

mod in_process;
mod running;

use gimmal_resp::Reply;
use in_process::{InProcess, Random};
use running::Client;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// One worker has no one to meet, two have each other, eight share the processors.
const WORKERS: [usize; 3] = [1, 2, 8];
const KEYS: usize = 40;
const WRITES: usize = 3000;
/// Of fewer changes a client is told so seldom that it proves nothing.
const MANY: usize = 100;

/// How a client keeps copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// What it read, told on its own connection.
    Default,
    /// All keys.
    Bcast,
    /// What it read, told on another connection.
    Redirect,
}

/// A client with copies of values.
struct Cache {
    client: Client,
    /// Where it is told, if elsewhere.
    ear: Option<Client>,
    copies: BTreeMap<String, Option<Vec<u8>>>,
    told: usize,
    fenced: bool,
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned()
}

impl Cache {
    fn new(server: &InProcess, mode: Mode) -> Cache {
        let (mut client, mut ear) = (server.connect(), None);
        client.ask("HELLO 3");
        let begin = match mode {
            Mode::Default => "CLIENT TRACKING on".to_owned(),
            Mode::Bcast => "CLIENT TRACKING on BCAST".to_owned(),
            Mode::Redirect => {
                let mut other = server.connect();
                other.ask("HELLO 3");
                let Reply::Integer(id) = other.ask("CLIENT ID") else { panic!("no id") };
                ear = Some(other);
                format!("CLIENT TRACKING on REDIRECT {id}")
            }
        };
        assert_eq!(client.ask(&begin), Reply::Simple(b"OK".to_vec()), "{mode:?}");
        Cache { client, ear, copies: BTreeMap::new(), told: 0, fenced: false }
    }

    fn hear(&mut self, push: &[Reply]) {
        assert_eq!(text(&push[0]), "invalidate");
        match &push[1] {
            Reply::Null => self.copies.clear(),
            Reply::Array(keys) => {
                for key in keys.iter().map(text) {
                    self.copies.remove(&key);
                    self.fenced |= key == "fence";
                }
            }
            other => panic!("no keys: {other:?}"),
        }
        self.told += 1;
    }

    /// Reads a key, from its copy if there is one.
    fn read(&mut self, key: &str) {
        self.listen(Duration::ZERO);
        if self.copies.contains_key(key) {
            return;
        }
        // What is told elsewhere must not be applied before the read that it follows: as a client library does, the copy is
        // announced first.
        self.copies.insert(key.to_owned(), None);
        self.client.send(format!("GET {key}\r\n").as_bytes());
        let value = loop {
            match self.client.reply() {
                Reply::Push(push) => self.hear(&push),
                Reply::Null => break None,
                Reply::Bulk(value) => break Some(value),
                other => panic!("{other:?}"),
            }
        };
        self.listen(Duration::ZERO);
        if let Some(copy) = self.copies.get_mut(key) {
            *copy = value;
        }
    }

    /// Takes what was told.
    fn listen(&mut self, patience: Duration) {
        while let Some(reply) = self.ear.as_mut().unwrap_or(&mut self.client).try_reply(patience) {
            let Reply::Push(push) = reply else { panic!("{reply:?}") };
            self.hear(&push);
        }
    }

    /// Reads here and there until told that the writers have ended, and that all is said. Counts in `busy` when it was told
    /// of many changes.
    fn run(mut self, seed: u64, ended: &AtomicBool, busy: &AtomicUsize) -> Cache {
        let mut random = Random(seed);
        let mut is_busy = false;
        while !ended.load(SeqCst) {
            self.read(&format!("k{}", random.below(KEYS)));
            if self.told > MANY && !std::mem::replace(&mut is_busy, true) {
                busy.fetch_add(1, SeqCst);
            }
        }
        self
    }

    /// All that was on its way has come when this has: each worker's queue is first in, first out.
    fn await_fence(&mut self) {
        self.copies.remove("fence");
        self.read("fence");
    }

    fn finish(&mut self) {
        let deadline = Instant::now() + running::PATIENCE;
        while !self.fenced {
            assert!(Instant::now() < deadline, "the last change was not told");
            self.listen(Duration::from_millis(1));
        }
    }
}

fn write(client: &mut Client, random: &mut Random) {
    for n in 0..WRITES {
        let key = format!("k{}", random.below(KEYS));
        let commands = match random.below(20) {
            0 => format!("DEL {key}\r\n"),
            1 => format!("SET {key} {n} PX 1\r\n"),
            2 => format!("MULTI\r\nINCR {key}\r\nSET k0 {n}\r\nAPPEND k1 x\r\nEXEC\r\n"),
            3 => format!("RENAME {key} k2\r\n"),
            4 if n % 64 == 0 => "FLUSHALL\r\n".to_owned(),
            5 => format!("MSET {key} a{n} k3 b{n}\r\n"),
            6 => format!("GETDEL {key}\r\n"),
            7 => format!("SETRANGE {key} 2 {n}\r\n"),
            _ => format!("SET {key} {n}\r\n"),
        };
        client.send(commands.as_bytes());
        (0..commands.matches("\r\n").count()).for_each(|_| drop(client.reply()));
    }
}

fn copies_are_the_values(workers: usize, most_keys: usize) {
    let server = InProcess::start(workers);
    server.connect().ask(&format!("CONFIG SET tracking-table-max-keys {most_keys}"));
    let modes = [Mode::Default, Mode::Bcast, Mode::Redirect, Mode::Default, Mode::Redirect];
    let caches: Vec<Cache> = modes.iter().map(|mode| Cache::new(&server, *mode)).collect();
    let (ended, busy) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut caches: Vec<Cache> = thread::scope(|scope| {
        let (server, ended, busy) = (&server, &ended, &busy);
        let readers: Vec<_> =
            (1..).zip(caches).map(|(seed, cache)| scope.spawn(move || cache.run(seed, ended, busy))).collect();
        let writers: Vec<_> =
            (100..104).map(|seed| scope.spawn(move || write(&mut server.connect(), &mut Random(seed)))).collect();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        // A reader that the machine let begin late has more to be told.
        let deadline = Instant::now() + running::PATIENCE;
        let mut seed = 104;
        while busy.load(SeqCst) < modes.len() && Instant::now() < deadline {
            write(&mut server.connect(), &mut Random(seed));
            seed += 1;
        }
        ended.store(true, SeqCst);
        readers.into_iter().map(|reader| reader.join().expect("a reader")).collect()
    });
    // Deadlines of a millisecond are over for all by now.
    thread::sleep(Duration::from_millis(20));
    server.connect().ask("CONFIG SET tracking-table-max-keys 0");
    caches.iter_mut().for_each(Cache::await_fence);
    let mut asker = server.connect();
    (0..KEYS).for_each(|n| drop(asker.ask(&format!("GET k{n}"))));
    asker.ask("SET fence 1");
    caches.iter_mut().for_each(Cache::finish);
    for (mode, cache) in modes.iter().zip(&caches) {
        assert!(cache.told > MANY, "{mode:?} was told of {} changes only", cache.told);
        for (key, copy) in cache.copies.iter().filter(|(key, _)| *key != "fence") {
            let value = match asker.ask(&format!("GET {key}")) {
                Reply::Bulk(value) => Some(value),
                _ => None,
            };
            assert_eq!(*copy, value, "{workers} workers, {mode:?}: a stale copy of {key}");
        }
    }
    let trackers = &server.shared().trackers;
    assert_eq!(trackers.clients(), modes.len());
    drop(caches);
    let deadline = Instant::now() + running::PATIENCE;
    while trackers.is_active() {
        assert!(Instant::now() < deadline, "{} keys are remembered for nobody", trackers.keys());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((trackers.clients(), trackers.keys(), trackers.items(), trackers.prefixes()), (0, 0, 0, 0));
}

#[test]
fn a_copy_that_was_not_invalidated_is_the_value() {
    for workers in WORKERS {
        copies_are_the_values(workers, 1_000_000);
    }
}

#[test]
fn a_small_table_invalidates_more_but_never_less() {
    for workers in WORKERS {
        copies_are_the_values(workers, 5);
    }
}

/// Asks, and passes over what is told in between: anybody may be told for another.
fn ask_past(client: &mut Client, line: &str) -> Reply {
    client.send(format!("{line}\r\n").as_bytes());
    loop {
        match client.reply() {
            Reply::Push(_) => {}
            reply => return reply,
        }
    }
}

/// Begins to track in some way, reads, and goes in some way: by its own end, or closed by another; so does who is told for it.
fn come_and_go(server: &InProcess, random: &mut Random, ended: &AtomicBool) {
    while !ended.load(SeqCst) {
        let (mut client, mut ear) = (server.connect(), server.connect());
        ask_past(&mut client, "HELLO 3");
        ask_past(&mut ear, "HELLO 3");
        let Reply::Integer(id) = ask_past(&mut ear, "CLIENT ID") else { panic!("no id") };
        let way = match random.below(6) {
            0 => "CLIENT TRACKING on BCAST PREFIX k PREFIX fence".to_owned(),
            1 => format!("CLIENT TRACKING on BCAST NOLOOP REDIRECT {id}"),
            2 => "CLIENT TRACKING on OPTIN".to_owned(),
            3 => "CLIENT TRACKING on NOLOOP".to_owned(),
            _ => format!("CLIENT TRACKING on REDIRECT {id}"),
        };
        assert_eq!(ask_past(&mut client, &way), Reply::Simple(b"OK".to_vec()), "{way}");
        let mut ear = Some(ear);
        for n in 0..random.below(30) {
            let key = format!("k{}", random.below(KEYS));
            let line = match random.below(12) {
                0 => "CLIENT CACHING yes".to_owned(),
                1 => format!("SET {key} {n}"),
                2 => format!("MGET {key} k0 k1"),
                3 => "CLIENT TRACKING off".to_owned(),
                4 if random.once_in(4) => format!("CLIENT TRACKING on REDIRECT {}", id + 1),
                5 if random.once_in(2) => {
                    ear = None;
                    "CLIENT TRACKINGINFO".to_owned()
                }
                _ => format!("GET {key}"),
            };
            ask_past(&mut client, &line);
        }
        match random.below(4) {
            0 => _ = server.connect().ask(&format!("CLIENT KILL ID {id}")),
            1 => client.send(b"QUIT\r\n"),
            2 => client.send(b"RESET\r\n"),
            _ => {}
        }
        drop(ear);
    }
}

#[test]
fn trackers_that_come_and_go_leave_nothing() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let (server, ended) = (&server, &ended);
            for seed in 1..7 {
                scope.spawn(move || come_and_go(server, &mut Random(seed), ended));
            }
            let writers: Vec<_> =
                (100..103).map(|seed| scope.spawn(move || write(&mut server.connect(), &mut Random(seed)))).collect();
            writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
            ended.store(true, SeqCst);
        });
        let trackers = &server.shared().trackers;
        let deadline = Instant::now() + running::PATIENCE;
        while trackers.is_active() {
            assert!(Instant::now() < deadline, "{} clients, {} keys are left", trackers.clients(), trackers.keys());
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((trackers.items(), trackers.prefixes()), (0, 0), "{workers} workers");
        assert_eq!(server.connect().ask("PING"), Reply::Simple(b"PONG".to_vec()));
    }
}
