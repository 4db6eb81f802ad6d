//! What the conformance tests run in: an engine, peers on the other end, and a small server that drives the engine and
//! checks its promises at every step (each output back exactly once, nothing after `Closed`, no two ends).

#![allow(dead_code, reason = "each test binary uses its part of this")]

pub mod os;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimmal_io::{
    Completion, ConnId, Engine, Epoll, Faults, FindRequests, LOOK_AHEAD, Level, Order, Output, Phases, PhasesOptions,
    Queue, QueueOptions, ReceiveBy, ReplyQueueKind, Requests, SimClient, SimEngine, SimNet, Socket, Submit, TaskRun,
    Uring, UringModelOptions, UringOptions, UringSend, UringSendOptions, WriteBy,
};

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A kind of engine, and of connections that go with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Epoll,
    /// AF_UNIX sockets with the smallest send buffers. (On TCP those only wait for delayed acknowledgements.)
    EpollUnix,
    Uring,
    UringDefer,
    /// Replies by writing threads: through a queue with a lock, on AF_UNIX with the smallest send buffers.
    QueueLockUnix,
    /// The same through Michael and Scott's queue.
    QueueMs,
    /// The same through a distributed queue.
    QueueDistributed,
    /// Phases of three threads, on AF_UNIX with the smallest send buffers.
    PhasesUnix,
    /// Phases of two threads, which read, too.
    PhasesReads,
    /// The smallest rings and receive buffers that can work at all.
    UringHostile,
    UringDeferHostile,
    /// The smallest of everything, on AF_UNIX.
    UringUnix,
    /// Every send is tried at once first; the other kinds leave all to the ring.
    UringSyncSend,
    /// Level-triggered.
    Level,
    UringSingle,
    /// As Netty's transport.
    UringNetty,
    UringNettyUnix,
    /// Replies through a ring, by each policy.
    SendBatch,
    SendAsync,
    SendSequential,
    SendKernel,
    SendPaced,
    /// The smallest ring, on AF_UNIX with the smallest send buffers.
    SendKernelUnix,
    SendUnix,
    Sim,
    SimHostile,
}

/// Makes engines of one kind, and connections for them.
pub struct World {
    pub kind: Kind,
    pub net: Arc<SimNet>,
}

impl World {
    pub fn new(kind: Kind) -> World {
        let faults = if kind == Kind::SimHostile { Faults::hostile() } else { Faults::none() };
        World { kind, net: SimNet::new(1, faults) }
    }

    pub fn engine(&self) -> Box<dyn Engine> {
        let default = UringOptions { sync_send_bytes: usize::MAX, ..UringOptions::default() };
        let hostile = UringOptions {
            sq_entries: 2,
            cq_entries: 4,
            buffers: 2,
            buffer_bytes: 64,
            task_run: TaskRun::Coop,
            ..default
        };
        let send = |submit, order| UringSendOptions { submit, order, ..Default::default() };
        match self.kind {
            Kind::Sim | Kind::SimHostile => Box::new(SimEngine::new(&self.net)),
            Kind::Level => Box::new(Level::new().unwrap()),
            Kind::UringSingle => {
                let papers = UringModelOptions { receive: ReceiveBy::Single, ..Default::default() };
                Box::new(Uring::of_papers(default, papers).unwrap())
            }
            Kind::UringNetty | Kind::UringNettyUnix => {
                let (receive, write) = (ReceiveBy::Poll, WriteBy::Writev);
                let papers = UringModelOptions { receive, write, async_threshold: 3 };
                let options = if self.is_hostile() { hostile } else { default };
                Box::new(Uring::of_papers(options, papers).unwrap())
            }
            Kind::SendBatch => Box::new(UringSend::new(UringSendOptions::default()).unwrap()),
            Kind::SendAsync => Box::new(UringSend::new(send(Submit::Async, Order::App)).unwrap()),
            Kind::SendSequential => Box::new(UringSend::new(send(Submit::Sequential, Order::App)).unwrap()),
            Kind::SendKernel => Box::new(UringSend::new(send(Submit::Batch, Order::Kernel)).unwrap()),
            Kind::SendPaced => {
                let options =
                    UringSendOptions { threshold: 5, interval: Duration::from_micros(300), ..Default::default() };
                Box::new(UringSend::new(options).unwrap())
            }
            Kind::SendKernelUnix => {
                let options = UringSendOptions { sq_entries: 2, ..send(Submit::Batch, Order::Kernel) };
                Box::new(UringSend::new(options).unwrap())
            }
            Kind::SendUnix => {
                Box::new(UringSend::new(UringSendOptions { sq_entries: 2, ..Default::default() }).unwrap())
            }
            Kind::Epoll | Kind::EpollUnix => Box::new(Epoll::new().unwrap()),
            Kind::Uring => Box::new(Uring::new(UringOptions { task_run: TaskRun::Coop, ..default }).unwrap()),
            Kind::UringDefer => Box::new(Uring::new(UringOptions { task_run: TaskRun::Defer, ..default }).unwrap()),
            Kind::QueueLockUnix => queue(ReplyQueueKind::Lock, 1),
            Kind::QueueMs => queue(ReplyQueueKind::Ms, 3),
            Kind::QueueDistributed => queue(ReplyQueueKind::Distributed { partial: 4, balancers: 2 }, 3),
            Kind::PhasesUnix => phases(3, None),
            Kind::PhasesReads => phases(2, Some(FindRequests(find_lines))),
            Kind::UringDeferHostile => {
                Box::new(Uring::new(UringOptions { task_run: TaskRun::Defer, ..hostile }).unwrap())
            }
            Kind::UringHostile | Kind::UringUnix => Box::new(Uring::new(hostile).unwrap()),
            Kind::UringSyncSend => Box::new(Uring::new(UringOptions { sync_send_bytes: 0, ..default }).unwrap()),
        }
    }

