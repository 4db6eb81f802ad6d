//! A lean closed-loop load: C connections, P commands in flight on each, one thread, epoll.
//!
//! It spends as little as it can per request, so that the server is what saturates: batches are encoded before the
//! clock starts, and replies are counted by their headers, never copied. Most commands answer in one length: what a
//! single read brings for a whole batch, in the length that the first batch had, ending as a reply ends, is taken
//! unread but for its first byte. Were that ever wrong, the rest would come as more replies than were asked for,
//! which ends the run. The share of batches taken so is part of the result.
//! Sockets do not block: a batch that does not fit into the socket buffer is continued when there is room, so that
//! large values cannot leave both sides waiting for each other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::counter::ReplyCounter;
use crate::process::cpu_us_of;
use crate::stats::Histogram;
use crate::sys::{Epoll, Interest, raise_open_files};
use crate::template::{Keys, Template};

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
    /// Ends a run before its time, for a command that uses up what it works on.
    pub requests: Option<u64>,
    /// Counts error replies instead of ending at the first one.
    pub accepts_errors: bool,
}

impl Shape {
    /// A shape of which every reply must be a success.
    pub fn new(port: u16, connections: usize, pipeline: usize, keys: u64, command: Template) -> Self {
        Self { port, connections, pipeline, keys, command, requests: None, accepts_errors: false }
    }

    fn counter(&self) -> ReplyCounter {
        if self.accepts_errors { ReplyCounter::tolerant() } else { ReplyCounter::default() }
    }
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
    /// Share of the batches that were taken by their length; the replies of the others were counted one by one.
    pub by_length: f64,
    /// Replies that said there is nothing, of those counted one by one.
    pub nulls: u64,
    /// Error replies, where they are accepted.
    pub errors: u64,
}

impl Measured {
    /// The line that a load process prints.
    pub fn line(&self) -> String {
        let Self { rps, p50_us, p99_us, p999_us, max_us, requests, load_cpu, by_length, nulls, errors } = self;
        format!(
            "{rps:.0} {p50_us} {p99_us} {p999_us} {max_us} {requests} {load_cpu:.2} {by_length:.3} {nulls} {errors}"
        )
    }

    /// Reads such a line.
    pub fn from_line(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [rps, p50, p99, p999, max, requests, load_cpu, by_length, nulls, errors] = words[..] else {
            bail!("a load printed {line:?}")
        };
        Ok(Self {
            rps: rps.parse()?,
            p50_us: p50.parse()?,
            p99_us: p99.parse()?,
            p999_us: p999.parse()?,
            max_us: max.parse()?,
            requests: requests.parse()?,
            load_cpu: load_cpu.parse()?,
            by_length: by_length.parse()?,
            nulls: nulls.parse()?,
            errors: errors.parse()?,
        })
    }
}

