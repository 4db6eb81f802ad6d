//! A set: members in the order of their hash, or, packed, in the order in which they came.

use super::dict::{Dict, Keyed};
use super::packed::{Packed, PackedBuf};
use super::{Form, Repr};

/// An item is its member.
#[derive(Clone, Copy, Debug)]
pub struct Member;

impl Keyed for Member {
    #[inline]
    fn key(item: &[u8]) -> &[u8] {
        item
    }
}

/// Redis's thresholds for the compact encodings of a set.
#[derive(Clone, Copy, Debug)]
pub struct SetLimits {
    /// Most members of an intset.
    pub integers: usize,
    /// Most members of a listpack.
    pub entries: usize,
    /// Longest member of a listpack, in bytes.
    pub value: usize,
}

/// A large set.
#[derive(Clone, Debug)]
pub struct SetTree {
    pub(super) dict: Dict<Member>,
    form: Form,
}

impl SetTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.dict.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.dict.free_cost()
    }

    /// See [`super::ahead`].
    pub(super) fn request(&self, members: &[&[u8]]) {
        self.dict.request(members, false);
    }
}

/// A set, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum SetRef<'a> {
    /// A small one.
    Packed(Packed<'a>),
    /// A large one.
    Tree(&'a SetTree),
}

impl<'a> SetRef<'a> {
    /// Number of members.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Tree(tree) => tree.dict.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING should call it.
    pub fn form(self) -> Form {
        match self {
            Self::Packed(packed) => packed.form(),
            Self::Tree(tree) => tree.form,
        }
    }

    /// The value itself; a large one is shared.
    pub fn to_owned(self) -> Set {
        let repr = match self {
            Self::Packed(packed) => Repr::Packed(PackedBuf::copy_in(Vec::new(), packed)),
            Self::Tree(tree) => Repr::Tree(Box::new(tree.clone())),
        };
        Set { repr }
    }

    /// Whether this is the very value that `other` is: one of them is a copy of the other that nobody has changed since.
    pub fn is_same(self, other: SetRef<'_>) -> bool {
        match (self, other) {
            (Self::Packed(packed), SetRef::Packed(other)) => packed == other,
            (Self::Tree(tree), SetRef::Tree(other)) => tree.dict.is_same(&other.dict),
            _ => false,
        }
    }

    /// Whether it has this member.
    #[inline]
    pub fn contains(self, member: &[u8]) -> bool {
        match self {
            Self::Packed(packed) => find(packed, member).is_some(),
            Self::Tree(tree) => tree.dict.find(member).is_some(),
        }
    }

    /// The member number `rank`: by a random number, a random member.
    pub fn nth(self, rank: usize) -> Option<&'a [u8]> {
        match self {
            Self::Packed(packed) => packed.nth(rank).map(|(_, item)| item),
            Self::Tree(tree) => tree.dict.nth(rank),
        }
    }

    /// The members from number `rank` on.
    pub fn iter_from(self, rank: usize) -> impl Iterator<Item = &'a [u8]> {
        let (packed, tree) = match self {
            Self::Packed(packed) => (Some(packed.items().skip(rank)), None),
            Self::Tree(tree) => (None, Some(tree.dict.iter_from(rank))),
        };
        packed.into_iter().flatten().map(|(_, item)| item).chain(tree.into_iter().flatten())
    }

    /// All members.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.iter_from(0)
    }

    /// Visits members from a cursor on; see [`Dict::scan`]. A small set is visited whole.
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(&'a [u8])) -> u64 {
        match self {
            Self::Packed(packed) => {
                packed.items().for_each(|(_, item)| visit(item));
                0
            }
            Self::Tree(tree) => tree.dict.scan(cursor, count, visit),
        }
    }
}

/// Where a member of a packed set is.
#[inline]
fn find(packed: Packed<'_>, member: &[u8]) -> Option<usize> {
    let same = |item: &[u8]| item.len() == member.len() && item.last() == member.last() && item == member;
    packed.items().find(|(_, item)| same(item)).map(|(at, _)| at)
}

/// Whether a member is the decimal form of an integer of 64 bits.
pub(super) fn is_integer(member: &[u8]) -> bool {
    if member.is_empty() || member.len() > 20 || !(member[0].is_ascii_digit() || member[0] == b'-') {
        return false;
    }
    let number: Option<i64> = std::str::from_utf8(member).ok().and_then(|text| text.parse().ok());
    number.is_some_and(|number| itoa::Buffer::new().format(number).as_bytes() == member)
}

