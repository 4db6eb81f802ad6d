//! A list: elements by position.
//!
//! The reported encoding is `listpack` while Redis would keep the list in one listpack: [`NodeLimit`] is compared with the bytes
//! that this listpack would have, before an element is added ([`List::push`], …), and with half the limit after one was removed.
//! A packed list's bytes are counted when somebody asks, at most a kilobyte; a tree keeps their sum, or, after a removal of
//! many elements, forgets it until the list is short enough for the question to matter.
//!
//! Redis's quicklist goes back to a listpack only when one node is left, whatever earlier edits have left in how many nodes; here
//! all elements count as if they were in one.

use super::packed::{Items, Packed, PackedBuf};
use super::tree::{Cursor, Iter, Order, Position, Tree};
use super::{Form, LargeTree, Repr};
use std::ops::Range;

/// Order by place alone.
#[derive(Clone, Copy, Debug)]
pub struct ByPlace;

impl Order for ByPlace {
    type Tag = ();
    type Rest = ();

    fn rest(_: &[u8]) {}
}

/// A large list.
#[derive(Clone, Debug)]
pub struct ListTree {
    tree: Tree<ByPlace>,
    form: Form,
    /// What the entries of a listpack with these elements would take, if known.
    listpack: Option<usize>,
}

impl ListTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.tree.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.tree.free_cost()
    }

    fn listpack(&mut self) -> usize {
        *self.listpack.get_or_insert_with(|| self.tree.iter().map(|((), element)| listpack_entry(element)).sum())
    }

    fn insert(&mut self, place: &Position, element: &[u8]) {
        self.tree.insert(place, (), element);
        if let Some(bytes) = &mut self.listpack {
            *bytes += listpack_entry(element);
        }
    }

    fn remove_range(&mut self, range: Range<usize>) {
        if range.len() == 1 {
            return self.take(&self.tree.seek_rank(range.start), |_| {});
        }
        self.listpack = match self.listpack {
            Some(bytes) if range.len() <= RECOUNTED => {
                let removed = self.tree.iter_from(range.start).take(range.len());
                Some(bytes - removed.map(|((), element)| listpack_entry(element)).sum::<usize>())
            }
            _ => None,
        };
        // What goes whole is freed here, or with the list that `List::shared` has returned before.
        drop(self.tree.remove_range(range));
    }

    /// Removes the element at a place, which is within its page, after `look` has seen it.
    fn take(&mut self, place: &Position, look: impl FnOnce(&[u8])) {
        let ((), element) = self.tree.here(place).expect("the caller has found the element");
        if let Some(bytes) = &mut self.listpack {
            *bytes -= listpack_entry(element);
        }
        look(element);
        self.tree.remove_here(place);
    }
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Element 0's.
    Head,
    /// The last element's.
    Tail,
}

/// Up to which size a list is one listpack: `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLimit {
    /// So many bytes.
    Bytes(usize),
    /// So many elements, and [`SAFE_BYTES`].
    Elements(usize),
}

impl NodeLimit {
    /// The limit that the directive's value stands for.
    pub fn of(directive: i64) -> Self {
        match directive {
            0.. => Self::Elements(usize::try_from(directive).unwrap_or(usize::MAX).clamp(1, MOST_ELEMENTS)),
            -5..0 => Self::Bytes(2048 << directive.unsigned_abs()),
            _ => Self::Bytes(64 * 1024),
        }
    }

    fn allows(self, bytes: usize, elements: usize) -> bool {
        match self {
            Self::Bytes(most) => bytes <= most,
            Self::Elements(most) => elements <= most && bytes <= SAFE_BYTES,
        }
    }

    fn half(self) -> Self {
        match self {
            Self::Bytes(most) => Self::Bytes(most / 2),
            Self::Elements(most) => Self::Elements(most / 2),
        }
    }

    /// No list with more elements is within the limit: an entry of a listpack has two bytes at least.
    fn most_elements(self) -> usize {
        match self {
            Self::Bytes(most) => most / 2,
            Self::Elements(most) => most.min(SAFE_BYTES / 2),
        }
    }
}

/// A listpack of a number of elements is not to have more bytes.
const SAFE_BYTES: usize = 8192;
/// Largest number of elements that a node may be given.
const MOST_ELEMENTS: usize = 32_767;
/// Header and end of a listpack.
const LISTPACK_FRAME: usize = 7;
/// Elements whose removal is subtracted from what is known of the listpack; after a larger one it is counted anew if need be.
const RECOUNTED: usize = 256;
/// Elements from which on a removed range may be too much to free at once.
const SHARED_MIN: usize = 512;

