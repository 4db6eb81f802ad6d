//! Commands of very many arguments: they are kept with the buffer in which they came, their work is done by threads, and nobody can
//! tell.

mod in_process;
mod running;

use gimmal_log::Reader;
use gimmal_resp::{Reply, encode_command};
use in_process::InProcess;
use running::Client;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Enough for a thread.
const MANY: i64 = 6000;

type Words = Vec<String>;

fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

/// A command that begins with `line`, and goes on with what `each` says of these numbers.
fn wide(line: &str, numbers: std::ops::Range<i64>, each: impl Fn(i64) -> String) -> Words {
    let mut all = words(line);
    numbers.for_each(|number| all.extend(words(&each(number))));
    all
}

fn with(mut command: Words, end: &str) -> Words {
    command.extend(words(end));
    command
}

fn encoded(command: &Words) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, command);
    bytes
}

fn call(client: &mut Client, command: &Words) -> Reply {
    client.send(&encoded(command));
    client.reply()
}

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(number) => *number,
        other => panic!("no number: {other:?}"),
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes().expect("a string")).into_owned()
}

fn member(number: i64) -> String {
    format!("m{number}")
}

fn place(number: i64) -> String {
    format!("{}.5 {}.25 m{number}", number % 179, number % 85)
}

/// Commands of every family on keys that are there, that are missing, and that hold something else.
fn script() -> Vec<Words> {
    let pair = |number| format!("m{number} v{number}");
    let scored = |number: i64| format!("{} m{number}", number * 7 % 1000);
    let id = |number| format!("{}-1", number + 1);
    let fields = |line: &str, from: i64| wide(&format!("{line} FIELDS {MANY}"), from..from + MANY, member);
    let mut script = vec![words("SET string x")];
    for line in ["SADD s", "SADD s", "SMISMEMBER s", "SMISMEMBER none", "SADD string", "SREM none", "SMISMEMBER string"]
    {
        script.push(wide(line, 0..MANY, member));
    }
    script.push(wide("SADD s", 3000..9000, member));
    script.push(wide("SREM s", 1000..8000, member));
    script.push(wide("SREM s", 0..9000, member));
    for line in ["HSET h", "HMSET h", "HSET string", "HSET h odd"] {
        script.push(wide(line, 0..MANY, pair));
    }
    for line in
        ["HTTL h", "HPEXPIREAT h 99999999999999", "HPEXPIREAT h 99999999999999 NX", "HPEXPIRETIME h", "HPERSIST h"]
    {
        script.push(fields(line, 1000));
    }
    for line in ["HPEXPIREAT none 99999999999999", "HPERSIST none", "HTTL none", "HPERSIST string", "HEXPIRE h -1"] {
        script.push(fields(line, 0));
    }
    for line in ["HMGET h", "HMGET none", "HMGET string", "HDEL none", "HDEL string"] {
        script.push(wide(line, 500..6500, member));
    }
    let set = |line: &str, from: i64| wide(&format!("{line} FIELDS {MANY}"), from..from + MANY, pair);
    for line in
        ["HSETEX h FNX", "HSETEX h FXX KEEPTTL", "HSETEX h NX", "HSETEX e NX PXAT 99999999999999", "HSETEX string"]
    {
        script.push(set(line, 0));
    }
    for line in
        ["HSETEX e FNX", "HSETEX h PXAT 99999999999998", "HSETEX missing XX", "HSETEX missing FXX", "HSETEX e PXAT 1"]
    {
        script.push(set(line, 1000));
    }
    for line in
        ["HGETEX h PERSIST", "HGETEX e PXAT 99999999999997", "HGETEX none PERSIST", "HGETEX h", "HGETEX string PERSIST"]
    {
        script.push(fields(line, 500));
    }
    for line in ["HGETEX e PXAT 1", "HGETDEL h", "HGETDEL h", "HGETDEL none", "HGETDEL string"] {
        script.push(fields(line, 100));
    }
    script.push(wide("HSET h", 0..MANY, pair));
    script.push(fields("HPEXPIREAT h 1", 0));
    script.push(wide("HSET h", 0..MANY, pair));
    script.push(wide("HDEL h", 1..MANY, member));
    script.push(wide("HDEL h", 0..MANY, member));
    for line in
        ["ZADD z", "ZADD z CH", "ZADD z XX", "ZADD string", "ZADD none XX", "ZADD z INCR", "ZADD z NX GT", "ZADD z x"]
    {
        script.push(wide(line, 0..MANY, scored));
    }
    script.push(wide("ZADD z GT CH", 2000..9000, |number| format!("{} m{number}", number % 900)));
    // What is no score is told of before anything else.
    for key in ["z", "string", "none XX", "new"] {
        script.push(with(wide(&format!("ZADD {key}"), 0..MANY, scored), "nonsense last"));
    }
    for line in ["ZMSCORE z", "ZMSCORE none", "ZMSCORE string", "ZREM none", "ZREM string"] {
        script.push(wide(line, 0..MANY, member));
    }
    script.push(wide("ZREM z", 500..7000, member));
    script.push(wide("ZREM z", 0..9000, member));
    for line in
        ["GEOADD g", "GEOADD g CH", "GEOADD g XX", "GEOADD string", "GEOADD none XX", "GEOADD g NX XX", "GEOADD g 1"]
    {
        script.push(wide(line, 0..MANY, place));
    }
    script.push(with(wide("GEOADD g", 0..MANY, place), "200 0 nowhere"));
    script.push(with(wide("GEOADD string", 0..MANY, place), "200 0 nowhere"));
    for line in ["GEOPOS g", "GEOHASH g", "GEOPOS none", "GEOHASH string"] {
        script.push(wide(line, 100..6100, member));
    }
    for line in ["RPUSH l", "LPUSH l", "RPUSHX l", "LPUSHX l", "RPUSHX none", "LPUSH string", "RPUSHX string"] {
        script.push(wide(line, 0..MANY, member));
    }
    for line in ["PFADD p", "PFADD p", "PFADD string"] {
        script.push(wide(line, 0..MANY, member));
    }
    script.push(wide("PFADD p", 3000..15000, member));
    script.push(words("PFCOUNT p"));
    script.push(words("XGROUP CREATE x g 0 MKSTREAM"));
    script.extend((0..MANY).map(|number| words(&format!("XADD x {} f v", id(number)))));
    script.push(words("XREADGROUP GROUP g one COUNT 5900 STREAMS x >"));
    let claim = wide("XCLAIM x g two 0", 0..MANY, id);
    for end in ["TIME 1000 JUSTID", "TIME 1000 FORCE", "NONSENSE"] {
        script.push(with(claim.clone(), end));
    }
    for line in ["XACK x g", "XACK x none", "XACK none g", "XACK string g", "XDEL x", "XDEL none", "XDEL string"] {
        script.push(wide(line, 1000..8000, id));
    }
    script.push(with(wide("XDEL x", 0..MANY, id), "nonsense"));
    script.push(with(wide("XACK x g", 0..MANY, id), "nonsense"));
    script.push(with(claim, "TIME 1000 RETRYCOUNT 7"));
    script
}

