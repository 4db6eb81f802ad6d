//! A group of consumers: what it has read, and what of that is not acknowledged.
//!
//! Pending entries are a tree by id, whose items are `consumer u32 | delivered i64 | deliveries u64`; each consumer has a tree of the
//! ids alone, so that its history and its end cost what it has pending, not what the group has. Consumers are known
//! by a number within, so that an item is small whatever their names.
//!
//! Invariant: an id is among the pending entries exactly if it is in the tree of the one consumer that its item names.

use std::collections::BTreeMap;

use super::super::tree::{Position, Tree};
use super::{ById, StreamId};

/// A group of consumers.
#[derive(Clone, Debug)]
pub struct Group {
    /// The id delivered last.
    pub last_id: StreamId,
    /// How many entries it has read, where that is known.
    pub entries_read: Option<u64>,
    pending: Tree<ById>,
    /// No pending entry was delivered before this, in ms.
    since_ms: i64,
    by_name: BTreeMap<Box<[u8]>, u32>,
    consumers: BTreeMap<u32, Consumer>,
    /// Bytes of all consumers.
    consumers_bytes: usize,
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    /// When it last tried to read or claim, in ms.
    pub seen_ms: i64,
    /// When it last got something, in ms; -1 if never.
    pub active_ms: i64,
    pending: Tree<ById>,
}

/// A pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its id; the entry itself may be gone.
    pub id: StreamId,
    /// Number of the consumer who has it.
    consumer: u32,
    /// When it was delivered last, in ms.
    pub delivered_ms: i64,
    /// How often.
    pub deliveries: u64,
}

/// Bytes of a pending entry's item.
const ITEM: usize = 20;

/// Of a consumer beside its name, twice, and its tree: shares of the nodes of two maps.
const CONSUMER_OVERHEAD: usize = size_of::<Consumer>() + 64;

impl Pending {
    fn read(id: StreamId, item: &[u8]) -> Self {
        let (consumer, rest) = item.split_first_chunk().expect("an item has ITEM bytes");
        let (delivered, rest) = rest.split_first_chunk().expect("an item has ITEM bytes");
        let deliveries = rest.try_into().expect("an item has ITEM bytes");
        Self {
            id,
            consumer: u32::from_le_bytes(*consumer),
            delivered_ms: i64::from_le_bytes(*delivered),
            deliveries: u64::from_le_bytes(deliveries),
        }
    }

    fn item(&self) -> [u8; ITEM] {
        let mut item = [0; ITEM];
        item[..4].copy_from_slice(&self.consumer.to_le_bytes());
        item[4..12].copy_from_slice(&self.delivered_ms.to_le_bytes());
        item[12..].copy_from_slice(&self.deliveries.to_le_bytes());
        item
    }
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// How many entries it has pending.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    fn bytes(&self) -> usize {
        CONSUMER_OVERHEAD + 2 * self.name.len() + self.pending.memory_bytes()
    }
}

impl Group {
    /// A group that has read up to an id.
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self {
            last_id,
            entries_read,
            pending: Tree::default(),
            since_ms: i64::MAX,
            by_name: BTreeMap::new(),
            consumers: BTreeMap::new(),
            consumers_bytes: 0,
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.pending.memory_bytes() + self.consumers_bytes
    }

    /// About how many allocations dropping it frees.
    pub fn free_cost(&self) -> usize {
        let consumers = self.consumers.values().map(|consumer| 2 + consumer.pending.free_cost());
        1 + self.pending.free_cost() + consumers.sum::<usize>()
    }

    /// Number of pending entries.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// No pending entry that exists was delivered before this, in ms. The earliest may have been later.
    pub fn pending_since_ms(&self) -> i64 {
        self.since_ms
    }

    /// The pending entries were looked at: none that exists was delivered before this.
    pub fn note_pending_since(&mut self, since_ms: i64) {
        self.since_ms = since_ms;
    }

    /// The pending entry of this id.
    pub fn pending(&self, id: StreamId) -> Option<Pending> {
        let (tag, item) = self.pending.cursor(&place(&self.pending, id)).item()?;
        (tag == id).then(|| Pending::read(id, item))
    }

    /// The pending entries from an id on.
    pub fn pending_from(&self, id: StreamId) -> impl Iterator<Item = Pending> {
        self.pending.iter_at(&place(&self.pending, id)).map(|(id, item)| Pending::read(id, item))
    }

    /// The pending entry with the greatest id.
    pub fn last_pending(&self) -> Option<Pending> {
        self.pending.nth(self.pending.len().checked_sub(1)?).map(|(id, item)| Pending::read(id, item))
    }

