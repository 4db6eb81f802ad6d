//! `gimmal-bench`: measures RESP servers over TCP.
//!
//! `--limit`, `--probe`, `--fairness`, `--memory`, `--models`, `--steps`, `--snapshot` and `--differential` are what people call. `limit-server` and `load` are the processes that a
//! limit run starts; they are as usable by hand.

#![allow(clippy::print_stdout, reason = "help and results go to standard output")]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use gimmal_lab::{differential, fairness, limit, limit_server, load, memory, models, probe, snapshot, steps};
use lexopt::prelude::*;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gimmal-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = lexopt::Parser::from_env();
    match args.next()? {
        Some(Long("limit")) => limit::run(&limit::Settings::parse(&mut args)?),
        Some(Long("probe")) => probe::run(&probe::Settings::parse(&mut args)?),
        Some(Long("fairness")) => fairness::run(&fairness::Settings::parse(&mut args)?),
        Some(Long("memory")) => memory::run(&memory::Settings::parse(&mut args)?),
        Some(Long("models")) => models::run(&models::Settings::parse(&mut args)?),
        Some(Long("steps")) => steps::run(&steps::Settings::parse(&mut args)?),
        Some(Long("snapshot")) => snapshot::run(&snapshot::Settings::parse(&mut args)?),
        Some(Long("differential")) => differential::run(&differential::Settings::parse(&mut args)?),
        Some(Value(role)) if role == "limit-server" => {
            let port = args.value().context("limit-server PORT REPLY_BYTES")?.parse()?;
            let reply_bytes: i64 = args.value().context("limit-server PORT REPLY_BYTES")?.parse()?;
            limit_server::run(port, usize::try_from(reply_bytes).ok())
        }
        Some(Value(role)) if role == "load" => {
            let words = args.raw_args()?.map(|word| word.string()).collect::<Result<Vec<_>, _>>()?;
            load::main(&words)
        }
        Some(Long("help") | Short('h')) => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("{}\n{USAGE}", other.unexpected()),
        None => bail!("nothing to do\n{USAGE}"),
    }
}

const USAGE: &str = "\
usage: gimmal-bench --limit  [--server 'NAME|PORT|COMMAND LINE']... [--loads 50:1,50:16] [--rounds 15]
                             [--seconds 0.7] [--command 'GET key:__KEY__'] [--setup 'SET key:__KEY__ __V64__']
                             [--keys 100000] [--reply 64] [--accept-errors] [--server-cpu 0] [--load-cpu 1] [--json FILE]
                             [--beside '8:1 SET key:__KEY__ __V64__']
       gimmal-bench --limit  --suite redis-benchmark | large  --server 'NAME|PORT|COMMAND LINE'...
                             [--only GET,SET] [--keys 0] [--loads 50:1,50:16] [--rounds 15] [--seconds 0.7] [--json FILE]
       gimmal-bench --probe  --port PORT | --server 'NAME|PORT|COMMAND LINE'  [--rate 1000] [--connections 10]
                             [--seconds 10] [--command 'GET key:__KEY__'] [--setup COMMAND] [--keys 100000]
                             [--server-cpu CPU] [--load-cpu CPU] [--json FILE]
       gimmal-bench --fairness --server 'NAME|PORT|COMMAND LINE'  [--seconds 10] [--pipeline 1000000]
                             [--value 104857600] [--keys 5000000] [--server-cpu CPU] [--json FILE]
       gimmal-bench --memory --server 'NAME|PORT|COMMAND LINE'... [--keys 1000000] [--sizes 16:8,16:64]
                             [--connections 1000] [--overwriters 0] [--json FILE]
       gimmal-bench --models [--server gimmal-server] [--only 'S4, S6;S14'] [--sizes 64,512,4096,65536,2097152] [--connections 50,500]
                             [--pipelines 1,16] [--rounds 15] [--seconds 0.3] [--server-cpu 0] [--load-cpu 1] [--json FILE]
       gimmal-bench --steps --server 'NAME|PORT|COMMAND LINE'  [--all 10000000] [--many 1000000] [--only list,set] [--rounds 1]
       gimmal-bench --snapshot --server 'NAME|PORT|COMMAND LINE'...  [--keys 5000000] [--writes 50000] [--probes 1000]
                             [--seconds 10] [--rounds 3] [--json FILE]
       gimmal-bench --differential [--commands 1000000] [--seed 1] [--length 3000] [--resp2 | --resp3]
                             [--groups string,hash] [--differences 10] [--from DIRECTORY]
                             [--redis 'redis-server'] [--server 'gimmal-server']
       gimmal-bench limit-server PORT REPLY_BYTES                        (-1: answers +OK)
       gimmal-bench load [--requests N] [--accept-errors] PORT CONNECTIONS PIPELINE SECONDS KEYS COMMAND...
                             (SECONDS 0: once for each key)
In a COMMAND __KEY__ is one of KEYS 12-digit numbers (__rand_int__ too, drawn wherever it stands), __N+9__ that number
plus 9 without leading zeros, __V64__ a value of 64 bytes; commands with __THEN__ between them are sent in turn. The first --server of --limit is the one that is judged; without any, the limit server is run against itself, which shows the machine's own noise.";
