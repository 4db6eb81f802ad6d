//! A stream: entries in the order of their ids, and the groups of consumers that read them.
//!
//! Entries are a counted tree by id ([`Entries`]), groups a shared map ([`Group`]); a clone shares both, so that a snapshot, COPY or a
//! reply that is written in slices costs the same at any size. The last id, the greatest deleted id and the count of entries
//! ever added outlive the entries, as in Redis: they decide what a group has left to read.
//!
//! Dropped: Redis's nodes of a hundred entries with deleted ones marked in them. Where its behaviour shows them (trimming with `~`),
//! nodes are counted from the first entry ever added ([`Stream::trim`]).

mod entries;
mod group;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tree::{Order, Removed};

pub use entries::{Entries, StreamEntry};
pub use group::{Consumer, Group, Pending};

/// An entry's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The least id; no entry has it.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The next id; none behind the greatest.
    pub fn next(self) -> Option<StreamId> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(StreamId { seq, ..self }),
            (None, Some(ms)) => Some(StreamId { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    /// The id before; none before the least.
    pub fn before(self) -> Option<StreamId> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(StreamId { seq, ..self }),
            (None, Some(ms)) => Some(StreamId { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }
}

/// Order by id.
#[derive(Clone, Copy, Debug)]
pub struct ById;

impl Order for ById {
    type Tag = StreamId;
    type Rest = ();

    fn rest(_: &[u8]) {}
}

/// Up to where a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// So many entries.
    Newest(u64),
    /// Those from this id on.
    From(StreamId),
}

/// What becomes of the places where groups have a removed entry pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// They stay.
    #[default]
    Keep,
    /// They go with the entry.
    Delete,
    /// An entry that a group has pending, or has yet to read, is not removed.
    Acked,
}

/// How exactly a stream is trimmed.
#[derive(Clone, Copy, Debug)]
pub enum Exactness {
    /// To the entry.
    Exact,
    /// Whole nodes of so many entries, and no more entries than `limit` (0: any number).
    Nodes {
        /// Entries in a node.
        size: usize,
        /// Most entries that are removed.
        limit: usize,
    },
}

/// Groups by name.
type Groups = BTreeMap<Box<[u8]>, Arc<Group>>;

