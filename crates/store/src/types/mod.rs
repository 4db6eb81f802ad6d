//! Values that are more than a string: lists, sets, sorted sets, hashes and streams.
//!
//! Each type has two forms in memory. A small value is [`Packed`] into its entry; above [`PACKED_MAX`] bytes it is a [`tree`] of
//! pages, copied on write. What OBJECT ENCODING answers is neither: it follows Redis's thresholds ([`Limits`]) and is remembered
//! beside the value as its [`Form`].
//!
//! A type is a file: its tree, a view for readers (`ListRef`, …) which is a packed value or a reference to a tree, and the owned
//! value (`List`, …) that [`crate::EntryMut::edit`] hands to writers. An edit of a packed value works on a copy in a buffer that
//! is used again, and the result is copied back into the entry: two copies of at most a kilobyte.

pub mod ahead;
pub mod algebra;
mod deadlines;
pub mod dict;
pub mod disposal;
pub mod fields;
pub mod list;
pub mod packed;
pub mod page;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod tree;

pub use algebra::{Combination, Operation};
pub use fields::{Before, Field, Fields, FieldsRef};
pub use list::{End, List, ListRef, NodeLimit};
pub use packed::{PACKED_MAX, Packed, PackedBuf};
pub use set::{Set, SetBuilder, SetLimits, SetRef};
pub use sorted_set::{MemberBound, MemberRange, ScoreRange, Scored, SortedSet, SortedSetRef};
pub use stream::{Consumer, Entries, Exactness, Group, Keep, Pending, References, Stream, StreamEntry, StreamId};

use fields::FieldsTree;
use list::ListTree;
use set::SetTree;
use sorted_set::SortedSetTree;

/// Redis's types, by the number that entries keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// A string.
    String = 0,
    /// A list.
    List = 1,
    /// A set.
    Set = 2,
    /// A sorted set.
    SortedSet = 3,
    /// A hash.
    Hash = 4,
    /// A stream.
    Stream = 5,
}

impl Type {
    /// What TYPE answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
        }
    }
}

/// Which of Redis's encodings an aggregate is said to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// `listpack`.
    Compact = 0,
    /// `quicklist`, `hashtable` or `skiplist`; never given up again.
    Large = 1,
    /// `intset`: a set that had only integers so far.
    Integers = 2,
    /// `hashtable`: a hash with a field that expires, now or earlier.
    Expiring = 3,
}

impl Form {
    /// The form written as a byte by this crate.
    pub(crate) fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Compact,
            2 => Self::Integers,
            3 => Self::Expiring,
            _ => Self::Large,
        }
    }
}

/// Redis's thresholds for a compact encoding: beyond either, the value is [`Form::Large`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most elements.
    pub entries: usize,
    /// Longest element, in bytes.
    pub value: usize,
}

/// A value in one of its two forms.
#[derive(Clone, Debug)]
pub enum Repr<T> {
    /// A few items in one buffer.
    Packed(PackedBuf),
    /// Many, or long ones.
    Tree(Box<T>),
}

/// A value of any aggregate type, outside of an entry or on its way in and out.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    /// A hash.
    Hash(Fields),
    /// A stream.
    Stream(Box<Stream>),
}

impl Aggregate {
    /// Its type.
    pub fn kind(&self) -> Type {
        match self {
            Self::List(_) => Type::List,
            Self::Set(_) => Type::Set,
            Self::SortedSet(_) => Type::SortedSet,
            Self::Hash(_) => Type::Hash,
            Self::Stream(_) => Type::Stream,
        }
    }

    /// Its parts, to be stored.
    #[inline]
    pub(crate) fn into_parts(self) -> Parts {
        match self {
            Self::List(list) => parts(list.into_repr(), LargeTree::List),
            Self::Set(set) => parts(set.into_repr(), LargeTree::Set),
            Self::SortedSet(set) => parts(set.into_repr(), LargeTree::SortedSet),
            Self::Hash(fields) => parts(fields.into_repr(), LargeTree::Hash),
            Self::Stream(stream) => Parts::Tree(LargeTree::Stream(stream)),
        }
    }

    #[inline]
    pub(crate) fn from_packed(kind: Type, buf: PackedBuf) -> Self {
        match kind {
            Type::List => Self::List(List::from_repr(Repr::Packed(buf))),
            Type::Set => Self::Set(Set::from_repr(Repr::Packed(buf))),
            Type::SortedSet => Self::SortedSet(SortedSet::from_repr(Repr::Packed(buf))),
            Type::Hash => Self::Hash(Fields::from_repr(Repr::Packed(buf))),
            Type::String | Type::Stream => unreachable!("neither is ever packed"),
        }
    }

