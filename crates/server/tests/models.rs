//! What holds under every I/O model: no reply is lost, doubled or out of its order, and clients that vanish while replies wait
//! for them leave nothing behind.
//!
//! `MODELS_REPLIES=10000000` sends as many replies per model instead of [`REPLIES`], `MODELS=queue` runs only the models whose
//! arguments have that part.

mod running;

use gimmal_resp::Reply;
use running::{PATIENCE, Running};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Every model: what is given to the server.
const MODELS: &[&str] = &[
    "",
    "--io-engine epoll",
    "--io-engine epoll --epoll-trigger level --epoll-flush loop",
    "--io-engine epoll --epoll-flush command",
    "--io-engine epoll --epoll-trigger level --epoll-flush command --workers 2",
    "--io-engine uring --uring-recv single",
    "--io-engine uring --uring-recv poll --uring-write writev",
    "--io-engine uring --uring-recv poll --uring-write writev --uring-async-threshold 25 --workers 2",
    "--io-engine uring --uring-write writev",
    "--io-engine uring --uring-recv poll",
    "--io-engine uring-send",
    "--io-engine uring-send --uring-submit async",
    "--io-engine uring-send --uring-submit sequential",
    "--io-engine uring-send --uring-order kernel",
    "--io-engine uring-send --uring-submit-threshold 8 --workers 2",
    "--io-engine uring-send --uring-submit-interval-us 200",
    "--io-engine uring-send --uring-order kernel --uring-submit-threshold 5 --uring-submit-interval-us 100",
    "--io-model phases --io-threads 2",
    "--io-model phases --io-threads 3 --io-threads-do-reads yes",
    "--io-model queue --reply-queue lock",
    "--io-model queue --reply-queue ms --reply-threads 2",
    "--io-model queue --reply-queue distributed --reply-queue-partial 4 --reply-queue-balancers 2",
];

/// Replies per model.
const REPLIES: usize = 200_000;
/// Connections that share them.
const CONNECTIONS: usize = 8;
/// How long clients vanish under each model.
const STORM: Duration = Duration::from_millis(1500);

#[test]
fn no_reply_is_lost_doubled_or_reordered() {
    let wanted = std::env::var("MODELS_REPLIES").map_or(REPLIES, |text| text.parse().expect("a number of replies"));
    under_every_model(|server, model| {
        std::thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                let each = wanted / CONNECTIONS;
                scope.spawn(move || exchange(server, connection, each, model));
            }
        });
    });
}

/// Sends numbered commands in pipelines of any depth, and holds every byte of the replies against what must come.
fn exchange(server: &Server, connection: usize, count: usize, model: &str) {
    let mut stream = server.connect();
    let mut reader = stream.try_clone().expect("a descriptor is left");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut numbered, mut depths) = (Numbered::new(connection, count), Random(connection as u64));
            let mut commands = Vec::new();
            loop {
                commands.clear();
                let most = [1, 16, 300][depths.below(3)];
                let depth = 1 + depths.below(most);
                if (0..depth).take_while(|_| numbered.next(&mut commands, &mut Vec::new())).count() == 0 {
                    break;
                }
                stream.write_all(&commands).expect("the server reads");
                if depths.below(20) == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
            stream.shutdown(Shutdown::Write).expect("it is open");
        });
        let (mut numbered, mut reads) = (Numbered::new(connection, count), Random(99 + connection as u64));
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        let mut replies = 0;
        while numbered.next(&mut Vec::new(), &mut expected) {
            replies += 1;
            // A reader that rests lets the server's sockets fill up.
            if reads.below(2000) == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            if expected.len() > 32 * 1024 || replies == count {
                got.resize(expected.len(), 0);
                reader.read_exact(&mut got).unwrap_or_else(|error| panic!("{model}: connection {connection}: {error}"));
                assert!(got == expected, "{model}: connection {connection} got other bytes by reply {replies}");
                expected.clear();
            }
        }
        assert_eq!(replies, count);
        let more = reader.read(&mut [0; 16]).expect("the server ends the stream in order");
        assert_eq!(more, 0, "{model}: connection {connection} got more than {count} replies");
    });
}

/// A connection's commands, numbered, with the replies to them; some are long.
struct Numbered {
    connection: usize,
    number: usize,
    count: usize,
    increments: usize,
    random: Random,
}

