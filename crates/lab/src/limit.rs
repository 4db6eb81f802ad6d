//! Share of the limit: servers, side by side in one run, against the least that a RESP server can do.
//!
//! Each round runs every server once under every load, so that drift of the machine hits all alike; a ratio is the
//! median of per-round ratios, with the 95 % interval of that median. Server and load each have one processor, and
//! the server is started anew in each round. Throughputs of different runs are not compared: between runs a shared
//! machine drifts by more than what is to be seen.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::load::Measured;
use crate::process::{ServerProcess, ServerSpec, busy_us_of, cpu_us_with_children};
use crate::stats::{median, median_interval};
use crate::{host, sys, words};

/// Runs the rounds, prints the table and writes the record.
///
/// # Errors
/// A server that does not start ends the run; a load that fails is printed, left out, and makes the run fail at its end.
pub fn run(settings: &Settings) -> Result<()> {
    let mut run = Run { settings, samples: Vec::new(), versions: BTreeMap::new(), failures: Vec::new() };
    let servers = settings.all_servers()?;
    for round in 0..settings.rounds {
        for server in &servers {
            run.visit(round, server).with_context(|| server.name.clone())?;
        }
        eprintln!("round {} of {}", round + 1, settings.rounds);
    }
    let rows = summarise(&run.samples, &servers, &settings.loads);
    for row in &rows {
        println!("{}", row.line(&servers[0].name));
    }
    if let Some(path) = &settings.json {
        write_json(path, &run.record(&servers, &rows))?;
    }
    ensure!(run.failures.is_empty(), "{} loads failed: {}", run.failures.len(), run.failures.join("; "));
    Ok(())
}

/// What to run; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    servers: Vec<ServerSpec>,
    loads: Vec<Load>,
    rounds: usize,
    seconds: f64,
    command: String,
    setup: String,
    keys: u64,
    reply: i64,
    limit_port: u16,
    server_cpu: usize,
    load_cpu: usize,
    dir: PathBuf,
    json: Option<PathBuf>,
}

/// Connections and commands in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    connections: usize,
    pipeline: usize,
}

impl Settings {
    /// Reads the options behind `--limit`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let mut settings = Self {
            servers: Vec::new(),
            loads: parse_loads("50:1,50:16")?,
            rounds: 15,
            seconds: 0.7,
            command: "GET key:__KEY__".to_owned(),
            setup: "SET key:__KEY__ __V64__".to_owned(),
            keys: 100_000,
            reply: 64,
            limit_port: 7999,
            server_cpu: 0,
            load_cpu: 1,
            dir: std::env::temp_dir(),
            json: None,
        };
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => settings.servers.push(args.value()?.string()?.parse()?),
                Long("loads") => settings.loads = parse_loads(&args.value()?.string()?)?,
                Long("rounds") => settings.rounds = args.value()?.parse()?,
                Long("seconds") => settings.seconds = args.value()?.parse()?,
                Long("command") => settings.command = args.value()?.string()?,
                Long("setup") => settings.setup = args.value()?.string()?,
                Long("keys") => settings.keys = args.value()?.parse()?,
                Long("reply") => settings.reply = args.value()?.parse()?,
                Long("limit-port") => settings.limit_port = args.value()?.parse()?,
                Long("server-cpu") => settings.server_cpu = args.value()?.parse()?,
                Long("load-cpu") => settings.load_cpu = args.value()?.parse()?,
                Long("dir") => settings.dir = args.value()?.into(),
                Long("json") => settings.json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(settings.rounds > 0, "at least one round");
        Ok(settings)
    }

    /// The servers to run, the judged one first, the limit server last.
    fn all_servers(&self) -> Result<Vec<ServerSpec>> {
        let me = std::env::current_exe()?.into_os_string().string()?;
        let limit = |name: &str, port: u16| ServerSpec {
            name: name.to_owned(),
            port,
            argv: vec![me.clone(), "limit-server".into(), port.to_string(), self.reply.to_string()],
        };
        let mut servers = self.servers.clone();
        if servers.is_empty() {
            servers.push(limit("limit-again", self.limit_port - 1));
        }
        servers.push(limit(LIMIT, self.limit_port));
        Ok(servers)
    }

    fn record(&self) -> Value {
        let loads: Vec<String> = self.loads.iter().map(Load::to_string).collect();
        json!({
            "loads": loads, "rounds": self.rounds, "seconds": self.seconds, "command": self.command,
            "setup": self.setup, "keys": self.keys, "reply": self.reply,
            "server_cpu": self.server_cpu, "load_cpu": self.load_cpu,
        })
    }
}

/// The limit server's name in the results.
const LIMIT: &str = "limit";
/// Above this share of its processor the load, not the server, may be what is measured.
const CLIENT_BOUND: f64 = 0.9;
/// Above this share of one processor, used by anything else, absolute numbers mean nothing; ratios may still hold.
const DISTURBED: f64 = 0.15;

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.connections, self.pipeline)
    }
}

