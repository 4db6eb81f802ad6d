//! A snapshot and the log from its position on are the keyspace: taken while clients write, loaded into another server, and the log's
//! rest replayed there, it is what the first server has. And in each snapshot every transaction is whole.

mod in_process;
mod running;

use gimmal_log::Reader;
use gimmal_rdb::Options;
use gimmal_resp::{Reply, encode_command};
use gimmal_server::payload;
use gimmal_server::persist::save::{self, Begun, Kind, Request, Sink};
use gimmal_server::shared::Shared;
use gimmal_store::{Entry, StringRef};
use in_process::{InProcess, Random};
use running::Client;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ACCOUNTS: usize = 40;
const EACH: i64 = 1000;
const CLIENTS: u64 = 4;
const SNAPSHOTS: usize = 4;

/// A key as it is taken: database, name, deadline, payload of DUMP, and the integer that it is, if it is one.
type Key = (usize, Vec<u8>, Option<i64>, Vec<u8>, Option<i64>);

/// Keeps the keys, and where the snapshot began.
struct Collector(Arc<Mutex<Vec<Key>>>, Arc<AtomicU64>);

impl Sink for Collector {
    fn flipped(&mut self, lsn: u64) {
        self.1.store(lsn, SeqCst);
    }

    fn begin(&mut self, _: &Shared, _: &Begun) -> io::Result<()> {
        Ok(())
    }

    fn entry(&mut self, db: usize, entry: &Entry<'_>) -> io::Result<()> {
        let int = match entry.value().as_string() {
            Some(StringRef::Int(int)) => Some(int),
            _ => None,
        };
        let payload = payload::whole(entry.value(), &Options::default());
        let key = (db, entry.key().to_vec(), entry.expire_at_ms(), payload, int);
        self.0.lock().expect("nobody panics").push(key);
        Ok(())
    }

    fn finish(&mut self, _: &Shared) -> io::Result<u64> {
        Ok(0)
    }

    fn abandon(&mut self, _: &Shared) {}
}

/// A snapshot that was taken: the log's position, and the keys.
struct Snapshot {
    lsn: u64,
    keys: Vec<Key>,
}

fn take(server: &InProcess, workers: usize) -> Snapshot {
    let (keys, lsn) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
    let (done, is_done) = channel();
    let request = Request {
        kind: Kind::Rewrite,
        sink: Box::new(Collector(keys.clone(), lsn.clone())),
        done: Box::new(move |_, result| done.send(result).expect("somebody waits")),
    };
    let mut request = Some(request);
    while let Some(wanted) = request.take() {
        let batch = server.shared().keyspace.gate().enter(workers);
        let Some(_closed) = batch.try_close() else {
            request = Some(wanted);
            drop(batch);
            std::thread::yield_now();
            continue;
        };
        assert!(save::begin(server.shared(), &batch, wanted).is_ok(), "none runs");
    }
    let result = is_done.recv().expect("it ends");
    let keys = std::mem::take(&mut *keys.lock().expect("nobody panics"));
    assert_eq!(result.expect("nothing can fail").keys, keys.len() as u64);
    Snapshot { lsn: lsn.load(SeqCst), keys }
}

/// Reads the log to its end, and lets the replies go.
fn drain(reader: &mut Reader, into: &mut Vec<u8>) {
    let (from, to) = (reader.position(), reader.readable());
    reader.chunks(from..to).for_each(|chunk| into.extend_from_slice(chunk.bytes()));
    reader.consumed(to);
    let log = Arc::clone(reader.log());
    log.release(to);
}

