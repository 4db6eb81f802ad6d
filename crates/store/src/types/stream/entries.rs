//! A stream's entries.
//!
//! An item is `names | values`: `0 | count | (name, value) ...` with names of its own, or `n | value ...` with those of list number
//! `n - 1`, each string behind its length, all numbers varints. A list of names is made when an entry has the same names as the one
//! before it, so that a stream of like entries keeps their names once; lists go when the stream becomes empty.
//!
//! Dropped: names shared with the first entry of a page, as in Redis's nodes. They would bind an item to its page, and a stream that
//! alternates between two kinds of entries would share nothing.

use std::sync::Arc;

use super::super::tree::{Cursor, Position, Removed, Tree};
use super::{ById, StreamId};

/// Lists of names that a stream keeps at most.
const LISTS_MAX: usize = 16;
/// Longest list of names that is kept, in bytes.
const LIST_BYTES_MAX: usize = 1024;

/// Entries by id. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    tree: Tree<ById>,
    /// Lists of names: `count | name ...`.
    names: Option<Arc<Vec<Box<[u8]>>>>,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub struct StreamEntry<'a> {
    /// Its id.
    pub id: StreamId,
    count: usize,
    /// The list of names, if it has none of its own.
    names: Option<&'a [u8]>,
    data: &'a [u8],
}

impl<'a> StreamEntry<'a> {
    fn read(id: StreamId, item: &'a [u8], lists: &'a [Box<[u8]>]) -> Self {
        let mut data = item;
        let names = take_number(&mut data).checked_sub(1).map(|list| &*lists[list]);
        let mut rest = names.unwrap_or(data);
        let count = take_number(&mut rest);
        match names {
            Some(_) => Self { id, count, names: Some(rest), data },
            None => Self { id, count, names: None, data: rest },
        }
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no fields; no command makes such an entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The fields with their values, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (mut names, mut data) = (self.names, self.data);
        (0..self.count).map(move |_| {
            let name = match &mut names {
                Some(names) => take_string(names),
                None => take_string(&mut data),
            };
            (name, take_string(&mut data))
        })
    }
}

impl Entries {
    /// Whether these are the very entries that `other` are.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.tree.is_same(&other.tree)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Number of entries with a lower id.
    pub fn rank(&self, id: StreamId) -> usize {
        self.tree.rank(&self.place(id))
    }

    /// Number of entries up to an id.
    pub fn rank_behind(&self, id: StreamId) -> usize {
        id.next().map_or(self.len(), |next| self.rank(next))
    }

    /// The entry with this id.
    pub fn find(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        let (tag, item) = self.tree.cursor(&self.place(id)).item()?;
        (tag == id).then(|| self.read(tag, item))
    }

    /// Whether there is an entry with this id.
    pub fn contains(&self, id: StreamId) -> bool {
        self.find(id).is_some()
    }

    /// The id of the first entry.
    pub fn first_id(&self) -> Option<StreamId> {
        self.tree.nth(0).map(|(id, _)| id)
    }

    /// The id of the last entry.
    pub fn last_id(&self) -> Option<StreamId> {
        self.tree.nth(self.len().checked_sub(1)?).map(|(id, _)| id)
    }

