//! The control of a mounted file system by another process: lines on a Unix socket, one reply line each.
//!
//! | request | does |
//! |---|---|
//! | `rule EVENT EFFECT [name=PART] [skip=N] [nth=N] [times=N]` | adds a fault (see [`crate::Rule`]) |
//! | `clear` | ends all faults and what is stuck |
//! | `capacity BYTES` | how much it holds |
//! | `position` | `ok N`: how many operations were done |
//! | `statistics` | `ok writes=N …` |
//! | `off` | the power goes: everything fails from now on |
//! | `cut SEED POLICY DIR [POSITION]` | writes what a cut now, or at that position, leaves into DIR |
//!
//! A reply is `ok …` or `error …`.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::cut::{Image, Policy};
use crate::fs::CrashFs;

/// Serves `path` until the process ends; each client has a thread.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(fs: &CrashFs, path: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let fs = fs.clone();
    std::thread::Builder::new().name("crashfs-control".to_owned()).spawn(move || {
        for client in listener.incoming().flatten() {
            let fs = fs.clone();
            // A client that goes away ends its own thread only.
            std::thread::spawn(move || drop(converse(&fs, &client)));
        }
    })?;
    Ok(())
}

fn converse(fs: &CrashFs, client: &UnixStream) -> io::Result<()> {
    let mut out = client;
    for line in BufReader::new(client).lines() {
        let reply = match run(fs, &line?) {
            Ok(text) if text.is_empty() => "ok\n".to_owned(),
            Ok(text) => format!("ok {text}\n"),
            Err(text) => format!("error {}\n", text.replace('\n', " ")),
        };
        out.write_all(reply.as_bytes())?;
    }
    Ok(())
}

/// Does one request.
///
/// # Errors
/// What is wrong with it, as a line.
pub fn run(fs: &CrashFs, line: &str) -> Result<String, String> {
    let (command, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    match command {
        "rule" => fs.add_rule(rest.parse()?),
        "clear" => fs.clear_rules(),
        "capacity" => fs.set_capacity(number(rest)?),
        "position" => return Ok(fs.position().to_string()),
        "statistics" => {
            let counts = fs.statistics();
            return Ok(format!(
                "writes={} written_bytes={} syncs={} synced_writes={} directory_syncs={} faults={}",
                counts.writes,
                counts.written_bytes,
                counts.syncs,
                counts.synced_writes,
                counts.directory_syncs,
                counts.faults
            ));
        }
        "off" => fs.power_off(),
        "cut" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let (seed, policy, dir, position) = match words[..] {
                [seed, policy, dir] => (seed, policy, dir, None),
                [seed, policy, dir, position] => (seed, policy, dir, Some(number(position)?)),
                _ => return Err("usage: cut SEED POLICY DIR [POSITION]".to_owned()),
            };
            let (seed, policy) = (number(seed)?, policy.parse::<Policy>()?);
            let image = match position {
                None => Image::cut(&fs.state(), seed, policy),
                Some(position) => {
                    let recording = fs.recording().ok_or("nothing is recorded")?;
                    Image::cut(recording.replay().state_at(position), seed, policy)
                }
            };
            image.write_to(Path::new(dir)).map_err(|error| format!("{dir}: {error}"))?;
        }
        _ => return Err(format!("there is no request {command:?}")),
    }
    Ok(String::new())
}
