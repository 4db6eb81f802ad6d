//! The I/O models of the papers (S1 to S14) against the default, side by side in one run of one binary: GET by size of the reply,
//! number of connections and depth of the pipeline.
//!
//! Each round runs every model once in every cell, so that drift of the machine hits all alike. What is compared is the median of a
//! model's throughput over the default's within a round, with its 95 % interval: a model beats the default where the whole interval is
//! above [`BEATS`]. The server has one processor, whatever the number of its
//! threads: what threads gain on processors of their own does not show.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::host;
use crate::limit::{CLIENT_BOUND, DISTURBED, start, write_json};
use crate::process::{ServerProcess, ServerSpec, bytes_in};
use crate::reply::ask;
use crate::sample::{Bench, Load, Ratio, Sample, Task, middle};
use crate::stats::median;

/// A model: its name in EXPERIMENTS, what it is, and the server's arguments for it.
struct Model {
    name: &'static str,
    what: &'static str,
    arguments: &'static str,
}

/// The default first: all others are compared with it.
const MODELS: &[Model] = &[
    Model { name: "default", what: "io_uring, multishot receive, one send per connection and pass", arguments: "" },
    Model {
        name: "S1",
        what: "level-triggered epoll, read, write",
        arguments: "--io-engine epoll --epoll-trigger level --epoll-flush loop",
    },
    Model { name: "epoll", what: "our epoll: edge-triggered", arguments: "--io-engine epoll" },
    Model {
        name: "S2",
        what: "each reply submitted and waited for",
        arguments: "--io-engine uring-send --uring-submit sequential",
    },
    Model { name: "S3", what: "each reply submitted", arguments: "--io-engine uring-send --uring-submit async" },
    Model {
        name: "S4, S6",
        what: "a pass's replies submitted together",
        arguments: "--io-engine uring-send --uring-submit batch",
    },
    Model {
        name: "S5",
        what: "each reply an entry, ordered by the kernel",
        arguments: "--io-engine uring-send --uring-submit batch --uring-order kernel",
    },
    Model {
        name: "S7",
        what: "submitted from 32 entries or 50 us on",
        arguments: "--io-engine uring-send --uring-submit batch --uring-submit-threshold 32 --uring-submit-interval-us 50",
    },
    Model { name: "S8 single", what: "one receive an entry", arguments: "--io-engine uring --uring-recv single" },
    Model {
        name: "S9",
        what: "poll entry, read, writev; async from 25 entries on",
        arguments: "--io-engine uring --uring-recv poll --uring-write writev --uring-async-threshold 25",
    },
    Model {
        name: "S9 sync",
        what: "the same without async",
        arguments: "--io-engine uring --uring-recv poll --uring-write writev --uring-async-threshold 0",
    },
    Model {
        name: "S10",
        what: "edge-triggered epoll, writev when a command is done",
        arguments: "--io-engine epoll --epoll-trigger edge --epoll-flush command",
    },
    Model {
        name: "S11",
        what: "phases, 2 threads read and write",
        arguments: "--io-model phases --io-threads 2 --io-threads-do-reads yes",
    },
    Model {
        name: "S12",
        what: "a queue of replies: lock",
        arguments: "--io-model queue --reply-threads 1 --reply-queue lock",
    },
    Model {
        name: "S13",
        what: "a queue of replies: Michael and Scott",
        arguments: "--io-model queue --reply-threads 1 --reply-queue ms",
    },
    Model {
        name: "S14",
        what: "a queue of replies: distributed",
        arguments: "--io-model queue --reply-threads 1 --reply-queue distributed",
    },
];

/// A model beats the default from this ratio on.
pub const BEATS: f64 = 1.05;
/// Connections times pipeline times reply: beyond this a cell is left out.
const MOST_BYTES: u64 = 256 << 20;

