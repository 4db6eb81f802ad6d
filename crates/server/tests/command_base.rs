//! `aof-use-rdb-preamble no`: a base of commands makes every value again, here and in a redis-server 7.0. Without redis-server that
//! test says so.

mod running;

use gimmal_lab::process::{ServerProcess, ServerSpec};
use gimmal_resp::{Reply, encode_command};
use running::{Client, PATIENCE, Running, Scratch, free_port, ok};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ARGUMENTS: &str = "--workers 2 --appendonly yes --aof-use-rdb-preamble no --enable-debug-command yes";

fn start(scratch: &Scratch, arguments: &str) -> Running {
    Running::start(&format!("--dir {} {arguments}", scratch.0.display()))
}

fn digest(client: &mut Client) -> Reply {
    let digest = client.ask("DEBUG DIGEST");
    assert!(!digest.is_error(), "{digest:?}");
    digest
}

fn rewrite(server: &Running, client: &mut Client) {
    let before = server.log().matches("rewrite finished successfully").count();
    assert!(!client.ask("BGREWRITEAOF").is_error());
    let started = Instant::now();
    while server.log().matches("rewrite finished successfully").count() == before {
        assert!(started.elapsed() < PATIENCE, "{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The base, which is to be one of commands.
fn base(dir: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(dir.join("appendonlydir")).expect("a log").map(|file| file.expect("a file").path());
    let bases: Vec<_> = files.filter(|path| path.to_string_lossy().contains(".base.")).collect();
    assert_eq!(bases.len(), 1, "{bases:?}");
    assert!(bases[0].to_string_lossy().ends_with(".base.aof"), "{bases:?}");
    std::fs::read(&bases[0]).expect("readable")
}

fn many(head: &str, count: usize, words: impl Fn(usize) -> String) -> String {
    let mut line = head.to_owned();
    for i in 0..count {
        line += " ";
        line += &words(i);
    }
    line
}

/// Values of every type, small and large, whatever is peculiar about them.
fn fill(client: &mut Client) {
    let mut ask = |line: &str| {
        let reply = client.ask(line);
        assert!(!reply.is_error(), "{}: {reply:?}", &line[..line.len().min(60)]);
    };
    for db in [0, 5] {
        ask(&format!("SELECT {db}"));
        for line in ["SET int -9223372036854775808", "SET zero 0", "SET text a", "SET volatile text PX 5000000"] {
            ask(line);
        }
        ask(&format!("SET rope {}", "0123456789".repeat(90_000)));
        ask(&format!("SET volatile:rope {} EX 5000", "0123456789".repeat(60_000)));
        for count in [1, 63, 64, 65, 130, 5000] {
            ask(&many(&format!("RPUSH list:{count}"), count, |i| format!("element-{i}")));
            ask(&many(&format!("SADD set:{count}"), count, |i| format!("member-{i}")));
            ask(&many(&format!("SADD numbers:{count}"), count, |i| (i * 1_000_003).to_string()));
            ask(&many(&format!("ZADD zset:{count}"), count, |i| format!("{} member-{i}", i as f64 * 0.1 - 3.0)));
            ask(&many(&format!("HSET hash:{count}"), count, |i| format!("field-{i} value-{i}")));
            ask(&format!("PEXPIRE hash:{count} 70000000"));
        }
        ask("ZADD zset:special inf infinite -inf least -0 minus 0 null 1e300 large 1e-300 tiny 0.1 tenth 3 three");
        ask(&format!("RPUSH list:long {} short {}", "x".repeat(100_000), "y".repeat(20_000)));
        ask(&format!("HSET hash:long field {} {} value", "x".repeat(300_000), "y".repeat(20_000)));
        streams(&mut ask);
    }
    ask("SELECT 0");
    let bytes: Vec<u8> = (0..=255).collect();
    for words in [
        [&b"SET"[..], b"binary\0\r\n\xff", &bytes],
        [b"RPUSH", b"binary list\r\n", &bytes],
        [b"SADD", b"binary set\r\n", &bytes],
    ] {
        assert!(!client.call(&words).is_error());
    }
    assert!(!client.call(&[b"HSET", b"binary hash\n", &bytes, &bytes]).is_error());
    assert!(!client.call(&[b"ZADD", b"binary zset\n", b"1.5", &bytes]).is_error());
    assert!(!client.call(&[b"XADD", b"binary stream\n", b"1-1", &bytes, &bytes]).is_error());
    assert!(!client.call(&[b"XGROUP", b"CREATE", b"binary stream\n", &bytes, b"0"]).is_error());
    assert!(!client.call(&[b"XREADGROUP", b"GROUP", &bytes, &bytes, b"STREAMS", b"binary stream\n", b">"]).is_error());
}

/// Streams whose entries were read, acknowledged, deleted and trimmed.
fn streams(ask: &mut impl FnMut(&str)) {
    for name in ["stream", "deleted", "trimmed", "emptied", "cleared", "lowered"] {
        for i in 1..=300 {
            ask(&format!(
                "XADD {name} {i}-{} kind {} value text-{i}{}",
                i % 3,
                i % 7,
                if i % 5 == 0 { " more 1" } else { "" }
            ));
        }
        for (group, from) in [("first", "0"), ("second", "10-1"), ("third", "$"), ("fourth", "0")] {
            ask(&format!("XGROUP CREATE {name} {group} {from}"));
        }
        ask(&format!("XGROUP CREATE {name} counted 20-2 ENTRIESREAD 20"));
        ask(&format!("XGROUP CREATECONSUMER {name} third idle"));
        for (group, consumer, count) in
            [("first", "a", 100), ("first", "b", 50), ("second", "c", 300), ("fourth", "d", 5)]
        {
            ask(&format!("XREADGROUP GROUP {group} {consumer} COUNT {count} STREAMS {name} >"));
        }
        ask(&format!("XACK {name} first 5-2 6-0 7-1"));
        ask(&format!("XREADGROUP GROUP first a COUNT 3 STREAMS {name} 0"));
        ask(&format!("XCLAIM {name} first b 0 8-2 TIME 1600000000000 RETRYCOUNT 17 JUSTID"));
    }
    ask("XDEL deleted 1-1 2-2 50-2 51-0 100-1 299-2 300-0");
    ask("XTRIM trimmed MAXLEN 120");
    ask("XTRIM emptied MAXLEN 0");
    ask(&many("XDEL cleared", 300, |i| format!("{}-{}", i + 1, (i + 1) % 3)));
    ask("XTRIM lowered MAXLEN 0");
    ask("XSETID lowered 7-7");
    ask("XADD fresh MAXLEN 0 1-1 a b");
    ask("XGROUP CREATE made group $ MKSTREAM");
    ask("XGROUP CREATE made other 0 MKSTREAM");
    ask("XADD ahead 5-0 a b");
    ask("XSETID ahead 18446744073709551615-18446744073709551614 ENTRIESADDED 100 MAXDELETEDID 4-4");
    ask("PEXPIRE ahead 70000000");
}

#[test]
fn every_value_is_made_again() {
    let scratch = Scratch::new("command-base");
    let server = start(&scratch, ARGUMENTS);
    let mut client = server.connect();
    fill(&mut client);
    assert!(!client.ask("HSET hash:fields a 1 b 2 c 3 d 4").is_error());
    assert!(!client.ask("HPEXPIRE hash:fields 70000000 FIELDS 2 a b").is_error());
    assert!(!client.ask("HPEXPIRE hash:5000 80000000 FIELDS 2 field-77 field-78").is_error());
    let before = digest(&mut client);
    rewrite(&server, &mut client);
    assert!(base(&scratch.0).starts_with(b"*2\r\n$6\r\nSELECT\r\n"));
    assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{}", server.log());
    assert_eq!(digest(&mut client), before, "loaded again");
    // Of what was loaded from commands another base is made, and the log goes on behind it.
    rewrite(&server, &mut client);
    assert_eq!(client.ask("SET last 1"), ok());
    let before = digest(&mut client);
    server.kill();
    drop(server);
    let server = start(&scratch, ARGUMENTS);
    assert_eq!(digest(&mut server.connect()), before, "started anew: {}", server.log());
    assert!(!server.log().contains("answered"), "{}", server.log());
    // The other kind of base takes its place, and back.
    drop(server);
    let server = start(&scratch, "--workers 1 --appendonly yes --enable-debug-command yes");
    let mut client = server.connect();
    assert_eq!(digest(&mut client), before);
    rewrite(&server, &mut client);
    assert_eq!(client.ask("CONFIG SET aof-use-rdb-preamble no"), ok());
    rewrite(&server, &mut client);
    assert!(base(&scratch.0).starts_with(b"*2\r\n$6\r\nSELECT\r\n"));
    assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{}", server.log());
    assert_eq!(digest(&mut client), before);
}

/// A redis-server on a directory that it is to load; `None`, and said so, where there is none.
fn redis(dir: &Path) -> Option<(ServerProcess, Client)> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("not run: there is no redis-server here");
        return None;
    }
    let (port, dir) = (free_port(), dir.display().to_string());
    let argv = ["redis-server", "--port", &port.to_string(), "--save", "", "--appendonly", "yes", "--dir", &dir];
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let process = ServerProcess::start(&ServerSpec { name: "redis".into(), port, argv }, None, &std::env::temp_dir());
    let process = process.expect("redis-server starts");
    let mut client = Client::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("redis-server accepts"));
    let started = Instant::now();
    while client.ask("PING").is_error() {
        assert!(started.elapsed() < PATIENCE, "redis-server loads: {}", process.printed());
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((process, client))
}

/// Has Redis load the log of a server that was killed and save what it understood; the digest of that, if there is a Redis.
fn through_redis(scratch: &Scratch) -> Option<Reply> {
    let (process, mut client) = redis(&scratch.0)?;
    assert_eq!(client.ask("SAVE"), ok());
    assert!(!process.printed().contains("rror"), "{}", process.printed());
    drop(process);
    let server = start(scratch, "--workers 2 --enable-debug-command yes");
    Some(digest(&mut server.connect()))
}

#[test]
fn a_redis_makes_the_same_values() {
    let scratch = Scratch::new("command-base-redis");
    let server = start(&scratch, ARGUMENTS);
    let mut client = server.connect();
    fill(&mut client);
    let before = digest(&mut client);
    rewrite(&server, &mut client);
    server.kill();
    drop(server);
    if let Some(after) = through_redis(&scratch) {
        assert_eq!(after, before);
    }
}

/// A value is not gathered to be written: memory does not grow by it.
#[test]
fn large_values_are_written_element_by_element() {
    const ELEMENTS: usize = 1_000_000;
    let scratch = Scratch::new("command-base-large");
    let server = start(&scratch, &format!("{ARGUMENTS} --appendfsync no"));
    let mut client = server.connect();
    let mut bytes = Vec::new();
    for from in (0..ELEMENTS).step_by(1000) {
        bytes.clear();
        for (name, pairs) in [("ZADD", true), ("HSET", true), ("RPUSH", false), ("SADD", false)] {
            let mut words = vec![name.to_owned(), format!("{name}:key")];
            for i in from..from + 1000 {
                words.extend(pairs.then(|| i.to_string()));
                words.push(format!("element-{i}"));
            }
            encode_command(&mut bytes, &words);
        }
        for i in from / 10..from / 10 + 100 {
            encode_command(&mut bytes, &["XADD", "stream", &format!("{}-1", i + 1), "field", "a value of an entry"]);
        }
        client.send(&bytes);
        (0..104).for_each(|_| assert!(!client.reply().is_error()));
    }
    assert!(!client.ask("XGROUP CREATE stream group 0").is_error());
    assert!(!client.ask("XREADGROUP GROUP group consumer COUNT 100000 STREAMS stream >").is_error());
    let before = digest(&mut client);
    let peak_mib = server.peak_rss_mib();
    rewrite(&server, &mut client);
    let grown_mib = server.peak_rss_mib() - peak_mib;
    let written = base(&scratch.0).len();
    assert!(written > 100 << 20, "{written} bytes");
    assert!(grown_mib < 32, "{grown_mib} MiB more for a base of {written} bytes");
    assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{}", server.log());
    assert_eq!(digest(&mut client), before);
    server.kill();
    drop(server);
    if let Some(after) = through_redis(&scratch) {
        assert_eq!(after, before);
    }
}
