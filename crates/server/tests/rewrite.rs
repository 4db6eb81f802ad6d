//! Rewriting the log of the real server, switching it on and off while clients write, and what follows when that fails.

mod running;

use gimmal_resp::{Reply, encode_command};
use running::{Client, PATIENCE, Running, Scratch, await_info, error_text, info, number, ok};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const STARTED: &str = "Background append only file rewriting started";

/// Rewrites the log, to the end.
fn rewrite(client: &mut Client) {
    let before = number(client, "aof_rewrites");
    let reply = client.ask("BGREWRITEAOF");
    assert_eq!(reply, Reply::Simple(STARTED.as_bytes().to_vec()));
    await_info(client, "aof_rewrites", &(before + 1).to_string());
    await_info(client, "aof_rewrite_in_progress", "0");
    assert_eq!(info(client, "aof_last_bgrewrite_status"), "ok");
}

/// The files of the log, sorted.
fn files(scratch: &Scratch) -> Vec<String> {
    let entries = std::fs::read_dir(log_directory(scratch)).expect("the log's directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("a file").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

fn log_directory(scratch: &Scratch) -> PathBuf {
    scratch.0.join("appendonlydir")
}

fn start(scratch: &Scratch, more: &str) -> Running {
    Running::start(&format!("--dir {} --shards 16 {more}", scratch.0.display()))
}

/// Says that it is over, also where the test fails: those who write are waited for.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Increments a counter of its own until it is told to stop, or cut off; says what was acknowledged.
fn count(port: u16, name: &str, is_over: &AtomicBool, acknowledged: &AtomicU64) {
    let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let mut client = Client::new(stream);
    let mut bytes = Vec::new();
    (0..16).for_each(|_| encode_command(&mut bytes, &["INCR", name]));
    while !is_over.load(SeqCst) && client.try_send(&bytes) {
        for _ in 0..16 {
            let Some(reply) = client.next_reply() else { return };
            let Reply::Integer(number) = reply else { panic!("{reply:?}") };
            acknowledged.store(number.cast_unsigned(), SeqCst);
        }
    }
}

fn value(client: &mut Client, key: &str) -> u64 {
    let reply = client.ask(&format!("GET {key}"));
    reply.as_bytes().map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"))
}

#[test]
fn a_rewritten_log_has_one_base_and_one_increment_and_is_shorter() {
    for how in ["thread", "inline", "uring"] {
        let scratch = Scratch::new(&format!("rewrite-{how}"));
        let arguments = format!("--appendonly yes --workers 2 --aof-io {how}");
        let server = start(&scratch, &arguments);
        let mut client = server.connect();
        let mut bytes = Vec::new();
        (0..20_000).for_each(|_| encode_command(&mut bytes, &["INCR", "counter"]));
        client.send(&bytes);
        (0..20_000).for_each(|_| assert!(!client.reply().is_error()));
        assert_eq!(client.ask("RPUSH list a b c"), Reply::Integer(3));
        let before = number(&mut client, "aof_current_size");
        rewrite(&mut client);
        let after = number(&mut client, "aof_current_size");
        assert!(before > 500_000 && after < 10_000, "{how}: {before} bytes before, {after} after");
        assert_eq!(number(&mut client, "aof_base_size"), after);
        assert_eq!(client.ask("RPUSH list d"), Reply::Integer(4));
        let names = ["appendonly.aof.1.base.rdb", "appendonly.aof.2.incr.aof", "appendonly.aof.manifest"];
        assert_eq!(files(&scratch), names);
        rewrite(&mut client);
        assert_eq!(client.ask("RPUSH list e"), Reply::Integer(5));
        let names = ["appendonly.aof.2.base.rdb", "appendonly.aof.3.incr.aof", "appendonly.aof.manifest"];
        assert_eq!(files(&scratch), names, "{how}");
        server.kill();
        let server = start(&scratch, &arguments);
        let mut client = server.connect();
        assert_eq!(value(&mut client, "counter"), 20_000, "{how}");
        assert_eq!(client.ask("LLEN list"), Reply::Integer(5), "{how}");
    }
}

#[test]
fn one_rewrite_runs_at_a_time_and_snapshots_wait_for_it() {
    let scratch = Scratch::new("rewrite-turns");
    let server = start(&scratch, "--appendonly yes --rdb-key-save-delay 20000");
    let mut client = server.connect();
    for key in 0..100 {
        assert_eq!(client.ask(&format!("SET key:{key} value")), ok());
    }
    assert_eq!(client.ask("BGREWRITEAOF"), Reply::Simple(STARTED.into()));
    await_info(&mut client, "aof_rewrite_in_progress", "1");
    let refused = error_text(&client.ask("BGREWRITEAOF"));
    assert_eq!(refused, "ERR Background append only file rewriting already in progress");
    assert!(error_text(&client.ask("BGSAVE")).starts_with("ERR Another child process is active (AOF?)"));
    let scheduled = client.ask("BGSAVE SCHEDULE");
    assert_eq!(scheduled, Reply::Simple(b"Background saving scheduled".to_vec()));
    await_info(&mut client, "aof_rewrites", "1");
    await_info(&mut client, "rdb_saves", "1");
    assert_eq!(client.ask("BGSAVE"), Reply::Simple(b"Background saving started".to_vec()));
    let scheduled = Reply::Simple(b"Background append only file rewriting scheduled".to_vec());
    assert_eq!(client.ask("BGREWRITEAOF"), scheduled);
    assert_eq!(client.ask("BGREWRITEAOF"), scheduled);
    assert_eq!(info(&mut client, "aof_rewrite_scheduled"), "1");
    await_info(&mut client, "aof_rewrites", "2");
    await_info(&mut client, "aof_rewrite_scheduled", "0");
    assert_eq!(client.ask("MULTI"), ok());
    client.ask("SET key value");
    client.ask("BGREWRITEAOF");
    client.ask("SET other value");
    let replies = client.ask("EXEC");
    assert_eq!(replies.as_list().expect("three replies")[1], scheduled);
    await_info(&mut client, "aof_rewrites", "3");
}

#[test]
fn nothing_is_lost_or_applied_twice_while_the_log_is_rewritten_again_and_again() {
    for how in ["--aof-io thread --appendfsync always", "--aof-io inline", "--aof-io uring --appendfsync always"] {
        let scratch = Scratch::new("rewrite-storm");
        let arguments = format!("--appendonly yes --workers 2 {how}");
        let (mut totals, mut rewrites) = ([0; 4], 0);
        for life in 0..6 {
            let server = start(&scratch, &arguments);
            let mut client = server.connect();
            for (number, total) in totals.iter().enumerate() {
                let there = value(&mut client, &format!("count:{number}"));
                assert!(there >= *total, "{how}, life {life}: {there} of {total} acknowledged");
                assert_eq!(
                    value(&mut client, &format!("copy:{number}")),
                    there,
                    "{how}, life {life}: half a transaction"
                );
            }
            let is_over = AtomicBool::new(false);
            let counted: [AtomicU64; 4] = std::array::from_fn(|_| AtomicU64::new(0));
            std::thread::scope(|scope| {
                for (number, acknowledged) in counted.iter().enumerate() {
                    let (is_over, port) = (&is_over, server.port());
                    scope.spawn(move || pairs(port, number, is_over, acknowledged));
                }
                let over = Over(&is_over);
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(150 + 60 * life) {
                    client.ask("BGREWRITEAOF");
                    std::thread::sleep(Duration::from_millis(2));
                }
                rewrites += number(&mut client, "aof_rewrites");
                server.kill();
                drop(over);
            });
            totals = std::array::from_fn(|number| counted[number].load(SeqCst));
        }
        assert!(rewrites >= 12, "{how}: {rewrites} rewrites");
        assert!(totals.iter().all(|total| *total > 0), "{how}: {totals:?}");
    }
}

/// Increments two counters together, until it is told to stop, or cut off.
fn pairs(port: u16, number: usize, is_over: &AtomicBool, acknowledged: &AtomicU64) {
    let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let mut client = Client::new(stream);
    let mut bytes = Vec::new();
    for _ in 0..8 {
        encode_command(&mut bytes, &["MULTI"]);
        encode_command(&mut bytes, &["INCR", &format!("count:{number}")]);
        encode_command(&mut bytes, &["INCR", &format!("copy:{number}")]);
        encode_command(&mut bytes, &["EXEC"]);
    }
    while !is_over.load(SeqCst) && client.try_send(&bytes) {
        for reply in 0..8 * 4 {
            let Some(answer) = client.next_reply() else { return };
            if reply % 4 == 3 {
                let Reply::Integer(count) = answer.as_list().expect("EXEC's replies")[0] else { panic!("{answer:?}") };
                acknowledged.store(count.cast_unsigned(), SeqCst);
            }
        }
    }
}

#[test]
fn a_log_that_is_switched_on_keeps_what_is_acknowledged_once_it_has_a_base() {
    let scratch = Scratch::new("rewrite-on");
    let server = start(&scratch, "--workers 2 --appendfsync always");
    let mut client = server.connect();
    assert_eq!(client.ask("SET before 1"), ok());
    let is_over = AtomicBool::new(false);
    let counted: [AtomicU64; 3] = std::array::from_fn(|_| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (number, acknowledged) in counted.iter().enumerate() {
            let (is_over, port) = (&is_over, server.port());
            scope.spawn(move || count(port, &format!("count:{number}"), is_over, acknowledged));
        }
        let over = Over(&is_over);
        for round in 0..3 {
            assert_eq!(info(&mut client, "aof_enabled"), "0");
            assert_eq!(client.ask("CONFIG SET appendonly yes"), ok());
            assert_eq!(info(&mut client, "aof_enabled"), "1");
            await_info(&mut client, "aof_pending_rewrite", "0");
            std::thread::sleep(Duration::from_millis(50));
            if round < 2 {
                assert_eq!(client.ask("CONFIG SET appendonly no"), ok());
                server.await_log("The log was switched off");
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        server.kill();
        drop(over);
    });
    let server = start(&scratch, "--appendonly yes");
    let mut client = server.connect();
    assert_eq!(value(&mut client, "before"), 1);
    for (number, acknowledged) in counted.iter().enumerate() {
        let (there, acknowledged) = (value(&mut client, &format!("count:{number}")), acknowledged.load(SeqCst));
        assert!(acknowledged > 0 && there >= acknowledged, "{there} of {acknowledged}");
    }
}

#[test]
fn a_log_that_is_switched_off_is_written_to_its_end() {
    for how in ["thread", "inline", "uring"] {
        let scratch = Scratch::new(&format!("rewrite-off-{how}"));
        let arguments = format!("--appendonly yes --appendfsync everysec --aof-io {how}");
        let server = start(&scratch, &arguments);
        let mut client = server.connect();
        assert_eq!(client.ask("SET key logged"), ok());
        assert_eq!(client.ask("CONFIG SET appendonly no"), ok());
        server.await_log("The log was switched off");
        assert_eq!(client.ask("SET key unlogged"), ok());
        assert!(error_text(&client.ask("WAITAOF 1 0 0")).starts_with("ERR WAITAOF cannot be used"));
        server.kill();
        let server = start(&scratch, &arguments);
        assert_eq!(server.connect().ask("GET key"), Reply::Bulk(b"logged".to_vec()), "{how}");
    }
}

#[test]
fn a_log_that_has_grown_is_rewritten_by_itself() {
    let scratch = Scratch::new("rewrite-auto");
    let server = start(&scratch, "--appendonly yes --auto-aof-rewrite-min-size 100kb");
    let mut client = server.connect();
    let mut bytes = Vec::new();
    (0..50_000).for_each(|_| encode_command(&mut bytes, &["SET", "key", "0123456789"]));
    client.send(&bytes);
    (0..50_000).for_each(|_| assert_eq!(client.reply(), ok()));
    server.await_log("Starting automatic rewriting of AOF on");
    server.await_log("Background AOF rewrite finished successfully");
    assert_eq!(client.ask("CONFIG SET auto-aof-rewrite-percentage 0"), ok());
    await_info(&mut client, "aof_rewrite_in_progress", "0");
    let before = number(&mut client, "aof_rewrites");
    client.send(&bytes);
    (0..50_000).for_each(|_| assert_eq!(client.reply(), ok()));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(number(&mut client, "aof_rewrites"), before);
}

/// Has no base be written: its temporary name is taken by a directory, with something in it.
fn obstruct(scratch: &Scratch) -> PathBuf {
    let path = log_directory(scratch).join("temp-appendonly.aof.base");
    std::fs::create_dir_all(path.join("in the way")).expect("a directory");
    path
}

fn clear(path: &Path) {
    std::fs::remove_dir_all(path).expect("a directory");
}

#[test]
fn a_rewrite_that_fails_leaves_the_log_as_it_was_and_the_next_one_mends_it() {
    let scratch = Scratch::new("rewrite-fails");
    let server = start(&scratch, "--appendonly yes --appendfsync always");
    let mut client = server.connect();
    let obstacle = obstruct(&scratch);
    for failures in 1..3 {
        assert_eq!(client.ask("INCR counter"), Reply::Integer(failures));
        assert_eq!(client.ask("BGREWRITEAOF"), Reply::Simple(STARTED.into()));
        await_info(&mut client, "aof_rewrites_consecutive_failures", &failures.to_string());
        await_info(&mut client, "aof_rewrite_in_progress", "0");
        assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "err");
    }
    server.await_log("Background AOF rewrite terminated with error");
    assert_eq!(client.ask("INCR counter"), Reply::Integer(3));
    server.kill();
    clear(&obstacle);
    let server = start(&scratch, "--appendonly yes --appendfsync always");
    let mut client = server.connect();
    assert_eq!(value(&mut client, "counter"), 3);
    rewrite(&mut client);
    assert_eq!(files(&scratch).len(), 3, "{:?}", files(&scratch));
}

#[test]
fn a_log_that_cannot_be_begun_is_begun_when_it_can() {
    let scratch = Scratch::new("rewrite-begins");
    let server = start(&scratch, "--appendfsync always");
    let mut client = server.connect();
    let obstacle = obstruct(&scratch);
    assert_eq!(client.ask("SET key value"), ok());
    assert_eq!(client.ask("CONFIG SET appendonly yes"), ok());
    await_info(&mut client, "aof_last_bgrewrite_status", "err");
    assert_eq!(client.ask("SET key later"), ok(), "commands are served");
    clear(&obstacle);
    await_info(&mut client, "aof_last_bgrewrite_status", "ok");
    await_info(&mut client, "aof_pending_rewrite", "0");
    assert_eq!(files(&scratch).len(), 3, "{:?}", files(&scratch));
    server.kill();
    let server = start(&scratch, "--appendonly yes");
    assert_eq!(server.connect().ask("GET key"), Reply::Bulk(b"later".to_vec()));
}

#[test]
fn without_a_log_a_base_is_written_with_which_one_can_begin() {
    let scratch = Scratch::new("rewrite-base");
    let server = start(&scratch, "");
    let mut client = server.connect();
    assert_eq!(client.ask("SET key value"), ok());
    rewrite(&mut client);
    assert_eq!(files(&scratch), ["appendonly.aof.1.base.rdb", "appendonly.aof.manifest"]);
    server.kill();
    let server = start(&scratch, "--appendonly yes");
    assert_eq!(server.connect().ask("GET key"), Reply::Bulk(b"value".to_vec()));
}

#[test]
fn the_server_does_not_end_before_a_log_that_was_switched_on_has_its_base() {
    let scratch = Scratch::new("rewrite-shutdown");
    let server = start(&scratch, "--rdb-key-save-delay 20000");
    let mut client = server.connect();
    for key in 0..100 {
        assert_eq!(client.ask(&format!("SET key:{key} value")), ok());
    }
    assert_eq!(client.ask("CONFIG SET appendonly yes"), ok());
    await_info(&mut client, "aof_pending_rewrite", "1");
    let refused = error_text(&client.ask("SHUTDOWN NOSAVE"));
    assert_eq!(refused, "ERR Errors trying to SHUTDOWN. Check logs.");
    server.await_log("Writing initial AOF, can't exit");
    await_info(&mut client, "aof_pending_rewrite", "0");
    client.send(b"SHUTDOWN\r\n");
    assert!(client.is_closed_within(PATIENCE));
    let server = start(&scratch, "--appendonly yes");
    assert_eq!(server.connect().ask("DBSIZE"), Reply::Integer(100));
}

#[test]
fn a_base_of_another_log_is_noticed() {
    let (scratch, other) = (Scratch::new("rewrite-base-of"), Scratch::new("rewrite-another"));
    for (scratch, writes) in [(&scratch, 10), (&other, 20)] {
        let server = start(scratch, "--appendonly yes");
        let mut client = server.connect();
        (0..writes).for_each(|_| assert!(!client.ask("INCR counter").is_error()));
        rewrite(&mut client);
        assert_eq!(client.ask("SET key value"), ok());
        client.send(b"SHUTDOWN\r\n");
        assert!(client.is_closed_within(PATIENCE));
    }
    let name = "appendonly.aof.1.base.rdb";
    std::fs::copy(log_directory(&other).join(name), log_directory(&scratch).join(name)).expect("copied");
    let mut command = running::command_line(running::free_port(), "--appendonly yes --dir");
    command.push(scratch.0.display().to_string());
    let output = std::process::Command::new(&command[0]).args(&command[1..]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("files of different logs"), "{said}");
}

/// A rewrite, and the log switched off and on before it begins: whatever meets, there is one log, and it has what was acknowledged.
#[test]
fn a_log_that_is_switched_off_and_on_while_it_is_rewritten_is_one_log() {
    for how in ["thread", "inline", "uring"] {
        let scratch = Scratch::new(&format!("rewrite-toggle-{how}"));
        let arguments = format!("--appendonly yes --workers 2 --aof-io {how}");
        let server = start(&scratch, &arguments);
        let mut client = server.connect();
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &["BGREWRITEAOF"]);
        encode_command(&mut bytes, &["CONFIG", "SET", "appendonly", "no"]);
        encode_command(&mut bytes, &["CONFIG", "SET", "appendonly", "yes"]);
        encode_command(&mut bytes, &["INCR", "counter"]);
        for round in 1..=200 {
            client.send(&bytes);
            client.reply();
            assert_eq!((client.reply(), client.reply()), (ok(), ok()), "{how}, round {round}");
            assert_eq!(client.reply(), Reply::Integer(round), "{how}");
        }
        await_info(&mut client, "aof_pending_rewrite", "0");
        assert_eq!(client.ask("INCR counter"), Reply::Integer(201));
        server.kill();
        assert_eq!(value(&mut start(&scratch, &arguments).connect(), "counter"), 201, "{how}");
    }
}

/// What fails behind the publication of a base does not undo it. The old increment cannot be removed: it is a directory by now.
#[test]
fn a_base_that_is_published_stays_although_history_cannot_be_removed() {
    let scratch = Scratch::new("rewrite-history");
    let server = start(&scratch, "--appendonly yes --appendfsync always");
    let mut client = server.connect();
    assert_eq!(client.ask("SET key old"), ok());
    assert_eq!(client.ask("CONFIG SET appendonly no"), ok());
    server.await_log("The log was switched off");
    let old = log_directory(&scratch).join("appendonly.aof.1.incr.aof");
    std::fs::remove_file(&old).expect("it is there");
    std::fs::create_dir_all(old.join("in the way")).expect("a directory");
    assert_eq!(client.ask("CONFIG SET appendonly yes"), ok());
    await_info(&mut client, "aof_pending_rewrite", "0");
    assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
    server.await_log("It is tried again with the next rewrite");
    assert_eq!(client.ask("SET key new"), ok());
    server.kill();
    std::fs::remove_dir_all(&old).expect("it is there");
    let server = start(&scratch, "--appendonly yes");
    assert_eq!(server.connect().ask("GET key"), Reply::Bulk(b"new".to_vec()));
}

#[test]
fn waitaof_does_not_count_what_a_restart_would_not_find() {
    let scratch = Scratch::new("rewrite-waitaof");
    let server = start(&scratch, "--appendfsync always --rdb-key-save-delay 20000");
    let mut client = server.connect();
    for key in 0..50 {
        assert_eq!(client.ask(&format!("SET key:{key} value")), ok());
    }
    assert_eq!(client.ask("CONFIG SET appendonly yes"), ok());
    server.await_log("Background append only file rewriting started");
    await_info(&mut client, "aof_written_lsn", "0");
    assert_eq!(client.ask("SET key value"), ok());
    assert_eq!(client.ask("WAITAOF 1 0 50"), Reply::Array(vec![Reply::Integer(0), Reply::Integer(0)]));
    assert_eq!(client.ask("WAITAOF 1 0 0"), Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)]));
    assert_eq!(info(&mut client, "aof_pending_rewrite"), "0");
    server.kill();
    let server = start(&scratch, "--appendonly yes");
    assert_eq!(server.connect().ask("DBSIZE"), Reply::Integer(51));
}
