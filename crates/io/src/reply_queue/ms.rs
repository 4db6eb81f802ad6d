//! [`MsQueue`]: the non-blocking queue of Michael and Scott, "Simple, Fast, and Practical Non-Blocking and Blocking
//! Concurrent Queue Algorithms" (PODC 1996).
//!
//! A list of nodes, of which the first one's value is spent. An enqueue links its node behind the last one, then moves
//! `tail`; whoever finds `tail` behind moves it on. A dequeue moves `head` to the next node, whose value it read before.
//!
//! Invariants: `head` is never ahead of `tail`; a node's `next` changes from none to a node once, by the enqueue that
//! takes effect thereby; a node is freed only by who moved `head` away from it.

use super::arena::{Arena, AtomicLink, Link};
use super::sync::{Padded, Relaxed, again};

/// First in, first out, without locks.
#[derive(Debug)]
pub(super) struct MsQueue {
    head: Padded<AtomicLink>,
    tail: Padded<AtomicLink>,
    nodes: Arena,
    /// Nodes that are neither free nor hold a value: the first one, and one of each thread that is just about to free it.
    spent: usize,
}

impl MsQueue {
    /// A queue that so many threads use at once; it has room for no value yet.
    pub(super) fn new(threads: usize) -> MsQueue {
        let (nodes, spent) = (Arena::new(), threads + 1);
        nodes.reserve(spent);
        let first = nodes.take().expect("there is one");
        let end = || Padded(AtomicLink::new(first));
        MsQueue { head: end(), tail: end(), nodes, spent }
    }

    /// Makes room for so many values; one thread at a time.
    pub(super) fn reserve(&self, values: usize) {
        self.nodes.reserve(values + self.spent);
    }

    /// # Panics
    /// If there are more values than were reserved for.
    pub(super) fn enqueue(&self, value: u32) {
        let mine = self.nodes.take().expect("room for every value was reserved");
        self.node(mine).value.store(value, Relaxed);
        loop {
            let tail = self.tail.0.load();
            let last = self.node(tail);
            let next = last.next.load();
            // Without this look `next` could be that of a node which was freed, and is the last one again.
            if tail != self.tail.0.load() {
                again();
                continue;
            }
            if next.node().is_some() {
                self.tail.0.replace(tail, next);
            } else if last.next.replace(next, mine) {
                // Who fails here was helped.
                self.tail.0.replace(tail, mine);
                return;
            }
        }
    }

    /// The oldest value; or, if there is none, what [`MsQueue::last`] is as long as nothing is enqueued.
    pub(super) fn dequeue(&self) -> Result<u32, Link> {
        loop {
            let head = self.head.0.load();
            let tail = self.tail.0.load();
            let next = self.node(head).next.load();
            if head != self.head.0.load() {
                again();
                continue;
            }
            if head.node() == tail.node() {
                if next.node().is_none() {
                    return Err(tail);
                }
                self.tail.0.replace(tail, next);
            } else if next.node().is_some() {
                // Read before `head` moves: then another one may free the node.
                let value = self.node(next).value.load(Relaxed);
                if self.head.0.replace(head, next) {
                    self.nodes.give(head);
                    return Ok(value);
                }
            } else {
                // What was read of `head` is long past.
                again();
            }
        }
    }

    /// Another one after each enqueue, at the latest when that returns.
    pub(super) fn last(&self) -> Link {
        self.tail.0.load()
    }

    fn node(&self, link: Link) -> &super::arena::Node {
        self.nodes.node(link.node().expect("both ends have a node"))
    }
}