/// Runs the rounds, prints a table for each cell and writes the record.
///
/// # Errors
/// A model that does not start; loads that fail are printed, left out, and make the run fail at its end.
pub fn run(settings: &Settings) -> Result<()> {
    let models = settings.models()?;
    let cells = settings.cells();
    ensure!(!cells.is_empty(), "no cell: each would have more than {} MiB in flight", MOST_BYTES >> 20);
    let mut run = Run { settings, taken: BTreeMap::new(), failures: Vec::new() };
    for round in 0..settings.rounds {
        for model in &models {
            run.visit(round, model, &cells).with_context(|| model.name.to_owned())?;
        }
        eprintln!("round {} of {}", round + 1, settings.rounds);
    }
    let rows: Vec<Row> = cells.iter().flat_map(|cell| models.iter().map(|model| run.row(model, *cell))).collect();
    println!(
        "| reply | load | model | replies/s | of the default | CPU us a reply | p99 us | entries an enter | peak MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{}", row.line()));
    let ahead: Vec<String> = rows.iter().filter(|row| row.beats()).map(Row::title).collect();
    println!(
        "\nahead of the default by more than {BEATS}: {}",
        if ahead.is_empty() { "none".into() } else { ahead.join("; ") }
    );
    if let Some(path) = &settings.json {
        let models =
            models.iter().map(|model| json!({ "name": model.name, "what": model.what, "arguments": model.arguments }));
        let samples = run.taken.iter().flat_map(|(size, taken)| taken.iter().map(move |taken| taken.record(*size)));
        let record = json!({ "measurement": "models", "host": host::describe(), "server": settings.server,
            "rounds": settings.rounds, "seconds": settings.seconds, "models": models.collect::<Vec<_>>(),
            "summary": rows.iter().map(Row::record).collect::<Vec<_>>(), "samples": samples.collect::<Vec<_>>(),
            "failures": run.failures });
        write_json(path, &record)?;
    }
    ensure!(run.failures.is_empty(), "{} loads failed: {}", run.failures.len(), run.failures.join("; "));
    Ok(())
}

/// What to run; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    server: String,
    sizes: Vec<u64>,
    connections: Vec<usize>,
    pipelines: Vec<usize>,
    rounds: usize,
    seconds: f64,
    only: Vec<String>,
    port: u16,
    bench: Bench,
    json: Option<PathBuf>,
}

/// A size of the reply, and a load.
type Cell = (u64, Load);

impl Settings {
    /// Reads the options behind `--models`.
    ///
    /// # Errors
    /// An option that is not one.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let mut settings = Self {
            server: "gimmal-server".into(),
            sizes: vec![64, 512, 4096, 65536, 2 << 20],
            connections: vec![50, 500],
            pipelines: vec![1, 16],
            rounds: 15,
            seconds: 0.3,
            only: Vec::new(),
            port: 7990,
            bench: Bench { server_cpu: 0, load_cpu: 1, dir: std::env::temp_dir() },
            json: None,
        };
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => settings.server = args.value()?.string()?,
                Long("sizes") => settings.sizes = numbers(&args.value()?.string()?)?,
                Long("connections") => settings.connections = numbers(&args.value()?.string()?)?,
                Long("pipelines") => settings.pipelines = numbers(&args.value()?.string()?)?,
                Long("rounds") => settings.rounds = args.value()?.parse()?,
                Long("seconds") => settings.seconds = args.value()?.parse()?,
                Long("only") => settings.only = args.value()?.string()?.split(';').map(str::to_owned).collect(),
                Long("port") => settings.port = args.value()?.parse()?,
                Long("server-cpu") => settings.bench.server_cpu = args.value()?.parse()?,
                Long("load-cpu") => settings.bench.load_cpu = args.value()?.parse()?,
                Long("dir") => settings.bench.dir = args.value()?.into(),
                Long("json") => settings.json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(settings.rounds > 0, "at least one round");
        Ok(settings)
    }

    fn models(&self) -> Result<Vec<&'static Model>> {
        let unknown = self.only.iter().find(|name| MODELS.iter().all(|model| model.name != **name));
        let names: Vec<_> = MODELS.iter().map(|model| model.name).collect();
        ensure!(unknown.is_none(), "no model {unknown:?}; there are {}", names.join("; "));
        let is_wanted = |model: &&Model| {
            self.only.is_empty() || model.name == MODELS[0].name || self.only.iter().any(|name| name == model.name)
        };
        Ok(MODELS.iter().filter(is_wanted).collect())
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &size in &self.sizes {
            for &connections in &self.connections {
                for &pipeline in &self.pipelines {
                    if size * (connections * pipeline) as u64 <= MOST_BYTES {
                        cells.push((size, Load { connections, pipeline }));
                    }
                }
            }
        }
        cells
    }
}

