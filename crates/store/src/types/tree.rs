//! Large aggregates: a counted B+tree of pages, copied on write.
//!
//! A clone takes the whole tree in O(1): snapshots, COPY, DUMP, replies streamed after the lock is released and background freeing
//! each hold one. An edit copies the nodes on its path that are shared and changes the others in place. Each inner node knows how
//! many items are below each child, so that ranks (LINDEX, ZRANK, a random member) cost one descent, and there is never a rehash.
//!
//! [`Order`] says what pages are tagged with and what separates two of them; a list has no order but that of its items. Searching is
//! by a predicate that is true for what lies before the place looked for, so that one function serves keys, bounds and ranges.
//!
//! Invariants: pages and inner nodes are not empty, but for the root of an empty tree. `Child::first` is not above any item
//! below that child, and not below any item before it (the leftmost child's is never looked at). All leaves are equally deep.
//!
//! Dropped: a skip list (a cache miss for each step, 40 bytes per member), an array-mapped trie for hashes (a second structure
//! beside the one that sorted sets need anyway).

use std::fmt;
use std::ops::Range;

use triomphe::Arc;

use super::ahead::TOGETHER;
use super::disposal::{FREED_AT_ONCE, dispose};
use super::page::{ItemAt, PAGE_MAX, PAGE_MIN, Page};
use crate::prefetch::{prefetch, prefetch_all};

/// What a tree is ordered by.
pub trait Order: 'static {
    /// Kept for each item, beside it.
    type Tag: Copy + Send + Sync + fmt::Debug;
    /// What a search needs to know of a page's first item beside its tag; kept by its parent.
    type Rest: Clone + Send + Sync + fmt::Debug;

    /// That of an item.
    fn rest(item: &[u8]) -> Self::Rest;
}

/// The tree; see the module's description.
pub struct Tree<O: Order> {
    root: Node<O>,
    len: usize,
    bytes: usize,
}

enum Node<O: Order> {
    Leaf(Arc<Page<O::Tag>>),
    Inner(Arc<Inner<O>>),
}

/// Side by side, as a search mostly looks at the tags of the first items alone, and a rank at the lengths.
struct Inner<O: Order> {
    tags: Vec<O::Tag>,
    rests: Vec<O::Rest>,
    lens: Vec<usize>,
    below: Vec<Below<O>>,
}

struct Below<O: Order> {
    /// Bytes of memory below it, so that what is removed whole need not be walked.
    bytes: usize,
    node: Node<O>,
}

/// A node on its way into its parent.
struct Child<O: Order> {
    /// Its first item.
    first: (O::Tag, O::Rest),
    /// Items below it.
    len: usize,
    below: Below<O>,
}

/// Children of an inner node at most; with at most 56 bytes for each it stays within a page's size.
const CHILDREN_MAX: usize = 64;
/// Below this an inner node is merged with one beside it, if there is room.
const CHILDREN_MIN: usize = 16;
/// 64-way nodes and pages of at least one item: more levels do not fit an address space.
const DEPTH_MAX: usize = 12;

/// A place in a tree: that of an item, or behind the last.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    path: [u8; DEPTH_MAX],
    depth: usize,
    slot: usize,
}

const _: () = assert!(CHILDREN_MAX < 256, "a path's step is a byte");

impl<O: Order> Clone for Tree<O> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len, bytes: self.bytes }
    }
}

impl<O: Order> Drop for Tree<O> {
    fn drop(&mut self) {
        if self.bytes > FREED_AT_ONCE {
            let_go(std::mem::replace(&mut self.root, Node::empty()), self.bytes);
        }
    }
}

/// Drops a node with so many bytes below it; hands them over if they are many and it was the last to hold them.
fn let_go<O: Order>(node: Node<O>, bytes: usize) {
    if let Node::Inner(inner) = node
        && bytes > FREED_AT_ONCE
        && let Some(inner) = Arc::into_unique(inner)
    {
        dispose(inner);
    }
}

