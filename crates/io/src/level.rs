//! [`Level`]: an engine on level-triggered epoll, as Redis's event loop is; and what `uring-send` receives with.
//!
//! The kernel is told which events are wanted, and reports them again in each wait as long as they hold: so nothing is
//! remembered here, but every full socket, pause and end is a call of `epoll_ctl`. A connection of which nothing is wanted is
//! taken out of the epoll, since a hang-up would be reported all the same. The default engine is edge-triggered ([`Epoll`]
//! says why).
//!
//! Invariants:
//! - `watched` is what the kernel was told.
//! - A ready connection receives once a pass, so that one busy client does not hold up the others.
//! - What was received lies in the buffer until the last of `coming` is handed out; only then more is received.
//!
//! [`Epoll`]: crate::Epoll

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::attempt::{self, Attempt};
use crate::listeners::{LISTENER, Listeners};
use crate::table::{Table, Token};
use crate::{Completion, ConnId, Counters, Engine, LOOK_AHEAD, ListenerId, Output, Socket, Waker, os};

/// An [`Engine`] on level-triggered epoll.
pub struct Level {
    poll: OwnedFd,
    connections: Table<Connection>,
    listeners: Listeners,
    waker: Waker,
    events: Vec<libc::epoll_event>,
    /// Events that the last wait found, and how many of them are dealt with.
    ready: usize,
    next_event: usize,
    /// Connections that had room for writing, for whoever sends in another way.
    pub(crate) roomy: Vec<ConnId>,
    /// What is to be handed out, in order.
    coming: VecDeque<Step>,
    buffer: Box<[u8]>,
    /// How much of the buffer belongs to what is in `coming`.
    filled: usize,
    pub(crate) counters: Counters,
}

struct Connection {
    socket: OwnedFd,
    output: Option<Output>,
    /// Room for writing is waited for.
    full: bool,
    paused: bool,
    ended: bool,
    /// The events that the kernel watches for; `None`: it is not in the epoll.
    watched: Option<u32>,
}

/// What is to be handed out; the borrow of the buffer is made by `next`.
enum Step {
    Finished(Completion<'static>),
    /// Bytes from this position of the buffer on, and how many.
    Received(ConnId, usize, usize),
}

const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const HANG_UP: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// Operations in tokens, beside [`LISTENER`].
const CONNECTION: u8 = 0;
const WAKER: u8 = 2;
const OTHER: u8 = 3;

/// Events taken per wait.
const EVENTS: usize = 1024;
/// Receives until it is handed out take at most this.
const BUFFER_BYTES: usize = 64 * 1024;
/// With less room no further connection receives into the buffer.
const LEAST_ROOM: usize = 32 * 1024;
/// What was received begins at multiples of this in the buffer: two requests share no cache line.
const LINE: usize = 64;

impl Level {
    /// A new engine. Fails only for want of descriptors or memory.
    pub fn new() -> io::Result<Level> {
        let poll = os::epoll_create()?;
        let waker = Waker::new()?;
        let event = waker.event().expect("a kernel waker has an eventfd");
        // It is never read, so it is watched for edges.
        os::epoll_control(poll.as_fd(), libc::EPOLL_CTL_ADD, event, READ | EDGE, Token::new(0, 0, WAKER).0)?;
        Ok(Level {
            poll,
            connections: Table::new(),
            listeners: Listeners::default(),
            waker,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            ready: 0,
            next_event: 0,
            roomy: Vec::new(),
            coming: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            filled: 0,
            counters: Counters::default(),
        })
    }

    /// Also ends a wait when this can be read.
    pub(crate) fn watch_other(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let token = Token::new(0, 0, OTHER).0;
        os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, token)
    }

