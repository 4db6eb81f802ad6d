//! The log is the keyspace's history: replayed in order it gives the same keyspace, no reply shows a write before it was
//! released, and a reader that stands still stops the writers, not the server.

mod in_process;
mod running;

use gimmal_log::{Log, Reader};
use gimmal_resp::{Reply, encode_command};
use in_process::{Contents, InProcess, Random};
use running::Client;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Clients under load, and how long.
const CLIENTS: usize = 6;
const RUN: Duration = Duration::from_millis(2500);
/// Longer than any write takes to be answered that is not held back.
const HELD: Duration = Duration::from_millis(150);

/// Reads the log to its end and gives it back, releasing it.
fn drain(reader: &mut Reader) -> Vec<u8> {
    let (from, to) = (reader.position(), reader.readable());
    let bytes = reader.chunks(from..to).flat_map(|chunk| chunk.bytes().to_vec()).collect();
    reader.consumed(to);
    let log: &Arc<Log> = reader.log();
    log.release(to);
    bytes
}

/// The commands of a stretch of the log; it ends with a record.
fn commands(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while !bytes.is_empty() {
        let (command, len) = Reply::parse(bytes).expect("RESP").expect("a whole record");
        let words = command.as_list().expect("an array").iter();
        commands.push(words.map(|word| word.as_bytes().expect("a bulk string").to_vec()).collect());
        bytes = &bytes[len..];
    }
    commands
}

