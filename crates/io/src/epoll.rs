//! [`Epoll`]: completions emulated on epoll, as cheap as a hand-written readiness loop.
//!
//! Level-triggered. `next` receives lazily, for one ready connection at a time, into one buffer that stays hot in the
//! cache; `send` tries at once and keeps only what the socket did not take. A receive that did not fill the buffer has
//! drained the socket, so there is no second read; one that filled it leaves the rest to the next pass, for fairness.
//!
//! Invariants: `interest` is what the kernel was told. It is brought up to date when it asks for too little, but when
//! it asks for too much only once an event shows it, so that pause and resume without input cost nothing. Interest in
//! nothing means removed: epoll reports hang-ups even of descriptors watched for nothing, which would be a hot loop.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::table::{Table, Token};
use crate::{Completion, ConnId, Counters, Engine, ListenerId, Output, Socket, Waker, attempt, os};

/// An [`Engine`] on epoll.
pub struct Epoll {
    poll: OwnedFd,
    connections: Table<Connection>,
    listeners: Vec<Listener>,
    waker: Waker,
    events: Vec<libc::epoll_event>,
    /// Events that the last wait found, and how many of them are dealt with.
    ready: usize,
    next_event: usize,
    /// Completions that are not the direct outcome of an event being looked at.
    finished: VecDeque<Completion<'static>>,
    buffer: Box<[u8]>,
    counters: Counters,
}

struct Connection {
    socket: OwnedFd,
    /// What epoll watches for; 0: not registered.
    interest: u32,
    output: Option<Output>,
    paused: bool,
    ended: bool,
}

struct Listener {
    id: ListenerId,
    socket: OwnedFd,
    /// Set while accepting is suspended after an error.
    retry_at: Option<Instant>,
}

/// What `step` found; the borrow of the buffer is made by `next`.
enum Step {
    Finished(Completion<'static>),
    Received(ConnId, usize),
}

const READ: u32 = libc::EPOLLIN as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const HANGUP: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// Operations in tokens.
const CONNECTION: u8 = 0;
const LISTENER: u8 = 1;
const WAKER: u8 = 2;

/// Events taken per wait. More connections than this are ready at once only under overload, and then wait a pass.
const EVENTS: usize = 1024;
/// One receive takes at most this: large enough that a system call is amortised, small enough for the L2 cache.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long accepting rests after an error such as `EMFILE`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Epoll {
    /// A new engine. Fails only for want of descriptors or memory.
    pub fn new() -> io::Result<Epoll> {
        let poll = os::epoll_create()?;
        let waker = Waker::new()?;
        let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let token = Token::new(0, 0, WAKER).0;
        let event = waker.event().expect("a kernel waker has an eventfd");
        os::epoll_control(poll.as_fd(), libc::EPOLL_CTL_ADD, event, edge, token)?;
        Ok(Epoll {
            poll,
            connections: Table::new(),
            listeners: Vec::new(),
            waker,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            ready: 0,
            next_event: 0,
            finished: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            counters: Counters::default(),
        })
    }

    fn step(&mut self) -> Option<Step> {
        loop {
            if let Some(completion) = self.finished.pop_front() {
                return Some(Step::Finished(completion));
            }
            if self.next_event == self.ready {
                return None;
            }
            let event = self.events[self.next_event];
            let token = Token(event.u64);
            let step = match token.operation() {
                CONNECTION => match self.connections.resolve(token) {
                    Some(conn) => self.connection_ready(conn, event.events),
                    None => self.event_done(),
                },
                LISTENER => self.listener_ready(token.index()),
                _ => self.woken(),
            };
            if step.is_some() {
                return step;
            }
        }
    }

    fn event_done(&mut self) -> Option<Step> {
        self.next_event += 1;
        None
    }

    fn woken(&mut self) -> Option<Step> {
        self.next_event += 1;
        self.waker.take().then(|| {
            self.counters.wakes += 1;
            Step::Finished(Completion::Woken)
        })
    }

    /// Writes first, then reads: what is sent frees memory, and a reset shows on either.
    fn connection_ready(&mut self, conn: ConnId, events: u32) -> Option<Step> {
        if events & (WRITE | HANGUP) != 0 && self.connections.get(conn)?.output.is_some() {
            let rest = if events & !WRITE == 0 { 0 } else { READ };
            self.events[self.next_event].events = rest;
            self.next_event += usize::from(rest == 0);
            self.send_more(conn);
            return None;
        }
        self.next_event += 1;
        let connection = self.connections.get_mut(conn)?;
        if connection.paused || connection.ended {
            self.watch(conn);
            return None;
        }
        match os::recv(connection.socket.as_fd(), &mut self.buffer) {
            Ok(0) => self.receive_ended(conn, None),
            Ok(count) => {
                self.counters.receives += 1;
                Some(Step::Received(conn, count))
            }
            Err(error) if is_temporary(&error) => None,
            Err(error) => self.receive_ended(conn, Some(error)),
        }
    }

    fn receive_ended(&mut self, conn: ConnId, error: Option<io::Error>) -> Option<Step> {
        self.connections.get_mut(conn)?.ended = true;
        self.watch(conn);
        Some(Step::Finished(Completion::ReceiveEnded { conn, error }))
    }

    fn send_more(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(mut output) = connection.output.take() else { return };
        match attempt::send(connection.socket.as_fd(), &mut output, &mut self.counters) {
            Ok(()) if !output.is_empty() => connection.output = Some(output),
            result => {
                output.clear();
                self.finished.push_back(Completion::Sent { conn, output, result });
                self.watch(conn);
            }
        }
    }