/// The same commands alone, where a thread does the work, and in transactions, where none may.
#[test]
fn a_thread_answers_what_a_worker_would() {
    for workers in [1, 2] {
        let server = InProcess::start(workers);
        let (mut client, mut queueing) = (server.connect(), server.connect());
        queueing.ask("SELECT 1");
        for command in &script() {
            let alone = call(&mut client, command);
            queueing.ask("MULTI");
            assert_eq!(call(&mut queueing, command), Reply::Simple(b"QUEUED".to_vec()));
            let replies = queueing.ask("EXEC");
            let queued = &replies.as_list().expect("an array")[0];
            assert_eq!(alone, *queued, "{:?} … {:?}", &command[..3], &command[command.len() - 2..]);
        }
        let contents = server.contents();
        let of =
            |wanted| contents.iter().filter(move |((db, _), _)| *db == wanted).map(|((_, key), value)| (key, value));
        assert!(of(0).count() > 4 && of(0).eq(of(1)), "the values differ");
    }
}

/// Reads the log to its end and releases it.
fn drain(reader: &mut Reader) -> Vec<u8> {
    let (from, to) = (reader.position(), reader.readable());
    let bytes = reader.chunks(from..to).flat_map(|chunk| chunk.bytes().to_vec()).collect();
    reader.consumed(to);
    reader.log().release(to);
    bytes
}