/// A stream. It is a tree at any size.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    entries: Entries,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: Option<Arc<Groups>>,
    /// Bytes of all groups, names included.
    groups_bytes: usize,
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

    /// Whether this is the very value that `other` is: one of them is a clone of the other, and neither was changed since.
    pub fn is_same(&self, other: &Stream) -> bool {
        let numbers = |stream: &Stream| (stream.last_id, stream.max_deleted_id, stream.entries_added);
        let groups = match (&self.groups, &other.groups) {
            (Some(groups), Some(other)) => Arc::ptr_eq(groups, other),
            (None, None) => true,
            _ => false,
        };
        groups && numbers(self) == numbers(other) && self.entries.is_same(&other.entries)
    }

    /// The entries. A clone shares them.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The greatest id that was ever given.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The id of the first entry; 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.entries.first_id().unwrap_or_default()
    }

    /// The greatest id that was deleted.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// Entries that were ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// Sets the last id, which is not below that of any entry.
    pub fn set_last_id(&mut self, id: StreamId) {
        debug_assert!(self.entries.last_id().is_none_or(|last| last <= id));
        self.last_id = id;
    }

    /// Sets the greatest deleted id.
    pub fn set_max_deleted_id(&mut self, id: StreamId) {
        self.max_deleted_id = id;
    }

    /// Sets the count of entries ever added.
    pub fn set_entries_added(&mut self, entries: u64) {
        self.entries_added = entries;
    }

    /// The id of an entry that is added at `now_ms`; none if the greatest was given.
    pub fn next_id(&self, now_ms: u64) -> Option<StreamId> {
        if now_ms > self.last_id.ms { Some(StreamId { ms: now_ms, seq: 0 }) } else { self.last_id.next() }
    }

    /// Adds an entry, whose id is above the last.
    pub fn append<'f>(&mut self, id: StreamId, fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone) {
        debug_assert!(id > self.last_id);
        self.entries.push(id, fields);
        self.last_id = id;
        self.entries_added = self.entries_added.saturating_add(1);
    }

    /// Removes an entry; true if there was one.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let deleted = self.entries.remove(id);
        if deleted {
            self.max_deleted_id = self.max_deleted_id.max(id);
        }
        deleted
    }

    /// Removes the oldest entries; answers how many, and what is to be dropped where that does no harm.
    ///
    /// Nodes begin at every `size`-th entry ever added. Entries deleted in between make a node end later than Redis's would.
    pub fn trim(&mut self, keep: Keep, exactness: Exactness) -> (usize, Removed<ById>) {
        let count = self.surplus(keep, exactness);
        (count, self.entries.remove_oldest(count))
    }

    /// As [`Stream::trim`], with an eye to where entries are pending; answers how many were removed.
    pub fn trim_referenced(&mut self, keep: Keep, exactness: Exactness, references: References) -> usize {
        match references {
            References::Keep => self.trim(keep, exactness).0,
            References::Delete => {
                let count = self.surplus(keep, exactness);
                self.forget_oldest(count);
                self.entries.remove_oldest(count);
                count
            }
            References::Acked => self.trim_acked(keep, exactness),
        }
    }

    /// Takes the oldest entries out of all groups' pending ones.
    fn forget_oldest(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1).and_then(|rank| self.entries.iter_from(rank).next()) else { return };
        let last = last.id;
        let entries = self.entries.clone();
        let names: Vec<Box<[u8]>> = self.groups().map(|(name, _)| name.into()).collect();
        for name in names {
            self.edit_group(&name, |group| {
                let concerned = group.pending_from(StreamId::MIN).map(|one| one.id).take_while(|id| *id <= last);
                let ids: Vec<StreamId> = concerned.filter(|id| entries.contains(*id)).collect();
                ids.into_iter().for_each(|id| _ = group.acknowledge(id));
            });
        }
    }

    fn trim_acked(&mut self, keep: Keep, exactness: Exactness) -> usize {
        // What some group has yet to read is referenced: no need to look behind the slowest.
        let Some(read) = self.groups().map(|(_, group)| group.last_id).min() else {
            return self.trim(keep, exactness).0;
        };
        let surplus = self.surplus(keep, exactness);
        // By nodes only these are looked at; to the entry, younger ones make up for those that stay.
        let looked_at = match (exactness, keep) {
            (Exactness::Exact, Keep::Newest(_)) => self.len(),
            _ => surplus,
        };
        let candidates = self.entries.iter_from(0).take(looked_at).map(|entry| entry.id).take_while(|id| *id <= read);
        let free = candidates.filter(|id| !self.groups().any(|(_, group)| group.pending(*id).is_some()));
        let ids: Vec<StreamId> = free.take(surplus).collect();
        ids.iter().for_each(|id| _ = self.entries.remove(*id));
        ids.len()
    }

    /// How many of the oldest entries are to go.
    fn surplus(&self, keep: Keep, exactness: Exactness) -> usize {
        let len = self.len();
        let surplus = match keep {
            Keep::Newest(most) => len.saturating_sub(usize::try_from(most).unwrap_or(usize::MAX)),
            Keep::From(id) => self.entries.rank(id),
        };
        match exactness {
            Exactness::Exact => surplus,
            Exactness::Nodes { size, limit } => {
                let surplus = if limit == 0 { surplus } else { surplus.min(limit) };
                let gone = usize::try_from(self.entries_added).map_or(0, |added| added.saturating_sub(len) % size);
                match surplus {
                    // The last node ends where the entries do.
                    _ if surplus == len => len,
                    _ if surplus + gone < size => 0,
                    _ => surplus - (surplus + gone) % size,
                }
            }
        }
    }

    /// Removes an entry with an eye to where it is pending; `None` if there is no such entry, false if it is referenced and stays.
    pub fn delete_referenced(&mut self, id: StreamId, references: References) -> Option<bool> {
        if !self.entries.contains(id) {
            return None;
        }
        match references {
            References::Keep => {}
            References::Delete => self.forget_pending(id),
            References::Acked if self.is_referenced(id) => return Some(false),
            References::Acked => {}
        }
        Some(self.delete(id))
    }

    /// Whether an entry at or above `from` was deleted while older ones are left.
    fn has_tombstones_from(&self, from: StreamId) -> bool {
        let deleted = self.max_deleted_id;
        !self.is_empty() && deleted != StreamId::MIN && self.first_id() <= deleted && from <= deleted
    }

    /// How many entries were ever added up to an id, where that is known.
    pub fn distance_to(&self, id: StreamId) -> Option<u64> {
        let (len, first, deleted) = (self.len() as u64, self.first_id(), self.max_deleted_id);
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.is_empty() && id <= self.last_id || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id || deleted != StreamId::MIN && deleted >= first {
            return None;
        }
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(self.entries_added.saturating_sub(len)),
            std::cmp::Ordering::Equal => Some(self.entries_added.saturating_sub(len).saturating_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// How many entries a group has left to read, where that is known; negative if it claims to have read more than there were.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = match group.entries_read {
            Some(read) if !self.has_tombstones_from(group.last_id) => Some(read),
            _ => self.distance_to(group.last_id),
        };
        read.map(|read| self.entries_added.wrapping_sub(read).cast_signed())
    }

    /// What a group has read when `id`, above its last, is delivered to it.
    fn read_up_to(&self, group: &Group, id: StreamId) -> Option<u64> {
        match group.entries_read {
            Some(read) if !self.has_tombstones_from(id) => Some(read.saturating_add(1)),
            read if self.entries_added == 0 => read,
            _ => self.distance_to(id),
        }
    }

    /// Delivers entries of these ranks to a consumer of a group: they become pending, unless `pending` is false, and the group
    /// has read them. True if its last id changed.
    pub fn deliver(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        ranks: std::ops::Range<usize>,
        pending: bool,
        now_ms: i64,
    ) -> bool {
        let entries = self.entries.clone();
        let Some(mut shared) = self.groups.as_ref().and_then(|groups| groups.get(group)).map(Arc::clone) else {
            return false;
        };
        // Taken out while the stream is asked about it, so that it is not copied.
        self.replace_group(group, None);
        let changed = Arc::make_mut(&mut shared);
        let mut advanced = false;
        for entry in entries.iter_from(ranks.start).take(ranks.len()) {
            if entry.id > changed.last_id {
                changed.entries_read = self.read_up_to(changed, entry.id);
                changed.last_id = entry.id;
                advanced = true;
            }
            if pending {
                changed.deliver(entry.id, consumer, now_ms);
            }
        }
        self.replace_group(group, Some(shared));
        advanced
    }

    /// Number of groups.
    pub fn groups_len(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.len())
    }

    /// The groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        self.groups.iter().flat_map(|groups| groups.iter()).map(|(name, group)| (&**name, &**group))
    }

    /// The group of this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.as_ref()?.get(name).map(|group| &**group)
    }

    /// Makes a group; false if there is one of this name.
    pub fn create_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.group(name).is_some() {
            return false;
        }
        self.replace_group(name, Some(Arc::new(group)));
        true
    }

    /// Removes a group, and answers it to be dropped where that does no harm.
    pub fn destroy_group(&mut self, name: &[u8]) -> Option<Arc<Group>> {
        self.replace_group(name, None)
    }

    /// Changes a group; `None` if there is none of this name.
    pub fn edit_group<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let group = Arc::make_mut(Arc::make_mut(self.groups.as_mut()?).get_mut(name)?);
        let before = group.memory_bytes();
        let result = change(group);
        self.groups_bytes = self.groups_bytes + group.memory_bytes() - before;
        Some(result)
    }

    fn replace_group(&mut self, name: &[u8], group: Option<Arc<Group>>) -> Option<Arc<Group>> {
        let bytes = |group: &Arc<Group>| group.memory_bytes() + name.len() + GROUP_OVERHEAD;
        self.groups_bytes += group.as_ref().map_or(0, bytes);
        let groups = Arc::make_mut(self.groups.get_or_insert_default());
        let old = match group {
            Some(group) => groups.insert(name.into(), group),
            None => groups.remove(name),
        };
        if groups.is_empty() {
            self.groups = None;
        }
        self.groups_bytes -= old.as_ref().map_or(0, bytes);
        old
    }

    /// Whether a group has the entry pending, or has yet to read it.
    pub fn is_referenced(&self, id: StreamId) -> bool {
        self.groups().any(|(_, group)| group.last_id < id || group.pending(id).is_some())
    }

    /// Takes an entry out of all groups' pending entries.
    pub fn forget_pending(&mut self, id: StreamId) {
        let concerned = self.groups().filter(|(_, group)| group.pending(id).is_some());
        let names: Vec<Box<[u8]>> = concerned.map(|(name, _)| name.into()).collect();
        for name in names {
            self.edit_group(&name, |group| group.acknowledge(id));
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.memory_bytes() + self.groups_bytes
    }

    /// About how many allocations dropping it frees.
    pub fn free_cost(&self) -> usize {
        self.entries.free_cost() + self.groups().map(|(_, group)| group.free_cost()).sum::<usize>()
    }
}

/// Of a group's place among the others: its name's and its `Arc`'s allocation, and a share of a node.
const GROUP_OVERHEAD: usize = 64;

#[cfg(test)]
mod tests;