impl<O: Order> Clone for Node<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(page) => Self::Leaf(Arc::clone(page)),
            Self::Inner(inner) => Self::Inner(Arc::clone(inner)),
        }
    }
}

impl<O: Order> Clone for Inner<O> {
    fn clone(&self) -> Self {
        let mut copy = Self::with_room();
        copy.tags.extend_from_slice(&self.tags);
        copy.rests.extend_from_slice(&self.rests);
        copy.lens.extend_from_slice(&self.lens);
        copy.below.extend(self.below.iter().map(|below| Below { bytes: below.bytes, node: below.node.clone() }));
        copy
    }
}

impl<O: Order> Default for Tree<O> {
    fn default() -> Self {
        let page = Page::default();
        Self { bytes: page.memory_bytes(), root: Node::Leaf(Arc::new(page)), len: 0 }
    }
}

impl<O: Order> fmt::Debug for Tree<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("len", &self.len).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<O: Order> Tree<O> {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory, shared or not.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this is the very tree that `other` is: one is a clone of the other, and neither was changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.root, &other.root) {
            (Node::Leaf(page), Node::Leaf(other)) => Arc::ptr_eq(page, other),
            (Node::Inner(inner), Node::Inner(other)) => Arc::ptr_eq(inner, other),
            _ => false,
        }
    }

    /// About how many allocations dropping the tree frees: none to speak of while another holds it too.
    pub fn free_cost(&self) -> usize {
        match &self.root {
            Node::Inner(inner) if Arc::strong_count(inner) == 1 => 1 + self.bytes / (PAGE_MAX / 4),
            _ => 1,
        }
    }

    /// The first place that is not before what is looked for.
    #[inline]
    pub fn seek(
        &self,
        first: impl Fn(O::Tag, &O::Rest) -> bool,
        item: impl Fn(O::Tag, ItemAt<'_, O::Tag>) -> bool,
    ) -> Position {
        self.seek_by(|tags, rests| last_before(tags, rests, &first), |page| page.lower_bound(&item))
    }

    /// As [`Tree::seek`], with searches of its own: of the last of a node's children whose first item is before what is looked for, or
    /// child 0, and of the first such item within a page.
    #[inline]
    pub fn seek_by(
        &self,
        child_in: impl Fn(&[O::Tag], &[O::Rest]) -> usize,
        slot_in: impl Fn(&Page<O::Tag>) -> usize,
    ) -> Position {
        let mut place = Position { path: [0; DEPTH_MAX], depth: 0, slot: 0 };
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(page) => {
                    place.slot = slot_in(page);
                    return place;
                }
                Node::Inner(inner) => {
                    let at = child_in(&inner.tags, &inner.rests);
                    place.step(at);
                    node = &inner.below[at].node;
                }
            }
        }
    }

    /// The pages to which [`Tree::seek_by`] comes for the first [`TOGETHER`] of these keys, requested from memory: all searches go one
    /// level, then all the next, so that they wait for its nodes together.
    pub(super) fn request_pages<K: Copy>(
        &self,
        keys: &[K],
        child_in: impl Fn(K, &[O::Tag], &[O::Rest]) -> usize,
    ) -> [Option<&Page<O::Tag>>; TOGETHER] {
        let count = keys.len().min(TOGETHER);
        let (mut nodes, mut children) = ([&self.root; TOGETHER], [0; TOGETHER]);
        let nodes = &mut nodes[..count];
        // All leaves are equally deep.
        while let Some(Node::Inner(_)) = nodes.first() {
            nodes.iter().for_each(|node| prefetch_all(std::slice::from_ref(node.inner())));
            nodes.iter().for_each(|node| prefetch_all(&node.inner().tags));
            for ((node, key), child) in nodes.iter().zip(keys).zip(&mut children) {
                let inner = node.inner();
                *child = child_in(*key, &inner.tags, &inner.rests);
                prefetch(&raw const inner.below[*child]);
            }
            for (node, child) in nodes.iter_mut().zip(&children) {
                *node = &node.inner().below[*child].node;
            }
        }
        let mut pages = [None; TOGETHER];
        for (page, node) in pages.iter_mut().zip(nodes) {
            node.page().request();
            *page = Some(node.page());
        }
        pages
    }

    /// Number of items before a place.
    pub fn rank(&self, place: &Position) -> usize {
        let mut rank = place.slot;
        let mut node = &self.root;
        for &at in &place.path[..place.depth] {
            let inner = node.inner();
            rank += inner.lens[..usize::from(at)].iter().sum::<usize>();
            node = &inner.below[usize::from(at)].node;
        }
        rank
    }

    /// The place of the item with so many before it; behind the last if there are not so many.
    pub fn seek_rank(&self, rank: usize) -> Position {
        let (mut left, mut len) = (rank.min(self.len), self.len);
        let mut place = Position { path: [0; DEPTH_MAX], depth: 0, slot: 0 };
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(_) => {
                    place.slot = left;
                    return place;
                }
                Node::Inner(inner) => {
                    let at = inner.child_with(&mut left, len);
                    len = inner.lens[at];
                    place.step(at);
                    node = &inner.below[at].node;
                }
            }
        }
    }

    /// The place of the first item.
    #[inline]
    pub fn first(&self) -> Position {
        let mut place = Position { path: [0; DEPTH_MAX], depth: 0, slot: 0 };
        let mut node = &self.root;
        while let Node::Inner(inner) = node {
            place.step(0);
            node = &inner.below[0].node;
        }
        place
    }

    /// The place of the last item, of which there is one.
    #[inline]
    pub fn last(&self) -> Position {
        let mut place = self.end();
        place.slot -= 1;
        place
    }

    /// The place behind the last item.
    #[inline]
    pub fn end(&self) -> Position {
        let mut place = Position { path: [0; DEPTH_MAX], depth: 0, slot: 0 };
        let mut node = &self.root;
        while let Node::Inner(inner) = node {
            let at = inner.below.len() - 1;
            place.step(at);
            node = &inner.below[at].node;
        }
        place.slot = node.page().len();
        place
    }

    /// A cursor on a place.
    pub fn cursor(&self, place: &Position) -> Cursor<'_, O> {
        let mut cursor = Cursor { stack: [None; DEPTH_MAX], depth: 0, page: None, slot: place.slot };
        let mut node = &self.root;
        for &at in &place.path[..place.depth] {
            let inner = node.inner();
            cursor.stack[cursor.depth] = Some((inner, usize::from(at)));
            cursor.depth += 1;
            node = &inner.below[usize::from(at)].node;
        }
        let page = node.page();
        cursor.page = Some(page);
        if cursor.slot >= page.len() {
            cursor.next_page();
        }
        cursor
    }

    /// The items from a rank on.
    pub fn iter_from(&self, rank: usize) -> Iter<'_, O> {
        Iter { cursor: self.cursor(&self.seek_rank(rank)) }
    }

    /// The items from a place on.
    pub fn iter_at(&self, place: &Position) -> Iter<'_, O> {
        Iter { cursor: self.cursor(place) }
    }

    /// All items.
    pub fn iter(&self) -> Iter<'_, O> {
        self.iter_from(0)
    }

    /// The item with so many before it.
    pub fn nth(&self, rank: usize) -> Option<(O::Tag, &[u8])> {
        // Such a place is never behind its page: no cursor is needed.
        if rank < self.len { self.here(&self.seek_rank(rank)) } else { None }
    }

    /// The item at a place, if it is not behind its page: then a cursor is to be asked.
    #[inline]
    pub fn here(&self, place: &Position) -> Option<(O::Tag, &[u8])> {
        let mut node = &self.root;
        for &at in &place.path[..place.depth] {
            node = &node.inner().below[usize::from(at)].node;
        }
        let page = node.page();
        (place.slot < page.len()).then(|| (page.tags()[place.slot], page.item(place.slot)))
    }

    /// Inserts an item at a place.
    pub fn insert(&mut self, place: &Position, tag: O::Tag, bytes: &[u8]) {
        if let Some(beside) = self.root.insert(&place.path[..place.depth], place.slot, tag, bytes, &mut self.bytes) {
            let (len, bytes) = (self.len + 1 - beside.len, self.bytes - beside.below.bytes);
            let left = Child { first: self.root.first(), len, below: Below { bytes, node: self.root.clone() } };
            let mut inner = Inner::with_room();
            inner.push(left);
            inner.push(beside);
            self.root = Node::Inner(Arc::new(inner));
            self.bytes += inner_bytes::<O>();
        }
        self.len += 1;
    }

    /// Adds an item at the end.
    pub fn push(&mut self, tag: O::Tag, bytes: &[u8]) {
        self.insert(&self.end(), tag, bytes);
    }

    /// Puts another item in the place of one. The order must stay.
    pub fn replace(&mut self, place: &Position, tag: O::Tag, bytes: &[u8]) {
        self.replace_here(&self.normal(place), tag, bytes);
    }

    /// As [`Tree::replace`], at a place that is not behind its page.
    pub fn replace_here(&mut self, place: &Position, tag: O::Tag, bytes: &[u8]) {
        let path = &place.path[..place.depth];
        let full = self.root.replace(path, place.slot, tag, bytes, &mut self.bytes);
        if full {
            // Taken out and put back, it splits the page as any insertion does.
            let rank = self.rank(place);
            self.remove_here(place);
            self.insert(&self.seek_rank(rank), tag, bytes);
        }
    }

    /// Removes the item at a place.
    pub fn remove(&mut self, place: &Position) {
        self.remove_here(&self.normal(place));
    }

    /// Removes the item at a place that is not behind its page.
    pub fn remove_here(&mut self, place: &Position) {
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
            return;
        }
        self.root.remove_one(&place.path[..place.depth], place.slot, &mut self.bytes);
        self.lower_root();
    }

    /// Removes a range of items by rank; whole subtrees go at once, and are returned to be dropped where that does no harm.
    pub fn remove_range(&mut self, range: Range<usize>) -> Removed<O> {
        let range = range.start..range.end.min(self.len);
        let mut removed = Removed { nodes: Vec::new(), bytes: 0 };
        if range.is_empty() {
            return removed;
        }
        if range.len() == 1 {
            self.remove_here(&self.seek_rank(range.start));
            return removed;
        }
        self.len -= range.len();
        if self.len == 0 {
            let mut whole = std::mem::take(self);
            removed.bytes = std::mem::take(&mut whole.bytes);
            removed.nodes.push(std::mem::replace(&mut whole.root, Node::empty()));
            return removed;
        }
        self.root.remove(range, &mut self.bytes, &mut removed);
        self.lower_root();
        removed
    }

    fn lower_root(&mut self) {
        while let Node::Inner(inner) = &self.root
            && inner.below.len() == 1
        {
            let only = inner.below[0].node.clone();
            self.bytes -= inner_bytes::<O>();
            self.root = only;
        }
    }

    /// The same place within its page: that behind a page is the first of the next, if there is one.
    fn normal(&self, place: &Position) -> Position {
        let mut place = *place;
        let mut node = &self.root;
        let mut turn = None;
        for depth in 0..place.depth {
            let inner = node.inner();
            let at = usize::from(place.path[depth]);
            if at + 1 < inner.below.len() {
                turn = Some(depth);
            }
            node = &inner.below[at].node;
        }
        if let (true, Some(depth)) = (place.slot >= node.page().len(), turn) {
            place.path[depth] += 1;
            place.path[depth + 1..].fill(0);
            place.slot = 0;
        }
        place
    }
}

