//! What clients feel while a snapshot is made, and the memory that it takes.
//!
//! An open-loop probe of PINGs runs beside open-loop SETs over all keys: once alone, and once while one BGSAVE follows the other. The
//! quotient of the two 99 % quantiles is what the snapshot costs; it is taken within a round, on one server.
//!
//! Memory is the resident memory of the server and all its children, each page counted once (PSS), over what it was just before.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::limit::write_json;
use crate::load::{self, Shape};
use crate::probe::{self, Probed, probe};
use crate::process::{ServerProcess, ServerSpec, bytes_in};
use crate::reply::ask;
use crate::stats::median;
use crate::template::Template;
use crate::{host, sys};

/// Runs the rounds, prints a line for each server and round, then the medians, and writes the record.
///
/// # Errors
/// A server that does not start, closes a connection, or makes no snapshot.
pub fn run(settings: &Settings) -> Result<()> {
    let mut rounds: Vec<Round> = Vec::new();
    for round in 0..settings.rounds {
        for spec in &settings.servers {
            let felt = measure(settings, spec).with_context(|| spec.name.clone())?;
            println!("round {} {}", round + 1, felt.line());
            rounds.push(felt);
        }
    }
    let mut summary = Vec::new();
    for spec in &settings.servers {
        let of = |value: fn(&Round) -> f64| {
            median(&rounds.iter().filter(|round| round.server == spec.name).map(value).collect::<Vec<_>>())
        };
        let (ratio, memory) = (of(Round::ratio), of(|round| round.memory_mib));
        println!("{}: p99 of PING {ratio:.2} x without, {memory:.0} MiB more", spec.name);
        summary.push(json!({ "server": spec.name, "command": spec.argv, "ratio": ratio, "memory_mib": memory }));
    }
    if let Some(path) = &settings.json {
        let rounds: Vec<Value> = rounds.iter().map(Round::record).collect();
        let record = json!({ "measurement": "snapshot", "host": host::describe(), "keys": settings.keys,
            "writes": settings.writes, "probes": settings.probes, "summary": summary, "rounds": rounds });
        write_json(path, &record)?;
    }
    Ok(())
}

/// What to measure; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    servers: Vec<ServerSpec>,
    keys: u64,
    writes: f64,
    probes: f64,
    seconds: f64,
    rounds: usize,
    json: Option<PathBuf>,
}

impl Settings {
    /// Reads the options behind `--snapshot`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let (servers, keys, writes, probes) = (Vec::new(), 5_000_000, 50_000.0, 1000.0);
        let mut settings = Self { servers, keys, writes, probes, seconds: 10.0, rounds: 3, json: None };
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => settings.servers.push(args.value()?.string()?.parse()?),
                Long("keys") => settings.keys = args.value()?.parse()?,
                Long("writes") => settings.writes = args.value()?.parse()?,
                Long("probes") => settings.probes = args.value()?.parse()?,
                Long("seconds") => settings.seconds = args.value()?.parse()?,
                Long("rounds") => settings.rounds = args.value()?.parse()?,
                Long("json") => settings.json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(!settings.servers.is_empty(), "--snapshot needs --server");
        ensure!(settings.writes > 0.0 && settings.probes > 0.0 && settings.seconds > 0.0, "rates and a time above 0");
        Ok(settings)
    }
}

/// What was felt on one server in one round.
struct Round {
    server: String,
    /// p50, p99, p99.9 and the largest latency of the probe in µs, without a snapshot and with.
    without_us: [f64; 4],
    with_us: [f64; 4],
    snapshots: u64,
    memory_mib: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.with_us[1] / self.without_us[1]
    }

    fn line(&self) -> String {
        let four = |[p50, p99, p999, max]: [f64; 4]| format!("{p50:.0} {p99:.0} {p999:.0} {max:.0}");
        let Self { server, snapshots, memory_mib, .. } = self;
        format!(
            "{server}: p50 p99 p99.9 max of PING {} us without, {} us beside {snapshots} snapshots: {:.2} x; {memory_mib:.0} MiB more",
            four(self.without_us),
            four(self.with_us),
            self.ratio()
        )
    }

    fn record(&self) -> Value {
        json!({ "server": self.server, "without_us": self.without_us, "with_us": self.with_us,
            "snapshots": self.snapshots, "memory_mib": self.memory_mib })
    }
}

