//! A sorted set: members in the order of score and bytes, and by name.

use super::dict::{Dict, Keyed};
use super::packed::{Packed, PackedBuf};
use super::tree::{Order, Tree};
use super::{Form, Repr};

/// Order by score, then by the member's bytes.
#[derive(Clone, Copy, Debug)]
pub struct ByScore;

impl Order for ByScore {
    type Tag = f64;
    type First = (f64, Box<[u8]>);

    fn first(score: f64, member: &[u8]) -> (f64, Box<[u8]>) {
        (score, Box::from(member))
    }
}

/// An item is a score (8 bytes) and its member.
#[derive(Clone, Copy, Debug)]
pub struct ScoredMember;

impl Keyed for ScoredMember {
    #[inline]
    fn key(item: &[u8]) -> &[u8] {
        &item[8..]
    }
}

/// A large sorted set: the same members twice, by score and by name.
#[derive(Clone, Debug)]
pub struct SortedSetTree {
    by_score: Tree<ByScore>,
    by_name: Dict<ScoredMember>,
    form: Form,
}

impl SortedSetTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.by_score.memory_bytes() + self.by_name.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.by_score.free_cost() + self.by_name.free_cost()
    }
}

/// A sorted set, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum SortedSetRef<'a> {
    /// A small one.
    Packed(Packed<'a>),
    /// A large one.
    Tree(&'a SortedSetTree),
}

impl<'a> SortedSetRef<'a> {
    /// Number of elements.
    pub fn len(self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Tree(tree) => tree.by_score.len(),
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

/// A sorted set that can be changed.
#[derive(Clone, Debug)]
pub struct SortedSet {
    repr: Repr<SortedSetTree>,
}

impl SortedSet {
    /// An empty one, in this buffer while it is small.
    pub fn empty_in(buffer: Vec<u8>) -> Self {
        Self { repr: Repr::Packed(PackedBuf::empty_in(buffer, Form::Compact)) }
    }

    pub(super) fn from_repr(repr: Repr<SortedSetTree>) -> Self {
        Self { repr }
    }

    pub(super) fn into_repr(self) -> Repr<SortedSetTree> {
        self.repr
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> SortedSetRef<'_> {
        match &self.repr {
            Repr::Packed(buf) => SortedSetRef::Packed(buf.view()),
            Repr::Tree(tree) => SortedSetRef::Tree(tree),
        }
    }
}
