//! Reading back what was kept: snapshots of a real redis-server 7.0 and of this project's writer, pieces of a log; what clients
//! are told meanwhile, what is refused, and how a load is ended. Without redis-server that test says so.

mod in_process;
mod running;

use gimmal_lab::process::{ServerProcess, ServerSpec};
use gimmal_rdb::file::{Meta, Writer};
use gimmal_rdb::{ErrorKind, Options};
use gimmal_resp::{Reply, encode_command};
use gimmal_server::persist::load::{self, LoadError, Replay, Replayed, Snapshot};
use in_process::{InProcess, Random};
use running::{Client, PATIENCE, error_text, free_port};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("gimmal-loading-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("dump.rdb");
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.0);
    }
}

fn load(server: &InProcess, path: &Path, keep_expired: bool) -> Result<Snapshot, LoadError> {
    let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
    load::begin(server.shared(), bytes);
    let loaded = load::snapshot(server.shared(), path, keep_expired);
    load::end(server.shared());
    loaded
}

/// A redis-server; `None`, and said so, where there is none.
fn redis(dir: &Path) -> Option<(ServerProcess, Client)> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("not run: there is no redis-server here");
        return None;
    }
    let port = free_port();
    let argv = ["redis-server", "--port", &port.to_string(), "--save", "", "--enable-debug-command", "yes"];
    let argv = argv.iter().map(|word| (*word).to_owned()).chain(["--dir".into(), dir.display().to_string()]).collect();
    let process = ServerProcess::start(&ServerSpec { name: "redis".into(), port, argv }, None, &std::env::temp_dir());
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("redis-server accepts");
    Some((process.expect("redis-server starts"), Client::new(client)))
}

fn many(command: &str, count: usize, words: impl Fn(usize) -> String) -> String {
    let words: Vec<String> = (0..count).map(words).collect();
    format!("{command} {}", words.join(" "))
}

/// Commands that make a value of every type and encoding.
fn commands() -> Vec<String> {
    let long = "x".repeat(100);
    let mut all: Vec<String> =
        ["zero 0", "int8 -100", "int16 30000", "int32 -2000000000", "int64 9000000000000", "text hello"]
            .iter()
            .map(|words| format!("SET {words}"))
            .collect();
    all.extend([
        format!("SET packed {}", "abcdefg".repeat(500)),
        format!("SET rope {}", "0123456789".repeat(90_000)),
        format!("SET {} {}", "long-name".repeat(100), "v"),
        "SET 12345 numbered".into(),
        "SETRANGE raw 70000 z".into(),
        many("RPUSH list", 100, |n| n.to_string()),
        format!("RPUSH mixed a -1 4096 70000 {long} {}", "y".repeat(20_000)),
        many("RPUSH nodes", 3000, |n| format!("item:{n}:{long}")),
        many("HSET hashpack", 100, |n| format!("f{n} {}", n * n)),
        many("HSET hash", 3000, |n| format!("f{n} {long}{n}")),
        many("SADD intset16", 100, |n| n.to_string()),
        "SADD intset64 -1 99999999999 7".into(),
        many("SADD set", 3000, |n| format!("member:{n}")),
        many("SADD small", 20, |n| format!("m{n}")),
        many("ZADD zsetpack", 100, |n| format!("{n}.5 m{n}")),
        many("ZADD zset", 3000, |n| format!("{} m{n}", n as f64 / 4.0)),
        "ZADD zsetinf -inf a +inf b 12345678901 c -0.5 d".into(),
    ]);
    all.extend((1..=300).map(|n| format!("XADD stream {n}-1 name {n} text {long}")));
    all.extend([
        "XDEL stream 5-1 7-1".into(),
        "XGROUP CREATE stream readers 0".into(),
        "XREADGROUP GROUP readers alice COUNT 20 STREAMS stream >".into(),
        "XREADGROUP GROUP readers bob COUNT 7 STREAMS stream >".into(),
        "XACK stream readers 1-1 22-1".into(),
        "SET lives 1 PX 100000000".into(),
        "PEXPIRE zset 200000000".into(),
    ]);
    all
}

