//! [`SimNet`]: streams in memory between engines and test clients, with TCP's rules: bounded windows, half-close,
//! and a reset for a peer that closes with bytes unread.
//!
//! Invariants: one mutex over all state (a test's network is small); every change raises `version` and wakes all
//! sleepers, so whoever remembers the version before looking cannot miss a change.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::random::Random;
use crate::{Socket, socket};

/// How a simulated network misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Receives that bring at most 32 bytes.
    pub short_reads_percent: u8,
    /// Sends that take at most 32 bytes.
    pub short_writes_percent: u8,
    /// Completions put off to a later pass, as when no receive buffer is free.
    pub delays_percent: u8,
    /// Sends that are tried at once, as on epoll; the others come back as `Sent` even if nothing hinders them.
    pub immediate_sends_percent: u8,
    /// Accepts that fail with `EMFILE`; the client stays in the backlog.
    pub accept_failures_percent: u8,
    /// Receives that find the connection reset by its peer.
    pub resets_per_10_000: u16,
    /// Whether completions of different connections come in random order.
    pub reorder: bool,
    /// Bytes that one direction of a connection holds before its writer must wait. Not zero.
    pub window_bytes: usize,
    /// The most bytes of one receive.
    pub receive_bytes: usize,
}

impl Faults {
    /// A network that behaves.
    #[must_use]
    pub fn none() -> Faults {
        Faults {
            short_reads_percent: 0,
            short_writes_percent: 0,
            delays_percent: 0,
            immediate_sends_percent: 100,
            accept_failures_percent: 0,
            resets_per_10_000: 0,
            reorder: false,
            window_bytes: 64 * 1024,
            receive_bytes: 16 * 1024,
        }
    }

    /// Everything goes wrong often, but no connection is reset: what is sent arrives.
    #[must_use]
    pub fn hostile() -> Faults {
        Faults {
            short_reads_percent: 40,
            short_writes_percent: 40,
            delays_percent: 30,
            immediate_sends_percent: 30,
            accept_failures_percent: 20,
            resets_per_10_000: 0,
            reorder: true,
            window_bytes: 4096,
            receive_bytes: 1024,
        }
    }
}

/// A network in memory, shared by engines and clients.
#[derive(Debug)]
pub struct SimNet {
    faults: Faults,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    seeds: Random,
    version: u64,
    next_link: u64,
    links: BTreeMap<u64, Link>,
    /// Clients that wait to be accepted, by port.
    backlogs: BTreeMap<u16, VecDeque<SimSocket>>,
}

/// A connection: what side 0 sends is `pipes[0]`.
#[derive(Debug)]
struct Link {
    pipes: [Pipe; 2],
    open: [bool; 2],
    /// Whether that side is to learn of a reset.
    reset: [bool; 2],
}

#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    ended: bool,
}

/// An end of a simulated connection, or a simulated listener. Dropping it closes it.
#[derive(Debug)]
pub struct SimSocket {
    net: Arc<SimNet>,
    role: Role,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    End { link: u64, side: usize },
    Listener { port: u16 },
}

/// A test's end of a connection. Reads and writes block up to the timeout; zero never blocks (`WouldBlock`).
/// Dropping it closes it.
#[derive(Debug)]
pub struct SimClient {
    socket: Arc<SimSocket>,
    timeout: Duration,
}

/// How long a client's read or write blocks by default.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Clients that may wait on one port.
const BACKLOG: usize = 1024;

