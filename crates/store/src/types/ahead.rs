//! Elements of one large value, requested from memory before they are looked up one after another.
//!
//! In a hash of a million fields each look-up waits four or five times for memory: for a page, its tags, an item. The look-ups of a
//! pipeline are independent of each other, so that these waits can be one another's: all look-ups go one step, then all the next. It
//! is a guess: nothing depends on it.

use super::{FieldsRef, SetRef, SortedSetRef};
use crate::value::ValueRef;

/// Most elements that are requested together: so many lines at a time the processor asks for.
pub const TOGETHER: usize = 8;

/// A smaller tree is in the processor's cache if it is used at all.
const LARGE_BYTES: usize = 512 * 1024;

/// Whether a value of so many bytes is so large that looking for an element is waiting for memory.
pub(super) fn is_large(bytes: usize) -> bool {
    bytes > LARGE_BYTES
}

/// Whether looking for an element of this value is waiting for memory.
pub fn pays(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::Set(SetRef::Tree(tree)) => is_large(tree.memory_bytes()),
        ValueRef::Hash(FieldsRef::Tree(tree)) => is_large(tree.memory_bytes()),
        ValueRef::SortedSet(SortedSetRef::Tree(tree)) => is_large(tree.memory_bytes()),
        _ => false,
    }
}

/// Requests what looking for the first [`TOGETHER`] of these elements is going to read, with `places` also their places in the order
/// of a sorted set.
pub fn request(value: ValueRef<'_>, elements: &[&[u8]], places: bool) {
    match value {
        ValueRef::Set(SetRef::Tree(tree)) => tree.request(elements),
        ValueRef::Hash(FieldsRef::Tree(tree)) => tree.request(elements),
        ValueRef::SortedSet(SortedSetRef::Tree(tree)) => tree.request(elements, places),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{End, Field, Fields, Limits, Set, SetLimits, SortedSet};

    const MEMBERS: u32 = 60_000;

    /// Present, missing and empty elements, more of them than are requested, of values of each type: nothing is changed by it, and
    /// what is there is found where it was requested.
    #[test]
    fn requests_of_large_values_are_guesses() {
        let limits = Limits { entries: 128, value: 64 };
        let mut set = Set::empty_in(Vec::new());
        let mut fields = Fields::empty_in(Vec::new());
        let mut sorted = SortedSet::empty_in(Vec::new());
        let name = |number: u32| format!("member:{number}").into_bytes();
        for number in 0..MEMBERS {
            let name = name(number);
            set.add(&name, SetLimits { integers: 512, entries: 128, value: 64 });
            fields.put(Field { name: &name, value: b"value", expire_at_ms: None }, limits);
            sorted.put(&name, f64::from(number / 3), limits);
        }
        let (mut right, mut all) = (0, 0);
        for begin in (0..MEMBERS * 2).step_by(997) {
            let names: Vec<Vec<u8>> = (begin..).take(TOGETHER + 1).map(name).collect();
            let mut elements: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            elements[2] = b"";
            for count in 0..elements.len() {
                request(ValueRef::Set(set.view()), &elements[..count], true);
                request(ValueRef::Hash(fields.view()), &elements[..count], false);
                request(ValueRef::SortedSet(sorted.view()), &elements[..count], true);
            }
            let SetRef::Tree(tree) = set.view() else { panic!("{MEMBERS} members are no small set") };
            let items = tree.dict.request(&elements, false).map(|found| found.map(|found| found.item().to_vec()));
            let expected = elements.iter().map(|element| set.view().contains(element).then(|| element.to_vec()));
            right += items.into_iter().zip(expected).filter(|(item, expected)| item == expected).count();
            all += TOGETHER;
        }
        assert!(pays(ValueRef::Set(set.view())) && pays(ValueRef::Hash(fields.view())));
        assert!(pays(ValueRef::SortedSet(sorted.view())) && !pays(ValueRef::Set(Set::empty_in(Vec::new()).view())));
        // Two members of one hash are told apart by the search alone.
        assert!(right + 3 >= all, "{right} of {all}");
        let (counts, all) = ((set.view().len(), fields.view().len(), sorted.view().len()), MEMBERS as usize);
        assert_eq!(counts, (all, all, all));
    }

    /// Members that go one by one from both ends, some of which were requested and come back with other scores before they go.
    #[test]
    fn pops_are_what_a_walk_shows() {
        let limits = Limits { entries: 128, value: 64 };
        let mut sorted = SortedSet::empty_in(Vec::new());
        for number in 0..MEMBERS {
            sorted.put(
                format!("member:{}", number.wrapping_mul(7919) % MEMBERS).as_bytes(),
                f64::from(number % 10),
                limits,
            );
        }
        let mut left = sorted.view().len();
        for round in 0..20_000_u32 {
            let end = if round % 3 == 0 { End::Tail } else { End::Head };
            let rank = if end == End::Head { 0 } else { left - 1 };
            let expected = sorted.view().nth(rank).map(|found| (found.member.to_vec(), found.score));
            let mut popped = None;
            sorted.pop(end, |found| popped = Some((found.member.to_vec(), found.score)));
            assert_eq!(popped, expected);
            left -= 1;
            let (member, score) = popped.expect("there were members");
            assert_eq!((sorted.view().len(), sorted.view().score(&member)), (left, None));
            if round % 5 == 0 {
                sorted.put(&member, 9.0 - score, limits);
                left += 1;
            }
        }
    }
}