/// Bytes of an element in a listpack: its encoding, its text if it is no integer, and its length for those who come from behind.
fn listpack_entry(element: &[u8]) -> usize {
    let size = match integer(element) {
        Some(0..=127) => 1,
        Some(-4096..=4095) => 2,
        Some(n) if i16::try_from(n).is_ok() => 3,
        Some(-8_388_608..=8_388_607) => 4,
        Some(n) if i32::try_from(n).is_ok() => 5,
        Some(_) => 9,
        None => match element.len() {
            0..64 => 1 + element.len(),
            64..4096 => 2 + element.len(),
            _ => 5 + element.len(),
        },
    };
    size + match size {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// The integer of 64 bits that a text is, written as integers are.
fn integer(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] => return Some(0),
        [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] if text.len() <= 20 => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A list, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum ListRef<'a> {
    /// A small one.
    Packed(Packed<'a>),
    /// A large one.
    Tree(&'a ListTree),
}

impl<'a> ListRef<'a> {
    /// Number of elements.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Tree(tree) => tree.tree.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many buffers hold it.
    pub fn nodes(self) -> usize {
        match self {
            Self::Packed(_) => 1,
            Self::Tree(list) => list.free_cost().max(1),
        }
    }

    /// Bytes that its elements would take in listpacks.
    pub fn listpack_bytes(self) -> usize {
        self.iter().map(listpack_entry).sum()
    }

    /// What OBJECT ENCODING should call it.
    pub fn form(self) -> Form {
        match self {
            Self::Packed(packed) => packed.form(),
            Self::Tree(tree) => tree.form,
        }
    }

    /// The element at an index.
    #[inline]
    pub fn nth(self, index: usize) -> Option<&'a [u8]> {
        match self {
            Self::Packed(packed) => packed.nth(index).map(|(_, element)| element),
            Self::Tree(tree) => tree.tree.nth(index).map(|((), element)| element),
        }
    }

    /// All elements.
    pub fn iter(self) -> Elements<'a> {
        self.iter_from(0)
    }

    /// The elements from an index on.
    #[inline]
    pub fn iter_from(self, index: usize) -> Elements<'a> {
        match self {
            Self::Packed(packed) => {
                let mut items = packed.items();
                if index > 0 {
                    items.nth(index - 1);
                }
                Elements::Packed(items)
            }
            Self::Tree(tree) => Elements::Tree(tree.tree.iter_from(index)),
        }
    }

    /// The elements from an index on, backwards; none if there is no such element.
    pub fn rev_from(self, index: usize) -> Backwards<'a> {
        match self {
            Self::Packed(packed) => {
                let mut elements: Vec<_> = packed.items().take(index.saturating_add(1)).map(|(_, item)| item).collect();
                if elements.len() <= index {
                    elements.clear();
                }
                Backwards::Packed(elements)
            }
            Self::Tree(tree) => Backwards::Tree(tree.tree.cursor(&tree.tree.seek_rank(index))),
        }
    }

    /// The same elements, to be looked at later: a large list is shared, not copied.
    pub fn to_owned(self) -> List {
        match self {
            Self::Packed(packed) => List { repr: Repr::Packed(PackedBuf::copy_in(Vec::new(), packed)) },
            Self::Tree(tree) => List { repr: Repr::Tree(Box::new(tree.clone())) },
        }
    }

    /// Whether this is the very value that `other` is: one of them is a copy of the other that nobody has changed since.
    pub fn is_same(self, other: ListRef<'_>) -> bool {
        match (self, other) {
            (Self::Packed(packed), ListRef::Packed(other)) => packed == other,
            (Self::Tree(tree), ListRef::Tree(other)) => tree.tree.is_same(&other.tree),
            _ => false,
        }
    }

    fn listpack(self) -> usize {
        self.iter().map(listpack_entry).sum()
    }
}

/// Iterator over a list's elements.
pub enum Elements<'a> {
    /// Of a small list.
    Packed(Items<'a>),
    /// Of a large one.
    Tree(Iter<'a, ByPlace>),
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Packed(items) => items.next().map(|(_, element)| element),
            Self::Tree(items) => items.next().map(|((), element)| element),
        }
    }
}