fn numbers<T: std::str::FromStr<Err = std::num::ParseIntError>>(text: &str) -> Result<Vec<T>> {
    text.split(',').map(|word| word.parse().with_context(|| format!("the number {word:?}"))).collect()
}

/// A sample, and what the server said and took.
struct Taken {
    sample: Sample,
    /// Submission entries for each call that submits; 0 without a ring.
    entries_per_enter: f64,
    peak_bytes: u64,
}

impl Taken {
    fn record(&self, size: u64) -> Value {
        let mut record = self.sample.record();
        record["size"] = size.into();
        record["entries_per_enter"] = self.entries_per_enter.into();
        record["peak_bytes"] = self.peak_bytes.into();
        record
    }
}

struct Run<'a> {
    settings: &'a Settings,
    /// By size of the reply.
    taken: BTreeMap<u64, Vec<Taken>>,
    failures: Vec<String>,
}

impl Run<'_> {
    /// Starts a model, gives it a value of each size, and puts every load on it.
    fn visit(&mut self, round: usize, model: &Model, cells: &[Cell]) -> Result<()> {
        let Settings { server, port, bench, seconds, .. } = self.settings;
        let line = format!("{server} --port {port} --workers 1 --save '' {}", model.arguments);
        let spec: ServerSpec = format!("{}|{port}|{line}", model.name).parse()?;
        let server = start(&spec, bench)?;
        let mut asking = TcpStream::connect(("127.0.0.1", *port))?;
        for size in &self.settings.sizes {
            bench.fill(*port, Task::new(&format!("SET size:{size} __V{size}__"), 1))?;
        }
        for &(size, load) in cells {
            reset_peak(&server)?;
            let before = Rings::ask(&mut asking)?;
            match bench.sample(round, (model.name, &server), load, *seconds, Task::new(&format!("GET size:{size}"), 1))
            {
                Ok(sample) => {
                    let entries_per_enter = before.entries_per_enter(&Rings::ask(&mut asking)?);
                    let peak_bytes = bytes_in(&format!("/proc/{}/status", server.pid()), "VmHWM:")?;
                    self.taken.entry(size).or_default().push(Taken { sample, entries_per_enter, peak_bytes });
                }
                Err(error) => self.failures.push(format!("round {round} {} {size} {load}: {error:#}", model.name)),
            }
        }
        Ok(())
    }

    fn row(&self, model: &Model, (size, load): Cell) -> Row {
        let taken: &[Taken] = self.taken.get(&size).map_or(&[], Vec::as_slice);
        let is_its = |taken: &&Taken| taken.sample.load == load && taken.sample.server == model.name;
        let its: Vec<&Taken> = taken.iter().filter(is_its).collect();
        let of_sample = |value: fn(&Sample) -> f64| middle(its.iter().map(|taken| &taken.sample), value);
        let samples = || taken.iter().map(|taken| &taken.sample);
        Row {
            size,
            load,
            model: model.name,
            rps: of_sample(|s| s.measured.rps),
            of_default: Ratio::of(samples(), load, model.name, MODELS[0].name, |s| s.measured.rps),
            cpu_us: of_sample(|s| s.cpu_us_per_request),
            p99_us: of_sample(|s| s.measured.p99_us as f64),
            load_cpu: of_sample(|s| s.measured.load_cpu),
            others_cpu: of_sample(|s| s.others_cpu),
            entries_per_enter: median(&its.iter().map(|taken| taken.entries_per_enter).collect::<Vec<_>>()),
            peak_mib: median(&its.iter().map(|taken| taken.peak_bytes as f64 / f64::from(1 << 20)).collect::<Vec<_>>()),
        }
    }
}

/// Has the kernel forget the most memory that the server had.
fn reset_peak(server: &ServerProcess) -> Result<()> {
    let path = format!("/proc/{}/clear_refs", server.pid());
    std::fs::write(&path, "5").with_context(|| path)
}