/// Subtrees that were removed. Dropping them frees them, or hands them over if they are many.
pub struct Removed<O: Order> {
    nodes: Vec<Node<O>>,
    bytes: usize,
}

impl<O: Order> Drop for Removed<O> {
    fn drop(&mut self) {
        if self.bytes > FREED_AT_ONCE {
            dispose(std::mem::take(&mut self.nodes));
        }
    }
}

impl<O: Order> Removed<O> {
    /// Whether nothing is left to free but what a slice of work can.
    pub fn is_small(&self) -> bool {
        self.nodes.is_empty() || self.nodes.len() == 1 && matches!(self.nodes[0], Node::Leaf(_))
    }
}

impl Position {
    fn step(&mut self, at: usize) {
        self.path[self.depth] = u8::try_from(at).expect("a node has fewer than 256 children");
        self.depth += 1;
    }
}

/// The last child whose first item is before what is looked for, or child 0.
#[inline]
pub(super) fn last_before<T: Copy, R>(tags: &[T], rests: &[R], first: impl Fn(T, &R) -> bool) -> usize {
    prefetch_all(tags);
    let (mut at, mut high) = (0, tags.len() - 1);
    while at < high {
        let middle = (at + high).div_ceil(2);
        if first(tags[middle], &rests[middle]) { at = middle } else { high = middle - 1 }
    }
    at
}

