//! The real binary and the files that it is given: what `--check-rdb` and `--check-aof` say and how they end, and a start that
//! is refused, or stopped while it loads.

mod running;

use gimmal_rdb::file::{Meta, Writer};
use gimmal_rdb::{Options, Version};
use running::{PROGRAM, free_port};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("gimmal-check-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a check; its text, and whether it found all well.
fn check(command: &mut Command) -> (String, bool) {
    let Output { status, stdout, .. } = command.output().expect("it runs");
    let code = status.code().expect("it ends by itself");
    assert!(code < 2, "ended with {code}");
    (String::from_utf8(stdout).expect("a text"), code == 0)
}

fn snapshot(has_checksum: bool, keys: usize) -> Vec<u8> {
    let mut writer =
        Writer::new(Vec::new(), Options { version: Version::V10, ..Options::default() }, has_checksum).expect("a file");
    writer.aux("redis-ver", b"7.0.15").expect("a remark");
    writer.database(0, keys as u64, 1).expect("a database");
    let past = Meta { expire_at_ms: Some(1), ..Meta::default() };
    writer.entry(b"past", &past).expect("a key").string(b"x").expect("a value");
    writer.entry(b"list", &Meta::default()).expect("a key").list(2, ["a", "b"].iter()).expect("a value");
    for n in 0..keys {
        let name = format!("key:{n}");
        writer.entry(name.as_bytes(), &Meta::default()).expect("a key").string(b"value").expect("a value");
    }
    writer.finish().expect("the end")
}

#[test]
fn a_snapshot_is_counted_and_damage_is_found() {
    let scratch = Scratch::new("rdb");
    let path = scratch.0.join("dump.rdb");
    let of = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a file");
        check(Command::new(PROGRAM).arg("--check-rdb").arg(&path))
    };
    let whole = snapshot(true, 5);
    let (text, sound) = of(&whole);
    assert!(sound, "{text}");
    for line in [
        "RDB version 10",
        "redis-ver = '7.0.15'",
        "7 keys",
        "string: 6",
        "list: 1",
        "1 expire, 1 of them have already",
        &format!("{} bytes, and the checksum is right.", whole.len()),
    ] {
        assert!(text.contains(line), "no '{line}' in {text}");
    }
    let (text, sound) = of(&snapshot(false, 5));
    assert!(sound && text.contains("without a checksum"), "{text}");
    let (text, sound) = of(&[&whole[..], b"*1\r\n$4\r\nPING\r\n"].concat());
    assert!(sound && text.contains("14 bytes follow its end"), "{text}");

    let (text, sound) = of(&whole[..whole.len() - 30]);
    assert!(
        !sound && text.contains(&format!("offset {}", whole.len() - 30)) && text.contains("last key was"),
        "{text}"
    );
    let mut flipped = whole.clone();
    let at = flipped.len() - 9 - 3;
    flipped[at] ^= 1;
    let (text, sound) = of(&flipped);
    assert!(!sound && text.contains("wrong checksum"), "{text}");

    // By the name of Redis's program.
    let (text, sound) = check(Command::new(PROGRAM).arg0("/usr/bin/redis-check-rdb").arg(&path));
    assert!(!sound && text.contains("wrong checksum"), "{text}");
    let (text, sound) = check(Command::new(PROGRAM).args(["--check-rdb", "/nonexistent/dump.rdb"]));
    assert!(!sound && text.contains("/nonexistent/dump.rdb"), "{text}");
    let (text, sound) = check(Command::new(PROGRAM).arg("--check-rdb"));
    assert!(!sound && text.starts_with("usage:"), "{text}");
}

#[test]
fn a_log_is_checked_with_its_base_and_cut_if_asked() {
    let scratch = Scratch::new("aof");
    let directory = scratch.0.join("appendonlydir");
    std::fs::create_dir(&directory).expect("a directory");
    let (base, increment) = (directory.join("log.aof.1.base.rdb"), directory.join("log.aof.1.incr.aof"));
    let manifest = directory.join("log.aof.manifest");
    let text = "file log.aof.1.base.rdb seq 1 type b\nfile log.aof.1.incr.aof seq 1 type i\n";
    std::fs::write(&manifest, text).expect("a manifest");
    std::fs::write(&base, snapshot(true, 5)).expect("a base");
    let command = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
    std::fs::write(&increment, command).expect("an increment");
    for path in [&directory, &manifest] {
        let (text, sound) = check(Command::new(PROGRAM).arg("--check-aof").arg(path));
        assert!(sound && text.contains("7 keys") && text.contains("It is whole."), "{text}");
    }
    std::fs::write(&increment, [&command[..], b"*3\r\n$3\r\nSE"].concat()).expect("an increment");
    let (text, sound) = check(Command::new(PROGRAM).arg("--check-aof").arg(&directory));
    assert!(!sound && text.contains("torn"), "{text}");
    let (text, sound) = check(Command::new(PROGRAM).args(["--check-aof", "--fix"]).arg(&directory));
    assert!(sound && text.contains("was cut at"), "{text}");
    assert_eq!(std::fs::read(&increment).expect("an increment"), command);
    let (text, sound) = check(Command::new(PROGRAM).arg("--check-aof").arg(&directory));
    assert!(sound, "{text}");

    std::fs::write(&base, &snapshot(true, 5)[..40]).expect("a base");
    let (text, sound) = check(Command::new(PROGRAM).arg0("redis-check-aof").arg(&manifest));
    assert!(!sound && text.contains("It is damaged"), "{text}");
    let (text, sound) = check(Command::new(PROGRAM).arg("--check-aof").arg(&scratch.0));
    assert!(!sound && text.contains("no manifest"), "{text}");
}

fn start(dir: &Path, more: &[&str]) -> Child {
    let port = free_port().to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["--port", &port, "--save", "", "--workers", "2", "--dir"]).arg(dir).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn a_start_is_refused_with_what_is_damaged() {
    let scratch = Scratch::new("refused");
    let bytes = snapshot(true, 1000);
    std::fs::write(scratch.0.join("dump.rdb"), &bytes[..bytes.len() / 2]).expect("a file");
    let Output { status, stdout, .. } = start(&scratch.0, &[]).wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&stdout);
    assert_eq!(status.code(), Some(1), "{text}");
    let wanted = format!("dump.rdb cannot be loaded: unexpected end at offset {}", bytes.len() / 2);
    assert!(text.contains(&wanted) && text.contains("--check-rdb") && !text.contains("Ready to accept"), "{text}");
}

#[test]
fn a_stop_while_it_loads_is_no_failure() {
    let scratch = Scratch::new("stopped");
    std::fs::write(scratch.0.join("dump.rdb"), snapshot(true, 1000)).expect("a file");
    // Half a minute for all keys.
    let server = start(&scratch.0, &["--key-load-delay", "30000"]);
    std::thread::sleep(Duration::from_millis(700));
    let stopped = Instant::now();
    let sent = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().expect("there is a kill");
    assert!(sent.success(), "the server was alive");
    let Output { status, stdout, .. } = server.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&stdout);
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(stopped.elapsed() < Duration::from_secs(5), "it took {:?}", stopped.elapsed());
    assert!(text.contains("bye bye") && !text.contains("DB loaded") && !text.contains("Ready to accept"), "{text}");
}
