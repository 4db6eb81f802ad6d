//! A leaf of a large aggregate: up to about 4 KiB of items in order, each with a tag.
//!
//! ```text
//! tags   what the tree is searched by (a hash, a score, a stream id), beside each other: a search touches few lines
//! slots  where each item begins in `data`
//! data   items in the order they came: length (1 or 2 bytes) | bytes, or 0xFF | index of a large item
//! ```
//! Inserting moves tags and slots, never items. What a removed item leaves is reclaimed when half of `data` is dead. Items of more
//! than [`LARGE_MIN`] bytes are allocations of their own, shared when the page is copied.

use std::sync::Arc;

use super::packed::{item_size, push_len, read_len};
use crate::prefetch::{prefetch, prefetch_all};

/// Live bytes above which a page is split.
pub(super) const PAGE_MAX: usize = 4096;
/// Live bytes below which a page is merged with one beside it, if both then fill no more than three quarters.
pub(super) const PAGE_MIN: usize = 1024;
/// Items longer than this are not kept in the page.
const LARGE_MIN: usize = 1024;
/// First byte of the place of a large item; no length begins with it.
const LARGE_MARK: u8 = 0xFF;
/// Bytes of the place of a large item.
const LARGE_SIZE: usize = 3;
/// Counters of an `Arc`, and what an allocation is rounded up by.
const LARGE_OVERHEAD: usize = 32;
/// Of an item that may be longer so many bytes are requested: its key is mostly within them.
const SHORT_ITEM: usize = 64;
/// Dead bytes that are not worth a compaction.
const DEAD_MIN: usize = 256;

/// The page; see the module's description.
#[derive(Clone, Debug)]
pub struct Page<T> {
    tags: Vec<T>,
    slots: Vec<u16>,
    data: Vec<u8>,
    dead: usize,
    large: Option<Box<LargeItems>>,
}

/// Items that are allocations of their own. A removed one leaves a hole, an empty item, which the next one fills.
#[derive(Clone, Debug, Default)]
struct LargeItems {
    items: Vec<Arc<[u8]>>,
    holes: usize,
    bytes: usize,
}

/// An item that is read only if it is asked for: most searches end at the tags, which lie side by side.
#[derive(Debug)]
pub struct ItemAt<'p, T> {
    page: &'p Page<T>,
    index: usize,
}

impl<'p, T: Copy> ItemAt<'p, T> {
    /// Its bytes.
    #[inline]
    pub fn bytes(self) -> &'p [u8] {
        self.page.item(self.index)
    }
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { tags: Vec::new(), slots: Vec::new(), data: Vec::new(), dead: 0, large: None }
    }
}

impl<T: Copy> Page<T> {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The tags, in order.
    #[inline]
    pub fn tags(&self) -> &[T] {
        &self.tags
    }

    /// The bytes of item `index`.
    #[inline]
    pub fn item(&self, index: usize) -> &[u8] {
        let at = usize::from(self.slots[index]);
        if self.data[at] == LARGE_MARK {
            return self.large_item(at);
        }
        let (begin, len) = read_len(&self.data, at);
        &self.data[begin..begin + len]
    }

    #[cold]
    fn large_item(&self, at: usize) -> &[u8] {
        let index = usize::from(u16::from_le_bytes([self.data[at + 1], self.data[at + 2]]));
        &self.large.as_ref().expect("a large item is marked").items[index]
    }

