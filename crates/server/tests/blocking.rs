//! Blocking pops over workers: each element is delivered once, waiters are served in their order, nobody sleeps beside an element.

mod in_process;
mod running;

use gimmal_resp::{Reply, encode_command};
use in_process::{InProcess, Random};
use running::Client;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One worker has no one to meet, two have each other, eight share the processors.
const WORKERS: [usize; 3] = [1, 2, 8];

fn bytes_of(reply: &Reply) -> Vec<u8> {
    reply.as_bytes().unwrap_or_else(|| panic!("no string: {reply:?}")).to_vec()
}

/// Waits until so many clients are blocked.
fn await_blocked(control: &mut Client, count: usize) {
    await_info(control, &format!("blocked_clients:{count}\r\n"));
}

/// Waits until so many clients are connected.
fn await_clients(control: &mut Client, count: usize) {
    await_info(control, &format!("connected_clients:{count}\r\n"));
}

fn await_info(control: &mut Client, wanted: &str) {
    let started = Instant::now();
    loop {
        let info = control.ask("INFO clients");
        let info = info.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        if info.contains(wanted) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{wanted:?} was expected: {info}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Producers push numbered elements onto a few lists by every command that makes one; consumers take them by every command that
/// waits, with timeouts short and long. At the end each element was received exactly once.
#[test]
fn every_element_is_delivered_once() {
    const PRODUCERS: usize = 3;
    const EACH: usize = 1500;
    const CONSUMERS: usize = 6;
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let received = Mutex::new(Vec::new());
        let left = AtomicUsize::new(PRODUCERS * EACH);
        std::thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.connect();
                    let mut random = Random(producer as u64 + 17);
                    for n in 0..EACH {
                        let (list, element) = (format!("list{}", random.below(4)), format!("{producer}:{n}"));
                        let reply = match random.below(5) {
                            0 => client.ask(&format!("LPUSH {list} {element}")),
                            1 => {
                                client.ask(&format!("DEL side{producer}"));
                                client.ask(&format!("RPUSH side{producer} {element}"));
                                client.ask(&format!("LMOVE side{producer} {list} LEFT RIGHT"))
                            }
                            2 => {
                                client.ask("MULTI");
                                client.ask(&format!("RPUSH {list} {element}"));
                                client.ask("EXEC")
                            }
                            _ => client.ask(&format!("RPUSH {list} {element}")),
                        };
                        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
                    }
                });
            }
            for consumer in 0..CONSUMERS {
                let (server, received, left) = (&server, &received, &left);
                scope.spawn(move || {
                    let mut client = server.connect();
                    let mut random = Random(consumer as u64 * 31 + 5);
                    let started = Instant::now();
                    while left.load(Relaxed) > 0 {
                        assert!(
                            started.elapsed() < Duration::from_secs(120),
                            "{} elements missing",
                            left.load(Relaxed)
                        );
                        let timeout = ["0.001", "0.02", "0.3"][random.below(3)];
                        let taken: Vec<Vec<u8>> = match random.below(3) {
                            0 => {
                                let reply = client.ask(&format!("BLPOP list0 list1 list2 list3 {timeout}"));
                                reply.as_list().map(|pair| vec![bytes_of(&pair[1])]).unwrap_or_default()
                            }
                            1 => {
                                let reply =
                                    client.ask(&format!("BLMPOP {timeout} 4 list3 list2 list1 list0 RIGHT COUNT 3"));
                                let elements =
                                    reply.as_list().and_then(|pair| pair[1].as_list().map(<[Reply]>::to_vec));
                                elements.unwrap_or_default().iter().map(bytes_of).collect()
                            }
                            _ => {
                                let list = random.below(4);
                                let reply =
                                    client.ask(&format!("BLMOVE list{list} hand{consumer} LEFT RIGHT {timeout}"));
                                let moved = reply.as_bytes().map(<[u8]>::to_vec);
                                if moved.is_some() {
                                    assert_eq!(
                                        client.ask(&format!("LPOP hand{consumer}")).as_bytes(),
                                        moved.as_deref()
                                    );
                                }
                                moved.into_iter().collect()
                            }
                        };
                        left.fetch_sub(taken.len(), Relaxed);
                        received.lock().expect("no panic").extend(taken);
                    }
                });
            }
        });
        let received = received.into_inner().expect("no panic");
        let distinct: BTreeSet<_> = received.iter().collect();
        assert_eq!((received.len(), distinct.len()), (PRODUCERS * EACH, PRODUCERS * EACH), "workers {workers}");
    }
}

