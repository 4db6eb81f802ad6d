//! A suite: many commands on several servers in one run, each judged by what is asked of it.
//!
//! Per round and group of tests every server is started anew and filled; then each test is put on one server right
//! after the other, because a shared machine's speed can double from one second to the next. Ratios are taken within
//! rounds; a server that waits for its turn is idle. What the commands are is in `tests`. Dropped alternative: the
//! servers' own benchmark program, which saturates before a pipelining server does.

mod tests;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::tests::{Asks, Fill, Group, Test};
use crate::host;
use crate::limit::{CLIENT_BOUND, DISTURBED, Settings, start, write_json};
use crate::process::ServerSpec;
use crate::sample::{Load, Ratio, Sample, Task, middle};

/// Runs the suite called `name` on the settings' servers; prints a table for every peer of the first one.
///
/// # Errors
/// An unknown suite or test, fewer than two servers, a server that does not start or cannot be filled. A test that
/// fails is printed, left out, and makes the run fail at its end.
pub fn run(settings: &Settings, name: &str) -> Result<()> {
    ensure!(settings.servers.len() > 1, "a suite needs two servers: the judged one and a peer");
    let groups = select(tests::suite(name, settings.keys)?, &settings.only)?;
    let mut run = Run { settings, samples: BTreeMap::new(), failures: Vec::new(), versions: BTreeMap::new() };
    for round in 0..settings.rounds {
        for group in &groups {
            run.visit(round, group)?;
        }
        eprintln!("round {} of {}", round + 1, settings.rounds);
    }
    let tests: Vec<&Test> = groups.iter().flat_map(|group| &group.tests).collect();
    let rows = run.rows(&tests);
    let judged = &settings.servers[0].name;
    for peer in &settings.servers[1..] {
        println!("| test | load | {judged}, {0} (1/s) | ratio | CPU for a request (µs) | ratio | remarks |", peer.name);
        println!("|---|---|---|---|---|---|---|");
        rows.iter().filter(|row| row.peer == peer.name).for_each(|row| println!("{}", row.line()));
    }
    if let Some(path) = &settings.json {
        write_json(path, &run.record(name, &rows))?;
    }
    ensure!(run.failures.is_empty(), "{} tests failed: {}", run.failures.len(), run.failures.join("; "));
    Ok(())
}

/// The groups with the tests named in `only`; all when none is named.
fn select(mut groups: Vec<Group>, only: &[String]) -> Result<Vec<Group>> {
    let known = |name: &String| groups.iter().any(|group| group.tests.iter().any(|test| test.name == name));
    for name in only {
        ensure!(known(name), "the suite has no test {name:?}");
    }
    for group in &mut groups {
        group.tests.retain(|test| only.is_empty() || only.iter().any(|name| name == test.name));
    }
    groups.retain(|group| !group.tests.is_empty());
    Ok(groups)
}

struct Run<'a> {
    settings: &'a Settings,
    samples: BTreeMap<&'static str, Vec<Sample>>,
    failures: Vec<String>,
    versions: BTreeMap<String, Value>,
}

