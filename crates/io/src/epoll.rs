//! [`Epoll`]: completions emulated on epoll, as cheap as a hand-written readiness loop.
//!
//! `next` receives lazily, for a few ready connections at a time, into one buffer that stays hot in the cache; `send`
//! tries at once and keeps only what the socket did not take.
//!
//! Connections are watched edge-triggered: level-triggered, the kernel would look at each ready socket again in the
//! next wait, only to find it drained (1 to 2 % of a small request), and every full socket, pause and end would be a
//! call of `epoll_ctl`. In return this engine remembers what an edge said until it has acted on it. Room for writing is
//! watched for from the first full socket on: an AF_UNIX socket reports it for every reply that its peer reads.
//!
//! Invariants:
//! - `readable` is cleared only when a receive found less than it asked for and no hang-up is known (an end of stream
//!   that came with the last bytes has no edge of its own), or would have blocked.
//! - `writable` is cleared only when a send took less than offered; then the kernel owes an edge.
//! - What was received lies in the buffer until the last of `coming` is handed out; only then more is received.
//! - A connection that could act but has had its share is in `again`, once; the next wait does not sleep.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::attempt::{self, Attempt};
use crate::listeners::{LISTENER, Listeners};
use crate::table::{Table, Token};
use crate::{Completion, ConnId, Counters, Engine, LOOK_AHEAD, ListenerId, Output, Socket, Waker, os};

/// An [`Engine`] on epoll.
pub struct Epoll {
    poll: OwnedFd,
    connections: Table<Connection>,
    listeners: Listeners,
    waker: Waker,
    events: Vec<libc::epoll_event>,
    /// Events that the last wait found, and how many of them are dealt with.
    ready: usize,
    next_event: usize,
    /// Connections to be looked at without a new event.
    again: VecDeque<ConnId>,
    /// How many of those belong to this pass.
    again_now: usize,
    /// What is to be handed out, in order.
    coming: VecDeque<Step>,
    buffer: Box<[u8]>,
    /// How much of the buffer belongs to what is in `coming`.
    filled: usize,
    counters: Counters,
}

struct Connection {
    socket: OwnedFd,
    output: Option<Output>,
    readable: bool,
    /// The peer has ended its stream, or the connection broke: receiving goes on until it shows.
    hung_up: bool,
    writable: bool,
    /// Whether epoll reports room for writing.
    watched_for_room: bool,
    paused: bool,
    ended: bool,
    /// Is in `again`.
    queued: bool,
}