/// A set that can be changed.
#[derive(Clone, Debug)]
pub struct Set {
    repr: Repr<SetTree>,
}

impl Set {
    /// An empty one, in this buffer while it is small.
    pub fn empty_in(buffer: Vec<u8>) -> Self {
        Self { repr: Repr::Packed(PackedBuf::empty_in(buffer, Form::Compact)) }
    }

    pub(super) fn from_repr(repr: Repr<SetTree>) -> Self {
        Self { repr }
    }

    pub(super) fn into_repr(self) -> Repr<SetTree> {
        self.repr
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> SetRef<'_> {
        match &self.repr {
            Repr::Packed(buf) => SetRef::Packed(buf.view()),
            Repr::Tree(tree) => SetRef::Tree(tree),
        }
    }

    /// Chooses the encoding of a set to which so many members are about to be added, `first` of them first: a compact one that
    /// they might not fit is not begun, or given up before.
    pub fn expect(&mut self, first: &[u8], new: usize, limits: SetLimits) {
        let form = match self.view().form() {
            _ if self.view().is_empty() && new <= limits.integers && is_integer(first) => Form::Integers,
            Form::Integers if new > limits.integers => Form::Large,
            Form::Compact if new > limits.entries => Form::Large,
            form => form,
        };
        self.set_form(form);
    }

    /// Adds a member; true if it is new.
    pub fn add(&mut self, member: &[u8], limits: SetLimits) -> bool {
        match &mut self.repr {
            Repr::Packed(buf) => {
                if find(buf.view(), member).is_some() {
                    return false;
                }
                if buf.fits(member.len()) {
                    buf.push(&[member]);
                } else {
                    self.as_tree().dict.add(member);
                }
            }
            Repr::Tree(tree) => {
                if !tree.dict.add(member) {
                    return false;
                }
            }
        }
        self.reform(member, limits);
        true
    }

    /// Removes a member; true if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let found = find(buf.view(), member);
                if let Some(at) = found {
                    buf.remove(at);
                }
                found.is_some()
            }
            Repr::Tree(tree) => tree.dict.remove(member),
        }
    }

    /// Removes the member number `rank`, which is there.
    pub fn remove_nth(&mut self, rank: usize) {
        match &mut self.repr {
            Repr::Packed(buf) => buf.remove(buf.view().position(rank)),
            Repr::Tree(tree) => tree.dict.remove_nth(rank),
        }
    }

    /// Keeps the encoding that Redis would report after a member was added.
    fn reform(&mut self, member: &[u8], limits: SetLimits) {
        let (view, fits) = (self.view(), |len: usize| len <= limits.value);
        let form = match view.form() {
            Form::Integers if is_integer(member) && view.len() <= limits.integers => return,
            Form::Integers if is_integer(member) => Form::Large,
            Form::Integers | Form::Compact if view.len() > limits.entries || !fits(member.len()) => Form::Large,
            Form::Integers if !view.iter().all(|member| fits(member.len())) => Form::Large,
            Form::Integers => Form::Compact,
            _ => return,
        };
        self.set_form(form);
    }

    fn set_form(&mut self, form: Form) {
        match &mut self.repr {
            Repr::Packed(buf) => buf.set_form(form),
            Repr::Tree(tree) => tree.form = form,
        }
    }

    /// The set as a tree, which it becomes if it is packed.
    pub(super) fn as_tree(&mut self) -> &mut SetTree {
        if let Repr::Packed(buf) = &self.repr {
            let mut tree = SetTree { dict: Dict::default(), form: buf.view().form() };
            for (_, item) in buf.view().items() {
                tree.dict.add(item);
            }
            self.repr = Repr::Tree(Box::new(tree));
        }
        let Repr::Tree(tree) = &mut self.repr else { unreachable!("it was made large") };
        tree
    }
}

/// A set that is made of members which come once each, mostly in the order of their hashes.
#[derive(Debug)]
pub struct SetBuilder {
    set: Set,
    integers: bool,
    longest: usize,
}

