//! Runs the scripts of `tests/wire` against a server binary, once per I/O engine, a share of them under the I/O models of the
//! papers as well, and prints what was run.
//!
//! | environment | meaning |
//! |---|---|
//! | `GIMMAL_SERVER` | the server's binary; without it `release/gimmal-server` of the target directory, if it is there |
//! | `WIRE_ENGINES` | engines to run, `uring,epoll` by default, or arguments of the server such as `--io-model queue`; what is named here must start, and runs all scripts |
//! | `WIRE_ORACLE` | a Redis to run instead, which checks the scripts themselves |
//! | `WIRE_BLESS` | fills each `?` of the scripts with the reply |
//!
//! Arguments select scripts by a part of their name. It has a `main` of its own, so that what was not run is said.

#![allow(clippy::print_stdout, reason = "this is a test runner")]

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use gimmal_lab::process::{ServerProcess, ServerSpec};
use gimmal_lab::wire::{Audience, Blank, Script, TcpNetwork, missing_command, reset, run_case};

fn main() -> ExitCode {
    match run() {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("wire: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Tally> {
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut tally = Tally::default();
    for target in targets(&mut tally)? {
        for path in scripts(&filters)?.into_iter().filter(|path| target.runs(path)) {
            target.run(&path, &mut tally).with_context(|| path.display().to_string())?;
        }
    }
    for reason in &tally.not_run {
        println!("wire: not run: {reason}");
    }
    println!("wire: {} passed, {} failed, {} not run", tally.passed, tally.failed, tally.not_run.len());
    Ok(tally)
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    not_run: Vec<String>,
}

/// A server that scripts are run against.
struct Target {
    name: String,
    program: String,
    args: Vec<String>,
    is_oracle: bool,
    /// Runs only [`SHARE`].
    runs_share: bool,
}

/// The papers' models, which run a share of the scripts.
const MODELS: &[&str] = &[
    "--io-engine epoll --epoll-trigger level --epoll-flush command",
    "--io-engine uring-send",
    "--io-engine uring-send --uring-order kernel",
    "--io-model phases --io-threads 3 --io-threads-do-reads yes",
    "--io-model queue --reply-queue lock",
    "--io-model queue --reply-queue ms --reply-threads 2",
    "--io-model queue --reply-queue distributed --reply-queue-partial 4 --reply-threads 2",
];
/// What is about connections more than about commands.
const SHARE: &[&str] =
    &["blocking.txt", "connection.txt", "large.txt", "protocol.txt", "pubsub.txt", "transaction.txt"];

/// The servers to run: the oracle, or Gimmal with each engine that starts here.
fn targets(tally: &mut Tally) -> Result<Vec<Target>> {
    if let Ok(program) = std::env::var("WIRE_ORACLE") {
        return Ok(vec![Target {
            name: "oracle".to_owned(),
            program,
            args: Vec::new(),
            is_oracle: true,
            runs_share: false,
        }]);
    }
    let Some(program) = server_binary()? else {
        tally.not_run.push("no server binary (cargo build --release builds it, GIMMAL_SERVER names it)".to_owned());
        return Ok(Vec::new());
    };
    let named = std::env::var("WIRE_ENGINES").ok();
    let mut targets = Vec::new();
    let engines = named.as_deref().unwrap_or("uring,epoll").split(',').map(|engine| (engine, false));
    let models = MODELS.iter().filter(|_| named.is_none()).map(|model| (*model, true));
    for (engine, runs_share) in engines.chain(models) {
        let given = if engine.starts_with("--") { engine.to_owned() } else { format!("--io-engine {engine}") };
        let args = given.split_whitespace().map(str::to_owned).collect();
        let target = Target { name: engine.to_owned(), program: program.clone(), args, is_oracle: false, runs_share };
        match target.start(&[]) {
            Ok(_) => targets.push(target),
            Err(error) if named.is_none() && engine.contains("uring") => {
                tally.not_run.push(format!("the engine {engine} does not start here: {error:#}"));
            }
            Err(error) => return Err(error).context(format!("the engine {engine}")),
        }
    }
    Ok(targets)
}

fn server_binary() -> Result<Option<String>> {
    if let Ok(named) = std::env::var("GIMMAL_SERVER") {
        ensure!(Path::new(&named).exists(), "GIMMAL_SERVER names {named}, which does not exist");
        return Ok(Some(named));
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("a target directory")?;
    let built = target.join("release/gimmal-server");
    Ok(built.exists().then(|| built.display().to_string()))
}

fn scripts(filters: &[String]) -> Result<Vec<PathBuf>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wire");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".txt") && (filters.is_empty() || filters.iter().any(|part| name.contains(part))) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

impl Target {
    fn runs(&self, script: &Path) -> bool {
        !self.runs_share || SHARE.iter().any(|name| script.ends_with(name))
    }

    fn start(&self, script_args: &[String]) -> Result<ServerProcess> {
        let port = free_port()?;
        let mut argv = vec![self.program.clone(), "--port".into(), port.to_string()];
        argv.extend(["--save", "", "--appendonly", "no"].map(str::to_owned));
        argv.extend(self.args.iter().chain(script_args).cloned());
        let spec = ServerSpec { name: self.name.clone(), port, argv };
        ServerProcess::start(&spec, None, &std::env::temp_dir())
    }

    fn run(&self, path: &Path, tally: &mut Tally) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(path)?;
        let script = Script::parse(&name, &text)?;
        let mut server = self.start(&script.server_args)?;
        let mut blanks = Vec::new();
        let (passed_before, failed_before) = (tally.passed, tally.failed);
        for case in &script.cases {
            if self.is_oracle && case.audience == Audience::Gimmal {
                tally.not_run.push(format!("{name}:{}: {}: only Gimmal has it", case.line, case.title));
                continue;
            }
            let missing = missing_command(&mut TcpNetwork { port: server.port() }, &script, case);
            if let Ok(Some(command)) = missing {
                tally.not_run.push(format!("{} {name}:{}: {}: no {command} yet", self.name, case.line, case.title));
                continue;
            }
            for &protocol in &case.protocols {
                // A server started anew is as good as an empty one, if it has no FLUSHALL or died in the case before.
                if reset(&mut TcpNetwork { port: server.port() }, &script).is_err() {
                    server = self.start(&script.server_args)?;
                }
                let mut network = TcpNetwork { port: server.port() };
                match run_case(&mut network, case, protocol) {
                    Ok(filled) => {
                        tally.passed += 1;
                        blanks.extend(filled);
                    }
                    Err(failure) => {
                        tally.failed += 1;
                        let line = text.lines().nth(failure.line.wrapping_sub(1)).unwrap_or_default();
                        println!("{} {protocol} {name}:{}: {}", self.name, failure.line, case.title);
                        println!("    {line}\n    {}", failure.message);
                    }
                }
            }
        }
        let (passed, failed) = (tally.passed - passed_before, tally.failed - failed_before);
        println!("wire {:7} {name:24} {passed} passed, {failed} failed", self.name);
        settle_blanks(path, &text, &blanks)
    }
}

/// Blanks are for writing scripts: they are filled on request, and nothing passes while one is left.
fn settle_blanks(path: &Path, text: &str, blanks: &[Blank]) -> Result<()> {
    let bless = std::env::var_os("WIRE_BLESS").is_some();
    ensure!(bless || blanks.is_empty(), "{} blanks (?) in {}", blanks.len(), path.display());
    if blanks.is_empty() {
        return Ok(());
    }
    let by_line: BTreeMap<usize, &str> = blanks.iter().map(|blank| (blank.line, blank.pattern.as_str())).collect();
    let fill = |(at, line): (usize, &str)| match (by_line.get(&(at + 1)), line.strip_suffix('?')) {
        (Some(pattern), Some(start)) => format!("{start}{pattern}\n"),
        _ => format!("{line}\n"),
    };
    fs::write(path, text.lines().enumerate().map(fill).collect::<String>())?;
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