/// All that a client can see of a key, in an order of its own.
fn seen(client: &mut Client, key: &str) -> Vec<String> {
    let kind = client.ask(&format!("TYPE {key}"));
    let kind = String::from_utf8_lossy(kind.as_bytes().expect("a word")).into_owned();
    let look: Vec<String> = match &kind {
        kind if kind.contains("string") => vec![format!("GET {key}")],
        kind if kind.contains("list") => vec![format!("LRANGE {key} 0 -1")],
        kind if kind.contains("hash") => vec![format!("HGETALL {key}")],
        kind if kind.contains("zset") => vec![format!("ZRANGE {key} 0 -1 WITHSCORES")],
        kind if kind.contains("set") => vec![format!("SMEMBERS {key}")],
        _ => vec![
            format!("XRANGE {key} - +"),
            format!("XPENDING {key} readers - + 1000 alice"),
            format!("XPENDING {key} readers"),
        ],
    };
    let mut seen = vec![kind.clone(), format!("{:?}", client.ask(&format!("PEXPIRETIME {key}")))];
    // Small lists and sets have another encoding since Redis 7.2.
    if !["list", "set"].contains(&kind.as_str()) {
        seen.push(format!("{:?}", client.ask(&format!("OBJECT ENCODING {key}"))));
    }
    for line in look {
        let mut parts: Vec<String> = match client.ask(&line) {
            Reply::Array(parts) if line.starts_with("XPENDING") => parts.iter().map(without_idle).collect(),
            Reply::Array(parts) => parts.iter().map(|part| format!("{part:?}")).collect(),
            other => vec![format!("{other:?}")],
        };
        if !kind.contains("list") {
            parts.sort();
        }
        seen.extend(parts);
    }
    seen
}

/// A line of XPENDING without the time since its delivery.
fn without_idle(part: &Reply) -> String {
    match part {
        Reply::Array(words) if words.len() == 4 => format!("{:?}", [&words[0], &words[1], &words[3]]),
        other => format!("{other:?}"),
    }
}

fn keys(client: &mut Client) -> Vec<String> {
    let Reply::Array(names) = client.ask("KEYS *") else { panic!("no list") };
    let text = |name: &Reply| String::from_utf8(name.as_bytes().expect("a name").to_vec()).expect("a name in UTF-8");
    let mut names: Vec<String> = names.iter().map(text).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_of_redis_gives_the_same_keyspace() {
    let scratch = Scratch::new("redis");
    let Some((_process, mut redis)) = redis(&scratch.0) else { return };
    for db in [0, 3, 9] {
        redis.ask(&format!("SELECT {db}"));
        for command in commands() {
            let reply = redis.ask(&command);
            assert!(!reply.is_error(), "{}: {reply:?}", &command[..command.len().min(60)]);
        }
        redis.ask(&format!("DEBUG POPULATE {} filler{db}", 5000 * (db + 1)));
    }
    assert_eq!(redis.ask("SAVE"), Reply::Simple(b"OK".to_vec()));
    let path = scratch.0.join("dump.rdb");
    for workers in [1, 3] {
        let server = InProcess::start(workers);
        let loaded = load(&server, &path, false).expect("a whole snapshot");
        let bytes = std::fs::metadata(&path).expect("it is there").len();
        assert_eq!(loaded.end, bytes);
        assert_eq!(loaded.remarks.get("redis-ver").map(|value| value[..2].to_vec()), Some(b"7.".to_vec()));
        let mut client = server.connect();
        let mut all = 0;
        for db in [0, 3, 9] {
            for client in [&mut client, &mut redis] {
                assert_eq!(client.ask(&format!("SELECT {db}")), Reply::Simple(b"OK".to_vec()));
            }
            let names = keys(&mut redis);
            assert!(keys(&mut client) == names, "database {db} has other keys");
            all += names.len() as u64;
            for name in names.iter().filter(|name| !name.starts_with("filler") || name.ends_with("77")) {
                assert_eq!(seen(&mut client, name), seen(&mut redis, name), "database {db}, {name}");
            }
        }
        assert_eq!((loaded.keys, loaded.expired, loaded.empty), (all, 0, 0));
        let info = String::from_utf8_lossy(client.ask("INFO persistence").as_bytes().expect("a text")).into_owned();
        assert!(info.contains(&format!("rdb_last_load_keys_loaded:{all}\r\n")), "{info}");
        assert!(info.contains("\r\nloading:0\r\n") && !info.contains("loading_start_time"), "{info}");
    }
}

/// A snapshot of so many strings, with what else `more` writes.
fn written(count: usize, more: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Options::default(), true).expect("a file");
    writer.aux("redis-ver", b"7.0.15").expect("a remark");
    writer.aux("used-mem", b"123456").expect("a remark");
    writer.database(0, count as u64, 0).expect("a database");
    for n in 0..count {
        let (key, value) = (format!("key:{n}"), format!("value:{n}"));
        writer.entry(key.as_bytes(), &Meta::default()).expect("a key").string(value.as_bytes()).expect("a value");
    }
    more(&mut writer);
    writer.finish().expect("the end")
}

