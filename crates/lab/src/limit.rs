//! Share of the limit: servers, side by side in one run, against the least that a RESP server can do.
//!
//! Each round runs every server once under every load, so that drift of the machine hits all alike; a ratio is the
//! median of per-round ratios, with the 95 % interval of that median. Server and load each have one processor, and
//! the server is started anew in each round. Throughputs of different runs are not compared: between runs a shared
//! machine drifts by more than what is to be seen.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::load::Measured;
use crate::process::{ServerProcess, ServerSpec};
use crate::sample::{Bench, Load, Ratio, Sample, Task, middle, parse_loads};
use crate::{host, suite};

/// Runs the rounds, prints the table and writes the record.
///
/// # Errors
/// A server that does not start ends the run; a load that fails is printed, left out, and makes the run fail at its end.
pub fn run(settings: &Settings) -> Result<()> {
    if let Some(named) = &settings.suite {
        return suite::run(settings, named);
    }
    let mut run = Run { settings, samples: Vec::new(), versions: BTreeMap::new(), failures: Vec::new() };
    let servers = settings.all_servers()?;
    for round in 0..settings.rounds {
        for server in &servers {
            run.visit(round, server).with_context(|| server.name.clone())?;
        }
        eprintln!("round {} of {}", round + 1, settings.rounds);
    }
    let rows = summarise(&run.samples, &servers, &settings.loads());
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
    pub(crate) servers: Vec<ServerSpec>,
    /// As named; a suite has loads of its own for each test.
    pub(crate) loads: Option<Vec<Load>>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    command: String,
    setup: String,
    pub(crate) keys: Option<u64>,
    reply: i64,
    limit_port: u16,
    pub(crate) bench: Bench,
    accepts_errors: bool,
    beside: Option<(Load, String)>,
    suite: Option<String>,
    /// Names of the suite's tests to run; all when empty.
    pub(crate) only: Vec<String>,
    pub(crate) json: Option<PathBuf>,
}

impl Settings {
    /// Reads the options behind `--limit`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let mut settings = Self {
            servers: Vec::new(),
            loads: None,
            rounds: 15,
            seconds: 0.7,
            command: "GET key:__KEY__".to_owned(),
            setup: "SET key:__KEY__ __V64__".to_owned(),
            keys: None,
            reply: 64,
            limit_port: 7999,
            bench: Bench { server_cpu: 0, load_cpu: 1, dir: std::env::temp_dir() },
            accepts_errors: false,
            beside: None,
            suite: None,
            only: Vec::new(),
            json: None,
        };
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => settings.servers.push(args.value()?.string()?.parse()?),
                Long("loads") => settings.loads = Some(parse_loads(&args.value()?.string()?)?),
                Long("rounds") => settings.rounds = args.value()?.parse()?,
                Long("seconds") => settings.seconds = args.value()?.parse()?,
                Long("command") => settings.command = args.value()?.string()?,
                Long("setup") => settings.setup = args.value()?.string()?,
                Long("keys") => settings.keys = Some(args.value()?.parse()?),
                Long("reply") => settings.reply = args.value()?.parse()?,
                Long("limit-port") => settings.limit_port = args.value()?.parse()?,
                Long("server-cpu") => settings.bench.server_cpu = args.value()?.parse()?,
                Long("load-cpu") => settings.bench.load_cpu = args.value()?.parse()?,
                Long("dir") => settings.bench.dir = args.value()?.into(),
                Long("accept-errors") => settings.accepts_errors = true,
                Long("beside") => settings.beside = Some(parse_beside(&args.value()?.string()?)?),
                Long("suite") => settings.suite = Some(args.value()?.string()?),
                Long("only") => settings.only = args.value()?.string()?.split(',').map(str::to_owned).collect(),
                Long("json") => settings.json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(settings.rounds > 0, "at least one round");
        Ok(settings)
    }

    fn loads(&self) -> Vec<Load> {
        const USUAL: [Load; 2] = [Load { connections: 50, pipeline: 1 }, Load { connections: 50, pipeline: 16 }];
        self.loads.clone().unwrap_or_else(|| USUAL.to_vec())
    }

    fn keys(&self) -> u64 {
        self.keys.unwrap_or(100_000)
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
        let loads: Vec<String> = self.loads().iter().map(Load::to_string).collect();
        json!({
            "loads": loads, "rounds": self.rounds, "seconds": self.seconds, "command": self.command,
            "setup": self.setup, "beside": self.beside.as_ref().map(|(load, command)| format!("{load} {command}")), "keys": self.keys(), "reply": self.reply,
            "server_cpu": self.bench.server_cpu, "load_cpu": self.bench.load_cpu,
        })
    }
}

/// CONNECTIONS:PIPELINE COMMAND.
fn parse_beside(text: &str) -> Result<(Load, String)> {
    let (load, command) = text.trim().split_once(' ').context("--beside is 'CONNECTIONS:PIPELINE COMMAND'")?;
    let [load] = parse_loads(load)?[..] else { anyhow::bail!("--beside has one load") };
    Ok((load, command.to_owned()))
}

