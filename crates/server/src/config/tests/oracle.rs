//! Comparison with a real redis-server and with configuration files of other servers, where this machine has them.

use super::config;
use crate::config::{Config, Id};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Directives whose default differs from that of Redis 7.0, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("bind", "loopback only, to be safe without a firewall"),
    ("client-output-buffer-limit", "ordinary clients are bounded too"),
    ("syslog-ident", "the program's name"),
    ("port", "given to the oracle"),
    ("dir", "given to the oracle"),
    ("save", "given to the oracle"),
    ("unixsocket", "given to the oracle"),
];

struct Oracle {
    child: Child,
    directory: super::Scratch,
}

impl Oracle {
    /// A redis-server on a Unix socket of its own, or none if there is no such program.
    fn start() -> Option<Oracle> {
        let directory = super::Scratch::new();
        let child = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "oracle.sock", "--save", "", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let oracle = Oracle { child, directory };
        let begun = Instant::now();
        while oracle.connect().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10), "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(oracle)
    }

    fn connect(&self) -> Option<std::os::unix::net::UnixStream> {
        std::os::unix::net::UnixStream::connect(self.directory.path().join("oracle.sock")).ok()
    }

    /// The strings of the reply to CONFIG GET *.
    fn config(&self) -> Vec<(String, String)> {
        let mut stream = self.connect().expect("a connection");
        stream.write_all(b"CONFIG GET *\r\nQUIT\r\n").expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        let mut strings = Vec::new();
        let mut rest = reply.split_once("\r\n").expect("a header").1;
        while let Some(after) = rest.strip_prefix('$') {
            let (length, body) = after.split_once("\r\n").expect("a length");
            let length: usize = length.parse().expect("a length");
            strings.push(body[..length].to_owned());
            rest = &body[length + 2..];
        }
        let (pairs, odd) = strings.as_chunks::<2>();
        assert!(odd.is_empty());
        pairs.iter().map(|[name, value]| (name.clone(), value.clone())).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.child.kill().expect("it ends");
        self.child.wait().expect("it ended");
    }
}

#[test]
fn redis_knows_no_directive_that_is_unknown_here_and_defaults_agree() {
    let Some(oracle) = Oracle::start() else {
        eprintln!("NOT RUN: no redis-server on this machine");
        return;
    };
    let ours = Config::default();
    let theirs = oracle.config();
    assert!(theirs.len() > 180, "{}", theirs.len());
    let mut wrong = Vec::new();
    for (name, value) in theirs {
        let Some(id) = Id::find(&name) else {
            wrong.push(format!("{name} is unknown"));
            continue;
        };
        let on_purpose = DIFFERENT.iter().any(|(different, _)| *different == id.directive().name);
        if ours.print(id) != value && !on_purpose {
            wrong.push(format!("{name}: {value:?} there, {:?} here", ours.print(id)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn debians_redis_conf_loads() {
    let path = "/etc/redis/redis.conf";
    if std::fs::File::open(path).is_err() {
        eprintln!("NOT RUN: {path} is missing or not readable");
        return;
    }
    let config = config(&[path, "--dir", "/"]);
    assert_eq!(config.port(), 6379);
    assert!(config.daemonize());
    assert_eq!(config.pidfile(), Some("/run/redis/redis-server.pid"));
}