/// What is logged of them makes the same values.
#[test]
fn the_log_has_what_threads_have_done() {
    let server = InProcess::start(2);
    let mut reader = server.shared().log.activate(0);
    let running = AtomicBool::new(true);
    let log = std::thread::scope(|scope| {
        let running = &running;
        let drained = scope.spawn(move || {
            let mut log = Vec::new();
            while running.load(Relaxed) {
                log.extend(drain(&mut reader));
                std::thread::sleep(Duration::from_millis(1));
            }
            log.extend(drain(&mut reader));
            log
        });
        let mut client = server.connect();
        script().iter().for_each(|command| drop(call(&mut client, command)));
        running.store(false, Relaxed);
        drained.join().expect("no panic")
    });
    let replayed = InProcess::start(1);
    let mut client = replayed.connect();
    let mut rest = log.as_slice();
    while !rest.is_empty() {
        let (_, length) = Reply::parse(rest).expect("RESP").expect("a whole record");
        client.send(&rest[..length]);
        assert!(!client.reply().is_error());
        rest = &rest[length..];
    }
    assert_eq!(server.contents(), replayed.contents());
}

/// What one command pushes stays together, whatever others push meanwhile, and nothing is lost.
#[test]
fn what_is_pushed_together_stays_together() {
    let server = InProcess::start(2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        scope.spawn(move || {
            let mut client = server.connect();
            while !stop.load(Relaxed) {
                client.ask("RPUSH l other");
            }
        });
        let pushing: Vec<_> = (0..3)
            .map(|who| {
                scope.spawn(move || {
                    let mut client = server.connect();
                    for round in 0..5 {
                        let command = wide("RPUSH l", 0..MANY, |number| format!("{who}:{round}:{number}"));
                        assert!(number(&call(&mut client, &command)) >= MANY);
                    }
                })
            })
            .collect();
        pushing.into_iter().for_each(|thread| thread.join().expect("no panic"));
        stop.store(true, Relaxed);
    });
    let all = server.connect().ask("LRANGE l 0 -1");
    let all: Vec<String> = all.as_list().expect("an array").iter().map(text).collect();
    let pushed: Vec<usize> = (0..all.len()).filter(|at| all[*at].contains(':')).collect();
    assert_eq!(pushed.len(), 15 * usize::try_from(MANY).expect("positive"));
    for run in pushed.chunks(usize::try_from(MANY).expect("positive")) {
        assert_eq!(run[run.len() - 1] - run[0], run.len() - 1, "others are in between");
    }
}

/// Scores are counted once although the set changes while a thread works on it.
#[test]
fn members_that_others_add_meanwhile_are_theirs() {
    let server = InProcess::start(2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        let adding = scope.spawn(move || {
            let (mut client, mut added, mut next) = (server.connect(), 0, 0);
            while !stop.load(Relaxed) {
                added += number(&client.ask(&format!("ZADD z 1 m{next}")));
                next = (next + 1) % (MANY * 2);
            }
            added
        });
        let (mut client, mut mine) = (server.connect(), 0);
        for _ in 0..10 {
            mine += number(&call(&mut client, &wide("ZADD z", 0..MANY, |number| format!("2 m{number}"))));
            mine -= number(&call(&mut client, &wide("ZREM z", 0..MANY * 2, member)));
        }
        stop.store(true, Relaxed);
        let theirs = adding.join().expect("no panic");
        assert_eq!(number(&client.ask("ZCARD z")), mine + theirs);
    });
}

