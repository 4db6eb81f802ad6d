//! A list: elements by position.

use super::packed::{Packed, PackedBuf};
use super::tree::{Order, Tree};
use super::{Form, Repr};

/// Order by place alone.
#[derive(Clone, Copy, Debug)]
pub struct ByPlace;

impl Order for ByPlace {
    type Tag = ();
    type First = ();

    fn first((): (), _: &[u8]) {}
}

/// A large list.
#[derive(Clone, Debug)]
pub struct ListTree {
    tree: Tree<ByPlace>,
    form: Form,
}

impl ListTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.tree.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.tree.free_cost()
    }
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

    /// What OBJECT ENCODING should call it.
    pub fn form(self) -> Form {
        match self {
            Self::Packed(packed) => packed.form(),
            Self::Tree(tree) => tree.form,
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
}