/// Iterator over a list's elements from behind.
pub enum Backwards<'a> {
    /// Of a small list: what is still to come, last first.
    Packed(Vec<&'a [u8]>),
    /// Of a large one.
    Tree(Cursor<'a, ByPlace>),
}

impl<'a> Iterator for Backwards<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Packed(elements) => elements.pop(),
            Self::Tree(cursor) => {
                let ((), element) = cursor.item()?;
                cursor.back();
                Some(element)
            }
        }
    }
}

/// A list that can be changed.
#[derive(Clone, Debug)]
pub struct List {
    repr: Repr<ListTree>,
}

impl List {
    /// An empty one, in this buffer while it is small.
    pub fn empty_in(buffer: Vec<u8>) -> Self {
        Self { repr: Repr::Packed(PackedBuf::empty_in(buffer, Form::Compact)) }
    }

    pub(super) fn from_repr(repr: Repr<ListTree>) -> Self {
        Self { repr }
    }

    pub(super) fn into_repr(self) -> Repr<ListTree> {
        self.repr
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> ListRef<'_> {
        match &self.repr {
            Repr::Packed(buf) => ListRef::Packed(buf.view()),
            Repr::Tree(tree) => ListRef::Tree(tree),
        }
    }

    /// Prepares for more elements: `bytes` is the sum of their lengths, by which Redis decides before it adds them.
    pub fn expect(&mut self, elements: usize, bytes: usize, limit: NodeLimit) {
        let view = self.view();
        if view.form() != Form::Compact {
            return;
        }
        let len = view.len() + elements;
        let within = |listpack: usize| limit.allows(listpack.saturating_add(bytes), len);
        if !self.listpack_bound().is_some_and(within) && !within(self.listpack()) {
            self.set_form(Form::Large);
        }
    }

    /// Adds an element at an end, as it was [expected](List::expect) to be.
    #[inline]
    pub fn push(&mut self, end: End, element: &[u8]) {
        if let Repr::Packed(buf) = &mut self.repr {
            if buf.fits(element.len()) {
                match end {
                    End::Head => buf.insert(buf.view().position(0), &[element]),
                    End::Tail => buf.push(&[element]),
                }
                return;
            }
            self.grow();
        }
        let list = self.tree_mut();
        let place = match end {
            End::Head => list.tree.first(),
            End::Tail => list.tree.end(),
        };
        list.insert(&place, element);
    }