/// What one client does until it is to stop: moves money in transactions, and changes keys of every kind.
fn write(mut client: Client, seed: u64, stop: &AtomicBool) {
    let mut random = Random(seed);
    while !stop.load(SeqCst) {
        let mut lines: Vec<String> = Vec::new();
        let (from, to, sum) = (random.below(ACCOUNTS), random.below(ACCOUNTS), random.below(50));
        lines.extend(["MULTI".into(), format!("DECRBY account:{from} {sum}"), format!("INCRBY account:{to} {sum}")]);
        lines.push("EXEC".into());
        let (a, b, long) = (random.below(600), random.below(600), "x".repeat(random.below(6000)));
        lines.push(match random.below(14) {
            0 => format!("SET s:{a} {long}"),
            1 => format!("SETRANGE s:{a} 3 abc"),
            2 => format!("APPEND s:{a} {}", &long[..long.len() / 100]),
            3 => format!("INCR n:{a}"),
            4 => format!("RPUSH l:{a} {long} 1 2 3"),
            5 => format!("LPOP l:{a}"),
            6 => format!("HSET h:{a} f{b} {b}"),
            7 => format!("ZADD z:{a} {b} m{b}"),
            8 => format!("DEL s:{a} l:{b} h:{b}"),
            9 => format!("RENAME s:{a} s:{b}"),
            10 => format!("COPY l:{a} l:{b} REPLACE"),
            11 => format!("EXPIREAT s:{a} {}", 4_000_000_000_u64 + b as u64),
            12 if random.once_in(400) => "FLUSHDB".into(),
            12 => format!("SADD t:{a} {b} {a}"),
            _ if random.once_in(50) => "SWAPDB 1 2".into(),
            _ => format!("XADD x:{a} * f {b}"),
        });
        // The money is in database 0, what is flushed and exchanged elsewhere.
        let db = format!("SELECT {}", 1 + random.below(2));
        let line = lines.pop().expect("it was just pushed");
        lines.extend([db, line, "SELECT 0".into()]);
        let mut bytes = Vec::new();
        lines.iter().for_each(|line| encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>()));
        client.send(&bytes);
        for line in &lines {
            let reply = client.reply();
            assert!(!reply.is_error() || line.starts_with("RENAME") || line.starts_with("COPY"), "{line}: {reply:?}");
        }
    }
}

/// Sets a flag when it is dropped.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn check(workers: usize) {
    let server = InProcess::start(workers);
    let mut reader = server.shared().log.activate(0);
    let (mut log, start) = (Vec::new(), reader.position());
    let (stop, stop_reading) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut snapshots = Vec::new();
    std::thread::scope(|scope| {
        // The threads end whatever fails.
        let _flags = [Flag(&stop), Flag(&stop_reading)];
        let draining = scope.spawn(|| {
            while !stop_reading.load(SeqCst) {
                drain(&mut reader, &mut log);
                std::thread::sleep(Duration::from_micros(200));
            }
            drain(&mut reader, &mut log);
        });
        let mut setup = server.connect();
        for i in 0..ACCOUNTS {
            assert_eq!(setup.ask(&format!("SET account:{i} {EACH}")), Reply::Simple(b"OK".to_vec()));
        }
        let writers: Vec<_> = (0..CLIENTS).map(|seed| (server.connect(), seed)).collect();
        let writers: Vec<_> = writers
            .into_iter()
            .map(|(client, seed)| {
                scope.spawn({
                    let stop = &stop;
                    move || write(client, seed, stop)
                })
            })
            .collect();
        for _ in 0..SNAPSHOTS {
            std::thread::sleep(Duration::from_millis(250));
            snapshots.push(take(&server, workers));
        }
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, SeqCst);
        writers.into_iter().for_each(|writer| writer.join().expect("no writer fails"));
        stop_reading.store(true, SeqCst);
        draining.join().expect("the reader ends");
    });
    let contents = server.contents();
    assert!(contents.len() > 300, "{} keys", contents.len());
    for (number, snapshot) in snapshots.into_iter().enumerate() {
        let money: i64 =
            snapshot.keys.iter().filter(|key| key.1.starts_with(b"account:")).filter_map(|key| key.4).sum();
        assert_eq!(money, EACH * i64::try_from(ACCOUNTS).expect("small"), "snapshot {number}, {workers} workers");
        let other = InProcess::start(1);
        let mut client = other.connect();
        for (db, name, deadline, payload, _) in &snapshot.keys {
            let at_ms = deadline.unwrap_or(0).to_string();
            client.ask(&format!("SELECT {db}"));
            let reply = client.call(&[b"RESTORE", name, at_ms.as_bytes(), payload, b"ABSTTL"]);
            assert_eq!(reply, Reply::Simple(b"OK".to_vec()), "{:?} came twice", String::from_utf8_lossy(name));
        }
        client.ask("SELECT 0");
        client.send(b"CLIENT REPLY OFF\r\n");
        let from = usize::try_from(snapshot.lsn - start).expect("it is in memory");
        client.send(&log[from..]);
        assert_eq!(client.ask("CLIENT REPLY ON"), Reply::Simple(b"OK".to_vec()));
        let replayed = other.contents();
        assert_eq!(replayed.len(), contents.len(), "snapshot {number}, {workers} workers");
        for (place, value) in &contents {
            assert!(replayed.get(place) == Some(value), "snapshot {number}, {workers} workers: {place:?}");
        }
    }
    server.shared().log.deactivate(reader);
}

#[test]
fn with_one_worker() {
    check(1);
}

#[test]
fn with_two_workers() {
    check(2);
}

#[test]
fn with_eight_workers() {
    check(8);
}
