//! One sample of one server under one load: throughput, latency, processor time; and ratios of samples within rounds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::load::Measured;
use crate::process::{ServerProcess, busy_us_of, cpu_us_with_children};
use crate::stats::{median, median_interval};
use crate::{sys, words};

/// Connections and commands in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Connections held open.
    pub connections: usize,
    /// Commands in flight on each.
    pub pipeline: usize,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.connections, self.pipeline)
    }
}

/// Loads of the form `50:1,50:16`.
pub fn parse_loads(text: &str) -> Result<Vec<Load>> {
    let load = |word: &str| {
        let (connections, pipeline) = word.split_once(':').context("a load is CONNECTIONS:PIPELINE")?;
        Ok(Load { connections: connections.parse()?, pipeline: pipeline.parse()? })
    };
    text.split([',', ' ']).filter(|word| !word.is_empty()).map(load).collect()
}

/// One load on one server in one round.
pub struct Sample {
    /// Which round; ratios are taken within it.
    pub round: usize,
    /// Name of the server.
    pub server: String,
    /// What was put on it.
    pub load: Load,
    /// What the load process saw.
    pub measured: Measured,
    /// Processor time of the server for each request.
    pub cpu_us_per_request: f64,
    /// What anything else used of the two processors, as a share of one.
    pub others_cpu: f64,
    /// Requests per second of another load beside it. The server's processor time is for both.
    pub beside_rps: Option<f64>,
}

impl Sample {
    /// For a result file.
    pub fn record(&self) -> Value {
        let Measured { rps, p50_us, p99_us, p999_us, max_us, load_cpu, by_length, nulls, errors, .. } = self.measured;
        json!({
            "round": self.round, "server": self.server, "load": self.load.to_string(), "rps": rps,
            "cpu_us_per_request": self.cpu_us_per_request, "p50_us": p50_us, "p99_us": p99_us,
            "p999_us": p999_us, "max_us": max_us, "load_cpu": load_cpu, "others_cpu": self.others_cpu,
            "by_length": by_length, "nulls": nulls, "errors": errors, "beside_rps": self.beside_rps,
        })
    }
}

/// Where servers and loads run.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Processor of the server.
    pub server_cpu: usize,
    /// Processor of the load.
    pub load_cpu: usize,
    /// Servers get directories of their own in here.
    pub dir: PathBuf,
}

/// A command as a load process sends it.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The command's line, with placeholders.
    pub command: &'a str,
    /// Keys to draw from.
    pub keys: u64,
    /// Ends the load before its time.
    pub requests: Option<u64>,
    /// Error replies do not end it.
    pub accepts_errors: bool,
}

impl<'a> Task<'a> {
    /// A command that must succeed, for as long as the load lasts.
    pub fn new(command: &'a str, keys: u64) -> Self {
        Self { command, keys, requests: None, accepts_errors: false }
    }
}

impl Bench {
    /// Sends the command once for each key.
    pub fn fill(&self, port: u16, task: Task<'_>) -> Result<()> {
        self.load_process(port, Load { connections: 1, pipeline: 100 }, 0.0, task).map(drop)
    }

    /// Loads a server for so many seconds.
    ///
    /// # Errors
    /// Those of the load process.
    pub fn sample(
        &self,
        round: usize,
        (name, server): (&str, &ServerProcess),
        load: Load,
        seconds: f64,
        task: Task<'_>,
    ) -> Result<Sample> {
        let before = Usage::now(self, server)?;
        let printed = self.load_process(server.port(), load, seconds, task);
        let after = Usage::now(self, server)?;
        let spent = after.server_us - before.server_us;
        let measured = Measured::from_line(&printed?)?;
        Ok(Sample {
            round,
            server: name.to_owned(),
            load,
            cpu_us_per_request: spent as f64 / measured.requests as f64,
            others_cpu: before.others_until(&after, spent),
            beside_rps: None,
            measured,
        })
    }

