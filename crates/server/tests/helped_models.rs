//! `io-model phases` and `io-model queue` as clients and INFO see them: the mechanism of each under known traffic, counted
//! exactly, and memory that is bounded.

mod running;

use gimmal_resp::Reply;
use running::{Client, PATIENCE, Running, ok};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Fields of INFO that are numbers.
fn numbers(client: &mut Client, section: &str) -> HashMap<String, u64> {
    let reply = client.ask(&format!("INFO {section}"));
    let text = String::from_utf8_lossy(reply.as_bytes().expect("a text")).into_owned();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Puts the counters to 0 once everything before is counted: that is so at the end of a pass.
fn reset(client: &mut Client) {
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(client.ask("CONFIG RESETSTAT"), ok());
}

/// S11: one pass has replies for 16 clients, which are written in one phase with one barrier.
#[test]
fn a_pass_with_many_replies_is_one_write_phase() {
    let server = Running::start("--io-model phases --io-threads 4");
    let mut admin = server.connect();
    let mut clients: Vec<Client> = (0..16).map(|_| server.connect()).collect();
    for round in 0..10 {
        assert_eq!(admin.ask("CLIENT PAUSE 100000 WRITE"), ok());
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(format!("SET key{at} {round}\r\n").as_bytes());
        }
        let started = Instant::now();
        while numbers(&mut admin, "clients")["blocked_clients"] < 16 {
            assert!(started.elapsed() < PATIENCE, "16 wait for the end of the pause");
            std::thread::sleep(Duration::from_millis(5));
        }
        reset(&mut admin);
        assert_eq!(admin.ask("CLIENT UNPAUSE"), ok());
        for client in &mut clients {
            assert_eq!(client.reply(), ok());
        }
        std::thread::sleep(Duration::from_millis(250));
        let seen = numbers(&mut admin, "io");
        assert_eq!((seen["io_write_phases"], seen["io_read_phases"]), (1, 0));
        // The two replies to `admin` are written by the worker alone, unless one is in the same pass.
        assert_eq!(seen["io_phase_jobs"] + seen["io_phases_alone"], 16 + 2);
        assert!((16..=17).contains(&seen["io_phase_jobs"]), "{seen:?}");
        assert_eq!(seen["io_sends"], 16 + 2);
        assert!(seen["io_barrier_waits"] <= 1);
    }
}

/// S11 with reads: clients that keep the phases busy are read in phases, and get what they ask for.
#[test]
fn busy_clients_are_read_in_phases() {
    let server = Running::start("--io-model phases --io-threads 2 --io-threads-do-reads yes");
    let mut admin = server.connect();
    assert_eq!(admin.ask("CONFIG RESETSTAT"), ok());
    std::thread::scope(|scope| {
        for at in 0..12 {
            let mut client = server.connect();
            scope.spawn(move || {
                for number in 0..500 {
                    // Plain commands, a line, one with quotes, and the beginning of the next one.
                    let value = format!("{at}-{number}");
                    client.send(
                        format!(
                            "*3\r\n$3\r\nSET\r\n$4\r\nk{at:03}\r\n${}\r\n{value}\r\nGET k{at:03}\r\nECHO \"a b\"\r\n*2\r\n$3\r\nGET\r\n$4",
                            value.len()
                        )
                        .as_bytes(),
                    );
                    client.send(format!("\r\nk{at:03}\r\n").as_bytes());
                    assert_eq!(client.reply(), ok());
                    assert_eq!(client.reply().as_bytes(), Some(value.as_bytes()));
                    assert_eq!(client.reply().as_bytes(), Some(&b"a b"[..]));
                    assert_eq!(client.reply().as_bytes(), Some(value.as_bytes()));
                }
            });
        }
    });
    let seen = numbers(&mut admin, "io");
    assert!(seen["io_write_phases"] > 0 && seen["io_read_phases"] > 0, "{seen:?}");
    assert!(seen["io_phase_jobs"] >= 4 * seen["io_write_phases"] + seen["io_read_phases"], "{seen:?}");
    assert!(seen["io_barrier_waits"] <= seen["io_write_phases"] + seen["io_read_phases"]);
}

/// S12, S13, S14: each reply goes through the queue once; partial queues are looked at only if there are some.
#[test]
fn each_reply_goes_through_the_queue_once() {
    let models = [
        ("--reply-queue lock --reply-threads 1", false),
        ("--reply-queue ms --reply-threads 3", false),
        ("--reply-queue distributed --reply-queue-partial 4 --reply-threads 2", true),
    ];
    for (model, looks) in models {
        let server = Running::start(&format!("--io-model queue {model}"));
        let mut admin = server.connect();
        reset(&mut admin);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut client = server.connect();
                scope.spawn(move || {
                    (0..1000).for_each(|_| assert_eq!(client.ask("PING"), Reply::Simple(b"PONG".to_vec())))
                });
            }
        });
        std::thread::sleep(Duration::from_millis(250));
        let seen = numbers(&mut admin, "io");
        // And the reply to CONFIG RESETSTAT.
        for field in ["io_queue_in", "io_queue_out", "io_queued", "io_sends"] {
            assert_eq!(seen[field], 4001, "{model}: {field}");
        }
        assert_eq!(seen["reply_queue_length"], 0, "{model}");
        assert!(seen["io_queue_wait_ns"] > 0, "{model}");
        assert_eq!(seen["io_partial_visits"] >= 4001, looks, "{model}: {}", seen["io_partial_visits"]);
        assert!(looks || seen["io_partial_visits"] == 0, "{model}");
    }
}

/// A client that asks for much and reads nothing costs what its output limit says, in buffers, and gets everything later.
#[test]
fn outstanding_replies_are_bounded() {
    const REPLIES: usize = 60_000;
    for model in ["--io-model queue --reply-queue ms", "--io-model phases --io-threads 2 --io-threads-do-reads yes"] {
        let server = Running::start(model);
        let mut admin = server.connect();
        assert_eq!(admin.call(&[b"SET", b"key", &[b'v'; 1024]]), ok());
        let before = server.peak_rss_mib();
        let client = server.connect();
        let mut writer = client.stream.try_clone().expect("a descriptor is left");
        let mut reader = client.stream;
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all("GET key\r\n".repeat(REPLIES).as_bytes()).expect("the server reads"));
            std::thread::sleep(Duration::from_millis(700));
            // The others are served meanwhile.
            for _ in 0..100 {
                assert_eq!(admin.ask("PING"), Reply::Simple(b"PONG".to_vec()));
            }
            let reply = [&b"$1024\r\n"[..], &[b'v'; 1024], b"\r\n"].concat();
            let mut got = vec![0; reply.len()];
            for at in 0..REPLIES {
                reader.read_exact(&mut got).expect("a reply");
                assert!(got == reply, "{model}: reply {at}");
            }
        });
        let grown = server.peak_rss_mib() - before;
        assert!(grown < 24, "{model}: {grown} MiB for replies of {} MiB", REPLIES / 1024);
    }
}
