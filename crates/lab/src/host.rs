//! What a result must say about where it was measured.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::load::connect;
use crate::reply::ask;

/// Host name, kernel, processors, memory, time, and the commit of the tree the lab runs in.
pub fn describe() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    json!({
        "host": one_line("/proc/sys/kernel/hostname"),
        "kernel": one_line("/proc/sys/kernel/osrelease"),
        "cpu": field(&cpuinfo, "model name"),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory": field(&meminfo, "MemTotal"),
        "unix_time": since_epoch.map_or(0, |elapsed| elapsed.as_secs()),
        "commit": commit(),
    })
}

/// The fields of `INFO server` that say which server answers on `port`; empty for one that has no INFO.
pub fn describe_server(port: u16) -> Value {
    const WANTED: [&str; 6] =
        ["redis_version", "server_name", "gimmal_version", "valkey_version", "io_engine", "redis_build_id"];
    let info = info(port).unwrap_or_default();
    let wanted = WANTED.iter().filter_map(|name| Some(((*name).to_owned(), json!(field_or_none(&info, name)?))));
    Value::Object(wanted.collect())
}

fn info(port: u16) -> anyhow::Result<String> {
    ask(&mut connect(port)?, "INFO server")
}

fn one_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(text: &str, name: &str) -> String {
    field_or_none(text, name).unwrap_or_default()
}

fn field_or_none(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "HEAD"]), git(&["status", "--porcelain", "--untracked-files=no"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit} with changes"),
        (None, _) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_described() {
        let host = describe();
        assert_ne!(host["kernel"], "");
        assert!(host["cpus"].as_u64().is_some_and(|cpus| cpus > 0));
        assert_ne!(host["commit"], "");
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field("cpu MHz\t: 1\nmodel name\t: X 1\n", "model name"), "X 1");
        assert_eq!(field_or_none("redis_version:7\r\n", "version"), None);
    }
}
