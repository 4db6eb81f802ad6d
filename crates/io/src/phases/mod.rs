//! [`Phases`]: the threaded I/O of Redis 6, behind [`Engine`]; measured by Oliveira, "Benchmarking the experimental Redis
//! Multi-Threaded I/O" (2019), and the system that Curto (2021) compares with.
//!
//! The worker's thread is one of N. What `send` is given waits for the next `wait`: there the connections with replies are
//! dealt to the N threads, which write, and when all are done the worker goes on (`team`). With `reads`, the connections
//! that have bytes are dealt the same way, read, and their requests found, before anything of them is handed out. In
//! between the worker executes alone.
//!
//! As in Redis: a phase with fewer than two jobs a thread is done by the worker alone, and after such a write phase reads
//! are not dealt either, until there is one with more. A thread writes at most 64 KiB for a connection; what is left, the
//! worker writes by itself, as often as the socket has room, as much at a time.
//!
//! Invariants: an output is in its connection, or in a job of the phase that is under way; between phases the other threads
//! have nothing.

mod team;

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{self, Attempt};
use crate::coming::{Coming, Piece};
use crate::readiness::{Readiness, Ready};
use crate::{Completion, ConnId, Counters, Engine, LOOK_AHEAD, ListenerId, Output, Requests, Socket, Waker};
use team::Team;

/// Finds the requests in bytes that begin at a request's beginning. Called by several threads at once.
#[derive(Clone, Copy, Debug)]
pub struct FindRequests(pub fn(&[u8], &mut Requests));

impl PartialEq for FindRequests {
    fn eq(&self, other: &FindRequests) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for FindRequests {}

/// How phases are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhasesOptions {
    /// Threads in all, the worker's included; at least one.
    pub threads: usize,
    /// Whether they read, too, and what finds requests in what they have read.
    pub reads: Option<FindRequests>,
}

/// An [`Engine`] that reads and writes in parallel phases.
pub struct Phases {
    sockets: Readiness<Option<Output>>,
    team: Team<Task>,
    /// Connections that were given an output since the last write phase.
    to_write: Vec<ConnId>,
    /// The jobs of a phase.
    tasks: Vec<Task>,
    /// The last write phase was worth the threads.
    active: bool,
    reads: Option<FindRequests>,
    coming: Coming,
    counters: Counters,
}

/// A job of a phase.
struct Task {
    conn: ConnId,
    socket: Arc<OwnedFd>,
    counters: Counters,
    work: Work,
}

enum Work {
    Write { output: Output, result: io::Result<Attempt> },
    Read { piece: Piece, find: FindRequests, result: Result<(), Option<io::Error>> },
}

/// What a connection may write in its turn, as Redis's NET_MAX_WRITES_PER_EVENT.
const WRITE_BYTES: usize = 64 * 1024;