impl SimNet {
    /// A network whose faults follow from the seed.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Arc<SimNet> {
        assert!(faults.window_bytes > 0, "a window of zero bytes lets nothing through");
        let state = State {
            seeds: Random::new(seed),
            version: 0,
            next_link: 0,
            links: BTreeMap::new(),
            backlogs: BTreeMap::new(),
        };
        Arc::new(SimNet { faults, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Opens a port; the socket is for [`Engine::listen`](crate::Engine::listen). `AddrInUse` if it is open already.
    pub fn listen(self: &Arc<SimNet>, port: u16) -> io::Result<Socket> {
        let mut state = self.lock();
        if state.backlogs.contains_key(&port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.backlogs.insert(port, VecDeque::new());
        drop(state);
        Ok(Socket(socket::Kind::Sim(SimSocket { net: Arc::clone(self), role: Role::Listener { port } })))
    }

    /// Connects to an open port. `ConnectionRefused` if it is not open or its backlog is full.
    pub fn connect(self: &Arc<SimNet>, port: u16) -> io::Result<SimClient> {
        let mut state = self.lock();
        if state.backlogs.get(&port).is_none_or(|backlog| backlog.len() >= BACKLOG) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = self.link(&mut state);
        state.backlogs.entry(port).or_default().push_back(near);
        self.announce(state);
        Ok(SimClient { socket: Arc::new(far), timeout: CLIENT_TIMEOUT })
    }

    /// A connection without a port: one end for an engine, one for the test.
    #[must_use]
    pub fn pair(self: &Arc<SimNet>) -> (Socket, SimClient) {
        let (near, far) = self.link(&mut self.lock());
        (Socket(socket::Kind::Sim(near)), SimClient { socket: Arc::new(far), timeout: CLIENT_TIMEOUT })
    }

    pub(super) fn faults(&self) -> Faults {
        self.faults
    }

    /// A generator of its own for each engine.
    pub(super) fn next_random(&self) -> Random {
        Random::new(self.lock().seeds.next())
    }

    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Sleeps until something changes after `seen`, or the deadline passes; tells whether something did.
    pub(super) fn sleep_unless_changed(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut state = self.lock();
        while state.version == seen {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(left) if left.is_zero() => return false,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }

    /// Something outside the links changed (a wake).
    pub(crate) fn poke(&self) {
        self.announce(self.lock());
    }

    fn link(self: &Arc<SimNet>, state: &mut State) -> (SimSocket, SimSocket) {
        let link = state.next_link;
        state.next_link += 1;
        let pipes = [Pipe::default(), Pipe::default()];
        state.links.insert(link, Link { pipes, open: [true; 2], reset: [false; 2] });
        let end = |side| SimSocket { net: Arc::clone(self), role: Role::End { link, side } };
        (end(0), end(1))
    }

    fn announce(&self, mut state: MutexGuard<'_, State>) {
        state.version += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// A test that panicked while it held the lock has failed already; the state is plain data.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimSocket {
    /// Runs `act` on the link and this end's side; `None` for a listener.
    fn on_link<T>(&self, act: impl FnOnce(&mut Link, usize) -> T) -> Option<T> {
        let Role::End { link, side } = self.role else { return None };
        self.net.lock().links.get_mut(&link).map(|link| act(link, side))
    }

    pub(super) fn readable(&self) -> bool {
        let readable = |link: &mut Link, side: usize| {
            let incoming = &link.pipes[1 - side];
            link.reset[side] || incoming.ended || !incoming.bytes.is_empty()
        };
        self.on_link(readable).unwrap_or(false)
    }

    pub(super) fn writable(&self) -> bool {
        let window = self.net.faults.window_bytes;
        let writable = |link: &mut Link, side: usize| {
            link.reset[side] || !link.open[1 - side] || link.pipes[side].bytes.len() < window
        };
        self.on_link(writable).unwrap_or(false)
    }

    /// Up to `most` bytes; none is end of file. A reset is reported once, as the kernel does; then it is end of file.
    pub(super) fn read(&self, most: usize) -> io::Result<Vec<u8>> {
        let read = |link: &mut Link, side: usize| {
            let incoming = &mut link.pipes[1 - side];
            if std::mem::replace(&mut link.reset[side], false) {
                incoming.bytes.clear();
                link.pipes.iter_mut().for_each(|pipe| pipe.ended = true);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if incoming.bytes.is_empty() && !incoming.ended {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = incoming.bytes.len().min(most);
            let (front, back) = incoming.bytes.as_slices();
            let from_front = count.min(front.len());
            let bytes = [&front[..from_front], &back[..count - from_front]].concat();
            incoming.bytes.drain(..count);
            Ok(bytes)
        };
        let result = self.on_link(read).unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()));
        if result.is_ok() {
            self.net.poke();
        }
        result
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let window = self.net.faults.window_bytes;
        let write = |link: &mut Link, side: usize| {
            let outgoing = &mut link.pipes[side];
            if link.reset[side] || !link.open[1 - side] || outgoing.ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let count = bytes.len().min(window.saturating_sub(outgoing.bytes.len()));
            if count == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            outgoing.bytes.extend(&bytes[..count]);
            Ok(count)
        };
        let result = self.on_link(write).unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()));
        if result.is_ok() {
            self.net.poke();
        }
        result
    }

    pub(super) fn end_writing(&self) {
        if self.on_link(|link, side| link.pipes[side].ended = true).is_some() {
            self.net.poke();
        }
    }

    /// The peer's end breaks: both sides are reset.
    pub(super) fn reset_by_peer(&self) {
        let reset = |link: &mut Link, _| {
            link.reset = [true; 2];
            link.pipes.iter_mut().for_each(|pipe| pipe.bytes.clear());
        };
        if self.on_link(reset).is_some() {
            self.net.poke();
        }
    }

    pub(super) fn check_listening(&self) -> io::Result<()> {
        match self.role {
            Role::Listener { .. } => Ok(()),
            Role::End { .. } => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub(super) fn clients_wait(&self) -> bool {
        let Role::Listener { port } = self.role else { return false };
        self.net.lock().backlogs.get(&port).is_some_and(|backlog| !backlog.is_empty())
    }

    pub(super) fn accept(&self) -> Option<SimSocket> {
        let Role::Listener { port } = self.role else { return None };
        self.net.lock().backlogs.get_mut(&port)?.pop_front()
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        match self.role {
            // The clients in the backlog are dropped after the lock is released, as each of them takes it.
            Role::Listener { port } => {
                let refused = state.backlogs.remove(&port);
                drop(state);
                drop(refused);
            }
            Role::End { link: id, side } => {
                let Some(link) = state.links.get_mut(&id) else { return };
                link.open[side] = false;
                link.pipes[side].ended = true;
                link.reset[1 - side] |= !link.pipes[1 - side].bytes.is_empty();
                if link.open == [false; 2] {
                    state.links.remove(&id);
                }
                self.net.announce(state);
            }
        }
    }
}

impl SimClient {
    /// How long a read or write may block from now on; zero never blocks.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Ends the client's outgoing stream.
    pub fn end_writing(&self) {
        self.socket.end_writing();
    }

    /// Breaks the connection: the other side sees a reset, and unread bytes are lost.
    pub fn reset(self) {
        self.socket.reset_by_peer();
    }

    /// A second handle on the same end, for another thread; the end closes with the last one.
    #[must_use]
    pub fn try_clone(&self) -> SimClient {
        SimClient { socket: Arc::clone(&self.socket), timeout: self.timeout }
    }

    /// Tries until it does not block, or the timeout passes.
    fn retry<T>(&self, mut attempt: impl FnMut(&SimSocket) -> io::Result<T>) -> io::Result<T> {
        let deadline = Instant::now().checked_add(self.timeout);
        loop {
            let seen = self.socket.net.version();
            let result = attempt(&self.socket);
            let blocked = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            if !blocked || !self.socket.net.sleep_unless_changed(seen, deadline) {
                return result;
            }
        }
    }
}

impl Read for SimClient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.retry(|socket| socket.read(buffer.len()))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Write for SimClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
