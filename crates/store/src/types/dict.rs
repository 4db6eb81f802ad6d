//! A tree of items found by a key of their own: hashes, sets, and the members of sorted sets.
//!
//! Items lie in the order of 32 bits of their keys' hash. A cursor of SCAN is such a hash: every item that stays is visited exactly
//! once, whatever is added or removed meanwhile, as nothing ever moves past it. Items of one hash may lie on two pages; a search
//! begins at the first of them and walks.
//!
//! Hashes are keyed by a secret of the process, so that no client can aim at one page.

use std::marker::PhantomData;
use std::sync::LazyLock;

use super::ahead::TOGETHER;
use super::page::{Page, lower_bound_evenly};
use super::tree::{Cursor, Order, Position, Tree};
use crate::hash::siphash13;

/// Says where in an item its key is.
pub trait Keyed {
    /// The key of an item.
    fn key(item: &[u8]) -> &[u8];
}

/// Order by hash.
pub struct ByHash;

impl Order for ByHash {
    type Tag = u32;
    type Rest = ();

    fn rest(_: &[u8]) {}
}

/// Items with distinct keys.
pub struct Dict<K> {
    tree: Tree<ByHash>,
    keyed: PhantomData<K>,
}

impl<K> Clone for Dict<K> {
    fn clone(&self) -> Self {
        Self { tree: self.tree.clone(), keyed: PhantomData }
    }
}

impl<K> std::fmt::Debug for Dict<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.tree.fmt(f)
    }
}

impl<K> Default for Dict<K> {
    fn default() -> Self {
        Self { tree: Tree::default(), keyed: PhantomData }
    }
}

/// The part of a key's hash that items are ordered by.
#[inline]
pub fn tag_of(key: &[u8]) -> u32 {
    static SEED: LazyLock<(u64, u64)> = LazyLock::new(|| {
        use std::hash::{BuildHasher, RandomState};
        let random = RandomState::new();
        (random.hash_one(0), random.hash_one(1))
    });
    // The upper half of 64 bits.
    (siphash13(*SEED, key) >> 32) as u32
}

/// An item whose bytes were requested from memory.
#[derive(Clone, Copy)]
pub(super) struct Requested<'d> {
    page: &'d Page<u32>,
    index: usize,
}

impl<'d> Requested<'d> {
    /// Its bytes, which one now waits for.
    pub(super) fn item(self) -> &'d [u8] {
        self.page.item(self.index)
    }
}

/// Where the item with some key is or would be; good until the next change.
#[derive(Clone, Debug)]
pub struct Place {
    tag: u32,
    at: Result<Position, Position>,
}

impl Place {
    /// The hash of the key.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Whether an item is there.
    pub fn is_taken(&self) -> bool {
        self.at.is_ok()
    }
}