    pub(crate) fn socket(&self, conn: ConnId) -> Option<BorrowedFd<'_>> {
        self.connections.get(conn).map(|connection| connection.socket.as_fd())
    }

    /// Whether something can be handed out, or received, without a wait.
    pub(crate) fn is_at_hand(&self) -> bool {
        !self.coming.is_empty() || self.next_event < self.ready
    }

    /// Reports the connection once in `roomy` as soon as it has room.
    pub(crate) fn await_room(&mut self, conn: ConnId) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        connection.full = true;
        watch(self.poll.as_fd(), conn, connection)
    }

    /// Nothing more of this connection is received or reported.
    pub(crate) fn silence(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        (connection.ended, connection.full) = (true, false);
        let unwatched = watch(self.poll.as_fd(), conn, connection);
        debug_assert!(unwatched.is_ok(), "removal of what was added");
        self.coming.retain(|step| !step.is_received(conn) && !step.is_end(conn));
    }

    /// Hands this out behind what is there already.
    pub(crate) fn finished(&mut self, completion: Completion<'static>) {
        self.coming.push_back(Step::Finished(completion));
    }

    /// Finds out what is to be handed out next, if that is not known: the events of a few connections are acted on.
    fn gather(&mut self) {
        if !self.coming.is_empty() {
            return;
        }
        self.filled = 0;
        while self.coming.len() < LOOK_AHEAD
            && self.buffer.len() - self.filled >= LEAST_ROOM
            && self.next_event < self.ready
        {
            self.event();
        }
    }

    fn event(&mut self) {
        let libc::epoll_event { events, u64: token } = self.events[self.next_event];
        let token = Token(token);
        if token.operation() == LISTENER {
            return self.listener_ready(token.index());
        }
        self.next_event += 1;
        match token.operation() {
            WAKER => self.woken(),
            CONNECTION => {
                let Some(conn) = self.connections.resolve(token) else { return };
                if events & (WRITE | HANG_UP) != 0 {
                    self.has_room(conn);
                }
                if events & (READ | HANG_UP) != 0 {
                    self.receive(conn);
                }
            }
            _ => {} // The other descriptor's owner looks at it in each pass.
        }
    }

    fn has_room(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if !std::mem::take(&mut connection.full) {
            return;
        }
        let Some(output) = connection.output.take() else {
            let watched = watch(self.poll.as_fd(), conn, connection);
            debug_assert!(watched.is_ok(), "less is watched than before");
            return self.roomy.push(conn);
        };
        if let Some((output, result)) = self.try_to_send(conn, output) {
            self.finished(Completion::Sent { conn, output, result });
        }
    }

    /// Sends what the socket takes. The rest waits for room.
    fn try_to_send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let connection = self.connections.get_mut(conn)?;
        let attempt = attempt::send(connection.socket.as_fd(), &mut output, &mut self.counters);
        connection.full = matches!(attempt, Ok(Attempt::Full | Attempt::Enough));
        let watched = watch(self.poll.as_fd(), conn, connection);
        match (attempt, watched) {
            (Ok(Attempt::Full | Attempt::Enough), Ok(())) => {
                connection.output = Some(output);
                None
            }
            (attempt, watched) => {
                output.clear();
                Some((output, attempt.and(watched)))
            }
        }
    }

    fn receive(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.paused || connection.ended {
            return;
        }
        let room = &mut self.buffer[self.filled..];
        match os::recv(connection.socket.as_fd(), room) {
            Ok(0) => self.receive_ended(conn, None),
            Ok(count) => {
                self.counters.receives += 1;
                self.coming.push_back(Step::Received(conn, self.filled, count));
                self.filled = (self.filled + count).next_multiple_of(LINE);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => self.receive_ended(conn, Some(error)),
        }
    }

    fn receive_ended(&mut self, conn: ConnId, error: Option<io::Error>) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.ended = true;
        let watched = watch(self.poll.as_fd(), conn, connection);
        debug_assert!(watched.is_ok(), "less is watched than before");
        self.finished(Completion::ReceiveEnded { conn, error });
    }

    fn woken(&mut self) {
        if self.waker.take() {
            self.counters.wakes += 1;
            self.finished(Completion::Woken);
        }
    }

    fn listener_ready(&mut self, id: ListenerId) {
        let (completion, is_over) = self.listeners.accept(self.poll.as_fd(), id, &mut self.counters);
        self.next_event += usize::from(is_over);
        completion.into_iter().for_each(|completion| self.finished(completion));
    }

    fn set_paused(&mut self, conn: ConnId, paused: bool) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.paused = paused;
        if watch(self.poll.as_fd(), conn, connection).is_err() {
            // Only for want of memory, and only when it is to be added: it has ended as if the peer had gone.
            connection.ended = true;
            let error = Some(io::ErrorKind::OutOfMemory.into());
            self.finished(Completion::ReceiveEnded { conn, error });
        }
    }
}

