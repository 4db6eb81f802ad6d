//! [`Queue`]: one thread reads and executes, others write. The asynchronous replies of Curto, "Evaluation of Redis Performing
//! Asynchronous I/O With Concurrent Queues" (2021), behind [`Engine`].
//!
//! The worker reads as Redis does, level-triggered. A `send` lays the output into the connection's slot and puts the
//! connection's number into the reply queue; a writer takes it, writes what the socket takes, and sends the number back
//! through a second queue. So a connection has one output out at most, and is in one place: its replies keep their order
//! however relaxed the queue is, and no two threads write to it.
//!
//! A socket that is full is the engine's to watch. When there is room, the connection is put into the queue again: large
//! replies are written by the writers to their end, and no slow client keeps one of them.
//!
//! Invariants: a number is in one of the two queues, with a writer, or here; a connection that is closed while its output
//! is out keeps its slot until that comes back; a writer's socket is not closed under it, as the output holds it.

mod slots;
mod writers;

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::coming::Coming;
use crate::readiness::{Readiness, Ready};
use crate::{
    Completion, ConnId, Counters, Engine, LOOK_AHEAD, ListenerId, Output, ReplyQueueKind, Socket, Turn, Waker,
};
use slots::{Job, Outcome, Tally};
use writers::{ENGINE, Writers, cancelled};

/// How replies are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    /// The queue between the worker and the writers.
    pub queue: ReplyQueueKind,
    /// Writing threads, at least one.
    pub writers: usize,
}

/// An [`Engine`] whose replies are written by a pool of threads.
pub struct Queue {
    sockets: Readiness<Sending>,
    writers: Writers,
    turn: Turn,
    coming: Coming,
    /// The connection whose number each slot has now.
    conns: Vec<Option<ConnId>>,
    counters: Counters,
}

/// Where a connection's output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Sending {
    /// There is none.
    #[default]
    Nothing,
    /// With the writers.
    Out,
    /// In its slot, until the socket has room.
    NoRoom,
    /// With the writers, and the connection is closed when it comes back.
    Closing,
}