/// What INFO says of the rings so far.
struct Rings {
    enters: u64,
    entries: u64,
}

impl Rings {
    fn ask(stream: &mut TcpStream) -> Result<Self> {
        let text = ask(stream, "INFO io")?;
        let field = |name: &str| -> Result<u64> {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.with_context(|| format!("INFO io has no {name}"))?.trim().parse().context(text.clone())
        };
        Ok(Self { enters: field("io_enters")?, entries: field("io_sqes")? })
    }

    fn entries_per_enter(&self, later: &Self) -> f64 {
        let (enters, entries) = (later.enters.saturating_sub(self.enters), later.entries.saturating_sub(self.entries));
        if enters == 0 { 0.0 } else { entries as f64 / enters as f64 }
    }
}

/// A model in a cell.
struct Row {
    size: u64,
    load: Load,
    model: &'static str,
    rps: f64,
    of_default: Ratio,
    cpu_us: f64,
    p99_us: f64,
    load_cpu: f64,
    others_cpu: f64,
    entries_per_enter: f64,
    peak_mib: f64,
}

impl Row {
    fn beats(&self) -> bool {
        self.of_default.interval.0 > BEATS
    }

    fn title(&self) -> String {
        format!("{} at {} bytes, {}: {}", self.model, self.size, self.load, self.of_default)
    }

    fn line(&self) -> String {
        let Row { size, load, model, rps, of_default, cpu_us, p99_us, entries_per_enter, peak_mib, .. } = self;
        let bound = if self.load_cpu > CLIENT_BOUND { " (client-bound)" } else { "" };
        let disturbed = if self.others_cpu > DISTURBED { " (disturbed)" } else { "" };
        format!(
            "| {size} | {load} | {model} | {rps:.0} | {of_default}{bound}{disturbed} | {cpu_us:.2} | {p99_us:.0} | {entries_per_enter:.1} | {peak_mib:.0} |"
        )
    }

    fn record(&self) -> Value {
        json!({ "size": self.size, "load": self.load.to_string(), "model": self.model, "rps": self.rps,
            "of_default": self.of_default.record(), "beats": self.beats(), "cpu_us": self.cpu_us, "p99_us": self.p99_us,
            "load_cpu": self.load_cpu, "client_bound": self.load_cpu > CLIENT_BOUND, "others_cpu": self.others_cpu,
            "disturbed": self.others_cpu > DISTURBED,
            "entries_per_enter": self.entries_per_enter, "peak_mib": self.peak_mib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_once_and_the_default_has_no_arguments() {
        let mut names: Vec<_> = MODELS.iter().map(|model| model.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), MODELS[0].arguments), (MODELS.len(), ""));
    }

    #[test]
    fn cells_with_too_much_in_flight_are_left_out() {
        let mut args = lexopt::Parser::from_args(["--sizes", "64,2097152", "--connections", "50,500"]);
        let cells = Settings::parse(&mut args).expect("options").cells();
        let large: Vec<String> =
            cells.iter().filter(|(size, _)| *size > 64).map(|(_, load)| load.to_string()).collect();
        assert_eq!((cells.len(), large), (5, vec!["50:1".to_owned()]));
    }

    #[test]
    fn a_model_is_ahead_only_with_its_whole_interval() {
        let load = Load { connections: 50, pipeline: 1 };
        let row = |low| Row {
            size: 64,
            load,
            model: "S1",
            rps: 1.0,
            of_default: Ratio { median: 1.2, interval: (low, 1.3) },
            cpu_us: 1.0,
            p99_us: 1.0,
            load_cpu: 0.5,
            others_cpu: 0.0,
            entries_per_enter: 0.0,
            peak_mib: 1.0,
        };
        assert_eq!((row(1.05).beats(), row(1.06).beats()), (false, true));
    }

    #[test]
    fn entries_are_counted_between_two_looks() {
        let (before, later) = (Rings { enters: 10, entries: 20 }, Rings { enters: 14, entries: 50 });
        assert_eq!((before.entries_per_enter(&later), later.entries_per_enter(&later)), (7.5, 0.0));
    }
}
