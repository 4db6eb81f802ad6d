//! The checker's proof on a server that exists: Redis with `appendfsync always` loses nothing, and with weaker settings,
//! or a fault that it does not survive, is caught losing.
//!
//! It has a `main` of its own, so that without FUSE or redis-server every case is reported as not run.

#![allow(clippy::print_stdout, reason = "this is a test runner")]

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use gimmal_crashfs::durability::check::Property;
use gimmal_crashfs::durability::run::Plan;
use gimmal_crashfs::{CrashFs, Options, Personality, Policy};

/// Fewer say nothing.
const ENOUGH_WRITES: u64 = 100;
/// How often a case is tried that found too little.
const SEEDS: u64 = 4;

/// A case: its name, how the plan differs, and the properties one of which must be broken, if any.
struct Case {
    name: &'static str,
    appendfsync: &'static str,
    change: fn(&mut Plan),
    broken: &'static [Property],
}

const CASES: &[Case] = &[
    Case { name: "always keeps all", appendfsync: "always", change: |_| {}, broken: &[] },
    Case {
        name: "always keeps all through rewrites",
        appendfsync: "always",
        change: |plan| plan.commands.push((Duration::from_millis(150), "BGREWRITEAOF".to_owned())),
        broken: &[],
    },
    Case {
        name: "everysec loses what it acknowledged and showed",
        appendfsync: "everysec",
        change: |_| {},
        broken: &[Property::P1Durable, Property::P4Observed],
    },
    // Without the checks for EIO and for a full disk that it has, it would go on and lose.
    Case {
        name: "always ends at the first failed fsync and keeps all",
        appendfsync: "always",
        change: |plan| {
            plan.rules.push("fsync error=EIO nth=150 name=.aof".parse().expect("a rule"));
            plan.again_every = 0;
        },
        broken: &[],
    },
    Case {
        name: "always ends on a full disk and keeps all",
        appendfsync: "always",
        change: |plan| {
            plan.capacity_bytes = 400_000;
            plan.again_every = 0;
        },
        broken: &[],
    },
    Case {
        name: "always on a disk that lies loses",
        appendfsync: "always",
        change: |plan| plan.rules.push("fsync lie".parse().expect("a rule")),
        broken: &[Property::P1Durable, Property::P4Observed],
    },
    // It returns to its loop before the fsync while a child saves.
    Case {
        name: "always with no-appendfsync-on-rewrite loses",
        appendfsync: "always",
        change: |plan| {
            plan.subject.argv.extend(["--no-appendfsync-on-rewrite", "yes"].map(str::to_owned));
            plan.commands.push((Duration::from_millis(50), "BGSAVE".to_owned()));
            plan.policies = vec![Policy::DropAll];
            plan.again_every = 0;
        },
        broken: &[Property::P1Durable],
    },
    // It never syncs the directory in which it makes that of its logs: what no journal saves is lost with it.
    Case {
        name: "always loses on a file system that promises only what POSIX does",
        appendfsync: "always",
        change: |plan| {
            plan.personality = Personality::StrictPosix;
            plan.policies = vec![Policy::DropAll];
        },
        broken: &[Property::P1Durable],
    },
    Case {
        name: "a flipped bit is served",
        appendfsync: "always",
        change: |plan| {
            plan.damage_every = 1;
            plan.cuts = 60;
            plan.duration = Duration::from_millis(100);
        },
        broken: &[Property::P8Honest],
    },
];

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let (mut passed, mut failed) = (0, 0);
    let obstacle = obstacle();
    for case in CASES.iter().filter(|case| filters.iter().all(|filter| case.name.contains(filter.as_str()))) {
        if let Some(reason) = &obstacle {
            println!("durability: not run: {}: {reason}", case.name);
            continue;
        }
        match case.run() {
            Ok(summary) => {
                println!("case {} ... ok: {summary}", case.name);
                passed += 1;
            }
            Err(error) => {
                println!("case {} ... FAILED: {error}", case.name);
                failed += 1;
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Case {
    fn run(&self) -> Result<String, String> {
        let line = "redis-server --bind 127.0.0.1 --port {port} --dir {dir} --appendonly yes --save";
        let mut argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        argv.extend(["", "--appendfsync", self.appendfsync].map(str::to_owned));
        let mut plan = Plan::new(argv);
        plan.duration = Duration::from_millis(600);
        plan.cuts = 27;
        (self.change)(&mut plan);
        loop {
            let report = plan.run().map_err(|error| format!("{error:#}"))?;
            let (is_kept, is_busy) = (report.is_kept(), report.acknowledged_writes > ENOUGH_WRITES);
            let is_right = match self.broken {
                [] => is_kept,
                properties => properties.iter().all(|property| report.broken.contains_key(property)),
            };
            let examples = report.examples.iter().map(|(cut, lost)| format!("\n  {cut}: {}", lost[0]));
            let told = || format!("{}{}", report.summary(), examples.collect::<String>());
            // What is lost but once is lost. What was to be lost may have been missed by all cuts of a short load, and a
            // machine that stands still lets hardly anything happen.
            let is_lost = self.broken.is_empty() && !is_kept;
            if is_lost || is_right && is_busy {
                return if is_right { Ok(report.summary()) } else { Err(told()) };
            }
            if plan.seed >= SEEDS {
                return Err(told());
            }
            plan.seed += 1;
            println!("case {}: once more, with seed {}: {}", self.name, plan.seed, report.summary());
        }
    }
}

fn obstacle() -> Option<String> {
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Some("there is no redis-server here".to_owned());
    }
    let dir = std::env::temp_dir().join(format!("crashfs-probe-{}", std::process::id()));
    let mounted = std::fs::create_dir_all(&dir).and_then(|()| CrashFs::new(Options::default())?.mount(&dir)?.unmount());
    let removed = std::fs::remove_dir(&dir);
    mounted.and(removed).err().map(|error| error.to_string())
}