/// Who waits for a key is served by what a thread has put there, and who watches it is told of changes and of nothing else.
#[test]
fn waiters_are_served_and_watchers_told() {
    let server = InProcess::start(2);
    let mut client = server.connect();
    let pushes = [
        ("BLPOP l 0", wide("RPUSH l", 0..MANY, member)),
        ("BZPOPMIN z 0", wide("ZADD z", 0..MANY, |n| format!("{n} m{n}"))),
    ];
    for (wait, push) in &pushes {
        let mut waiting = server.connect();
        waiting.send(&encoded(&words(wait)));
        while !text(&client.ask("INFO clients")).contains("blocked_clients:1") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(number(&call(&mut client, push)), MANY);
        let popped = waiting.reply();
        assert_eq!(popped.as_list().expect("an array")[1], Reply::Bulk(b"m0".to_vec()));
    }
    assert_eq!((number(&client.ask("LLEN l")), number(&client.ask("ZCARD z"))), (MANY - 1, MANY - 1));

    for (command, changes) in [("ZADD z", true), ("ZADD z", false), ("ZADD z CH", false)] {
        let mut watching = server.connect();
        watching.ask("WATCH z");
        call(&mut client, &wide(command, 0..MANY, |number| format!("{number} m{number}")));
        watching.ask("MULTI");
        watching.ask("PING");
        assert_eq!(watching.ask("EXEC") == Reply::NullArray, changes, "{command}");
    }
}

/// A command of 300,000 arguments in the midst of a pipeline, with long arguments among them: replies keep their order.
#[test]
fn pipelines_go_on_behind_a_command_of_very_many_arguments() {
    const VERY_MANY: i64 = 300_000;
    let server = InProcess::start(2);
    let mut client = server.connect();
    let long = "x".repeat(100_000);
    let element = |number: i64| if number % 50_000 == 7 { long.clone() } else { format!("element:{number:010}") };
    let mut pipeline = encoded(&words("SET before 1"));
    for _ in 0..3000 {
        pipeline.extend(encoded(&words("INCR before")));
    }
    pipeline.extend(encoded(&wide("RPUSH l", 0..VERY_MANY, element)));
    pipeline.extend(encoded(&words("INCR before")));
    pipeline.extend(encoded(&wide("NONSENSE", 0..VERY_MANY, member)));
    pipeline.extend(encoded(&wide("GET", 0..VERY_MANY, member)));
    pipeline.extend(encoded(&wide("MSET", 0..10_000, |number| format!("key{number} {number}"))));
    pipeline.extend(encoded(&words("LLEN l")));
    let mut sender = Client::new(client.stream.try_clone().expect("a socket"));
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(&pipeline));
        assert_eq!(client.reply(), Reply::Simple(b"OK".to_vec()));
        (2..3002).for_each(|count| assert_eq!(number(&client.reply()), count));
        assert_eq!(number(&client.reply()), VERY_MANY);
        assert_eq!(number(&client.reply()), 3002);
        assert!(client.reply().is_error() && client.reply().is_error());
        assert_eq!(client.reply(), Reply::Simple(b"OK".to_vec()));
        assert_eq!(number(&client.reply()), VERY_MANY);
    });
    for (at, expected) in [(0, element(0)), (7, long.clone()), (250_007, long.clone()), (-1, element(VERY_MANY - 1))] {
        assert_eq!(client.ask(&format!("LINDEX l {at}")), Reply::Bulk(expected.into_bytes()), "{at}");
    }
    assert_eq!(client.ask("GET key9999"), Reply::Bulk(b"9999".to_vec()));
    // One whose client is gone before its end is nothing, and one whose client wants no reply is carried out.
    let whole = encoded(&wide("RPUSH l", 0..VERY_MANY, member));
    server.connect().send(&whole[..whole.len() - 1]);
    let mut silent = server.connect();
    silent.send(&encoded(&words("CLIENT REPLY OFF")));
    silent.send(&encoded(&wide("RPUSH silent", 0..MANY, member)));
    silent.send(&encoded(&words("CLIENT REPLY ON")));
    assert_eq!(silent.reply(), Reply::Simple(b"OK".to_vec()));
    assert_eq!((number(&client.ask("LLEN silent")), number(&client.ask("LLEN l"))), (MANY, VERY_MANY));
}