/// Bytes of an inner node: the children's capacity and the `Arc`'s counter.
fn inner_bytes<O: Order>() -> usize {
    (CHILDREN_MAX + 1) * (size_of::<O::Tag>() + size_of::<O::Rest>() + size_of::<usize>() + size_of::<Below<O>>())
        + size_of::<Inner<O>>()
        + 8
}

impl<O: Order> Node<O> {
    fn empty() -> Self {
        Self::Leaf(Arc::new(Page::default()))
    }

    fn first(&self) -> (O::Tag, O::Rest) {
        match self {
            Self::Leaf(page) => (page.tags()[0], O::rest(page.item(0))),
            Self::Inner(inner) => (inner.tags[0], inner.rests[0].clone()),
        }
    }

    #[inline]
    fn inner(&self) -> &Inner<O> {
        let Self::Inner(inner) = self else { unreachable!("a position is used with the tree that made it") };
        inner
    }

    #[inline]
    fn page(&self) -> &Page<O::Tag> {
        let Self::Leaf(page) = self else { unreachable!("a position is used with the tree that made it") };
        page
    }

    /// Replaces an item below this node; `total` follows the bytes in use. True if its page is now too full.
    fn replace(&mut self, path: &[u8], slot: usize, tag: O::Tag, bytes: &[u8], total: &mut usize) -> bool {
        match self {
            Self::Leaf(page) => {
                let before = page.memory_bytes();
                let page = Arc::make_mut(page);
                page.replace(slot, tag, bytes);
                *total = *total + page.memory_bytes() - before;
                page.weight() > PAGE_MAX && page.len() > 1
            }
            Self::Inner(inner) => {
                let below = &mut Arc::make_mut(inner).below[usize::from(path[0])];
                let before = *total;
                let full = below.node.replace(&path[1..], slot, tag, bytes, total);
                below.bytes = below.bytes + *total - before;
                full
            }
        }
    }