impl Phases {
    /// # Errors
    /// There are no descriptors or threads left, or not one thread is asked for.
    pub fn new(options: PhasesOptions) -> io::Result<Phases> {
        if options.threads == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "phases need at least the worker's thread"));
        }
        Ok(Phases {
            sockets: Readiness::new(None)?,
            team: Team::start(options.threads)?,
            to_write: Vec::new(),
            tasks: Vec::new(),
            active: false,
            reads: options.reads,
            coming: Coming::new(),
            counters: Counters::default(),
        })
    }

    /// Writes what was given to `send` since the last time.
    fn write_phase(&mut self) {
        for conn in self.to_write.drain(..) {
            let Some(connection) = self.sockets.get_mut(conn) else { continue };
            let Some(output) = connection.state.take() else { continue };
            let (socket, result) = (Arc::clone(&connection.socket), Ok(Attempt::Full));
            let work = Work::Write { output, result };
            self.tasks.push(Task { conn, socket, counters: Counters::default(), work });
        }
        if self.tasks.is_empty() {
            return;
        }
        self.active = self.tasks.len() >= 2 * self.team.threads() && self.team.threads() > 1;
        if self.active {
            self.counters.write_phases += 1;
            self.phase();
        } else {
            self.counters.phases_alone += 1;
            self.tasks.iter_mut().for_each(team::Job::run);
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        for Task { conn, counters, work, socket } in tasks.drain(..) {
            drop(socket);
            self.counters.sends += counters.sends;
            self.counters.short_sends += counters.short_sends;
            let Work::Write { output, result } = work else { unreachable!("the phase only writes") };
            self.written(conn, output, result);
        }
        self.tasks = tasks;
    }

    /// Does the jobs together.
    fn phase(&mut self) {
        self.counters.phase_jobs += self.tasks.len() as u64;
        if let Some(waited) = self.team.run(&mut self.tasks) {
            self.counters.barrier_waits += 1;
            self.counters.barrier_wait_ns += waited.as_nanos() as u64;
        }
    }

    /// An output was written, or a part of it: the rest is written as there is room.
    fn written(&mut self, conn: ConnId, mut output: Output, result: io::Result<Attempt>) {
        let is_left = matches!(result, Ok(Attempt::Full | Attempt::Enough));
        self.sockets.set_wants_room(conn, is_left);
        if is_left {
            if let Some(connection) = self.sockets.get_mut(conn) {
                connection.state = Some(output);
            }
            return;
        }
        output.clear();
        self.coming.push(Completion::Sent { conn, output, result: result.map(|_done| ()) });
    }

    /// There is room for what is left of an output.
    fn write_more(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.get_mut(conn) else { return };
        let Some(mut output) = connection.state.take() else { return };
        let socket = connection.socket.as_fd();
        let result = attempt::send_within(WRITE_BYTES, socket, &mut output, &mut self.counters);
        self.written(conn, output, result);
    }

    /// Reads from all connections that have bytes.
    fn read_phase(&mut self, find: FindRequests) {
        while let Some(ready) = self.sockets.next(&mut self.counters) {
            let (conn, readable) = match ready {
                Ready::Completion(completion) => {
                    self.coming.push(completion);
                    continue;
                }
                Ready::Returned => continue,
                Ready::Connection { conn, readable, room } => {
                    if room {
                        self.write_more(conn);
                    }
                    (conn, readable)
                }
            };
            let Some(connection) = self.sockets.get(conn).filter(|_| readable) else { continue };
            let socket = Arc::clone(&connection.socket);
            let work = Work::Read { piece: self.coming.piece(), find, result: Ok(()) };
            self.tasks.push(Task { conn, socket, counters: Counters::default(), work });
        }
        if self.tasks.is_empty() {
            return;
        }
        self.counters.read_phases += 1;
        self.phase();
        for Task { conn, socket, work, .. } in self.tasks.drain(..) {
            drop(socket);
            let Work::Read { piece, result, .. } = work else { unreachable!("the phase only reads") };
            self.counters.receives += u64::from(piece.is_some());
            self.coming.push_piece(conn, piece);
            if let Err(error) = result {
                self.sockets.end(conn);
                self.coming.push(Completion::ReceiveEnded { conn, error });
            }
        }
    }

    /// Finds out what is to be handed out next, if that is not known.
    fn gather(&mut self) {
        if self.coming.len() > 0 {
            return;
        }
        self.coming.restart();
        while self.coming.has_room() {
            match self.sockets.next(&mut self.counters) {
                None => return,
                Some(Ready::Returned) => {}
                Some(Ready::Completion(completion)) => self.coming.push(completion),
                Some(Ready::Connection { conn, readable, room }) => {
                    if room {
                        self.write_more(conn);
                    }
                    if readable {
                        self.receive(conn);
                    }
                }
            }
        }
    }

    fn receive(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.get(conn) else { return };
        if let Some(error) = self.coming.receive(conn, connection.socket.as_fd(), &mut self.counters) {
            self.sockets.end(conn);
            self.coming.push(Completion::ReceiveEnded { conn, error });
        }
    }
}

impl team::Job for Task {
    fn run(&mut self) {
        match &mut self.work {
            Work::Write { output, result } => {
                *result = attempt::send_within(WRITE_BYTES, self.socket.as_fd(), output, &mut self.counters);
            }
            Work::Read { piece, find, result } => *result = piece.receive(self.socket.as_fd(), find.0),
        }
    }
}

impl Engine for Phases {
    fn name(&self) -> &'static str {
        "phases"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        self.sockets.listen(id, socket)
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.sockets.unlisten(id);
        self.coming.forget_listener(id);
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        self.sockets.attach(conn, socket, None)
    }

    fn pause(&mut self, conn: ConnId) {
        self.sockets.set_paused(conn, true);
    }

    fn resume(&mut self, conn: ConnId) {
        self.sockets.set_paused(conn, false);
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let Some(connection) = self.sockets.get_mut(conn) else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(connection.state.is_none(), "a send is in flight already");
        connection.state = Some(output);
        self.to_write.push(conn);
        None
    }

    fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.remove(conn) else { return };
        self.coming.forget(conn, true);
        if let Some(mut output) = connection.state {
            output.clear();
            let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
            self.coming.push(Completion::Sent { conn, output, result });
        }
        self.coming.push(Completion::Closed { conn });
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        if let Some(connection) = self.sockets.get(conn) {
            connection.shutdown_write();
        }
    }

    fn detach(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.remove(conn) else { return };
        debug_assert!(connection.state.is_none(), "detached with a send in flight");
        // What was received is handed out first; who takes the socket finds the end again.
        self.coming.forget(conn, false);
        self.coming.push(Completion::Detached { conn, socket: connection.into_socket() });
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.sockets.get(conn).and_then(|connection| connection.state.as_ref()).map_or(0, Output::len)
    }

    fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.sockets.raw_fd(conn)
    }

    fn waker(&self) -> Waker {
        self.sockets.waker()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_phase();
        let timeout = if self.coming.len() > 0 { Some(Duration::ZERO) } else { timeout };
        self.sockets.wait(timeout, &mut self.counters)?;
        if let Some(find) = self.reads.filter(|_| self.active) {
            self.read_phase(find);
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        self.gather();
        self.coming.next()
    }

    fn look_ahead(&mut self) -> usize {
        self.gather();
        self.coming.len().min(LOOK_AHEAD)
    }

    fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        self.coming.upcoming(at)
    }

    fn outstanding(&self) -> usize {
        self.coming.len() + self.sockets.values().filter(|connection| connection.state.is_some()).count()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
