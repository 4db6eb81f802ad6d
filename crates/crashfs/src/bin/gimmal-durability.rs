//! `gimmal-durability [options] -- COMMAND…`: whether a server keeps what it acknowledges when the power goes.
//!
//! In the command line `{dir}` is the directory of its files and `{port}` the port to listen on.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it prints what it found")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gimmal_crashfs::durability::run::Plan;
use lexopt::prelude::*;

const USAGE: &str =
    "usage: gimmal-durability [--seconds N] [--cuts N | --every-step] [--writers N] [--readers N] [--pipeline N] [--keys N]
                         [--personality strict-posix|ext4-like] [--policies POLICY,...] [--again-every N]
                         [--damage-every N] [--every MS:COMMAND] [--rule RULE] [--capacity BYTES] [--keep DIR]
                         [--allow-refusal] [--seed N] [--scratch DIR] [--expect kept|lost|P1,P4,...]
                         -- COMMAND {dir} {port} ...";

/// What must come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Nothing is broken.
    Kept,
    /// Something is.
    Lost,
    /// One of the properties is that the plan seeks.
    Broken,
}

fn main() -> Result<ExitCode> {
    let (plan, expected) = arguments()?;
    let report = plan.run()?;
    for (cut, violations) in &report.examples {
        println!("{cut}:");
        for violation in violations.iter().take(5) {
            println!("  {violation}");
        }
        if violations.len() > 5 {
            println!("  … and {} more", violations.len() - 5);
        }
    }
    println!("durability: {}", report.summary());
    let is_as_expected = match expected {
        Expected::Kept => report.is_kept(),
        Expected::Lost => !report.is_kept(),
        Expected::Broken => report.is_caught(&plan.sought),
    };
    Ok(if is_as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn arguments() -> Result<(Plan, Expected)> {
    let mut plan = Plan::new(Vec::new());
    let mut expected = Expected::Kept;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => plan.duration = Duration::from_secs_f64(parser.value()?.parse()?),
            Long("cuts") => plan.cuts = parser.value()?.parse()?,
            Long("every-step") => plan.is_every_step = true,
            Long("writers") => plan.clients.0 = parser.value()?.parse()?,
            Long("readers") => plan.clients.1 = parser.value()?.parse()?,
            Long("pipeline") => plan.pipeline = parser.value()?.parse()?,
            Long("keys") => plan.keys = parser.value()?.parse()?,
            Long("personality") => plan.personality = parser.value()?.parse()?,
            Long("policies") => {
                let list = parser.value()?.string()?;
                plan.policies =
                    list.split(',').map(str::parse).collect::<Result<_, String>>().map_err(anyhow::Error::msg)?;
            }
            Long("again-every") => plan.again_every = parser.value()?.parse()?,
            Long("damage-every") => plan.damage_every = parser.value()?.parse()?,
            Long("every") => {
                let text = parser.value()?.string()?;
                let (time_ms, command) = text.split_once(':').with_context(|| format!("{text:?} is not MS:COMMAND"))?;
                plan.commands.push((Duration::from_millis(time_ms.parse()?), command.to_owned()));
            }
            Long("rule") => plan.rules.push(parser.value()?.parse()?),
            Long("capacity") => plan.capacity_bytes = parser.value()?.parse()?,
            Long("keep") => plan.keep = Some(parser.value()?.into()),
            Long("allow-refusal") => plan.is_refusal_allowed = true,
            Long("seed") => plan.seed = parser.value()?.parse()?,
            Long("scratch") => plan.scratch = parser.value()?.into(),
            Long("expect") => {
                let text = parser.value()?.string()?;
                expected = match text.as_str() {
                    "kept" => Expected::Kept,
                    "lost" => Expected::Lost,
                    list => {
                        let sought = list.split(',').map(str::parse).collect::<Result<_, String>>();
                        plan.sought = sought.map_err(anyhow::Error::msg)?;
                        Expected::Broken
                    }
                };
            }
            Value(word) => {
                plan.subject.argv.push(word.string()?);
                for word in parser.raw_args()? {
                    plan.subject.argv.push(word.string()?);
                }
            }
            _ => return Err(argument.unexpected()).context(USAGE),
        }
    }
    ensure!(!plan.subject.argv.is_empty(), USAGE);
    ensure!(plan.keys > 0 && plan.pipeline > 0 && plan.clients.0 > 0, "there must be keys, a pipeline and writers");
    Ok((plan, expected))
}