impl Run<'_> {
    /// Starts and fills every server, then puts every test of the group on one after the other.
    fn visit(&mut self, round: usize, group: &Group) -> Result<()> {
        let Settings { servers, bench, seconds, .. } = self.settings;
        let mut started = Vec::new();
        for spec in servers {
            let server = start(spec, bench).with_context(|| spec.name.clone())?;
            self.versions.entry(spec.name.clone()).or_insert_with(|| host::describe_server(spec.port));
            self.fill(spec, &group.fills)?;
            started.push((spec, server));
        }
        // Who goes first changes, for what the first one does to the machine.
        if round % 2 == 1 {
            started.reverse();
        }
        for test in &group.tests {
            for load in self.loads(test) {
                for (spec, server) in &started {
                    self.fill(spec, &test.refills)?;
                    let task = Task { requests: test.requests, ..Task::new(&test.command, test.keys) };
                    let seconds = seconds.max(test.least_seconds);
                    match bench.sample(round, (&spec.name, server), load, seconds, task) {
                        Ok(sample) => self.samples.entry(test.name).or_default().push(sample),
                        Err(error) => {
                            self.failures.push(format!("round {round} {} {} {load}: {error:#}", test.name, spec.name));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn fill(&self, spec: &ServerSpec, fills: &[Fill]) -> Result<()> {
        fills.iter().try_for_each(|fill| {
            let filled = self.settings.bench.fill(spec.port, Task::new(&fill.command, fill.keys));
            filled.with_context(|| format!("{}: {}", spec.name, fill.command))
        })
    }

    fn loads(&self, test: &Test) -> Vec<Load> {
        match &self.settings.loads {
            Some(loads) if !test.is_slow => loads.clone(),
            _ => test.loads.clone(),
        }
    }

    fn rows(&self, tests: &[&Test]) -> Vec<Row> {
        let (judged, peers) = self.settings.servers.split_first().expect("at least two servers");
        let mut rows = Vec::new();
        for test in tests {
            let Some(samples) = self.samples.get(test.name) else { continue };
            for load in self.loads(test) {
                let row = |peer: &ServerSpec| Row::of(test, load, samples, &judged.name, &peer.name);
                rows.extend(peers.iter().map(row));
            }
        }
        rows
    }

    fn record(&self, name: &str, rows: &[Row]) -> Value {
        let Settings { servers, rounds, seconds, keys, bench, .. } = self.settings;
        let server = |spec: &ServerSpec| {
            let version = self.versions.get(&spec.name);
            json!({ "name": spec.name, "command": spec.argv, "version": version })
        };
        let samples = |samples: &Vec<Sample>| samples.iter().map(Sample::record).collect::<Vec<_>>();
        json!({
            "measurement": "suite", "suite": name, "host": host::describe(),
            "settings": {
                "rounds": rounds, "seconds": seconds, "keys": keys,
                "server_cpu": bench.server_cpu, "load_cpu": bench.load_cpu,
            },
            "servers": servers.iter().map(server).collect::<Vec<_>>(),
            "summary": rows.iter().map(Row::record).collect::<Vec<_>>(),
            "samples": self.samples.iter().map(|(test, of_test)| (*test, samples(of_test))).collect::<BTreeMap<_, _>>(),
            "failures": self.failures,
        })
    }
}

/// One line of the table: a test under a load, the judged server beside one peer.
struct Row {
    test: &'static str,
    load: Load,
    peer: String,
    asks: Asks,
    rps: [f64; 2],
    throughput: Ratio,
    cpu_us: [f64; 2],
    cpu: Ratio,
    /// The largest of both servers' medians.
    load_cpu: f64,
    others_cpu: f64,
    /// Of all replies of both, the share that said there is nothing.
    nulls: f64,
    /// Share of the batches that were taken by their length, the smaller one.
    by_length: f64,
}

impl Row {
    fn of(test: &Test, load: Load, samples: &[Sample], judged: &str, peer: &str) -> Self {
        let both = [judged, peer];
        let medians = |value: fn(&Sample) -> f64| {
            both.map(|name| middle(samples.iter().filter(|s| s.load == load && s.server == name), value))
        };
        let largest = |value| medians(value).into_iter().fold(0.0, f64::max);
        Self {
            test: test.name,
            load,
            peer: peer.to_owned(),
            asks: test.asks(load),
            rps: medians(|s| s.measured.rps),
            throughput: Ratio::of(samples, load, judged, peer, |s| s.measured.rps),
            cpu_us: medians(|s| s.cpu_us_per_request),
            cpu: Ratio::of(samples, load, judged, peer, |s| s.cpu_us_per_request),
            load_cpu: largest(|s| s.measured.load_cpu),
            others_cpu: largest(|s| s.others_cpu),
            nulls: largest(|s| s.measured.nulls as f64 / s.measured.requests as f64),
            by_length: medians(|s| s.measured.by_length).into_iter().fold(1.0, f64::min),
        }
    }

    fn misses_throughput(&self) -> bool {
        self.asks.throughput.is_some_and(|least| self.throughput.median < least)
    }

    fn misses_cpu(&self) -> bool {
        self.asks.cpu.is_some_and(|most| self.cpu.median > most)
    }

    fn line(&self) -> String {
        let bold = |ratio: &Ratio, missed: bool| {
            let mark = if missed { "**" } else { "" };
            format!("{mark}{:.2}{mark} [{:.2}, {:.2}]", ratio.median, ratio.interval.0, ratio.interval.1)
        };
        format!(
            "| {} | {} | {}, {} | {} | {:.2}, {:.2} | {} | {} |",
            self.test,
            self.load,
            thousands(self.rps[0]),
            thousands(self.rps[1]),
            bold(&self.throughput, self.misses_throughput()),
            self.cpu_us[0],
            self.cpu_us[1],
            bold(&self.cpu, self.misses_cpu()),
            self.remarks().join(", ")
        )
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.misses_throughput() {
            remarks.push(format!("asked {}", self.asks.throughput.unwrap_or_default()));
        }
        if self.misses_cpu() {
            remarks.push(format!("CPU asked {}", self.asks.cpu.unwrap_or_default()));
        }
        if self.by_length < 0.995 {
            remarks.push("counted".to_owned());
        }
        if self.nulls > 0.001 {
            remarks.push(format!("{:.0} % nil", self.nulls * 100.0));
        }
        if self.load_cpu > CLIENT_BOUND {
            remarks.push(format!("load {:.2}", self.load_cpu));
        }
        if self.others_cpu > DISTURBED {
            remarks.push(format!("disturbed {:.2}", self.others_cpu));
        }
        remarks
    }

    fn record(&self) -> Value {
        json!({
            "test": self.test, "load": self.load.to_string(), "peer": self.peer, "rps": self.rps,
            "ratio": self.throughput.record(), "cpu_us_per_request": self.cpu_us, "cpu_ratio": self.cpu.record(),
            "asked_ratio": self.asks.throughput, "asked_cpu_ratio": self.asks.cpu,
            "missed": self.misses_throughput() || self.misses_cpu(), "nulls": self.nulls,
            "load_cpu": self.load_cpu, "others_cpu": self.others_cpu, "by_length": self.by_length,
        })
    }
}

fn thousands(rps: f64) -> String {
    if rps < 10_000.0 { format!("{rps:.0}") } else { format!("{:.0} K", rps / 1000.0) }
}

#[cfg(test)]
mod row_tests {
    use super::*;
    use crate::load::Measured;

    fn sample(server: &str, rps: f64, cpu_us_per_request: f64) -> Sample {
        let measured = Measured::from_line(&format!("{rps} 1 2 3 4 10 0.95 0.5 5 0")).expect("a load's line");
        let load = Load { connections: 50, pipeline: 16 };
        Sample {
            round: 0,
            server: server.to_owned(),
            load,
            measured,
            cpu_us_per_request,
            others_cpu: 0.0,
            beside_rps: None,
        }
    }

    #[test]
    fn a_row_marks_what_it_misses_and_what_makes_it_doubtful() {
        let groups = tests::suite("redis-benchmark", None).expect("known");
        let get = groups.iter().flat_map(|group| &group.tests).find(|test| test.name == "GET").expect("is there");
        assert_eq!((thousands(9_999.0), thousands(10_000.0)), ("9999".to_owned(), "10 K".to_owned()));
        let samples = [sample("a", 3_000_000.0, 0.5), sample("b", 2_000_000.0, 1.0)];
        let row = Row::of(get, samples[0].load, &samples, "a", "b");
        assert_eq!(
            row.line(),
            "| GET | 50:16 | 3000 K, 2000 K | **1.50** [1.50, 1.50] | 0.50, 1.00 | 0.50 [0.50, 0.50] | \
             asked 1.8, counted, 50 % nil, load 0.95 |"
        );
    }

    #[test]
    fn tests_are_selected_by_name() {
        let groups = || tests::suite("large", None).expect("known");
        let picked = select(groups(), &["SORT".to_owned()]).expect("known");
        assert_eq!((picked.len(), picked[0].tests.len(), picked[0].tests[0].name), (1, 1, "SORT"));
        assert!(select(groups(), &["SORTED".to_owned()]).is_err());
        assert!(tests::suite("small", None).is_err());
    }
}
