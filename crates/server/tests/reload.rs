//! DEBUG RELOAD and DEBUG LOADAOF: the data set goes to disk and comes back, while others write, wait and watch; and what is there
//! when that fails.

mod running;

use gimmal_resp::Reply;
use running::{Client, PATIENCE, Running, Scratch, error_text, ok};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

fn start(scratch: &Scratch, arguments: &str) -> Running {
    Running::start(&format!(
        "--enable-debug-command yes --enable-protected-configs yes --dir {} {arguments}",
        scratch.0.display()
    ))
}

fn digest(client: &mut Client) -> Reply {
    let digest = client.ask("DEBUG DIGEST");
    assert!(!digest.is_error(), "{digest:?}");
    digest
}

/// Values of every type and size, in three databases.
fn fill(client: &mut Client) {
    let text = |len: usize| "abcdefghij".repeat(len / 10);
    for db in [0, 3, 9] {
        assert_eq!(client.ask(&format!("SELECT {db}")), ok());
        let mut ask = |line: String| {
            let reply = client.ask(&line);
            assert!(!reply.is_error(), "{}: {reply:?}", &line[..line.len().min(60)]);
        };
        for i in 0..300_usize {
            ask(format!("SET text:{i} {}{i}", text(i)));
            ask(format!("SET lasting:{i} {i} EX {}", 10_000 + i));
        }
        ask(format!("SET longer {}", text(700_000)));
        for count in [5_usize, 5000] {
            for from in (0..count).step_by(100) {
                let words = |word: &dyn Fn(usize) -> String| {
                    (from..(from + 100).min(count)).map(|i| format!(" {}", word(i))).collect::<String>()
                };
                ask(format!("RPUSH list:{count}{}", words(&|i| format!("element-{i}"))));
                ask(format!("SADD set:{count}{}", words(&|i| format!("member-{i}"))));
                ask(format!("SADD numbers:{count}{}", words(&|i| i.to_string())));
                ask(format!("ZADD zset:{count}{}", words(&|i| format!("{}.5 member-{i}", i * 7 % 1000))));
                ask(format!("HSET hash:{count}{}", words(&|i| format!("field-{i} value-{i}"))));
                for i in from..(from + 100).min(count) {
                    ask(format!("XADD stream:{count} {}-1 field value-{i}", i + 1));
                }
            }
            ask(format!("HEXPIRE hash:{count} 5000 FIELDS 2 field-1 field-2"));
            ask(format!("XGROUP CREATE stream:{count} group 2-1"));
            ask(format!("XREADGROUP GROUP group consumer COUNT 2 STREAMS stream:{count} >"));
        }
    }
    assert_eq!(client.ask("SELECT 0"), ok());
}

#[test]
fn everything_comes_back() {
    for arguments in [
        "--workers 1",
        "--workers 2 --appendonly yes --appendfsync always",
        "--workers 2 --appendonly yes --aof-io inline --appendfsync no",
        "--workers 2 --appendonly yes --aof-io uring",
    ] {
        let scratch = Scratch::new("reload-all");
        let server = start(&scratch, arguments);
        let mut client = server.connect();
        fill(&mut client);
        let before = digest(&mut client);
        for line in ["DEBUG RELOAD", "DEBUG RELOAD NOSAVE", "DEBUG RELOAD", "DEBUG RELOAD NOSAVE NOFLUSH MERGE"] {
            assert_eq!(client.ask(line), ok(), "{arguments}, {line}: {}", server.log());
            assert_eq!(digest(&mut client), before, "{arguments}: {line}");
        }
        if !arguments.contains("appendonly") {
            continue;
        }
        assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{arguments}: {}", server.log());
        assert_eq!(digest(&mut client), before, "{arguments}: the log");
        // The log goes on behind it, and a rewrite is what is there.
        assert_eq!(client.ask("SET after 1"), ok());
        client.ask("BGREWRITEAOF");
        server.await_log("Background AOF rewrite finished successfully");
        assert_eq!(client.ask("SET after 2"), ok());
        let before = digest(&mut client);
        assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{arguments}: {}", server.log());
        assert_eq!(digest(&mut client), before, "{arguments}: a rewritten log");
        assert_eq!(client.ask("SET after 3"), ok());
        let before = digest(&mut client);
        server.kill();
        drop(server);
        let server = start(&scratch, arguments);
        assert_eq!(digest(&mut server.connect()), before, "{arguments}: started anew");
    }
}