#[test]
fn keys_that_have_expired_are_left_out_unless_a_log_follows() {
    let scratch = Scratch::new("expired");
    let dead = Meta { expire_at_ms: Some(1000), ..Meta::default() };
    let alive = Meta { expire_at_ms: Some(i64::MAX / 2), ..Meta::default() };
    let bytes = written(3, |writer| {
        writer.entry(b"dead", &dead).expect("a key").string(b"x").expect("a value");
        writer.entry(b"dead list", &dead).expect("a key").list(1, [b"x"].iter()).expect("a value");
        writer.entry(b"dead and long", &dead).expect("a key").string(&vec![b'x'; 2 << 20]).expect("a value");
        writer.entry(b"alive", &alive).expect("a key").string(b"x").expect("a value");
    });
    let path = scratch.file(&bytes);
    let server = InProcess::start(2);
    let loaded = load(&server, &path, false).expect("a whole snapshot");
    assert_eq!((loaded.keys, loaded.expired), (4, 3));
    let names = |server: &InProcess| server.contents().into_keys().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(&server), [&b"alive"[..], b"key:0", b"key:1", b"key:2"]);
    let info = server.connect().ask("INFO persistence");
    assert!(String::from_utf8_lossy(info.as_bytes().expect("a text")).contains("rdb_last_load_keys_expired:3\r\n"));

    let server = InProcess::start(2);
    load::begin(server.shared(), bytes.len() as u64);
    let loaded = load::snapshot(server.shared(), &path, true).expect("a whole snapshot");
    assert_eq!((loaded.keys, loaded.expired), (7, 0));
    // Time enough for active expiry, which has to wait.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(names(&server).len(), 7);
    load::end(server.shared());
    let started = Instant::now();
    while names(&server).len() > 4 {
        assert!(started.elapsed() < PATIENCE, "what has expired is not removed after the load");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn values_of_any_size_and_clocks_arrive() {
    let scratch = Scratch::new("sizes");
    let text =
        |len: usize| -> Vec<u8> { (0..len).map(|n| b'a' + u8::try_from(n * n % 23).expect("a letter")).collect() };
    let idle = Meta { idle_s: Some(5000), ..Meta::default() };
    let bytes = written(20_000, |writer| {
        for len in [0, 1, 4096, 100_000, 262_143, 262_145, 3 << 20] {
            let name = format!("text:{len}");
            writer.entry(name.as_bytes(), &idle).expect("a key").string(&text(len)).expect("a value");
        }
        let items: Vec<Vec<u8>> = (0..50_000).map(|n| format!("item {n}").into_bytes()).collect();
        writer.entry(b"items", &idle).expect("a key").list(items.len(), items.iter()).expect("a value");
        writer.database(2, 0, 0).expect("a database");
        writer.entry(b"key:7", &idle).expect("a key").string(b"elsewhere").expect("a value");
    });
    for workers in [1, 4] {
        let server = InProcess::start(workers);
        let loaded = load(&server, &scratch.file(&bytes), false).expect("a whole snapshot");
        assert_eq!((loaded.keys, loaded.end), (20_009, bytes.len() as u64));
        let contents = server.contents();
        assert_eq!(contents.len(), 20_009);
        for n in 0..20_000 {
            let value = &contents[&(0, format!("key:{n}").into_bytes())];
            assert_eq!(*value, (format!("value:{n}").into_bytes(), None));
        }
        for len in [0, 1, 4096, 100_000, 262_143, 262_145, 3 << 20] {
            let (value, _) = &contents[&(0, format!("text:{len}").into_bytes())];
            assert!(*value == text(len), "a text of {len} bytes");
        }
        let mut client = server.connect();
        let Reply::Integer(idle_s) = client.ask("OBJECT IDLETIME items") else { panic!("no time") };
        assert!((5000..5100).contains(&idle_s), "idle for {idle_s} s");
        assert_eq!(client.ask("LLEN items"), Reply::Integer(50_000));
        assert_eq!(client.ask("LINDEX items -1"), Reply::Bulk(b"item 49999".to_vec()));
        client.ask("SELECT 2");
        assert_eq!(client.ask("GET key:7"), Reply::Bulk(b"elsewhere".to_vec()));
    }
}

#[test]
fn what_is_damaged_is_refused_with_file_and_offset() {
    let scratch = Scratch::new("damaged");
    let whole = written(5000, |_| {});
    let refused = |bytes: &[u8]| {
        let server = InProcess::start(2);
        let path = scratch.file(bytes);
        let error = load(&server, &path, false).expect_err("it is damaged");
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        (error, text)
    };
    let (error, text) = refused(&whole[..whole.len() / 2]);
    assert!(matches!(error, LoadError::Snapshot { error, .. } if matches!(error.kind, ErrorKind::Truncated)));
    assert!(text.contains(&format!("at offset {}", whole.len() / 2)) && text.contains("--check-rdb"), "{text}");

    let mut flipped = whole.clone();
    let at = whole.len() / 2;
    flipped[at] ^= 1;
    let (error, text) = refused(&flipped);
    let LoadError::Snapshot { error, .. } = error else { panic!("{text}") };
    // Whatever the byte was: the checksum at the end tells at the latest.
    assert!(error.offset >= at as u64 - 100, "{text}");

    // Decoded on a worker: a chunk knows where it lies.
    let mut begin = 0;
    let mut list = written(4000, |writer| {
        begin = usize::try_from(writer.position()).expect("small");
        writer.entry(b"list", &Meta::default()).expect("a key").list(3, ["a", "b", "c"].iter()).expect("a value");
    });
    let node = list[begin..].windows(3).position(|bytes| bytes == b"\x81a\x02").expect("an element") + begin;
    list[node] = 0xff;
    let (error, text) = refused(&list);
    let LoadError::Snapshot { error, .. } = error else { panic!("{text}") };
    assert!((begin as u64..list.len() as u64).contains(&error.offset), "{text}: the list begins at {begin}");

    let twice = written(100, |writer| {
        writer.entry(b"key:7", &Meta::default()).expect("a key").string(b"again").expect("a value");
    });
    let (error, _) = refused(&twice);
    assert!(matches!(&error, LoadError::Duplicate { name, .. } if name == b"key:7"), "{error}");

    let many = written(1, |writer| {
        writer.database(16, 1, 0).expect("a database");
        writer.entry(b"far", &Meta::default()).expect("a key").string(b"away").expect("a value");
    });
    let (error, text) = refused(&many);
    assert!(
        matches!(error, LoadError::Database { db: 16, databases: 16, .. }) && text.contains("databases 17"),
        "{text}"
    );

    let (error, _) = refused(b"no snapshot at all");
    assert!(matches!(error, LoadError::Snapshot { error, .. } if matches!(error.kind, ErrorKind::Magic(_))));
}

#[test]
fn clients_are_answered_during_a_load_which_a_stop_ends() {
    let scratch = Scratch::new("slow");
    let path = scratch.file(&written(3000, |_| {}));
    let server = InProcess::start(2);
    let mut client = server.connect();
    assert_eq!(client.ask("CONFIG SET key-load-delay 1000"), Reply::Simple(b"OK".to_vec()));
    let shared = server.shared().clone();
    load::begin(&shared, std::fs::metadata(&path).expect("it is there").len());
    let loader = thread::spawn({
        let path = path.clone();
        move || load::snapshot(&shared, &path, false)
    });
    let text = |client: &mut Client| {
        String::from_utf8_lossy(client.ask("INFO persistence").as_bytes().expect("a text")).into_owned()
    };
    let number = |info: &str, name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {info}")).parse().expect("a number")
    };
    let started = Instant::now();
    while number(&text(&mut client), "loading_loaded_perc") < 20.0 {
        assert!(started.elapsed() < PATIENCE, "it does not get on");
        for line in ["GET key:1", "SET key:1 x", "PING", "DBSIZE"] {
            let error = error_text(&client.ask(line));
            assert_eq!(error, "LOADING Redis is loading the dataset in memory", "{line}");
        }
        assert_eq!(
            error_text(&client.ask("CONFIG SET appendonly yes")),
            "LOADING Redis is loading the dataset in memory"
        );
        thread::sleep(Duration::from_millis(20));
    }
    let info = text(&mut client);
    assert_eq!(number(&info, "loading"), 1.0);
    assert_eq!(number(&info, "loading_rdb_used_mem"), 123_456.0);
    assert!(number(&info, "loading_loaded_bytes") < number(&info, "loading_total_bytes"), "{info}");
    assert!(number(&info, "loading_start_time") > 1.7e9 && number(&info, "loading_eta_seconds") >= 1.0, "{info}");
    assert!(!loader.is_finished());

    let stopped = Instant::now();
    server.shared().stop();
    let ended = loader.join().expect("the loader ends");
    assert!(matches!(ended, Err(LoadError::Stopped)), "{ended:?}");
    assert!(stopped.elapsed() < Duration::from_secs(2), "it took {:?}", stopped.elapsed());
}

