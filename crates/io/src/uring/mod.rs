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

mod buffers;
mod probe;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode};

use self::buffers::Buffers;
use self::ring::{Cqe, Ring};
use crate::table::{Table, Token};
use crate::{Completion, ConnId, Counters, Engine, ListenerId, Output, Socket, Waker, os};

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
    pub task_run: TaskRun,
    /// Whether `send` first tries send(2) at once, and queues only what the socket did not take.
    pub sync_send: bool,
}

impl Default for UringOptions {
    fn default() -> UringOptions {
        UringOptions {
            sq_entries: 512,
            cq_entries: 8192,
            buffers: 1024,
            buffer_bytes: 16 * 1024,
            task_run: probe::TASK_RUN,
            sync_send: false,
        }
    }
}

/// An [`Engine`] on io_uring. It belongs to the thread that made it.
pub struct Uring {
    // Dropped before the memory that the kernel writes to.
    ring: Ring,
    buffers: Option<Buffers>,
    /// The buffer lent with the last `Received`.
    lent: Option<u16>,
    connections: Table<Connection>,
    /// Connections whose receive found no buffer, to be armed again when there are some.
    parked: VecDeque<ConnId>,
    listeners: Vec<Listener>,
    listener_serial: u32,
    waker: Waker,
    waker_armed: bool,
    finished: VecDeque<Completion<'static>>,
    #[expect(clippy::vec_box, reason = "a message's address is fixed while the kernel has it")]
    messages: Vec<Box<Message>>,
    options: UringOptions,
    counters: Counters,
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

struct Listener {
    id: ListenerId,
    /// Distinguishes listeners that reuse an id in completions.
    serial: u32,
    socket: OwnedFd,
    armed: bool,
    cancels: u32,
    leaving: bool,
    retry_at: Option<Instant>,
}

/// What SENDMSG points to. Boxed, as it must not move while in flight.
struct Message {
    header: libc::msghdr,
    slices: [libc::iovec; SLICES],
}

/// What `step` found; the borrow of the buffer is made by `next`.
enum Step {
    Finished(Completion<'static>),
    Received { conn: ConnId, buffer: u16, length: usize },
}

/// Operations in tokens.
const ACCEPT: u8 = 1;
const RECEIVE: u8 = 2;
const SEND: u8 = 3;
const CANCEL: u8 = 4;
const WAKE: u8 = 5;
const CANCEL_ACCEPT: u8 = 6;
const CANCEL_ALL: u8 = 7;

/// Slices offered to one SENDMSG.
const SLICES: usize = 64;
/// The most bytes of one send operation, so that one large reply does not hold up the worker.
const SEND_BYTES: usize = 1024 * 1024;
/// How long accepting rests after an error such as `EMFILE`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Buffers published for each connection. More are not: they would only let one busy uploader take the more per pass,
/// paused or not, and turn over more memory. One that finds no buffer waits for the next pass, which costs little
/// against what it has just sent.
const BUFFERS_PER_CONNECTION: usize = 2;
/// Buffers published besides.
const SPARE_BUFFERS: usize = 30;
/// How long dropping the engine waits for cancelled operations before it leaks their memory.
const DRAIN: Duration = Duration::from_secs(1);
/// IORING_RECV_MULTISHOT is set by the crate's RecvMulti; single-shot receives carry no flag.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

impl Uring {
    /// Sets up a ring and its buffers for the calling thread.
    pub fn new(options: UringOptions) -> io::Result<Uring> {
        let ring = Ring::open(options.sq_entries, options.cq_entries, options.task_run)?;
        let buffers = Buffers::register(&ring.uring().submitter(), options.buffers, options.buffer_bytes)?;
        let mut engine = Uring {
            ring,
            buffers: Some(buffers),
            lent: None,
            connections: Table::new(),
            parked: VecDeque::new(),
            listeners: Vec::new(),
            listener_serial: 0,
            waker: Waker::new()?,
            waker_armed: false,
            finished: VecDeque::new(),
            messages: Vec::new(),
            options,
            counters: Counters::default(),
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

/// Receiving.
impl Uring {
    fn arm_receive(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        debug_assert!(connection.receive != Receive::Armed && connection.leaving == Leaving::No);
        connection.receive = Receive::Armed;
        connection.receive_cancelled = false;
        let fd = Fd(connection.socket.as_raw_fd());
        let entry = if connection.multishot {
            opcode::RecvMulti::new(fd, buffers::GROUP).build()
        } else {
            let receive = opcode::Recv::new(fd, std::ptr::null_mut(), self.options.buffer_bytes);
            receive.buf_group(buffers::GROUP).build().flags(Flags::BUFFER_SELECT)
        };
        self.push(entry.user_data(Token::conn(conn, RECEIVE).0));
    }

    fn received(&mut self, token: Token, cqe: Cqe) -> Option<Step> {
        let buffer = cqueue::buffer_select(cqe.flags);
        if let Some(id) = buffer {
            self.buffers().lend(id);
        }
        let step = self.receive_step(token, cqe, buffer);
        match (&step, buffer) {
            (Some(Step::Received { .. }), _) => self.lent = buffer,
            (_, Some(id)) => self.buffers().recycle(id),
            _ => {}
        }
        step
    }

    fn receive_step(&mut self, token: Token, cqe: Cqe, buffer: Option<u16>) -> Option<Step> {
        let conn = self.connections.resolve(token)?;
        let connection = self.connections.get_mut(conn)?;
        let over = !cqueue::more(cqe.flags);
        if over {
            connection.receive = Receive::Idle;
        }
        let discard = connection.leaving == Leaving::Closing;
        let rearms = connection.multishot;
        match cqe.result {
            length @ 1.. if !discard => {
                self.counters.receives += 1;
                self.counters.rearms += u64::from(over && rearms);
                self.after_receive(conn, over);
                let buffer = buffer.expect("bytes were received into a provided buffer");
                return Some(Step::Received { conn, buffer, length: length.unsigned_abs() as usize });
            }
            0 if over && connection.leaving == Leaving::No => {
                connection.receive = Receive::Ended;
                return Some(Step::Finished(Completion::ReceiveEnded { conn, error: None }));
            }
            error if over && error < 0 && connection.leaving == Leaving::No => {
                return self.receive_failed(conn, -error);
            }
            _ => self.after_receive(conn, over),
        }
        None
    }

    fn receive_failed(&mut self, conn: ConnId, error: i32) -> Option<Step> {
        match error {
            libc::ENOBUFS => {
                self.counters.enobufs += 1;
                self.connections.get_mut(conn)?.receive = Receive::Parked;
                self.parked.push_back(conn);
            }
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                self.counters.rearms += 1;
                self.after_receive(conn, true);
            }
            _ => {
                self.connections.get_mut(conn)?.receive = Receive::Ended;
                let error = Some(io::Error::from_raw_os_error(error));
                return Some(Step::Finished(Completion::ReceiveEnded { conn, error }));
            }
        }
        None
    }

    /// Keeps a receive going, stops one that goes on although paused, or lets a leaving connection go.
    fn after_receive(&mut self, conn: ConnId, over: bool) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.leaving != Leaving::No {
            self.settle(conn);
        } else if over && !connection.paused {
            self.arm_receive(conn);
        } else if !over && connection.paused && !connection.receive_cancelled {
            connection.receive_cancelled = true;
            connection.cancels += 1;
            let receive = CancelBuilder::user_data(Token::conn(conn, RECEIVE).0);
            let entry = opcode::AsyncCancel2::new(receive).build();
            self.push(entry.user_data(Token::conn(conn, CANCEL).0));
        }
    }

    /// Publishes buffers, then arms receives that found none: at most one for each buffer.
    fn supply_buffers(&mut self) {
        let wanted = self.connections.len() * BUFFERS_PER_CONNECTION + SPARE_BUFFERS;
        let wanted = u16::try_from(wanted).unwrap_or(u16::MAX).min(self.options.buffers);
        self.buffers().publish(wanted);
        for _ in 0..self.buffers().published() {
            let Some(conn) = self.parked.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(conn) else { continue };
            if connection.receive == Receive::Parked {
                connection.receive = Receive::Idle;
                if !connection.paused && connection.leaving == Leaving::No {
                    self.arm_receive(conn);
                }
            }
        }
    }
}

/// Sending.
impl Uring {
    fn push_send(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(output) = connection.output.as_ref() else { return };
        let fd = Fd(connection.socket.as_raw_fd());
        let entry = if let Some(bytes) = output.contiguous() {
            let length = bytes.len().min(SEND_BYTES) as u32; // SEND_BYTES fits.
            opcode::Send::new(fd, bytes.as_ptr(), length).flags(SEND_FLAGS).build()
        } else {
            let mut message = connection.message.take().or_else(|| self.messages.pop()).unwrap_or_else(Message::new);
            message.fill(output);
            let header = &raw const message.header;
            connection.message = Some(message);
            opcode::SendMsg::new(fd, header).flags(SEND_FLAGS as u32).build()
        };
        self.counters.sends += 1;
        self.push(entry.user_data(Token::conn(conn, SEND).0));
    }

