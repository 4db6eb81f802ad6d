//! [`Uring`]: the engine on io_uring.
//!
//! One ring per worker, made in its thread. Accepting and receiving are multishot, into one provided-buffer ring; each
//! dirty connection has one send in flight; one enter per pass submits and waits.
//!
//! # Invariants
//! - A connection's slot, socket, output and message live until `in_flight` is zero: until each operation's last
//!   completion (the one without F_MORE) has been seen, that of cancellations included, so that a descriptor number is
//!   never reused while the kernel may still act on it.
//! - A buffer named by a completion (F_BUFFER, looked at on every completion) is recycled exactly once.
//! - A receive is armed again only after its terminating completion; so bytes stay in order.
//!
//! Not used, for reasons measured or reported elsewhere: linked operations, bundles and incremental buffers (kernel
//! bugs up to 6.13), zero-copy sends (copied on loopback, a notification each), registered files, IORING_OP_SHUTDOWN
//! (always punted to a kernel thread).
//!
//! # Safety
//! Entries point into: sockets' descriptors (owned by the slot), an [`Output`]'s heap memory (owned by the slot, not
//! touched while in flight; moving the `Output` does not move its heap), a boxed [`Message`] (likewise). The first
//! invariant keeps them alive. `Drop` cancels everything and waits; what does not end in time is leaked, not freed.

mod accept;
mod buffers;
mod leave;
pub(crate) mod message;
mod papers;
mod probe;
mod receive;
pub(crate) mod ring;
mod send;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode};

use self::accept::Listener;
use self::buffers::Buffers;
use self::message::Message;
use self::ring::Ring;
use crate::table::{Table, Token};
use crate::{Completion, ConnId, Counters, Engine, LOOK_AHEAD, ListenerId, Output, Socket, Waker, attempt, os};

pub use self::papers::{ReceiveBy, UringModelOptions, WriteBy};
pub use self::probe::{UringFeatures, probe};
pub use self::ring::TaskRun;

/// Sizes and switches of the io_uring engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringOptions {
    /// Submission queue entries; a pass that queues more enters more than once.
    pub sq_entries: u32,
    /// Completion queue entries. An overflow loses nothing but ends multishot operations, so it should be rare:
    /// about twice the connections that are ready at once.
    pub cq_entries: u32,
    /// Provided receive buffers; a power of two. Untouched ones cost address space only.
    pub buffers: u16,
    /// Size of each, in bytes.
    pub buffer_bytes: u32,
    /// When completions are worked on.
    ///
    /// Requests/s relative to the plain epoll loop in C (`echo_limit`, replies of 64 bytes, one core for the server, one
    /// for the load, kernel 6.18): deferred 1.05, cooperative 1.04 at 50 connections; 1.08 and 1.05 at 500; 1.04 and
    /// 1.03 at 50 with pipelines of 16 and of 64. So deferred is the default.
    pub task_run: TaskRun,
    /// Outputs of at least so many bytes are first tried with send(2) at once; the ring gets what the socket did not
    /// take. 0: all outputs; `usize::MAX`: none.
    ///
    /// A queued output needs memory of its own until the pass ends, one sent at once leaves memory that is hot in the
    /// cache to the next. Requests/s with send(2) relative to the ring, measured as above: 64 bytes 1.00 (0.91 with
    /// cooperative task work), 4 KiB 1.00, 16 KiB 1.05, 64 KiB 1.18, 256 KiB 1.30.
    pub sync_send_bytes: usize,
}

impl Default for UringOptions {
    fn default() -> UringOptions {
        UringOptions {
            sq_entries: 512,
            cq_entries: 8192,
            buffers: 1024,
            buffer_bytes: 16 * 1024,
            task_run: TaskRun::Defer,
            sync_send_bytes: 8 * 1024,
        }
    }
}