fn resp(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
    }
    bytes
}

/// Replays bytes in pieces of random sizes up to `most`.
fn replay(server: &InProcess, bytes: &[u8], most: usize, random: &mut Random) -> Result<Replayed, LoadError> {
    load::begin(server.shared(), bytes.len() as u64);
    let mut replay = Replay::new(server.shared());
    let mut at = 0;
    let fed = (|| {
        while at < bytes.len() {
            let len = (1 + random.below(most)).min(bytes.len() - at);
            replay.feed(&bytes[at..at + len], Some(1000 + at as u64), at == 0)?;
            at += len;
        }
        replay.finish()
    })();
    load::end(server.shared());
    fed
}

#[test]
fn a_log_in_pieces_gives_what_its_commands_give() {
    let mut random = Random(5);
    let mut bytes = resp(&["SELECT 0"]);
    for db in [0, 5] {
        bytes.extend(resp(&[&format!("SELECT {db}")]));
        let commands = commands();
        // Without those that depend on the time: a log has none of them.
        let depends = |line: &str| ["PX", "PEXPIRE", "XREADGROUP"].iter().any(|word| line.contains(word));
        let commands = commands.iter().map(String::as_str).filter(|line| !depends(line));
        bytes.extend(resp(&commands.collect::<Vec<_>>()));
        bytes.extend(resp(&["MULTI", "INCR counter", "RPUSH log a", "SELECT 2", "SET in-two 1", "EXEC"]));
    }
    for n in 0..20_000 {
        let key = random.below(4000);
        bytes.extend(match n % 5 {
            0 => resp(&[&format!("SET k{key} {n}")]),
            1 => resp(&[&format!("APPEND k{key} {n}")]),
            2 => resp(&[&format!("SADD s{} {n}", key % 100)]),
            3 => resp(&[&format!("DEL k{key}")]),
            _ => resp(&[&format!("HSET h{} f{n} {n}", key % 100)]),
        });
    }
    bytes.extend(resp(&["FLUSHDB", "SELECT 0", "SET last 1"]));
    let by_client = InProcess::start(1);
    let mut client = by_client.connect();
    let mut expected = 0;
    client.send(&bytes);
    while client.ask("ECHO end") != Reply::Bulk(b"end".to_vec()) {
        expected += 1;
    }
    assert!(expected > 0);
    let expected = by_client.contents();
    for most in [50, 5000, 1 << 20, 1 << 28] {
        let server = InProcess::start(2);
        let replayed = replay(&server, &bytes, most, &mut random).expect("a log without errors");
        assert_eq!(replayed.errors, 0);
        assert!(replayed.commands > 40_000 / 2, "{replayed:?}");
        let contents = server.contents();
        let differs = expected.iter().find(|(key, value)| contents.get(*key) != Some(*value));
        assert!(differs.is_none() && contents.len() == expected.len(), "pieces of up to {most} bytes: {differs:?}");
        let info = server.connect().ask("INFO stats");
        let info = String::from_utf8_lossy(info.as_bytes().expect("a text")).into_owned();
        assert!(info.contains("keyspace_hits:0\r\n") && info.contains("expired_keys:0\r\n"), "{info}");
    }
}

