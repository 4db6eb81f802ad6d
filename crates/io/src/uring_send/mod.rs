//! [`UringSend`]: readiness by epoll, read(2), and replies through a ring that carries nothing else; the servers of Curto,
//! "Evaluation of Redis using io_uring communication" (2020).
//!
//! What is submitted when is a policy ([`Submit`]): each reply alone and waited for, each alone, or all of a pass (or of
//! so many, or of such a time) together. Who keeps a connection's replies in order is another ([`Order`]): the application,
//! with one send in flight; or the kernel, each reply an entry of its own, those of one connection in one batch linked,
//! and no batch begun before the one before is over (IOSQE_IO_DRAIN).
//!
//! # Invariants
//! - `parts` are a connection's outputs in their order; the kernel has entries for `in_flight` of them.
//! - A part is submitted only when no part before it has come back unfinished. So with the kernel's order, where an entry
//!   that sends less than all breaks its chain, what is left goes out again before what comes behind.
//! - Were the kernel to send bytes behind a gap all the same, the connection ends in an error: bytes out of order are worse.
//! - A slot, its socket and its outputs live until its last completion: `in_flight` and `cancels` are zero.
//!
//! Entries that may not sleep (MSG_DONTWAIT; with the kernel's order, or if each is waited for) fail on a full socket, as on
//! Redis's non-blocking ones: the rest waits for epoll to report room. Else one client that does not read would hold up,
//! behind a drain, all others.
//!
//! # Safety
//! Entries point into an [`Output`]'s heap memory, and to a boxed [`Message`], which points there too. Both belong to a part
//! and stay, untouched, until its completion. `Drop` cancels everything and waits; what does not end in time is leaked.

mod reap;
mod submit;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::types::{CancelBuilder, Fd};

use crate::level::Level;
use crate::table::{Table, Token};
use crate::uring::message::Message;
use crate::uring::ring::{Ring, TaskRun};
use crate::{Completion, ConnId, Counters, Engine, ListenerId, Output, Socket, Waker, os};

/// When replies are submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submit {
    /// Each by a system call that waits until it is sent.
    Sequential,
    /// Each by a system call.
    Async,
    /// All of a pass by one.
    Batch,
}

/// Who keeps the replies of a connection in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The application: one send in flight, of all replies so far.
    App,
    /// The kernel: each reply an entry.
    Kernel,
}

/// Settings of [`UringSend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UringSendOptions {
    /// When replies are submitted.
    pub submit: Submit,
    /// Who keeps them in order.
    pub order: Order,
    /// With [`Submit::Batch`]: submit as soon as so many entries wait, and not before there are as many or nothing else is
    /// to be done; 0: at the end of each pass.
    pub threshold: usize,
    /// With [`Submit::Batch`]: entries wait for others for so long, however many passes that are.
    pub interval: Duration,
    /// Submission queue entries.
    pub sq_entries: u32,
}

impl Default for UringSendOptions {
    fn default() -> UringSendOptions {
        UringSendOptions {
            submit: Submit::Batch,
            order: Order::App,
            threshold: 0,
            interval: Duration::ZERO,
            sq_entries: 512,
        }
    }
}

/// An [`Engine`] that receives by epoll and sends by io_uring. It belongs to the thread that made it.
pub struct UringSend {
    // Dropped before the memory that the kernel reads from.
    ring: Ring,
    level: Level,
    sendings: Table<Sending>,
    /// Connections with parts to be submitted, each once.
    dirty: Vec<ConnId>,
    /// Parts gathered since the last submission.
    waiting: usize,
    /// Since when there are some.
    waiting_since: Option<Instant>,
    /// Sends that are queued in the ring and not submitted.
    queued: usize,
    options: UringSendOptions,
    #[expect(clippy::vec_box, reason = "a message's address is fixed while the kernel has it")]
    messages: Vec<Box<Message>>,
    counters: Counters,
}

