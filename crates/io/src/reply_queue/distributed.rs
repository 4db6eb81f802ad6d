//! [`Distributed`]: the b-RR distributed queue of Haas et al., "Distributed Queues in Shared Memory: Multicore Performance
//! and Scalability through Quantitative Relaxation" (CF 2013).
//!
//! `p` partial queues, each a [`MsQueue`], and `b` balancers, each with one counter for enqueues and one for dequeues. A
//! thread belongs to one balancer, whose counter says, round-robin, at which partial queue an operation begins. An
//! enqueue ends there. A dequeue looks at all partial queues from there on until one has a value; if none has, it looks
//! whether anything was enqueued into any of them since it looked there, and only if nothing was, the queue is empty.
//!
//! # How far out of order
//! At most k values that were enqueued after a value has been are dequeued before it, with k of [`Distributed::bound`].
//! Let c bound by how much two partial queues' numbers of begun enqueues, or of begun dequeues, differ over any span of
//! time: each balancer adds 1, each of t threads at most 2, one for an operation that was begun before the span, one for
//! an operation that is not over at its end; c = b + 2t.
//! 1. *Lengths.* Let partial queue j + 1 be behind j in the order of looking, and j have been empty last at some time: then
//!    j was no longer than j + 1. Since then nobody has passed j, so that from j + 1 no more was taken than began there, and
//!    from j no less; j has grown by at most 2c more. So two lengths differ by at most D = 2c (p - 1).
//! 2. *Overtaking.* Let m values be before value e in partial queue i. As long as no partial queue has been empty since e came,
//!    from each one at most m + c values are taken, of which at least m - D are older than e: at most c + D younger ones.
//!    When the first one is found to be empty, after at least m - D dequeues, at most D + c values are left before e; each
//!    begins at i at most D + c times more, so at most D + 2c values are taken for each other partial queue.
//!
//! So k = (p - 1) (c + D + D + 2c) = c (p - 1) (4p - 1). With one partial queue k is 0: it is first in, first out.

use super::arena::Link;
use super::ms::MsQueue;
use super::sync::{AtomicUsize, Padded, Relaxed};

/// A queue that is nearly first in, first out.
#[derive(Debug)]
pub(super) struct Distributed {
    partial: Box<[MsQueue]>,
    balancers: Box<[Balancer]>,
    threads: usize,
}

#[derive(Debug, Default)]
struct Balancer {
    enqueues: Padded<AtomicUsize>,
    dequeues: Padded<AtomicUsize>,
}

impl Distributed {
    /// # Panics
    /// If there are no partial queues or no balancers.
    pub(super) fn new(partial: usize, balancers: usize, threads: usize) -> Distributed {
        assert!(partial > 0 && balancers > 0, "a distributed queue has parts and balancers");
        Distributed {
            partial: (0..partial).map(|_| MsQueue::new(threads)).collect(),
            balancers: (0..balancers).map(|_| Balancer::default()).collect(),
            threads,
        }
    }

    /// Makes room for so many values. Each partial queue has room for all: round-robin bounds how many differ between
    /// them only while nobody has begun and not ended.
    pub(super) fn reserve(&self, values: usize) {
        self.partial.iter().for_each(|queue| queue.reserve(values));
    }

    pub(super) fn enqueue(&self, thread: usize, value: u32) {
        let begin = self.balancers[thread % self.balancers.len()].enqueues.0.fetch_add(1, Relaxed);
        self.partial[begin % self.partial.len()].enqueue(value);
    }

    /// A value, unless there is none. Adds to `visits` how many partial queues it looked at; `ends` is scratch space.
    pub(super) fn dequeue(&self, thread: usize, ends: &mut Vec<Link>, visits: &mut u64) -> Option<u32> {
        let count = self.partial.len();
        let mut begin = self.balancers[thread % self.balancers.len()].dequeues.0.fetch_add(1, Relaxed) % count;
        loop {
            ends.clear();
            for at in (begin..count).chain(0..begin) {
                *visits += 1;
                match self.partial[at].dequeue() {
                    Ok(value) => return Some(value),
                    Err(end) => ends.push(end),
                }
            }
            let changed = (begin..count).chain(0..begin).zip(&*ends).find(|&(at, end)| {
                *visits += 1;
                self.partial[at].last() != *end
            });
            begin = changed?.0;
        }
    }

    /// By how many younger values one can be overtaken at most.
    pub(super) fn bound(&self) -> usize {
        let (parts, threads) = (self.partial.len(), self.threads);
        (self.balancers.len() + 2 * threads) * (parts - 1) * (4 * parts - 1)
    }
}