    /// The first index whose item is not before what is looked for.
    #[inline]
    pub fn lower_bound(&self, before: impl Fn(T, ItemAt<'_, T>) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let item = ItemAt { page: self, index: middle };
            if before(self.tags[middle], item) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Live bytes, by which pages are split and merged.
    #[inline]
    pub fn weight(&self) -> usize {
        self.data.len() - self.dead + self.slots.len() * (2 + size_of::<T>())
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let large = self.large.as_ref().map_or(0, |all| all.bytes + all.items.capacity() * 16);
        size_of::<Self>()
            + 16
            + self.data.capacity()
            + self.slots.capacity() * 2
            + self.tags.capacity() * size_of::<T>()
            + large
    }

    /// Inserts an item before item `index`.
    pub fn insert(&mut self, index: usize, tag: T, bytes: &[u8]) {
        if self.dead > DEAD_MIN && self.data.len() + bytes.len() + 2 > self.data.capacity() {
            self.compact();
        }
        let at = self.push_data(bytes);
        reserve(&mut self.slots, 1);
        self.slots.insert(index, at);
        reserve(&mut self.tags, 1);
        self.tags.insert(index, tag);
    }

    /// Puts another item in the place of item `index`.
    pub fn replace(&mut self, index: usize, tag: T, bytes: &[u8]) {
        self.tags[index] = tag;
        let at = usize::from(self.slots[index]);
        if self.data[at] != LARGE_MARK {
            let (begin, len) = read_len(&self.data, at);
            if len == bytes.len() {
                self.data[begin..begin + len].copy_from_slice(bytes);
                return;
            }
        }
        self.kill(index);
        let at = self.push_data(bytes);
        self.slots[index] = at;
        self.compact_if_due();
    }

    /// Changes the tag of item `index`.
    pub fn set_tag(&mut self, index: usize, tag: T) {
        self.tags[index] = tag;
    }

    /// Removes item `index`.
    pub fn remove(&mut self, index: usize) {
        self.kill(index);
        self.slots.remove(index);
        self.tags.remove(index);
        self.compact_if_due();
    }

    /// Removes the items of a range.
    pub fn remove_range(&mut self, range: std::ops::Range<usize>) {
        for index in range.clone() {
            self.kill(index);
        }
        self.slots.drain(range.clone());
        self.tags.drain(range);
        self.compact_if_due();
    }

    /// Takes the items from `at` on into a page of their own.
    pub fn split_off(&mut self, at: usize) -> Self {
        let few = self.len() / 8;
        if at <= few || self.len() - at <= few {
            return self.split_few_off(at);
        }
        let upper = self.part(at..self.len());
        if at < self.len() {
            *self = self.part(0..at);
        }
        upper
    }

    /// As [`Page::split_off`] near an end, as it happens to pages that fill in order: the many stay where they are.
    fn split_few_off(&mut self, at: usize) -> Self {
        let (few, is_upper) = if at > self.len() / 2 { (at..self.len(), true) } else { (0..at, false) };
        let other = self.part(few.clone());
        self.remove_range(few);
        self.tags.shrink_to_fit();
        self.slots.shrink_to_fit();
        self.data.shrink_to_fit();
        if is_upper { other } else { std::mem::replace(self, other) }
    }

    /// Appends all items of another page.
    pub fn append(&mut self, other: &Self) {
        self.data.reserve_exact(other.data.len() - other.dead);
        self.slots.reserve_exact(other.len());
        self.tags.reserve_exact(other.len());
        for index in 0..other.len() {
            let at = self.push_copy(other, index);
            self.slots.push(at);
            self.tags.push(other.tags[index]);
        }
    }

    /// The index at which a full page is best split after an insertion at `inserted`: behind or before it if items come in order,
    /// so that pages stay full, else in the middle by weight.
    pub fn split_point(&self, inserted: usize) -> usize {
        if inserted + 1 == self.len() {
            return inserted;
        }
        if inserted == 0 {
            return 1;
        }
        let mut left = 0;
        for index in 0..self.len() {
            left += self.place_size(usize::from(self.slots[index])) + 2 + size_of::<T>();
            if left * 2 >= self.weight() {
                return (index + 1).min(self.len() - 1);
            }
        }
        self.len() - 1
    }

    fn part(&self, range: std::ops::Range<usize>) -> Self {
        let mut part = Self::default();
        let bytes = range.clone().map(|index| self.place_size(usize::from(self.slots[index]))).sum();
        part.data.reserve_exact(bytes);
        part.slots.reserve_exact(range.len());
        part.tags = self.tags[range.clone()].to_vec();
        for index in range {
            let at = part.push_copy(self, index);
            part.slots.push(at);
        }
        part
    }

    /// Appends the bytes of another page's item; a large one is shared.
    fn push_copy(&mut self, other: &Self, index: usize) -> u16 {
        let from = usize::from(other.slots[index]);
        if other.data[from] == LARGE_MARK {
            let number = usize::from(u16::from_le_bytes([other.data[from + 1], other.data[from + 2]]));
            let shared = Arc::clone(&other.large.as_ref().expect("a large item is marked").items[number]);
            return self.push_large(shared);
        }
        let size = other.place_size(from);
        let at = self.end();
        self.data.extend_from_slice(&other.data[from..from + size]);
        at
    }

    fn push_data(&mut self, bytes: &[u8]) -> u16 {
        if bytes.len() > LARGE_MIN {
            return self.push_large(Arc::from(bytes));
        }
        let size = item_size(bytes.len());
        let at = self.end();
        reserve(&mut self.data, size);
        push_len(&mut self.data, bytes.len());
        self.data.extend_from_slice(bytes);
        at
    }

    fn push_large(&mut self, item: Arc<[u8]>) -> u16 {
        let all = self.large.get_or_insert_default();
        all.bytes += item.len() + LARGE_OVERHEAD;
        let index = match all.holes {
            0 => all.items.len(),
            _ => all.items.iter().position(|item| item.is_empty()).expect("holes are counted"),
        };
        if index == all.items.len() {
            all.items.push(item);
        } else {
            all.items[index] = item;
            all.holes -= 1;
        }
        let [low, high] = u16::try_from(index).expect("a page has fewer than 65536 items").to_le_bytes();
        let at = self.end();
        reserve(&mut self.data, LARGE_SIZE);
        self.data.extend_from_slice(&[LARGE_MARK, low, high]);
        at
    }

    fn end(&self) -> u16 {
        u16::try_from(self.data.len()).expect("a page is split long before 64 KiB")
    }

    fn place_size(&self, at: usize) -> usize {
        if self.data[at] == LARGE_MARK {
            return LARGE_SIZE;
        }
        let (begin, len) = read_len(&self.data, at);
        begin + len - at
    }

    /// Gives up an item's bytes; its slot is the caller's.
    fn kill(&mut self, index: usize) {
        let at = usize::from(self.slots[index]);
        let size = self.place_size(at);
        if self.data[at] == LARGE_MARK {
            let number = usize::from(u16::from_le_bytes([self.data[at + 1], self.data[at + 2]]));
            let all = self.large.as_mut().expect("a large item is marked");
            let item = std::mem::replace(&mut all.items[number], Arc::from([]));
            all.bytes -= item.len() + LARGE_OVERHEAD;
            all.holes += 1;
        }
        if at + size == self.data.len() {
            self.data.truncate(at);
        } else {
            self.dead += size;
        }
    }

    fn compact_if_due(&mut self) {
        if self.dead > DEAD_MIN && self.dead * 2 > self.data.len() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut data = Vec::with_capacity(self.data.len() - self.dead);
        for slot in &mut self.slots {
            let from = usize::from(*slot);
            let size = match self.data[from] {
                LARGE_MARK => LARGE_SIZE,
                _ => {
                    let (begin, len) = read_len(&self.data, from);
                    begin + len - from
                }
            };
            *slot = u16::try_from(data.len()).expect("shorter than before");
            data.extend_from_slice(&self.data[from..from + size]);
        }
        self.data = data;
        self.dead = 0;
    }
}

/// Makes room in steps of an eighth: doubling would leave a quarter of all pages unused on average.
#[inline]
fn reserve<E>(vec: &mut Vec<E>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 8).max(16));
    }
}

