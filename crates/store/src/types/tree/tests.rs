//! The tree against plain vectors.

use super::*;

struct Plain;

impl Order for Plain {
    type Tag = u32;
    type Rest = ();

    fn rest(_: &[u8]) {}
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("below the bound")
    }
}

fn bytes_of(tag: u32) -> Vec<u8> {
    let len = if tag.is_multiple_of(97) { 1500 } else { (tag % 50) as usize };
    vec![u8::try_from(tag % 251).expect("a byte"); len]
}

/// All invariants, and the totals.
fn check(tree: &Tree<Plain>) {
    fn walk(node: &Node<Plain>, is_root: bool, low: Option<u32>, bytes: &mut usize) -> (usize, usize) {
        match node {
            Node::Leaf(page) => {
                assert!(is_root || !page.is_empty(), "an empty page");
                assert!(page.weight() <= PAGE_MAX || page.len() == 1, "an overfull page");
                *bytes += page.memory_bytes();
                if let (Some(low), Some(first)) = (low, page.tags().first()) {
                    assert!(low <= *first, "an item before its page's first");
                }
                (page.len(), 0)
            }
            Node::Inner(inner) => {
                *bytes += inner_bytes::<Plain>();
                assert!(inner.below.len() >= if is_root { 2 } else { 1 } && inner.below.len() <= CHILDREN_MAX);
                let mut total = 0;
                let mut depths = Vec::new();
                assert_eq!(
                    (inner.tags.len(), inner.lens.len(), inner.rests.len()),
                    (inner.below.len(), inner.below.len(), inner.below.len())
                );
                for (index, child) in inner.below.iter().enumerate() {
                    let mut below = 0;
                    let low = if index == 0 { low } else { Some(inner.tags[index]) };
                    let (len, depth) = walk(&child.node, false, low, &mut below);
                    assert_eq!((len, below), (inner.lens[index], child.bytes), "a wrong count");
                    *bytes += below;
                    total += len;
                    depths.push(depth);
                }
                assert!(depths.iter().all(|depth| *depth == depths[0]), "leaves of different depth");
                (total, depths[0] + 1)
            }
        }
    }
    let mut bytes = 0;
    assert_eq!(walk(&tree.root, true, None, &mut bytes).0, tree.len());
    assert_eq!(bytes, tree.bytes, "the totals drifted");
}

fn seek(tree: &Tree<Plain>, tag: u32) -> Position {
    tree.seek(|first, ()| first < tag, |at, _| at < tag)
}

/// Sorted insertions, removals and replacements at random, with copies taken on the way that must not change.
#[test]
fn ordered_edits_agree_with_a_vector() {
    for seed in 1..=6 {
        let mut random = Random(seed * 7_919);
        let mut tree: Tree<Plain> = Tree::default();
        let mut model: Vec<u32> = Vec::new();
        let mut copies: Vec<(Tree<Plain>, Vec<u32>)> = Vec::new();
        for round in 0..12_000 {
            let tag = u32::try_from(random.below(50_000)).expect("small");
            let at = model.partition_point(|other| *other < tag);
            let place = seek(&tree, tag);
            assert_eq!(tree.rank(&place), at);
            let grows = (round / 3000) % 2 == 0;
            match random.below(10) {
                0..=6 if grows && model.get(at) != Some(&tag) => {
                    tree.insert(&place, tag, &bytes_of(tag));
                    model.insert(at, tag);
                }
                0..=6 if at < model.len() => {
                    tree.remove(&place);
                    model.remove(at);
                }
                7 if at < model.len() => tree.replace(&place, model[at], &bytes_of(model[at])),
                8 if round % 50 == 0 => {
                    let to = (at + random.below(400)).min(model.len());
                    tree.remove_range(at..to);
                    model.drain(at..to);
                }
                _ => {}
            }
            if round % 1000 == 999 {
                check(&tree);
                assert!(tree.iter().map(|(tag, _)| tag).eq(model.iter().copied()));
                assert!(tree.iter().all(|(tag, bytes)| bytes == bytes_of(tag)));
                copies.push((tree.clone(), model.clone()));
            }
        }
        for (copy, model) in &copies {
            check(copy);
            assert!(copy.iter().map(|(tag, _)| tag).eq(model.iter().copied()), "a copy changed");
        }
    }
}

/// Insertions anywhere by rank, as a list makes them, and walks both ways.
#[test]
fn ranks_agree_with_a_vector() {
    let mut random = Random(42);
    let mut tree: Tree<Plain> = Tree::default();
    let mut model: Vec<u32> = Vec::new();
    for number in 0..20_000 {
        let at = match number % 4 {
            0 => 0,
            1 => model.len(),
            _ => random.below(model.len() + 1),
        };
        tree.insert(&tree.seek_rank(at), number, &bytes_of(number));
        model.insert(at, number);
    }
    check(&tree);
    for rank in (0..20_000).step_by(37) {
        assert_eq!(tree.nth(rank).map(|(tag, _)| tag), Some(model[rank]));
        let mut cursor = tree.cursor(&tree.seek_rank(rank));
        for back in 0..rank.min(300) {
            assert_eq!(cursor.item().map(|(tag, _)| tag), Some(model[rank - back]));
            cursor.back();
        }
    }
    assert!(tree.nth(20_000).is_none() && tree.cursor(&tree.seek_rank(20_000)).item().is_none());
    let mut cursor = tree.cursor(&tree.seek_rank(0));
    cursor.back();
    assert!(cursor.item().is_none());
}

#[test]
fn items_that_come_in_order_leave_full_pages() {
    for backwards in [false, true] {
        let mut tree: Tree<Plain> = Tree::default();
        for number in 0..100_000 {
            let at = if backwards { 0 } else { tree.len() };
            tree.insert(&tree.seek_rank(at), number, b"12345678");
        }
        check(&tree);
        let used = 100_000 * (9 + 2 + 4);
        assert!(tree.memory_bytes() < used * 13 / 10, "{} bytes for {used} of content", tree.memory_bytes());
    }
}

#[test]
fn removing_a_range_of_millions_touches_few_nodes() {
    let mut tree: Tree<Plain> = Tree::default();
    for number in 0..200_000 {
        tree.push(number, b"item");
    }
    let copy = tree.clone();
    let removed = tree.remove_range(100..199_900);
    assert!(removed.nodes.len() <= 4 * CHILDREN_MAX);
    check(&tree);
    assert_eq!((tree.len(), copy.len()), (200, 200_000));
    assert_eq!(tree.nth(100).map(|(tag, _)| tag), Some(199_900));
    let all = tree.remove_range(0..200);
    assert!(tree.is_empty() && !all.nodes.is_empty());
    check(&tree);
}
