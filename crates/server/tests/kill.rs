//! A killed process loses nothing that it acknowledged, or showed to a reader, whatever `appendfsync` says: the server is killed
//! in the middle of writing, again and again, and started on what it left; every other time while its log is rewritten.
//! `KILLS=1000` for the long run.

mod running;

use gimmal_resp::{Reply, encode_command};
use running::{Client, Running, Scratch};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WRITERS: usize = 4;
const PIPELINE: u64 = 8;

/// How each life of the server is started, in turn. What one leaves another loads.
const LIVES: [&str; 8] = [
    "--workers 2 --appendfsync always",
    "--workers 1 --appendfsync everysec",
    "--workers 2 --appendfsync no",
    "--workers 1 --appendfsync always --aof-io inline",
    "--workers 2 --appendfsync always --aof-io inline --aof-preallocate 0",
    "--workers 2 --appendfsync always --aof-io uring",
    "--workers 1 --appendfsync everysec --aof-io inline --aof-timestamp-enabled yes",
    "--workers 2 --appendfsync always --aof-io uring --aof-uring-order none",
];

/// What one writer has done: the number that it sends last, that was acknowledged last, and that a reader saw last.
#[derive(Default)]
struct Done {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    seen: AtomicU64,
}

#[test]
fn a_killed_server_loses_nothing_that_it_acknowledged_or_showed() {
    let kills: usize = std::env::var("KILLS").map_or(200, |text| text.parse().expect("KILLS is a number"));
    let scratch = Scratch::new("kill");
    let common = format!("--dir {} --appendonly yes --shards 16", scratch.0.display());
    let done: Vec<Done> = (0..WRITERS).map(|_| Done::default()).collect();
    let mut acknowledged = 0;
    for kill in 0..kills {
        let how = format!("{common} {}", LIVES[kill % LIVES.len()]);
        let server = Running::start(&how);
        check(&server, &done, &format!("life {kill}, {how}"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, done) in done.iter().enumerate() {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || write(server.port(), number, done));
                scope.spawn(move || read(server.port(), number, done, is_over));
            }
            let time = Duration::from_millis(5 + (kill as u64 * 37) % 60);
            match kill % 2 {
                0 => std::thread::sleep(time),
                _ => rewrite(&server, time),
            }
            server.kill();
            is_over.store(true, SeqCst);
        });
        acknowledged = done.iter().map(|done| done.acknowledged.load(SeqCst)).sum();
    }
    let server = Running::start(&common);
    check(&server, &done, "after all");
    eprintln!("killed {kills} times, {acknowledged} acknowledged rounds, none lost");
    assert!(acknowledged >= kills as u64, "the server wrote");
}

/// Has the log be rewritten again and again.
fn rewrite(server: &Running, time: Duration) {
    let mut client = server.connect();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let reply = client.ask("BGREWRITEAOF");
        let text = String::from_utf8_lossy(reply.as_bytes().expect("a text")).into_owned();
        assert!(text.contains("ground append only file rewriting"), "{text}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the server has is at least what was acknowledged and seen, at most what was sent, and no transaction in half.
fn check(server: &Running, done: &[Done], when: &str) {
    let mut client = server.connect();
    for (number, done) in done.iter().enumerate() {
        let values = client.ask(&format!("MGET count:{number} left:{number} right:{number}"));
        let values: Vec<u64> = values.as_list().expect("a list").iter().map(number_of).collect();
        let [count, left, right] = values[..] else { panic!("three values") };
        let (sent, acknowledged) = (done.sent.load(SeqCst), done.acknowledged.load(SeqCst));
        let seen = done.seen.load(SeqCst);
        assert!(
            count >= acknowledged,
            "{when}: {count} of {acknowledged} acknowledged increments of {number} are there"
        );
        assert!(count >= seen, "{when}: a reader has seen {seen}, {count} is there");
        assert!(count <= sent, "{when}: {sent} were sent and {count} are there");
        assert_eq!(left, right, "{when}: half a transaction");
        assert_eq!(left, count, "{when}: a part of a transaction");
        let length = number_of(&client.ask(&format!("LLEN list:{number}")));
        assert_eq!(length, count, "{when}: as many elements as increments, since they are of one transaction");
        done.sent.store(count, SeqCst);
        done.acknowledged.store(count, SeqCst);
    }
}

fn number_of(reply: &Reply) -> u64 {
    match reply {
        Reply::NullBulk => 0,
        Reply::Integer(number) => u64::try_from(*number).expect("a count"),
        other => String::from_utf8_lossy(other.as_bytes().expect("a value")).parse().expect("a number"),
    }
}

/// Writes rounds until the connection ends.
fn write(port: u16, number: usize, done: &Done) {
    let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let mut client = Client::new(stream);
    loop {
        let mut bytes = Vec::new();
        let first = done.sent.load(SeqCst) + 1;
        for round in first..first + PIPELINE {
            for line in [
                "MULTI".to_owned(),
                format!("INCR count:{number}"),
                format!("RPUSH list:{number} {round}"),
                format!("SET left:{number} {round}"),
                format!("SET right:{number} {round}"),
                "EXEC".to_owned(),
            ] {
                encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
            }
        }
        done.sent.store(first + PIPELINE - 1, SeqCst);
        if !client.try_send(&bytes) {
            return;
        }
        for round in first..first + PIPELINE {
            for _ in 0..5 {
                if client.next_reply().is_none() {
                    return;
                }
            }
            let Some(reply) = client.next_reply() else { return };
            assert_eq!(reply.as_list().expect("EXEC's replies")[0], Reply::Integer(round.cast_signed()));
            done.acknowledged.store(round, SeqCst);
        }
    }
}

/// Reads the count until the connection ends.
fn read(port: u16, number: usize, done: &Done, is_over: &AtomicBool) {
    let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let mut client = Client::new(stream);
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &["GET", &format!("count:{number}")]);
    while !is_over.load(SeqCst) && client.try_send(&bytes) {
        let Some(reply) = client.next_reply() else { return };
        done.seen.fetch_max(number_of(&reply), SeqCst);
    }
}