/// Whether a reply comes within [`HELD`].
fn is_answered(client: &mut Client) -> bool {
    client.stream.set_read_timeout(Some(HELD)).expect("a legal timeout");
    let answered = loop {
        match client.stream.peek(&mut [0]) {
            Ok(count) => break count > 0,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    };
    client.stream.set_read_timeout(Some(running::PATIENCE)).expect("a legal timeout");
    answered
}

fn send(client: &mut Client, line: &str) {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
    client.send(&bytes);
}

#[test]
fn replies_wait_for_the_release_of_what_they_show() {
    let server = InProcess::start(2);
    let mut reader = server.shared().log.activate(0);
    let mut setup = server.connect();
    send(&mut setup, "MSET clean 1 gone 1 counter 7 other 1");
    assert!(!is_answered(&mut setup), "a write was acknowledged before its release");
    drain(&mut reader);
    assert_eq!(setup.reply(), Reply::Simple(b"OK".to_vec()));

    let mut writer = server.connect();
    for write in ["SET k new", "DEL gone", "INCR counter", "SELECT 1", "SET k elsewhere", "SELECT 0"] {
        send(&mut writer, write);
    }
    assert!(!is_answered(&mut writer), "a write was acknowledged before its release");
    // Who looks at what was written waits, found or not; who looks at other keys does not.
    let waiting = [
        ("GET k", Reply::Bulk(b"new".to_vec())),
        ("GET gone", Reply::NullBulk),
        ("EXISTS gone", Reply::Integer(0)),
        ("STRLEN counter", Reply::Integer(1)),
        ("TTL k", Reply::Integer(-1)),
        ("SETNX k again", Reply::Integer(0)),
        ("MGET clean k", Reply::Array(vec![Reply::Bulk(b"1".to_vec()), Reply::Bulk(b"new".to_vec())])),
        ("DBSIZE", Reply::Integer(4)),
        ("OBJECT ENCODING counter", Reply::Bulk(b"int".to_vec())),
        ("KEYS k*", Reply::Array(vec![Reply::Bulk(b"k".to_vec())])),
        ("SCAN 0 MATCH ne* COUNT 10000", Reply::Array(vec![Reply::Bulk(b"0".to_vec()), Reply::Array(vec![])])),
    ];
    let mut readers: Vec<(Client, Reply)> = Vec::new();
    for (line, expected) in waiting {
        let mut client = server.connect();
        send(&mut client, line);
        assert!(!is_answered(&mut client), "{line} showed a write before its release");
        readers.push((client, expected));
    }
    let mut other = server.connect();
    for (line, expected) in [("GET clean", "1"), ("GETRANGE other 0 -1", "1")] {
        assert_eq!(other.ask(line), Reply::Bulk(expected.into()), "{line} waits for a write of another key");
    }
    assert_eq!(other.ask("GET never"), Reply::NullBulk);
    // A reply that need not wait stays behind one that must.
    send(&mut other, "GET k");
    send(&mut other, "GET clean");
    assert!(!is_answered(&mut other));

    let released = Instant::now();
    drain(&mut reader);
    for (client, expected) in &mut readers {
        assert_eq!(client.reply(), *expected);
    }
    eprintln!("{} connections on {:?} after the release", readers.len(), released.elapsed());
    assert_eq!((other.reply(), other.reply()), (Reply::Bulk(b"new".to_vec()), Reply::Bulk(b"1".to_vec())));
    let ok = || Reply::Simple(b"OK".to_vec());
    let expected = [ok(), Reply::Integer(1), Reply::Integer(8), ok(), ok(), ok()];
    for expected in expected {
        assert_eq!(writer.reply(), expected);
    }
    assert_eq!(drain(&mut reader), b"", "reads and refused writes are not logged");
}

#[test]
fn a_transaction_is_one_record_and_waits_for_its_release() {
    let server = InProcess::start(2);
    let mut reader = server.shared().log.activate(0);
    let queue = |client: &mut Client, lines: &[&str]| {
        assert_eq!(client.ask("MULTI"), Reply::Simple(b"OK".to_vec()));
        for line in lines {
            assert_eq!(
                client.ask(line),
                Reply::Simple(b"QUEUED".to_vec()),
                "queueing shows nothing and waits for nothing"
            );
        }
        send(client, "EXEC");
    };
    let text = |bytes: Vec<u8>| -> Vec<String> {
        let words =
            |command: Vec<Vec<u8>>| command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        commands(&bytes).into_iter().map(words).map(|words: Vec<String>| words.join(" ")).collect()
    };
    let mut watcher = server.connect();
    assert_eq!(watcher.ask("WATCH b"), Reply::Simple(b"OK".to_vec()));

    let mut writer = server.connect();
    queue(&mut writer, &["SET a 1", "GET a", "SELECT 2", "SET b 2", "SELECT 0", "INCR b", "DEL none"]);
    assert!(!is_answered(&mut writer), "a transaction was acknowledged before its release");
    // Its keys, and a watch that failed because of it, wait with it; other keys do not.
    let mut reads = server.connect();
    send(&mut reads, "GET b");
    queue(&mut watcher, &["PING"]);
    assert!(!is_answered(&mut reads) && !is_answered(&mut watcher), "a write was shown before its release");
    let mut other = server.connect();
    queue(&mut other, &["GET clean", "PING"]);
    assert_eq!(other.reply(), Reply::Array(vec![Reply::NullBulk, Reply::Simple(b"PONG".to_vec())]));

    let logged = text(drain(&mut reader));
    assert_eq!(logged, ["MULTI", "SET a 1", "SELECT 2", "SET b 2", "SELECT 0", "INCR b", "EXEC"]);
    assert_eq!(writer.reply().as_list().map(<[Reply]>::len), Some(7));
    assert_eq!((reads.reply(), watcher.reply()), (Reply::Bulk(b"1".to_vec()), Reply::NullArray));

    // One effect is no transaction, and none leaves no trace.
    queue(&mut writer, &["GET a", "SET a 2", "DEL none"]);
    queue(&mut other, &["GET clean"]);
    assert_eq!(other.reply(), Reply::Array(vec![Reply::NullBulk]));
    assert!(!is_answered(&mut writer), "a transaction of one effect was acknowledged before its release");
    assert_eq!(text(drain(&mut reader)), ["SET a 2"]);
    assert!(!writer.reply().is_error());
    // Whole databases, behind the gate.
    queue(&mut writer, &["SET c 1", "FLUSHDB", "SET d 1"]);
    assert!(!is_answered(&mut writer), "a flush was acknowledged before its release");
    send(&mut reads, "GET never");
    assert!(!is_answered(&mut reads), "a flush was shown before its release");
    assert_eq!(text(drain(&mut reader)), ["MULTI", "SET c 1", "FLUSHDB", "SET d 1", "EXEC"]);
    assert_eq!((reads.reply(), writer.reply().is_error()), (Reply::NullBulk, false));
}

/// A reader of a stream is told by RESP3 of its own miss, in so many words that it is closed for them, and then begins to wait: the
/// wait stayed when the connection was gone, and its end stopped the server.
#[test]
fn a_command_whose_own_event_closes_its_connection_does_not_wait() {
    let server = InProcess::start(1);
    let mut control = server.connect();
    for setting in ["notify-keyspace-events KEm", "client-output-buffer-limit"] {
        let mut words = vec!["CONFIG", "SET"];
        words.extend(setting.split(' '));
        words.extend((words.len() == 3).then_some("pubsub 200 0 0"));
        assert!(!control.call(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()).is_error());
    }
    let mut reader = server.shared().log.activate(0);
    let key = "k".repeat(1000);
    let mut writer = server.connect();
    send(&mut writer, &format!("SET {key} value"));
    send(&mut writer, &format!("DEL {key}"));
    assert!(!is_answered(&mut writer));
    let mut listens = server.connect();
    listens.ask("HELLO 3");
    listens.ask("SUBSCRIBE __keyevent@0__:keymiss");
    send(&mut listens, &format!("XREAD BLOCK 100 STREAMS {key} 0"));
    assert!(listens.is_closed_within(running::PATIENCE));
    std::thread::sleep(2 * HELD);
    assert_eq!(control.ask("PING"), Reply::Simple(b"PONG".to_vec()));
    drain(&mut reader);
    assert_eq!((writer.reply(), writer.reply()), (Reply::Simple(b"OK".to_vec()), Reply::Integer(1)));
}

/// Who serves a waiter publishes the waiter's events with its own next command, whose LSN is lower: they were shown before the
/// waiter's write was released.
#[test]
fn events_of_who_is_served_wait_for_its_own_write() {
    let server = InProcess::start(1);
    let (mut listens, mut waits, mut pushes) = (server.connect(), server.connect(), server.connect());
    assert!(!pushes.ask("CONFIG SET notify-keyspace-events KEl").is_error());
    listens.ask("SUBSCRIBE __keyevent@0__:lpush channel");
    listens.reply();
    let mut reader = server.shared().log.activate(0);
    send(&mut waits, "BLMOVE source target LEFT LEFT 0");
    assert!(!is_answered(&mut waits));
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &["RPUSH", "source", "element"]);
    encode_command(&mut bytes, &["PUBLISH", "channel", "message"]);
    pushes.send(&bytes);
    assert!(!is_answered(&mut pushes) && !is_answered(&mut listens));
    let (from, to) = (reader.position(), reader.readable());
    let logged: Vec<u8> = reader.chunks(from..to).flat_map(|chunk| chunk.bytes().to_vec()).collect();
    let (first, len) = Reply::parse(&logged).expect("RESP").expect("a whole record");
    assert_eq!(first.as_list().map(|words| words[0].clone()), Some(Reply::Bulk(b"RPUSH".to_vec())));
    reader.log().release(from + len as u64);
    assert!(!is_answered(&mut listens), "the move was told of before its release");
    drain(&mut reader);
    for channel in ["__keyevent@0__:lpush", "channel"] {
        let message = listens.reply();
        assert_eq!(message.as_list().map(|parts| parts[1].clone()), Some(Reply::Bulk(channel.into())));
    }
    assert_eq!((pushes.reply(), waits.reply()), (Reply::Integer(1), Reply::Bulk(b"element".to_vec())));
}

