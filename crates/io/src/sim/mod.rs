//! [`SimEngine`]: the engine on a network in memory, with faults drawn from a seed.
//!
//! It behaves like the worst of the real engines at once: receives are cut at any byte, delayed as if no buffer were
//! free, and may still bring something after a pause; sends are taken in pieces; completions of different connections
//! come in any order; closing and detaching take several passes; peers vanish. What it never does is what an engine
//! must not do: reorder or lose bytes of a connection, or report one after `Closed`.
//!
//! Invariants: all randomness is drawn from the engine's own generator (seed and the engine's number in its network),
//! in an order that depends only on the calls made; so a test that drives engines and clients from one thread repeats
//! exactly. There is no clock: time passes only in a `wait` that has nothing to do.

mod net;
mod random;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::random::Random;
use crate::table::Table;
use crate::{Completion, ConnId, Counters, Engine, ListenerId, Output, Socket, Waker, socket};

pub use self::net::{Faults, SimClient, SimNet, SimSocket};

/// An [`Engine`] on a [`SimNet`].
pub struct SimEngine {
    net: Arc<SimNet>,
    random: Random,
    connections: Table<Connection>,
    /// Ids in the order of attachment: the order in which chances are drawn.
    order: Vec<ConnId>,
    listeners: Vec<(ListenerId, SimSocket)>,
    ready: VecDeque<Ready>,
    /// The bytes lent with the last `Received`.
    lent: Vec<u8>,
    waker: Waker,
    counters: Counters,
}

struct Connection {
    socket: SimSocket,
    output: Option<Output>,
    paused: bool,
    /// A receive that was on its way when the connection was paused may still bring bytes, once.
    straggler: bool,
    ended: bool,
    leaving: Leaving,
    /// Passes until a leaving connection is let go.
    passes_left: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    Closing,
    Detaching,
}

/// What happened but is not handed out yet; a connection may be closed before it is.
enum Ready {
    Bytes(ConnId, Vec<u8>),
    Done(Completion<'static>),
}

/// Something that could happen in this pass.
#[derive(Clone, Copy)]
enum Chance {
    Receive(ConnId),
    Send(ConnId),
    Leave(ConnId),
    Accept(usize),
}

/// The most passes that closing or detaching takes.
const LEAVING_PASSES: usize = 4;

impl SimEngine {
    /// A new engine on this network.
    #[must_use]
    pub fn new(net: &Arc<SimNet>) -> SimEngine {
        SimEngine {
            random: net.next_random(),
            waker: Waker::simulated(Arc::clone(net)),
            net: Arc::clone(net),
            connections: Table::new(),
            order: Vec::new(),
            listeners: Vec::new(),
            ready: VecDeque::new(),
            lent: Vec::new(),
            counters: Counters::default(),
        }
    }

    fn faults(&self) -> Faults {
        self.net.faults()
    }

    /// One round: everything that could happen is put in a random order, and each does or is delayed.
    fn round(&mut self) {
        if self.waker.take() {
            self.counters.wakes += 1;
            self.ready.push_back(Ready::Done(Completion::Woken));
        }
        let mut chances = self.chances();
        if self.faults().reorder {
            self.random.shuffle(&mut chances);
        }
        let delays = self.faults().delays_percent;
        for chance in chances {
            if self.random.percent(delays) {
                self.counters.enobufs += u64::from(matches!(chance, Chance::Receive(_)));
                continue;
            }
            match chance {
                Chance::Receive(conn) => self.receive(conn),
                Chance::Send(conn) => self.send_some(conn),
                Chance::Leave(conn) => self.leave_on(conn),
                Chance::Accept(at) => self.accept(at),
            }
        }
    }

    fn chances(&self) -> Vec<Chance> {
        let mut chances = Vec::new();
        for &conn in &self.order {
            let Some(connection) = self.connections.get(conn) else { continue };
            if connection.leaving != Leaving::Closing && !connection.ended && connection.receives() {
                let readable = connection.socket.readable();
                chances.extend(readable.then_some(Chance::Receive(conn)));
            }
            if connection.output.is_some() && connection.leaving == Leaving::No {
                let writable = connection.socket.writable();
                chances.extend(writable.then_some(Chance::Send(conn)));
            }
            chances.extend((connection.leaving != Leaving::No).then_some(Chance::Leave(conn)));
        }
        let waiting =
            |(at, (_, socket)): (usize, &(ListenerId, SimSocket))| socket.clients_wait().then_some(Chance::Accept(at));
        chances.extend(self.listeners.iter().enumerate().filter_map(waiting));
        chances
    }

    fn receive(&mut self, conn: ConnId) {
        let faults = self.faults();
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if self.random.per_10_000(faults.resets_per_10_000) {
            connection.socket.reset_by_peer();
        }
        let mut most = faults.receive_bytes.max(1);
        if self.random.percent(faults.short_reads_percent) {
            most = self.random.below(most.min(32)) + 1;
        }
        connection.straggler = false;
        match connection.socket.read(most) {
            Ok(bytes) if bytes.is_empty() => self.receive_ended(conn, None),
            Ok(bytes) => {
                self.counters.receives += 1;
                self.ready.push_back(Ready::Bytes(conn, bytes));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.receive_ended(conn, Some(error)),
        }
    }

    fn receive_ended(&mut self, conn: ConnId, error: Option<io::Error>) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.leaving == Leaving::No {
            connection.ended = true;
            self.ready.push_back(Ready::Done(Completion::ReceiveEnded { conn, error }));
        }
    }

