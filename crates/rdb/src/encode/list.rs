//! Lists: quicklists of version 10, whose nodes are listpacks or, for a long item, the item itself.

use super::{Encoder, not_empty, same, write_length};
use crate::decode::{PACKED, PLAIN};
use crate::listpack::size_bound;
use crate::tag;
use std::io::{self, Write};

impl<W: Write> Encoder<'_, W> {
    /// A list.
    pub fn list<T: AsRef<[u8]>>(mut self, len: usize, items: impl IntoIterator<Item = T> + Clone) -> io::Result<()> {
        not_empty(len)?;
        let mut nodes = Nodes::new(self.options.list_max_listpack_size);
        let (mut count, mut items_counted) = (0_u64, 0_u64);
        for item in items.clone() {
            count += u64::from(nodes.add(item.as_ref().len()) != Place::Here);
            items_counted += 1;
        }
        same(len as u64, items_counted)?;
        self.tag(tag::LIST_QUICKLIST_2)?;
        write_length(self.out, count)?;
        let mut nodes = Nodes::new(self.options.list_max_listpack_size);
        self.scratch.listpack.clear();
        for item in items {
            let item = item.as_ref();
            match nodes.add(item.len()) {
                Place::Here => self.scratch.listpack.push(item),
                Place::Next => {
                    self.list_node()?;
                    self.scratch.listpack.push(item);
                }
                Place::Alone => {
                    self.list_node()?;
                    write_length(self.out, PLAIN)?;
                    self.blob(item)?;
                }
            }
        }
        self.list_node()
    }

    /// Writes the node that was begun, if it has items, and begins another.
    pub(super) fn list_node(&mut self) -> io::Result<()> {
        if self.scratch.listpack.count() > 0 {
            write_length(self.out, PACKED)?;
            self.node()?;
        }
        self.scratch.listpack.clear();
        Ok(())
    }
}

/// Where an item goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// Into the node that was begun.
    Here,
    /// Into a new one.
    Next,
    /// Into one of its own; a new one follows.
    Alone,
}

/// Cuts a list into nodes; the same way each time.
#[derive(Debug)]
pub(super) struct Nodes {
    max_items: usize,
    max_bytes: usize,
    items: usize,
    bytes: usize,
}

impl Nodes {
    /// By the directive's number; see [`crate::Options::list_max_listpack_size`].
    pub(super) fn new(list_max_listpack_size: i64) -> Nodes {
        const KIB: usize = 1024;
        let (max_items, max_bytes) = match list_max_listpack_size {
            // A number of items has a bound in bytes beside it.
            1.. => (usize::try_from(list_max_listpack_size).unwrap_or(usize::MAX), 8 * KIB),
            -1 => (usize::MAX, 4 * KIB),
            0 | -2 => (usize::MAX, 8 * KIB),
            -3 => (usize::MAX, 16 * KIB),
            -4 => (usize::MAX, 32 * KIB),
            _ => (usize::MAX, 64 * KIB),
        };
        Nodes { max_items, max_bytes, items: 0, bytes: 0 }
    }

    pub(super) fn add(&mut self, len: usize) -> Place {
        let size = size_bound(len);
        if size > self.max_bytes {
            (self.items, self.bytes) = (0, 0);
            return Place::Alone;
        }
        let place = match self.items {
            0 => Place::Next,
            items if items < self.max_items && self.bytes + size <= self.max_bytes => Place::Here,
            _ => {
                (self.items, self.bytes) = (0, 0);
                Place::Next
            }
        };
        self.items += 1;
        self.bytes += size;
        place
    }
}