/// Replicas and files of Redis get the words that Redis would write: Valkey's own tests compare them. INCR was logged as INCRBY,
/// ZMPOP without its number, and what is freed in the background as DEL.
#[test]
fn effects_are_worded_as_redis_propagates_them() {
    let server = InProcess::start(1);
    let mut reader = server.shared().log.activate(0);
    let mut client = server.connect();
    let mut is_logged = |client: &mut Client, line: &str, logged: &str| {
        send(client, line);
        let (mut bytes, started) = (Vec::new(), Instant::now());
        while bytes.is_empty() && !logged.is_empty() && started.elapsed() < Duration::from_secs(20) {
            bytes = drain(&mut reader);
        }
        let reply = client.reply();
        bytes.extend(drain(&mut reader));
        let commands = commands(&bytes);
        let words =
            commands.iter().map(|words| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>());
        assert_eq!(words.map(|words| words.join(" ")).collect::<Vec<_>>().join("|"), logged, "{line}: {reply:?}");
    };
    let cases = [
        ("INCR n", "INCR n"),
        ("DECRBY n 5", "DECRBY n 5"),
        ("SET n 1 EXAT 1", "UNLINK n"),
        ("SET n 1", "SET n 1"),
        ("EXPIRE n -1", "UNLINK n"),
        ("SADD s a b c", "SADD s a b c"),
        ("SPOP s 3", "UNLINK s"),
        ("ZADD z 1 a 2 b 3 c 4 d", "ZADD z 1 a 2 b 3 c 4 d"),
        ("ZPOPMIN z", "ZPOPMIN z"),
        ("BZPOPMAX z 0", "ZPOPMAX z"),
        ("ZMPOP 1 z MIN", "ZPOPMIN z 1"),
        ("BZMPOP 0 1 z MAX COUNT 5", "ZPOPMAX z 1"),
        ("RPUSH l a b c", "RPUSH l a b c"),
        ("LMPOP 1 l LEFT", "LPOP l 1"),
        ("BRPOP l 0", "RPOP l"),
        ("CONFIG SET lazyfree-lazy-expire no lazyfree-lazy-server-del no", ""),
        ("EXPIRE l -1", "DEL l"),
        ("SADD s a", "SADD s a"),
        ("SPOP s 1", "DEL s"),
    ];
    for (line, logged) in cases {
        is_logged(&mut client, line, logged);
    }
}

