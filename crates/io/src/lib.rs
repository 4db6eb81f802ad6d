//! Network engines: one completion-shaped interface ([`Engine`]) over io_uring, over epoll, and over a seeded
//! simulation. A worker owns one engine; all of a connection's reads and writes go through it.
//!
//! # A worker's loop
//! ```text
//! engine.wait(timeout)?;                       // one system call: submit what is queued, sleep for completions
//! while let Some(completion) = engine.next() { // borrow received bytes, note what became dirty
//! }
//! // run commands, then one engine.send() per dirty connection; the next wait() submits them all
//! ```
//!
//! # Invariants
//! - The caller's slab names connections ([`ConnId`]); an engine never reports an id after `Closed` or `Detached`.
//! - At most one [`Output`] is in flight per connection. Each one given to `send` comes back exactly once: at once, or as
//!   `Sent`; also when the connection is closed meanwhile (then before `Closed`).
//! - Received bytes are lent until the next call of `next` or `look_ahead`; no engine keeps a copy.
//! - Order within a connection is kept; between connections nothing is promised.
//! - An engine lives and dies on one thread (io_uring's single issuer); only the [`Waker`] crosses threads.
//!
//! The alternative that was dropped is a readiness interface (`mio`): completions can be emulated on epoll at no cost,
//! readiness on io_uring cannot. No async runtime: a connection here is a state machine driven by a worker.
//!
//! `unsafe` is confined to `os` (system calls), `uring` and `uring_send` (shared memory with the kernel).

#![deny(unsafe_code)]

mod attempt;
mod choose;
mod chunked;
mod coming;
mod counters;
mod epoll;
mod level;
mod listeners;
mod model;
#[allow(unsafe_code)]
mod os;
mod output;
mod phases;
mod queue;
mod readiness;
mod reply_queue;
mod requests;
mod sim;
mod socket;
mod table;
#[allow(unsafe_code)]
mod uring;
#[allow(unsafe_code)]
mod uring_send;
mod waker;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

pub use choose::{Choice, Decision, Kind, Options, choose};
pub use counters::Counters;
pub use epoll::Epoll;
pub use level::Level;
pub use model::{EpollOptions, Model, ModelEngine, Trigger};
pub use output::{Chunk, Output};
pub use phases::{FindRequests, Phases, PhasesOptions};
pub use queue::{Queue, QueueOptions};
pub use reply_queue::{ReplyQueue, ReplyQueueKind, Turn};
pub use requests::Requests;
pub use sim::{Faults, SimClient, SimEngine, SimNet, SimSocket};
pub use socket::Socket;
pub use uring::{ReceiveBy, TaskRun, Uring, UringFeatures, UringModelOptions, UringOptions, WriteBy, probe};
pub use uring_send::{Order, Submit, UringSend, UringSendOptions};
pub use waker::Waker;

/// Names a connection: a slot of the worker's slab and how often that slot was reused.
///
/// Engines compare the low 24 bits of the generation with what the kernel hands back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnId {
    /// The slot. Engines index flat tables with it, so slots should be reused densely.
    pub index: u32,
    /// Different for each connection that uses the slot.
    pub generation: u32,
}

/// The most completions that [`Engine::look_ahead`] finds out about: enough for their misses to overlap, few enough for
/// what was requested to stay in the first-level cache.
pub const LOOK_AHEAD: usize = 16;

/// Names a listening socket; chosen by the caller, unique per engine.
pub type ListenerId = u32;

/// What an engine has to say to its worker.
#[derive(Debug)]
pub enum Completion<'e> {
    /// A client has connected. The socket is in blocking mode and closed on exec.
    Accepted {
        /// The listener it came from.
        listener: ListenerId,
        /// The new connection's socket.
        socket: Socket,
    },
    /// Accepting failed, typically for want of file descriptors. The engine tries again after a pause by itself.
    AcceptFailed {
        /// The listener concerned.
        listener: ListenerId,
        /// Why.
        error: io::Error,
    },
    /// Bytes arrived; never empty.
    Received {
        /// The connection.
        conn: ConnId,
        /// The bytes, lent until the next call of [`Engine::next`] or [`Engine::look_ahead`].
        data: &'e [u8],
    },
    /// As `Received`, and threads of the engine have found the requests in it, as if these bytes began with one. The
    /// default engines never say this.
    Parsed {
        /// The connection.
        conn: ConnId,
        /// The bytes, lent as those of `Received`.
        data: &'e [u8],
        /// The requests.
        requests: &'e Requests,
    },
    /// Nothing more will be received. The connection stays open for sending until it is closed.
    ReceiveEnded {
        /// The connection.
        conn: ConnId,
        /// `None`: the peer ended its stream in order.
        error: Option<io::Error>,
    },
    /// A send is over: everything was sent, or it failed.
    Sent {
        /// The connection.
        conn: ConnId,
        /// The output that was given to [`Engine::send`], cleared, for reuse.
        output: Output,
        /// `ECANCELED` when the connection was closed before all was sent.
        result: io::Result<()>,
    },
    /// After [`Engine::close`]: all operations are over, the slot may be reused.
    Closed {
        /// The connection that is gone.
        conn: ConnId,
    },
    /// After [`Engine::detach`]: nothing is in flight, and all that was received before came as `Received`.
    Detached {
        /// The connection; its slot may be reused.
        conn: ConnId,
        /// Its socket, ready to be attached to another engine.
        socket: Socket,
    },
    /// The [`Waker`] was used, once or more often, since the last `Woken`.
    Woken,
}

