//! What a well-behaved client feels beside one that does its worst, and what memory that costs.
//!
//! Each scenario runs an open-loop probe (a thousand GETs a second over four connections) while another client does one
//! thing without pause. The first scenario has no such client: the difference to it is what counts, since probe, server
//! and the other client share the machine.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::limit::write_json;
use crate::load::{self, Shape};
use crate::probe::{self, probe};
use crate::process::{ServerProcess, ServerSpec};
use crate::template::Template;
use crate::{host, sys};

/// Runs every scenario, each on a server started anew, prints a line for each and writes the record.
pub fn run(settings: &Settings) -> Result<()> {
    let mut figures = Vec::new();
    for scenario in Scenario::ALL {
        let server = ServerProcess::start(&settings.server, settings.server_cpu, &std::env::temp_dir())?;
        match measure(&server, scenario, &settings.scale)? {
            Some(felt) => {
                println!("{}", felt.line());
                figures.push(felt.record());
            }
            None => println!("{}: not run: the server has no KEYS", scenario.title()),
        }
    }
    if let Some(path) = &settings.json {
        let server = &settings.server.argv;
        write_json(
            path,
            &json!({ "measurement": "fairness", "host": host::describe(), "server": server, "figures": figures }),
        )?;
    }
    Ok(())
}

/// What to measure; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    server: ServerSpec,
    server_cpu: Option<usize>,
    scale: Scale,
    json: Option<PathBuf>,
}

/// How much of each scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// How long the probe takes.
    pub seconds: f64,
    /// Commands that the pipelining client has on their way.
    pub pipeline: usize,
    /// Bytes of a large value.
    pub value_bytes: usize,
    /// Keys that KEYS lists.
    pub keys: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { seconds: 10.0, pipeline: 1_000_000, value_bytes: 100 << 20, keys: 5_000_000 }
    }
}

impl Settings {
    /// Reads the options behind `--fairness`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let (mut server, mut server_cpu, mut scale, mut json) = (None, None, Scale::default(), None);
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => server = Some(args.value()?.string()?.parse()?),
                Long("server-cpu") => server_cpu = Some(args.value()?.parse()?),
                Long("seconds") => scale.seconds = args.value()?.parse()?,
                Long("pipeline") => scale.pipeline = args.value()?.parse()?,
                Long("value") => scale.value_bytes = args.value()?.parse()?,
                Long("keys") => scale.keys = args.value()?.parse()?,
                Long("json") => json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        let server = server.context("--fairness needs --server")?;
        ensure!(scale.seconds > 0.0 && scale.pipeline > 0, "a time and a pipeline above 0");
        Ok(Self { server, server_cpu, scale, json })
    }
}

/// What the other client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Nothing: the machine's own noise.
    Alone,
    /// Sends a million commands at once, and reads the replies.
    Pipeline,
    /// Sends and fetches very large values.
    LargeValues,
    /// Asks for much and never reads: eight connections.
    NeverReads,
    /// Lists all keys.
    Keys,
}

impl Scenario {
    /// In the order of their numbers.
    pub const ALL: [Scenario; 5] =
        [Scenario::Alone, Scenario::Pipeline, Scenario::LargeValues, Scenario::NeverReads, Scenario::Keys];

    /// Its name in results.
    pub fn title(self) -> &'static str {
        match self {
            Scenario::Alone => "alone",
            Scenario::Pipeline => "beside a pipeline",
            Scenario::LargeValues => "beside large values",
            Scenario::NeverReads => "beside clients that never read",
            Scenario::Keys => "beside KEYS *",
        }
    }
}

/// What the probe felt.
#[derive(Clone, Debug)]
pub struct Felt {
    /// Beside whom.
    pub scenario: Scenario,
    /// Latencies from the intended send times: p50, p99, p99.9 and the largest, in µs.
    pub latency_us: [f64; 4],
    /// How late the probe itself sent, at most: what the machine, not the server, added.
    pub sent_late_max: Duration,
    /// Rounds that the other client finished.
    pub rounds: u64,
    /// Resident memory before the other client began, and the most while it was there, in bytes.
    pub rss_bytes: (u64, u64),
}

