//! Intersections, unions and differences of sets.
//!
//! All sets are ordered by the same hash, so that they are merged: each is walked once, from the front, and where one is much
//! smaller than another the walk over the other jumps (within a page by doubling steps, between pages by a descent). Nothing is
//! hashed or looked up. The work is cut at hashes, and continues from one: the sets are held by their roots and nobody waits.
//!
//! Dropped: looking up each member of the smallest set in the others (a hash and a descent each).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dict::{Dict, Walk};
use super::set::{Member, Set};

/// What is made of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The members that all of them have.
    Intersection,
    /// The members that any of them has.
    Union,
    /// The members that the first one has and no other.
    Difference,
}

impl Operation {
    /// About how many members are looked at.
    pub fn work(self, sets: &[Set]) -> usize {
        let lens = sets.iter().map(|set| set.view().len());
        match self {
            Self::Union => lens.sum(),
            Self::Intersection => lens.min().unwrap_or(0) * sets.len(),
            Self::Difference => sets.first().map_or(0, |first| first.view().len()) * sets.len(),
        }
    }

    /// Calls `found` for each member of the result, by looking up members of one set in others: for a few members, of which no
    /// trees need be made.
    pub fn look_up(self, sets: &[Set], found: &mut dyn FnMut(&[u8])) {
        let has = |at: usize, member: &[u8]| sets[at].view().contains(member);
        match self {
            Self::Intersection => {
                let Some(first) = (0..sets.len()).min_by_key(|at| sets[*at].view().len()) else { return };
                let others = || (0..sets.len()).filter(|at| *at != first);
                let members = sets[first].view().iter();
                members.filter(|member| others().all(|at| has(at, member))).for_each(found);
            }
            Self::Difference => {
                let members = sets.iter().take(1).flat_map(|set| set.view().iter());
                members.filter(|member| !(1..sets.len()).any(|at| has(at, member))).for_each(found);
            }
            Self::Union => {
                for (at, set) in sets.iter().enumerate() {
                    let new = set.view().iter().filter(|member| !(0..at).any(|before| has(before, member)));
                    new.for_each(&mut *found);
                }
            }
        }
    }
}

/// An operation on sets that is under way.
#[derive(Debug)]
pub struct Combination {
    operation: Operation,
    sets: Vec<Dict<Member>>,
    /// The hash to go on from; `None` at the end.
    from: Option<u32>,
}

impl Combination {
    /// Begins with these sets; the order matters only for a difference.
    pub fn new(operation: Operation, sets: Vec<Set>) -> Self {
        let mut sets: Vec<_> = sets.into_iter().map(|mut set| set.as_tree().dict.clone()).collect();
        if operation == Operation::Intersection {
            sets.sort_by_key(Dict::len);
        }
        let from = (!sets.is_empty()).then_some(0);
        Self { operation, sets, from }
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        self.from.is_none()
    }

    /// Goes on for about so many members and calls `found` for each of the result, with its hash, in the order of these.
    pub fn step(&mut self, members: usize, found: &mut dyn FnMut(u32, &[u8])) {
        let Some(from) = self.from else { return };
        self.from = match self.operation {
            Operation::Union => self.unite(from, members, found),
            Operation::Intersection => self.filter(from, members, true, found),
            Operation::Difference => self.filter(from, members, false, found),
        };
    }

    /// The members of the first set that each of the others has, or that none has.
    fn filter(&self, from: u32, members: usize, wanted: bool, found: &mut dyn FnMut(u32, &[u8])) -> Option<u32> {
        let (first, others) = self.sets.split_first()?;
        let mut others: Vec<Walk<'_, Member>> = others.iter().map(|other| other.walk(from)).collect();
        let mut driver = first.walk(from);
        let (mut visited, mut last) = (0, from);
        while let Some((tag, member)) = driver.item() {
            if visited >= members && tag != last {
                return Some(tag);
            }
            let mut has = others.iter_mut().map(|other| other.find(tag, member));
            if if wanted { has.all(|has| has) } else { !has.any(|has| has) } {
                found(tag, member);
            }
            (visited, last) = (visited + 1, tag);
            driver.next();
        }
        None
    }

