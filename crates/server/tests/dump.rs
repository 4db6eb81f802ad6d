//! DUMP and RESTORE beside a real redis-server 7.0, which checks every byte that it is given: values of every encoding go
//! from this server to it, and back, and are the same on both sides. On a machine without redis-server that test says so.
//! Damaged payloads are refused, and the server lives.

mod in_process;
mod running;

use gimmal_lab::process::{ServerProcess, ServerSpec};
use gimmal_resp::Reply;
use in_process::Random;
use running::{Client, Running, free_port};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

/// A redis-server that sanitizes; `None`, and said so, where there is none.
fn redis() -> Option<(ServerProcess, Client)> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("not run: there is no redis-server here");
        return None;
    }
    let port = free_port();
    let text = port.to_string();
    let argv = ["redis-server", "--port", &text, "--save", "", "--sanitize-dump-payload", "yes"];
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let spec = ServerSpec { name: "redis".into(), port, argv };
    let process = ServerProcess::start(&spec, None, &std::env::temp_dir()).expect("redis-server starts");
    let client = Client::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("redis-server accepts"));
    Some((process, client))
}

fn many(command: &str, count: usize, words: impl Fn(usize) -> String) -> String {
    let words: Vec<String> = (0..count).map(words).collect();
    format!("{command} {}", words.join(" "))
}

/// For each encoding: the key, what makes it, and how it is looked at.
fn values() -> Vec<(&'static str, Vec<String>, &'static str)> {
    let long = "x".repeat(100);
    let string = |key, text: &str| (key, vec![format!("SET {key} {text}")], "GET");
    let repeated = |key, command: String, times: usize| (key, vec![command; times], "GET");
    vec![
        string("zero", "0"),
        string("int8", "-100"),
        string("int16", "30000"),
        string("int32", "-2000000000"),
        string("int64", "9000000000000"),
        string("embstr", "hello"),
        string("raw", &"abcdefg".repeat(500)),
        string("rope", &"abcdefg".repeat(5000)),
        repeated("extents", format!("APPEND extents {}", "0123456789abcdef".repeat(8000)), 5),
        ("list", vec![many("RPUSH list", 100, |n| n.to_string())], "LRANGE"),
        ("mixed", vec![format!("RPUSH mixed a -1 4096 70000 {long} {}", "y".repeat(20_000))], "LRANGE"),
        ("nodes", vec![many("RPUSH nodes", 3000, |n| format!("item:{n}:{long}"))], "LRANGE"),
        ("longest", vec![format!("RPUSH longest {} b {}", "y".repeat(100_000), "z".repeat(9000))], "LRANGE"),
        ("hashpack", vec![many("HSET hashpack", 100, |n| format!("f{n} {}", n * n))], "HGETALL"),
        ("hash", vec![many("HSET hash", 3000, |n| format!("f{n} {long}{n}"))], "HGETALL"),
        ("intset16", vec![many("SADD intset16", 100, |n| n.to_string())], "SMEMBERS"),
        ("intset64", vec!["SADD intset64 -1 99999999999 7".into()], "SMEMBERS"),
        ("integers", vec![many("SADD integers", 1000, |n| n.to_string())], "SMEMBERS"),
        ("setpack", vec![many("SADD setpack", 100, |n| format!("m{n}"))], "SMEMBERS"),
        ("set", vec![many("SADD set", 3000, |n| format!("member:{n}"))], "SMEMBERS"),
        ("zsetpack", vec![many("ZADD zsetpack", 100, |n| format!("{}.5 m{n}", n as i64 - 50))], "ZRANGE"),
        ("zsetinf", vec!["ZADD zsetinf -inf a +inf b 1e300 c -0.1 d 3 e 12345678901234567 f".into()], "ZRANGE"),
        stream("stream", 40, &long),
        stream("nodes-of-a-stream", 3000, &long),
        ("emptystream", vec!["XADD emptystream 5-5 a b".into(), "XDEL emptystream 5-5".into()], "XINFO"),
        ("zset", vec![many("ZADD zset", 3000, |n| format!("{} m{n}", n as f64 / 3.0))], "ZRANGE"),
    ]
}