    /// The entries from number `rank` on.
    pub fn iter_from(&self, rank: usize) -> impl Iterator<Item = StreamEntry<'_>> {
        self.tree.iter_from(rank).map(|(id, item)| self.read(id, item))
    }

    /// The entries before number `rank`, the last first.
    pub fn iter_back_from(&self, rank: usize) -> impl Iterator<Item = StreamEntry<'_>> {
        let rank = rank.min(self.len());
        let mut cursor: Option<Cursor<'_, ById>> =
            rank.checked_sub(1).map(|last| self.tree.cursor(&self.tree.seek_rank(last)));
        std::iter::from_fn(move || {
            let cursor = cursor.as_mut()?;
            let (id, item) = cursor.item()?;
            cursor.back();
            Some(self.read(id, item))
        })
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, |lists| 64 + lists.iter().map(|list| list.len() + 32).sum::<usize>());
        self.tree.memory_bytes() + names
    }

    pub(super) fn free_cost(&self) -> usize {
        self.tree.free_cost()
    }

    fn place(&self, id: StreamId) -> Position {
        self.tree.seek(|first, ()| first < id, |tag, _| tag < id)
    }

    fn read<'a>(&'a self, id: StreamId, item: &'a [u8]) -> StreamEntry<'a> {
        StreamEntry::read(id, item, self.names.as_ref().map_or(&[], |lists| lists))
    }

    /// Adds an entry behind all others.
    pub(super) fn push<'f>(&mut self, id: StreamId, fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone) {
        let size: usize = fields.clone().map(|(name, value)| name.len() + value.len() + 4).sum();
        let mut item = Vec::with_capacity(size + 8);
        match self.list_of(fields.clone().map(|(name, _)| name)) {
            Some(list) => {
                push_number(&mut item, list + 1);
                fields.for_each(|(_, value)| push_string(&mut item, value));
            }
            None => {
                item.push(0);
                push_number(&mut item, fields.clone().count());
                for (name, value) in fields {
                    push_string(&mut item, name);
                    push_string(&mut item, value);
                }
            }
        }
        self.tree.push(id, &item);
    }

    /// The number of the list of these names, which is made if the last entry has the same.
    fn list_of<'f>(&mut self, names: impl Iterator<Item = &'f [u8]> + Clone) -> Option<usize> {
        let lists = self.names.as_ref().map_or(&[][..], |lists| lists);
        let same = |list: &[u8]| {
            let mut list = list;
            let count = take_number(&mut list);
            let mut left = count;
            names.clone().all(|name| {
                let more = left > 0;
                left = left.saturating_sub(1);
                more && take_string(&mut list) == name
            }) && left == 0
        };
        if let Some(found) = lists.iter().position(|list| same(list)) {
            return Some(found);
        }
        if lists.len() >= LISTS_MAX {
            return None;
        }
        let last = self.tree.nth(self.len().checked_sub(1)?).map(|(id, item)| self.read(id, item))?;
        if last.names.is_some() || !last.fields().map(|(name, _)| name).eq(names.clone()) {
            return None;
        }
        let mut list = Vec::new();
        push_number(&mut list, last.count);
        names.for_each(|name| push_string(&mut list, name));
        if list.len() > LIST_BYTES_MAX {
            return None;
        }
        let lists = Arc::make_mut(self.names.get_or_insert_default());
        lists.push(list.into());
        Some(lists.len() - 1)
    }

    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let place = self.place(id);
        let found = self.tree.cursor(&place).item().is_some_and(|(tag, _)| tag == id);
        if found {
            self.tree.remove(&place);
            self.forget_names();
        }
        found
    }

    pub(super) fn remove_oldest(&mut self, count: usize) -> Removed<ById> {
        let removed = self.tree.remove_range(0..count);
        self.forget_names();
        removed
    }

    fn forget_names(&mut self) {
        if self.is_empty() {
            self.names = None;
        }
    }
}

fn push_number(to: &mut Vec<u8>, number: usize) {
    let mut rest = number;
    loop {
        let low = u8::try_from(rest & 0x7F).expect("7 bits");
        rest >>= 7;
        to.push(if rest > 0 { low | 0x80 } else { low });
        if rest == 0 {
            return;
        }
    }
}

fn push_string(to: &mut Vec<u8>, bytes: &[u8]) {
    push_number(to, bytes.len());
    to.extend_from_slice(bytes);
}

#[inline]
fn take_number(from: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, rest) = from.split_first().expect("an item is whole");
        *from = rest;
        number |= usize::from(first & 0x7F) << shift;
        shift += 7;
        if *first < 0x80 {
            return number;
        }
    }
}

#[inline]
fn take_string<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let len = take_number(from);
    let (string, rest) = from.split_at(len);
    *from = rest;
    string
}
