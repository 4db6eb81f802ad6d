//! A set: members in the order of their hash; a packed set of integers is sorted.

use super::dict::{Dict, Keyed};
use super::packed::{Packed, PackedBuf};
use super::{Form, Repr};

/// An item is its member.
#[derive(Clone, Copy, Debug)]
pub struct Member;

impl Keyed for Member {
    #[inline]
    fn key(item: &[u8]) -> &[u8] {
        item
    }
}

/// A large set.
#[derive(Clone, Debug)]
pub struct SetTree {
    dict: Dict<Member>,
    form: Form,
}

impl SetTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.dict.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.dict.free_cost()
    }
}

/// A set, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum SetRef<'a> {
    /// A small one.
    Packed(Packed<'a>),
    /// A large one.
    Tree(&'a SetTree),
}

impl<'a> SetRef<'a> {
    /// Number of elements.
    pub fn len(self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Tree(tree) => tree.dict.len(),
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

/// A set that can be changed.
#[derive(Clone, Debug)]
pub struct Set {
    repr: Repr<SetTree>,
}

impl Set {
    /// An empty one, in this buffer while it is small.
    pub fn empty_in(buffer: Vec<u8>) -> Self {
        Self { repr: Repr::Packed(PackedBuf::empty_in(buffer, Form::Compact)) }
    }

    pub(super) fn from_repr(repr: Repr<SetTree>) -> Self {
        Self { repr }
    }

    pub(super) fn into_repr(self) -> Repr<SetTree> {
        self.repr
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> SetRef<'_> {
        match &self.repr {
            Repr::Packed(buf) => SetRef::Packed(buf.view()),
            Repr::Tree(tree) => SetRef::Tree(tree),
        }
    }
}