/// A stream with two groups, from the commands that a server needs for it.
fn stream(key: &'static str, entries: usize, long: &str) -> (&'static str, Vec<String>, &'static str) {
    let mut commands: Vec<String> = (1..=entries).map(|n| format!("XADD {key} {n}-1 name {n} text {long}")).collect();
    commands.extend((1..10).map(|n| format!("XADD {key} {}-7 other{n} {n} 007 -0", entries + n)));
    commands.push(format!("XDEL {key} 5-1 7-1 {entries}-1"));
    commands.push(format!("XGROUP CREATE {key} readers 0"));
    commands.push(format!("XGROUP CREATE {key} late $ ENTRIESREAD 3"));
    commands.push(format!("XREADGROUP GROUP readers alice COUNT 20 STREAMS {key} >"));
    commands.push(format!("XREADGROUP GROUP readers bob COUNT 7 STREAMS {key} >"));
    commands.push(format!("XACK {key} readers 1-1 22-1"));
    commands.push(format!("XGROUP CREATECONSUMER {key} readers idle"));
    (key, commands, "XINFO")
}

fn seen(client: &mut Client, key: &str, how: &str) -> Reply {
    match how {
        "LRANGE" => client.ask(&format!("LRANGE {key} 0 -1")),
        "ZRANGE" => {
            let reply = client.ask(&format!("ZRANGE {key} 0 -1 WITHSCORES"));
            let list = reply.as_list().unwrap_or_else(|| panic!("{key}: {reply:?}"));
            // Redis 7.0 prints more digits than later servers.
            let number = |score: &Reply| str::from_utf8(bytes(score)).ok().and_then(|text| text.parse::<f64>().ok());
            let pair = |pair: &[Reply]| [pair[0].clone(), Reply::Double(number(&pair[1]).expect("a score"))];
            Reply::Array(list.chunks(2).flat_map(pair).collect())
        }
        "XINFO" => {
            let mut parts = vec![client.ask(&format!("XRANGE {key} - +"))];
            let about = client.ask(&format!("XINFO STREAM {key}"));
            let list = about.as_list().unwrap_or_else(|| panic!("{key}: {about:?}"));
            let is_radix = |name: &Reply| name.as_bytes().is_some_and(|name| name.starts_with(b"radix"));
            parts.extend(list.chunks(2).filter(|pair| !is_radix(&pair[0])).flatten().cloned());
            parts.push(client.ask(&format!("XINFO GROUPS {key}")));
            for group in ["readers", "late"] {
                let pending = client.ask(&format!("XPENDING {key} {group} - + 100"));
                // Without the time since it was delivered, which differs.
                let pending = pending.as_list().unwrap_or_default().iter().filter_map(Reply::as_list);
                parts.extend(pending.flat_map(|entry| [entry[0].clone(), entry[1].clone(), entry[3].clone()]));
                let consumers = client.ask(&format!("XINFO CONSUMERS {key} {group}"));
                let consumers = consumers.as_list().unwrap_or_default().iter().filter_map(Reply::as_list);
                parts.extend(consumers.flat_map(|consumer| consumer[..4].to_vec()));
            }
            Reply::Array(parts)
        }
        "GET" => client.ask(&format!("GET {key}")),
        unordered => {
            let reply = client.ask(&format!("{unordered} {key}"));
            let list = reply.as_list().unwrap_or_else(|| panic!("{key}: {reply:?}"));
            let size = if unordered == "HGETALL" { 2 } else { 1 };
            let mut parts: Vec<Vec<Reply>> = list.chunks(size).map(<[Reply]>::to_vec).collect();
            parts.sort_by_key(|part| part.iter().map(|reply| reply.as_bytes().map(<[u8]>::to_vec)).collect::<Vec<_>>());
            Reply::Array(parts.into_iter().flatten().collect())
        }
    }
}