    /// Tells epoll what this connection waits for now.
    fn watch(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let wanted = connection.wanted();
        let operation = match (connection.interest, wanted) {
            (old, new) if old == new => return,
            (0, _) => libc::EPOLL_CTL_ADD,
            (_, 0) => libc::EPOLL_CTL_DEL,
            _ => libc::EPOLL_CTL_MOD,
        };
        let token = Token::conn(conn, CONNECTION).0;
        match os::epoll_control(self.poll.as_fd(), operation, connection.socket.as_fd(), wanted, token) {
            Ok(()) => connection.interest = wanted,
            // Adding can fail for want of memory or watches: the connection would hang, so it ends.
            Err(error) => {
                let output = connection.output.take();
                let was_ended = std::mem::replace(&mut connection.ended, true);
                if let Some(mut output) = output {
                    output.clear();
                    let result = Err(io::Error::from(error.kind()));
                    self.finished.push_back(Completion::Sent { conn, output, result });
                }
                if !was_ended {
                    self.finished.push_back(Completion::ReceiveEnded { conn, error: Some(error) });
                }
            }
        }
    }

    fn listener_ready(&mut self, id: ListenerId) -> Option<Step> {
        let Some(listener) = self.listeners.iter_mut().find(|listener| listener.id == id) else {
            return self.event_done();
        };
        // The event stays current until the backlog is empty: a storm of clients is accepted in one pass.
        match os::accept(listener.socket.as_fd()) {
            Ok(socket) => {
                self.counters.accepts += 1;
                Some(Step::Finished(Completion::Accepted { listener: id, socket: socket.into() }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.event_done(),
            Err(error) if os::is_client_error(&error) => None,
            Err(error) => {
                listener.retry_at = Some(Instant::now() + ACCEPT_PAUSE);
                // Removal of what was added cannot fail; were it to, the next event would find the same error.
                let socket = listener.socket.as_fd();
                let removed = os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_DEL, socket, 0, 0);
                debug_assert!(removed.is_ok());
                self.next_event += 1;
                Some(Step::Finished(Completion::AcceptFailed { listener: id, error }))
            }
        }
    }

    /// Resumes listeners whose pause is over; returns the shorter of `timeout` and the time to the next one.
    fn retry_listeners(&mut self, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        let mut timeout = timeout;
        for listener in self.listeners.iter_mut() {
            let Some(at) = listener.retry_at else { continue };
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let token = Token::new(listener.id, 0, LISTENER).0;
                let socket = listener.socket.as_fd();
                os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_ADD, socket, READ, token)?;
                listener.retry_at = None;
            } else {
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
        }
        Ok(timeout)
    }
}

impl Engine for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        // A client that gives up between the event and the accept must not block the worker.
        os::set_nonblocking(socket.as_fd(), true)?;
        let token = Token::new(id, 0, LISTENER).0;
        os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_ADD, socket.as_fd(), READ, token)?;
        self.listeners.push(Listener { id, socket, retry_at: None });
        Ok(())
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.listeners.retain(|listener| listener.id != id);
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        let token = Token::conn(conn, CONNECTION).0;
        os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_ADD, socket.as_fd(), READ, token)?;
        let connection = Connection { socket, interest: READ, output: None, paused: false, ended: false };
        self.connections.insert(conn, connection);
        Ok(())
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.paused = true;
        }
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.paused = false;
        if connection.interest & READ == 0 {
            self.watch(conn);
        }
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let Some(connection) = self.connections.get_mut(conn) else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(connection.output.is_none(), "a send is in flight already");
        let result = attempt::send(connection.socket.as_fd(), &mut output, &mut self.counters);
        if result.is_ok() && !output.is_empty() {
            connection.output = Some(output);
            self.watch(conn);
            return None;
        }
        output.clear();
        Some((output, result))
    }

    fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(conn) else { return };
        if let Some(mut output) = connection.output {
            output.clear();
            let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
            self.finished.push_back(Completion::Sent { conn, output, result });
        }
        self.finished.push_back(Completion::Closed { conn });
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get(conn) else { return };
        if let Err(error) = os::shutdown_write(connection.socket.as_fd()) {
            debug_assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "the peer may be gone, nothing else");
        }
    }

    fn detach(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(conn) else { return };
        debug_assert!(connection.output.is_none(), "detached with a send in flight");
        if connection.interest != 0 {
            let socket = connection.socket.as_fd();
            let removed = os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_DEL, socket, 0, 0);
            debug_assert!(removed.is_ok());
        }
        self.finished.push_back(Completion::Detached { conn, socket: connection.socket.into() });
    }

    fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.connections.get(conn).map(|connection| connection.socket.as_raw_fd())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.next_event < self.ready {
            return Ok(()); // The wake-up among them, if any, would not be reported again.
        }
        let timeout = self.retry_listeners(timeout)?;
        let timeout = if self.finished.is_empty() { timeout } else { Some(Duration::ZERO) };
        (self.ready, self.next_event) = (0, 0);
        self.counters.enters += 1;
        self.ready = os::epoll_wait(self.poll.as_fd(), &mut self.events, timeout)?;
        self.counters.cqes += self.ready as u64;
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        match self.step()? {
            Step::Finished(completion) => Some(completion),
            Step::Received(conn, count) => Some(Completion::Received { conn, data: &self.buffer[..count] }),
        }
    }

    fn outstanding(&self) -> usize {
        self.connections.values().filter(|connection| connection.output.is_some()).count() + self.finished.len()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Connection {
    fn wanted(&self) -> u32 {
        let read = if self.paused || self.ended { 0 } else { READ };
        let write = if self.output.is_some() { WRITE } else { 0 };
        read | write
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