/// What is to be handed out; the borrow of the buffer is made by `next`.
enum Step {
    Finished(Completion<'static>),
    /// Bytes from this position of the buffer on, and how many.
    Received(ConnId, usize, usize),
}

const READ: u32 = libc::EPOLLIN as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const HANG_UP: u32 = (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLRDHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// Operations in tokens.
const CONNECTION: u8 = 0;
const WAKER: u8 = 2;

/// Events taken per wait. More connections than this are ready at once only under overload, and then wait a pass.
const EVENTS: usize = 1024;
/// Receives until it is handed out take at most this: large enough that a system call is amortised, small enough for
/// the L2 cache.
const BUFFER_BYTES: usize = 64 * 1024;
/// With less room no further connection receives into the buffer.
const LEAST_ROOM: usize = 32 * 1024;
/// What was received begins at multiples of this in the buffer: two requests share no cache line.
const LINE: usize = 64;

impl Epoll {
    /// A new engine. Fails only for want of descriptors or memory.
    pub fn new() -> io::Result<Epoll> {
        let poll = os::epoll_create()?;
        let waker = Waker::new()?;
        let event = waker.event().expect("a kernel waker has an eventfd");
        let token = Token::new(0, 0, WAKER).0;
        os::epoll_control(poll.as_fd(), libc::EPOLL_CTL_ADD, event, READ | EDGE, token)?;
        Ok(Epoll {
            poll,
            connections: Table::new(),
            listeners: Listeners::default(),
            waker,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            ready: 0,
            next_event: 0,
            again: VecDeque::new(),
            again_now: 0,
            coming: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            filled: 0,
            counters: Counters::default(),
        })
    }

    /// Finds out what is to be handed out next, if that is not known: the events of a few connections are acted on.
    fn gather(&mut self) {
        if !self.coming.is_empty() {
            return;
        }
        self.filled = 0;
        while self.coming.len() < LOOK_AHEAD && self.buffer.len() - self.filled >= LEAST_ROOM {
            if self.next_event < self.ready {
                self.event();
            } else if self.again_now > 0 {
                self.look_again();
            } else {
                return;
            }
        }
    }

    fn event(&mut self) {
        let libc::epoll_event { events, u64: token } = self.events[self.next_event];
        let token = Token(token);
        if token.operation() == LISTENER {
            return self.listener_ready(token.index());
        }
        self.next_event += 1;
        if token.operation() == WAKER {
            return self.woken();
        }
        let Some(conn) = self.connections.resolve(token) else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.readable |= events & (READ | HANG_UP) != 0;
        connection.hung_up |= events & HANG_UP != 0;
        connection.writable |= events & (WRITE | HANG_UP) != 0;
        // One that is queued has its turn in this pass or the next.
        if !connection.queued {
            self.act(conn);
        }
    }

    fn look_again(&mut self) {
        self.again_now -= 1;
        let Some(conn) = self.again.pop_front() else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.queued = false;
        self.act(conn);
    }

    /// Writes first, then reads: what is sent frees memory, and a reset shows on either.
    fn act(&mut self, conn: ConnId) {
        if self.connections.get(conn).is_some_and(|connection| connection.output.is_some() && connection.writable) {
            self.send_more(conn);
        }
        self.receive(conn);
    }

    fn receive(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if !connection.readable || connection.paused || connection.ended {
            return;
        }
        let room = &mut self.buffer[self.filled..];
        match os::recv(connection.socket.as_fd(), room) {
            Ok(0) => self.coming.push_back(receive_ended(connection, conn, None)),
            Ok(count) => {
                self.counters.receives += 1;
                connection.readable = count == room.len() || connection.hung_up;
                self.coming.push_back(Step::Received(conn, self.filled, count));
                self.filled = (self.filled + count).next_multiple_of(LINE);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.coming.push_back(receive_ended(connection, conn, Some(error))),
        }
        // The rest waits for the next pass, so that one busy client does not hold up the others.
        if connection.readable && !connection.ended {
            queue(&mut self.again, connection, conn);
        }
    }

    fn send_more(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(mut output) = connection.output.take() else { return };
        match try_to_send(self.poll.as_fd(), connection, conn, &mut output, &mut self.counters) {
            Ok(Attempt::Full) => connection.output = Some(output),
            Ok(Attempt::Enough) => {
                connection.output = Some(output);
                queue(&mut self.again, connection, conn);
            }
            result => {
                output.clear();
                let result = result.map(|_done| ());
                self.finished(Completion::Sent { conn, output, result });
            }
        }
    }

    fn finished(&mut self, completion: Completion<'static>) {
        self.coming.push_back(Step::Finished(completion));
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
}

impl Engine for Epoll {
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
        let token = Token::conn(conn, CONNECTION).0;
        // What is there already, such as bytes received before, is reported as an edge, too.
        let events = READ | HANG_UP | EDGE;
        os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_ADD, socket.as_fd(), events, token)?;
        let connection = Connection {
            socket,
            output: None,
            readable: false,
            hung_up: false,
            writable: true,
            watched_for_room: false,
            paused: false,
            ended: false,
            queued: false,
        };
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
        if connection.readable && !connection.ended {
            queue(&mut self.again, connection, conn);
        }
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let Some(connection) = self.connections.get_mut(conn) else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(connection.output.is_none(), "a send is in flight already");
        match try_to_send(self.poll.as_fd(), connection, conn, &mut output, &mut self.counters) {
            Ok(Attempt::Full) => {}
            Ok(Attempt::Enough) => queue(&mut self.again, connection, conn),
            result => {
                output.clear();
                return Some((output, result.map(|_done| ())));
            }
        }
        connection.output = Some(output);
        None
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
        let socket = connection.socket.as_fd();
        let removed = os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_DEL, socket, 0, 0);
        debug_assert!(removed.is_ok());
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
            return Ok(()); // These edges would not be reported again.
        }
        let timeout = self.listeners.retry(self.poll.as_fd(), timeout)?;
        let at_hand = !self.coming.is_empty() || !self.again.is_empty();
        let timeout = if at_hand { Some(Duration::ZERO) } else { timeout };
        (self.ready, self.next_event) = (0, 0);
        self.counters.enters += 1;
        self.ready = os::epoll_wait(self.poll.as_fd(), &mut self.events, timeout)?;
        self.counters.cqes += self.ready as u64;
        self.again_now = self.again.len();
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

/// Sends what the socket takes; if that is not all, an edge will tell when there is room.
fn try_to_send(
    poll: BorrowedFd<'_>,
    connection: &mut Connection,
    conn: ConnId,
    output: &mut Output,
    counters: &mut Counters,
) -> io::Result<Attempt> {
    let attempt = attempt::send(connection.socket.as_fd(), output, counters)?;
    connection.writable = attempt != Attempt::Full;
    if attempt == Attempt::Full && !connection.watched_for_room {
        let token = Token::conn(conn, CONNECTION).0;
        let events = READ | WRITE | HANG_UP | EDGE;
        // Room that has come up since the attempt is reported by this change itself.
        os::epoll_control(poll, libc::EPOLL_CTL_MOD, connection.socket.as_fd(), events, token)?;
        connection.watched_for_room = true;
    }
    Ok(attempt)
}

/// Lets a connection act in the next pass without an event.
fn queue(again: &mut VecDeque<ConnId>, connection: &mut Connection, conn: ConnId) {
    if !std::mem::replace(&mut connection.queued, true) {
        again.push_back(conn);
    }
}

fn receive_ended(connection: &mut Connection, conn: ConnId, error: Option<io::Error>) -> Step {
    connection.ended = true;
    Step::Finished(Completion::ReceiveEnded { conn, error })
}

impl Step {
    fn is_received(&self, of: ConnId) -> bool {
        matches!(self, Step::Received(conn, ..) if *conn == of)
    }

    fn is_end(&self, of: ConnId) -> bool {
        matches!(self, Step::Finished(Completion::ReceiveEnded { conn, .. }) if *conn == of)
    }
}