    /// Runs one load process on the load's processor and returns what it printed.
    ///
    /// # Errors
    /// Those of the load process.
    pub fn load_process(&self, port: u16, load: Load, seconds: f64, task: Task<'_>) -> Result<String> {
        let mut process = Command::new(std::env::current_exe()?);
        process.arg("load");
        if let Some(requests) = task.requests {
            process.args(["--requests", &requests.to_string()]);
        }
        if task.accepts_errors {
            process.arg("--accept-errors");
        }
        process.args([port.to_string(), load.connections.to_string(), load.pipeline.to_string()]);
        process.args([seconds.to_string(), task.keys.to_string()]).args(words::split_text(task.command)?);
        process.stdin(Stdio::null());
        let output = sys::on_cpu(self.load_cpu, || process.output())
            .with_context(|| format!("processor {}", self.load_cpu))??;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Processor time at one moment, in µs.
struct Usage {
    at: Instant,
    server_us: u64,
    lab_us: u64,
    busy_us: u64,
}

impl Usage {
    fn now(bench: &Bench, server: &ServerProcess) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            server_us: server.cpu_us()?,
            lab_us: cpu_us_with_children(std::process::id())?,
            busy_us: busy_us_of(&[bench.server_cpu, bench.load_cpu])?,
        })
    }

    fn others_until(&self, later: &Self, server_us: u64) -> f64 {
        let ours = server_us + (later.lab_us - self.lab_us);
        let others = (later.busy_us - self.busy_us).saturating_sub(ours);
        others as f64 / (later.at - self.at).as_micros().max(1) as f64
    }
}

/// A median of per-round ratios and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// Its interval.
    pub interval: (f64, f64),
}

impl Ratio {
    /// Of what `value` is in samples of `above` and of `below` in the same round under the same load.
    pub fn of<'a>(
        samples: impl IntoIterator<Item = &'a Sample>,
        load: Load,
        above: &str,
        below: &str,
        value: fn(&Sample) -> f64,
    ) -> Self {
        let samples: Vec<&Sample> = samples.into_iter().collect();
        let by_round = |name: &str| -> BTreeMap<usize, f64> {
            let of_name = samples.iter().filter(|s| s.load == load && s.server == name);
            of_name.map(|s| (s.round, value(s))).collect()
        };
        let (above, below) = (by_round(above), by_round(below));
        let ratios: Vec<f64> = above.iter().filter_map(|(round, top)| Some(top / below.get(round)?)).collect();
        Self { median: median(&ratios), interval: median_interval(&ratios) }
    }

    /// For a result file.
    pub fn record(&self) -> Value {
        json!({ "median": self.median, "low": self.interval.0, "high": self.interval.1 })
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2},{:.2}]", self.median, self.interval.0, self.interval.1)
    }
}

/// The median of what `value` is in these samples.
pub fn middle<'a>(samples: impl IntoIterator<Item = &'a Sample>, value: fn(&Sample) -> f64) -> f64 {
    median(&samples.into_iter().map(value).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: usize, server: &str, rps: f64) -> Sample {
        let line = format!("{rps} 1 2 3 4 10 0.5 1.000 0 0");
        let measured = Measured::from_line(&line).expect("a load's line");
        let load = Load { connections: 50, pipeline: 1 };
        Sample {
            round,
            server: server.to_owned(),
            load,
            measured,
            cpu_us_per_request: 1.0,
            others_cpu: 0.0,
            beside_rps: None,
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // The machine is twice as fast in round 1; a round without its partner is left out.
        let samples = [
            sample(0, "a", 50.0),
            sample(0, "b", 100.0),
            sample(1, "a", 100.0),
            sample(1, "b", 200.0),
            sample(2, "a", 999.0),
        ];
        let ratio = Ratio::of(&samples, samples[0].load, "a", "b", |s| s.measured.rps);
        assert_eq!((ratio.median, ratio.interval), (0.5, (0.5, 0.5)));
        assert_eq!(middle(&samples[..4], |s| s.measured.rps), 100.0);
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