    fn sent(&mut self, token: Token, cqe: Cqe) {
        let Some(conn) = self.connections.resolve(token) else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(output) = connection.output.as_mut() else { return };
        let result = match cqe.result {
            count @ 0.. => {
                output.advance(count.unsigned_abs() as usize);
                Ok(())
            }
            error if matches!(-error, libc::EINTR | libc::EAGAIN) => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        if result.is_ok() && !output.is_empty() && connection.leaving == Leaving::No {
            self.counters.short_sends += 1;
            return self.push_send(conn);
        }
        let cut_off = result.is_ok() && !output.is_empty();
        let result = if cut_off { Err(io::Error::from_raw_os_error(libc::ECANCELED)) } else { result };
        self.messages.extend(connection.message.take());
        if let Some(mut output) = connection.output.take() {
            output.clear();
            self.finished.push_back(Completion::Sent { conn, output, result });
        }
        self.settle(conn);
    }
}

/// Leaving.
impl Uring {
    fn leave(&mut self, conn: ConnId, leaving: Leaving) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.leaving != Leaving::No {
            return;
        }
        connection.leaving = leaving;
        if connection.in_flight() {
            self.cancel_all_of(conn);
        } else {
            self.settle(conn);
        }
    }

    fn cancel_all_of(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.cancels += 1;
        let all = CancelBuilder::fd(Fd(connection.socket.as_raw_fd())).all();
        self.push(opcode::AsyncCancel2::new(all).build().user_data(Token::conn(conn, CANCEL).0));
    }

