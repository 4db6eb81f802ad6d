//! When the fields of a large hash expire, earliest first: a tree beside that of the fields, so that active expiry finds what is due
//! without looking at what is not, and a reader can count the live fields of a moment in one descent.
//!
//! An item is the 32 bits of the field's hash, by which it is found in the hash; its tag is the deadline. Together they are the
//! order: a million fields with one deadline are told apart in one descent too. 15 bytes per field that expires.
//!
//! Dropped: only the earliest deadline (each pass would walk the whole hash), and the fields' names as items (they can be long).

use super::tree::{Order, Position, Tree};

/// Order by deadline, then by hash.
struct ByDeadline;

impl Order for ByDeadline {
    type Tag = i64;
    type Rest = u32;

    fn rest(item: &[u8]) -> u32 {
        hash_of(item)
    }
}

/// The deadlines of fields; two fields may have the same deadline and the same hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    /// `None` rather than an empty tree: most hashes have no deadlines.
    tree: Option<Tree<ByDeadline>>,
}

impl Deadlines {
    /// Whether these are the very deadlines that `other` are.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.tree, &other.tree) {
            (Some(tree), Some(other)) => tree.is_same(other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The earliest deadline.
    pub(super) fn earliest_ms(&self) -> Option<i64> {
        self.tree.as_ref()?.nth(0).map(|(at_ms, _)| at_ms)
    }

    /// How many deadlines are before `now_ms`.
    pub(super) fn due(&self, now_ms: i64) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.rank(&tree.seek(|at_ms, _| at_ms < now_ms, |at_ms, _| at_ms < now_ms)))
    }

    pub(super) fn add(&mut self, at_ms: i64, hash: u32) {
        let tree = self.tree.get_or_insert_default();
        let place = seek(tree, at_ms, hash);
        tree.insert(&place, at_ms, &hash.to_be_bytes());
    }

    /// Removes one such deadline, which is there.
    pub(super) fn remove(&mut self, at_ms: i64, hash: u32) {
        let tree = self.tree.as_mut().expect("a field that expires has its deadline here");
        let place = seek(tree, at_ms, hash);
        debug_assert_eq!(tree.nth(tree.rank(&place)).map(|(at, item)| (at, hash_of(item))), Some((at_ms, hash)));
        tree.remove(&place);
        if tree.is_empty() {
            self.tree = None;
        }
    }

    /// The first `count` deadlines with their fields' hashes.
    pub(super) fn first(&self, count: usize) -> Vec<(i64, u32)> {
        let all = self.tree.iter().flat_map(Tree::iter);
        all.take(count).map(|(at_ms, item)| (at_ms, hash_of(item))).collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tree.as_ref().map_or(0, Tree::memory_bytes)
    }

    pub(super) fn free_cost(&self) -> usize {
        self.tree.as_ref().map_or(0, Tree::free_cost)
    }
}

/// The place of a deadline, or where it would be.
fn seek(tree: &Tree<ByDeadline>, at_ms: i64, hash: u32) -> Position {
    tree.seek(|at, first| (at, *first) < (at_ms, hash), |at, item| (at, hash_of(item.bytes())) < (at_ms, hash))
}

fn hash_of(item: &[u8]) -> u32 {
    u32::from_be_bytes(item.try_into().expect("items are hashes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_agree_with_a_sorted_list() {
        let (mut deadlines, mut model) = (Deadlines::default(), Vec::new());
        let mut random = 3_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pair =
                (i64::try_from(random >> 60).expect("small"), u32::try_from((random >> 40) & 1023).expect("small"));
            let at = model.binary_search(&pair);
            match at {
                Ok(at) if random & (1 << 30) == 0 => {
                    deadlines.remove(pair.0, pair.1);
                    model.remove(at);
                }
                Ok(at) | Err(at) => {
                    deadlines.add(pair.0, pair.1);
                    model.insert(at, pair);
                }
            }
            assert_eq!(deadlines.earliest_ms(), model.first().map(|first| first.0));
        }
        assert_eq!(deadlines.first(usize::MAX), model);
        for now_ms in 0..17 {
            assert_eq!(deadlines.due(now_ms), model.iter().filter(|pair| pair.0 < now_ms).count());
        }
    }
}