impl Felt {
    /// The 99 % quantile in µs.
    pub fn p99_us(&self) -> f64 {
        self.latency_us[1]
    }

    /// By how much resident memory grew, in MiB.
    pub fn grown_mib(&self) -> u64 {
        self.rss_bytes.1.saturating_sub(self.rss_bytes.0) >> 20
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let [p50, p99, p999, max] = self.latency_us;
        format!(
            "{}: p50 {p50:.0} us  p99 {p99:.0} us  p99.9 {p999:.0} us  max {max:.0} us  (sent late by at most {} us; \
             {} rounds; memory +{} MiB)",
            self.scenario.title(),
            self.sent_late_max.as_micros(),
            self.rounds,
            self.grown_mib(),
        )
    }

    fn record(&self) -> Value {
        let [p50, p99, p999, max] = self.latency_us;
        json!({
            "scenario": self.scenario.title(), "p50_us": p50, "p99_us": p99, "p999_us": p999, "max_us": max,
            "sent_late_max_us": self.sent_late_max.as_micros(), "rounds": self.rounds,
            "rss_before": self.rss_bytes.0, "rss_most": self.rss_bytes.1,
        })
    }
}

/// Keys that the probe reads.
const PROBED_KEYS: u64 = 1000;
/// Resident memory is looked at so often.
const SAMPLE: Duration = Duration::from_millis(20);

/// One scenario on a running server. `None`: the server lacks the command that it is about.
///
/// # Errors
/// The server closed a connection of the probe, or left its requests unanswered.
pub fn measure(server: &ServerProcess, scenario: Scenario, scale: &Scale) -> Result<Option<Felt>> {
    let port = server.port();
    let keys = if scenario == Scenario::Keys { scale.keys } else { PROBED_KEYS };
    if scenario == Scenario::Keys && Other::connect(port)?.ask(b"KEYS nothing\r\n")?.starts_with(b"-") {
        return Ok(None);
    }
    let command = Template::parse("SET key:__KEY__ __V64__")?;
    load::fill(&Shape::new(port, 1, 1000, keys, command)).context("set-up")?;
    let before = server.rss_bytes()?;
    let over = AtomicBool::new(false);
    let settings = probe::Settings::of("GET key:__KEY__", 1000.0, 4, scale.seconds, PROBED_KEYS);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| disturb(port, scenario, scale, &over));
        let watch = scope.spawn(|| most_memory(server, &over));
        let probed = probe(&settings, port);
        over.store(true, Relaxed);
        let rounds = other.join().expect("the other client does not panic").context("the other client")?;
        let most = watch.join().expect("reading a file does not panic")?;
        let probed = probed?;
        let latency_us = [0.5, 0.99, 0.999, 1.0].map(|share| probed.latency_us(share));
        let sent_late_max = probed.sent_late_max();
        Ok(Some(Felt { scenario, latency_us, sent_late_max, rounds, rss_bytes: (before, most) }))
    })
}

fn most_memory(server: &ServerProcess, over: &AtomicBool) -> Result<u64> {
    let mut most = 0;
    while !over.load(Relaxed) {
        most = most.max(server.rss_bytes()?);
        std::thread::sleep(SAMPLE);
    }
    Ok(most)
}

