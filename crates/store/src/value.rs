//! Values as they come in and go out: borrowed from an entry, to be stored, on their way to be freed.

use crate::rope::Rope;
use crate::types::{FieldsRef, Form, LargeTree, ListRef, SetRef, SortedSetRef, Stream, Type};

/// A string, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringRef<'a> {
    /// One that is the decimal form of an integer.
    Int(i64),
    /// One in one piece.
    Bytes(&'a [u8]),
    /// One in extents.
    Rope(&'a Rope),
}

/// A value, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// A string.
    String(StringRef<'a>),
    /// A list.
    List(ListRef<'a>),
    /// A set.
    Set(SetRef<'a>),
    /// A sorted set.
    SortedSet(SortedSetRef<'a>),
    /// A hash.
    Hash(FieldsRef<'a>),
    /// A stream.
    Stream(&'a Stream),
}

impl<'a> ValueRef<'a> {
    /// The string, if it is one.
    #[inline]
    pub fn as_string(self) -> Option<StringRef<'a>> {
        if let Self::String(string) = self { Some(string) } else { None }
    }

    /// Its type.
    pub fn kind(self) -> Type {
        match self {
            Self::String(_) => Type::String,
            Self::List(_) => Type::List,
            Self::Set(_) => Type::Set,
            Self::SortedSet(_) => Type::SortedSet,
            Self::Hash(_) => Type::Hash,
            Self::Stream(_) => Type::Stream,
        }
    }

    /// What an aggregate's encoding is called.
    pub(crate) fn form(self) -> Form {
        match self {
            Self::List(list) => list.form(),
            Self::Set(set) => set.form(),
            Self::SortedSet(set) => set.form(),
            Self::Hash(fields) => fields.form(),
            Self::String(_) | Self::Stream(_) => Form::Large,
        }
    }
}

/// A value to be stored.
#[derive(Debug)]
pub enum NewValue<'v> {
    /// Kept as an integer.
    Int(i64),
    /// Copied once: into the entry, or into a rope if longer than [`INLINE_MAX`](crate::INLINE_MAX).
    Bytes(&'v [u8]),
    /// Taken as it is.
    Rope(Rope),
}

/// A value that is an allocation of its own, on its way out. Dropping it frees it.
#[derive(Clone, Debug)]
pub enum Large {
    /// A long string.
    Rope(Rope),
    /// A large aggregate.
    Tree(LargeTree),
}

impl Large {
    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Rope(rope) => rope.memory_bytes(),
            Self::Tree(tree) => tree.memory_bytes(),
        }
    }

    /// About how many allocations dropping it frees.
    pub fn free_cost(&self) -> usize {
        match self {
            Self::Rope(rope) => rope.free_cost(),
            Self::Tree(tree) => tree.free_cost(),
        }
    }
}

/// What OBJECT ENCODING says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// An integer.
    Int,
    /// At most 44 bytes, never changed in part.
    Embstr,
    /// Longer, or changed by APPEND or SETRANGE.
    Raw,
    /// A small aggregate.
    Listpack,
    /// A list beyond its limits.
    Quicklist,
    /// A set or hash beyond its limits.
    Hashtable,
    /// A set of integers.
    Intset,
    /// A sorted set beyond its limits.
    Skiplist,
    /// A stream.
    Stream,
}

impl Encoding {
    /// The name that OBJECT ENCODING answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
            Self::Listpack => "listpack",
            Self::Quicklist => "quicklist",
            Self::Hashtable => "hashtable",
            Self::Intset => "intset",
            Self::Skiplist => "skiplist",
            Self::Stream => "stream",
        }
    }
}
