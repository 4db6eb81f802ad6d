//! [`Arena`]: the nodes of a lock-free queue, named by 32-bit numbers and never given back to the allocator.
//!
//! A node that is freed may still be read by a thread that is behind: what it reads is some node, and its tag tells that
//! the node has been used again since. That is the counted pointer of Michael and Scott (1996), with an index in place of
//! an address, so that both fit one word and nothing is unsafe. A tag has 32 bits: it would deceive a thread that stands
//! still, between a load and a compare-and-swap, for exactly 2^32 reuses of the one node.
//!
//! The alternative that was dropped is reclamation by epochs: every enqueue would allocate, and the pool's threads would
//! have to take part in the epochs of a store they do not know.

use super::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed};
use crate::chunked::Chunked;

/// A node's number and how often what points to it has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(u64);

/// The number of no node.
const NOBODY: u32 = u32::MAX;

impl Link {
    pub(super) const NONE: Link = Link(NOBODY as u64);

    /// The node, unless there is none.
    pub(super) fn node(self) -> Option<u32> {
        let node = self.0 as u32;
        (node != NOBODY).then_some(node)
    }

    /// What takes the place of `self` to point to `to`'s node.
    pub(super) fn then(self, to: Link) -> Link {
        let tag = ((self.0 >> 32) as u32).wrapping_add(1);
        Link(u64::from(tag) << 32 | to.0 & u64::from(u32::MAX))
    }

    fn to(node: u32) -> Link {
        Link(u64::from(node))
    }
}

/// A link that threads share.
#[derive(Debug)]
pub(super) struct AtomicLink(AtomicU64);

impl AtomicLink {
    pub(super) fn new(link: Link) -> AtomicLink {
        AtomicLink(AtomicU64::new(link.0))
    }

    pub(super) fn load(&self) -> Link {
        Link(self.0.load(Acquire))
    }

    /// Points to `to` from now on, if nothing has changed since `seen` was read.
    pub(super) fn replace(&self, seen: Link, to: Link) -> bool {
        self.0.compare_exchange(seen.0, seen.then(to).0, AcqRel, Acquire).is_ok()
    }

    /// Points to `to` from now on; for who owns the node.
    fn set(&self, to: Link) {
        let before = Link(self.0.load(Relaxed));
        self.0.store(before.then(to).0, Relaxed);
    }
}

/// A node: a value, and the next node of the queue or of the free ones.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: AtomicU32,
    pub(super) next: AtomicLink,
}

/// Nodes, which never move, and a stack of the free ones (Treiber 1986).
#[derive(Debug)]
pub(super) struct Arena {
    nodes: Chunked<Node>,
    free: AtomicLink,
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena { nodes: Chunked::new(), free: AtomicLink::new(Link::NONE) }
    }

    /// Adds nodes until there are at least so many. One thread at a time; others may use the arena meanwhile.
    pub(super) fn reserve(&self, nodes: usize) {
        let node = || Node { value: AtomicU32::new(0), next: AtomicLink::new(Link::NONE) };
        self.nodes.grow(nodes, node).for_each(|node| self.give(Link::to(node)));
    }

    pub(super) fn node(&self, node: u32) -> &Node {
        self.nodes.at(node)
    }

    /// Takes a free node; its `next` is [`Link::NONE`].
    pub(super) fn take(&self) -> Option<Link> {
        loop {
            let top = self.free.load();
            let node = self.node(top.node()?);
            if self.free.replace(top, node.next.load()) {
                node.next.set(Link::NONE);
                return Some(top);
            }
        }
    }

    /// Frees a node that nothing points to any more.
    pub(super) fn give(&self, link: Link) {
        let node = self.node(link.node().expect("a node is freed"));
        loop {
            let top = self.free.load();
            node.next.set(top);
            if self.free.replace(top, link) {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_taken_once_and_comes_back_with_another_tag() {
        let arena = Arena::new();
        arena.reserve(100);
        let mut all: Vec<_> = std::iter::from_fn(|| arena.take()).collect();
        let mut nodes: Vec<_> = all.iter().map(|link| link.node().unwrap()).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, (0..nodes.len() as u32).collect::<Vec<_>>());
        assert!(nodes.len() >= 100);
        let last = all.pop().unwrap();
        let tag = arena.node(last.node().unwrap()).next.load();
        arena.give(last);
        let again = arena.take().unwrap();
        assert_eq!(again.node(), last.node());
        assert_ne!(arena.node(again.node().unwrap()).next.load(), tag, "a thread that is behind would be deceived");
        assert_eq!(arena.take(), None);
    }
}