impl Numbered {
    fn new(connection: usize, count: usize) -> Numbered {
        Numbered { connection, number: 0, count, increments: 0, random: Random(connection as u64 + 1) }
    }

    /// The next command and its reply; false after the last.
    fn next(&mut self, command: &mut Vec<u8>, reply: &mut Vec<u8>) -> bool {
        if self.number == self.count {
            return false;
        }
        self.number += 1;
        if self.random.below(3) == 0 {
            self.increments += 1;
            command.extend(format!("INCR counter{}\r\n", self.connection).bytes());
            reply.extend(format!(":{}\r\n", self.increments).bytes());
        } else {
            let is_long = self.random.below(300) == 0;
            let padding = self.random.below(if is_long { 100_000 } else { 50 });
            let text = format!("{}-{}-{}", self.connection, self.number, "x".repeat(padding));
            command.extend(format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len()).bytes());
            reply.extend(format!("${}\r\n{text}\r\n", text.len()).bytes());
        }
        true
    }
}

#[test]
fn clients_that_vanish_while_replies_wait_leave_nothing_behind() {
    under_every_model(|server, model| {
        let mut admin = server.running.connect();
        assert_eq!(admin.call(&[b"SET", b"large", &vec![b'v'; 3_000_000]]), Reply::Simple("OK".into()));
        let until = Instant::now() + STORM;
        std::thread::scope(|scope| {
            for seed in 0..4 {
                scope.spawn(move || vanish(server, seed, until));
            }
            // Who stays is served all the while.
            let mut number = 0u64;
            while Instant::now() < until {
                number += 1;
                assert_eq!(
                    admin.ask(&format!("ECHO {number}")).as_bytes(),
                    Some(number.to_string().as_bytes()),
                    "{model}"
                );
            }
        });
        let started = Instant::now();
        loop {
            let reply = admin.ask("INFO clients");
            let text = String::from_utf8_lossy(reply.as_bytes().expect("a text")).into_owned();
            if text.contains("connected_clients:1\r\n") {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{model}: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// Connects, asks for much, reads some of it or nothing, and is gone, again and again.
fn vanish(server: &Server, seed: u64, until: Instant) {
    let mut random = Random(seed);
    while Instant::now() < until {
        let mut clients: Vec<TcpStream> = (0..1 + random.below(8)).map(|_| server.connect()).collect();
        for client in &mut clients {
            let commands = match random.below(4) {
                0 => "PING\r\n".repeat(1 + random.below(500)),
                1 => "GET large\r\n".repeat(1 + random.below(5)),
                2 => format!("INCR a\r\nGET large\r\n{}", "ECHO b\r\n".repeat(100)),
                _ => "BLPOP nothing 0\r\n".into(),
            };
            // The server may be behind with reading: what does not fit is not sent.
            client.set_nonblocking(true).expect("an open socket");
            if let Err(error) = client.write_all(commands.as_bytes()) {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
            }
            client.set_nonblocking(false).expect("an open socket");
        }
        while !clients.is_empty() {
            let client = clients.swap_remove(random.below(clients.len()));
            match random.below(3) {
                // Unread replies make the close a reset.
                0 => {}
                1 => {
                    client.set_read_timeout(Some(Duration::from_millis(2))).expect("a legal timeout");
                    let mut some = Read::take(&client, 1 + random.below(100_000) as u64);
                    if let Err(error) = std::io::copy(&mut some, &mut std::io::sink()) {
                        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                    }
                }
                _ => client.shutdown(Shutdown::Write).expect("it is open"),
            }
        }
    }
}

/// A running server under a model.
struct Server {
    running: Running,
}

impl Server {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.running.port())).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a legal timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a legal timeout");
        stream
    }
}

fn under_every_model(test: impl Fn(&Server, &str)) {
    let part = std::env::var("MODELS").unwrap_or_default();
    for model in MODELS.iter().filter(|model| model.contains(&part)) {
        let started = Instant::now();
        test(&Server { running: Running::start(model) }, model);
        eprintln!("{:6} ms: {model:?}", started.elapsed().as_millis());
    }
}

/// Numbers that look random (SplitMix64; Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("below a usize")
    }
}