/// The `load` role: options, then PORT CONNECTIONS PIPELINE SECONDS KEYS COMMAND..., printing [`Measured::line`].
/// SECONDS 0 fills instead: the command once for each key, or once when there are none.
pub fn main(words: &[String]) -> Result<()> {
    let (options, words) = split_options(words)?;
    let [port, connections, pipeline, seconds, keys, command @ ..] = words else {
        bail!("load [--requests N] [--accept-errors] PORT CONNECTIONS PIPELINE SECONDS KEYS COMMAND...");
    };
    let shape = Shape {
        port: port.parse().context("PORT")?,
        connections: connections.parse().context("CONNECTIONS")?,
        pipeline: pipeline.parse().context("PIPELINE")?,
        keys: keys.parse().context("KEYS")?,
        command: Template::from_words(command)?,
        requests: options.requests,
        accepts_errors: options.accepts_errors,
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

#[derive(Debug, Default)]
struct Options {
    requests: Option<u64>,
    accepts_errors: bool,
}

/// The options, and the words behind them. A command may hold words that look like options, so these come first.
fn split_options(mut words: &[String]) -> Result<(Options, &[String])> {
    let mut options = Options::default();
    loop {
        words = match words {
            [name, number, rest @ ..] if name == "--requests" => {
                options.requests = Some(number.parse().context("--requests")?);
                rest
            }
            [name, rest @ ..] if name == "--accept-errors" => {
                options.accepts_errors = true;
                rest
            }
            _ => return Ok((options, words)),
        };
    }
}

/// Time before the measured window, in which connections and caches settle.
const WARM_UP: Duration = Duration::from_millis(300);
/// A server that answers nothing for so long has failed.
const SILENCE_LIMIT_MS: i32 = 30_000;
const READ_BYTES: usize = 1 << 20;
/// Batches made beforehand hold so many keys altogether.
const SAMPLED_KEYS: usize = 1 << 17;

/// Loads the server for `duration` after a warm-up.
///
/// # Errors
/// An error reply, more replies than commands, a closed connection, silence.
pub fn run(shape: &Shape, duration: Duration) -> Result<Measured> {
    raise_open_files()?;
    let batches = ready_batches(shape);
    let learned_bytes = learn_reply_bytes(shape, &batches[0])?;
    let mut load = Load {
        epoll: Epoll::new(1024)?,
        connections: Vec::with_capacity(shape.connections),
        batches,
        pipeline: u64::try_from(shape.pipeline)?,
        turn: 0,
        learned_bytes,
        by_length: 0,
        input: vec![0; READ_BYTES],
    };
    load.connect(shape)?;
    load.measure(shape.requests.unwrap_or(u64::MAX), duration)
}

/// Sends the command once for each key from 0 (once when there are none), `pipeline` at a time on one connection, and
/// awaits every reply.
pub fn fill(shape: &Shape) -> Result<()> {
    fill_range(shape, 0..shape.keys.max(1))
}

/// As [`fill`], for a part of the keys.
pub fn fill_range(shape: &Shape, keys: std::ops::Range<u64>) -> Result<()> {
    let mut stream = connect(shape.port)?;
    let mut drawn = Keys::of(shape.keys);
    let step = u64::try_from(shape.pipeline)?;
    let (mut output, mut input, mut counter) = (Vec::new(), vec![0; READ_BYTES], shape.counter());
    let mut key = keys.start;
    while key < keys.end {
        let count = step.min(keys.end - key);
        output.clear();
        (key..key + count).for_each(|key| shape.command.encode(0, key, &mut drawn, &mut output));
        stream.write_all(&output)?;
        key += count;
        await_count(&mut stream, &mut input, &mut counter, key - keys.start)?;
    }
    Ok(())
}

struct Load {
    epoll: Epoll,
    connections: Vec<Connection>,
    batches: Vec<Vec<u8>>,
    pipeline: u64,
    turn: usize,
    /// Length of the replies to the first batch; 0 when no batch is taken by it.
    learned_bytes: usize,
    /// Batches that were taken by this length.
    by_length: u64,
    input: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    counter: ReplyCounter,
    /// The counter's replies when the batch in flight will be answered.
    due: u64,
    /// When the batch in flight was sent.
    sent_at: Instant,
    /// The batch in flight, and how much of it the socket has taken.
    batch: usize,
    sent: usize,
}

/// What the measuring loop counts.
struct Tally {
    from: Instant,
    /// Requests answered since `from`, and in all.
    measured: u64,
    all: u64,
    /// When measuring began, and the load's own processor time then.
    began: Option<(Instant, u64)>,
    round_trips: Histogram,
}

impl Tally {
    /// Measuring begins when connections and caches have settled, or when a fifth of all there is to ask is spent.
    fn begin_when_due(&mut self, now: Instant, requests: u64) -> Result<()> {
        if self.began.is_none() && (now > self.from || self.all > requests / 5) {
            self.from = self.from.min(now);
            self.began = Some((now, cpu_us_of(std::process::id())?));
        }
        Ok(())
    }

    fn add(&mut self, requests: u64, round_trip: Duration) {
        self.all += requests;
        if self.began.is_some() {
            self.measured += requests;
            self.round_trips.add(round_trip.as_micros());
        }
    }
}

impl Load {
    fn connect(&mut self, shape: &Shape) -> Result<()> {
        for token in 0..shape.connections {
            let stream = connect(shape.port)?;
            stream.set_nonblocking(true)?;
            self.epoll.add(&stream, u64::try_from(token)?, Interest::Read)?;
            let (counter, sent_at) = (shape.counter(), Instant::now());
            self.connections.push(Connection { stream, counter, due: 0, sent_at, batch: 0, sent: 0 });
        }
        Ok(())
    }

    fn measure(&mut self, requests: u64, duration: Duration) -> Result<Measured> {
        let from = Instant::now() + WARM_UP;
        let until = from + duration;
        let mut tally = Tally { from, measured: 0, all: 0, began: None, round_trips: Histogram::new() };
        for token in 0..self.connections.len() {
            self.start_batch(token, Instant::now())?;
        }
        let mut now = Instant::now();
        while now < until && tally.all < requests {
            let events = self.epoll.wait(SILENCE_LIMIT_MS)?;
            ensure!(events > 0, "no reply for {SILENCE_LIMIT_MS} ms");
            now = Instant::now();
            tally.begin_when_due(now, requests)?;
            for event in 0..events {
                let token = usize::try_from(self.epoll.token(event))?;
                if self.advance(token)? {
                    tally.add(self.pipeline, now - self.connections[token].sent_at);
                    self.start_batch(token, now)?;
                }
            }
        }
        let elapsed = tally.from.elapsed();
        let (cpu_from, cpu_us) = tally.began.unwrap_or((from, 0));
        let cpu_us = cpu_us_of(std::process::id())? - cpu_us;
        let load_cpu = cpu_us as f64 / cpu_from.elapsed().as_micros().max(1) as f64;
        let by_length = (self.by_length * self.pipeline) as f64 / tally.all.max(1) as f64;
        let drained = self.drain()?;
        let sum = |of: fn(&ReplyCounter) -> u64| self.connections.iter().map(|c| of(&c.counter)).sum();
        Ok(Measured {
            rps: tally.measured as f64 / elapsed.as_secs_f64(),
            p50_us: tally.round_trips.quantile_us(0.5),
            p99_us: tally.round_trips.quantile_us(0.99),
            p999_us: tally.round_trips.quantile_us(0.999),
            max_us: tally.round_trips.quantile_us(1.0),
            requests: tally.all + drained + self.pipeline,
            load_cpu,
            by_length,
            nulls: sum(ReplyCounter::nulls),
            errors: sum(ReplyCounter::errors),
        })
    }

    fn start_batch(&mut self, token: usize, now: Instant) -> Result<()> {
        let connection = &mut self.connections[token];
        connection.batch = self.turn % self.batches.len();
        self.turn += 1;
        connection.sent = 0;
        connection.due = connection.counter.replies() + self.pipeline;
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
        let bytes = &self.input[..length];
        if length == self.learned_bytes && connection.may_be_whole(bytes, self.pipeline) {
            self.by_length += 1;
            return Ok(true);
        }
        connection.counter.feed(bytes)?;
        if connection.counter.replies() < connection.due {
            return Ok(false);
        }
        let exact = connection.counter.replies() == connection.due && connection.counter.is_between();
        ensure!(exact, "more replies than commands");
        Ok(true)
    }

    /// Awaits the batches in flight, so that what the server did for them can be divided by their number.
    fn drain(&mut self) -> Result<u64> {
        let mut waiting = self.connections.len();
        while waiting > 0 {
            let events = self.epoll.wait(SILENCE_LIMIT_MS)?;
            ensure!(events > 0, "no reply for {SILENCE_LIMIT_MS} ms");
            for event in 0..events {
                waiting -= usize::from(self.advance(usize::try_from(self.epoll.token(event))?)?);
            }
        }
        Ok(u64::try_from(self.connections.len())? * self.pipeline)
    }
}

impl Connection {
    /// Whether bytes of the learned length can be the replies to the batch: none of them came before, and these begin
    /// with no error and end as a reply ends.
    fn may_be_whole(&self, bytes: &[u8], pipeline: u64) -> bool {
        self.counter.is_between()
            && self.counter.replies() + pipeline == self.due
            && !matches!(bytes[0], b'-' | b'!' | b'>')
            && bytes.ends_with(b"\r\n")
    }

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
    let mut keys = Keys::of(shape.keys);
    let batch = |_| {
        let mut batch = Vec::new();
        for turn in 0..shape.pipeline {
            let key = keys.draw();
            shape.command.encode(turn, key, &mut keys, &mut batch);
        }
        batch.shrink_to_fit();
        batch
    };
    (0..variants).map(batch).collect()
}

/// The length of the replies to one batch, by sending it and counting what comes; 0 when lengths tell too little.
fn learn_reply_bytes(shape: &Shape, batch: &[u8]) -> Result<usize> {
    let mut stream = connect(shape.port)?;
    let mut writer = stream.try_clone()?;
    let (mut input, mut counter) = (vec![0; READ_BYTES], shape.counter());
    // A second thread sends, for the case that the batch and its replies exceed all socket buffers.
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || writer.write_all(batch));
        let length = await_count(&mut stream, &mut input, &mut counter, u64::try_from(shape.pipeline)?)?;
        sender.join().expect("the sender does not panic").context("write")?;
        // What was nothing or an error is counted every time: no length stands for it.
        Ok(if counter.nulls() + counter.errors() > 0 { 0 } else { length })
    })
}

