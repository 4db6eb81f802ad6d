//! A lean closed-loop load: C connections, P commands in flight on each, one thread, epoll.
//!
//! It spends as little as it can per request, so that the server is what saturates: batches are encoded before the
//! clock starts, and a reply is checked by its length and its first byte only. The length of a batch of replies is
//! learned from the first batch, which is parsed whole; a batch of another length ends the run with an error.
//! Sockets do not block: a batch that does not fit into the socket buffer is continued when there is room, so that
//! large values cannot leave both sides waiting for each other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::cpu_us_of;
use crate::reply;
use crate::stats::Histogram;
use crate::sys::{Epoll, Interest, raise_open_files};
use crate::template::Template;

/// What one load is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Loopback port of the server.
    pub port: u16,
    /// Connections held open.
    pub connections: usize,
    /// Commands sent together, whose replies are awaited before the next batch.
    pub pipeline: usize,
    /// Keys to draw from; 0 sends the command as it is.
    pub keys: u64,
    /// The command.
    pub command: Template,
}

/// What a load measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Requests per second in the measured window.
    pub rps: f64,
    /// Median of the batch round trip, µs; then its other quantiles.
    pub p50_us: usize,
    /// 99 % quantile.
    pub p99_us: usize,
    /// 99.9 % quantile.
    pub p999_us: usize,
    /// Longest round trip.
    pub max_us: usize,
    /// Requests answered in the process's whole life, warm-up included.
    pub requests: u64,
    /// Share of one processor that the load itself used while measuring.
    pub load_cpu: f64,
}

impl Measured {
    /// The line that a load process prints.
    pub fn line(&self) -> String {
        let Self { rps, p50_us, p99_us, p999_us, max_us, requests, load_cpu } = self;
        format!("{rps:.0} {p50_us} {p99_us} {p999_us} {max_us} {requests} {load_cpu:.2}")
    }

    /// Reads such a line.
    pub fn from_line(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [rps, p50, p99, p999, max, requests, load_cpu] = words[..] else { bail!("a load printed {line:?}") };
        Ok(Self {
            rps: rps.parse()?,
            p50_us: p50.parse()?,
            p99_us: p99.parse()?,
            p999_us: p999.parse()?,
            max_us: max.parse()?,
            requests: requests.parse()?,
            load_cpu: load_cpu.parse()?,
        })
    }
}

/// The `load` role: PORT CONNECTIONS PIPELINE SECONDS KEYS COMMAND..., printing [`Measured::line`].
/// SECONDS 0 fills instead: the command once for each key.
pub fn main(words: &[String]) -> Result<()> {
    let [port, connections, pipeline, seconds, keys, command @ ..] = words else {
        bail!("load PORT CONNECTIONS PIPELINE SECONDS KEYS COMMAND...");
    };
    let shape = Shape {
        port: port.parse().context("PORT")?,
        connections: connections.parse().context("CONNECTIONS")?,
        pipeline: pipeline.parse().context("PIPELINE")?,
        keys: keys.parse().context("KEYS")?,
        command: Template::from_words(command)?,
    };
    ensure!(shape.connections > 0 && shape.pipeline > 0, "at least one connection and one command in flight");
    match seconds.parse().context("SECONDS")? {
        0.0 => fill(&shape),
        seconds => {
            println!("{}", run(&shape, Duration::try_from_secs_f64(seconds)?)?.line());
            Ok(())
        }
    }
}

/// Time before the measured window, in which connections and caches settle.
const WARM_UP: Duration = Duration::from_millis(300);
/// A server that answers nothing for so long has failed.
const SILENCE_LIMIT_MS: i32 = 5000;
const READ_BYTES: usize = 1 << 20;
/// Batches made beforehand hold so many keys altogether.
const SAMPLED_KEYS: usize = 1 << 17;

/// Loads the server for `duration` after a warm-up.
///
/// # Errors
/// An error reply, a reply whose length differs from the first one's, a closed connection, silence.
pub fn run(shape: &Shape, duration: Duration) -> Result<Measured> {
    raise_open_files()?;
    let batches = ready_batches(shape);
    let reply_bytes = learn_reply_bytes(shape, &batches[0])?;
    let mut load = Load {
        epoll: Epoll::new(1024)?,
        connections: Vec::with_capacity(shape.connections),
        batches,
        turn: 0,
        reply_bytes,
        input: vec![0; READ_BYTES],
    };
    load.connect(shape)?;
    load.measure(shape.pipeline, duration)
}

/// Sends the command once for each key from 0, `pipeline` at a time on one connection, and awaits every reply.
pub fn fill(shape: &Shape) -> Result<()> {
    fill_range(shape, 0..shape.keys)
}