/// An [`Engine`] on io_uring. It belongs to the thread that made it.
pub struct Uring<const PAPERS: bool = false> {
    // Dropped before the memory that the kernel writes to.
    ring: Ring,
    buffers: Option<Buffers>,
    /// The buffer lent with the last `Received`.
    lent: Option<u16>,
    connections: Table<Connection>,
    /// Connections whose receive found no buffer, to be armed again when there are some.
    parked: VecDeque<ConnId>,
    /// The most buffers to publish: doubled when a pass found too few. A server with many idle connections has no
    /// bursts, and does not touch (and keep resident) the memory of all buffers in turn.
    burst: u16,
    /// A receive found no buffer since the last wait.
    starved: bool,
    listeners: Vec<Listener>,
    listener_serial: u32,
    waker: Waker,
    waker_armed: bool,
    finished: VecDeque<Completion<'static>>,
    #[expect(clippy::vec_box, reason = "a message's address is fixed while the kernel has it")]
    messages: Vec<Box<Message>>,
    options: UringOptions,
    /// Looked at only if there are `PAPERS`.
    papers: UringModelOptions,
    /// Buffers of entries that read.
    reading: Table<Vec<u8>>,
    /// What was read last by an entry that reads, and buffers for others.
    read: Vec<u8>,
    read_buffers: Vec<Vec<u8>>,
    counters: Counters,
    /// Of sends that are not the ring's.
    direct: Counters,
    /// Sends that were entries when the ring was last entered.
    sends_entered: u64,
}

struct Connection {
    socket: OwnedFd,
    receive: Receive,
    paused: bool,
    /// A cancellation of the receive is on its way, because of `paused`.
    receive_cancelled: bool,
    /// Cancellations whose completion is outstanding.
    cancels: u32,
    output: Option<Output>,
    message: Option<Box<Message>>,
    leaving: Leaving,
    /// Multishot receive on AF_UNIX can miss the end of file, so those are armed anew for each receive.
    multishot: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receive {
    Idle,
    Armed,
    Parked,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    Closing,
    Detaching,
}

/// What `step` found; the borrow of the buffer is made by `next`.
enum Step {
    Finished(Completion<'static>),
    Received {
        conn: ConnId,
        buffer: u16,
        length: usize,
    },
    /// Into `Uring::read`.
    Read {
        conn: ConnId,
        length: usize,
    },
}

/// Operations in tokens.
const ACCEPT: u8 = 1;
const RECEIVE: u8 = 2;
const SEND: u8 = 3;
const CANCEL: u8 = 4;
const WAKE: u8 = 5;
const CANCEL_ACCEPT: u8 = 6;
const CANCEL_ALL: u8 = 7;
const POLL_IN: u8 = 8;
const READ: u8 = 9;
const POLL_OUT: u8 = 10;

/// How long dropping the engine waits for cancelled operations before it leaks their memory.
const DRAIN: Duration = Duration::from_secs(1);
impl Uring {
    /// Sets up a ring and its buffers for the calling thread.
    pub fn new(options: UringOptions) -> io::Result<Uring> {
        Uring::open(options, UringModelOptions::default())
    }
}

impl Uring<true> {
    /// The same, with what the papers do otherwise.
    pub fn of_papers(options: UringOptions, papers: UringModelOptions) -> io::Result<Uring<true>> {
        Uring::open(options, papers)
    }
}

impl<const PAPERS: bool> Uring<PAPERS> {
    fn open(options: UringOptions, papers: UringModelOptions) -> io::Result<Uring<PAPERS>> {
        let ring = Ring::open(options.sq_entries, options.cq_entries, options.task_run)?;
        let buffers = Buffers::register(&ring.uring().submitter(), options.buffers, options.buffer_bytes)?;
        let mut engine = Uring {
            ring,
            buffers: Some(buffers),
            lent: None,
            connections: Table::new(),
            parked: VecDeque::new(),
            burst: receive::FIRST_BURST.min(options.buffers),
            starved: false,
            listeners: Vec::new(),
            listener_serial: 0,
            waker: Waker::new()?,
            waker_armed: false,
            finished: VecDeque::new(),
            messages: Vec::new(),
            options,
            papers,
            reading: Table::new(),
            read: Vec::new(),
            read_buffers: Vec::new(),
            counters: Counters::default(),
            direct: Counters::default(),
            sends_entered: 0,
        };
        engine.arm_waker();
        Ok(engine)
    }

    fn buffers(&mut self) -> &mut Buffers {
        self.buffers.as_mut().expect("taken only by drop")
    }

