//! [`Readiness`]: what the engines of `queue` and `phases` know of their sockets, level-triggered epoll as Redis uses it.
//!
//! A connection is watched for what it is to do: for bytes while it may receive, for room while an output waits for it.
//! Level-triggered, nothing of an event need be remembered: who does not act on it is told again. A connection that is to
//! do nothing stays registered, edge-triggered, so that a hang-up is not reported over and over, and so that watching it
//! again cannot fail.
//!
//! `epoll.rs` is edge-triggered, which is faster, and remembers; the papers' systems are Redis and poll as it does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::listeners::{LISTENER, Listeners};
use crate::table::{Table, Token};
use crate::{Completion, ConnId, Counters, ListenerId, Socket, Waker, os};

/// Sockets by connection, each with what its engine knows of it, and listeners.
pub(crate) struct Readiness<S> {
    poll: OwnedFd,
    connections: Table<Watched<S>>,
    listeners: Listeners,
    waker: Waker,
    /// Events that the last wait found, and how many of them are dealt with.
    events: Vec<libc::epoll_event>,
    ready: usize,
    next_event: usize,
}

/// A connection.
pub(crate) struct Watched<S> {
    /// Shared with the threads that read and write for the engine, while they do.
    pub(crate) socket: Arc<OwnedFd>,
    /// Its engine's own.
    pub(crate) state: S,
    paused: bool,
    /// Nothing more is received.
    ended: bool,
    wants_room: bool,
    /// What epoll was told.
    watched: u32,
}

/// What is ready.
pub(crate) enum Ready {
    /// A connection has bytes, or room, or both.
    Connection { conn: ConnId, readable: bool, room: bool },
    /// Something to be handed out as it is.
    Completion(Completion<'static>),
    /// The engine's own threads have woken it.
    Returned,
}

const READ: u32 = libc::EPOLLIN as u32 | libc::EPOLLRDHUP as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// Operations in tokens, beside [`LISTENER`].
const CONNECTION: u8 = 0;
const WAKER: u8 = 2;
const RETURNED: u8 = 3;

/// Events taken per wait.
const EVENTS: usize = 1024;

impl<S> Readiness<S> {
    /// Fails only for want of descriptors or memory. `returned` is what the engine's own threads wake it with.
    pub(crate) fn new(returned: Option<&Waker>) -> io::Result<Readiness<S>> {
        let poll = os::epoll_create()?;
        let waker = Waker::new()?;
        for (waker, operation) in [(Some(&waker), WAKER), (returned, RETURNED)] {
            let Some(waker) = waker else { continue };
            let event = waker.event().expect("a kernel waker has an eventfd");
            let token = Token::new(0, 0, operation).0;
            os::epoll_control(poll.as_fd(), libc::EPOLL_CTL_ADD, event, libc::EPOLLIN as u32 | EDGE, token)?;
        }
        Ok(Readiness {
            poll,
            connections: Table::new(),
            listeners: Listeners::default(),
            waker,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            ready: 0,
            next_event: 0,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        self.listeners.add(self.poll.as_fd(), id, socket)
    }

    pub(crate) fn unlisten(&mut self, id: ListenerId) {
        self.listeners.remove(id);
    }

    /// Watches a new connection.
    pub(crate) fn attach(&mut self, conn: ConnId, socket: Socket, state: S) -> io::Result<()> {
        let socket = socket.into_fd()?;
        let token = Token::conn(conn, CONNECTION).0;
        os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_ADD, socket.as_fd(), READ, token)?;
        let socket = Arc::new(socket);
        let watched = Watched { socket, state, paused: false, ended: false, wants_room: false, watched: READ };
        self.connections.insert(conn, watched);
        Ok(())
    }

    /// Forgets a connection. Its socket is closed as soon as nobody has it.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Watched<S>> {
        let connection = self.connections.remove(conn)?;
        let removed = os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_DEL, connection.socket.as_fd(), 0, 0);
        debug_assert!(removed.is_ok(), "what was added can be removed");
        Some(connection)
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&Watched<S>> {
        self.connections.get(conn)
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Watched<S>> {
        self.connections.get_mut(conn)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Watched<S>> {
        self.connections.values()
    }

    pub(crate) fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.connections.get(conn).map(|connection| connection.socket.as_raw_fd())
    }

    pub(crate) fn set_paused(&mut self, conn: ConnId, paused: bool) {
        self.change(conn, |connection| connection.paused = paused);
    }

    /// Nothing more is received from this connection.
    pub(crate) fn end(&mut self, conn: ConnId) {
        self.change(conn, |connection| connection.ended = true);
    }

    pub(crate) fn set_wants_room(&mut self, conn: ConnId, wants_room: bool) {
        self.change(conn, |connection| connection.wants_room = wants_room);
    }

    fn change(&mut self, conn: ConnId, change: impl FnOnce(&mut Watched<S>)) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        change(connection);
        let read = if connection.receives() { READ } else { 0 };
        let write = if connection.wants_room { WRITE } else { 0 };
        let wanted = if read | write == 0 { EDGE } else { read | write };
        if wanted != connection.watched {
            connection.watched = wanted;
            let (socket, token) = (connection.socket.as_fd(), Token::conn(conn, CONNECTION).0);
            let changed = os::epoll_control(self.poll.as_fd(), libc::EPOLL_CTL_MOD, socket, wanted, token);
            changed.expect("what is watched for of a watched socket can be changed");
        }
    }

