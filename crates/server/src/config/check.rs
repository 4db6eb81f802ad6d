//! Checks of single values beyond their type. The reasons are worded as Redis 7 and Valkey 8 word them.

use super::title;
use super::value::Value;
use std::net::{Ipv4Addr, Ipv6Addr};

/// `shutdown-on-*`: `save` and `nosave` exclude each other.
pub fn shutdown(value: Value) -> Result<Value, String> {
    match value {
        Value::Choices(bits) if bits & 0b11 == 0b11 => {
            Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into())
        }
        value => Ok(value),
    }
}

/// `hz` is a wish: out of range it is moved to the nearest value that makes sense.
pub fn hz(value: Value) -> Result<Value, String> {
    match value {
        Value::Number(hz) => Ok(Value::Number(hz.clamp(1, 500))),
        value => Ok(value),
    }
}

/// `repl-backlog-size` is at least 16 KiB, as in Redis: a smaller one would serve no replica.
pub fn backlog(value: Value) -> Result<Value, String> {
    match value {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.max(16 << 10))),
        value => Ok(value),
    }
}

/// `shards` is a power of two, so that a hash prefix names one.
pub fn shards(value: Value) -> Result<Value, String> {
    match value {
        Value::Number(shards) if shards.count_ones() != 1 => Err("argument must be a power of two".into()),
        value => Ok(value),
    }
}

/// `reply-queue-partial`: `auto` or a number.
pub fn partial_queues(value: Value) -> Result<Value, String> {
    match text(&value) {
        "auto" => Ok(value),
        number if number.parse::<u16>().is_ok_and(|number| (1..=1024).contains(&number)) => Ok(value),
        _ => Err("argument must be 'auto' or between 1 and 1024".into()),
    }
}

/// `proc-title-template` expands to something.
pub fn title_template(value: Value) -> Result<Value, String> {
    let expanded = title::expand(text(&value), |name| title::VARIABLES.contains(&name).then(String::new));
    match expanded {
        Some(_) if text(&value).trim().is_empty() => {
            Err("template format is invalid or contains unknown variables".into())
        }
        Some(_) => Ok(value),
        None => Err("template format is invalid or contains unknown variables".into()),
    }
}

/// `dbfilename`.
pub fn dbfilename(value: Value) -> Result<Value, String> {
    base_name(value, "dbfilename", "filename")
}

/// `appendfilename`.
pub fn appendfilename(value: Value) -> Result<Value, String> {
    base_name(value, "appendfilename", "filename")
}

/// `appenddirname`.
pub fn appenddirname(value: Value) -> Result<Value, String> {
    base_name(value, "appenddirname", "dirname")
}

/// `cluster-config-file`.
pub fn cluster_config_file(value: Value) -> Result<Value, String> {
    if text(&value).is_empty() {
        return Err("cluster-config-file can't be empty".into());
    }
    Ok(value)
}

/// `cluster-announce-hostname`; 255 is the longest name in the DNS.
pub fn hostname(value: Value) -> Result<Value, String> {
    if text(&value).len() >= 256 {
        return Err("Hostnames must be less than 256 characters".into());
    }
    if !text(&value).bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
        return Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into());
    }
    Ok(value)
}

/// `cluster-announce-human-nodename`: printable, and free of what separates fields of `nodes.conf`.
pub fn node_name(value: Value) -> Result<Value, String> {
    const SEPARATORS: &[u8] = b"!#$%&()*+:;<>?@[]^{|}~,=/\\\"'`";
    if text(&value).bytes().all(|byte| byte.is_ascii_graphic() && !SEPARATORS.contains(&byte)) {
        return Ok(value);
    }
    Err("Announced human node name contained invalid character".into())
}

/// `cluster-announce-client-ipv4`.
pub fn ipv4(value: Value) -> Result<Value, String> {
    match text(&value) {
        text if text.is_empty() || text.parse::<Ipv4Addr>().is_ok() => Ok(value),
        _ => Err("Invalid IPv4 address".into()),
    }
}

/// `cluster-announce-client-ipv6`.
pub fn ipv6(value: Value) -> Result<Value, String> {
    match text(&value) {
        text if text.is_empty() || text.parse::<Ipv6Addr>().is_ok() => Ok(value),
        _ => Err("Invalid IPv6 address".into()),
    }
}

fn base_name(value: Value, name: &str, what: &str) -> Result<Value, String> {
    match text(&value) {
        "" => Err(format!("{name} can't be empty")),
        "." | ".." => Err(format!("{name} can't be a path, just a {what}")),
        path if path.contains(['/', '\\', '\0']) => Err(format!("{name} can't be a path, just a {what}")),
        _ => Ok(value),
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => unreachable!("a check of texts on a directive of another type"),
    }
}
