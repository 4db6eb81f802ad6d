//! `gimmal-crashfs MOUNTPOINT --control SOCKET`: mounts the file system until SIGTERM, SIGINT or unmount.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it says that it is ready")]

use std::path::PathBuf;

use anyhow::{Context, Result};
use gimmal_crashfs::{CrashFs, Options, control};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const USAGE: &str = "usage: gimmal-crashfs MOUNTPOINT [--control SOCKET] [--personality strict-posix|ext4-like]
                      [--capacity BYTES] [--no-recording]";

fn main() -> Result<()> {
    let mut options = Options::default();
    let (mut dir, mut socket) = (None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        use lexopt::prelude::*;
        match argument {
            Value(value) if dir.is_none() => dir = Some(PathBuf::from(value)),
            Long("control") => socket = Some(PathBuf::from(parser.value()?)),
            Long("personality") => options.personality = parser.value()?.parse()?,
            Long("capacity") => options.capacity_bytes = parser.value()?.parse()?,
            Long("no-recording") => options.is_recording = false,
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            _ => return Err(argument.unexpected()).context(USAGE),
        }
    }
    let dir = dir.context(USAGE)?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let fs = CrashFs::new(options)?;
    let mounted = fs.mount(&dir).with_context(|| format!("cannot mount on {}", dir.display()))?;
    if let Some(socket) = &socket {
        control::serve(&fs, socket).with_context(|| socket.display().to_string())?;
    }
    println!("mounted on {}", dir.display());
    signals.forever().next();
    drop(mounted);
    if let Some(socket) = socket {
        std::fs::remove_file(socket)?;
    }
    Ok(())
}