impl Default for SetBuilder {
    fn default() -> Self {
        Self { set: Set::empty_in(Vec::new()), integers: true, longest: 0 }
    }
}

impl SetBuilder {
    /// Adds a member that is not there, whatever its hash; not to be mixed with [`SetBuilder::push`].
    pub fn add(&mut self, member: &[u8]) {
        self.note(member);
        match &mut self.set.repr {
            Repr::Packed(buf) if buf.fits(member.len()) => buf.push(&[member]),
            _ => _ = self.set.as_tree().dict.add(member),
        }
    }

    fn note(&mut self, member: &[u8]) {
        self.integers = self.integers && is_integer(member);
        self.longest = self.longest.max(member.len());
    }

    /// Adds the next member, whose key has this hash.
    pub fn push(&mut self, tag: u32, member: &[u8]) {
        self.note(member);
        match &mut self.set.repr {
            Repr::Packed(buf) if buf.fits(member.len()) => buf.push(&[member]),
            _ => self.set.as_tree().dict.push(tag, member),
        }
    }

    /// The set, with the encoding that Redis gives to the result of SINTERSTORE and its kin.
    pub fn finish(mut self, limits: SetLimits) -> Set {
        let len = self.set.view().len();
        let form = match self.integers {
            true if len <= limits.integers => Form::Integers,
            _ if len <= limits.entries && self.longest <= limits.value => Form::Compact,
            _ => Form::Large,
        };
        self.set.set_form(form);
        self.set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LIMITS: SetLimits = SetLimits { integers: 512, entries: 128, value: 64 };

    fn of(members: impl Iterator<Item = String>) -> Set {
        let mut set = Set::empty_in(Vec::new());
        for member in members {
            if set.view().is_empty() {
                set.expect(member.as_bytes(), 1, LIMITS);
            }
            set.add(member.as_bytes(), LIMITS);
        }
        set
    }

    /// Small and large alike, across the border between them.
    #[test]
    fn edits_agree_with_a_set() {
        for names in [12_u64, 3000] {
            let (mut set, mut model, mut random) = (Set::empty_in(Vec::new()), BTreeSet::new(), 7_u64);
            for _ in 0..30_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let member = format!("member:{}", (random >> 40) % names).into_bytes();
                match random >> 61 {
                    0..3 => assert_eq!(set.remove(&member), model.remove(&member)),
                    3 if !model.is_empty() => {
                        let rank = usize::try_from(random >> 20).expect("64 bits") % model.len();
                        let member = set.view().nth(rank).expect("there").to_vec();
                        set.remove_nth(rank);
                        assert!(model.remove(&member) && !set.view().contains(&member));
                    }
                    _ => assert_eq!(set.add(&member, LIMITS), model.insert(member)),
                }
                assert_eq!(set.view().len(), model.len());
            }
            assert_eq!(set.view().iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>(), model);
        }
    }

    #[test]
    fn the_reported_encoding_follows_the_thresholds() {
        let numbers = |count: i32| (0..count).map(|number| (number * 7 - 300).to_string());
        let form = |set: &Set| set.view().form();
        assert_eq!(form(&of(numbers(512))), Form::Integers);
        assert_eq!(form(&of(numbers(513))), Form::Large);
        assert_eq!(form(&of(numbers(127).chain(["x".to_owned()]))), Form::Compact);
        assert_eq!(form(&of(numbers(128).chain(["x".to_owned()]))), Form::Large);
        assert_eq!(form(&of(numbers(5).chain(["x".repeat(65)]))), Form::Large);
        assert_eq!(form(&of((0..128).map(|number| format!("m{number}")))), Form::Compact);
        assert_eq!(form(&of((0..129).map(|number| format!("m{number}")))), Form::Large);
        let mut set = Set::empty_in(Vec::new());
        set.expect(b"1", 513, LIMITS);
        assert_eq!(form(&set), Form::Large);
    }

    #[test]
    fn integers_are_canonical() {
        for (member, expected) in [
            ("0", true),
            ("-0", false),
            ("-1", true),
            ("01", false),
            ("+1", false),
            ("", false),
            ("-", false),
            ("9223372036854775807", true),
            ("9223372036854775808", false),
            ("-9223372036854775808", true),
            ("1.5", false),
        ] {
            assert_eq!(is_integer(member.as_bytes()), expected, "{member}");
        }
    }
}
