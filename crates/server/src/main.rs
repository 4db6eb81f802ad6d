//! `gimmal-server [/path/to/redis.conf] [--directive value …]`: starts the server as `redis-server` users expect.

use gimmal_server::{config, start};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let loaded = match config::load(&args) {
        Ok(config::Invocation::Run(loaded)) => loaded,
        Ok(config::Invocation::Print(text)) => {
            print(&text);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match start::run(*loaded) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            gimmal_server::warning!("{error}");
            eprintln!("gimmal-server: {error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "--version and --help answer on standard output")]
fn print(text: &str) {
    println!("{text}");
}