    /// The members of all sets: of one hash at a time, each once.
    fn unite(&self, from: u32, members: usize, found: &mut dyn FnMut(u32, &[u8])) -> Option<u32> {
        let mut walks: Vec<Walk<'_, Member>> = self.sets.iter().map(|set| set.walk(from)).collect();
        let mut next: BinaryHeap<Reverse<(u32, usize)>> = BinaryHeap::with_capacity(walks.len());
        next.extend(walks.iter().enumerate().filter_map(|(at, walk)| Some(Reverse((walk.item()?.0, at)))));
        let (mut visited, mut last, mut of_hash) = (0, from, Vec::new());
        while let Some(Reverse((tag, at))) = next.pop() {
            if tag != last {
                if visited >= members {
                    return Some(tag);
                }
                last = tag;
                of_hash.clear();
            }
            let walk = &mut walks[at];
            let (_, member) = walk.item().expect("it is in the heap for its member");
            if !of_hash.contains(&member) {
                of_hash.push(member);
                found(tag, member);
            }
            visited += 1;
            walk.next();
            if let Some((tag, _)) = walk.item() {
                next.push(Reverse((tag, at)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::set::{SetBuilder, SetLimits};
    use super::*;
    use std::collections::BTreeSet;

    const LIMITS: SetLimits = SetLimits { integers: 512, entries: 128, value: 64 };

    fn combine(operation: Operation, sets: &[BTreeSet<u32>], step: usize) -> Vec<u32> {
        let set = |members: &BTreeSet<u32>| {
            let mut set = Set::empty_in(Vec::new());
            members.iter().for_each(|member| _ = set.add(member.to_string().as_bytes(), LIMITS));
            set
        };
        let sets: Vec<Set> = sets.iter().map(set).collect();
        let mut looked_up = Vec::new();
        operation.look_up(&sets, &mut |member| looked_up.push(member.to_vec()));
        let mut combination = Combination::new(operation, sets);
        let (mut result, mut builder) = (Vec::new(), SetBuilder::default());
        while !combination.is_done() {
            combination.step(step, &mut |tag, member| {
                builder.push(tag, member);
                result.push(std::str::from_utf8(member).expect("digits").parse().expect("digits"));
            });
        }
        let built = builder.finish(LIMITS);
        assert!(result.iter().all(|member: &u32| built.view().contains(member.to_string().as_bytes())));
        assert_eq!(built.view().len(), result.len());
        assert_eq!(looked_up.iter().collect::<BTreeSet<_>>().len(), looked_up.len());
        assert!(looked_up.len() == result.len() && looked_up.iter().all(|member| built.view().contains(member)));
        result
    }

    #[test]
    fn results_agree_with_those_of_plain_sets() {
        let mut random = 5_u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((random >> 33) % end).expect("small")
        };
        for round in 0..40 {
            let sets: Vec<BTreeSet<u32>> = (0..=below(4))
                .map(|_| {
                    let len = [5, 300, 3000, 20_000][below(4) as usize];
                    (0..len).map(|_| below(if round % 2 == 0 { 30_000 } else { 500 })).collect()
                })
                .collect();
            let (first, others) = sets.split_first().expect("one or more");
            let within = |member: &&u32, wanted: bool| others.iter().all(|other| other.contains(member) == wanted);
            let intersection: Vec<u32> = first.iter().filter(|member| within(member, true)).copied().collect();
            let difference: Vec<u32> = first.iter().filter(|member| within(member, false)).copied().collect();
            let union: Vec<u32> = sets.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
            for step in [1, 100, usize::MAX] {
                for (operation, expected) in [
                    (Operation::Intersection, &intersection),
                    (Operation::Difference, &difference),
                    (Operation::Union, &union),
                ] {
                    let mut result = combine(operation, &sets, step);
                    result.sort_unstable();
                    assert_eq!(&result, expected, "round {round}, {operation:?}, step {step}");
                }
            }
        }
    }
}