    /// A listening socket, and how to connect to it.
    pub fn listener(&self) -> (Socket, Box<dyn Fn() -> io::Result<Peer> + Send>) {
        if self.is_simulated() {
            let net = Arc::clone(&self.net);
            return (net.listen(7).unwrap(), Box::new(move || net.connect(7).map(Peer::Sim)));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (OwnedFd::from(listener).into(), Box::new(move || TcpStream::connect(address).map(Peer::Tcp)))
    }

    /// A connection: the end for the engine and the end for the test.
    pub fn connection(&self) -> (Socket, Peer) {
        if self.is_simulated() {
            let (near, mut far) = self.net.pair();
            far.set_timeout(PATIENCE);
            return (near, Peer::Sim(far));
        }
        use Kind::{EpollUnix, PhasesUnix, QueueLockUnix, SendKernelUnix, SendUnix, UringNettyUnix, UringUnix};
        let of_papers = matches!(self.kind, UringNettyUnix | SendUnix | SendKernelUnix | QueueLockUnix | PhasesUnix);
        if of_papers || matches!(self.kind, EpollUnix | UringUnix) {
            let (near, far) = UnixStream::pair().unwrap();
            os::shrink_send_buffer(&near);
            os::shrink_send_buffer(&far);
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            far.set_write_timeout(Some(PATIENCE)).unwrap();
            return (OwnedFd::from(near).into(), Peer::Unix(far));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near: OwnedFd = listener.accept().unwrap().0.into();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        far.set_write_timeout(Some(PATIENCE)).unwrap();
        (near.into(), Peer::Tcp(far))
    }

    /// How much to do: hostile configurations take a system call for every few bytes.
    pub fn scaled(&self, bytes: usize) -> usize {
        if self.is_hostile() { bytes / 32 } else { bytes }
    }

    pub fn is_hostile(&self) -> bool {
        use Kind::{EpollUnix, PhasesUnix, QueueLockUnix, SendKernelUnix, SendUnix, SimHostile};
        use Kind::{UringDeferHostile, UringHostile, UringNettyUnix, UringUnix};
        let small_buffers = matches!(self.kind, EpollUnix | SendKernelUnix | SendUnix | SimHostile);
        let small_rings = matches!(self.kind, UringDeferHostile | UringHostile | UringNettyUnix | UringUnix);
        small_buffers || small_rings || matches!(self.kind, PhasesUnix | QueueLockUnix)
    }

    pub fn is_simulated(&self) -> bool {
        matches!(self.kind, Kind::Sim | Kind::SimHostile)
    }
}

fn queue(queue: ReplyQueueKind, writers: usize) -> Box<dyn Engine> {
    Box::new(Queue::new(QueueOptions { queue, writers }).unwrap())
}

fn phases(threads: usize, reads: Option<FindRequests>) -> Box<dyn Engine> {
    Box::new(Phases::new(PhasesOptions { threads, reads }).unwrap())
}

/// Requests of one argument each, a line.
pub fn find_lines(bytes: &[u8], requests: &mut Requests) {
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', bytes) {
        let place = |at: usize| u32::try_from(at).unwrap();
        requests.arguments.push((place(begin), place(end - begin)));
        requests.ends.push((place(end + 1), place(requests.arguments.len())));
        begin = end + 1;
    }
}

/// The test's end of a connection; may be used from another thread.
pub enum Peer {
    Tcp(TcpStream),
    Unix(UnixStream),
    Sim(SimClient),
}

impl Peer {
    pub fn end_writing(&self) {
        match self {
            Peer::Tcp(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Peer::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Peer::Sim(client) => client.end_writing(),
        }
    }

    /// Closes so that the other end sees a reset.
    pub fn reset(self) {
        match self {
            Peer::Tcp(stream) => os::reset_on_close(&stream),
            // Unread bytes make its close a reset.
            Peer::Unix(stream) => drop(stream),
            Peer::Sim(client) => client.reset(),
        }
    }

    pub fn split(self) -> (Peer, Peer) {
        match self {
            Peer::Tcp(stream) => (Peer::Tcp(stream.try_clone().unwrap()), Peer::Tcp(stream)),
            Peer::Unix(stream) => (Peer::Unix(stream.try_clone().unwrap()), Peer::Unix(stream)),
            Peer::Sim(client) => (Peer::Sim(client.try_clone()), Peer::Sim(client)),
        }
    }
}

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Peer::Tcp(stream) => stream.read(buffer),
            Peer::Unix(stream) => stream.read(buffer),
            Peer::Sim(client) => client.read(buffer),
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Peer::Tcp(stream) => stream.write(bytes),
            Peer::Unix(stream) => stream.write(bytes),
            Peer::Sim(client) => client.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A completion without borrows.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Seen {
    Accepted(u32),
    AcceptFailed(u32),
    Received(ConnId, Vec<u8>),
    Ended(ConnId, Option<io::ErrorKind>),
    Sent(ConnId, Result<(), io::ErrorKind>),
    Closed(ConnId),
    Detached(ConnId),
    Woken,
}

#[derive(Default, Debug)]
struct State {
    sending: bool,
    ended: bool,
    closing: bool,
    detaching: bool,
}

/// Drives an engine and holds it to its promises.
pub struct Server {
    pub engine: Box<dyn Engine>,
    states: HashMap<ConnId, State>,
    /// Bytes that the engine is going to hand out.
    foreseen: Vec<(ConnId, Vec<u8>)>,
    /// Sockets from `Accepted` and `Detached`, oldest first.
    pub sockets: Vec<Socket>,
    generation: u32,
    free: Vec<u32>,
    slots: u32,
}

impl Server {
    pub fn new(world: &World) -> Server {
        Server::with(world.engine())
    }