fn bytes(reply: &Reply) -> &[u8] {
    reply.as_bytes().unwrap_or_else(|| panic!("no bytes: {reply:?}"))
}

fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple(b"OK".to_vec())
}

#[test]
fn values_of_every_encoding_go_to_redis_and_back() {
    let Some((_process, mut redis)) = redis() else { return };
    let server = Running::start("--workers 1");
    let mut ours = server.connect();
    for (key, commands, how) in values() {
        for command in &commands {
            assert!(!ours.ask(command).is_error() && !redis.ask(command).is_error(), "{key}");
        }
        let there = seen(&mut redis, key, how);
        assert_eq!(seen(&mut ours, key, how), there, "{key}");
        let (our_payload, their_payload) = (ours.ask(&format!("DUMP {key}")), redis.ask(&format!("DUMP {key}")));
        for (payload, name) in [(&our_payload, "from-us"), (&their_payload, "from-redis")] {
            for client in [&mut ours, &mut redis] {
                let reply = client.call(&[b"RESTORE", name.as_bytes(), b"0", bytes(payload), b"REPLACE"]);
                assert!(is_ok(&reply), "{key} {name}: {reply:?}");
                assert_eq!(seen(client, name, how), there, "{key} {name}");
            }
            let encoding = ours.ask(&format!("OBJECT ENCODING {name}"));
            assert_eq!(encoding, ours.ask(&format!("OBJECT ENCODING {key}")), "{key} {name}");
        }
    }
}

#[test]
fn deadlines_of_fields_go_with_them() {
    let server = Running::start("--workers 1");
    let mut client = server.connect();
    if !running::knows(&mut client, "HPEXPIREAT k", "deadlines of fields") {
        return;
    }
    for (key, count) in [("small", 10), ("large", 3000)] {
        client.ask(&many(&format!("HSET {key}"), count, |n| format!("field{n} value{n}")));
        let line = many(&format!("HPEXPIREAT {key} 4000000000000 FIELDS {}", count / 2), count / 2, |n| {
            format!("field{}", n * 2)
        });
        assert!(!client.ask(&line).is_error());
        let payload = client.ask(&format!("DUMP {key}"));
        assert!(is_ok(&client.call(&[b"RESTORE", b"copy", b"0", bytes(&payload), b"REPLACE"])));
        assert_eq!(seen(&mut client, key, "HGETALL"), seen(&mut client, "copy", "HGETALL"));
        let times = |client: &mut Client, key: &str| {
            client.ask(&many(&format!("HPEXPIRETIME {key} FIELDS {count}"), count, |n| format!("field{n}")))
        };
        assert_eq!(times(&mut client, key), times(&mut client, "copy"));
        assert_eq!(client.ask("DEBUG DIGEST-VALUE copy"), client.ask(&format!("DEBUG DIGEST-VALUE {key}")));
    }
    // Those that have expired meanwhile are removed as all others are.
    client.ask("HSET short a 1 b 2");
    client.ask("HPEXPIRE short 40 FIELDS 1 a");
    let payload = client.ask("DUMP short");
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert!(is_ok(&client.call(&[b"RESTORE", b"late", b"0", bytes(&payload)])));
    assert_eq!(client.ask("HGET late a"), Reply::NullBulk);
    assert_eq!(client.ask("HGET late b"), Reply::Bulk(b"2".to_vec()));
}