impl<K: Keyed> Dict<K> {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.tree.memory_bytes()
    }

    /// About how many allocations dropping it frees.
    pub fn free_cost(&self) -> usize {
        self.tree.free_cost()
    }

    /// The item with this key.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&[u8]> {
        self.locate(tag_of(key), key).ok().map(|(_, item)| item)
    }

    /// The item with this key and its place, which is within its page, or the place where it would be inserted.
    #[inline]
    fn locate(&self, tag: u32, key: &[u8]) -> Result<(Position, &[u8]), Position> {
        let place = self.seek(tag);
        // Nearly always the item is the first of its hash, and on this page.
        match self.tree.here(&place) {
            Some((at, item)) if at == tag && K::key(item) == key => return Ok((place, item)),
            Some((at, _)) if at != tag => return Err(place),
            _ => {}
        }
        let mut cursor = self.tree.cursor(&place);
        let mut ahead = 0;
        while let Some((at, item)) = cursor.item()
            && at == tag
        {
            if K::key(item) == key {
                return Ok((self.tree.seek_rank(self.tree.rank(&place) + ahead), item));
            }
            ahead += 1;
            cursor.next();
        }
        Err(place)
    }

    /// Requests from memory what looking for these keys, or removing them, is going to read, for all of them at once. Returns where an
    /// item was found that is probably the key's.
    pub(super) fn request(&self, keys: &[&[u8]], removes: bool) -> [Option<Requested<'_>>; TOGETHER] {
        let mut tags = [0; TOGETHER];
        tags.iter_mut().zip(keys).for_each(|(tag, key)| *tag = tag_of(key));
        // On the page that begins with this hash, where a search comes by way of the page before, which may end with it.
        let child = |tag: u32, tags: &[u32], _: &[()]| child_with(tags, tag.saturating_add(1));
        let pages = self.tree.request_pages(&tags[..keys.len().min(TOGETHER)], child);
        let mut found = [None; TOGETHER];
        for ((found, page), tag) in found.iter_mut().zip(pages).zip(tags) {
            *found = page.map(|page| (tag, page));
        }
        found.iter().flatten().for_each(|(_, page)| page.request_ends());
        found.iter().flatten().for_each(|(tag, page)| page.request_guess(*tag));
        found.map(|found| {
            let (tag, page) = found?;
            let index = page.lower_bound_evenly(tag);
            page.request_item(index);
            if removes {
                page.request_behind(index);
            }
            (page.tags().get(index) == Some(&tag)).then_some(Requested { page, index })
        })
    }

    fn seek(&self, tag: u32) -> Position {
        self.tree.seek_by(|tags, _| child_with(tags, tag), |page| page.lower_bound_evenly(tag))
    }

    /// Where the item with this key is, or would be: for an edit that looks first.
    pub fn place(&self, key: &[u8]) -> Place {
        let tag = tag_of(key);
        Place { tag, at: self.locate(tag, key).map(|(position, _)| position) }
    }

    /// The item at a place.
    pub fn at(&self, place: &Place) -> Option<&[u8]> {
        self.tree.here(place.at.as_ref().ok()?).map(|(_, item)| item)
    }

    /// Inserts an item at its key's place, or replaces the one there; true if it is new.
    pub fn put_at(&mut self, place: &Place, item: &[u8]) -> bool {
        match &place.at {
            Ok(position) => self.tree.replace_here(position, place.tag, item),
            Err(position) => self.tree.insert(position, place.tag, item),
        }
        place.at.is_err()
    }

    /// Removes the item at a place; true if there is one.
    pub fn remove_at(&mut self, place: &Place) -> bool {
        if let Ok(position) = &place.at {
            self.tree.remove_here(position);
        }
        place.at.is_ok()
    }

    /// Inserts an item, or replaces the one with its key; true if it is new.
    pub fn put(&mut self, item: &[u8]) -> bool {
        self.put_at(&self.place(K::key(item)), item)
    }

    /// Inserts an item unless its key is there; true if it was not.
    pub fn add(&mut self, item: &[u8]) -> bool {
        let place = self.place(K::key(item));
        let new = place.at.is_err();
        if new {
            self.put_at(&place, item);
        }
        new
    }

    /// Removes the item with this key; true if it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.remove_at(&self.place(key))
    }

    /// Adds an item whose key comes behind all others and has this hash.
    pub fn push(&mut self, tag: u32, item: &[u8]) {
        self.tree.push(tag, item);
    }

    /// Whether this is the very tree that `other` is: one is a clone of the other, and neither was changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        self.tree.is_same(&other.tree)
    }

    /// A walk over the items from this hash on.
    pub fn walk(&self, from: u32) -> Walk<'_, K> {
        Walk { dict: self, cursor: self.tree.cursor(&self.seek(from)) }
    }

    /// The items whose keys have this hash.
    pub fn with_tag(&self, tag: u32) -> impl Iterator<Item = &[u8]> + use<'_, K> {
        let all = self.tree.iter_at(&self.seek(tag));
        all.take_while(move |(at, _)| *at == tag).map(|(_, item)| item)
    }

    /// Removes the item with so many before it.
    pub fn remove_nth(&mut self, rank: usize) {
        self.tree.remove_here(&self.tree.seek_rank(rank));
    }

    /// The item with so many before it: by a random number, a random item.
    pub fn nth(&self, rank: usize) -> Option<&[u8]> {
        self.tree.nth(rank).map(|(_, item)| item)
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + use<'_, K> {
        self.tree.iter().map(|(_, item)| item)
    }

    /// The items from a rank on.
    pub fn iter_from(&self, rank: usize) -> impl Iterator<Item = &[u8]> + use<'_, K> {
        self.tree.iter_from(rank).map(|(_, item)| item)
    }

    /// Visits items from a cursor on, at least `count` if there are as many, and all that share the last one's hash. Returns the
    /// cursor to go on from: 0 when all were visited.
    pub fn scan<'d>(&'d self, cursor: u64, count: usize, mut visit: impl FnMut(&'d [u8])) -> u64 {
        let Ok(from) = u32::try_from(cursor) else { return 0 };
        let place = self.seek(from);
        let mut last = None;
        for (visited, (tag, item)) in self.tree.iter_at(&place).enumerate() {
            if visited >= count && last != Some(tag) {
                // Above 0, as another hash came before it.
                return u64::from(tag);
            }
            visit(item);
            last = Some(tag);
        }
        0
    }
}