    /// Removes the element at an end of a list that has one, after `look` has seen it.
    #[inline]
    pub fn pop(&mut self, end: End, limit: NodeLimit, look: impl FnOnce(&[u8])) {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let index = if end == End::Head { 0 } else { buf.view().len() - 1 };
                let (at, element) = buf.view().nth(index).expect("a list has elements");
                look(element);
                buf.remove(at);
            }
            Repr::Tree(list) => {
                let place = match end {
                    End::Head => list.tree.first(),
                    End::Tail => list.tree.last(),
                };
                list.take(&place, look);
            }
        }
        self.shrunk(limit);
    }

    /// Adds an element before that at an index, or behind the last; it was [expected](List::expect).
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        if let Repr::Packed(buf) = &mut self.repr {
            if buf.fits(element.len()) {
                buf.insert(buf.view().position(index), &[element]);
                return;
            }
            self.grow();
        }
        let list = self.tree_mut();
        list.insert(&list.tree.seek_rank(index), element);
    }

    /// Puts an element in the place of the one at an index, which exists; it was [expected](List::expect).
    pub fn set(&mut self, index: usize, element: &[u8], limit: NodeLimit) {
        if let Repr::Packed(buf) = &mut self.repr {
            let (at, old) = buf.view().nth(index).expect("the caller looked");
            if element.len() <= old.len() || buf.fits(element.len() - old.len()) {
                buf.replace(at, &[element]);
                self.shrunk(limit);
                return;
            }
            self.grow();
        }
        let tree = self.tree_mut();
        let place = tree.tree.seek_rank(index);
        let (_, old) = tree.tree.cursor(&place).item().expect("the caller looked");
        let old = listpack_entry(old);
        tree.tree.replace_here(&place, (), element);
        tree.listpack = tree.listpack.map(|bytes| bytes - old + listpack_entry(element));
        self.shrunk(limit);
    }

    /// Removes the elements of a range of indices, which are there.
    pub fn remove_range(&mut self, range: Range<usize>, limit: NodeLimit) {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let at = buf.view().position(range.start);
                buf.remove_items(at, range.len());
            }
            Repr::Tree(tree) => tree.remove_range(range),
        }
        self.shrunk(limit);
    }

    /// Removes elements that equal this one: the first `most`, or the last if `backwards`. Returns how many.
    pub fn remove_equal(&mut self, element: &[u8], most: usize, backwards: bool, limit: NodeLimit) -> usize {
        let ranges = self.ranges_equal(element, most, backwards);
        let count = ranges.iter().map(ExactSizeIterator::len).sum();
        // From behind, so that the indices before stay right.
        for range in ranges.into_iter().rev() {
            match &mut self.repr {
                Repr::Packed(buf) => {
                    let at = buf.view().position(range.start);
                    buf.remove_items(at, range.len());
                }
                Repr::Tree(tree) => tree.remove_range(range),
            }
        }
        if count > 0 {
            self.shrunk(limit);
        }
        count
    }

    /// Where such elements are, ascending.
    fn ranges_equal(&self, element: &[u8], most: usize, backwards: bool) -> Vec<Range<usize>> {
        let view = self.view();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        if backwards {
            let last = view.len().saturating_sub(1);
            let found = view.rev_from(last).enumerate().filter(|(_, other)| *other == element);
            for index in found.take(most).map(|(distance, _)| last - distance) {
                match ranges.last_mut() {
                    Some(range) if range.start == index + 1 => range.start = index,
                    _ => ranges.push(index..index + 1),
                }
            }
            ranges.reverse();
        } else {
            let found = view.iter().enumerate().filter(|(_, other)| *other == element);
            for (index, _) in found.take(most) {
                match ranges.last_mut() {
                    Some(range) if range.end == index => range.end += 1,
                    _ => ranges.push(index..index + 1),
                }
            }
        }
        ranges
    }

    /// Before so many elements are removed: the whole list shared, if freeing them may take long. Whoever drops it frees them.
    pub fn shared(&self, removed: usize) -> Option<LargeTree> {
        match &self.repr {
            Repr::Tree(tree) if removed >= SHARED_MIN => Some(LargeTree::List(tree.clone())),
            _ => None,
        }
    }

    /// The list if it is a large one, of which freeing may take long.
    pub fn into_large(self) -> Option<LargeTree> {
        match self.repr {
            Repr::Tree(tree) => Some(LargeTree::List(tree)),
            Repr::Packed(_) => None,
        }
    }

    /// A list that was built is given the encoding that fits it.
    pub fn settle(&mut self, limit: NodeLimit) {
        let fits = limit.allows(self.listpack(), self.view().len());
        self.set_form(if fits { Form::Compact } else { Form::Large });
    }

    /// After a removal a list may be reported as compact again: far below the limit, so that it does not go back and forth.
    fn shrunk(&mut self, limit: NodeLimit) {
        let (len, half) = (self.view().len(), limit.half());
        if self.view().form() != Form::Large || len > half.most_elements() {
            return;
        }
        if self.listpack_bound().is_some_and(|bytes| half.allows(bytes, len)) || half.allows(self.listpack(), len) {
            self.set_form(Form::Compact);
        }
    }

    /// More than a listpack of these elements can have, where that is known at once: lengths there take at most twice what they
    /// take here.
    fn listpack_bound(&self) -> Option<usize> {
        match &self.repr {
            Repr::Packed(buf) => Some(LISTPACK_FRAME + 3 * buf.view().bytes().len()),
            Repr::Tree(_) => None,
        }
    }

    /// Bytes of a listpack with these elements.
    fn listpack(&mut self) -> usize {
        LISTPACK_FRAME
            + match &mut self.repr {
                Repr::Packed(buf) => ListRef::Packed(buf.view()).listpack(),
                Repr::Tree(tree) => tree.listpack(),
            }
    }

    fn set_form(&mut self, form: Form) {
        match &mut self.repr {
            Repr::Packed(buf) => buf.set_form(form),
            Repr::Tree(tree) => tree.form = form,
        }
    }

    fn tree_mut(&mut self) -> &mut ListTree {
        match &mut self.repr {
            Repr::Tree(tree) => tree,
            Repr::Packed(_) => unreachable!("it was made large"),
        }
    }

    /// From packed to a tree.
    fn grow(&mut self) {
        let view = self.view();
        let mut tree = ListTree { tree: Tree::default(), form: view.form(), listpack: Some(view.listpack()) };
        view.iter().for_each(|element| tree.tree.push((), element));
        self.repr = Repr::Tree(Box::new(tree));
    }
}

#[cfg(test)]
mod tests;