/// A value that somebody changes while it travels is sent again: what is removed here is what arrived there.
#[test]
fn keys_move_to_another_server() {
    let (here, there) = (Running::start("--workers 1"), Running::start("--workers 2 --requirepass secret"));
    let (mut ours, mut theirs) = (here.connect(), there.connect());
    theirs.ask("AUTH secret");
    let port = there.port();
    for (key, commands, how) in values() {
        commands.iter().for_each(|command| drop(ours.ask(command)));
        let before = seen(&mut ours, key, how);
        let reply = ours.ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 60000 COPY AUTH secret"));
        assert!(is_ok(&reply), "{key}: {reply:?}");
        assert_eq!((seen(&mut ours, key, how), seen(&mut theirs, key, how)), (before.clone(), before.clone()));
        let reply = ours.ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 60000 AUTH secret"));
        assert!(running::error_text(&reply).contains("BUSYKEY"), "{key}: {reply:?}");
        let reply = ours.ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 60000 REPLACE AUTH2 default secret"));
        assert!(is_ok(&reply), "{key}: {reply:?}");
        assert_eq!(ours.ask(&format!("EXISTS {key}")), Reply::Integer(0));
        assert_eq!(seen(&mut theirs, key, how), before);
    }
    ours.ask("MSET a 1 b 2");
    ours.ask("PEXPIRE b 100000");
    let reply = ours.call(&[
        b"MIGRATE",
        b"localhost",
        port.to_string().as_bytes(),
        b"",
        b"3",
        b"60000",
        b"AUTH",
        b"secret",
        b"KEYS",
        b"a",
        b"missing",
        b"b",
    ]);
    assert!(is_ok(&reply), "{reply:?}");
    assert_eq!(ours.ask("EXISTS a b"), Reply::Integer(0));
    theirs.ask("SELECT 3");
    assert_eq!(theirs.ask("GET a"), Reply::Bulk(b"1".to_vec()));
    assert!(matches!(theirs.ask("PTTL b"), Reply::Integer(90_000..=100_000)));
    assert_eq!(ours.ask(&format!("MIGRATE 127.0.0.1 {port} a 0 60000")), Reply::Simple(b"NOKEY".to_vec()));
    ours.ask("SET a 1");
    let reply = ours.ask(&format!("MIGRATE 127.0.0.1 {port} a 0 60000"));
    assert!(running::error_text(&reply).contains("NOAUTH"), "{reply:?}");
    let reply = ours.ask("MIGRATE 127.0.0.1 1 a 0 500");
    assert!(running::error_text(&reply).starts_with("IOERR"), "{reply:?}");
    assert_eq!(ours.ask("GET a"), Reply::Bulk(b"1".to_vec()));

    // A writer goes on all the time; the sum of what it was told is what has arrived, or has been made anew.
    ours.ask(&many("RPUSH moving", 50_000, |n| format!("item:{n}")));
    theirs.ask("SELECT 0");
    let mut writer = here.connect();
    // It has begun, and the key is there, before the key moves.
    let first = writer.ask("RPUSHX moving x");
    assert_eq!(first, Reply::Integer(50_001));
    let rest = (1..2000).map(move |_| writer.ask("RPUSHX moving x"));
    let writing = std::thread::spawn(move || std::iter::once(first).chain(rest).collect::<Vec<_>>());
    let reply = ours.ask(&format!("MIGRATE 127.0.0.1 {port} moving 0 60000 AUTH secret"));
    let lengths = writing.join().expect("the writer ends well");
    let last = lengths.iter().rfind(|reply| **reply != Reply::Integer(0)).expect("the first one");
    match is_ok(&reply) {
        true => assert_eq!((ours.ask("LLEN moving"), &theirs.ask("LLEN moving")), (Reply::Integer(0), last)),
        false => assert_eq!(&ours.ask("LLEN moving"), last, "{reply:?}"),
    }
}