fn parse_loads(text: &str) -> Result<Vec<Load>> {
    let load = |word: &str| {
        let (connections, pipeline) = word.split_once(':').context("a load is CONNECTIONS:PIPELINE")?;
        Ok(Load { connections: connections.parse()?, pipeline: pipeline.parse()? })
    };
    text.split([',', ' ']).filter(|word| !word.is_empty()).map(load).collect()
}

/// One load on one server in one round.
struct Sample {
    round: usize,
    server: String,
    load: Load,
    measured: Measured,
    cpu_us_per_request: f64,
    /// What anything else used of the two processors, as a share of one.
    others_cpu: f64,
}

/// Processor time at one moment, in µs.
struct Usage {
    at: Instant,
    server_us: u64,
    lab_us: u64,
    busy_us: u64,
}

impl Usage {
    fn now(settings: &Settings, server: &ServerProcess) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            server_us: server.cpu_us()?,
            lab_us: cpu_us_with_children(std::process::id())?,
            busy_us: busy_us_of(&[settings.server_cpu, settings.load_cpu])?,
        })
    }

    fn others_until(&self, later: &Self, server_us: u64) -> f64 {
        let ours = server_us + (later.lab_us - self.lab_us);
        let others = (later.busy_us - self.busy_us).saturating_sub(ours);
        others as f64 / (later.at - self.at).as_micros().max(1) as f64
    }
}

struct Run<'a> {
    settings: &'a Settings,
    samples: Vec<Sample>,
    versions: BTreeMap<String, Value>,
    failures: Vec<String>,
}

impl Run<'_> {
    /// Starts one server, fills it and puts every load on it.
    fn visit(&mut self, round: usize, spec: &ServerSpec) -> Result<()> {
        let settings = self.settings;
        let server = ServerProcess::start(spec, Some(settings.server_cpu), &settings.dir)?;
        // Servers do some work right after they first accept; let it pass.
        std::thread::sleep(Duration::from_millis(100));
        if !settings.setup.is_empty() && spec.argv.get(1).is_none_or(|role| role != "limit-server") {
            self.load_process(spec.port, Load { connections: 1, pipeline: 100 }, 0.0, &settings.setup)
                .context("set-up")?;
            self.versions.entry(spec.name.clone()).or_insert_with(|| host::describe_server(spec.port));
        }
        for &load in &settings.loads {
            let before = Usage::now(settings, &server)?;
            let printed = self.load_process(spec.port, load, settings.seconds, &settings.command);
            let after = Usage::now(settings, &server)?;
            let spent = after.server_us - before.server_us;
            match printed.and_then(|line| Measured::from_line(&line)) {
                Ok(measured) => {
                    self.samples.push(Sample {
                        round,
                        server: spec.name.clone(),
                        load,
                        cpu_us_per_request: spent as f64 / measured.requests as f64,
                        others_cpu: before.others_until(&after, spent),
                        measured,
                    });
                }
                Err(error) => self.failures.push(format!("round {round} {} {load}: {error:#}", spec.name)),
            }
        }
        Ok(())
    }

    /// Runs one load process on the load's processor and returns what it printed.
    fn load_process(&self, port: u16, load: Load, seconds: f64, command: &str) -> Result<String> {
        let mut process = Command::new(std::env::current_exe()?);
        process.arg("load").args([port.to_string(), load.connections.to_string(), load.pipeline.to_string()]);
        process.args([seconds.to_string(), self.settings.keys.to_string()]).args(words::split_text(command)?);
        process.stdin(Stdio::null());
        let output = sys::on_cpu(self.settings.load_cpu, || process.output())
            .with_context(|| format!("processor {}", self.settings.load_cpu))??;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn record(&self, servers: &[ServerSpec], rows: &[Row]) -> Value {
        let server = |spec: &ServerSpec| {
            let version = self.versions.get(&spec.name);
            json!({ "name": spec.name, "command": spec.argv, "version": version })
        };
        let sample = |sample: &Sample| {
            let Measured { rps, p50_us, p99_us, p999_us, max_us, load_cpu, .. } = sample.measured;
            json!({
                "round": sample.round, "server": sample.server, "load": sample.load.to_string(), "rps": rps,
                "cpu_us_per_request": sample.cpu_us_per_request, "p50_us": p50_us, "p99_us": p99_us,
                "p999_us": p999_us, "max_us": max_us, "load_cpu": load_cpu, "others_cpu": sample.others_cpu,
            })
        };
        json!({
            "measurement": "limit",
            "host": host::describe(),
            "settings": self.settings.record(),
            "servers": servers.iter().map(server).collect::<Vec<_>>(),
            "summary": rows.iter().map(Row::record).collect::<Vec<_>>(),
            "samples": self.samples.iter().map(sample).collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }
}

/// A median of per-round ratios and its 95 % interval.
struct Ratio {
    median: f64,
    interval: (f64, f64),
}

impl Ratio {
    fn record(&self) -> Value {
        json!({ "median": self.median, "low": self.interval.0, "high": self.interval.1 })
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2},{:.2}]", self.median, self.interval.0, self.interval.1)
    }
}