    /// Inserts below this node; returns the right half if it had to be split.
    fn insert(&mut self, path: &[u8], slot: usize, tag: O::Tag, bytes: &[u8], total: &mut usize) -> Option<Child<O>> {
        match self {
            Self::Leaf(page) => {
                let before = page.memory_bytes();
                let page = Arc::make_mut(page);
                page.insert(slot, tag, bytes);
                let right = (page.weight() > PAGE_MAX && page.len() > 1).then(|| {
                    let right = page.split_off(page.split_point(slot));
                    let bytes = right.memory_bytes();
                    *total += bytes;
                    let first = (right.tags()[0], O::rest(right.item(0)));
                    Child { first, len: right.len(), below: Below { bytes, node: Self::Leaf(Arc::new(right)) } }
                });
                *total = *total + page.memory_bytes() - before;
                right
            }
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = usize::from(path[0]);
                let below = &mut inner.below[at];
                let before = *total;
                let split = below.node.insert(&path[1..], slot, tag, bytes, total);
                inner.lens[at] += 1;
                below.bytes = below.bytes + *total - before;
                let is_ordered = const { size_of::<(O::Tag, O::Rest)>() > 0 };
                if is_ordered && slot == 0 && path[1..].iter().all(|step| *step == 0) {
                    (inner.tags[at], inner.rests[at]) = below.node.first();
                }
                let beside = split?;
                inner.lens[at] -= beside.len;
                below.bytes -= beside.below.bytes;
                inner.tags.insert(at + 1, beside.first.0);
                inner.rests.insert(at + 1, beside.first.1);
                inner.lens.insert(at + 1, beside.len);
                inner.below.insert(at + 1, beside.below);
                inner.split_if_full(at + 1, total)
            }
        }
    }

    /// Removes items `range` of those below this node; some are left.
    fn remove(&mut self, range: Range<usize>, total: &mut usize, removed: &mut Removed<O>) {
        match self {
            Self::Leaf(page) => {
                let before = page.memory_bytes();
                let page = Arc::make_mut(page);
                page.remove_range(range);
                *total = *total + page.memory_bytes() - before;
            }
            Self::Inner(inner) => Arc::make_mut(inner).remove(range, total, removed),
        }
    }

    /// Removes one item below this node; others are left.
    fn remove_one(&mut self, path: &[u8], slot: usize, total: &mut usize) {
        match self {
            Self::Leaf(page) => {
                let before = page.memory_bytes();
                let page = Arc::make_mut(page);
                page.remove(slot);
                *total = *total + page.memory_bytes() - before;
            }
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = usize::from(path[0]);
                inner.lens[at] -= 1;
                if inner.lens[at] == 0 {
                    *total -= inner.take(at..at + 1).next().map_or(0, |below| below.bytes);
                    return;
                }
                let before = *total;
                let below = &mut inner.below[at];
                below.node.remove_one(&path[1..], slot, total);
                below.bytes = below.bytes + *total - before;
                if below.node.is_sparse() {
                    inner.merge_around(at, total);
                }
            }
        }
    }

    fn is_sparse(&self) -> bool {
        match self {
            Self::Leaf(page) => page.weight() < PAGE_MIN,
            Self::Inner(inner) => inner.below.len() < CHILDREN_MIN,
        }
    }

    /// Takes over all of the node to its right, if both then have room left.
    fn try_merge(&mut self, right: &Self, total: &mut usize) -> bool {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) if left.weight() + right.weight() <= PAGE_MAX * 3 / 4 => {
                let before = left.memory_bytes();
                let left = Arc::make_mut(left);
                left.append(right);
                *total = *total + left.memory_bytes() - before - right.memory_bytes();
                true
            }
            (Self::Inner(left), Self::Inner(right)) if left.below.len() + right.below.len() <= CHILDREN_MAX * 3 / 4 => {
                let (left, right) = (Arc::make_mut(left), right.as_ref().clone());
                left.tags.extend(right.tags);
                left.rests.extend(right.rests);
                left.lens.extend(right.lens);
                left.below.extend(right.below);
                *total -= inner_bytes::<O>();
                true
            }
            _ => false,
        }
    }
}

