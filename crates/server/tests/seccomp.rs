//! Where a sandbox forbids io_uring the server starts on epoll, and says in one line what to change.
//!
//! A seccomp filter belongs to a thread and is inherited by the processes that it starts. So each test puts one on a
//! thread of its own and starts the real binary from there; nothing else in this process is affected.
//!
//! # Safety
//! One function makes system calls: `prctl` with integers, and with a pointer to a filter program that lives until the
//! call has returned (the kernel copies it).

mod running;

use gimmal_resp::Reply;
use running::{Running, command_line, error_text, free_port, knows};
use std::process::Command;

/// `io_uring_setup`, `io_uring_enter`, `io_uring_register`: the same numbers on every architecture.
const IO_URING: std::ops::RangeInclusive<u32> = 425..=427;

/// Runs `f` on a thread for which the three system calls of io_uring fail with `errno`.
fn without_io_uring<T: Send>(errno: i32, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            forbid_io_uring(errno);
            f()
        });
        thread.join().expect("the sandboxed part of the test")
    })
}

fn forbid_io_uring(errno: i32) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).expect("16 bits"), jt, jf, k };
    let refusal = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).expect("positive");
    let mut program = [
        // The number of the system call is the first field of seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 2, *IO_URING.start()),
        statement(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, 0, *IO_URING.end()),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 5, filter: program.as_mut_ptr() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers; without it an ordinary user may not install a filter.
    let refused = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(refused, 0, "no new privileges");
    // SAFETY: `filter` points to `len` statements that outlive the call; the kernel copies and checks them.
    let refused = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(refused, 0, "seccomp is available: {}", std::io::Error::last_os_error());
}

/// The lines of the log about the engine.
fn engine_lines(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("io_uring") || line.contains("I/O engine")).collect()
}

fn assert_engine(server: &Running, engine: &str) {
    let mut client = server.connect();
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    if knows(&mut client, "INFO server", "io_engine in INFO") {
        let info = client.ask("INFO server");
        let info = String::from_utf8_lossy(info.as_bytes().expect("a text")).into_owned();
        assert!(info.contains(&format!("\r\nio_engine:{engine}\r\n")), "{info}");
    }
}

#[test]
fn a_forbidden_io_uring_means_epoll_and_one_line_that_says_what_to_change() {
    for (errno, reason, advice) in [
        (libc::EPERM, "Operation not permitted", "allow io_uring in the container's seccomp profile"),
        (libc::ENOSYS, "Function not implemented", "allow io_uring in the sandbox"),
    ] {
        let server = without_io_uring(errno, || Running::start(""));
        assert_engine(&server, "epoll");
        let log = server.log();
        let lines = engine_lines(&log);
        assert_eq!(lines.len(), 1, "one line, not {lines:#?}");
        assert!(lines[0].contains("I/O engine: epoll"), "{}", lines[0]);
        assert!(lines[0].contains(reason) && lines[0].contains(advice), "{}", lines[0]);
    }
}

#[test]
fn who_insists_on_io_uring_is_told_why_it_cannot_be() {
    for (errno, reason) in [(libc::EPERM, "Operation not permitted"), (libc::ENOSYS, "Function not implemented")] {
        let line = command_line(free_port(), "--io-engine uring");
        let output = without_io_uring(errno, || Command::new(&line[0]).args(&line[1..]).output());
        let output = output.expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "it started: {said}");
        assert!(said.contains("io-engine uring cannot work here") && said.contains(reason), "{said}");
        assert!(said.contains("--io-engine epoll"), "it does not say what works: {said}");
    }
}

#[test]
fn the_filter_of_this_test_is_what_makes_the_difference() {
    let server = Running::start("");
    let log = server.log();
    let lines = engine_lines(&log);
    assert_eq!(lines.len(), 1, "one line, not {lines:#?}");
    if lines[0].contains("I/O engine: epoll") {
        // An old kernel, or a machine that forbids it already; the reason is in the line.
        eprintln!("not run: io_uring without a filter: {}", lines[0]);
        assert_engine(&server, "epoll");
    } else {
        assert_engine(&server, "uring");
    }
}

#[test]
fn a_refusal_of_epoll_is_not_confused_with_one_of_io_uring() {
    let server = without_io_uring(libc::EPERM, || Running::start("--io-engine epoll"));
    let log = server.log();
    assert_eq!(engine_lines(&log).len(), 1, "{log}");
    assert!(log.contains("I/O engine: epoll (configured)"), "{log}");
    assert!(error_text(&server.connect().ask("NOSUCH")).starts_with("ERR unknown command"));
}