/// Requests from memory, for searches that are made together: each goes as far as what the one before it has brought.
impl<T: Copy> Page<T> {
    /// Requests what says where tags and items are.
    #[inline]
    pub(super) fn request(&self) {
        prefetch_all(std::slice::from_ref(self));
    }

    /// Requests all tags.
    #[inline]
    pub(super) fn request_tags(&self) {
        prefetch_all(&self.tags);
    }

    /// Requests the place of item `index`, if there is one.
    #[inline]
    pub(super) fn request_slot(&self, index: usize) {
        self.slots.get(index).into_iter().for_each(|slot| prefetch(slot));
    }

    /// Requests what removing item `index` moves.
    #[inline]
    pub(super) fn request_behind(&self, index: usize) {
        self.tags.get(index..).into_iter().for_each(prefetch_all);
        self.slots.get(index..).into_iter().for_each(prefetch_all);
    }

    /// Requests the bytes of item `index`, if there is one.
    #[inline]
    pub(super) fn request_item(&self, index: usize) {
        let begin = self.slots.get(index).and_then(|slot| self.data.get(usize::from(*slot)..));
        begin.into_iter().for_each(|item| prefetch_all(&item[..item.len().min(SHORT_ITEM)]));
    }
}

impl Page<u32> {
    /// Requests the tags that a search by proportion begins with.
    #[inline]
    pub(super) fn request_ends(&self) {
        self.tags.first().into_iter().chain(self.tags.last()).for_each(|tag| prefetch(tag));
    }

    /// Requests the tag with which such a search goes on, and its item's place.
    #[inline]
    pub(super) fn request_guess(&self, tag: u32) {
        if let Some(at) = guess(&self.tags, tag) {
            prefetch(&raw const self.tags[at]);
            prefetch(&raw const self.slots[at]);
        }
    }

    /// The first index whose tag is not below this one, where tags are spread as hashes are.
    #[inline]
    pub fn lower_bound_evenly(&self, tag: u32) -> usize {
        // The item is looked at next: where it is, is on its way while the tags are read.
        lower_bound_evenly(&self.tags, tag, |at| prefetch(&raw const self.slots[at]))
    }
}

