//! Resident memory per key and per idle connection.
//!
//! Each figure comes from a server started anew: what it holds right after start is subtracted, so code, tables of
//! commands and preallocated buffers do not count. RSS is what the kernel gives, allocator slack included, which is
//! what a user pays.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::limit::write_json;
use crate::load::{self, Shape, await_replies};
use crate::process::{ServerProcess, ServerSpec};
use crate::template::Template;
use crate::{host, sys};

/// Measures every server in turn, prints a line for each figure and writes the record.
pub fn run(settings: &Settings) -> Result<()> {
    let mut figures = Vec::new();
    for spec in &settings.servers {
        for &size in &settings.sizes {
            figures.push(per_key(spec, size, settings.keys).with_context(|| spec.name.clone())?);
        }
        if settings.overwriters > 0 {
            for &size in &settings.sizes {
                figures.push(overwritten(spec, size, settings).with_context(|| spec.name.clone())?);
            }
        }
        if settings.connections > 0 {
            figures.push(per_connection(spec, settings.connections).with_context(|| spec.name.clone())?);
        }
    }
    if let Some(path) = &settings.json {
        write_json(path, &json!({ "measurement": "memory", "host": host::describe(), "figures": figures }))?;
    }
    Ok(())
}

/// What to measure; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    servers: Vec<ServerSpec>,
    keys: u64,
    sizes: Vec<Size>,
    connections: usize,
    overwriters: usize,
    json: Option<PathBuf>,
}

/// Bytes of a key and of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    key: usize,
    value: usize,
}

impl Settings {
    /// Reads the options behind `--memory`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let sizes = parse_sizes("16:8,16:64")?;
        let mut settings =
            Self { servers: Vec::new(), keys: 1_000_000, sizes, connections: 1000, overwriters: 0, json: None };
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => settings.servers.push(args.value()?.string()?.parse()?),
                Long("keys") => settings.keys = args.value()?.parse()?,
                Long("sizes") => settings.sizes = parse_sizes(&args.value()?.string()?)?,
                Long("connections") => settings.connections = args.value()?.parse()?,
                Long("overwriters") => settings.overwriters = args.value()?.parse()?,
                Long("json") => settings.json = Some(args.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(!settings.servers.is_empty(), "--memory needs a --server");
        ensure!(settings.keys > 0, "at least one key");
        Ok(settings)
    }
}

/// A key's number takes this much of the key.
const KEY_DIGITS: usize = 12;

fn parse_sizes(text: &str) -> Result<Vec<Size>> {
    let size = |word: &str| {
        let (key, value) = word.split_once(':').context("a size is KEY_BYTES:VALUE_BYTES")?;
        let size = Size { key: key.parse()?, value: value.parse()? };
        ensure!(size.key >= KEY_DIGITS, "keys have at least {KEY_DIGITS} bytes");
        Ok(size)
    };
    text.split(',').map(size).collect()
}

fn per_key(spec: &ServerSpec, size: Size, keys: u64) -> Result<Value> {
    let server = ServerProcess::start(spec, None, &std::env::temp_dir())?;
    settle();
    let before = server.rss_bytes()?;
    let line = format!("SET {}__KEY__ __V{}__", "k".repeat(size.key - KEY_DIGITS), size.value);
    let command = Template::parse(&line)?;
    load::fill(&Shape::new(spec.port, 1, 100, keys, command))?;
    settle();
    let grown = server.rss_bytes()?.saturating_sub(before) as f64;
    let each = grown / keys as f64;
    let overhead = each - (size.key + size.value) as f64;
    println!(
        "memory {:14} {keys} keys of {} + {} bytes: {each:.1} bytes each, {overhead:.1} beside key and value",
        spec.name, size.key, size.value
    );
    Ok(json!({
        "server": spec.name, "command": spec.argv, "version": host::describe_server(spec.port),
        "keys": keys, "key_bytes": size.key, "value_bytes": size.value,
        "bytes_per_key": each, "overhead_per_key": overhead, "rss_empty_bytes": before,
    }))
}

/// What stays resident when the keys that one connection has filled are overwritten by several, with values of twice the length
/// and then of the first again: values are freed by other threads than made them, and that must not pile up.
fn overwritten(spec: &ServerSpec, size: Size, settings: &Settings) -> Result<Value> {
    let server = ServerProcess::start(spec, None, &std::env::temp_dir())?;
    let fill = |connections: usize, value: usize| -> Result<u64> {
        let line = format!("SET {}__KEY__ __V{value}__", "k".repeat(size.key - KEY_DIGITS));
        let command = Template::parse(&line)?;
        let shape = Shape::new(spec.port, connections, 100, settings.keys, command);
        let part = |number: usize| settings.keys * number as u64 / connections as u64;
        std::thread::scope(|scope| {
            let fillers: Vec<_> = (0..connections)
                .map(|number| (&shape, part(number)..part(number + 1)))
                .map(|(shape, keys)| scope.spawn(move || load::fill_range(shape, keys)))
                .collect();
            fillers.into_iter().try_for_each(|filler| filler.join().expect("filling does not panic"))
        })?;
        settle();
        server.rss_bytes()
    };
    let one = fill(1, size.value)?;
    fill(settings.overwriters, size.value * 2)?;
    let several = fill(settings.overwriters, size.value)?;
    let ratio = several as f64 / one as f64;
    println!(
        "memory {:14} {} keys of {} + {} bytes overwritten by {}: {ratio:.2} of what one connection's fill takes",
        spec.name, settings.keys, size.key, size.value, settings.overwriters
    );
    Ok(json!({
        "server": spec.name, "command": spec.argv, "version": host::describe_server(spec.port),
        "keys": settings.keys, "key_bytes": size.key, "value_bytes": size.value, "overwriters": settings.overwriters,
        "rss_filled_bytes": one, "rss_overwritten_bytes": several,
    }))
}

fn per_connection(spec: &ServerSpec, count: usize) -> Result<Value> {
    sys::raise_open_files()?;
    let server = ServerProcess::start(spec, None, &std::env::temp_dir())?;
    settle();
    let before = server.rss_bytes()?;
    let connections: Vec<TcpStream> = (0..count).map(|_| used_connection(spec.port)).collect::<Result<_>>()?;
    settle();
    let grown = server.rss_bytes()?.saturating_sub(before) as f64;
    let each = grown / connections.len() as f64;
    println!("memory {:14} {count} idle connections: {each:.0} bytes each", spec.name);
    Ok(json!({
        "server": spec.name, "command": spec.argv, "connections": count, "bytes_per_connection": each,
        "rss_empty_bytes": before,
    }))
}

/// A connection that has had one command answered, so that whatever is made at first use has been made.
fn used_connection(port: u16) -> Result<TcpStream> {
    let mut stream = load::connect(port)?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    await_replies(&mut stream, 1)?;
    Ok(stream)
}

/// Lets periodic work (resizing, shrinking of idle buffers) pass before the memory is read.
fn settle() {
    std::thread::sleep(Duration::from_millis(1500));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_pairs() {
        assert_eq!(
            parse_sizes("16:8,20:100").expect("parses"),
            [Size { key: 16, value: 8 }, Size { key: 20, value: 100 }]
        );
        assert!(parse_sizes("16").is_err());
        assert!(parse_sizes("3:8").is_err(), "a key must hold its number");
    }
}
