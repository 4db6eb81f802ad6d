//! What the tests of this crate share: random values, and a redis-server to compare with.

#![allow(dead_code)]

use gimmal_rdb::{Consumer, Group, Object, Pending, Stream, StreamId, StreamMeta};
use gimmal_resp::{Reply, encode_command};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn size(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).expect("small")
    }

    /// Few often, many sometimes.
    pub fn count(&mut self) -> usize {
        1 + match self.below(8) {
            0..=4 => self.size(12),
            5..=6 => self.size(200),
            _ => self.size(1500),
        }
    }

    /// Integers of all sizes, short and long, compressible and random strings.
    pub fn text(&mut self) -> Vec<u8> {
        match self.below(12) {
            0..=4 => {
                let shift = self.below(64);
                let n = (self.next() >> shift).cast_signed();
                (if self.below(2) == 0 { n } else { n.wrapping_neg() }).to_string().into_bytes()
            }
            5 => format!("00{}", self.below(100)).into_bytes(),
            6..=8 => (0..self.size(70)).map(|_| self.next().to_le_bytes()[0]).collect(),
            9 => vec![b'a'; self.size(5000)],
            10 => format!("user:{}:name ", self.below(1000)).into_bytes().repeat(1 + self.size(9)),
            _ => (0..self.size(700)).map(|_| self.next().to_le_bytes()[0]).collect(),
        }
    }

    pub fn score(&mut self) -> f64 {
        match self.below(6) {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            2 => self.next() as f64,
            3 => self.below(1000) as f64,
            4 => self.below(1000) as f64 / 7.0,
            // An exponent of all sizes.
            _ => Some(f64::from_bits(self.next())).filter(|score| score.is_finite()).unwrap_or(-0.5),
        }
    }

    pub fn object(&mut self) -> Object {
        match self.below(6) {
            0 => Object::String(self.text()),
            1 => Object::List((0..self.count()).map(|_| self.text()).collect()),
            2 => {
                let integers = self.below(2) == 0;
                let member = |random: &mut Random| match integers {
                    true => random.below(100_000).to_string().into_bytes(),
                    false => random.text(),
                };
                Object::Set((0..self.count()).map(|_| member(self)).collect::<BTreeSet<_>>())
            }
            3 => Object::SortedSet((0..self.count()).map(|_| (self.text(), self.score())).collect::<BTreeMap<_, _>>()),
            4 => {
                let expires = self.below(3) == 0;
                let at = |random: &mut Random| (expires && random.below(2) == 0).then(|| 1 + random.below(1 << 50));
                let fields = (0..self.count()).map(|_| (self.text(), (self.text(), at(self))));
                Object::Hash(fields.collect())
            }
            _ => Object::Stream(self.stream()),
        }
    }

    pub fn stream(&mut self) -> Stream {
        let mut stream = Stream::default();
        let mut id = StreamId { ms: 1_700_000_000_000 + self.below(1000), seq: self.below(2) };
        let usual = [self.text(), self.text()];
        for _ in 0..self.size(300) {
            let own = self.below(5) == 0;
            let pairs = match own {
                true => (0..1 + self.below(4)).map(|_| (self.text(), self.text())).collect(),
                false => usual.iter().map(|field| (field.clone(), self.text())).collect(),
            };
            match self.below(3) {
                0 => id.seq += 1 + self.below(5),
                _ => id = StreamId { ms: id.ms + 1 + self.below(100_000), seq: self.below(3) },
            }
            stream.entries.push((id, pairs));
        }
        let first_id = stream.entries.first().map_or(StreamId::default(), |(id, _)| *id);
        let length = stream.entries.len() as u64;
        let max_deleted_id = StreamId { ms: self.below(1_700_000_000_000), seq: 1 };
        stream.meta =
            StreamMeta { length, last_id: id, first_id, max_deleted_id, entries_added: length + self.below(9) };
        for number in 0..self.below(3) {
            let group = self.group(format!("group {number}"), &stream);
            stream.groups.push(group);
        }
        stream
    }

    fn group(&mut self, name: String, stream: &Stream) -> Group {
        let consumers: Vec<Consumer> = (0..self.below(4))
            .map(|number| {
                let seen_time_ms = 1_700_000_000_000 + i64::try_from(self.below(1 << 30)).expect("small");
                Consumer { name: format!("consumer {number}").into_bytes(), seen_time_ms, active_time_ms: seen_time_ms }
            })
            .collect();
        let mut pending = Vec::new();
        for (id, _) in stream.entries.iter().filter(|_| !consumers.is_empty()) {
            if self.below(3) == 0 {
                let consumer = self.size(consumers.len() as u64);
                let delivery_count = 1 + self.below(300);
                pending.push(Pending { id: *id, delivery_time_ms: 1_700_000_000_123, delivery_count, consumer });
            }
        }
        let entries_read = (self.below(2) == 0).then_some(stream.meta.length);
        Group { name: name.into_bytes(), last_id: stream.meta.last_id, entries_read, consumers, pending }
    }
}

/// A redis-server on a Unix socket in a directory of its own.
pub struct Redis {
    child: Child,
    pub directory: PathBuf,
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Redis {
    /// Starts one, or says that it cannot on this machine.
    pub fn start(name: &str, options: &[&str]) -> Option<Redis> {
        let directory = std::env::temp_dir().join(format!("gimmal-rdb-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        Redis::start_in(directory, options)
    }

    /// The same in a directory that may have a dump.rdb.
    pub fn start_in(directory: PathBuf, options: &[&str]) -> Option<Redis> {
        let command = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket", "socket", "--enable-debug-command", "yes", "--dir"])
            .arg(&directory)
            .args(options)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn();
        let child = match command {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("NOT RUN: no redis-server on this machine");
                return None;
            }
            Err(error) => panic!("redis-server does not start: {error}"),
        };
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(directory.join("socket")) {
                Ok(stream) => break stream,
                Err(error) if begun.elapsed() > Duration::from_secs(60) => {
                    panic!("redis-server does not answer: {error}")
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        Some(Redis { child, directory, stream, unread: Vec::new() })
    }

    /// The reply to a command.
    pub fn ask<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Reply {
        let mut request = Vec::new();
        encode_command(&mut request, args);
        self.stream.write_all(&request).expect("redis-server takes a command");
        loop {
            if let Some((reply, len)) = Reply::parse(&self.unread).expect("a reply") {
                self.unread.drain(..len);
                return reply;
            }
            let mut more = vec![0; 1 << 16];
            let len = self.stream.read(&mut more).expect("redis-server answers");
            assert!(len > 0, "redis-server closed the connection");
            self.unread.extend_from_slice(&more[..len]);
        }
    }

    /// A command given as words.
    pub fn say(&mut self, line: &str) -> Reply {
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = self.ask(&words);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        reply
    }

    /// The payload of a key.
    pub fn dump(&mut self, key: &str) -> Vec<u8> {
        self.ask(&["DUMP", key]).as_bytes().expect("a payload").to_vec()
    }

    /// Gives it a payload.
    pub fn restore(&mut self, key: &str, payload: &[u8]) -> Reply {
        self.ask(&[&b"RESTORE"[..], key.as_bytes(), b"0", payload, b"REPLACE"])
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().expect("redis-server is stopped");
        self.child.wait().expect("redis-server has stopped");
        std::fs::remove_dir_all(&self.directory).expect("the directory is removed");
    }
}
