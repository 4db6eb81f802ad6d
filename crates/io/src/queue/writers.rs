//! [`Writers`]: the pool of threads that take connections from the reply queue and write their replies.
//!
//! A writer never waits for a socket: what a full one does not take goes back to the engine, which watches for room and puts
//! the connection into the queue again. After [`attempt::SEND_BYTES`] a connection goes to the end of the queue, so that
//! one large reply does not keep a writer from the others.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::slots::{Job, Outcome, Slots};
use crate::attempt::{self, Attempt};
use crate::{Counters, ReplyQueue, ReplyQueueKind, Turn, Waker};

/// The threads, and what they share with the engine.
pub(super) struct Writers {
    pub(super) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What engine and writers share.
pub(super) struct Shared {
    /// To the writers.
    pub(super) replies: ReplyQueue,
    /// And back.
    returned: ReplyQueue,
    pub(super) slots: Slots,
    /// Wakes the engine when something comes back.
    waker: Waker,
}

/// The engine's number as a user of the queues; the writers' follow.
pub(super) const ENGINE: usize = 0;

impl Writers {
    /// # Errors
    /// Threads cannot be started.
    pub(super) fn start(kind: ReplyQueueKind, writers: usize, waker: Waker) -> io::Result<Writers> {
        let users = writers + 1;
        let shared = Arc::new(Shared {
            replies: ReplyQueue::new(kind, users),
            returned: ReplyQueue::new(ReplyQueueKind::Ms, users),
            slots: Slots::new(),
            waker,
        });
        let mut pool = Writers { shared, threads: Vec::new() };
        for writer in 1..users {
            let shared = Arc::clone(&pool.shared);
            let body = move || shared.write_replies(writer);
            pool.threads.push(std::thread::Builder::new().name(format!("writer {writer}")).spawn(body)?);
        }
        Ok(pool)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.shared.replies.stop();
        for thread in self.threads.drain(..) {
            // Its panic was reported when it happened; there is no one left to tell.
            let _panicked = thread.join().is_err();
        }
    }
}

impl Shared {
    /// Makes room for connections with numbers below `len`.
    pub(super) fn reserve(&self, len: usize) {
        if let Some(slots) = self.slots.grow(len) {
            self.replies.reserve(slots);
            self.returned.reserve(slots);
        }
    }

    /// The number of a connection whose output has come back.
    pub(super) fn take_returned(&self, turn: &mut Turn) -> Option<u32> {
        self.returned.try_take(turn)
    }

    /// Has what comes back from now on wake the engine again; it looks afterwards at what has come back already.
    pub(super) fn listen_for_returns(&self) {
        self.waker.take();
    }

    /// What a writer does until the end.
    fn write_replies(&self, writer: usize) {
        let mut turn = Turn::new(writer);
        while let Some(conn) = self.replies.take(&mut turn) {
            if self.write(conn, &mut turn) {
                self.replies.put(&mut turn, conn);
            } else {
                self.returned.put(&mut turn, conn);
                self.waker.wake();
            }
        }
    }

    /// Writes for a connection; whether it is to be put into the queue again.
    fn write(&self, conn: u32, turn: &mut Turn) -> bool {
        let slot = self.slots.at(conn);
        let mut job = slot.job();
        let job = job.as_mut().expect("a connection is queued with its output");
        job.tally.waited_ns += job.queued.elapsed().as_nanos() as u64;
        job.tally.visits += turn.take_visits();
        job.outcome = if slot.is_cancelled() { cancelled() } else { job.write() };
        slot.set_unsent(job.output.len());
        let again = matches!(job.outcome, Outcome::Queued);
        if again {
            job.tally.queued += 1;
            job.queued = Instant::now();
        }
        again
    }
}

impl Job {
    fn write(&mut self) -> Outcome {
        let mut counters = Counters::default();
        let result = attempt::send(self.socket.as_fd(), &mut self.output, &mut counters);
        self.tally.sends += counters.sends;
        self.tally.short_sends += counters.short_sends;
        match result {
            Ok(Attempt::Full) => Outcome::Full,
            Ok(Attempt::Enough) => Outcome::Queued,
            Ok(Attempt::Done) => Outcome::Done(Ok(())),
            Err(error) => Outcome::Done(Err(error)),
        }
    }
}

/// The connection was closed before all was written.
pub(super) fn cancelled() -> Outcome {
    Outcome::Done(Err(io::Error::from_raw_os_error(libc::ECANCELED)))
}
