//! Blocking pops over workers: each element is delivered once, waiters are served in their order, nobody sleeps beside an element.

mod in_process;
mod running;

use gimmal_resp::{Reply, encode_command};
use in_process::{InProcess, Random};
use running::Client;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One worker has no one to meet, two have each other, eight share the processors.
const WORKERS: [usize; 3] = [1, 2, 8];

fn bytes_of(reply: &Reply) -> Vec<u8> {
    reply.as_bytes().unwrap_or_else(|| panic!("no string: {reply:?}")).to_vec()
}

/// Waits until so many clients are blocked.
fn await_blocked(control: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    let started = Instant::now();
    loop {
        let info = control.ask("INFO clients");
        let info = info.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        if info.contains(&wanted) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{count} clients were to be blocked: {info}");
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
                        assert!(started.elapsed() < Duration::from_secs(60), "{} elements missing", left.load(Relaxed));
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