    /// The pending entries of a consumer from an id on.
    pub fn pending_of(&self, consumer: &Consumer, id: StreamId) -> impl Iterator<Item = Pending> {
        let ids = consumer.pending.iter_at(&place(&consumer.pending, id));
        ids.map(|(id, _)| self.pending(id).expect("a consumer's ids are pending in its group"))
    }

    /// Number of consumers.
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.by_name.values().map(|number| &self.consumers[number])
    }

    /// The consumer of this name.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.by_name.get(name).map(|number| &self.consumers[number])
    }

    /// Who has a pending entry.
    pub fn owner(&self, pending: &Pending) -> &Consumer {
        &self.consumers[&pending.consumer]
    }

    /// Makes a consumer; false if there is one of this name.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: i64) -> bool {
        if self.by_name.contains_key(name) {
            return false;
        }
        // Numbers of consumers that are gone are given again once all have been given.
        let above = self.consumers.last_key_value().map_or(Some(0), |(last, _)| last.checked_add(1));
        let free = || (0..=u32::MAX).find(|number| !self.consumers.contains_key(number));
        let number = above.or_else(free).expect("memory ends before the numbers do");
        let consumer = Consumer { name: name.into(), seen_ms: now_ms, active_ms: -1, pending: Tree::default() };
        self.consumers_bytes += consumer.bytes();
        self.by_name.insert(name.into(), number);
        self.consumers.insert(number, consumer);
        true
    }

    /// Removes a consumer and what it has pending; answers how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.by_name.remove(name)?;
        let consumer = self.consumers.remove(&number)?;
        for (id, _) in consumer.pending.iter() {
            self.pending.remove(&place(&self.pending, id));
        }
        self.consumers_bytes -= consumer.bytes();
        Some(consumer.pending.len())
    }

    /// Notes when a consumer was seen, and, if `active`, that it got something. It is made if it is missing; true if so.
    pub fn see(&mut self, name: &[u8], active: bool, now_ms: i64) -> bool {
        let created = self.create_consumer(name, now_ms);
        let number = self.by_name[name];
        let consumer = self.consumers.get_mut(&number).expect("a name has its consumer");
        consumer.seen_ms = now_ms;
        if active {
            consumer.active_ms = now_ms;
        }
        created
    }

    /// Sets a consumer's times.
    pub fn set_times(&mut self, name: &[u8], seen_ms: i64, active_ms: i64) {
        if let Some(number) = self.by_name.get(name)
            && let Some(consumer) = self.consumers.get_mut(number)
        {
            (consumer.seen_ms, consumer.active_ms) = (seen_ms, active_ms);
        }
    }

    /// Delivers an entry for the first time: it is the consumer's from now on, whoever had it.
    pub(super) fn deliver(&mut self, id: StreamId, consumer: &[u8], now_ms: i64) {
        self.put(id, consumer, now_ms, 1);
    }

    /// Makes an entry pending for a consumer, which exists, whoever had it before.
    pub fn put(&mut self, id: StreamId, consumer: &[u8], delivered_ms: i64, deliveries: u64) {
        let Some(&number) = self.by_name.get(consumer) else { return };
        let pending = Pending { id, consumer: number, delivered_ms, deliveries };
        self.since_ms = self.since_ms.min(delivered_ms);
        let at = place(&self.pending, id);
        let before =
            self.pending.cursor(&at).item().filter(|(tag, _)| *tag == id).map(|(_, item)| Pending::read(id, item));
        match before {
            None => self.pending.insert(&at, id, &pending.item()),
            Some(_) => self.pending.replace(&at, id, &pending.item()),
        }
        match before {
            Some(before) if before.consumer == number => return,
            Some(before) => self.edit_ids(before.consumer, |ids| ids.remove(&place(ids, id))),
            None => {}
        }
        self.edit_ids(number, |ids| ids.insert(&place(ids, id), id, &[]));
    }

    /// Takes an entry out of the pending ones; true if it was there.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending(id) else { return false };
        self.pending.remove(&place(&self.pending, id));
        self.edit_ids(pending.consumer, |ids| ids.remove(&place(ids, id)));
        true
    }

    fn edit_ids(&mut self, number: u32, change: impl FnOnce(&mut Tree<ById>)) {
        let consumer = self.consumers.get_mut(&number).expect("who has pending entries is a consumer");
        let before = consumer.pending.memory_bytes();
        change(&mut consumer.pending);
        self.consumers_bytes = self.consumers_bytes + consumer.pending.memory_bytes() - before;
    }
}

fn place(tree: &Tree<ById>, id: StreamId) -> Position {
    tree.seek(|first, ()| first < id, |tag, _| tag < id)
}