/// As [`fill`], for a part of the keys.
pub fn fill_range(shape: &Shape, keys: std::ops::Range<u64>) -> Result<()> {
    let mut stream = connect(shape.port)?;
    let step = u64::try_from(shape.pipeline)?;
    let (mut output, mut input) = (Vec::new(), Vec::new());
    let mut key = keys.start;
    while key < keys.end {
        let count = step.min(keys.end - key);
        output.clear();
        (key..key + count).for_each(|key| shape.command.encode(key, &mut output));
        stream.write_all(&output)?;
        let extra = await_replies(&mut stream, &mut input, usize::try_from(count)?)?;
        ensure!(extra == 0, "{extra} bytes more than the replies to what was sent");
        key += count;
    }
    Ok(())
}

struct Load {
    epoll: Epoll,
    connections: Vec<Connection>,
    batches: Vec<Vec<u8>>,
    turn: usize,
    reply_bytes: usize,
    input: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// Reply bytes still expected.
    pending: usize,
    /// When the batch in flight was sent.
    sent_at: Instant,
    /// The batch in flight, and how much of it the socket has taken.
    batch: usize,
    sent: usize,
}

impl Load {
    fn connect(&mut self, shape: &Shape) -> Result<()> {
        for token in 0..shape.connections {
            let stream = connect(shape.port)?;
            stream.set_nonblocking(true)?;
            self.epoll.add(&stream, u64::try_from(token)?, Interest::Read)?;
            self.connections.push(Connection { stream, pending: 0, sent_at: Instant::now(), batch: 0, sent: 0 });
        }
        Ok(())
    }

    fn measure(&mut self, pipeline: usize, duration: Duration) -> Result<Measured> {
        let pipeline = u64::try_from(pipeline)?;
        let from = Instant::now() + WARM_UP;
        let until = from + duration;
        let (mut measured, mut all, mut cpu_before) = (0_u64, 0_u64, None);
        let mut round_trips = Histogram::new();
        for token in 0..self.connections.len() {
            self.start_batch(token, Instant::now())?;
        }
        let mut now = Instant::now();
        while now < until {
            let events = self.epoll.wait(SILENCE_LIMIT_MS)?;
            ensure!(events > 0, "no reply for {SILENCE_LIMIT_MS} ms");
            now = Instant::now();
            if now > from && cpu_before.is_none() {
                cpu_before = Some((now, cpu_us_of(std::process::id())?));
            }
            for event in 0..events {
                let token = usize::try_from(self.epoll.token(event))?;
                if !self.advance(token)? {
                    continue;
                }
                all += pipeline;
                if now > from {
                    measured += pipeline;
                    round_trips.add((now - self.connections[token].sent_at).as_micros());
                }
                self.start_batch(token, now)?;
            }
        }
        let (cpu_from, cpu_us) = cpu_before.unwrap_or((from, 0));
        let cpu_us = cpu_us_of(std::process::id())? - cpu_us;
        Ok(Measured {
            rps: measured as f64 / from.elapsed().as_secs_f64(),
            p50_us: round_trips.quantile_us(0.5),
            p99_us: round_trips.quantile_us(0.99),
            p999_us: round_trips.quantile_us(0.999),
            max_us: round_trips.quantile_us(1.0),
            requests: all + pipeline,
            load_cpu: cpu_us as f64 / cpu_from.elapsed().as_micros().max(1) as f64,
        })
    }

    fn start_batch(&mut self, token: usize, now: Instant) -> Result<()> {
        let connection = &mut self.connections[token];
        connection.batch = self.turn % self.batches.len();
        self.turn += 1;
        connection.sent = 0;
        connection.pending = self.reply_bytes;
        connection.sent_at = now;
        if !connection.send(&self.batches)? {
            self.epoll.modify(&connection.stream, u64::try_from(token)?, Interest::ReadWrite)?;
        }
        Ok(())
    }

    /// Handles one event; true when the batch in flight is answered.
    fn advance(&mut self, token: usize) -> Result<bool> {
        let connection = &mut self.connections[token];
        if connection.sent < self.batches[connection.batch].len() && connection.send(&self.batches)? {
            self.epoll.modify(&connection.stream, u64::try_from(token)?, Interest::Read)?;
        }
        let length = match connection.stream.read(&mut self.input) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("read"),
        };
        if connection.pending == self.reply_bytes && self.input[0] == b'-' {
            bail!("the server answers {}", String::from_utf8_lossy(&self.input[..length.min(80)]).trim_end());
        }
        connection.pending = connection.pending.checked_sub(length).context("a reply was longer than the first one")?;
        Ok(connection.pending == 0)
    }
}