/// One line of the table: a server under a load.
struct Row {
    server: String,
    load: Load,
    rps: f64,
    share_of_limit: Ratio,
    judged_to_this: Ratio,
    cpu_us_per_request: f64,
    p50_us: f64,
    p99_us: f64,
    load_cpu: f64,
    others_cpu: f64,
}

impl Row {
    fn line(&self, judged: &str) -> String {
        let Self { server, rps, share_of_limit, judged_to_this, cpu_us_per_request, p50_us, p99_us, .. } = self;
        let load = self.load.to_string();
        let bound = if self.load_cpu > CLIENT_BOUND { "  client-bound" } else { "" };
        let disturbed = if self.others_cpu > DISTURBED { "  disturbed" } else { "" };
        format!(
            "load {load:8} {server:14} {rps:10.0} rps  share-of-limit {share_of_limit}  {judged}/this \
             {judged_to_this}  cpu/req {cpu_us_per_request:.2} us  p50 {p50_us:.0} us  p99 {p99_us:.0} us{bound}{disturbed}"
        )
    }

    fn record(&self) -> Value {
        json!({
            "server": self.server, "load": self.load.to_string(), "rps": self.rps,
            "share_of_limit": self.share_of_limit.record(), "judged_to_this": self.judged_to_this.record(),
            "cpu_us_per_request": self.cpu_us_per_request, "p50_us": self.p50_us, "p99_us": self.p99_us,
            "load_cpu": self.load_cpu, "client_bound": self.load_cpu > CLIENT_BOUND,
            "others_cpu": self.others_cpu, "disturbed": self.others_cpu > DISTURBED,
        })
    }
}

fn summarise(samples: &[Sample], servers: &[ServerSpec], loads: &[Load]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &load in loads {
        for server in servers {
            let of_server: Vec<&Sample> =
                samples.iter().filter(|s| s.load == load && s.server == server.name).collect();
            let middle = |value: fn(&Sample) -> f64| median(&of_server.iter().map(|s| value(s)).collect::<Vec<_>>());
            rows.push(Row {
                server: server.name.clone(),
                load,
                rps: middle(|s| s.measured.rps),
                share_of_limit: ratio(samples, load, &server.name, LIMIT),
                judged_to_this: ratio(samples, load, &servers[0].name, &server.name),
                cpu_us_per_request: middle(|s| s.cpu_us_per_request),
                p50_us: middle(|s| s.measured.p50_us as f64),
                p99_us: middle(|s| s.measured.p99_us as f64),
                load_cpu: middle(|s| s.measured.load_cpu),
                others_cpu: middle(|s| s.others_cpu),
            });
        }
    }
    rows
}

fn ratio(samples: &[Sample], load: Load, above: &str, below: &str) -> Ratio {
    let by_round = |name: &str| -> BTreeMap<usize, f64> {
        let of_name = samples.iter().filter(|s| s.load == load && s.server == name);
        of_name.map(|s| (s.round, s.measured.rps)).collect()
    };
    let (above, below) = (by_round(above), by_round(below));
    let ratios: Vec<f64> = above.iter().filter_map(|(round, rps)| Some(rps / below.get(round)?)).collect();
    Ratio { median: median(&ratios), interval: median_interval(&ratios) }
}

/// Writes a record as JSON, making its directory.
pub fn write_json(path: &std::path::Path, record: &Value) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(record)? + "\n").with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: usize, server: &str, rps: f64) -> Sample {
        let measured = Measured { rps, p50_us: 1, p99_us: 2, p999_us: 3, max_us: 4, requests: 10, load_cpu: 0.5 };
        let load = Load { connections: 50, pipeline: 1 };
        Sample { round, server: server.to_owned(), load, measured, cpu_us_per_request: 1.0, others_cpu: 0.0 }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // The machine is twice as fast in round 1; a round without its partner is left out.
        let samples = [
            sample(0, "a", 50.0),
            sample(0, LIMIT, 100.0),
            sample(1, "a", 100.0),
            sample(1, LIMIT, 200.0),
            sample(2, "a", 999.0),
        ];
        let ratio = ratio(&samples, samples[0].load, "a", LIMIT);
        assert_eq!((ratio.median, ratio.interval), (0.5, (0.5, 0.5)));
        let spec = ServerSpec { name: "a".into(), port: 1, argv: vec![] };
        let rows = summarise(&samples, &[spec], &[samples[0].load]);
        assert_eq!((rows.len(), rows[0].rps, rows[0].judged_to_this.median), (1, 100.0, 1.0));
    }

    #[test]
    fn loads_are_pairs() {
        assert_eq!(
            parse_loads("50:1, 7:16").expect("parses"),
            [Load { connections: 50, pipeline: 1 }, Load { connections: 7, pipeline: 16 }]
        );
        assert!(parse_loads("50").is_err());
    }
}