/// What a connection has to send.
struct Sending {
    parts: VecDeque<Part>,
    in_flight: usize,
    /// Number of the next part.
    next_number: u8,
    /// Cancellations whose completion is outstanding.
    cancels: u32,
    /// A part came back unfinished; nothing is submitted before all have come back.
    is_broken: bool,
    /// The socket was full: epoll tells when there is room.
    awaits_room: bool,
    /// Listed in `dirty`.
    is_dirty: bool,
    is_closing: bool,
    error: Option<io::Error>,
}

/// An output and what the kernel reads with it.
struct Part {
    output: Output,
    message: Option<Box<Message>>,
    number: u8,
    /// Bytes that its entry offered.
    offered: usize,
    /// Its completion is outstanding.
    is_submitted: bool,
}

/// Operations in tokens: a cancellation, or a send of the part with the number in the other bits.
const CANCEL: u8 = 1;
const SEND: u8 = 0x80;
/// Parts are numbered modulo this.
const NUMBERS: u8 = 0x80;
/// So many of a connection are in flight at most: fewer than there are numbers.
const IN_FLIGHT: usize = 64;

/// How long dropping the engine waits for cancelled operations before it leaks their memory.
const DRAIN: Duration = Duration::from_secs(1);

impl UringSend {
    /// Sets up a ring for the calling thread.
    pub fn new(options: UringSendOptions) -> io::Result<UringSend> {
        let ring = Ring::open(options.sq_entries, 2 * options.sq_entries.max(4096), TaskRun::Coop)?;
        let level = Level::new()?;
        // SAFETY: the ring's descriptor is open as long as the ring is, which outlives this call.
        level.watch_other(unsafe { BorrowedFd::borrow_raw(ring.uring().as_raw_fd()) })?;
        Ok(UringSend {
            ring,
            level,
            sendings: Table::new(),
            dirty: Vec::new(),
            waiting: 0,
            waiting_since: None,
            queued: 0,
            options,
            messages: Vec::new(),
            counters: Counters::default(),
        })
    }

    fn cancel_all_of(&mut self, conn: ConnId) {
        let (Some(sending), Some(socket)) = (self.sendings.get_mut(conn), self.level.socket(conn)) else { return };
        sending.cancels += 1;
        let all = CancelBuilder::fd(Fd(socket.as_raw_fd())).all();
        let entry = opcode::AsyncCancel2::new(all).build().user_data(Token::conn(conn, CANCEL).0);
        // SAFETY: a cancellation points to nothing.
        unsafe { self.ring.push(entry) };
    }

    /// Lets a closing connection go if nothing of it is in flight.
    fn settle(&mut self, conn: ConnId) {
        let is_over = |sending: &Sending| sending.is_closing && sending.in_flight == 0 && sending.cancels == 0;
        if !self.sendings.get(conn).is_some_and(is_over) {
            return;
        }
        self.give_back(conn, libc::ECANCELED);
        self.sendings.remove(conn);
        self.level.close(conn);
    }

    /// Hands out all parts, none of which is in flight: they will not be sent.
    fn give_back(&mut self, conn: ConnId, error: i32) {
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        for mut part in sending.parts.drain(..) {
            debug_assert!(!part.is_submitted);
            self.messages.extend(part.message.take());
            part.output.clear();
            let result = Err(io::Error::from_raw_os_error(error));
            self.level.finished(Completion::Sent { conn, output: part.output, result });
        }
    }
}

impl Sending {
    fn is_at_rest(&self) -> bool {
        self.parts.is_empty() && self.cancels == 0
    }
}