#[test]
fn what_has_expired_lives_until_the_log_removes_it() {
    let lines = [
        "SET a 1",
        "PEXPIREAT a 1000",
        "APPEND a 2",
        "PERSIST a",
        "SET b 1 PXAT 1000",
        "INCR b",
        "RPUSH c x",
        "PEXPIREAT c 1000",
        "RPUSH c y",
        "RENAME c d",
        "PERSIST d",
        "HSET h f 1 g 2",
        "HPEXPIREAT h 1000 FIELDS 1 f",
        "HINCRBY h f 5",
        "HPERSIST h FIELDS 1 f",
        "SET relative 1",
        "EXPIRE relative 1000",
        "SET gone 1 PXAT 1000",
        "DEL gone",
        "XADD x 1-1 a b",
        "XGROUP CREATE x g 0",
        "XGROUP CREATECONSUMER x g c",
    ];
    let server = InProcess::start(2);
    load::begin(server.shared(), 0);
    // Who watches a key meanwhile brings the time of day into its shard.
    let mut watcher = server.connect();
    assert_eq!(watcher.ask("WATCH a b c d h"), Reply::Simple(b"OK".to_vec()));
    let mut replay = Replay::new(server.shared());
    for (n, line) in lines.iter().enumerate() {
        replay.feed(&resp(&[line]), Some(1), n == 0).expect("it is fed");
    }
    let replayed = replay.finish().expect("it is replayed");
    assert_eq!(replayed, Replayed { commands: lines.len() as u64, errors: 0 });
    let contents = server.contents();
    let value = |key: &str| contents.get(&(0, key.as_bytes().to_vec())).map(|(value, at)| (value.as_slice(), *at));
    assert_eq!(value("a"), Some((&b"12"[..], None)));
    assert_eq!(value("b"), Some((&b"2"[..], Some(1000))));
    assert_eq!((value("c"), value("gone")), (None, None));
    assert!(value("d").is_some_and(|(_, at)| at.is_none()));
    load::end(server.shared());
    let mut client = server.connect();
    assert_eq!(client.ask("LLEN d"), Reply::Integer(2));
    assert_eq!(client.ask("HGET h f"), Reply::Bulk(b"6".to_vec()));
    assert_eq!(client.ask("GET b"), Reply::NullBulk);
    let Reply::Integer(left_s) = client.ask("TTL relative") else { panic!("no time") };
    assert!((900..=1000).contains(&left_s), "a relative time counts from the load: {left_s} s");
    let Reply::Array(consumers) = client.ask("XINFO CONSUMERS x g") else { panic!("no list") };
    let Some(words) = consumers.first().and_then(Reply::as_list) else { panic!("no consumer") };
    let idle = words.iter().position(|word| word.as_bytes() == Some(b"idle")).expect("the field");
    assert!(matches!(words[idle + 1], Reply::Integer(0..=60_000)), "{words:?}");
}