/// What a thread under load writes. Keys that expire soon are apart: when a replayed command meets them they are gone.
fn random_write(random: &mut Random) -> Vec<String> {
    let key = |random: &mut Random| format!("k{}", random.below(40));
    let soon = |random: &mut Random| format!("soon{}", random.below(20));
    let later = |random: &mut Random| (600_000 + random.below(1000)).to_string();
    let (a, b, v) = (key(random), key(random), format!("v{}", random.below(100)));
    let line = match random.below(97) {
        0 | 1 => format!("SET {a} {v}"),
        2 => format!("SET {a} {v} PX {} GET", later(random)),
        3 => format!("SET {a} {v} KEEPTTL XX"),
        4 => format!("SET {a} {} NX", random.below(1000)),
        5 => format!("SETEX {a} 1000 {v}"),
        6 => format!("GETSET {a} {v}"),
        7 => format!("GETDEL {a}"),
        8 => format!("GETEX {a} PX {}", later(random)),
        9 => format!("GETEX {a} PERSIST"),
        10 => format!("APPEND {a} {v}"),
        11 => format!("SETRANGE {a} {} {v}", random.below(6000)),
        12 => format!("INCRBY n{} {}", random.below(9), random.below(100)),
        13 => format!("INCRBYFLOAT n{} {}.5", random.below(9), random.below(100)),
        14 | 15 => format!("MSET {a} {v} {b} {v} {} 1", key(random)),
        16 => format!("MSETNX {a} {v} {b} {v}"),
        17 => format!("MSETEX 2 {a} {v} {b} {v} PX {}", later(random)),
        18 | 19 => format!("DEL {a} {b} {a}"),
        20 => format!("UNLINK {a}"),
        21 | 22 => format!("RENAME {a} {b}"),
        23 => format!("RENAMENX {a} {b}"),
        24 => format!("COPY {a} {b} DB {} REPLACE", random.below(3)),
        25 => format!("COPY {a} {b}"),
        26 => format!("MOVE {a} {}", random.below(3)),
        27 => format!("PEXPIRE {a} {}", later(random)),
        28 => format!("PERSIST {a}"),
        29 => format!("SET {} {v} PX {}", soon(random), 1 + random.below(80)),
        30 => format!("PEXPIRE {} {}", soon(random), 1 + random.below(80)),
        31 => format!("APPEND {} {v}", soon(random)),
        32 => format!("GET {}", soon(random)),
        33..39 => sorted_set_write(random),
        39..50 => hash_write(random),
        50..61 => set_write(random),
        61..72 => stream_write(random),
        72..82 => list_write(random),
        82..90 => waiting_write(random),
        90..96 => bit_write(random),
        _ => match random.below(40) {
            0 => "FLUSHDB".to_owned(),
            1 => "SWAPDB 1 2".to_owned(),
            2 => "FLUSHALL".to_owned(),
            _ => format!("DELIFEQ {a} {v}"),
        },
    };
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    // Now and then a value that is referenced, not copied, into the log.
    if words[0] == "SET" && random.once_in(20) {
        words[2] = "x".repeat(5000 + random.below(400_000));
    }
    words
}

fn hash_write(random: &mut Random) -> String {
    let (key, field) = (format!("h{}", random.below(8)), format!("f{}", random.below(60)));
    let (other, soon) = (random.below(60), format!("soonh{}", random.below(4)));
    match random.below(17) {
        0 | 1 => format!("HSET {key} {field} {} f{} x", random.below(1000), random.below(60)),
        2 => format!("HSETNX {key} {field} 7"),
        3 | 4 => format!("HDEL {key} {field} f{} f{}", random.below(60), random.below(60)),
        5 => format!("HINCRBY {key} n{} {}", random.below(9), random.below(100)),
        6 => format!("HINCRBYFLOAT {key} n{} 0.1", random.below(9)),
        7 => format!("HMSET {key} {field} {}", "y".repeat(random.below(100) + 1)),
        8 => format!("HEXPIRE {key} {} FIELDS 2 {field} f{other}", 600 + random.below(1000)),
        9 => format!("HPERSIST {key} FIELDS 2 {field} f{other}"),
        10 => format!("HSETEX {key} EX 700 FIELDS 2 {field} 1 f{other} 2"),
        11 => format!("HSETEX {key} KEEPTTL FIELDS 2 {field} 3 f{other} 4"),
        12 => format!("HGETEX {key} PX 800000 FIELDS 2 {field} f{other}"),
        13 => format!("HGETDEL {key} FIELDS 2 {field} f{other}"),
        14 => format!("HSETEX {soon} PX {} FIELDS 2 {field} 1 f{other} 2", 1 + random.below(80)),
        15 => format!("HEXPIRE {key} 0 FIELDS 1 {field}"),
        _ => format!("RENAME {key} h{}", random.below(8)),
    }
}

fn list_write(random: &mut Random) -> String {
    let key = |random: &mut Random| format!("l{}", random.below(8));
    let end = |random: &mut Random| ["LEFT", "RIGHT"][random.below(2)];
    let (a, b, element) = (key(random), key(random), random.below(40));
    match random.below(16) {
        0..3 => format!("LPUSH {a} {element} e{} {}", random.below(9), "x".repeat(random.below(600))),
        3..5 => format!("RPUSH {a} {element} {}", random.below(40)),
        5 => format!("RPUSHX {a} {element}"),
        6 => format!("LPOP {a}"),
        7 => format!("RPOP {a} {}", 1 + random.below(4)),
        8 => format!("LMPOP 2 {a} {b} {} COUNT {}", end(random), 1 + random.below(4)),
        9 | 10 => format!("LMOVE {a} {b} {} {}", end(random), end(random)),
        11 => format!("LINSERT {a} BEFORE {element} {}", random.below(40)),
        12 => format!("LREM {a} {} {element}", random.below(3)),
        13 => format!("LTRIM {a} {} -{}", random.below(3), 1 + random.below(3)),
        14 => format!("SORT {a} ALPHA STORE {b}"),
        _ => format!("SORT {a} BY k* ALPHA GET n* GET # LIMIT 0 5 STORE {b}"),
    }
}