impl Queue {
    /// # Errors
    /// There are no descriptors or threads left, or not one writer is asked for.
    pub fn new(options: QueueOptions) -> io::Result<Queue> {
        if options.writers == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "replies need at least one writing thread"));
        }
        let returned = Waker::new()?;
        Ok(Queue {
            sockets: Readiness::new(Some(&returned))?,
            writers: Writers::start(options.queue, options.writers, returned)?,
            turn: Turn::new(ENGINE),
            coming: Coming::new(),
            conns: Vec::new(),
            counters: Counters::default(),
        })
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
                Some(Ready::Completion(completion)) => self.coming.push(completion),
                Some(Ready::Returned) => self.take_back(),
                Some(Ready::Connection { conn, readable, room }) => {
                    if room {
                        self.sockets.set_wants_room(conn, false);
                        self.put(conn);
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

    /// Puts a connection whose output lies in its slot into the reply queue.
    fn put(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.get_mut(conn) else { return };
        connection.state = Sending::Out;
        self.counters.queued += 1;
        if let Some(job) = self.writers.shared.slots.at(conn.index).job().as_mut() {
            job.queued = Instant::now();
        }
        self.writers.shared.replies.put(&mut self.turn, conn.index);
    }

    /// Takes what the writers have sent back.
    fn take_back(&mut self) {
        self.writers.shared.listen_for_returns();
        while let Some(index) = self.writers.shared.take_returned(&mut self.turn) {
            let conn = self.conns[index as usize].expect("a connection keeps its slot until its output is back");
            self.came_back(conn);
        }
    }

    fn came_back(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.get_mut(conn) else { return };
        let closing = connection.state == Sending::Closing;
        let over = {
            let mut slot = self.writers.shared.slots.at(conn.index).job();
            let job = slot.as_mut().expect("the writers send back what they were given");
            self.counters.add(std::mem::take(&mut job.tally));
            let is_full = matches!(job.outcome, Outcome::Full);
            if is_full && !closing { None } else { slot.take() }
        };
        match over {
            Some(job) => self.over(conn, job, closing),
            None => {
                connection.state = Sending::NoRoom;
                self.sockets.set_wants_room(conn, true);
            }
        }
    }

    /// An output is over: everything was written, or it failed, or its connection is closed.
    fn over(&mut self, conn: ConnId, job: Job, closing: bool) {
        let Job { mut output, outcome, .. } = job;
        let outcome = if matches!(outcome, Outcome::Done(_)) { outcome } else { cancelled() };
        let Outcome::Done(result) = outcome else { unreachable!("it was made so") };
        output.clear();
        self.counters.queue_out += 1;
        self.coming.push(Completion::Sent { conn, output, result });
        if closing {
            self.forget(conn);
        } else if let Some(connection) = self.sockets.get_mut(conn) {
            connection.state = Sending::Nothing;
        }
    }

    /// A closed connection has nothing out any more.
    fn forget(&mut self, conn: ConnId) {
        self.sockets.remove(conn);
        self.conns[conn.index as usize] = None;
        self.coming.push(Completion::Closed { conn });
    }
}

impl Engine for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        self.sockets.listen(id, socket)
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.sockets.unlisten(id);
        self.coming.forget_listener(id);
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        self.sockets.attach(conn, socket, Sending::Nothing)?;
        let slots = conn.index as usize + 1;
        if slots > self.conns.len() {
            self.conns.resize(slots, None);
            self.writers.shared.reserve(slots);
        }
        self.conns[conn.index as usize] = Some(conn);
        Ok(())
    }

    fn pause(&mut self, conn: ConnId) {
        self.sockets.set_paused(conn, true);
    }

    fn resume(&mut self, conn: ConnId) {
        self.sockets.set_paused(conn, false);
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let Some(connection) = self.sockets.get(conn) else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert_eq!(connection.state, Sending::Nothing, "a send is in flight already");
        let (socket, queued) = (Arc::clone(&connection.socket), Instant::now());
        let job = Job { socket, output, queued, outcome: Outcome::Queued, tally: Tally::default() };
        self.writers.shared.slots.at(conn.index).begin(job);
        self.counters.queue_in += 1;
        self.put(conn);
        None
    }

    fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.get_mut(conn) else { return };
        match connection.state {
            Sending::Closing => return,
            Sending::Nothing => {
                self.coming.forget(conn, true);
                return self.forget(conn);
            }
            Sending::NoRoom => {
                self.coming.forget(conn, true);
                let job = self.writers.shared.slots.at(conn.index).job().take();
                return self.over(conn, job.expect("it waits for room in its slot"), true);
            }
            Sending::Out => connection.state = Sending::Closing,
        }
        self.coming.forget(conn, true);
        self.writers.shared.slots.at(conn.index).cancel();
        self.sockets.end(conn);
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        if let Some(connection) = self.sockets.get(conn) {
            connection.shutdown_write();
        }
    }

    fn detach(&mut self, conn: ConnId) {
        let Some(connection) = self.sockets.remove(conn) else { return };
        debug_assert_eq!(connection.state, Sending::Nothing, "detached with a send in flight");
        self.conns[conn.index as usize] = None;
        // What was received is handed out first; who takes the socket finds the end again.
        self.coming.forget(conn, false);
        self.coming.push(Completion::Detached { conn, socket: connection.into_socket() });
    }

    fn unsent(&self, conn: ConnId) -> usize {
        match self.sockets.get(conn) {
            Some(connection) if connection.state != Sending::Nothing => {
                self.writers.shared.slots.at(conn.index).unsent()
            }
            _ => 0,
        }
    }

    fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.sockets.raw_fd(conn)
    }

    fn waker(&self) -> Waker {
        self.sockets.waker()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // Most outputs are back before the worker has come round: then it need not be told.
        self.take_back();
        let timeout = if self.coming.len() > 0 { Some(Duration::ZERO) } else { timeout };
        self.sockets.wait(timeout, &mut self.counters)
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
        (self.counters.queue_in - self.counters.queue_out) as usize + self.coming.len()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Counters {
    /// Adds what writers have done with one output.
    fn add(&mut self, tally: Tally) {
        self.sends += tally.sends;
        self.short_sends += tally.short_sends;
        self.queued += tally.queued;
        self.queue_wait_ns += tally.waited_ns;
        self.partial_visits += tally.visits;
    }
}