    /// A cancellation can miss an operation that is just completing; if it goes on after all, it is tried again.
    fn cancelled(&mut self, token: Token, cqe: Cqe) {
        let Some(conn) = self.connections.resolve(token) else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.cancels -= 1;
        let missed = cqe.result <= 0 && connection.cancels == 0;
        if missed {
            connection.receive_cancelled = false;
        }
        if missed && connection.leaving != Leaving::No && connection.in_flight() {
            self.cancel_all_of(conn);
        } else {
            self.settle(conn);
        }
    }

    /// Lets a leaving connection go if nothing of it is in flight.
    fn settle(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get(conn) else { return };
        if connection.leaving == Leaving::No || connection.in_flight() {
            return;
        }
        let Some(connection) = self.connections.remove(conn) else { return };
        self.finished.push_back(match connection.leaving {
            Leaving::Detaching => Completion::Detached { conn, socket: connection.socket.into() },
            _ => Completion::Closed { conn },
        });
    }
}

/// Accepting and waking.
impl Uring {
    fn arm_accept(&mut self, at: usize) {
        let listener = &mut self.listeners[at];
        (listener.armed, listener.retry_at) = (true, None);
        let fd = Fd(listener.socket.as_raw_fd());
        let token = Token::new(listener.id, listener.serial, ACCEPT).0;
        self.push(opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build().user_data(token));
    }

    fn listener_of(&self, token: Token) -> Option<usize> {
        self.listeners.iter().position(|listener| {
            (listener.id, listener.serial) == (token.index(), token.generation())
        })
    }

    fn accepted(&mut self, token: Token, cqe: Cqe) {
        let socket = os::owned(cqe.result).ok(); // Owned first, so that it is closed on every path.
        let Some(at) = self.listener_of(token) else { return };
        let listener = &mut self.listeners[at];
        let (id, leaving) = (listener.id, listener.leaving);
        listener.armed &= cqueue::more(cqe.flags);
        let over = !listener.armed;
        if leaving {
            return self.settle_listener(at);
        }
        let error = io::Error::from_raw_os_error(-cqe.result.min(0));
        if let Some(socket) = socket {
            self.counters.accepts += 1;
            self.finished.push_back(Completion::Accepted { listener: id, socket: socket.into() });
        } else if over && !os::is_client_error(&error) {
            listener.retry_at = Some(Instant::now() + ACCEPT_PAUSE);
            self.finished.push_back(Completion::AcceptFailed { listener: id, error });
            return;
        }
        if over {
            self.counters.rearms += 1;
            self.arm_accept(at);
        }
    }

