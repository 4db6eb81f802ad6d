//! Comparison with a real redis-server and with configuration files of other servers, where this machine has them.

use super::{Scratch, config};
use crate::config::{Config, Id, words};
use crate::glob;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Directives whose default differs from that of Redis 7.0, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("bind", "loopback only, to be safe without a firewall"),
    ("client-output-buffer-limit", "ordinary clients are bounded too"),
    ("syslog-ident", "the program's name"),
    ("lazyfree-lazy-eviction", "as in Valkey 8: values are always freed in the background, and the log says UNLINK"),
    ("lazyfree-lazy-expire", "as in Valkey 8: values are always freed in the background, and the log says UNLINK"),
    ("lazyfree-lazy-server-del", "as in Valkey 8: values are always freed in the background, and the log says UNLINK"),
    ("lazyfree-lazy-user-del", "as in Valkey 8: values are always freed in the background, and the log says UNLINK"),
    ("lazyfree-lazy-user-flush", "as in Valkey 8: values are always freed in the background, and the log says UNLINK"),
    ("port", "given to the oracle"),
    ("dir", "given to the oracle"),
    ("save", "given to the oracle"),
    ("unixsocket", "given to the oracle"),
];

/// A redis-server on a Unix socket of its own.
struct Oracle {
    child: Child,
    stream: BufReader<UnixStream>,
    _directory: Scratch,
}