    fn push(&mut self, entry: Entry) {
        // SAFETY: entries are made in this file only, pointing to what the module's Safety section lists.
        unsafe { self.ring.push(entry) }
    }

    fn step(&mut self) -> Option<Step> {
        if let Some(id) = self.lent.take() {
            self.buffers().recycle(id);
        }
        loop {
            if let Some(completion) = self.finished.pop_front() {
                return Some(Step::Finished(completion));
            }
            let cqe = self.ring.pop()?;
            let token = Token(cqe.user_data);
            match token.operation() {
                RECEIVE => {
                    let step = self.received(token, cqe);
                    if step.is_some() {
                        return step;
                    }
                }
                READ | POLL_IN if PAPERS => {
                    let step = self.polled_or_read(token, cqe);
                    if step.is_some() {
                        return step;
                    }
                }
                POLL_OUT if PAPERS => self.has_room(token, cqe),
                SEND => self.sent(token, cqe),
                ACCEPT => self.accepted(token, cqe),
                CANCEL => self.cancelled(token, cqe),
                CANCEL_ACCEPT => self.cancelled_accept(token),
                WAKE => self.woken(cqe),
                _ => debug_assert_eq!(token.operation(), CANCEL_ALL),
            }
        }
    }
}

impl Connection {
    fn in_flight(&self) -> bool {
        self.receive == Receive::Armed || self.output.is_some() || self.cancels > 0
    }
}

impl<const PAPERS: bool> Engine for Uring<PAPERS> {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        // A non-blocking file would complete with EAGAIN instead of waiting for clients.
        os::set_nonblocking(socket.as_fd(), false)?;
        self.listener_serial = (self.listener_serial + 1) & 0x00ff_ffff;
        let serial = self.listener_serial;
        let listener = Listener { id, serial, socket, armed: false, cancels: 0, leaving: false, retry_at: None };
        self.listeners.push(listener);
        self.arm_accept(self.listeners.len() - 1);
        Ok(())
    }

    fn unlisten(&mut self, id: ListenerId) {
        let Some(at) = self.listeners.iter().position(|listener| listener.id == id && !listener.leaving) else {
            return;
        };
        let listener = &mut self.listeners[at];
        (listener.leaving, listener.retry_at) = (true, None);
        if listener.armed {
            listener.cancels += 1;
            let all = CancelBuilder::fd(Fd(listener.socket.as_raw_fd())).all();
            let token = Token::new(id, listener.serial, CANCEL_ACCEPT).0;
            self.push(opcode::AsyncCancel2::new(all).build().user_data(token));
        } else {
            self.settle_listener(at);
        }
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        os::set_nonblocking(socket.as_fd(), false)?;
        let single = PAPERS && self.papers.receive == ReceiveBy::Single;
        let multishot = !single && os::domain(socket.as_fd())? != libc::AF_UNIX;
        let connection = Connection {
            socket,
            receive: Receive::Idle,
            paused: false,
            receive_cancelled: false,
            cancels: 0,
            output: None,
            message: None,
            leaving: Leaving::No,
            multishot,
        };
        self.connections.insert(conn, connection);
        self.arm_receive(conn);
        Ok(())
    }

