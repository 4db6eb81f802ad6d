//! What engines do when the system gives less: no descriptors, a full completion queue, no buffers, no io_uring at all;
//! and that a dropped engine gives everything back. Tests that need a process of their own run this binary again.
//!
//! # Safety
//! `refuse_io_uring` installs a system call filter: the program it points to is an array on the stack that outlives the
//! call, which copies it.

mod world;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gimmal_io::{Choice, ConnId, Engine, Epoll, Kind as Chosen, Options, Output, TaskRun, Uring, UringOptions, choose};
use world::{Kind, PATIENCE, Seen, Server, World};

/// Tests that count this process's descriptors take turns with all others here.
static TURN: Mutex<()> = Mutex::new(());

/// Set in a child: which part it is to play.
const PART: &str = "GIMMAL_IO_TEST_PART";

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs one test of this binary in a child with that part, through a shell prefix such as `ulimit -n 40;`.
fn play(test: &str, part: &str, prefix: &str) {
    let this = std::env::current_exe().unwrap();
    let command = format!("{prefix} exec '{}' --exact {test} --nocapture --test-threads=1", this.display());
    let output = Command::new("sh").args(["-c", &command]).env(PART, part).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{part}: {text}");
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn accepting_without_descriptors_fails_softly_and_recovers() {
    let _turn = turn();
    match std::env::var(PART).as_deref() {
        Ok("epoll") => accept_without_descriptors(Kind::Epoll),
        Ok("uring") => accept_without_descriptors(Kind::Uring),
        _ => {
            let test = "accepting_without_descriptors_fails_softly_and_recovers";
            for part in ["epoll", "uring"] {
                play(test, part, "ulimit -n 32;");
            }
        }
    }
}

fn accept_without_descriptors(kind: Kind) {
    let mut server = Server::new(&World::new(kind));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    server.engine.listen(3, OwnedFd::from(listener).into()).unwrap();
    // The client's descriptor is made first, so that the server has none for its own.
    let mut hoard = Vec::new();
    let client = TcpStream::connect(address);
    while let Ok(file) = fs::File::open("/dev/null") {
        hoard.push(file);
    }
    drop(client);
    hoard.pop();
    let _client = TcpStream::connect(address).unwrap();
    let start = Instant::now();
    let (mut failures, mut accepted) = (Vec::new(), 0);
    while failures.len() < 4 {
        assert!(start.elapsed() < PATIENCE, "{} failures", failures.len());
        for item in server.pass(Some(Duration::from_millis(50))) {
            match item {
                Seen::AcceptFailed(3) => failures.push(start.elapsed()),
                // The first client may have been accepted before the descriptors were gone.
                Seen::Accepted(3) => accepted += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    let lasted = failures[3] - failures[0];
    assert!(lasted > Duration::from_millis(200), "4 failures in {lasted:?}: a pause lies between tries");
    let (enters, waited) = (server.engine.counters().enters, start.elapsed());
    assert!(u128::from(enters) < 30 + waited.as_millis() / 40, "{enters} waits in {waited:?}: it does not spin");
    hoard.clear();
    server.until("accepting again", |_, seen| {
        accepted += seen.iter().filter(|item| **item == Seen::Accepted(3)).count();
        accepted == 2
    });
}

#[test]
fn without_io_uring_the_choice_is_epoll_and_says_why() {
    let _turn = turn();
    let expect = |error: i32, hint: &str| {
        refuse_io_uring(error);
        let decision = choose(Choice::Auto, &Options::default()).unwrap();
        assert_eq!(decision.kind, Chosen::Epoll);
        assert!(decision.why.contains(hint), "{}", decision.why);
        assert!(choose(Choice::Uring, &Options::default()).unwrap_err().contains(hint));
        assert_eq!(decision.open().unwrap().name(), "epoll");
    };
    match std::env::var(PART).as_deref() {
        Ok("eperm") => expect(libc::EPERM, "seccomp"),
        Ok("enosys") => expect(libc::ENOSYS, "sandbox"),
        Ok("enomem") => expect(libc::ENOMEM, "memlock"),
        _ => {
            for part in ["eperm", "enosys", "enomem"] {
                play("without_io_uring_the_choice_is_epoll_and_says_why", part, "");
            }
        }
    }
}

/// From now on, io_uring_setup fails with `error` in this thread.
fn refuse_io_uring(error: i32) {
    let statement = |code: u32, jump_true: u8, jump_false: u8, operand: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jump_true,
        jf: jump_false,
        k: operand,
    };
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let mut filter = [
        // The system call's number is the first word of what filters see.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error.unsigned_abs()),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes no pointers; the second copies the program, a live local of four statements.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    assert_eq!(results, [0, 0], "{}", std::io::Error::last_os_error());
}

#[test]
fn dropped_engines_give_everything_back() {
    let _turn = turn();
    let small = UringOptions { sync_send_bytes: usize::MAX, buffers: 16, ..UringOptions::default() };
    let make: [fn(UringOptions) -> Box<dyn Engine>; 3] = [
        |options| Box::new(Uring::new(options).unwrap()),
        |options| Box::new(Uring::new(UringOptions { task_run: TaskRun::Coop, ..options }).unwrap()),
        |_| Box::new(Epoll::new().unwrap()),
    ];
    let world = World::new(Kind::Epoll);
    let before = descriptors();
    // More often than a thread may have registered rings (16).
    for round in 0..60 {
        // An engine that waits for something in vain does so each time; a machine that stands still does not.
        let took = (0..3).map(|_| drop_busy(make[round % make.len()](small), &world));
        let soon = Duration::from_millis(500);
        let slow: Vec<Duration> = took.take_while(|took| *took >= soon).collect();
        assert!(slow.len() < 3, "dropping took {slow:?}");
    }
    assert_eq!(descriptors(), before);
}

/// Drops an engine that has everything in flight; how long that took.
fn drop_busy(mut engine: Box<dyn Engine>, world: &World) -> Duration {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    engine.listen(1, OwnedFd::from(listener).into()).unwrap();
    let (near, mut far) = world.connection();
    let (idle, _idle_peer) = world.connection();
    let conn = ConnId { index: 0, generation: 1 };
    engine.attach(conn, near).unwrap();
    engine.attach(ConnId { index: 1, generation: 1 }, idle).unwrap();
    // Receives and a send that does not end are in flight, in the kernel, when the engine goes.
    let _ = engine.send(conn, Output::with_head(vec![1; 32 << 20]));
    engine.wait(Some(Duration::ZERO)).unwrap();
    let start = Instant::now();
    drop(engine);
    let took = start.elapsed();
    let mut rest = Vec::new();
    // The end or a reset, but not silence.
    let _ = far.read_to_end(&mut rest);
    assert!(rest.len() < 32 << 20);
    took
}

#[test]
fn an_overflown_completion_queue_and_missing_buffers_lose_nothing() {
    let _turn = turn();
    const CONNECTIONS: usize = 100;
    for task_run in [TaskRun::Coop, TaskRun::Defer] {
        let options = UringOptions {
            sq_entries: 4,
            cq_entries: 8,
            buffers: 4,
            buffer_bytes: 64,
            task_run,
            sync_send_bytes: usize::MAX,
        };
        let mut server = Server::with(Box::new(Uring::new(options).unwrap()));
        let world = World::new(Kind::UringHostile);
        let (conns, mut peers): (Vec<_>, Vec<_>) = (0..CONNECTIONS)
            .map(|_| {
                let (near, far) = world.connection();
                (server.attach(near), far)
            })
            .unzip();
        for round in 0..20u8 {
            for peer in &mut peers {
                peer.write_all(&[round; 100]).unwrap();
            }
            for &conn in &conns {
                assert_eq!(server.send(conn, Output::with_head(vec![round; 50])), None);
            }
            let (mut received, mut sent) = (0, 0);
            server.until("a round", |_, seen| {
                for item in seen {
                    match item {
                        Seen::Received(_, data) => {
                            assert!(data.iter().all(|byte| *byte == round));
                            received += data.len();
                        }
                        Seen::Sent(_, Ok(())) => sent += 1,
                        other => panic!("{other:?}"),
                    }
                }
                (received, sent) == (CONNECTIONS * 100, CONNECTIONS)
            });
            for peer in &mut peers {
                let mut reply = [0; 50];
                peer.read_exact(&mut reply).unwrap();
                assert_eq!(reply, [round; 50]);
            }
        }
        let counters = server.engine.counters();
        assert!(counters.cq_overflow > 0 && counters.enobufs > 0, "{task_run:?}: {counters:?}");
        server.finish();
    }
}