/// How often it is looked at whether a snapshot still runs, and every how many times at memory, for which the kernel walks all pages.
const LOOK: Duration = Duration::from_millis(20);
const MEMORY_EVERY: u64 = 10;
const WRITERS: usize = 50;
const PROBERS: usize = 4;

fn measure(settings: &Settings, spec: &ServerSpec) -> Result<Round> {
    let server = ServerProcess::start(spec, None, &std::env::temp_dir())?;
    let port = server.port();
    let set = Template::parse("SET key:__KEY__ __V64__")?;
    load::fill(&Shape::new(port, 1, 1000, settings.keys, set)).context("set-up")?;
    std::thread::sleep(Duration::from_secs(1));
    let without_us = latencies(&beside_writes(settings, port)?);
    let before = memory_bytes(server.pid())?;
    let over = AtomicBool::new(false);
    let (with, saved) = std::thread::scope(|scope| {
        let saving = scope.spawn(|| save_on_and_on(&server, &over));
        let with = beside_writes(settings, port);
        over.store(true, Relaxed);
        (with, saving.join().expect("who saves does not panic"))
    });
    let (snapshots, most) = saved?;
    ensure!(snapshots > 0, "no snapshot was completed");
    let memory_mib = most.saturating_sub(before) as f64 / f64::from(1 << 20);
    Ok(Round { server: spec.name.clone(), without_us, with_us: latencies(&with?), snapshots, memory_mib })
}

fn latencies(probed: &Probed) -> [f64; 4] {
    [0.5, 0.99, 0.999, 1.0].map(|share| probed.latency_us(share))
}

/// Probes with PINGs while the SETs run.
fn beside_writes(settings: &Settings, port: u16) -> Result<Probed> {
    // The writes begin before the first probe, and end behind the last one.
    let longer = settings.seconds + 1.0;
    let writes = probe::Settings::of("SET key:__KEY__ __V64__", settings.writes, WRITERS, longer, settings.keys);
    let probes = probe::Settings::of("PING", settings.probes, PROBERS, settings.seconds, 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| sys::step_back().map_err(anyhow::Error::from).and_then(|()| probe(&writes, port)));
        std::thread::sleep(Duration::from_millis(500));
        let probed = probe(&probes, port);
        writing.join().expect("a probe does not panic").context("the writes")?;
        probed
    })
}

/// One snapshot after the other. How many were completed, and the most memory that was in use.
fn save_on_and_on(server: &ServerProcess, over: &AtomicBool) -> Result<(u64, u64)> {
    // What looks must not keep the probe from the processor.
    sys::step_back()?;
    let mut stream = load::connect(server.port())?;
    let (mut snapshots, mut most, mut looks) = (0, 0, 0_u64);
    while !over.load(Relaxed) {
        ask(&mut stream, "BGSAVE")?;
        loop {
            if looks.is_multiple_of(MEMORY_EVERY) {
                most = most.max(memory_bytes(server.pid())?);
            }
            looks += 1;
            let info = ask(&mut stream, "INFO persistence")?;
            if info.contains("rdb_bgsave_in_progress:0") {
                ensure!(info.contains("rdb_last_bgsave_status:ok"), "a snapshot failed: {info}");
                break;
            }
            std::thread::sleep(LOOK);
        }
        snapshots += 1;
    }
    Ok((snapshots, most))
}

/// Memory of a process and its children, pages that several of them have counted once.
fn memory_bytes(pid: u32) -> Result<u64> {
    let mut bytes = pss_bytes(pid).context("the server")?;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        // It may have ended meanwhile.
        bytes += pss_bytes(child.parse()?).unwrap_or(0);
    }
    Ok(bytes)
}

fn pss_bytes(pid: u32) -> Result<u64> {
    bytes_in(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_known() {
        assert!(memory_bytes(std::process::id()).expect("Linux tells") > 1 << 20);
    }
}