/// Asks until there is an answer: a load that takes more than a second, on a busy machine, refuses what it keeps waiting.
fn served(client: &mut Client, line: &str) -> Reply {
    loop {
        let reply = client.ask(line);
        if !reply.is_error() || !error_text(&reply).starts_with("LOADING") {
            return reply;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Increments two counters in a transaction, which is refused as a whole or not at all.
fn increment_both(client: &mut Client, name: usize) -> Reply {
    loop {
        let lines = ["MULTI", "INCR both:{}", "INCR both:other:{}", "EXEC"];
        let replies = lines.map(|line| client.ask(&line.replace("{}", &name.to_string())));
        let is_refused = |reply: &Reply| reply.is_error() && error_text(reply).contains("LOADING");
        if !replies.iter().any(is_refused) {
            let [.., done] = replies;
            return done;
        }
        assert!(error_text(&replies[3]).starts_with("EXECABORT"), "{replies:?}");
    }
}

/// Counts up, pushes and pops until told to stop; answers how far it counted, and what it pushed and popped.
fn work(mut client: Client, name: usize, stop: &AtomicBool) -> (i64, i64, i64) {
    let (mut count, mut pushed, mut popped) = (0, 0, 0);
    while !stop.load(Relaxed) {
        count += 1;
        assert_eq!(served(&mut client, &format!("INCR counter:{name}")), Reply::Integer(count));
        let pushes = served(&mut client, "RPUSH queue element");
        assert!(matches!(pushes, Reply::Integer(1..)), "{pushes:?}");
        pushed += 1;
        assert!(!served(&mut client, &format!("SETRANGE text:{name} {} x", count % 1000)).is_error());
        let both = increment_both(&mut client, name);
        assert_eq!(both, Reply::Array(vec![Reply::Integer(count), Reply::Integer(count)]));
        if count % 3 == 0 {
            continue;
        }
        match served(&mut client, "LPOP queue") {
            Reply::Bulk(_) => popped += 1,
            other => assert_eq!(other, Reply::NullBulk),
        }
    }
    (count, pushed, popped)
}

/// Takes elements by waiting for them, until there have been none for a while after the stop.
fn wait_for_elements(mut client: Client, stop: &AtomicBool) -> i64 {
    let mut taken = 0;
    loop {
        match served(&mut client, "BLPOP queue 0.3") {
            Reply::Array(_) => taken += 1,
            Reply::NullArray if stop.load(Relaxed) => return taken,
            Reply::NullArray => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Every reply is the one that there would be without the reloads, and no element is lost or there twice.
fn reload_under_load(arguments: &str, line: &str) {
    let scratch = Scratch::new(&format!("reload-load-{}", arguments.len() + line.len()));
    let server = start(&scratch, arguments);
    let mut client = server.connect();
    assert_eq!(client.ask("DEBUG POPULATE 20000 key 50"), ok());
    let (stop, reloads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (worked, taken) = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|name| {
                let client = server.connect();
                let stop = &stop;
                scope.spawn(move || work(client, name, stop))
            })
            .collect();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let client = server.connect();
                let stop = &stop;
                scope.spawn(move || wait_for_elements(client, stop))
            })
            .collect();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(4) {
            assert_eq!(client.ask(line), ok(), "{arguments}: {}", server.log());
            reloads.fetch_add(1, Relaxed);
        }
        stop.store(true, Relaxed);
        let worked: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("it asserts")).collect();
        let taken: i64 = waiters.into_iter().map(|waiter| waiter.join().expect("it asserts")).sum();
        (worked, taken)
    });
    let (pushed, popped) = worked.iter().fold((0, 0), |sum, (_, pushed, popped)| (sum.0 + pushed, sum.1 + popped));
    let left = client.ask("LLEN queue");
    assert_eq!(
        left,
        Reply::Integer(pushed - popped - taken),
        "{arguments}: {pushed} pushed, {popped} popped, {taken} taken"
    );
    for (name, (count, ..)) in worked.iter().enumerate() {
        assert_eq!(client.ask(&format!("GET counter:{name}")).as_bytes(), Some(count.to_string().as_bytes()));
    }
    assert_eq!(client.ask("EXISTS key:0 key:19999"), Reply::Integer(2));
    assert!(reloads.load(Relaxed) > 3, "{} reloads", reloads.load(Relaxed));
    if arguments.contains("appendonly") {
        let before = digest(&mut client);
        server.kill();
        drop(server);
        let server = start(&scratch, arguments);
        assert_eq!(digest(&mut server.connect()), before, "{arguments}: what the log says");
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_others_write() {
    for arguments in ["--workers 1", "--workers 4", "--workers 2 --appendonly yes"] {
        reload_under_load(arguments, "DEBUG RELOAD");
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_the_log_is_loaded() {
    reload_under_load("--workers 2 --appendonly yes --appendfsync always", "DEBUG LOADAOF");
}

#[test]
fn who_watches_waits_or_listens_goes_on() {
    let scratch = Scratch::new("reload-clients");
    let server = start(&scratch, "--workers 2");
    let mut client = server.connect();
    assert_eq!(client.ask("SET watched 1"), ok());
    let (mut watcher, mut of_nothing) = (server.connect(), server.connect());
    assert_eq!(watcher.ask("WATCH watched"), ok());
    assert_eq!(of_nothing.ask("WATCH missing"), ok());
    let (mut waiter, mut listener) = (server.connect(), server.connect());
    waiter.send(b"*3\r\n$5\r\nBLPOP\r\n$4\r\nlist\r\n$1\r\n0\r\n");
    assert!(!listener.ask("SUBSCRIBE channel").is_error());
    assert_eq!(client.ask("CLIENT SETNAME me"), ok());
    while !String::from_utf8_lossy(client.ask("INFO clients").as_bytes().expect("a text")).contains("blocked_clients:1")
    {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.ask("DEBUG RELOAD"), ok());
    for (client, there) in [(&mut watcher, false), (&mut of_nothing, true)] {
        assert_eq!(client.ask("MULTI"), ok());
        assert_eq!(client.ask("PING"), Reply::Simple(b"QUEUED".to_vec()));
        let done = client.ask("EXEC");
        assert_eq!(matches!(done, Reply::Array(_)), there, "{done:?}");
    }
    assert_eq!(waiter.try_reply(Duration::from_millis(50)), None);
    assert_eq!(client.ask("RPUSH list element"), Reply::Integer(1));
    assert!(matches!(waiter.reply(), Reply::Array(_)));
    assert_eq!(client.ask("PUBLISH channel message"), Reply::Integer(1));
    assert!(matches!(listener.reply(), Reply::Array(_)));
    assert_eq!(client.ask("CLIENT GETNAME").as_bytes(), Some(&b"me"[..]));
}

#[test]
fn what_has_expired_stays_away_and_the_log_is_told() {
    let scratch = Scratch::new("reload-expired");
    let arguments = "--workers 2 --appendonly yes --appendfsync always";
    let server = start(&scratch, arguments);
    let mut client = server.connect();
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 0"), ok());
    for i in 0..1000 {
        assert_eq!(client.ask(&format!("SET gone:{i} {i} PX 1")), ok());
        assert_eq!(client.ask(&format!("SET lasting:{i} {i} EX 1000")), ok());
    }
    let long: Vec<String> = (0..100_000).map(|i| format!("element-{i}")).collect();
    assert!(!client.ask(&format!("RPUSH gone:list {}", long.join(" "))).is_error());
    assert_eq!(client.ask("PEXPIRE gone:list 1"), Reply::Integer(1));
    thread::sleep(Duration::from_millis(20));
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(2001), "nothing has looked at them");
    assert_eq!(client.ask("DEBUG RELOAD"), ok());
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(1000));
    assert!((900_000..1_000_001).contains(&as_integer(&client.ask("PTTL lasting:7"))));
    let log = log_of(&scratch.0);
    for name in (0..1000).map(|i| format!("gone:{i}")).chain(["gone:list".into()]) {
        let removals = ["DEL", "UNLINK"]
            .map(|command| log.matches(&format!("{command}\r\n${}\r\n{name}\r\n", name.len())).count());
        assert_eq!(removals.iter().sum::<usize>(), 1, "{name}");
    }
    assert!(!log.contains("DEL\r\n$9\r\nlasting:7"), "only these");
    assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{}", server.log());
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(1000));
}

fn as_integer(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(number) => *number,
        other => panic!("{other:?}"),
    }
}

/// All that the log's files hold.
fn log_of(dir: &Path) -> String {
    let files = std::fs::read_dir(dir.join("appendonlydir")).expect("a log").map(|file| file.expect("a file").path());
    files.map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("readable")).into_owned()).collect()
}