impl<O: Order> Inner<O> {
    /// No children yet, and room for as many as there can be.
    fn with_room() -> Self {
        let room = CHILDREN_MAX + 1;
        Self {
            tags: Vec::with_capacity(room),
            rests: Vec::with_capacity(room),
            lens: Vec::with_capacity(room),
            below: Vec::with_capacity(room),
        }
    }

    /// The child below which the item with `rank` of `len` before it is, or behind whose last it is; `rank` is then within it. Counted
    /// from the nearer end: lists are mostly used there.
    fn child_with(&self, rank: &mut usize, len: usize) -> usize {
        let last = self.lens.len() - 1;
        if *rank <= len / 2 {
            let mut at = 0;
            while at < last && *rank >= self.lens[at] {
                *rank -= self.lens[at];
                at += 1;
            }
            return at;
        }
        let (mut at, mut before) = (last, len - self.lens[last]);
        while *rank < before {
            at -= 1;
            before -= self.lens[at];
        }
        *rank -= before;
        at
    }

    fn push(&mut self, child: Child<O>) {
        self.tags.push(child.first.0);
        self.rests.push(child.first.1);
        self.lens.push(child.len);
        self.below.push(child.below);
    }

    /// Takes children out.
    fn take(&mut self, range: Range<usize>) -> std::vec::Drain<'_, Below<O>> {
        self.tags.drain(range.clone());
        self.rests.drain(range.clone());
        self.lens.drain(range.clone());
        self.below.drain(range)
    }

    /// Splits a node that has too many children; `inserted` is the newest.
    fn split_if_full(&mut self, inserted: usize, total: &mut usize) -> Option<Child<O>> {
        let count = self.below.len();
        if count <= CHILDREN_MAX {
            return None;
        }
        // Children that come in order leave full nodes behind.
        let at = if inserted + 1 == count { count - 1 } else { count / 2 };
        let mut upper = Self::with_room();
        upper.tags.extend(self.tags.drain(at..));
        upper.rests.extend(self.rests.drain(at..));
        upper.lens.extend(self.lens.drain(at..));
        upper.below.extend(self.below.drain(at..));
        *total += inner_bytes::<O>();
        let (first, len) = ((upper.tags[0], upper.rests[0].clone()), upper.lens.iter().sum());
        let bytes = inner_bytes::<O>() + upper.below.iter().map(|below| below.bytes).sum::<usize>();
        Some(Child { first, len, below: Below { bytes, node: Node::Inner(Arc::new(upper)) } })
    }

    fn remove(&mut self, range: Range<usize>, total: &mut usize, removed: &mut Removed<O>) {
        let mut begin = 0;
        let (mut whole, mut touched) = (0..0, 0);
        for (index, (len, below)) in self.lens.iter_mut().zip(&mut self.below).enumerate() {
            let end = begin + *len;
            let part = range.start.max(begin)..range.end.min(end);
            if !part.is_empty() {
                if part.len() == *len {
                    if whole.is_empty() {
                        whole = index..index;
                    }
                    whole.end = index + 1;
                } else {
                    let before = *total;
                    below.node.remove(part.start - begin..part.end - begin, total, removed);
                    *len -= part.len();
                    below.bytes = below.bytes + *total - before;
                    touched = index;
                }
            }
            if end >= range.end {
                break;
            }
            begin = end;
        }
        if !whole.is_empty() {
            touched = whole.start.saturating_sub(1);
            for below in self.take(whole) {
                *total -= below.bytes;
                removed.bytes += below.bytes;
                removed.nodes.push(below.node);
            }
        }
        self.merge_around(touched, total);
    }

    /// Merges the children beside `at` that have become sparse.
    fn merge_around(&mut self, at: usize, total: &mut usize) {
        let mut left = at.saturating_sub(1);
        while left + 1 < self.below.len() && left <= at + 1 {
            let [first, second] = &mut self.below[left..left + 2] else { break };
            let sparse = first.node.is_sparse() || second.node.is_sparse();
            let before = *total;
            if sparse && first.node.try_merge(&second.node, total) {
                first.bytes = first.bytes + second.bytes + *total - before;
                self.lens[left] += self.lens[left + 1];
                self.take(left + 1..left + 2);
            } else {
                left += 1;
            }
        }
    }
}