#[test]
fn errors_in_a_log_are_noticed() {
    let mut random = Random(1);
    let server = InProcess::start(2);
    let wrong = ["SET a text", "LPUSH a 1", "MULTI", "INCR a", "SET b 1", "EXEC", "GET", "SET c 1"];
    let replayed = replay(&server, &resp(&wrong), 1 << 20, &mut random).expect("it goes on");
    assert_eq!((replayed.errors, server.contents().len()), (3, 3));
    let info = server.connect().ask("INFO stats");
    assert!(String::from_utf8_lossy(info.as_bytes().expect("a text")).contains("total_error_replies:0\r\n"));

    for (lines, expected) in [
        (&["SET a 1", "NOSUCHCOMMAND a 1", "SET b 1"][..], "unknown command 'NOSUCHCOMMAND'"),
        (&["SET a 1", "MULTI", "SET b 1"][..], "inside of a transaction"),
        (&["SET a 1", "QUIT"][..], "ends or leaves"),
    ] {
        let server = InProcess::start(2);
        let error = replay(&server, &resp(lines), 1 << 20, &mut random).expect_err("it cannot be loaded");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let first = resp(&["SET a 1"]);
    let bytes = resp(&["SET a 1", "NOSUCHCOMMAND a 1"]);
    let server = InProcess::start(1);
    let error = replay(&server, &bytes, 1 << 28, &mut random).expect_err("it is unknown");
    let LoadError::Command { lsn: Some(lsn), .. } = error else { panic!("{error}") };
    assert!((1000 + first.len() as u64..1000 + bytes.len() as u64).contains(&lsn), "at {lsn}");

    for bytes in [&b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n"[..], b"*1\r\n$x\r\n"] {
        let server = InProcess::start(2);
        let error = replay(&server, bytes, 7, &mut random).expect_err("it is torn");
        assert!(matches!(error, LoadError::Command { .. }), "{error}");
    }
}