    #[inline]
    pub(crate) fn from_tree(tree: LargeTree) -> Self {
        match tree {
            LargeTree::List(tree) => Self::List(List::from_repr(Repr::Tree(tree))),
            LargeTree::Set(tree) => Self::Set(Set::from_repr(Repr::Tree(tree))),
            LargeTree::SortedSet(tree) => Self::SortedSet(SortedSet::from_repr(Repr::Tree(tree))),
            LargeTree::Hash(tree) => Self::Hash(Fields::from_repr(Repr::Tree(tree))),
            LargeTree::Stream(stream) => Self::Stream(stream),
        }
    }
}

/// A type of aggregate, for code that is written once for all of them.
pub trait Kind: Sized {
    /// Its type.
    const TYPE: Type;

    /// An empty value, in this buffer while it is small.
    fn new_in(buffer: Vec<u8>) -> Self;

    /// As a value of any type.
    fn into_aggregate(self) -> Aggregate;

    /// The value, if it is of this type.
    fn of(value: Aggregate) -> Option<Self>;

    /// Whether it has no elements: such a value is not kept, but for a stream.
    fn is_void(&self) -> bool;

    /// Whether this is the very value that `other` is: one of them is a clone of the other, and neither was changed since.
    fn is_same(&self, other: &Self) -> bool;
}

macro_rules! kind {
    ($name:ty, $variant:ident, $type:expr, $buffer:ident => $empty:expr, $void:expr, $same:expr) => {
        impl Kind for $name {
            const TYPE: Type = $type;

            fn new_in($buffer: Vec<u8>) -> Self {
                $empty
            }

            #[inline]
            fn into_aggregate(self) -> Aggregate {
                Aggregate::$variant(self)
            }

            #[inline]
            fn of(value: Aggregate) -> Option<Self> {
                if let Aggregate::$variant(value) = value { Some(value) } else { None }
            }

            #[inline]
            fn is_void(&self) -> bool {
                let void: fn(&$name) -> bool = $void;
                void(self)
            }

            fn is_same(&self, other: &Self) -> bool {
                let same: fn(&$name, &$name) -> bool = $same;
                same(self, other)
            }
        }
    };
}

kind!(List, List, Type::List, buffer => List::empty_in(buffer), |value| value.view().is_empty(), |a, b| a.view().is_same(b.view()));
kind!(Set, Set, Type::Set, buffer => Set::empty_in(buffer), |value| value.view().is_empty(), |a, b| a.view().is_same(b.view()));
kind!(SortedSet, SortedSet, Type::SortedSet, buffer => SortedSet::empty_in(buffer), |value| value.view().is_empty(), |a, b| a.view().is_same(b.view()));
kind!(Fields, Hash, Type::Hash, buffer => Fields::empty_in(buffer), |value| value.view().is_empty(), |a, b| a.view().is_same(b.view()));
kind!(Box<Stream>, Stream, Type::Stream, _buffer => Box::default(), |_| false, |a, b| Stream::is_same(a, b));

/// A value taken apart: what an entry stores.
pub(crate) enum Parts {
    Packed(PackedBuf),
    Tree(LargeTree),
}

#[inline]
fn parts<T>(repr: Repr<T>, tree: fn(Box<T>) -> LargeTree) -> Parts {
    match repr {
        Repr::Packed(buf) => Parts::Packed(buf),
        Repr::Tree(large) => Parts::Tree(tree(large)),
    }
}

/// A large aggregate, owned. Cloning shares it.
#[derive(Clone, Debug)]
pub enum LargeTree {
    /// A list.
    List(Box<ListTree>),
    /// A set.
    Set(Box<SetTree>),
    /// A sorted set.
    SortedSet(Box<SortedSetTree>),
    /// A hash.
    Hash(Box<FieldsTree>),
    /// A stream.
    Stream(Box<Stream>),
}

impl LargeTree {
    pub(crate) fn kind(&self) -> Type {
        match self {
            Self::List(_) => Type::List,
            Self::Set(_) => Type::Set,
            Self::SortedSet(_) => Type::SortedSet,
            Self::Hash(_) => Type::Hash,
            Self::Stream(_) => Type::Stream,
        }
    }

    /// Bytes of memory.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::List(tree) => tree.memory_bytes(),
            Self::Set(tree) => tree.memory_bytes(),
            Self::SortedSet(tree) => tree.memory_bytes(),
            Self::Hash(tree) => tree.memory_bytes(),
            Self::Stream(stream) => stream.memory_bytes(),
        }
    }

    /// About how many allocations dropping it frees.
    pub fn free_cost(&self) -> usize {
        match self {
            Self::List(tree) => tree.free_cost(),
            Self::Set(tree) => tree.free_cost(),
            Self::SortedSet(tree) => tree.free_cost(),
            Self::Hash(tree) => tree.free_cost(),
            Self::Stream(stream) => stream.free_cost(),
        }
    }
}