/// Payloads that are decoded on a thread of their own, several at a time; the order of a connection's commands stays.
#[test]
fn large_payloads_are_restored_beside_other_commands() {
    let server = Running::start("--workers 2");
    let mut client = server.connect();
    client.ask(&many("RPUSH list", 100_000, |n| format!("item:{n}")));
    let payload = client.ask("DUMP list");
    let mut bytes_sent = Vec::new();
    for i in 0..5 {
        let key = format!("copy{i}");
        let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", bytes(&payload), b"REPLACE"];
        gimmal_resp::encode_command(&mut bytes_sent, &words);
        gimmal_resp::encode_command(&mut bytes_sent, &[b"LLEN".as_slice(), key.as_bytes()]);
    }
    gimmal_resp::encode_command(&mut bytes_sent, &[b"RESTORE".as_slice(), b"copy1", b"0", bytes(&payload)]);
    gimmal_resp::encode_command(&mut bytes_sent, &[b"PING"]);
    client.send(&bytes_sent);
    for _ in 0..5 {
        assert!(is_ok(&client.reply()));
        assert_eq!(client.reply(), Reply::Integer(100_000));
    }
    assert!(running::error_text(&client.reply()).starts_with("BUSYKEY"));
    assert_eq!(client.reply(), Reply::Simple(b"PONG".to_vec()));
    let digest = client.ask("DEBUG DIGEST-VALUE list");
    assert_eq!(client.ask("DEBUG DIGEST-VALUE copy4"), digest);
    // In a transaction nothing waits for a thread.
    client.ask("MULTI");
    client.call(&[b"RESTORE", b"inside", b"0", bytes(&payload)]);
    client.ask("LLEN inside");
    assert_eq!(client.ask("EXEC"), Reply::Array(vec![Reply::Simple(b"OK".to_vec()), Reply::Integer(100_000)]));
    // A client that goes away leaves its thread's work behind.
    let mut leaving = server.connect();
    let mut words = Vec::new();
    gimmal_resp::encode_command(&mut words, &[b"RESTORE".as_slice(), b"left", b"0", bytes(&payload)]);
    leaving.send(&words);
    drop(leaving);
    assert_eq!(client.ask("PING"), Reply::Simple(b"PONG".to_vec()));
}

/// Bytes changed, cut or put in anywhere, with a right checksum: an answer comes, and what was made can be read.
#[test]
fn damaged_payloads_are_refused_or_make_a_value_that_can_be_read() {
    let server = Running::start("--workers 1");
    let mut client = server.connect();
    let mut random = Random(7);
    let (mut refused, mut taken) = (0, 0);
    for (key, commands, _) in values() {
        commands.iter().for_each(|command| drop(client.ask(command)));
        let payload = client.ask(&format!("DUMP {key}"));
        let whole = bytes(&payload);
        for _ in 0..if whole.len() > 10_000 { 20 } else { 300 } {
            let mut body = whole[..whole.len() - 8].to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(body.len() - 2);
                match random.below(4) {
                    0 => body[at] = u8::try_from(random.below(256)).expect("a byte"),
                    1 => body[at] ^= 1 << random.below(8),
                    2 => drop(body.remove(at)),
                    _ => body.insert(at, u8::try_from(random.below(256)).expect("a byte")),
                }
            }
            let checksum = gimmal_rdb::crc64(0, &body);
            body.extend_from_slice(&checksum.to_le_bytes());
            let reply = client.call(&[b"RESTORE", b"damaged", b"0", &body, b"REPLACE"]);
            if reply.is_error() {
                let text = running::error_text(&reply);
                let known = ["ERR Bad data format", "ERR DUMP payload version or checksum are wrong"];
                assert!(known.contains(&text.as_str()), "{key}: {text}");
                refused += 1;
            } else {
                taken += 1;
                let digest = client.ask("DEBUG DIGEST-VALUE damaged");
                let again = client.ask("DUMP damaged");
                assert!(is_ok(&client.call(&[b"RESTORE", b"again", b"0", bytes(&again), b"REPLACE"])), "{key}");
                assert_eq!(client.ask("DEBUG DIGEST-VALUE again"), digest, "{key}");
            }
        }
    }
    assert!(refused > 500 && taken > 200, "{refused} refused, {taken} taken");
}