/// Reads until `counter` has `count` replies and nothing beyond; returns how many bytes that took.
fn await_count(stream: &mut TcpStream, input: &mut [u8], counter: &mut ReplyCounter, count: u64) -> Result<usize> {
    let mut taken = 0;
    while counter.replies() < count {
        let length = match stream.read(input) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.context("no reply")?,
        };
        ensure!(length > 0, "the server closed a connection");
        counter.feed(&input[..length])?;
        taken += length;
    }
    ensure!(counter.replies() == count && counter.is_between(), "more replies than commands");
    Ok(taken)
}

/// Reads until `count` replies are there, none of them an error and nothing beyond them.
pub fn await_replies(stream: &mut TcpStream, count: u64) -> Result<()> {
    await_count(stream, &mut [0; 4096], &mut ReplyCounter::default(), count).map(drop)
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
        Shape::new(port, 3, pipeline, 10, command)
    }

    /// `*2 $3 GET $14 k:############`
    const GET_BYTES: usize = 4 + 9 + 5 + 16;

    #[test]
    fn a_load_counts_what_is_answered() {
        let port = canned(GET_BYTES, b"$1\r\nx\r\n");
        let measured = run(&shape(port, 4), Duration::from_millis(1000)).expect("runs");
        // How fast it is depends on who else is at work on the machine.
        assert!(measured.rps > 0.0, "{measured:?}");
        assert!(measured.p50_us <= measured.p99_us && measured.p99_us <= measured.max_us, "{measured:?}");
        assert_eq!(measured.requests % 4, 0);
        assert_eq!((measured.nulls, measured.errors), (0, 0));
    }

    /// A server that answers the nth request of a connection as `script(n)` says, each string in a write of its own.
    fn scripted(script: fn(usize) -> Vec<&'static [u8]>) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepted");
                stream.set_nodelay(true).expect("set");
                std::thread::spawn(move || {
                    let mut request = vec![0; GET_BYTES];
                    let mut turn = 0;
                    while stream.read_exact(&mut request).is_ok() {
                        for piece in script(turn) {
                            if stream.write_all(piece).is_err() {
                                return;
                            }
                            std::thread::sleep(Duration::from_micros(300));
                        }
                        turn += 1;
                    }
                });
            }
        });
        port
    }

    #[test]
    fn replies_of_any_length_are_counted_and_said_to_be() {
        // Every second reply has the length of the first one; the others are longer, or cut, or nothing.
        let port = scripted(|turn| match turn % 4 {
            0 | 2 => vec![b":1\r\n"],
            1 => vec![b"*2\r\n$5\r\nab", b"cde\r\n", b"%1\r\n+a\r\n:1\r", b"\n"],
            _ => vec![b"$-1\r\n"],
        });
        let shape = Shape { requests: Some(400), ..shape(port, 1) };
        let measured = run(&shape, Duration::from_secs(60)).expect("runs");
        assert!(measured.by_length > 0.3 && measured.by_length < 0.7, "{measured:?}");
        assert!(measured.nulls > 0 && measured.rps > 0.0, "{measured:?}");
    }

    #[test]
    fn a_batch_taken_for_whole_by_mistake_ends_the_run() {
        // The second answer is one reply in two writes, the first of which has the learned length and ends like a reply.
        let port = scripted(|turn| if turn == 1 { vec![b"$4\r\n\r\n", b"ab\r\n"] } else { vec![b"+abc\r\n"] });
        let error = run(&shape(port, 1), Duration::from_secs(5)).expect_err("a reply beyond those asked for");
        assert!(error.to_string().contains("a reply cannot start with 'a'"), "{error:#}");
        let port = scripted(|turn| if turn == 1 { vec![b"+abc\r\n:1\r\n"] } else { vec![b"+abc\r\n"] });
        let error = run(&shape(port, 1), Duration::from_secs(5)).expect_err("a reply beyond those asked for");
        assert!(error.to_string().contains("more replies than commands"), "{error:#}");
    }

    #[test]
    fn a_run_ends_with_its_requests() {
        let mut shape = shape(canned(GET_BYTES, b"+OK\r\n"), 1);
        shape.requests = Some(1000);
        let measured = run(&shape, Duration::from_secs(60)).expect("runs");
        assert!((1000..1010).contains(&measured.requests) && measured.rps > 0.0, "{measured:?}");
    }

    #[test]
    fn errors_can_be_accepted() {
        let mut shape = shape(canned(GET_BYTES, b"-ERR no\r\n"), 1);
        shape.accepts_errors = true;
        let measured = run(&shape, Duration::from_millis(1000)).expect("runs");
        assert!(measured.errors > 0 && measured.errors + 10 > measured.requests, "{measured:?}");
    }

    #[test]
    fn an_error_reply_ends_the_load() {
        let port = canned(GET_BYTES, b"-ERR no\r\n");
        let error = run(&shape(port, 1), Duration::from_millis(1000)).expect_err("refused");
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
        let measured = Measured {
            rps: 5.0,
            p50_us: 1,
            p99_us: 2,
            p999_us: 3,
            max_us: 4,
            requests: 9,
            load_cpu: 0.25,
            by_length: 0.5,
            nulls: 1,
            errors: 2,
        };
        assert_eq!(Measured::from_line(&measured.line()).expect("reads"), measured);
        assert!(Measured::from_line("1 2").is_err());
    }
}