    pub fn with(engine: Box<dyn Engine>) -> Server {
        let (states, foreseen, sockets, free) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        Server { engine, states, foreseen, sockets, generation: 0, free, slots: 0 }
    }

    pub fn attach(&mut self, socket: Socket) -> ConnId {
        self.generation += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let conn = ConnId { index, generation: self.generation };
        self.engine.attach(conn, socket).unwrap();
        self.states.insert(conn, State::default());
        conn
    }

    pub fn send(&mut self, conn: ConnId, output: Output) -> Option<Result<(), io::ErrorKind>> {
        let state = self.states.get_mut(&conn).unwrap();
        assert!(!state.sending && !state.closing);
        match self.engine.send(conn, output) {
            None => {
                state.sending = true;
                None
            }
            Some((output, result)) => {
                assert!(output.is_empty(), "the output comes back cleared");
                Some(result.map_err(|error| error.kind()))
            }
        }
    }

    pub fn is_sending(&self, conn: ConnId) -> bool {
        self.states[&conn].sending
    }

    /// Whether the connection is attached and not being closed.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.states.get(&conn).is_some_and(|state| !state.closing)
    }

    pub fn close(&mut self, conn: ConnId) {
        self.states.get_mut(&conn).unwrap().closing = true;
        self.engine.close(conn);
    }

    pub fn detach(&mut self, conn: ConnId) {
        self.states.get_mut(&conn).unwrap().detaching = true;
        self.engine.detach(conn);
    }

    pub fn connections(&self) -> usize {
        self.states.len()
    }