    fn cancelled_accept(&mut self, token: Token) {
        let Some(at) = self.listener_of(token) else { return };
        self.listeners[at].cancels -= 1;
        self.settle_listener(at);
    }

    fn settle_listener(&mut self, at: usize) {
        let listener = &self.listeners[at];
        if listener.leaving && !listener.armed && listener.cancels == 0 {
            self.listeners.remove(at);
        }
    }

    /// Resumes listeners whose pause is over; returns the shorter of `timeout` and the time to the next one.
    fn retry_listeners(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let mut timeout = timeout;
        for at in 0..self.listeners.len() {
            let Some(retry_at) = self.listeners[at].retry_at else { continue };
            let left = retry_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.counters.rearms += 1;
                self.arm_accept(at);
            } else {
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
        }
        timeout
    }

    /// A multishot poll is edge-triggered, as the waker needs it.
    fn arm_waker(&mut self) {
        self.waker_armed = true;
        let fd = Fd(self.waker.event().expect("a kernel waker has an eventfd").as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        self.push(entry.user_data(Token::new(0, 0, WAKE).0));
    }

    fn woken(&mut self, cqe: Cqe) {
        self.waker_armed = cqueue::more(cqe.flags);
        if !self.waker_armed && cqe.result != -libc::ECANCELED {
            self.counters.rearms += 1;
            self.arm_waker();
        }
        if self.waker.take() {
            self.counters.wakes += 1;
            self.finished.push_back(Completion::Woken);
        }
    }
}

impl Connection {
    fn in_flight(&self) -> bool {
        self.receive == Receive::Armed || self.output.is_some() || self.cancels > 0
    }
}

impl Message {
    fn new() -> Box<Message> {
        // SAFETY: all-zero bytes are a valid msghdr and valid iovecs: null pointers with zero lengths.
        Box::new(unsafe { std::mem::zeroed() })
    }

    /// Points to the output's unsent bytes, up to the limits of one operation.
    fn fill(&mut self, output: &Output) {
        let (mut filled, mut bytes) = (0, 0);
        for (entry, slice) in self.slices.iter_mut().zip(output.slices()) {
            if bytes == SEND_BYTES {
                break;
            }
            let length = slice.len().min(SEND_BYTES - bytes);
            *entry = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: length };
            (filled, bytes) = (filled + 1, bytes + length);
        }
        self.header.msg_iov = self.slices.as_mut_ptr();
        self.header.msg_iovlen = filled;
    }
}

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        // A non-blocking file would complete with EAGAIN instead of waiting for clients.
        os::set_nonblocking(socket.as_fd(), false)?;
        self.listener_serial = (self.listener_serial + 1) & 0x00ff_ffff;
        let serial = self.listener_serial;
        let listener =
            Listener { id, serial, socket, armed: false, cancels: 0, leaving: false, retry_at: None };
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
        let multishot = os::domain(socket.as_fd())? != libc::AF_UNIX;
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
        if self.options.sync_send {
            self.counters.sends += 1;
            let sent = match output.contiguous() {
                Some(bytes) => os::send(connection.socket.as_fd(), &bytes[..bytes.len().min(SEND_BYTES)]),
                None => Ok(0),
            };
            if let Ok(count) = sent {
                output.advance(count);
                if output.is_empty() {
                    output.clear();
                    return Some((output, Ok(())));
                }
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
        self.ring.submit_and_wait(self.finished.is_empty(), timeout)
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        match self.step()? {
            Step::Finished(completion) => Some(completion),
            Step::Received { conn, buffer, length } => {
                let data = self.buffers().filled(buffer, length);
                Some(Completion::Received { conn, data })
            }
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
            ..self.counters
        }
    }
}

impl Drop for Uring {
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

impl Uring {
    /// The kernel did not let go: what it may still touch must outlive the process's use of it.
    #[cold]
    fn leak(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            buffers.leak();
        }
        std::mem::forget(std::mem::replace(&mut self.connections, Table::new()));
    }
}