impl Engine for Level {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        self.listeners.add(self.poll.as_fd(), id, socket)
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.listeners.remove(id);
        let dropped =
            |step: &Step| matches!(step, Step::Finished(Completion::Accepted { listener, .. }) if *listener == id);
        self.coming.retain(|step| !dropped(step));
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        let mut connection =
            Connection { socket, output: None, full: false, paused: false, ended: false, watched: None };
        watch(self.poll.as_fd(), conn, &mut connection)?;
        self.connections.insert(conn, connection);
        Ok(())
    }

    fn pause(&mut self, conn: ConnId) {
        self.set_paused(conn, true);
    }

    fn resume(&mut self, conn: ConnId) {
        self.set_paused(conn, false);
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let Some(connection) = self.connections.get(conn) else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(connection.output.is_none(), "a send is in flight already");
        self.try_to_send(conn, output)
    }

    fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(conn) else { return };
        self.coming.retain(|step| !step.is_received(conn) && !step.is_end(conn));
        if let Some(mut output) = connection.output {
            output.clear();
            let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
            self.finished(Completion::Sent { conn, output, result });
        }
        self.finished(Completion::Closed { conn });
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
        if connection.watched.is_some() {
            let removed = os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_DEL, connection.socket.as_fd(), 0, 0);
            debug_assert!(removed.is_ok());
        }
        // What was received is handed out first; who takes the socket finds the end again.
        self.coming.retain(|step| !step.is_end(conn));
        self.finished(Completion::Detached { conn, socket: connection.socket.into() });
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
        if self.next_event < self.ready {
            return Ok(()); // An edge of the waker would not be reported again.
        }
        let timeout = self.listeners.retry(self.poll.as_fd(), timeout)?;
        let timeout = if self.coming.is_empty() { timeout } else { Some(Duration::ZERO) };
        (self.ready, self.next_event) = (0, 0);
        self.counters.enters += 1;
        self.ready = os::epoll_wait(self.poll.as_fd(), &mut self.events, timeout)?;
        self.counters.cqes += self.ready as u64;
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        self.gather();
        match self.coming.pop_front()? {
            Step::Finished(completion) => Some(completion),
            Step::Received(conn, at, count) => Some(Completion::Received { conn, data: &self.buffer[at..at + count] }),
        }
    }

    fn look_ahead(&mut self) -> usize {
        self.gather();
        self.coming.len().min(LOOK_AHEAD)
    }

    fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        match *self.coming.get(at)? {
            Step::Received(conn, at, count) => Some((conn, &self.buffer[at..at + count])),
            Step::Finished(Completion::Sent { conn, .. }) => Some((conn, &[])),
            Step::Finished(_) => None,
        }
    }

    fn outstanding(&self) -> usize {
        self.connections.values().filter(|connection| connection.output.is_some()).count() + self.coming.len()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// Tells the kernel what is wanted of a connection, if that has changed.
fn watch(poll: BorrowedFd<'_>, conn: ConnId, connection: &mut Connection) -> io::Result<()> {
    let read = if connection.paused || connection.ended { 0 } else { READ };
    let wanted = read | if connection.full { WRITE } else { 0 };
    let wanted = (wanted != 0).then_some(wanted);
    let operation = match (connection.watched, wanted) {
        (before, now) if before == now => return Ok(()),
        (None, _) => libc::EPOLL_CTL_ADD,
        (_, None) => libc::EPOLL_CTL_DEL,
        _ => libc::EPOLL_CTL_MOD,
    };
    let token = Token::conn(conn, CONNECTION).0;
    os::epoll_control(poll, operation, connection.socket.as_fd(), wanted.unwrap_or(0), token)?;
    connection.watched = wanted;
    Ok(())
}

impl Step {
    fn is_received(&self, of: ConnId) -> bool {
        matches!(self, Step::Received(conn, ..) if *conn == of)
    }

    fn is_end(&self, of: ConnId) -> bool {
        matches!(self, Step::Finished(Completion::ReceiveEnded { conn, .. }) if *conn == of)
    }
}