/// Where a walk over a tree stands.
pub struct Cursor<'t, O: Order> {
    stack: [Option<(&'t Inner<O>, usize)>; DEPTH_MAX],
    depth: usize,
    page: Option<&'t Page<O::Tag>>,
    slot: usize,
}

impl<O: Order> Clone for Cursor<'_, O> {
    fn clone(&self) -> Self {
        Self { stack: self.stack, ..*self }
    }
}

impl<'t, O: Order> Cursor<'t, O> {
    /// The item it stands on; none behind the last and before the first.
    #[inline]
    pub fn item(&self) -> Option<(O::Tag, &'t [u8])> {
        let page = self.page?;
        Some((page.tags()[self.slot], page.item(self.slot)))
    }

    /// Goes on to the next item.
    #[inline]
    pub fn next(&mut self) {
        let Some(page) = self.page else { return };
        self.slot += 1;
        if self.slot >= page.len() {
            self.next_page();
        }
    }

    /// Goes on to the first item whose tag is not before what is looked for, if it is on this page or the next one or there is none
    /// left; else it says no, and a descent is cheaper.
    #[inline]
    pub fn skip(&mut self, before: impl Fn(O::Tag) -> bool) -> bool {
        for _ in 0..2 {
            let Some(page) = self.page else { return true };
            let rest = &page.tags()[self.slot..];
            // Doubling steps: the place is mostly near.
            let (mut low, mut step) = (0, 1);
            while low + step <= rest.len() && before(rest[low + step - 1]) {
                low += step;
                step *= 2;
            }
            let high = rest.len().min(low + step - 1);
            self.slot += low + rest[low..high].partition_point(|tag| before(*tag));
            if self.slot < page.len() {
                return true;
            }
            self.next_page();
        }
        self.item().is_none_or(|(tag, _)| !before(tag))
    }