    /// Waits for events; those of the wait before are forgotten, and come again if they are still true.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, counters: &mut Counters) -> io::Result<()> {
        let timeout = self.listeners.retry(self.poll.as_fd(), timeout)?;
        (self.ready, self.next_event) = (0, 0);
        counters.enters += 1;
        self.ready = os::epoll_wait(self.poll.as_fd(), &mut self.events, timeout)?;
        counters.cqes += self.ready as u64;
        Ok(())
    }

    /// The next thing that is ready.
    pub(crate) fn next(&mut self, counters: &mut Counters) -> Option<Ready> {
        while self.next_event < self.ready {
            let libc::epoll_event { events, u64: token } = self.events[self.next_event];
            let token = Token(token);
            if token.operation() == LISTENER {
                let (completion, done) = self.listeners.accept(self.poll.as_fd(), token.index(), counters);
                self.next_event += usize::from(done);
                match completion {
                    Some(completion) => return Some(Ready::Completion(completion)),
                    None => continue,
                }
            }
            self.next_event += 1;
            match token.operation() {
                RETURNED => return Some(Ready::Returned),
                WAKER if self.waker.take() => {
                    counters.wakes += 1;
                    return Some(Ready::Completion(Completion::Woken));
                }
                WAKER => continue,
                _ => {}
            }
            let Some(conn) = self.connections.resolve(token) else { continue };
            let Some(connection) = self.connections.get(conn) else { continue };
            let readable = events & (READ | BROKEN) != 0 && connection.receives();
            let room = events & (WRITE | BROKEN) != 0 && connection.wants_room;
            if readable || room {
                return Some(Ready::Connection { conn, readable, room });
            }
        }
        None
    }
}

impl<S> Watched<S> {
    /// Whether bytes are wanted.
    pub(crate) fn receives(&self) -> bool {
        !self.paused && !self.ended
    }

    /// Ends the outgoing stream.
    pub(crate) fn shutdown_write(&self) {
        if let Err(error) = os::shutdown_write(self.socket.as_fd()) {
            debug_assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "the peer may be gone, nothing else");
        }
    }

    /// The socket, for another engine.
    ///
    /// # Panics
    /// If a thread still reads or writes.
    pub(crate) fn into_socket(self) -> Socket {
        Arc::into_inner(self.socket).expect("detached with something in flight").into()
    }
}
