//! [`ReplyQueue`]: connections with replies to be written, on their way to a pool of writing threads. The three queues of
//! Curto, "Evaluation of Redis Performing Asynchronous I/O With Concurrent Queues" (2021), behind one interface.
//!
//! A value is the number of a connection. Each is in the queue at most once, so that the queue is never longer than there
//! are connections, for which [`ReplyQueue::reserve`] makes room, and so that the order of one connection's replies does
//! not depend on the order of the queue.
//!
//! The paper took the queues from a framework of C++ and does not say how its threads wait when there is nothing to do.
//! Here they are written anew from the articles that define them, and the threads sleep (`bell`).
//!
//! Nothing in here is `unsafe`. All of it is modelled (`tests/loom_reply_queue.rs`) and stressed (`tests/reply_queue.rs`).

mod arena;
mod bell;
mod distributed;
mod lock;
mod ms;
mod sync;

use arena::Link;
use bell::Bell;
use distributed::Distributed;
use lock::LockQueue;
use ms::MsQueue;

/// Which of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyQueueKind {
    /// A lock around a linked list.
    Lock,
    /// Michael and Scott's, without locks.
    Ms,
    /// Haas and others' b-RR: several of Michael and Scott's, nearly first in, first out.
    Distributed {
        /// Partial queues.
        partial: usize,
        /// Round-robin balancers.
        balancers: usize,
    },
}

/// A queue of connections, and where its takers sleep.
#[derive(Debug)]
pub struct ReplyQueue {
    queue: Queue,
    bell: Bell,
}

#[derive(Debug)]
enum Queue {
    Lock(LockQueue),
    Ms(Box<MsQueue>),
    Distributed(Distributed),
}

/// What a thread that uses a [`ReplyQueue`] has of its own.
#[derive(Debug)]
pub struct Turn {
    thread: usize,
    ends: Vec<Link>,
    visits: u64,
}

impl Turn {
    /// The turn of the thread with this number; numbers are dense, so that balancers are shared evenly.
    #[must_use]
    pub fn new(thread: usize) -> Turn {
        Turn { thread, ends: Vec::new(), visits: 0 }
    }

    /// Partial queues that were looked at since this was asked last; none, if the queue is not a distributed one.
    pub fn take_visits(&mut self) -> u64 {
        std::mem::take(&mut self.visits)
    }
}

impl ReplyQueue {
    /// An empty queue without room, for so many threads that put or take.
    ///
    /// # Panics
    /// If a distributed queue is to have no partial queues or no balancers.
    #[must_use]
    pub fn new(kind: ReplyQueueKind, threads: usize) -> ReplyQueue {
        let queue = match kind {
            ReplyQueueKind::Lock => Queue::Lock(LockQueue::new()),
            ReplyQueueKind::Ms => Queue::Ms(Box::new(MsQueue::new(threads))),
            ReplyQueueKind::Distributed { partial, balancers } => {
                Queue::Distributed(Distributed::new(partial, balancers, threads))
            }
        };
        ReplyQueue { queue, bell: Bell::new() }
    }

    /// Makes room for so many values in all; one thread at a time, while others use the queue.
    pub fn reserve(&self, values: usize) {
        match &self.queue {
            Queue::Lock(_) => {}
            Queue::Ms(queue) => queue.reserve(values),
            Queue::Distributed(queue) => queue.reserve(values),
        }
    }

    /// Puts a value in, and wakes a thread that sleeps.
    ///
    /// # Panics
    /// If there is no room.
    pub fn put(&self, turn: &mut Turn, value: u32) {
        match &self.queue {
            Queue::Lock(queue) => queue.enqueue(value),
            Queue::Ms(queue) => queue.enqueue(value),
            Queue::Distributed(queue) => queue.enqueue(turn.thread, value),
        }
        self.bell.ring();
    }

    /// Takes a value, if there is one.
    pub fn try_take(&self, turn: &mut Turn) -> Option<u32> {
        match &self.queue {
            Queue::Lock(queue) => queue.dequeue(),
            Queue::Ms(queue) => queue.dequeue().ok(),
            Queue::Distributed(queue) => queue.dequeue(turn.thread, &mut turn.ends, &mut turn.visits),
        }
    }

    /// Takes a value, and sleeps until there is one; `None` once the queue is stopped and empty.
    pub fn take(&self, turn: &mut Turn) -> Option<u32> {
        self.try_take(turn).or_else(|| self.bell.wait(|| self.try_take(turn)))
    }

    /// Wakes all threads that sleep, for good.
    pub fn stop(&self) {
        self.bell.stop();
    }

    /// By how many values that were put in later a value can be overtaken at most: 0 if the queue is strict.
    #[must_use]
    pub fn relaxation(&self) -> usize {
        match &self.queue {
            Queue::Lock(_) | Queue::Ms(_) => 0,
            Queue::Distributed(queue) => queue.bound(),
        }
    }
}