/// Commands that wait for a moment, and are carried out by whoever makes their keys ready.
fn waiting_write(random: &mut Random) -> String {
    let list = |random: &mut Random| format!("l{}", random.below(8));
    let set = |random: &mut Random| format!("z{}", random.below(6));
    let end = |random: &mut Random| ["LEFT", "RIGHT"][random.below(2)];
    let (a, b, seconds) = (list(random), list(random), format!("0.00{}", 1 + random.below(9)));
    match random.below(9) {
        0 => format!("BLPOP {a} {b} {seconds}"),
        1 => format!("BRPOP {a} {b} {} {seconds}", list(random)),
        2 => format!("BLMPOP {seconds} 2 {a} {b} {} COUNT {}", end(random), 1 + random.below(3)),
        3 | 4 => format!("BLMOVE {a} {b} {} {} {seconds}", end(random), end(random)),
        5 => format!("BZPOPMIN {} {} {seconds}", set(random), set(random)),
        6 => format!("BZMPOP {seconds} 2 {} {} MAX COUNT 2", set(random), set(random)),
        7 => format!("RENAME {a} {b}"),
        _ => {
            let (group, consumer, a, b) = (random.below(2), random.below(3), random.below(4), random.below(4));
            format!("XREADGROUP GROUP g{group} c{consumer} COUNT 2 BLOCK 5 STREAMS x{a} x{b} > >")
        }
    }
}

fn bit_write(random: &mut Random) -> String {
    let bits = |random: &mut Random| format!("b{}", random.below(5));
    let sketch = |random: &mut Random| format!("p{}", random.below(5));
    match random.below(8) {
        0 => format!("SETBIT {} {} {}", bits(random), random.below(90_000), random.below(2)),
        1 => format!("BITFIELD {} SET u7 {} 99 GET i5 3", bits(random), random.below(900)),
        2 => format!("BITFIELD {} OVERFLOW FAIL INCRBY i9 #{} 77", bits(random), random.below(90)),
        3 => format!("BITOP XOR {} {} {}", bits(random), bits(random), bits(random)),
        4 => format!("BITOP AND {} {} {}", bits(random), bits(random), bits(random)),
        5 => format!("PFADD {} {} {}", sketch(random), random.below(9999), random.below(9999)),
        6 => format!("PFMERGE {} {}", sketch(random), sketch(random)),
        _ => format!("PFCOUNT {}", sketch(random)),
    }
}

fn set_write(random: &mut Random) -> String {
    let key = |random: &mut Random| format!("s{}", random.below(8));
    let (a, b, c, member) = (key(random), key(random), key(random), random.below(300));
    match random.below(10) {
        0..3 => format!("SADD {a} {member} m{} {}", random.below(300), random.below(300)),
        3 => format!("SREM {a} {member} m{} {}", random.below(300), random.below(300)),
        4 => format!("SPOP {a}"),
        5 => format!("SPOP {a} {}", random.below(30)),
        6 => format!("SMOVE {a} {b} {member}"),
        7 => format!("SUNIONSTORE {a} {b} {c}"),
        8 => format!("SINTERSTORE {a} {b} {c}"),
        _ => format!("SDIFFSTORE {a} {b} {c}"),
    }
}

/// Writes of streams. What a consumer reads again is not logged, as in Redis, so that here all read what is new.
fn stream_write(random: &mut Random) -> String {
    let key = |random: &mut Random| format!("x{}", random.below(4));
    let (a, b, group, consumer) = (key(random), key(random), random.below(2), random.below(3));
    let id = |random: &mut Random| format!("{}-{}", random.below(40), random.below(3));
    let refs = |random: &mut Random| ["KEEPREF", "DELREF", "ACKED"][random.below(3)];
    match random.below(30) {
        24 => format!("XDELEX {a} {} IDS 2 {} {}", refs(random), id(random), id(random)),
        25 => format!("XACKDEL {a} g{group} {} IDS 2 {} {}", refs(random), id(random), id(random)),
        26 => format!("XTRIM {a} MAXLEN {} {}", random.below(60), refs(random)),
        27 => format!("XADD {a} {} MINID ~ {} * f v", refs(random), id(random)),
        28 => format!("XADD {a} {} MAXLEN ~ {} * f v", refs(random), random.below(200)),
        29 => format!("XREADGROUP GROUP g{group} c{consumer} CLAIM {} COUNT 9 STREAMS {a} {b} > >", random.below(9)),
        0..5 => format!("XADD {a} * f{} v g {}", random.below(3), random.below(1000)),
        5 => format!("XADD {a} MAXLEN ~ 100 {}-* f {}", random.below(60), "y".repeat(random.below(90) + 1)),
        6 => format!("XADD {a} NOMKSTREAM MINID {} {} f v", id(random), id(random)),
        7 => format!("XDEL {a} {} {}", id(random), id(random)),
        8 => format!("XTRIM {a} MAXLEN {}", random.below(100)),
        9 => format!("XTRIM {a} MINID ~ {}", id(random)),
        10 | 11 => format!("XGROUP CREATE {a} g{group} {} MKSTREAM", if random.once_in(2) { "$" } else { "0" }),
        12 => format!("XGROUP SETID {a} g{group} {} ENTRIESREAD {}", id(random), random.below(9)),
        13 => format!("XGROUP DELCONSUMER {a} g{group} c{consumer}"),
        14 if random.once_in(4) => format!("XGROUP DESTROY {a} g{group}"),
        15 => format!("XACK {a} g{group} {} {}", id(random), id(random)),
        16 => format!("XCLAIM {a} g{group} c{consumer} 0 {} {} FORCE", id(random), id(random)),
        17 => format!("XCLAIM {a} g{group} c{consumer} 5 {} IDLE 40 RETRYCOUNT 7", id(random)),
        18 => format!("XAUTOCLAIM {a} g{group} c{consumer} {} - COUNT 5", random.below(3)),
        19 => format!("XSETID {a} {} ENTRIESADDED 1000000", id(random)),
        20 => format!("XREADGROUP GROUP g{group} c{consumer} NOACK COUNT 3 STREAMS {a} >"),
        _ => format!("XREADGROUP GROUP g{group} c{consumer} COUNT {} STREAMS {a} {b} > >", 1 + random.below(9)),
    }
}