#[test]
fn options_say_what_is_kept() {
    let scratch = Scratch::new("reload-options");
    let server = start(&scratch, "--workers 2");
    let mut client = server.connect();
    let set = |client: &mut Client, pairs: &str| {
        assert_eq!(client.ask("FLUSHALL"), ok());
        assert_eq!(client.ask(&format!("MSET {pairs}")), ok());
    };
    let values = |client: &mut Client| match client.ask("MGET a b c") {
        Reply::Array(values) => {
            let text = |value: &Reply| {
                value.as_bytes().map_or("-".into(), |bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            values.iter().map(text).collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?}"),
    };
    set(&mut client, "a saved b saved");
    assert_eq!(client.ask("SAVE"), ok());
    set(&mut client, "b new c new");
    assert_eq!(client.ask("DEBUG RELOAD NOSAVE"), ok());
    assert_eq!(values(&mut client), "saved saved -");
    set(&mut client, "b new c new");
    assert_eq!(client.ask("debug reload nosave noflush merge"), ok());
    assert_eq!(values(&mut client), "saved saved new");
    set(&mut client, "c new");
    assert_eq!(client.ask("DEBUG RELOAD NOSAVE NOFLUSH"), ok());
    assert_eq!(values(&mut client), "saved saved new");
    set(&mut client, "b new c new");
    let refused = client.ask("DEBUG RELOAD NOSAVE NOFLUSH");
    assert_eq!(error_text(&refused), "ERR Error trying to load the RDB dump, check server logs.");
    server.await_log("is in it twice");
    server.await_log("they stay, beside what was there");
    assert_eq!(client.ask("DEBUG RELOAD"), ok(), "after a failure");
    let refused = client.ask("DEBUG RELOAD AGAIN");
    assert_eq!(error_text(&refused), "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
    assert_eq!(error_text(&client.ask("DEBUG LOADAOF")), "ERR Error trying to load the AOF files, check server logs.");
    let before = digest(&mut client);
    assert_eq!(client.ask("MULTI"), ok());
    client.ask("DEBUG RELOAD");
    let Reply::Array(replies) = client.ask("EXEC") else { panic!("EXEC runs") };
    assert!(error_text(&replies[0]).contains("inside a transaction"));
    assert_eq!(digest(&mut client), before);
}

/// What cannot be loaded changes nothing, in memory or in what is written afterwards.
#[test]
fn a_failed_load_leaves_what_there_was() {
    let scratch = Scratch::new("reload-failed");
    let server = start(&scratch, "--workers 2 --appendonly yes");
    let mut client = server.connect();
    fill(&mut client);
    assert_eq!(client.ask("SAVE"), ok());
    let path = scratch.0.join("dump.rdb");
    let whole = std::fs::read(&path).expect("it was saved");
    let before = digest(&mut client);
    let keys = client.ask("DBSIZE");
    for at in [9, whole.len() / 7, whole.len() / 2, whole.len() - 9] {
        let mut damaged = whole.clone();
        damaged[at..].iter_mut().step_by(3).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, &damaged).expect("writable");
        let refused = client.ask("DEBUG RELOAD NOSAVE");
        assert_eq!(error_text(&refused), "ERR Error trying to load the RDB dump, check server logs.");
        assert_eq!(digest(&mut client), before, "damaged at {at}: {}", server.log());
        assert_eq!(client.ask("DBSIZE"), keys);
        assert_eq!(client.ask("SET a b"), ok());
        assert_eq!(client.ask("DEL a"), Reply::Integer(1));
    }
    server.await_log("the data set is as it was");
    std::fs::remove_file(&path).expect("it is there");
    assert!(client.ask("DEBUG RELOAD NOSAVE").is_error());
    assert_eq!(digest(&mut client), before);
    // Snapshots are whole after that.
    for _ in 0..3 {
        assert_eq!(client.ask("DEBUG RELOAD"), ok());
        assert_eq!(digest(&mut client), before);
    }
    // As are the files of the log, though one of them is damaged for a while.
    let log = scratch.0.join("appendonlydir/appendonly.aof.1.incr.aof");
    let whole = std::fs::read(&log).expect("it is written");
    let mut damaged = whole.clone();
    damaged[5000] ^= 1;
    std::fs::write(&log, &damaged).expect("writable");
    assert_eq!(error_text(&client.ask("DEBUG LOADAOF")), "ERR Error trying to load the AOF files, check server logs.");
    assert_eq!(digest(&mut client), before);
    std::fs::write(&log, &whole).expect("writable");
    assert_eq!(client.ask("DEBUG LOADAOF"), ok(), "{}", server.log());
    assert_eq!(digest(&mut client), before);
    let refused = {
        assert_eq!(client.ask("CONFIG SET dbfilename missing.rdb"), ok());
        std::fs::create_dir(scratch.0.join("missing.rdb")).expect("a directory in its way");
        client.ask("DEBUG RELOAD")
    };
    assert!(error_text(&refused).contains("was not saved"), "{refused:?}");
    assert_eq!(digest(&mut client), before);
}

/// A load that takes long refuses what others ask, and a client that leaves does not stop it.
#[test]
fn a_long_load_tells_others_so() {
    let scratch = Scratch::new("reload-long");
    let server = start(&scratch, "--workers 2");
    let mut client = server.connect();
    assert_eq!(client.ask("DEBUG POPULATE 3000"), ok());
    let before = digest(&mut client);
    assert_eq!(client.ask("CONFIG SET key-load-delay 1000"), ok());
    let mut other = server.connect();
    let mut leaves = server.connect();
    leaves.send(b"DEBUG RELOAD\r\n");
    server.await_log("DB saved on disk");
    drop(leaves);
    let asked = Instant::now();
    let refused = client.ask("GET key:1");
    assert_eq!(error_text(&refused), "LOADING Redis is loading the dataset in memory");
    assert!(asked.elapsed() > Duration::from_millis(500), "it waits first: {:?}", asked.elapsed());
    let info = client.ask("INFO persistence");
    assert!(String::from_utf8_lossy(info.as_bytes().expect("a text")).contains("loading:1"));
    for line in ["DEBUG RELOAD", "SHUTDOWN SAVE", "SAVE", "BGSAVE", "FLUSHALL"] {
        assert!(error_text(&other.ask(line)).starts_with("LOADING"), "{line}");
    }
    let started = Instant::now();
    while client.ask("GET key:1").is_error() {
        assert!(started.elapsed() < PATIENCE, "{}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(digest(&mut client), before);
    // A command that comes early waits, and is answered when it is over.
    assert_eq!(client.ask("CONFIG SET key-load-delay 100"), ok());
    client.send(b"DEBUG RELOAD\r\n");
    server.await_log("DB saved on disk");
    assert_eq!(other.ask("EXISTS key:1"), Reply::Integer(1));
    assert_eq!(client.reply(), ok());
}