/// Waiters of one key come up in the order in which they began to wait, whichever workers they are on.
#[test]
fn the_longest_waiting_is_served_first() {
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut control = server.connect();
        for round in 0..20 {
            let mut waiters = Vec::new();
            for number in 0..12 {
                let mut waiter = server.connect();
                let mut request = Vec::new();
                encode_command(&mut request, &[&b"BLPOP"[..], b"queue", b"0"]);
                waiter.send(&request);
                await_blocked(&mut control, number + 1);
                waiters.push(waiter);
            }
            for number in 0..12 {
                assert_eq!(control.ask(&format!("RPUSH queue {round}-{number}")), Reply::Integer(1));
            }
            for (number, waiter) in waiters.iter_mut().enumerate() {
                let reply = waiter.reply();
                let pair = reply.as_list().expect("a key and an element");
                assert_eq!(bytes_of(&pair[1]), format!("{round}-{number}").into_bytes(), "workers {workers}");
            }
            assert_eq!(control.ask("EXISTS queue"), Reply::Integer(0));
        }
    }
}

/// What is pushed while somebody waits is his, though others ask for it on other workers at that very moment. They once got one in
/// a few hundred.
#[test]
fn who_does_not_wait_comes_behind_who_does() {
    const ROUNDS: usize = 400;
    for workers in [2, 8] {
        let server = InProcess::start(workers);
        let (is_over, stolen) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thief in ["LPOP queue", "RPOPLPUSH queue other", "LMPOP 2 none queue LEFT", "ZPOPMIN scores"] {
                let (server, is_over, stolen) = (&server, &is_over, &stolen);
                scope.spawn(move || {
                    let mut client = server.connect();
                    while !is_over.load(Relaxed) {
                        let reply = client.ask(thief);
                        let got = reply.as_list().is_some_and(|list| !list.is_empty()) || reply.as_bytes().is_some();
                        if got {
                            // Something else in its place, so that the waiter comes back and the test ends.
                            stolen.lock().expect("not poisoned").push((thief, reply));
                            client.ask(if thief.starts_with('Z') { "ZADD scores 1 x" } else { "RPUSH queue x" });
                        }
                    }
                });
            }
            let (mut control, mut producer) = (server.connect(), server.connect());
            let (mut waiter, mut scored) = (server.connect(), server.connect());
            for round in 0..ROUNDS {
                let mut request = Vec::new();
                encode_command(&mut request, &[&b"BLPOP"[..], b"queue", b"0"]);
                waiter.send(&request);
                let mut request = Vec::new();
                encode_command(&mut request, &[&b"BZPOPMIN"[..], b"scores", b"0"]);
                scored.send(&request);
                await_blocked(&mut control, 2);
                assert_eq!(producer.ask(&format!("RPUSH queue {round}")), Reply::Integer(1));
                assert_eq!(producer.ask(&format!("ZADD scores 1 {round}")), Reply::Integer(1));
                for client in [&mut waiter, &mut scored] {
                    let reply = client.reply();
                    assert!(reply.as_list().is_some_and(|list| list.len() >= 2), "round {round}: {reply:?}");
                }
            }
            is_over.store(true, Relaxed);
        });
        let stolen = stolen.into_inner().expect("not poisoned");
        assert!(stolen.is_empty(), "taken with {workers} workers from who waits for it: {stolen:?}");
    }
}

