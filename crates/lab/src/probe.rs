//! An open-loop probe: requests leave on a schedule, whether or not earlier ones were answered.
//!
//! Latency counts from the time a request was *meant* to leave, so a stall of the server is charged to every request
//! that it delayed, not to one (the mistake known as coordinated omission). How late the probe itself sent is
//! printed beside: where that is large the probe, not the server, was slow.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use serde_json::json;

use crate::limit::write_json;
use crate::load::{self, Shape};
use crate::process::{ServerProcess, ServerSpec};
use crate::stats::quantile;
use crate::sys::{Epoll, Interest};
use crate::template::{Keys, Template};
use crate::{host, reply, sys};

/// Starts the server if one was described, probes it, prints one line and writes the record.
pub fn run(settings: &Settings) -> Result<()> {
    let server = settings.server.as_ref();
    let started = server.map(|spec| ServerProcess::start(spec, settings.server_cpu, &std::env::temp_dir()));
    let started = started.transpose()?;
    let port = started.as_ref().map_or(settings.port, ServerProcess::port);
    if let Some(command) = &settings.setup {
        let command = Template::parse(command)?;
        load::fill(&Shape::new(port, 1, 100, settings.keys, command)).context("set-up")?;
    }
    let probed = match settings.load_cpu {
        Some(cpu) => sys::on_cpu(cpu, || probe(settings, port))??,
        None => probe(settings, port)?,
    };
    println!("{}", probed.line(settings.rate));
    if let Some(path) = &settings.json {
        write_json(path, &settings.record(port, &probed))?;
    }
    Ok(())
}

/// What to probe; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    port: u16,
    server: Option<ServerSpec>,
    rate: f64,
    connections: usize,
    seconds: f64,
    command: String,
    setup: Option<String>,
    keys: u64,
    server_cpu: Option<usize>,
    load_cpu: Option<usize>,
    json: Option<PathBuf>,
}

impl Settings {
    /// This command so many times a second over so many connections.
    pub fn of(command: &str, rate: f64, connections: usize, seconds: f64, keys: u64) -> Self {
        Self {
            port: 0,
            server: None,
            rate,
            connections,
            seconds,
            command: command.to_owned(),
            setup: None,
            keys,
            server_cpu: None,
            load_cpu: None,
            json: None,
        }
    }

    /// Reads the options behind `--probe`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let mut settings = Self::of("GET key:__KEY__", 1000.0, 10, 10.0, 100_000);
        while let Some(arg) = args.next()? {
            match arg {
                Long("port") => settings.port = args.value()?.parse()?,
                Long("server") => settings.server = Some(args.value()?.string()?.parse()?),
                Long("rate") => settings.rate = args.value()?.parse()?,
                Long("connections") => settings.connections = args.value()?.parse()?,
                Long("seconds") => settings.seconds = args.value()?.parse()?,
                Long("command") => settings.command = args.value()?.string()?,
                Long("setup") => settings.setup = Some(args.value()?.string()?),
                Long("keys") => settings.keys = args.value()?.parse()?,
                Long("server-cpu") => settings.server_cpu = Some(args.value()?.parse()?),
                Long("load-cpu") => settings.load_cpu = Some(args.value()?.parse()?),
                Long("json") => settings.json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(settings.port > 0 || settings.server.is_some(), "--probe needs --port or --server");
        ensure!(settings.rate > 0.0 && settings.connections > 0, "a rate and connections above 0");
        Ok(settings)
    }

    fn record(&self, port: u16, probed: &Probed) -> serde_json::Value {
        json!({
            "measurement": "probe",
            "host": host::describe(),
            "server": { "command": self.server.as_ref().map(|s| &s.argv), "version": host::describe_server(port) },
            "settings": {
                "rate": self.rate, "connections": self.connections, "seconds": self.seconds,
                "command": self.command, "setup": self.setup, "keys": self.keys,
                "server_cpu": self.server_cpu, "load_cpu": self.load_cpu,
            },
            "answered": probed.latencies_ns.len(),
            "p50_us": probed.latency_us(0.5), "p90_us": probed.latency_us(0.9), "p99_us": probed.latency_us(0.99),
            "p999_us": probed.latency_us(0.999), "max_us": probed.latency_us(1.0),
            "sent_late_max_us": probed.sent_late_max.as_micros(),
        })
    }
}

/// Every latency of a probe, sorted.
pub struct Probed {
    latencies_ns: Vec<u64>,
    elapsed: Duration,
    sent_late_max: Duration,
}

impl Probed {
    /// The latency that this share of the requests did not exceed, in µs.
    pub fn latency_us(&self, share: f64) -> f64 {
        quantile(&self.latencies_ns, share) as f64 / 1000.0
    }

    /// How late the probe itself sent a request, at most.
    pub fn sent_late_max(&self) -> Duration {
        self.sent_late_max
    }

