//! Bytes that are handed to the reader beside the blocks: the parts of large records, referenced.
//!
//! A stack onto which any appender pushes with a compare-and-swap and from which the reader takes everything with one
//! swap. (Taking all at once is why it has no ABA problem.) A mutex around a map was dropped: appenders hold shard locks
//! and must not wait for a reader that was preempted.
//!
//! # Safety
//! Every node is a leaked `Box`. It is owned by the pusher until the compare-and-swap that links it succeeds, then by
//! the stack, then by whoever swapped the head out. The list behind a head is immutable once linked.

use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::Lsn;
use crate::sync::{AcqRel, Acquire, AtomicPtr, Relaxed, Release};

/// A run of bytes that begins at `start` in the stream.
#[derive(Debug)]
pub(crate) struct Aside {
    pub(crate) start: Lsn,
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) range: Range<usize>,
}

#[derive(Debug)]
struct Node {
    item: Aside,
    next: *mut Node,
}

#[derive(Debug)]
pub(crate) struct AsideStack {
    head: AtomicPtr<Node>,
}

impl AsideStack {
    pub(crate) fn new() -> AsideStack {
        AsideStack { head: AtomicPtr::new(null_mut()) }
    }

    pub(crate) fn push(&self, item: Aside) {
        let node = Box::into_raw(Box::new(Node { item, next: null_mut() }));
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: the node is not linked yet, so it is this thread's alone.
            unsafe { (*node).next = head };
            match self.head.compare_exchange_weak(head, node, Release, Relaxed) {
                Ok(_) => return,
                Err(newer) => head = newer,
            }
        }
    }

    /// Takes everything that was pushed, newest first.
    pub(crate) fn take_all(&self, mut each: impl FnMut(Aside)) {
        if self.head.load(Acquire).is_null() {
            return;
        }
        let mut next = self.head.swap(null_mut(), AcqRel);
        while !next.is_null() {
            // SAFETY: the swap made the whole list this thread's; each node came from `Box::into_raw` and is visited once.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
            each(node.item);
        }
    }
}

impl Drop for AsideStack {
    fn drop(&mut self) {
        self.take_all(drop);
    }
}
