//! A stream: entries in the order of their ids.

use super::tree::{Order, Tree};

/// An entry's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

/// Order by id.
#[derive(Clone, Copy, Debug)]
pub struct ById;

impl Order for ById {
    type Tag = StreamId;
    type First = StreamId;

    fn first(id: StreamId, _: &[u8]) -> StreamId {
        id
    }
}

/// A stream. It is a tree at any size.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    entries: Tree<ById>,
}

impl Stream {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none; an empty stream is kept all the same.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.memory_bytes()
    }

    /// About how many allocations dropping it frees.
    pub fn free_cost(&self) -> usize {
        self.entries.free_cost()
    }
}