fn assert_expected(reply: &Reply) {
    let text = reply.as_bytes().unwrap_or_default();
    let allowed: [&[u8]; 10] = [
        b"OOM ",
        b"EXECABORT ",
        b"ERR no such key",
        b"ERR source and destination",
        b"ERR value is not a",
        b"ERR hash value is not",
        b"ERR The XGROUP subcommand",
        b"ERR The ID specified",
        b"NOGROUP ",
        b"BUSYGROUP ",
    ];
    assert!(!reply.is_error() || allowed.iter().any(|start| text.starts_with(start)), "{reply:?}");
}

/// Writes of sorted sets, which have keys of their own.
fn sorted_set_write(random: &mut Random) -> String {
    let key = |random: &mut Random| format!("z{}", random.below(6));
    let member = |random: &mut Random| format!("m{}", random.below(400));
    let (a, b, m) = (key(random), key(random), member(random));
    match random.below(18) {
        0..4 => format!("ZADD {a} {} {m} {}.5 {}", random.below(50), random.below(50), member(random)),
        4 => format!("ZADD {a} XX GT CH {} {m}", random.below(50)),
        5 => format!("ZADD {a} NX INCR {} {m}", random.below(50)),
        6 => format!("ZINCRBY {a} 0.1 {m}"),
        7 => format!("ZREM {a} {m} {}", member(random)),
        8 => format!("ZPOPMIN {a}"),
        9 => format!("ZPOPMAX {a} {}", random.below(5)),
        10 => format!("ZMPOP 2 {a} {b} MIN COUNT 3"),
        11 => format!("ZREMRANGEBYSCORE {a} 10 ({}", random.below(20)),
        12 => format!("ZREMRANGEBYRANK {a} {} -1", random.below(300)),
        13 => format!("ZUNIONSTORE {a} 2 {b} {} WEIGHTS 1 0.5 AGGREGATE MAX", key(random)),
        14 => format!("ZDIFFSTORE {a} 2 {b} {}", key(random)),
        15 => format!("GEOADD {a} {}.5 {}.25 {m}", random.below(180), random.below(85)),
        16 => format!("GEOSEARCHSTORE {a} {b} FROMLONLAT 50 40 BYBOX 9000 9000 km COUNT 50 STOREDIST"),
        _ => format!("ZRANGESTORE {a} {b} 0 40 BYSCORE LIMIT 0 300"),
    }
}

/// One client's load: pipelines of writes, each ended by a mark of its own and a look at another client's mark.
fn load(number: usize, client: &mut Client, logged: &[AtomicU64], stop: &AtomicBool) -> usize {
    let mut random = Random(number as u64 + 77);
    let (mut mark, mut count) = (0, 0);
    while !stop.load(Relaxed) {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &["SELECT", &random.below(3).to_string()]);
        let writes = random.below(12);
        // Some of them are a transaction, in which databases are selected and keys watched too.
        let transaction = random.once_in(3);
        if transaction {
            encode_command(&mut bytes, &["WATCH", &format!("k{}", random.below(40)), "n1"]);
            encode_command(&mut bytes, &["MULTI"]);
        }
        for _ in 0..writes {
            match transaction && random.once_in(8) {
                true => encode_command(&mut bytes, &["SELECT", &random.below(3).to_string()]),
                false => encode_command(&mut bytes, &random_write(&mut random)),
            }
        }
        if transaction {
            encode_command(&mut bytes, &["EXEC"]);
        }
        // Marks live in a database that is neither flushed nor swapped, but for FLUSHALL.
        mark += 1;
        encode_command(&mut bytes, &["SELECT", "9"]);
        encode_command(&mut bytes, &["SET", &format!("mark{number}"), &mark.to_string()]);
        let other = random.below(CLIENTS);
        encode_command(&mut bytes, &["GET", &format!("mark{other}")]);
        client.send(&bytes);
        let mut is_marked = false;
        for _ in 0..writes + 3 + if transaction { 3 } else { 0 } {
            let reply = client.reply();
            // The last one is the mark's, which is refused if nothing is left to be evicted.
            is_marked = !reply.is_error();
            match reply.as_list() {
                Some(replies) if transaction => replies.iter().for_each(assert_expected),
                _ => assert_expected(&reply),
            }
        }
        let is_logged = logged[number].load(SeqCst) >= mark;
        assert!(is_logged || !is_marked, "mark {mark} was acknowledged before it was released");
        if let Reply::Bulk(text) = client.reply() {
            let seen: u64 = String::from_utf8(text).expect("digits").parse().expect("a number");
            assert!(logged[other].load(SeqCst) >= seen, "mark {seen} was shown before it was released");
        }
        count += writes + 1;
    }
    count
}