    /// One pass: waits and returns what completed.
    pub fn pass(&mut self, timeout: Option<Duration>) -> Vec<Seen> {
        self.engine.wait(timeout).unwrap();
        let (mut all, mut left) = (Vec::new(), 0);
        loop {
            if left == 0 {
                left = self.foresee();
            }
            let Some(completion) = self.engine.next() else { break };
            left = left.saturating_sub(1);
            let seen = match completion {
                Completion::Accepted { listener, socket } => {
                    self.sockets.push(socket);
                    Seen::Accepted(listener)
                }
                Completion::AcceptFailed { listener, .. } => Seen::AcceptFailed(listener),
                Completion::Received { conn, data } | Completion::Parsed { conn, data, .. } => {
                    assert!(!data.is_empty(), "Received is never empty");
                    Seen::Received(conn, data.to_vec())
                }
                Completion::ReceiveEnded { conn, error } => Seen::Ended(conn, error.map(|error| error.kind())),
                Completion::Sent { conn, output, result } => {
                    assert!(output.is_empty(), "the output comes back cleared");
                    Seen::Sent(conn, result.map_err(|error| error.kind()))
                }
                Completion::Closed { conn } => Seen::Closed(conn),
                Completion::Detached { conn, socket } => {
                    self.sockets.push(socket);
                    Seen::Detached(conn)
                }
                Completion::Woken => Seen::Woken,
            };
            self.check(&seen);
            all.push(seen);
        }
        let due = self.foreseen.iter().find(|(conn, _)| self.is_open(*conn));
        assert_eq!(due, None, "foreseen, but not handed out");
        all
    }

    /// Notes what the engine says that it will hand out.
    fn foresee(&mut self) -> usize {
        let count = self.engine.look_ahead();
        assert!(count <= LOOK_AHEAD);
        let bytes = (0..count).filter_map(|at| self.engine.upcoming(at)).filter(|(_, bytes)| !bytes.is_empty());
        self.foreseen = bytes.map(|(conn, bytes)| (conn, bytes.to_vec())).collect();
        count
    }

    /// Holds a completion against what is known of its connection; a connection that is gone must not be named.
    fn check(&mut self, seen: &Seen) {
        let gone = |conn: &ConnId| format!("{seen:?}: nothing may be reported of {conn:?} any more");
        match seen {
            Seen::Received(conn, bytes) => {
                if let Some(at) = self.foreseen.iter().position(|(foreseen, _)| foreseen == conn) {
                    assert_eq!(self.foreseen.remove(at).1, *bytes, "other bytes than foreseen");
                }
                let state = self.states.get(conn).unwrap_or_else(|| panic!("{}", gone(conn)));
                assert!(!state.ended && !state.closing, "{seen:?} after the end");
            }
            Seen::Ended(conn, _) => {
                let state = self.states.get_mut(conn).unwrap_or_else(|| panic!("{}", gone(conn)));
                assert!(!state.closing && !std::mem::replace(&mut state.ended, true), "{seen:?} twice or late");
            }
            Seen::Sent(conn, _) => {
                let state = self.states.get_mut(conn).unwrap_or_else(|| panic!("{}", gone(conn)));
                assert!(std::mem::replace(&mut state.sending, false), "{seen:?} without a send");
            }
            Seen::Closed(conn) => {
                let state = self.states.remove(conn).unwrap_or_else(|| panic!("{}", gone(conn)));
                assert!(state.closing && !state.sending, "{seen:?} with {state:?}");
                self.free.push(conn.index);
            }
            Seen::Detached(conn) => {
                let state = self.states.remove(conn).unwrap_or_else(|| panic!("{}", gone(conn)));
                assert!(state.detaching && !state.sending, "{seen:?} with {state:?}");
                self.free.push(conn.index);
            }
            Seen::Accepted(_) | Seen::AcceptFailed(_) | Seen::Woken => {}
        }
    }

    /// Passes until `done` says so of what was seen last; fails after [`PATIENCE`].
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Server, &[Seen]) -> bool) {
        let start = Instant::now();
        loop {
            let seen = self.pass(Some(Duration::from_millis(50)));
            if done(self, &seen) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        }
    }

    /// Closes everything, and checks that the engine is left with nothing.
    pub fn finish(&mut self) {
        let open: Vec<ConnId> = self.states.iter().filter(|(_, s)| !s.closing).map(|(conn, _)| *conn).collect();
        for conn in open {
            self.close(conn);
        }
        self.until("closing all", |server, _| server.connections() == 0);
        assert_eq!(self.engine.outstanding(), 0, "operations or buffers leaked");
    }
}

/// A small seeded generator (SplitMix64), so that failures can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
