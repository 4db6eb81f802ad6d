//! `gimmal-server [/path/to/redis.conf] [--directive value …]`: starts the server as `redis-server` users expect.

use gimmal_server::persist::load::check;
use gimmal_server::{config, start};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().collect();
    let program = if args.is_empty() { String::new() } else { args.remove(0) };
    if let Some((text, sound)) = check::asked(&program, &args) {
        print(text.trim_end());
        return if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
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

#[allow(clippy::print_stdout, reason = "--version, --help and checks of files answer on standard output")]
fn print(text: &str) {
    println!("{text}");
}