    /// The receive goes on until bytes arrive; only then it is cancelled, so a short pause costs nothing.
    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.paused = true;
        }
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.paused = false;
        if connection.receive == Receive::Idle && connection.leaving == Leaving::No {
            self.arm_receive(conn);
        }
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let connection = self.connections.get_mut(conn).filter(|connection| connection.leaving == Leaving::No);
        let Some(connection) = connection else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(connection.output.is_none(), "a send is in flight already");
        if output.is_empty() {
            output.clear();
            return Some((output, Ok(())));
        }
        if output.len() >= self.options.sync_send_bytes && !(PAPERS && self.papers.write == WriteBy::Writev) {
            let result = attempt::send(connection.socket.as_fd(), &mut output, &mut self.direct);
            if result.is_err() || output.is_empty() {
                output.clear();
                return Some((output, result.map(|_| ())));
            }
        }
        connection.output = Some(output);
        self.push_send(conn);
        None
    }

    fn close(&mut self, conn: ConnId) {
        self.leave(conn, Leaving::Closing);
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get(conn) else { return };
        if let Err(error) = os::shutdown_write(connection.socket.as_fd()) {
            debug_assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "the peer may be gone, nothing else");
        }
    }

    fn detach(&mut self, conn: ConnId) {
        debug_assert!(self.connections.get(conn).is_none_or(|connection| connection.output.is_none()));
        self.leave(conn, Leaving::Detaching);
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.connections.get(conn).and_then(|connection| connection.output.as_ref()).map_or(0, Output::len)
    }

    fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.connections.get(conn).map(|connection| connection.socket.as_raw_fd())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if let Some(id) = self.lent.take() {
            self.buffers().recycle(id);
        }
        let timeout = self.retry_listeners(timeout);
        self.supply_buffers();
        self.counters.submits += u64::from(self.counters.sends != self.sends_entered);
        self.sends_entered = self.counters.sends;
        self.ring.submit_and_wait(self.finished.is_empty(), timeout)
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        match self.step()? {
            Step::Finished(completion) => Some(completion),
            Step::Received { conn, buffer, length } => {
                let data = self.buffers().filled(buffer, length);
                Some(Completion::Received { conn, data })
            }
            Step::Read { conn, length } => Some(Completion::Received { conn, data: &self.read[..length] }),
        }
    }

    fn look_ahead(&mut self) -> usize {
        self.ring.left().min(LOOK_AHEAD)
    }

    fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        let cqe = self.ring.peek(at)?;
        let token = Token(cqe.user_data);
        match (token.operation(), cqueue::buffer_select(cqe.flags), usize::try_from(cqe.result)) {
            (RECEIVE, Some(buffer), Ok(length)) => {
                let conn = self.connections.resolve(token)?;
                Some((conn, self.buffers.as_ref()?.filled(buffer, length)))
            }
            (SEND, ..) => Some((self.connections.resolve(token)?, &[])),
            _ => None,
        }
    }

    fn outstanding(&self) -> usize {
        let in_flight = self.connections.values().filter(|connection| connection.in_flight()).count();
        let lent = self.buffers.as_ref().is_some_and(|buffers| !buffers.all_home());
        in_flight + self.finished.len() + usize::from(lent)
    }

    fn counters(&self) -> Counters {
        let ring = self.ring.counters;
        Counters {
            enters: ring.enters,
            sqes: ring.sqes,
            cqes: ring.cqes,
            cq_overflow: ring.cq_overflow,
            sends: self.counters.sends + self.direct.sends,
            ring_sends: self.counters.sends,
            short_sends: self.counters.short_sends + self.direct.short_sends,
            vector_sends: self.counters.vector_sends + self.direct.vector_sends,
            slices: self.counters.slices + self.direct.slices,
            ..self.counters
        }
    }
}

impl<const PAPERS: bool> Drop for Uring<PAPERS> {
    fn drop(&mut self) {
        for id in self.listeners.iter().map(|listener| listener.id).collect::<Vec<_>>() {
            self.unlisten(id);
        }
        for conn in self.connections.ids() {
            self.leave(conn, Leaving::Closing);
        }
        let wake = CancelBuilder::user_data(Token::new(0, 0, WAKE).0);
        self.push(opcode::AsyncCancel2::new(wake).build().user_data(Token::new(0, 0, CANCEL_ALL).0));
        let deadline = Instant::now() + DRAIN;
        while self.connections.len() > 0 || !self.listeners.is_empty() || self.waker_armed {
            if Instant::now() >= deadline || self.wait(Some(DRAIN)).is_err() {
                self.leak();
                return;
            }
            while self.step().is_some() {}
        }
        debug_assert!(self.finished.is_empty());
    }
}

impl<const PAPERS: bool> Uring<PAPERS> {
    /// The kernel did not let go: what it may still touch must outlive the process's use of it.
    #[cold]
    fn leak(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            buffers.leak();
        }
        std::mem::forget(std::mem::replace(&mut self.connections, Table::new()));
        std::mem::forget(std::mem::replace(&mut self.reading, Table::new()));
    }
}