/// The first index whose tag is not below this one, where tags are spread evenly, as hashes are: a guess by proportion is a few tags
/// off, so that a search reads two or three lines instead of halving its way through all. The guess is told.
#[inline]
pub(super) fn lower_bound_evenly(tags: &[u32], tag: u32, guessed: impl FnOnce(usize)) -> usize {
    let Some(mut at) = guess(tags, tag) else {
        return if tags.last().is_some_and(|last| tag > *last) { tags.len() } else { 0 };
    };
    guessed(at);
    // Doubling steps, should the tags not be even after all.
    let mut step = 1;
    if tags[at] < tag {
        let mut low = at + 1;
        loop {
            let high = low + step;
            if high >= tags.len() || tags[high] >= tag {
                at = high.min(tags.len() - 1);
                return low + tags[low..=at].partition_point(|other| *other < tag);
            }
            low = high + 1;
            step *= 2;
        }
    }
    loop {
        let low = at.saturating_sub(step);
        if tags[low] < tag {
            return low + 1 + tags[low + 1..at].partition_point(|other| *other < tag);
        }
        // The first is below `tag`, so that this ends before 0 is passed.
        at = low;
        step *= 2;
    }
}

/// Where a tag is by proportion, if it is above the first and not above the last.
#[inline]
fn guess(tags: &[u32], tag: u32) -> Option<usize> {
    let (first, last) = (*tags.first()?, *tags.last()?);
    if tag <= first || tag > last {
        return None;
    }
    let guess = u64::from(tag - first) * (tags.len() as u64 - 1) / u64::from(last - first);
    // Not above the last index.
    Some(guess as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Even, crowded and equal tags; each one and its neighbours looked for.
    #[test]
    fn a_guess_by_proportion_finds_what_halving_finds() {
        let mut seed = 1_u32;
        for shape in 0..4_u32 {
            for len in [0, 1, 2, 3, 10, 150, 300] {
                let mut tags: Vec<u32> = (0..len)
                    .map(|i| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        [seed, seed % 7, 1 << (seed % 32), if i % 2 == 0 { 0 } else { u32::MAX - seed % 5 }]
                            [shape as usize]
                    })
                    .collect();
                tags.sort_unstable();
                let mut page: Page<u32> = Page::default();
                tags.iter().enumerate().for_each(|(at, tag)| page.insert(at, *tag, b""));
                let near = |tag: &u32| [tag.wrapping_sub(1), *tag, tag.wrapping_add(1)];
                for tag in tags.iter().flat_map(near).chain([0, u32::MAX, 1 << 31]) {
                    let expected = tags.partition_point(|other| *other < tag);
                    assert_eq!(page.lower_bound_evenly(tag), expected, "{tag} in {tags:?}");
                }
            }
        }
    }

    /// Random edits against a plain vector.
    #[test]
    fn edits_agree_with_a_vector() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % bound as u64).expect("small")
        };
        let mut page: Page<u32> = Page::default();
        let mut model: Vec<(u32, Vec<u8>)> = Vec::new();
        for round in 0..20_000_u32 {
            let bytes =
                vec![b'a' + u8::try_from(round % 26).expect("a letter"); [0, 3, 20, 127, 128, 200, 1025][next(7)]];
            match next(4) {
                0 | 1 if page.weight() < PAGE_MAX && model.len() < 100 => {
                    let at = next(model.len() + 1);
                    page.insert(at, round, &bytes);
                    model.insert(at, (round, bytes));
                }
                2 if !model.is_empty() => {
                    let at = next(model.len());
                    page.replace(at, round, &bytes);
                    model[at] = (round, bytes);
                }
                3 if !model.is_empty() => {
                    let at = next(model.len());
                    page.remove(at);
                    model.remove(at);
                }
                _ => {
                    let at = next(model.len() + 1);
                    let upper = page.split_off(at);
                    assert_eq!((page.len(), upper.len()), (at, model.len() - at));
                    page.append(&upper);
                }
            }
            assert_eq!(page.len(), model.len());
            assert!(page.data.len() < 16 * 1024, "dead bytes pile up");
            for (index, (tag, bytes)) in model.iter().enumerate() {
                assert!(page.tags()[index] == *tag && page.item(index) == bytes, "round {round}, item {index}");
            }
        }
    }

    #[test]
    fn a_copy_shares_large_items() {
        let mut page: Page<()> = Page::default();
        page.insert(0, (), &[1; 5000]);
        let copy = page.clone();
        page.remove(0);
        assert_eq!((copy.item(0).len(), page.len()), (5000, 0));
    }
}
