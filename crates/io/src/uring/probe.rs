//! Whether io_uring can be used here, found out by using it: set-up, opcodes, a buffer ring, and a rehearsal of what
//! the engine relies on (multishot receive of two messages and the end, cancellation) on a connection to ourselves.
//!
//! Containers block io_uring with `EPERM` (seccomp profiles since Docker 25) and administrators with a sysctl; kernels
//! with half-working features exist in distributions. A refusal names what was refused and what to change.

use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use io_uring::{Probe, opcode};

use super::ring::{Ring, Setup};
use super::{Uring, UringOptions};
use crate::{Completion, ConnId, Engine, os};

/// What [`probe`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UringFeatures {
    kernel: (u32, u32),
    setup: Setup,
}

impl fmt::Display for UringFeatures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "kernel {}.{}, {}", self.kernel.0, self.kernel.1, self.setup)
    }
}

/// How long the rehearsal may take; it is over in microseconds where it works.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tries io_uring out. The error says in one clause what was refused and what to change.
pub fn probe() -> Result<UringFeatures, String> {
    let options = UringOptions { sq_entries: 8, cq_entries: 32, buffers: 4, buffer_bytes: 4096, ..Default::default() };
    let ring = Ring::open(8, 32, options.task_run).map_err(|error| explain("io_uring_setup", &error))?;
    opcodes(&ring)?;
    let setup = ring.setup();
    drop(ring);
    let mut engine = Uring::new(options).map_err(|error| explain("registering a buffer ring", &error))?;
    rehearse(&mut engine).map_err(|what| format!("rehearsal on a local connection: {what}"))?;
    Ok(UringFeatures { kernel: os::kernel_version(), setup })
}

fn opcodes(ring: &Ring) -> Result<(), String> {
    let mut probe = Probe::new();
    ring.uring().submitter().register_probe(&mut probe).map_err(|error| explain("the opcode probe", &error))?;
    let needed = [
        ("ACCEPT", opcode::Accept::CODE),
        ("RECV", opcode::Recv::CODE),
        ("SEND", opcode::Send::CODE),
        ("SENDMSG", opcode::SendMsg::CODE),
        ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
        ("POLL_ADD", opcode::PollAdd::CODE),
    ];
    for (name, code) in needed {
        if !probe.is_supported(code) {
            return Err(format!("the kernel lacks io_uring's {name}; use a newer kernel"));
        }
    }
    Ok(())
}

/// The hint that goes with an error of setting up.
pub(super) fn explain(what: &str, error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "blocked: allow io_uring in the container's seccomp profile, or set kernel.io_uring_disabled=0"
        }
        Some(libc::ENOSYS) => {
            "the kernel has none or a sandbox hides it: use Linux 6.1 or newer, or allow io_uring in the sandbox"
        }
        Some(libc::ENOMEM) => "not enough locked memory: raise it (--ulimit memlock=-1)",
        Some(libc::EMFILE | libc::ENFILE) => "no file descriptors left: raise the limit (ulimit -n)",
        Some(libc::EINVAL) | None => "the kernel is too old for the features needed",
        Some(_) => "unexpected",
    };
    format!("{what} failed with \"{error}\": {hint}")
}

/// Two messages and the end of file through a multishot receive, then closing with a receive in flight.
fn rehearse(engine: &mut Uring) -> Result<(), String> {
    let (near, mut far) = connection().map_err(|error| format!("no local connection: {error}"))?;
    let first = ConnId { index: 0, generation: 1 };
    engine.attach(first, near.into()).map_err(|error| error.to_string())?;
    for message in [b"one", b"two"] {
        far.write_all(message).map_err(|error| error.to_string())?;
        expect(engine, "a message", |seen| matches!(seen, Completion::Received { data, .. } if data == message))?;
    }
    let rearms = engine.counters().rearms;
    if far.tcp() && rearms != 0 {
        return Err("a multishot receive ended after one message".into());
    }
    far.end().map_err(|error| error.to_string())?;
    expect(engine, "the end of file", |seen| matches!(seen, Completion::ReceiveEnded { error: None, .. }))?;
    engine.close(first);
    expect(engine, "closing", |seen| matches!(seen, Completion::Closed { .. }))?;

    let (near, _far) = connection().map_err(|error| format!("no local connection: {error}"))?;
    let second = ConnId { index: 0, generation: 2 };
    engine.attach(second, near.into()).map_err(|error| error.to_string())?;
    engine.wait(Some(Duration::ZERO)).map_err(|error| error.to_string())?;
    engine.close(second);
    expect(engine, "cancelling a receive", |seen| matches!(seen, Completion::Closed { .. }))
}

fn expect(engine: &mut Uring, what: &str, wanted: impl Fn(&Completion<'_>) -> bool) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        engine.wait(Some(PATIENCE)).map_err(|error| format!("{what}: {error}"))?;
        if let Some(seen) = engine.next() {
            return if wanted(&seen) { Ok(()) } else { Err(format!("{what}: got {seen:?} instead")) };
        }
    }
    Err(format!("{what} did not complete"))
}

/// The far end of the rehearsal's connection.
enum Far {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Far {
    fn tcp(&self) -> bool {
        matches!(self, Far::Tcp(_))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Far::Tcp(stream) => stream.write_all(bytes),
            Far::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn end(&self) -> io::Result<()> {
        match self {
            Far::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Far::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

/// A TCP connection over loopback, or where there is none (a bare network namespace) a socket pair.
fn connection() -> io::Result<(OwnedFd, Far)> {
    let tcp = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let far = TcpStream::connect(listener.local_addr()?)?;
        io::Result::Ok((listener.accept()?.0.into(), Far::Tcp(far)))
    };
    tcp().or_else(|_| UnixStream::pair().map(|(near, far)| (near.into(), Far::Unix(far))))
}