/// When a worker hands replies to its engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// Behind each group of completions, for connections that will hardly get more in this pass; the others at its end.
    Group,
    /// At the end of the pass.
    Loop,
    /// Behind each command.
    Command,
}

/// A worker's I/O: connections, listeners and one waker, driven by `wait` and `next`.
pub trait Engine {
    /// `"uring"`, `"epoll"`, `"sim"`, or that of a [`Model`].
    fn name(&self) -> &'static str;

    /// When replies are to be handed to `send`. It never changes.
    fn flushes(&self) -> Flush {
        Flush::Group
    }

    /// Whether more may be sent for a connection while outputs of it are in flight. They are sent, and come back, in their
    /// order; [`Engine::unsent`] tells what is left of all of them. It never changes.
    fn pipelines(&self) -> bool {
        false
    }

    /// Starts accepting on a listening socket. A refused socket is an error; later failures are `AcceptFailed`.
    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()>;

    /// Stops accepting and closes the listening socket. Clients accepted but not yet reported are dropped.
    fn unlisten(&mut self, id: ListenerId);

    /// Takes a connected socket and starts receiving. The slot named by `conn` must be free.
    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()>;

    /// Back-pressure: stops receiving. A bounded amount that is already on its way may still arrive.
    fn pause(&mut self, conn: ConnId);

    /// Receives again after [`Engine::pause`].
    fn resume(&mut self, conn: ConnId);

    /// Sends all of `output`. `None`: it is in flight and comes back as `Sent`. `Some`: it is over already, and the
    /// output comes back cleared. The caller never has two in flight for one connection, unless it [`Engine::pipelines`].
    fn send(&mut self, conn: ConnId, output: Output) -> Option<(Output, io::Result<()>)>;

    /// Cancels what is in flight and closes; `Closed` follows. Nothing further is received.
    fn close(&mut self, conn: ConnId);

    /// Ends the outgoing stream (the peer reads end of file); receiving goes on.
    fn shutdown_write(&mut self, conn: ConnId);

    /// Gives the socket back through `Detached`. The caller guarantees that no send is in flight.
    fn detach(&mut self, conn: ConnId);

    /// Bytes of what is in flight that the kernel has not taken yet; 0 if nothing is in flight.
    fn unsent(&self, conn: ConnId) -> usize;

    /// The connection's descriptor, for socket options and addresses. `None` if unknown or simulated.
    fn raw_fd(&self, conn: ConnId) -> Option<RawFd>;

    /// A handle with which any thread ends this engine's `wait`.
    fn waker(&self) -> Waker;

    /// Submits everything queued and waits for at least one completion, or until `timeout` (`None`: no limit,
    /// zero: never sleeps). One system call; it does not sleep while completions are there to be taken. May return
    /// early with nothing to report (a signal).
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Hands out what `wait` found, one at a time; `None` ends the pass.
    fn next(&mut self) -> Option<Completion<'_>>;

    /// Finds out what the next calls of [`Engine::next`] will hand out, without handing it out; returns how many
    /// completions [`Engine::upcoming`] can tell, at most [`LOOK_AHEAD`]. For a caller that requests memory ahead of
    /// its use: an engine may know nothing.
    fn look_ahead(&mut self) -> usize {
        0
    }

    /// The connection and the bytes of the completion that comes after `at` others; no bytes if it is not one of
    /// receiving. `None` if it is none of a connection, or if it will not be handed out.
    fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        let _ = at;
        None
    }

    /// What is not at rest: connections with an operation in flight, completions not handed out, buffers lent. Zero
    /// once every connection is closed and `next` has returned `None`; anything else is a leak.
    fn outstanding(&self) -> usize;

    /// What this engine has done so far.
    fn counters(&self) -> Counters;
}