/// Reads and releases until told to stop; returns all commands in order.
fn consume(mut reader: Reader, logged: &[AtomicU64], done: &AtomicBool) -> Vec<Vec<Vec<u8>>> {
    let (mut all, mut random) = (Vec::new(), Random(1));
    loop {
        let last = done.load(SeqCst);
        let to = reader.readable();
        let chunks = reader.chunks(reader.position()..to);
        let bytes: Vec<u8> = chunks.flat_map(|chunk| chunk.bytes().to_vec()).collect();
        for command in commands(&bytes) {
            if let [set, key, mark] = &command[..]
                && set == b"SET"
                && let Some(number) = key.strip_prefix(b"mark")
            {
                let number: usize = std::str::from_utf8(number).expect("digits").parse().expect("a number");
                let mark = std::str::from_utf8(mark).expect("digits").parse().expect("a number");
                logged[number].store(mark, SeqCst);
            }
            all.push(command);
        }
        if random.once_in(3) {
            std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
        }
        reader.consumed(to);
        reader.log().release(to);
        if last && bytes.is_empty() {
            return all;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Sends commands in order; every one of them must do what it did when it was logged.
fn replay(commands: &[Vec<Vec<u8>>], client: &mut Client) -> usize {
    let (mut transactions, mut group) = (0, None::<Vec<&[Vec<u8>]>>);
    for batch in commands.chunks(100) {
        let mut bytes = Vec::new();
        batch.iter().for_each(|command| encode_command(&mut bytes, command));
        client.send(&bytes);
        for command in batch {
            let reply = client.reply();
            match (&command[0][..], &mut group) {
                (b"MULTI", group @ None) => *group = Some(Vec::new()),
                (b"EXEC", group) => {
                    let queued = group.take().expect("EXEC ends what MULTI began");
                    assert!(queued.len() > 1, "a transaction of {} effects", queued.len());
                    let replies = reply.as_list().unwrap_or_else(|| panic!("{reply:?}"));
                    assert_eq!(replies.len(), queued.len());
                    queued.iter().zip(replies).for_each(|(command, reply)| check_replayed(command, reply));
                    transactions += 1;
                }
                (_, Some(group)) => {
                    assert_eq!(reply, Reply::Simple(b"QUEUED".to_vec()));
                    group.push(command);
                }
                (_, None) => check_replayed(command, &reply),
            }
        }
    }
    assert!(group.is_none(), "the log ends within a transaction");
    transactions
}

fn check_replayed(command: &[Vec<u8>], reply: &Reply) {
    let name = String::from_utf8_lossy(&command[0]).into_owned();
    let shown: Vec<_> =
        command.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(30)]).into_owned()).collect();
    assert!(!reply.is_error(), "{shown:?}: {reply:?}");
    let soon = command.get(1).is_some_and(|key| key.starts_with(b"soon"));
    if matches!(&name[..], "COPY" | "RENAMENX" | "MOVE" | "MSETNX" | "PERSIST" | "PEXPIREAT") && !soon {
        assert_eq!(*reply, Reply::Integer(1), "{shown:?} was logged, and so had an effect");
    }
    if matches!(&name[..], "DEL" | "UNLINK") && !soon {
        assert_eq!(*reply, Reply::Integer(command.len() as i64 - 1), "{shown:?} names what was there");
    }
}

