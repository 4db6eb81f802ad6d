//! Redis's own tools on our files: redis-server loads them, redis-check-aof passes them, and what a redis-server then
//! appends loads here. Says so where there is no Redis.

#![cfg(not(loom))]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimmal_log::aof::{Directory, Fsync, Progress, RealDisk, Recovered, Recovery, Settings, Step, Timing, Writer};
use gimmal_log::{Log, Record};

const DIRECTORY: &str = "appendonlydir";
const NAME: &str = "appendonly.aof";

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("gimmal-aof-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    fn open(&self) -> Directory {
        Directory::open(Arc::new(RealDisk), &self.0, DIRECTORY, NAME).expect("a directory")
    }

    fn manifest(&self) -> PathBuf {
        self.0.join(DIRECTORY).join(format!("{NAME}.manifest"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("removed");
    }
}

/// Runs a program, or says that it is not there.
fn run(program: &str, args: &[&Path]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("not run: {program}: {error}");
            None
        }
    }
}

fn recover(scratch: &Scratch) -> (String, Recovered) {
    let mut recovery = Recovery::new(&scratch.open(), true);
    let mut bytes = Vec::new();
    while let Some(piece) = recovery.next_piece().expect("it loads") {
        bytes.extend_from_slice(piece.bytes);
    }
    (String::from_utf8(bytes).expect("text"), recovery.finish())
}

/// A life of a log: `groups` groups; closed at its end, or left as a killed process leaves it.
fn live(scratch: &Scratch, settings: Settings, groups: usize, closed: bool) {
    let (_, recovered) = recover(scratch);
    let increment = scratch.open().start(&recovered).expect("a file");
    let log = Log::new(1, 1 << 20);
    let mut reader = log.activate(recovered.lsn.unwrap_or(0));
    let progress = Arc::new(Progress::new(Box::new(|| {})));
    let mut writer = Writer::new(&log, reader.position(), increment, settings, Timing::default(), progress);
    let mut appender = log.appender(0);
    for group in 0..groups {
        for database in [0, 5] {
            let mut record = Record::new();
            record.transaction().command(database, &["INCR", "counter"]);
            record.command(database, &["SET", &format!("key{group}"), &"v".repeat(group * 37 % 5000)]);
            appender.append_record(record.finish());
        }
        while writer.step(&mut reader) == Step::More {}
    }
    if closed {
        writer.orders().stop();
        assert_eq!(writer.step(&mut reader), Step::Stopped);
    }
}

struct Redis {
    child: Child,
    connection: TcpStream,
}

impl Redis {
    /// A redis-server with this directory.
    fn start(scratch: &Scratch) -> Option<Redis> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", ""])
            // What it has answered is in its file, whatever its thread that syncs does.
            .args(["--appendfsync", "always"])
            .args(["--appenddirname", DIRECTORY, "--appendfilename", NAME, "--aof-load-truncated", "no", "--dir"])
            .arg(&scratch.0)
            .stdout(Stdio::null())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                eprintln!("not run: redis-server: {error}");
                return None;
            }
        };
        let started = Instant::now();
        loop {
            assert!(child.try_wait().expect("a state").is_none(), "redis-server refused the directory");
            assert!(started.elapsed() < Duration::from_secs(60), "redis-server does not start");
            if let Ok(connection) = TcpStream::connect(("127.0.0.1", port)) {
                let mut redis = Redis { child, connection };
                if redis.ask("PING").starts_with("+PONG") {
                    return Some(redis);
                }
                child = redis.child;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        self.connection.write_all(format!("{line}\r\n").as_bytes()).expect("sent");
        let mut reply = vec![0; 64 * 1024];
        let count = self.connection.read(&mut reply).expect("an answer");
        String::from_utf8_lossy(&reply[..count]).trim_end().to_owned()
    }

    fn stop(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

const PREPARED: Settings = Settings { fsync: Fsync::Always, preallocate: 256 * 1024, timestamps: true };
const APPENDED: Settings = Settings { preallocate: 0, timestamps: false, ..PREPARED };

#[test]
fn redis_check_aof_passes_our_files() {
    let scratch = Scratch::new("check");
    live(&scratch, PREPARED, 40, true);
    live(&scratch, APPENDED, 40, false);
    live(&scratch, PREPARED, 200, false);
    let Some(output) = run("redis-check-aof", &[&scratch.manifest()]) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("All AOF files and manifest are valid"), "{text}");
}

#[test]
fn redis_loads_our_files_and_what_it_appends_loads_here() {
    for settings in [PREPARED, APPENDED] {
        for closed in [false, true] {
            let scratch = Scratch::new(&format!("load-{}-{closed}", settings.preallocate));
            live(&scratch, settings, 100, true);
            live(&scratch, settings, 100, closed);
            let before = recover(&scratch).0;
            let Some(mut redis) = Redis::start(&scratch) else { return };
            assert_eq!(redis.ask("GET counter"), "$3\r\n200");
            assert_eq!(redis.ask("DBSIZE"), ":101");
            assert_eq!(redis.ask("SELECT 5"), "+OK");
            assert_eq!(redis.ask("DBSIZE"), ":101");
            assert_eq!(redis.ask("SET from redis"), "+OK");
            redis.stop();
            let (after, recovered) = recover(&scratch);
            let appended = after.strip_prefix(&before).expect("our bytes first");
            assert!(appended.contains("redis") && appended.contains("SELECT"), "{appended}");
            assert!(recovered.foreign && recovered.cut.is_none(), "{recovered:?}");
            // A further life of ours, and Redis once more.
            live(&scratch, settings, 10, closed);
            let Some(mut redis) = Redis::start(&scratch) else { return };
            assert_eq!(redis.ask("GET counter"), "$3\r\n210");
            assert_eq!(redis.ask("SELECT 5"), "+OK");
            assert_eq!(redis.ask("GET from"), "$5\r\nredis");
            redis.stop();
        }
    }
}

#[test]
fn a_directory_of_redis_is_read() {
    let scratch = Scratch::new("theirs");
    let Some(mut redis) = Redis::start(&scratch) else { return };
    assert_eq!(redis.ask("SET from redis"), "+OK");
    redis.stop();
    let (text, recovered) = recover(&scratch);
    assert!(text.contains("from") && recovered.foreign && recovered.lsn.is_none(), "{text}");
    let (path, kind) = scratch.open().base().expect("looked").expect("a base");
    assert!(path.ends_with(format!("{NAME}.1.base.rdb")) && kind == gimmal_log::aof::BaseKind::Rdb);
    live(&scratch, PREPARED, 3, false);
    let Some(mut redis) = Redis::start(&scratch) else { return };
    assert_eq!(redis.ask("GET from"), "$5\r\nredis");
    assert_eq!(redis.ask("GET counter"), "$1\r\n3");
    redis.stop();
}