/// The last of a node's children whose first tag is below this one, or child 0: nodes split hashes evenly too.
#[inline]
fn child_with(tags: &[u32], tag: u32) -> usize {
    lower_bound_evenly(tags, tag, |_| {}).saturating_sub(1)
}

/// A walk over a dict in the order of hashes.
pub struct Walk<'d, K> {
    dict: &'d Dict<K>,
    cursor: Cursor<'d, ByHash>,
}

impl<'d, K: Keyed> Walk<'d, K> {
    /// The item it stands on, with its key's hash.
    #[inline]
    pub fn item(&self) -> Option<(u32, &'d [u8])> {
        self.cursor.item()
    }

    /// Goes on to the next item.
    #[inline]
    pub fn next(&mut self) {
        self.cursor.next();
    }

    /// Whether there is an item with this key and hash. The walk goes on to that hash, which must not be before that of the call
    /// before.
    #[inline]
    pub fn find(&mut self, tag: u32, key: &[u8]) -> bool {
        if !self.cursor.skip(|at| at < tag) {
            self.cursor = self.dict.tree.cursor(&self.dict.seek(tag));
        }
        let Some((at, item)) = self.cursor.item() else { return false };
        if at != tag {
            return false;
        }
        if K::key(item) == key {
            return true;
        }
        // Another key of the same hash: one of the next ones may be it. The walk stays, for the next key of this hash.
        let mut ahead = self.cursor.clone();
        ahead.next();
        while let Some((at, item)) = ahead.item()
            && at == tag
        {
            if K::key(item) == key {
                return true;
            }
            ahead.next();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    struct Whole;

    impl Keyed for Whole {
        fn key(item: &[u8]) -> &[u8] {
            item
        }
    }

    #[test]
    fn puts_and_removals_agree_with_a_set() {
        let mut dict: Dict<Whole> = Dict::default();
        let mut model = BTreeSet::new();
        let mut random = 1_u64;
        for _ in 0..40_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = ((random >> 33) % 5000).to_string().into_bytes();
            if random >> 63 == 0 {
                assert_eq!(dict.put(&key), model.insert(key));
            } else {
                assert_eq!(dict.remove(&key), model.remove(&key));
            }
        }
        assert_eq!(dict.len(), model.len());
        for number in 0..5000 {
            let key = number.to_string().into_bytes();
            assert_eq!(dict.find(&key).is_some(), model.contains(&key));
        }
        assert_eq!(dict.iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>(), model);
    }

    /// What is there from the beginning of a scan to its end is visited once, while the rest comes and goes.
    #[test]
    fn a_scan_visits_what_stays_exactly_once() {
        let mut dict: Dict<Whole> = Dict::default();
        for number in 0..3000 {
            dict.put(format!("stays:{number}").as_bytes());
        }
        let (mut cursor, mut seen, mut round) = (0, Vec::new(), 0);
        loop {
            let mut batch = Vec::new();
            cursor = dict.scan(cursor, 10, |item| batch.push(item.to_vec()));
            seen.extend(batch.into_iter().filter(|item| item.starts_with(b"stays")));
            for number in 0..20 {
                dict.put(format!("comes:{round}:{number}").as_bytes());
                dict.remove(format!("comes:{}:{number}", round / 2).as_bytes());
            }
            round += 1;
            if cursor == 0 {
                break;
            }
        }
        seen.sort();
        let before = seen.len();
        seen.dedup();
        assert_eq!((before, seen.len()), (3000, 3000));
    }
}