/// Clients that leave while they wait take nothing with them, and those that stay get everything.
#[test]
fn who_leaves_takes_nothing_along() {
    const ELEMENTS: usize = 800;
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut control = server.connect();
        let mut random = Random(99);
        let mut received = 0;
        let mut stays = server.connect();
        for n in 0..ELEMENTS {
            let mut request = Vec::new();
            encode_command(&mut request, &[&b"BLPOP"[..], b"jobs", b"0"]);
            let mut leaves = server.connect();
            leaves.send(&request);
            await_blocked(&mut control, 1);
            drop(leaves);
            if random.below(2) == 0 {
                // Half of them are seen to be gone before the push comes.
                await_blocked(&mut control, 0);
                control.ask(&format!("RPUSH jobs {n}"));
                assert!(stays.ask("BLPOP jobs 5").as_list().is_some(), "element {n} was lost, workers {workers}");
                received += 1;
            } else {
                // The others may still be served: their element is gone with them, or there for the next.
                control.ask(&format!("RPUSH jobs {n}"));
                received += usize::from(stays.ask("LPOP jobs").as_bytes().is_some());
            }
            await_blocked(&mut control, 0);
        }
        assert!(received >= ELEMENTS / 3, "only {received} received");
        assert_eq!(control.ask("EXISTS jobs"), Reply::Integer(0));
    }
}

/// A client sent a pop and closed its side while the pop could not run yet. When it ran and found nothing it began to wait, for good:
/// the end had been seen, and nobody looked again. The next element went to it.
#[test]
fn who_has_left_does_not_begin_to_wait() {
    let server = InProcess::start(2);
    let mut control = server.connect();
    for wait in ["BLPOP jobs 0", "XREAD BLOCK 0 STREAMS events $", "BZPOPMIN board 0"] {
        let mut leaves = server.connect();
        assert_eq!(leaves.ask("PING"), Reply::Simple("PONG".into()));
        assert!(!control.ask("CLIENT PAUSE 100000 ALL").is_error());
        let words: Vec<&[u8]> = wait.split(' ').map(str::as_bytes).collect();
        let mut request = Vec::new();
        encode_command(&mut request, &words);
        leaves.send(&request);
        drop(leaves);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!control.ask("CLIENT UNPAUSE").is_error());
        await_clients(&mut control, 1);
        await_blocked(&mut control, 0);
    }
    assert_eq!(control.ask("RPUSH jobs element"), Reply::Integer(1));
    assert_eq!(control.ask("LLEN jobs"), Reply::Integer(1), "a client that was gone has taken the element");
}