/// Waits until active expiry has removed, and so logged, every key that was to live for a moment only.
fn await_expiry(server: &InProcess) -> Contents {
    let started = Instant::now();
    loop {
        let contents = server.contents();
        let is_left = |key: &[u8], deadline: &Option<i64>| {
            key.starts_with(b"soonh") || key.starts_with(b"soon") && deadline.is_some()
        };
        if !contents.iter().any(|((_, key), (_, deadline))| is_left(key, deadline)) {
            return contents;
        }
        assert!(started.elapsed() < running::PATIENCE, "expired keys stay");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn replay_gives_the_same_keyspace() {
    for workers in [1, 2, 8] {
        replay_of_a_load(workers, None);
    }
}

/// What is evicted is logged in its place among the commands that it makes room for.
#[test]
fn replay_after_evictions_gives_the_same_keyspace() {
    for (workers, policy) in [(1, "allkeys-lru"), (2, "allkeys-random"), (8, "volatile-ttl")] {
        replay_of_a_load(workers, Some(policy));
    }
}

/// Writes for a while, with a memory limit if there is a policy for it, and replays the log.
fn replay_of_a_load(workers: usize, policy: Option<&str>) {
    {
        let server = InProcess::start(workers);
        let mut control = server.connect();
        if let Some(policy) = policy {
            assert!(!control.ask(&format!("CONFIG SET maxmemory-policy {policy} maxmemory 700000")).is_error());
        }
        let reader = server.shared().log.activate(0);
        let logged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
        let (stop, done, count) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        let (contents, history) = std::thread::scope(|scope| {
            let consumer = scope.spawn(|| consume(reader, &logged, &done));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (server, logged, stop, count) = (&server, &logged, &stop, &count);
                    scope.spawn(move || count.fetch_add(load(number, &mut server.connect(), logged, stop), Relaxed))
                })
                .collect();
            std::thread::sleep(RUN);
            stop.store(true, Relaxed);
            let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            assert!(!control.ask("CONFIG SET maxmemory 0").is_error());
            let contents = await_expiry(&server);
            done.store(true, SeqCst);
            assert!(ended.iter().all(Result::is_ok), "a client failed");
            (contents, consumer.join().expect("the log is RESP"))
        });
        let second = InProcess::start(2);
        let transactions = replay(&history, &mut second.connect());
        let replayed = await_expiry(&second);
        let evicted: u64 = server.shared().stats.iter().map(|stats| stats.evicted_keys.value()).sum();
        eprintln!(
            "{workers} workers: {} commands, {} in the log, {transactions} transactions, {} keys, {evicted} evicted",
            count.load(Relaxed),
            history.len(),
            contents.len()
        );
        assert_eq!(evicted > 0, policy.is_some());
        assert!(history.len() > 1000 && transactions > 50, "hardly anything ran");
        for (key, value) in &contents {
            assert!(replayed.get(key) == Some(value), "{key:?} differs after the replay");
        }
        assert_eq!(contents.len(), replayed.len(), "the replay has keys of its own");
    }
}

/// Sends the same write for ever, without waiting for replies: held replies must not be what holds a writer back.
fn flood(mut stream: TcpStream, number: usize, sent: &AtomicUsize, stop: &AtomicBool) {
    stream.set_write_timeout(None).expect("a legal timeout");
    let value = vec![b'v'; 1 << 20];
    let mut command = Vec::new();
    encode_command(&mut command, &[b"SET".as_slice(), format!("big{number}").as_bytes(), &value]);
    while !stop.load(SeqCst) {
        sent.fetch_add(1, SeqCst);
        stream.write_all(&command).expect("the server reads");
    }
}

#[test]
fn a_reader_that_stands_still_stops_the_writers_only() {
    const WRITERS: usize = 4;
    /// The log's limit, and what may be on its way beyond it: a batch of each writer.
    const LIMIT: u64 = 256 << 20;
    const BEYOND: u64 = (WRITERS as u64 * 64) << 20;
    let server = InProcess::start(2);
    let log = server.shared().log.clone();
    let mut reader = log.activate(0);
    let sent: Vec<AtomicUsize> = (0..WRITERS).map(|_| AtomicUsize::new(0)).collect();
    let all_sent = || sent.iter().map(|sent| sent.load(SeqCst)).sum::<usize>();
    let (answered, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (sent, answered, stop) = (&sent[number], &answered, &stop);
            let mut client = server.connect();
            let stream = client.stream.try_clone().expect("a second handle");
            let flooding = scope.spawn(move || flood(stream, number, sent, stop));
            scope.spawn(move || {
                client.stream.set_read_timeout(None).expect("a legal timeout");
                let mut received = 0;
                while !flooding.is_finished() || received < sent.load(SeqCst) {
                    if received == sent.load(SeqCst) {
                        std::thread::sleep(Duration::from_micros(100));
                        continue;
                    }
                    assert_eq!(client.reply(), Reply::Simple(b"OK".to_vec()));
                    received += 1;
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
        // The log fills and then stands.
        let (mut end, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_millis(700) || end < LIMIT {
            std::thread::sleep(Duration::from_millis(10));
            if log.end() != end {
                (end, since) = (log.end(), Instant::now());
            }
            assert!(since.elapsed() < running::PATIENCE, "the log stopped at {end} bytes");
        }
        assert!((LIMIT..LIMIT + BEYOND).contains(&log.pending()), "{} bytes are in the log", log.pending());
        assert_eq!(answered.load(SeqCst), 0, "writes were acknowledged");
        let mut other = server.connect();
        assert_eq!(other.ask("PING"), Reply::Simple(b"PONG".to_vec()));
        assert_eq!(other.ask("GET clean"), Reply::NullBulk);
        // Reading lets them go on, and every write is answered in the end.
        let started = Instant::now();
        loop {
            let to = reader.readable();
            reader.consumed(to);
            log.release(to);
            let count = answered.load(SeqCst);
            if count > 800 {
                stop.store(true, SeqCst);
                if count == all_sent() {
                    break;
                }
            }
            let left = all_sent() - count;
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{count} writes were answered, {left} are missing; {} bytes are pending, {} of {} released",
                log.pending(),
                log.released(),
                log.end()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        eprintln!("{end} bytes when it stood, {} writes", answered.load(SeqCst));
    });
}