impl Connection {
    /// Sends the rest of the batch; false when the socket is full.
    fn send(&mut self, batches: &[Vec<u8>]) -> Result<bool> {
        let batch = &batches[self.batch];
        while self.sent < batch.len() {
            match self.stream.write(&batch[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("write"),
            }
        }
        Ok(true)
    }
}

/// Batches picked in turn keep the choice of keys out of the timed path.
fn ready_batches(shape: &Shape) -> Vec<Vec<u8>> {
    let variants = if shape.keys == 0 { 1 } else { (SAMPLED_KEYS / shape.pipeline).max(1) };
    let mut keys = KeySequence::default();
    let batch = |_| {
        let mut batch = Vec::new();
        for _ in 0..shape.pipeline {
            shape.command.encode(keys.below(shape.keys), &mut batch);
        }
        batch.shrink_to_fit();
        batch
    };
    (0..variants).map(batch).collect()
}

/// Keys in no order, the same ones in every run (Marsaglia's xorshift).
pub struct KeySequence(u64);

impl Default for KeySequence {
    fn default() -> Self {
        Self(88_172_645_463_325_252)
    }
}

impl KeySequence {
    /// The next number below `limit`; 0 when the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(limit).unwrap_or(0)
    }
}

/// The length of the replies to one batch, by sending it and parsing what comes.
fn learn_reply_bytes(shape: &Shape, batch: &[u8]) -> Result<usize> {
    let mut stream = connect(shape.port)?;
    let mut writer = stream.try_clone()?;
    let mut input = Vec::new();
    // A second thread sends, for the case that the batch and its replies exceed all socket buffers.
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || writer.write_all(batch));
        let mut length = 0;
        let mut missing = shape.pipeline;
        while missing > 0 {
            read_more(&mut stream, &mut input)?;
            let (count, used) = reply::count_successes(&input, missing)?;
            input.drain(..used);
            missing -= count;
            length += used;
        }
        ensure!(input.is_empty(), "{} bytes more than the replies to what was sent", input.len());
        sender.join().expect("the sender does not panic").context("write")?;
        Ok(length)
    })
}

/// Reads until `count` replies are there; drops them from `input` and returns how many bytes are left over.
pub fn await_replies(stream: &mut TcpStream, input: &mut Vec<u8>, count: usize) -> Result<usize> {
    let mut missing = count;
    loop {
        let (count, used) = reply::count_successes(input, missing)?;
        input.drain(..used);
        missing -= count;
        if missing == 0 {
            return Ok(input.len());
        }
        read_more(stream, input)?;
    }
}

fn read_more(stream: &mut TcpStream, input: &mut Vec<u8>) -> Result<()> {
    let filled = input.len();
    input.resize(filled + READ_BYTES, 0);
    let length = stream.read(&mut input[filled..]).context("no reply")?;
    input.truncate(filled + length);
    ensure!(length > 0, "the server closed a connection");
    Ok(())
}

/// A connection to loopback `port`; a blocking read gives up after [`SILENCE_LIMIT_MS`].
pub fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("connect to port {port}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(u64::try_from(SILENCE_LIMIT_MS)?)))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server of one thread per connection that answers every read of `request` bytes with `reply`.
    fn canned(request: usize, reply: &'static [u8]) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepted");
                std::thread::spawn(move || {
                    let mut request = vec![0; request];
                    while stream.read_exact(&mut request).is_ok() && stream.write_all(reply).is_ok() {}
                });
            }
        });
        port
    }

    fn shape(port: u16, pipeline: usize) -> Shape {
        let command = Template::parse("GET k:__KEY__").expect("parses");
        Shape { port, connections: 3, pipeline, keys: 10, command }
    }

    /// `*2 $3 GET $14 k:############`
    const GET_BYTES: usize = 4 + 9 + 5 + 16;

    #[test]
    fn a_load_counts_what_is_answered() {
        let port = canned(GET_BYTES, b"$1\r\nx\r\n");
        let measured = run(&shape(port, 4), Duration::from_millis(50)).expect("runs");
        assert!(measured.rps > 100.0, "{measured:?}");
        assert!(measured.p50_us <= measured.p99_us && measured.p99_us <= measured.max_us, "{measured:?}");
        assert_eq!(measured.requests % 4, 0);
    }

    #[test]
    fn an_error_reply_ends_the_load() {
        let port = canned(GET_BYTES, b"-ERR no\r\n");
        let error = run(&shape(port, 1), Duration::from_millis(50)).expect_err("refused");
        assert!(error.to_string().contains("ERR no"), "{error:#}");
        assert!(fill(&shape(port, 2)).is_err());
    }

    #[test]
    fn a_fill_sends_every_key_once() {
        let port = canned(GET_BYTES, b"+OK\r\n");
        fill(&shape(port, 3)).expect("fills");
    }

    #[test]
    fn lines_go_both_ways() {
        let measured = Measured { rps: 5.0, p50_us: 1, p99_us: 2, p999_us: 3, max_us: 4, requests: 9, load_cpu: 0.25 };
        assert_eq!(Measured::from_line(&measured.line()).expect("reads"), measured);
        assert!(Measured::from_line("1 2").is_err());
    }
}