/// The other client, until it is over; returns how many rounds it finished. It takes the processor only when the probe
/// does not want it, so that what the probe feels is the server.
fn disturb(port: u16, scenario: Scenario, scale: &Scale, over: &AtomicBool) -> Result<u64> {
    sys::step_back()?;
    let round = match scenario {
        Scenario::Alone => return Ok(0),
        Scenario::NeverReads => return never_read(port, over),
        Scenario::Pipeline => b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n".repeat(scale.pipeline),
        Scenario::Keys => b"KEYS *\r\n".to_vec(),
        Scenario::LargeValues => {
            let mut bytes = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${}\r\n", scale.value_bytes).into_bytes();
            bytes.resize(bytes.len() + scale.value_bytes, b'x');
            bytes.extend_from_slice(b"\r\nGET large\r\n");
            bytes
        }
    };
    let mut other = Other::connect(port)?;
    let mut rounds = 0;
    while other.round(&round, over)? {
        rounds += 1;
    }
    Ok(rounds)
}

/// Eight connections that ask for more than any buffer holds, and keep what the kernel took.
fn never_read(port: u16, over: &AtomicBool) -> Result<u64> {
    const CONNECTIONS: usize = 8;
    let mut setter = Other::connect(port)?;
    let value = "x".repeat(100_000);
    let reply = setter.ask(format!("*3\r\n$3\r\nSET\r\n$4\r\nmuch\r\n$100000\r\n{value}\r\n").as_bytes())?;
    ensure!(reply.starts_with(b"+OK"), "the value was not stored");
    let request = b"GET much\r\n".repeat(100_000);
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = load::connect(port)?;
        stream.set_nonblocking(true)?;
        // As much as the socket takes.
        let taken = stream.write(&request)?;
        ensure!(taken > 0, "nothing could be asked for");
        silent.push(stream);
    }
    while !over.load(Relaxed) {
        std::thread::sleep(SAMPLE);
    }
    Ok(silent.len() as u64)
}

/// A client that sends much and reads whatever comes, without looking at it.
struct Other {
    stream: TcpStream,
}

/// Sent after each round: its reply is the end.
const END: (&[u8], &[u8]) = (b"PING\r\n", b"+PONG\r\n");

impl Other {
    fn connect(port: u16) -> Result<Self> {
        let stream = load::connect(port)?;
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        stream.set_write_timeout(Some(Duration::from_millis(100)))?;
        Ok(Self { stream })
    }

    /// One command's reply, with what belongs to the end behind it.
    fn ask(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut reply = Vec::new();
        self.stream.write_all(bytes)?;
        self.stream.write_all(END.0)?;
        self.drain(&AtomicBool::new(false), |bytes| reply.extend_from_slice(bytes))?;
        Ok(reply)
    }

    /// Sends a round and reads all its replies at the same time. False: it is over.
    fn round(&mut self, bytes: &[u8], over: &AtomicBool) -> Result<bool> {
        let writer = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| send(&writer, bytes, over).and_then(|()| send(&writer, END.0, over)));
            let read = self.drain(over, |_| {});
            sent.join().expect("a writer does not panic")?;
            read
        })
    }

    /// Reads until the end of the round. False: it is over.
    fn drain(&mut self, over: &AtomicBool, mut take: impl FnMut(&[u8])) -> Result<bool> {
        let mut chunk = vec![0; WRITE_BYTES];
        let mut tail = Vec::new();
        while !over.load(Relaxed) {
            let count = match self.stream.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error).context("read"),
            };
            ensure!(count > 0, "the server closed the connection");
            take(&chunk[..count]);
            tail.extend_from_slice(&chunk[count.saturating_sub(END.1.len())..count]);
            tail.drain(..tail.len().saturating_sub(END.1.len()));
            if tail == END.1 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether it is worth another try: nothing came or went in time, or the wait was interrupted.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Bytes of one write: a longer one would keep the processor in the kernel, where the probe cannot have it.
const WRITE_BYTES: usize = 64 * 1024;

/// Writes everything, unless it is over before.
fn send(mut stream: &TcpStream, mut bytes: &[u8], over: &AtomicBool) -> Result<()> {
    while !bytes.is_empty() && !over.load(Relaxed) {
        match stream.write(&bytes[..bytes.len().min(WRITE_BYTES)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error).context("write"),
        }
    }
    Ok(())
}