impl Oracle {
    /// None, and a line that says so, if there is no such program.
    fn start() -> Option<Oracle> {
        let directory = Scratch::new();
        let command = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "oracle.sock", "--save", "", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = command else {
            eprintln!("NOT RUN: no redis-server on this machine");
            return None;
        };
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(directory.path().join("oracle.sock")) {
                Ok(stream) => break BufReader::new(stream),
                Err(error) => {
                    assert!(begun.elapsed() < Duration::from_secs(60), "redis-server does not answer: {error}")
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Some(Oracle { child, stream, _directory: directory })
    }

    /// The strings of a command's reply, flat; a status or an error is one string, and a number is its digits.
    fn call(&mut self, command: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut request = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            request.extend(format!("${}\r\n", word.len()).bytes().chain(word.iter().copied()).chain(*b"\r\n"));
        }
        self.stream.get_mut().write_all(&request).expect("sent");
        let mut strings = Vec::new();
        self.reply(&mut strings);
        strings
    }

    fn reply(&mut self, strings: &mut Vec<Vec<u8>>) {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a reply");
        let (mark, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<usize>().expect("a length");
        match mark {
            "*" => (0..count()).for_each(|_| self.reply(strings)),
            "$" => {
                let mut string = vec![0; count() + 2];
                self.stream.read_exact(&mut string).expect("a string");
                string.truncate(string.len() - 2);
                strings.push(string);
            }
            _ => strings.push(rest.into()),
        }
    }

    fn texts(&mut self, command: &[&str]) -> Vec<String> {
        let command: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        self.call(&command).into_iter().map(|text| String::from_utf8(text).expect("UTF-8")).collect()
    }

    /// Names and values of CONFIG GET *.
    fn config(&mut self) -> Vec<(String, String)> {
        let strings = self.texts(&["CONFIG", "GET", "*"]);
        let (pairs, odd) = strings.as_chunks::<2>();
        assert!(odd.is_empty() && pairs.len() > 180, "{}", pairs.len());
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
    let Some(mut oracle) = Oracle::start() else { return };
    let ours = Config::default();
    let mut wrong = Vec::new();
    for (name, value) in oracle.config() {
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

/// Directives whose new value the oracle applies at once, in ways that hinder or end the comparison.
const NOT_SET: &[&str] = &["bind", "port", "tls-port", "maxclients", "maxmemory", "requirepass", "replica-announced"];

/// Why a reply may differ: the directive, a part of the reply here, and the reason.
const REPLIES_DIFFER: &[(&str, &str, &str)] = &[
    ("loglevel", "", "`nothing` came with Redis 7.2"),
    ("repl-diskless-load", "", "`flush-before-load` is Valkey's"),
    ("activedefrag", "OK", "accepted without effect, where the oracle's build refuses it"),
    ("io-threads", "OK", "set to what it is, and it does nothing here"),
    ("io-threads-do-reads", "OK", "set to what it is, and it does nothing here"),
    ("proc-title-template", "OK", "the program's name alone is a title"),
    ("latency-tracking-info-percentiles", "Invalid", "no hexadecimal numbers"),
    ("tls-cluster", "OK", "accepted without effect, where the oracle wants a certificate"),
    ("tls-replication", "OK", "accepted without effect, where the oracle wants a certificate"),
    (
        "maxmemory-clients",
        "must be between",
        "an amount that does not fit is refused, where Redis keeps the low 64 bits",
    ),
];

/// Values of all types, good and bad.
const VALUES: &[&str] = &[
    "",
    " ",
    "yes",
    "NO",
    "maybe",
    "0",
    "1",
    "-1",
    "5",
    "007",
    "+7",
    "-0",
    "99",
    "100",
    "101",
    "500",
    "501",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "1k",
    "1KB",
    "1mb",
    "2Gb",
    "1tb",
    "1.5",
    "-5%",
    "0%",
    "5%",
    "100%",
    "101%",
    "1e3",
    "0x10",
    "always",
    "EVERYSEC",
    "allkeys-lfu",
    "default",
    "save",
    "save nosave",
    "now FORCE",
    "local",
    "swapdb",
    "clients",
    "relative",
    "60 1",
    "60 1 30",
    "60 x",
    "0 1",
    "1 2 3",
    "1 2 3000",
    "50 99.9",
    "50 101",
    "50 x",
    "normal 1 2 3",
    "replica 1mb 2mb 3 pubsub 0 0 0",
    "normal 1 2",
    "master 1 2 3",
    "normal 1 2 -3",
    "KEA",
    "Kg$",
    "q",
    "{title}",
    "{nope}",
    "{",
    "a/b",
    "a_b",
    "some.host-name",
];

#[test]
fn config_set_answers_and_prints_what_redis_does() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (name, _) in oracle.config() {
        let id = Id::find(&name).expect("known");
        if NOT_SET.contains(&id.directive().name) {
            continue;
        }
        for value in VALUES {
            let theirs = oracle.texts(&["CONFIG", "SET", &name, value]).concat();
            let ours = Config::default().set(&[(name.as_bytes(), value.as_bytes())]);
            let answer = ours.as_ref().map_or_else(ToString::to_string, |_| "OK".into());
            compared += 1;
            // No digits are no amount here; Redis reads them as 0.
            let nothing = value.is_empty() && answer.contains("argument must be a memory");
            if !nothing && !same_answer(&name, &theirs, &answer) {
                wrong.push(format!("{name} {value:?}: {theirs:?} there, {answer:?} here"));
            }
            if let (Ok(changed), "OK") = (&ours, theirs.as_str()) {
                let printed = oracle.texts(&["CONFIG", "GET", &name]);
                // The oracle adds to what earlier values left.
                let adds = id.directive().name == "client-output-buffer-limit";
                if printed[1] != changed.print(id) && !adds {
                    wrong.push(format!(
                        "{name} {value:?}: prints {:?} there, {:?} here",
                        printed[1],
                        changed.print(id)
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ: {wrong:#?}", wrong.len());
    assert!(compared > 10_000, "{compared}");
}

fn same_answer(name: &str, theirs: &str, ours: &str) -> bool {
    theirs == ours || REPLIES_DIFFER.iter().any(|(differs, part, _)| *differs == name && ours.contains(part))
}

#[test]
fn globs_match_what_redis_matches() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut random = super::Random(7);
    let keys: Vec<Vec<u8>> = (0..200).map(|_| random.word(b"ab-]c^\\", 1, 6)).collect();
    for key in &keys {
        oracle.call(&[b"SET", key, b""]);
    }
    let mut matched = 0;
    for _ in 0..2_000 {
        // Never `*` alone: Redis takes a short cut there.
        let pattern = random.word(b"ab-]c^\\[*?", 2, 9);
        let mut theirs = oracle.call(&[b"KEYS", &pattern]);
        let mut ours: Vec<Vec<u8>> = keys.iter().filter(|key| glob::matches(&pattern, key)).cloned().collect();
        for list in [&mut theirs, &mut ours] {
            list.sort();
            list.dedup();
        }
        assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&pattern));
        matched += ours.len();
    }
    assert!(matched > 1_000, "{matched}");
}

#[test]
fn redis_reads_what_a_rewrite_writes() {
    let Some(oracle) = Oracle::start() else { return };
    drop(oracle);
    let scratch = Scratch::new();
    let text = "requirepass \"a b\\\"\\x07\"\nsave 60 1\nmaxmemory 1536mb\nmaxmemory-clients 5%\nslowlog-log-slower-than -1\n\
                client-output-buffer-limit normal 1mb 2 3\nnotify-keyspace-events KEA\nshutdown-on-sigint nosave now\n\
                latency-tracking-info-percentiles 50 99.99\noom-score-adj-values 1 2 3\nbind 127.0.0.1\nport 0\nunixsocket s\n";
    let ours = config(&[&scratch.write("ours.conf", text), "--dir", scratch.path().to_str().expect("UTF-8")]);
    let rewritten = scratch.write("theirs.conf", ours.rewrite(b"", None));
    let output =
        Command::new("redis-server").arg(&rewritten).args(["--test", "x"]).output().expect("redis-server runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Only the option that no server knows is refused: everything before it was read.
    assert!(said.contains(">>> 'test \"x\"'"), "{said}");
}

/// Configuration files of other servers, as distributions install them.
#[test]
fn installed_configuration_files_load() {
    for path in ["/etc/redis/redis.conf", "/etc/valkey/valkey.conf"] {
        if std::fs::File::open(path).is_err() {
            eprintln!("NOT RUN: {path} is missing or not readable");
            continue;
        }
        let config = config(&[path, "--dir", "/"]);
        assert_eq!(config.port(), 6379, "{path}");
        uncommented(path);
    }
}

/// Loads each line of the file that is a directive when its comment mark is removed.
fn uncommented(path: &str) {
    let text = std::fs::read_to_string(path).expect("UTF-8");
    let mut tried = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        let Some(split) = words::split(line.as_bytes()) else { continue };
        let name = split.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        // Prose begins with a directive's name at times; then it goes on for some words, or has a placeholder.
        let prose = split.len() > 8 || line.ends_with(['.', ':', ',']) || line.contains(['<', '(']);
        if let Some(id) = Id::find(&name).filter(|_| !prose && split.len() > 1)
            && (split.len() == 2 || id.directive().takes_many())
        {
            let scratch = Scratch::new();
            match crate::config::read(&[scratch.write("one.conf", line)]) {
                Ok(_) => tried += 1,
                Err(error) => assert!(PROSE.iter().any(|prose| line.starts_with(prose)), "{path}: {error}"),
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

/// Beginnings of comments that look like directives and are none.
const PROSE: &[&str] = &[];