/// XREADGROUP reads for a group: when the stream goes, by whatever command, the wait is over. It was told of a removal, but not of a
/// value of another type in the stream's place.
#[test]
fn who_reads_for_a_group_is_told_that_the_stream_has_gone() {
    let server = InProcess::start(2);
    let (mut control, mut reader, mut plain) = (server.connect(), server.connect(), server.connect());
    let send = |client: &mut Client, line: &str| {
        let mut request = Vec::new();
        encode_command(&mut request, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        client.send(&request);
    };
    // A plain reader waits for whatever stream there will be.
    send(&mut plain, "XREAD BLOCK 0 STREAMS events 0");
    await_blocked(&mut control, 1);
    let over = [
        ("SET events text", "WRONGTYPE"),
        ("RPUSH other element|RENAME other events", "WRONGTYPE"),
        ("MULTI|DEL events|SET events text|EXEC", "WRONGTYPE"),
        ("DEL events", "NOGROUP"),
    ];
    for (lines, prefix) in over {
        control.ask("DEL events");
        assert!(!control.ask("XGROUP CREATE events group $ MKSTREAM").is_error());
        send(&mut reader, "XREADGROUP GROUP group me BLOCK 0 STREAMS events >");
        await_blocked(&mut control, 2);
        lines.split('|').for_each(|line| assert!(!control.ask(line).is_error(), "{line}"));
        let text = running::error_text(&reader.reply());
        assert!(text.starts_with(prefix), "{lines}: {text}");
        await_blocked(&mut control, 1);
    }
    control.ask("DEL events");
    assert!(!control.ask("XADD events * field value").is_error());
    assert!(plain.reply().as_list().is_some());
}

/// Many readers of one stream, many poppers of one list: serving them looked at all of them anew for each, so that one command with ten
/// thousand of them held its worker up for seconds.
#[test]
fn many_waiters_of_one_key_are_served_in_one_go() {
    const WAITERS: usize = 3000;
    // Both ends are this process's, and so are those of the other tests.
    let files = gimmal_lab::sys::raise_open_files().expect("the limit can be read");
    if files < 2 * WAITERS as u64 + 200 {
        eprintln!("not run: {WAITERS} waiters of one key: only {files} files may be open here");
        return;
    }
    let server = InProcess::start(1);
    let mut control = server.connect();
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| server.connect()).collect();
    for (line, wake) in [("XREAD BLOCK 0 STREAMS key $", "XADD key * f v"), ("BLPOP key 0", "RPUSH key")] {
        control.ask("DEL key");
        let mut request = Vec::new();
        encode_command(&mut request, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        waiters.iter_mut().for_each(|waiter| waiter.send(&request));
        await_blocked(&mut control, WAITERS);
        let wake = if wake == "RPUSH key" { format!("{wake}{}", " x".repeat(WAITERS)) } else { wake.to_string() };
        assert!(!control.ask(&wake).is_error());
        assert!(waiters.iter_mut().all(|waiter| waiter.reply().as_list().is_some()));
        await_blocked(&mut control, 0);
    }
}

/// Each of a group's readers is told, on whichever worker, by whatever command the stream goes; INFO counts the key they wait for.
#[test]
fn every_reader_of_a_group_is_told_that_the_stream_has_gone() {
    const READERS: usize = 3;
    for workers in WORKERS {
        let server = InProcess::start(workers);
        let mut control = server.connect();
        for round in 0..24 {
            assert_eq!(control.ask("DEL s other"), Reply::Integer(0), "round {round}");
            control.ask("XGROUP CREATE s g $ MKSTREAM");
            let mut waiting = Vec::new();
            let mut wait = |words: &[&[u8]], control: &mut Client| {
                let mut request = Vec::new();
                encode_command(&mut request, words);
                let mut client = server.connect();
                client.send(&request);
                waiting.push(client);
                await_blocked(control, waiting.len());
            };
            for _ in 0..READERS {
                wait(&[b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">"], &mut control);
            }
            let info = control.ask("INFO clients");
            let info = String::from_utf8_lossy(info.as_bytes().expect("text")).into_owned();
            assert!(info.contains("total_blocking_keys:1\r\ntotal_blocking_keys_on_nokey:1\r\n"), "{info}");
            let (end, error) = match round % 6 {
                0 => ("SET s v", "WRONGTYPE"),
                1 => ("SADD other v", "WRONGTYPE"),
                2 => ("DEL s", "NOGROUP"),
                3 => ("XGROUP DESTROY s g", "NOGROUP"),
                4 => ("RENAME s other", "NOGROUP"),
                _ => ("FLUSHALL", "NOGROUP"),
            };
            assert!(!matches!(control.ask(end), Reply::Error(_)));
            if round % 6 == 1 {
                assert!(!matches!(control.ask("RENAME other s"), Reply::Error(_)));
            }
            for client in &mut waiting {
                let reply = client.reply();
                assert!(matches!(&reply, Reply::Error(text) if text.starts_with(error.as_bytes())), "{end}: {reply:?}");
            }
            await_blocked(&mut control, 0);
            control.ask("DEL s");
            control.ask("DEL other");
        }
    }
}
