//! Measures a load: starts a server in this process, loads a snapshot or (as `--aof`) a file of commands, and says how long
//! that took: `load [--workers N] [--aof] FILE`.

#![allow(clippy::print_stdout, reason = "it answers on standard output")]

use gimmal_log::aof::{RealDisk, RespFile};
use gimmal_server::config;
use gimmal_server::persist::load::{self, Replay};
use gimmal_server::shared::Shared;
use gimmal_server::start::{EngineChoice, Server};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.pop().ok_or("usage: load [--workers N] [--aof] FILE")?;
    let commands = arguments.iter().position(|word| word == "--aof").map(|at| arguments.remove(at)).is_some();
    arguments.extend(["--save", "", "--port", "0"].map(str::to_owned));
    let loaded = config::read(&arguments).map_err(|error| error.to_string())?;
    gimmal_store::Allocator::bound_heaps();
    let server = Server::start(loaded.config, EngineChoice::Epoll, Vec::new())?;
    let path = Path::new(&file);
    let started = Instant::now();
    load::begin(&server.shared, std::fs::metadata(path)?.len());
    let outcome = match commands {
        true => replay(&server.shared, path),
        false => load::snapshot(&server.shared, path, false).map(|_| ()).map_err(Box::from),
    };
    load::end(&server.shared);
    println!("{file}: {:.3} seconds", started.elapsed().as_secs_f64());
    server.shared.stop();
    // The process ends with its memory.
    std::mem::forget(server.shared.clone());
    server.wait()?;
    outcome
}

fn replay(shared: &Arc<Shared>, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut file = RespFile::open(&RealDisk, path, 0).map_err(|error| format!("{error:?}"))?;
    let mut replay = Replay::new(shared);
    let mut begins = true;
    while let Some(bytes) = file.next_commands()? {
        replay.feed(bytes, None, std::mem::take(&mut begins))?;
    }
    let replayed = replay.finish()?;
    println!("{} commands, {} errors", replayed.commands, replayed.errors);
    Ok(())
}