    /// Goes back to the item before.
    #[inline]
    pub fn back(&mut self) {
        if self.slot > 0 {
            self.slot -= 1;
        } else {
            self.page_before();
        }
    }

    fn next_page(&mut self) {
        self.slot = 0;
        while self.depth > 0 {
            let (inner, at) = self.stack[self.depth - 1].expect("pushed");
            if at + 1 < inner.below.len() {
                self.stack[self.depth - 1] = Some((inner, at + 1));
                return self.descend(&inner.below[at + 1].node, false);
            }
            self.depth -= 1;
        }
        self.page = None;
    }

    fn page_before(&mut self) {
        while self.depth > 0 {
            let (inner, at) = self.stack[self.depth - 1].expect("pushed");
            if at > 0 {
                self.stack[self.depth - 1] = Some((inner, at - 1));
                return self.descend(&inner.below[at - 1].node, true);
            }
            self.depth -= 1;
        }
        self.page = None;
    }

    fn descend(&mut self, mut node: &'t Node<O>, last: bool) {
        loop {
            match node {
                Node::Leaf(page) => {
                    self.page = Some(page);
                    self.slot = if last { page.len() - 1 } else { 0 };
                    return;
                }
                Node::Inner(inner) => {
                    let at = if last { inner.below.len() - 1 } else { 0 };
                    self.stack[self.depth] = Some((inner, at));
                    self.depth += 1;
                    node = &inner.below[at].node;
                }
            }
        }
    }
}

/// Iterator over a tree's items.
pub struct Iter<'t, O: Order> {
    cursor: Cursor<'t, O>,
}

impl<'t, O: Order> Iterator for Iter<'t, O> {
    type Item = (O::Tag, &'t [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.cursor.item()?;
        self.cursor.next();
        Some(item)
    }
}

#[cfg(test)]
mod tests;