    fn line(&self, rate: f64) -> String {
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| self.latency_us(share));
        let answered = self.latencies_ns.len();
        let reached = answered as f64 / self.elapsed.as_secs_f64();
        let late = self.sent_late_max.as_micros();
        format!(
            "probe {rate:.0}/s: {answered} answered, {reached:.0}/s  p50 {p50:.0} us  p99 {p99:.0} us  \
             p99.9 {p999:.0} us  max {max:.0} us  (sent late by at most {late} us)"
        )
    }
}

/// After the last request so long is waited for what is still in flight.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Intended send times of the requests in flight, oldest first.
    in_flight: VecDeque<Instant>,
}

/// Probes a running server.
///
/// # Errors
/// The server closed a connection, or left requests unanswered.
pub fn probe(settings: &Settings, port: u16) -> Result<Probed> {
    sys::raise_open_files()?;
    sys::tighten_timer_slack()?;
    let mut epoll = Epoll::new(1024)?;
    let mut connections = open(&epoll, settings.connections, port)?;
    let command = Template::parse(&settings.command)?;
    let mut keys = Keys::of(settings.keys);
    let total = (settings.rate * settings.seconds) as u64;
    let (mut sent, mut sent_late_max) = (0, Duration::ZERO);
    let mut latencies_ns = Vec::with_capacity(usize::try_from(total)?);
    let start = Instant::now();
    let due = |sent: u64| start + Duration::from_secs_f64(sent as f64 / settings.rate);
    while u64::try_from(latencies_ns.len())? < total {
        let mut now = Instant::now();
        while sent < total && due(sent) <= now {
            let connection = &mut connections[usize::try_from(sent)? % settings.connections];
            let key = keys.draw();
            command.encode(usize::try_from(sent)?, key, &mut keys, &mut connection.output);
            connection.in_flight.push_back(due(sent));
            connection.flush()?;
            now = Instant::now();
            sent_late_max = sent_late_max.max(now - due(sent));
            sent += 1;
        }
        let timeout = if sent < total { due(sent) - now } else { DRAIN_LIMIT };
        let events = epoll.wait_precisely(timeout)?;
        ensure!(sent < total || events > 0, "{} requests were never answered", total - latencies_ns.len() as u64);
        for event in 0..events {
            let connection = &mut connections[usize::try_from(epoll.token(event))?];
            connection.flush()?;
            connection.receive(&mut latencies_ns)?;
        }
        // A full socket is retried on the next turn of the loop; a probe's requests are far smaller than its buffer.
    }
    latencies_ns.sort_unstable();
    Ok(Probed { latencies_ns, elapsed: start.elapsed(), sent_late_max })
}

fn open(epoll: &Epoll, count: usize, port: u16) -> Result<Vec<Connection>> {
    let connection = |token: usize| {
        let stream = load::connect(port)?;
        stream.set_nonblocking(true)?;
        epoll.add(&stream, u64::try_from(token)?, Interest::Read)?;
        Ok(Connection { stream, input: Vec::new(), output: Vec::new(), in_flight: VecDeque::new() })
    };
    (0..count).map(connection).collect()
}

impl Connection {
    fn flush(&mut self) -> Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("write"),
            }
        }
        Ok(())
    }

    fn receive(&mut self, latencies_ns: &mut Vec<u64>) -> Result<()> {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(length) => self.input.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("read"),
        }
        let now = Instant::now();
        let (count, used) = reply::count_successes(&self.input, self.in_flight.len())?;
        self.input.drain(..used);
        for meant in self.in_flight.drain(..count) {
            latencies_ns.push(u64::try_from((now - meant).as_nanos())?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that stalls once must be charged for every request that the stall delayed.
    #[test]
    fn a_stall_is_charged_to_all_it_delayed() {
        // A machine that stands still meanwhile delays others, too, and makes the probe late itself.
        let mut probed = probe_stalled();
        for _ in 1..5 {
            if probed.sent_late_max() > Duration::from_millis(20) {
                probed = probe_stalled();
            }
        }
        assert_eq!(probed.latencies_ns.len(), 300);
        let delayed = probed.latencies_ns.iter().filter(|ns| **ns > 20_000_000).count();
        assert!((60..=200).contains(&delayed), "{delayed} requests were charged");
        assert!(probed.line(1000.0).contains("300 answered"));
    }

    /// Probes a server that stalls once, for 100 ms.
    fn probe_stalled() -> Probed {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut request = [0; 14];
            for count in 0.. {
                if stream.read_exact(&mut request).is_err() {
                    break;
                }
                if count == 50 {
                    std::thread::sleep(Duration::from_millis(100));
                }
                stream.write_all(b"+PONG\r\n").expect("written");
            }
        });
        let words = ["--port", &port.to_string(), "--rate", "1000", "--connections", "1", "--seconds", "0.3"];
        let words = words.iter().chain(&["--command", "PING", "--keys", "0"]);
        let settings = Settings::parse(&mut lexopt::Parser::from_args(words)).expect("parses");
        probe(&settings, port).expect("probes")
    }
}