/// Seconds that the load beside another one lasts longer, as they do not start in the same moment.
const BESIDE: f64 = 0.2;
/// The limit server's name in the results.
const LIMIT: &str = "limit";
/// Above this share of its processor the load, not the server, may be what is measured.
pub(crate) const CLIENT_BOUND: f64 = 0.9;
/// Above this share of one processor, used by anything else, absolute numbers mean nothing; ratios may still hold.
pub(crate) const DISTURBED: f64 = 0.15;

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
        let bench = &settings.bench;
        let server = start(spec, bench)?;
        if !settings.setup.is_empty() && spec.argv.get(1).is_none_or(|role| role != "limit-server") {
            bench.fill(spec.port, Task::new(&settings.setup, settings.keys())).context("set-up")?;
            self.versions.entry(spec.name.clone()).or_insert_with(|| host::describe_server(spec.port));
        }
        let accepts_errors = settings.accepts_errors;
        let task = Task { accepts_errors, ..Task::new(&settings.command, settings.keys()) };
        for load in settings.loads() {
            let sampled = std::thread::scope(|scope| {
                let other = settings.beside.as_ref().map(|(load, command)| {
                    let task = Task { accepts_errors, ..Task::new(command, settings.keys()) };
                    scope.spawn(move || bench.load_process(spec.port, *load, settings.seconds + BESIDE, task))
                });
                let sample = bench.sample(round, (&spec.name, &server), load, settings.seconds, task);
                let other = other.map(|other| other.join().expect("a load's starter does not panic"));
                let other = other.transpose().context("the load beside")?;
                let beside = other.map(|printed| Measured::from_line(&printed)).transpose()?;
                sample.map(|sample| Sample { beside_rps: beside.map(|beside| beside.rps), ..sample })
            });
            match sampled {
                Ok(sample) => self.samples.push(sample),
                Err(error) => self.failures.push(format!("round {round} {} {load}: {error:#}", spec.name)),
            }
        }
        Ok(())
    }

    fn record(&self, servers: &[ServerSpec], rows: &[Row]) -> Value {
        let server = |spec: &ServerSpec| {
            let version = self.versions.get(&spec.name);
            json!({ "name": spec.name, "command": spec.argv, "version": version })
        };
        json!({
            "measurement": "limit",
            "host": host::describe(),
            "settings": self.settings.record(),
            "servers": servers.iter().map(server).collect::<Vec<_>>(),
            "summary": rows.iter().map(Row::record).collect::<Vec<_>>(),
            "samples": self.samples.iter().map(Sample::record).collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }
}

/// Starts a server; servers do some work right after they first accept, which is let pass.
pub(crate) fn start(spec: &ServerSpec, bench: &Bench) -> Result<ServerProcess> {
    let server = ServerProcess::start(spec, Some(bench.server_cpu), &bench.dir)?;
    std::thread::sleep(Duration::from_millis(100));
    Ok(server)
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
    by_length: f64,
    errors: f64,
    beside_rps: f64,
}

impl Row {
    fn line(&self, judged: &str) -> String {
        let Self { server, rps, share_of_limit, judged_to_this, cpu_us_per_request, p50_us, p99_us, .. } = self;
        let load = self.load.to_string();
        let bound = if self.load_cpu > CLIENT_BOUND { "  client-bound" } else { "" };
        let disturbed = if self.others_cpu > DISTURBED { "  disturbed" } else { "" };
        let replies = match self.by_length {
            1.0 => String::new(),
            share => format!("  replies counted in {:.0} % of batches", (1.0 - share) * 100.0),
        };
        let beside = if self.beside_rps > 0.0 { format!("  beside {:.0} rps", self.beside_rps) } else { String::new() };
        let errors = if self.errors > 0.0 { format!("  {:.0} errors", self.errors) } else { String::new() };
        format!(
            "load {load:8} {server:14} {rps:10.0} rps  share-of-limit {share_of_limit}  {judged}/this \
             {judged_to_this}  cpu/req {cpu_us_per_request:.2} us  p50 {p50_us:.0} us  p99 {p99_us:.0} us{beside}{replies}{errors}{bound}{disturbed}"
        )
    }

    fn record(&self) -> Value {
        json!({
            "server": self.server, "load": self.load.to_string(), "rps": self.rps,
            "share_of_limit": self.share_of_limit.record(), "judged_to_this": self.judged_to_this.record(),
            "cpu_us_per_request": self.cpu_us_per_request, "p50_us": self.p50_us, "p99_us": self.p99_us,
            "load_cpu": self.load_cpu, "client_bound": self.load_cpu > CLIENT_BOUND,
            "others_cpu": self.others_cpu, "disturbed": self.others_cpu > DISTURBED,
            "by_length": self.by_length, "errors": self.errors, "beside_rps": self.beside_rps,
        })
    }
}

fn summarise(samples: &[Sample], servers: &[ServerSpec], loads: &[Load]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &load in loads {
        for server in servers {
            let of_server: Vec<&Sample> =
                samples.iter().filter(|s| s.load == load && s.server == server.name).collect();
            let middle = |value| middle(of_server.iter().copied(), value);
            rows.push(Row {
                server: server.name.clone(),
                load,
                rps: middle(|s| s.measured.rps),
                share_of_limit: Ratio::of(samples, load, &server.name, LIMIT, |s| s.measured.rps),
                judged_to_this: Ratio::of(samples, load, &servers[0].name, &server.name, |s| s.measured.rps),
                cpu_us_per_request: middle(|s| s.cpu_us_per_request),
                p50_us: middle(|s| s.measured.p50_us as f64),
                p99_us: middle(|s| s.measured.p99_us as f64),
                load_cpu: middle(|s| s.measured.load_cpu),
                others_cpu: middle(|s| s.others_cpu),
                by_length: middle(|s| s.measured.by_length),
                errors: middle(|s| s.measured.errors as f64),
                beside_rps: middle(|s| s.beside_rps.unwrap_or(0.0)),
            });
        }
    }
    rows
}

/// Writes a record as JSON, making its directory.
pub fn write_json(path: &std::path::Path, record: &Value) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(record)? + "\n").with_context(|| path.display().to_string())
}