impl Engine for UringSend {
    fn name(&self) -> &'static str {
        "uring-send"
    }

    fn pipelines(&self) -> bool {
        self.options.order == Order::Kernel
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        self.level.listen(id, socket)
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.level.unlisten(id);
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        // A non-blocking file would fail where the kernel is to wait for room.
        os::set_nonblocking(socket.as_fd(), false)?;
        self.level.attach(conn, socket.into())?;
        let sending = Sending {
            parts: VecDeque::new(),
            in_flight: 0,
            next_number: 0,
            cancels: 0,
            is_broken: false,
            awaits_room: false,
            is_dirty: false,
            is_closing: false,
            error: None,
        };
        self.sendings.insert(conn, sending);
        Ok(())
    }

    fn pause(&mut self, conn: ConnId) {
        self.level.pause(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        self.level.resume(conn);
    }

    fn send(&mut self, conn: ConnId, mut output: Output) -> Option<(Output, io::Result<()>)> {
        let sending = self.sendings.get_mut(conn).filter(|sending| !sending.is_closing);
        let Some(sending) = sending else {
            output.clear();
            return Some((output, Err(io::ErrorKind::NotConnected.into())));
        };
        debug_assert!(sending.parts.is_empty() || self.options.order == Order::Kernel, "a send is in flight already");
        if output.is_empty() {
            output.clear();
            return Some((output, Ok(())));
        }
        let number = sending.next_number;
        sending.next_number = (number + 1) % NUMBERS;
        sending.parts.push_back(Part { output, message: None, number, offered: 0, is_submitted: false });
        if self.options.submit == Submit::Sequential {
            return self.submit_and_await(conn);
        }
        self.has_waiting(conn, 1);
        let is_enough = self.options.threshold > 0 && self.waiting >= self.options.threshold;
        if (self.options.submit == Submit::Async || is_enough) && self.submit().is_err() {
            // What the kernel has not taken stays queued: the next wait tries again, and reports.
            self.has_waiting(conn, 0);
        }
        None
    }

    fn close(&mut self, conn: ConnId) {
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        if std::mem::replace(&mut sending.is_closing, true) {
            return;
        }
        let is_in_flight = sending.in_flight > 0;
        if sending.is_dirty {
            self.waiting = self.waiting.saturating_sub(sending.parts.len() - sending.in_flight);
        }
        self.level.silence(conn);
        if is_in_flight {
            self.cancel_all_of(conn);
        }
        self.settle(conn);
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        self.level.shutdown_write(conn);
    }

    fn detach(&mut self, conn: ConnId) {
        let Some(sending) = self.sendings.remove(conn) else { return };
        debug_assert!(sending.parts.is_empty() && sending.cancels == 0, "detached with a send in flight");
        self.level.detach(conn);
    }

    fn unsent(&self, conn: ConnId) -> usize {
        let parts = self.sendings.get(conn).map(|sending| sending.parts.iter());
        parts.map_or(0, |parts| parts.map(|part| part.output.len()).sum())
    }

    fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.level.raw_fd(conn)
    }

    fn waker(&self) -> Waker {
        self.level.waker()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.look_for_room();
        let timeout = self.submit_what_is_due(timeout)?;
        self.level.wait(timeout)?;
        self.reap()
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        self.level.next()
    }

    fn look_ahead(&mut self) -> usize {
        self.level.look_ahead()
    }

    fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        self.level.upcoming(at)
    }

    fn outstanding(&self) -> usize {
        self.sendings.values().filter(|sending| !sending.is_at_rest()).count() + self.level.outstanding()
    }

    fn counters(&self) -> Counters {
        let (ring, level) = (self.ring.counters, self.level.counters);
        Counters {
            enters: ring.enters,
            sqes: ring.sqes,
            cqes: ring.cqes,
            cq_overflow: ring.cq_overflow,
            polls: level.enters,
            receives: level.receives,
            accepts: level.accepts,
            wakes: level.wakes,
            ..self.counters
        }
    }
}

impl Drop for UringSend {
    fn drop(&mut self) {
        for conn in self.sendings.ids() {
            self.close(conn);
        }
        let deadline = Instant::now() + DRAIN;
        while self.sendings.len() > 0 {
            let ended = self.ring.submit_and_wait(true, Some(DRAIN)).and_then(|()| self.reap());
            if ended.is_err() || Instant::now() >= deadline {
                // The kernel did not let go: what it may still read must outlive the process's use of it.
                std::mem::forget(std::mem::replace(&mut self.sendings, Table::new()));
                return;
            }
        }
    }
}