    /// Sends part of what is in flight.
    fn send_some(&mut self, conn: ConnId) {
        let faults = self.faults();
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(mut output) = connection.output.take() else { return };
        let result = write_some(&connection.socket, &mut output, faults, &mut self.random, &mut self.counters);
        if result.is_ok() && !output.is_empty() {
            connection.output = Some(output);
        } else {
            output.clear();
            self.ready.push_back(Ready::Done(Completion::Sent { conn, output, result }));
        }
    }

    fn leave_on(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if let Some(left) = connection.passes_left.checked_sub(1) {
            connection.passes_left = left;
            return;
        }
        let Some(connection) = self.connections.remove(conn) else { return };
        self.order.retain(|id| *id != conn);
        if connection.leaving == Leaving::Closing {
            // Of a pass that was not taken to its end.
            self.ready.retain(|ready| !matches!(ready, Ready::Bytes(of, _) if *of == conn));
        }
        if let Some(mut output) = connection.output {
            output.clear();
            let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
            self.ready.push_back(Ready::Done(Completion::Sent { conn, output, result }));
        }
        self.ready.push_back(Ready::Done(match connection.leaving {
            Leaving::Detaching => Completion::Detached { conn, socket: Socket(socket::Kind::Sim(connection.socket)) },
            _ => Completion::Closed { conn },
        }));
    }

    fn leave(&mut self, conn: ConnId, leaving: Leaving) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.leaving == Leaving::No {
            connection.leaving = leaving;
            connection.passes_left = self.random.below(LEAVING_PASSES);
        }
    }

    fn accept(&mut self, at: usize) {
        let (listener, ref socket) = self.listeners[at];
        let fails = self.random.percent(self.net.faults().accept_failures_percent);
        self.ready.push_back(Ready::Done(if fails {
            let error = io::Error::from_raw_os_error(libc::EMFILE);
            Completion::AcceptFailed { listener, error }
        } else {
            let Some(socket) = socket.accept() else { return };
            self.counters.accepts += 1;
            Completion::Accepted { listener, socket: Socket(socket::Kind::Sim(socket)) }
        }));
    }
}

impl Engine for SimEngine {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_sim()?;
        socket.check_listening()?;
        self.listeners.push((id, socket));
        Ok(())
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.listeners.retain(|(listener, _)| *listener != id);
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        let connection = Connection {
            socket: socket.into_sim()?,
            output: None,
            paused: false,
            straggler: false,
            ended: false,
            leaving: Leaving::No,
            passes_left: 0,
        };
        self.connections.insert(conn, connection);
        self.order.push(conn);
        Ok(())
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn)
            && !std::mem::replace(&mut connection.paused, true)
        {
            connection.straggler = self.random.below(2) == 0;
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.paused = false;
        }
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let faults = self.faults();
        let connection = self.connections.get_mut(conn).filter(|connection| connection.leaving == Leaving::No);
        let Some(connection) = connection else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(connection.output.is_none(), "a send is in flight already");
        if self.random.percent(faults.immediate_sends_percent) {
            let result = write_some(&connection.socket, &mut output, faults, &mut self.random, &mut self.counters);
            if result.is_err() || output.is_empty() {
                output.clear();
                return Some((output, result));
            }
        }
        connection.output = Some(output);
        None
    }

    fn close(&mut self, conn: ConnId) {
        self.leave(conn, Leaving::Closing);
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get(conn) {
            connection.socket.end_writing();
        }
    }

    fn detach(&mut self, conn: ConnId) {
        debug_assert!(self.connections.get(conn).is_none_or(|connection| connection.output.is_none()));
        self.leave(conn, Leaving::Detaching);
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.connections.get(conn).and_then(|connection| connection.output.as_ref()).map_or(0, Output::len)
    }

    fn raw_fd(&self, _conn: ConnId) -> Option<RawFd> {
        None
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Rounds follow each other until something happens; only when nothing could happen, it sleeps.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.enters += 1;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let seen = self.net.version();
            self.round();
            if !self.ready.is_empty() || timeout == Some(Duration::ZERO) {
                return Ok(());
            }
            let idle = self.chances().is_empty();
            if idle && !self.net.sleep_unless_changed(seen, deadline) {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        loop {
            match self.ready.pop_front()? {
                Ready::Bytes(conn, bytes) => {
                    let closing = |connection: &Connection| connection.leaving == Leaving::Closing;
                    // Bytes of a connection that was detached meanwhile came before its Detached, so they are due.
                    if !self.connections.get(conn).is_some_and(closing) {
                        self.lent = bytes;
                        return Some(Completion::Received { conn, data: &self.lent });
                    }
                }
                Ready::Done(Completion::ReceiveEnded { conn, .. })
                    if self.connections.get(conn).is_some_and(|connection| connection.leaving != Leaving::No) => {}
                Ready::Done(completion) => {
                    self.counters.cqes += 1;
                    return Some(completion);
                }
            }
        }
    }

    fn outstanding(&self) -> usize {
        let busy = |connection: &&Connection| connection.output.is_some() || connection.leaving != Leaving::No;
        self.connections.values().filter(busy).count() + self.ready.len()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Connection {
    fn receives(&self) -> bool {
        !self.paused || self.straggler
    }
}

/// Writes a piece, of a length that the faults decide, as far as there is room.
fn write_some(
    socket: &SimSocket,
    output: &mut Output,
    faults: Faults,
    random: &mut Random,
    counters: &mut Counters,
) -> io::Result<()> {
    let mut budget = usize::MAX;
    if random.percent(faults.short_writes_percent) {
        budget = random.below(32) + 1;
    }
    counters.sends += 1;
    while !output.is_empty() && budget > 0 {
        let Some(slice) = output.slices().next() else { return Ok(()) };
        let offered = slice.len().min(budget);
        match socket.write(&slice[..offered]) {
            Ok(taken) => {
                output.advance(taken);
                budget -= taken;
                if taken < offered {
                    counters.short_sends += 1;
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
