//! A hash: fields with values, some of which expire.
//!
//! An item is `field length << 1 | expires (varint) | field | deadline i64, if it expires | value`, packed and in a tree alike. A
//! field whose time is past is not there for readers, who say what time it is; it stays among the fields, and is counted, until it
//! is written again or [`Fields::remove_due`] takes it out. A large hash has its [`Deadlines`] in order beside it.
//!
//! While a hash is said to be compact its fields are read in the order in which they came, as from Redis's listpack, also where it
//! is a tree for the length of its values: the tree then keeps the hashes of its fields in that order.

use super::deadlines::Deadlines;
use super::dict::{Dict, Keyed};
use super::packed::{Packed, PackedBuf};
use super::page::lower_bound_evenly;
use super::{Form, Limits, Repr};

/// Where in an item its field is.
#[derive(Clone, Copy, Debug)]
pub struct FieldKey;

impl Keyed for FieldKey {
    #[inline]
    fn key(item: &[u8]) -> &[u8] {
        Field::read(item).name
    }
}

/// A large hash.
#[derive(Clone, Debug)]
pub struct FieldsTree {
    dict: Dict<FieldKey>,
    form: Form,
    deadlines: Deadlines,
    /// The tags of all fields, oldest first, of a compact hash of at most [`ORDERED_MAX`] fields; else empty.
    order: Vec<u32>,
}

impl FieldsTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.dict.memory_bytes() + self.deadlines.memory_bytes() + self.order.capacity() * 4
    }

    pub(super) fn free_cost(&self) -> usize {
        self.dict.free_cost() + self.deadlines.free_cost()
    }

    /// See [`super::ahead`].
    pub(super) fn request(&self, fields: &[&[u8]]) {
        self.dict.request(fields, false);
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, in ms.
    pub expire_at_ms: Option<i64>,
}

impl<'a> Field<'a> {
    /// Reads an item.
    #[inline]
    fn read(item: &'a [u8]) -> Self {
        let (mut at, mut head, mut shift) = (0, 0, 0);
        loop {
            let byte = usize::from(item[at]);
            at += 1;
            head |= (byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let (name, rest) = item[at..].split_at(head >> 1);
        if head & 1 == 0 {
            return Self { name, value: rest, expire_at_ms: None };
        }
        let (deadline, value) = rest.split_first_chunk::<8>().expect("an expiring field has a deadline");
        Self { name, value, expire_at_ms: Some(i64::from_le_bytes(*deadline)) }
    }

    /// The parts of its item: head, name, deadline, value.
    #[inline]
    fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]; 4]) -> R) -> R {
        // As many bytes of seven bits as a length of 64 bits and a flag take.
        let (mut head, mut head_len) = ([0; 10], 0);
        let mut rest = (self.name.len() as u128) << 1 | u128::from(self.expire_at_ms.is_some());
        loop {
            let low = u8::try_from(rest & 0x7F).expect("7 bits");
            rest >>= 7;
            head[head_len] = if rest > 0 { low | 0x80 } else { low };
            head_len += 1;
            if rest == 0 {
                break;
            }
        }
        let deadline = self.expire_at_ms.map(i64::to_le_bytes);
        f(&[&head[..head_len], self.name, deadline.as_ref().map_or(&[][..], |bytes| bytes), self.value])
    }

    /// Its item in one piece; a short one without an allocation.
    fn with_item<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.with_parts(|parts| {
            let mut short = [0; SHORT_ITEM];
            let len: usize = parts.iter().map(|part| part.len()).sum();
            let Some(item) = short.get_mut(..len) else { return f(&parts.concat()) };
            let mut at = 0;
            for part in parts {
                item[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            f(item)
        })
    }

    /// Whether it is there at this time: it is for the whole ms of its deadline, as a key is.
    #[inline]
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.expire_at_ms.is_none_or(|at_ms| at_ms >= now_ms)
    }
}

/// Fields whose order is kept: what is copied with a root stays short, whatever the thresholds are set to.
const ORDERED_MAX: usize = 1024;
/// Bytes up to which such a hash is read in one go: some tens of µs.
const READ_WHOLE: usize = 128 * 1024;

/// Items up to this are put together on the stack.
const SHORT_ITEM: usize = 256;

/// A hash, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum FieldsRef<'a> {
    /// A small one.
    Packed(Packed<'a>),
    /// A large one.
    Tree(&'a FieldsTree),
}

impl<'a> FieldsRef<'a> {
    /// Number of fields, expired ones that are not yet removed included.
    pub fn len(self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Tree(tree) => tree.dict.len(),
        }
    }

    /// Whether there are no fields.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value itself; a large one is shared.
    pub fn to_owned(self) -> Fields {
        let repr = match self {
            Self::Packed(packed) => Repr::Packed(PackedBuf::copy_in(Vec::new(), packed)),
            Self::Tree(tree) => Repr::Tree(Box::new(tree.clone())),
        };
        Fields { repr }
    }

    /// Whether this is the very value that `other` is: one of them is a copy of the other that nobody has changed since.
    pub fn is_same(self, other: FieldsRef<'_>) -> bool {
        match (self, other) {
            (Self::Packed(packed), FieldsRef::Packed(other)) => packed == other,
            (Self::Tree(tree), FieldsRef::Tree(other)) => {
                tree.dict.is_same(&other.dict) && tree.deadlines.is_same(&other.deadlines)
            }
            _ => false,
        }
    }

    /// Number of fields that are there at `now_ms`.
    pub fn live_len(self, now_ms: i64) -> usize {
        match self {
            Self::Packed(packed) if packed.form() != Form::Expiring => packed.len(),
            Self::Packed(_) => self.iter(now_ms).count(),
            Self::Tree(tree) => tree.dict.len() - tree.deadlines.due(now_ms),
        }
    }

    /// What OBJECT ENCODING should call it.
    pub fn form(self) -> Form {
        match self {
            Self::Packed(packed) => packed.form(),
            Self::Tree(tree) => tree.form,
        }
    }

    /// The field of this name, if it is there at `now_ms`.
    #[inline]
    pub fn find(self, name: &[u8], now_ms: i64) -> Option<Field<'a>> {
        self.find_any(name).filter(|field| field.is_live(now_ms))
    }

    /// The field of this name, even if its time is past.
    #[inline]
    pub fn find_any(self, name: &[u8]) -> Option<Field<'a>> {
        match self {
            Self::Packed(packed) => {
                packed.items().map(|(_, item)| Field::read(item)).find(|field| same_bytes(field.name, name))
            }
            Self::Tree(tree) => tree.dict.find(name).map(Field::read),
        }
    }

    /// The fields from number `rank` on, those whose time is past included.
    pub fn iter_from(self, rank: usize) -> impl Iterator<Item = Field<'a>> {
        let (packed, ordered, tree) = match self {
            Self::Packed(packed) => (Some(packed.items().skip(rank)), None, None),
            Self::Tree(tree) if tree.order.is_empty() => (None, None, Some(tree.dict.iter_from(rank))),
            Self::Tree(tree) => (None, Some(tree.in_order().into_iter().skip(rank)), None),
        };
        let packed = packed.into_iter().flatten().map(|(_, item)| item);
        packed.chain(ordered.into_iter().flatten()).chain(tree.into_iter().flatten()).map(Field::read)
    }

    /// Whether it is to be read in one go: putting its fields in order costs about as much as reading them all.
    pub fn is_read_whole(self) -> bool {
        matches!(self, Self::Tree(tree) if !tree.order.is_empty() && tree.dict.memory_bytes() <= READ_WHOLE)
    }

    /// All live fields.
    pub fn iter(self, now_ms: i64) -> impl Iterator<Item = Field<'a>> {
        self.iter_from(0).filter(move |field| field.is_live(now_ms))
    }

    /// The field number `rank`, live or not: by a random number, a random field.
    pub fn nth(self, rank: usize) -> Option<Field<'a>> {
        match self {
            Self::Packed(packed) => packed.nth(rank).map(|(_, item)| Field::read(item)),
            Self::Tree(tree) => tree.dict.nth(rank).map(Field::read),
        }
    }

    /// Visits fields from a cursor on; see [`Dict::scan`]. A small hash is visited whole, and so is one whose order is kept.
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(Field<'a>)) -> u64 {
        match self {
            Self::Packed(packed) => {
                packed.items().for_each(|(_, item)| visit(Field::read(item)));
                0
            }
            Self::Tree(tree) if tree.order.is_empty() => tree.dict.scan(cursor, count, |item| visit(Field::read(item))),
            Self::Tree(_) => {
                self.iter_from(0).for_each(visit);
                0
            }
        }
    }

    /// The earliest deadline of a field.
    pub fn deadline_ms(self) -> Option<i64> {
        match self {
            Self::Packed(packed) if packed.form() != Form::Expiring => None,
            Self::Packed(packed) => packed.items().filter_map(|(_, item)| Field::read(item).expire_at_ms).min(),
            Self::Tree(tree) => tree.deadlines.earliest_ms(),
        }
    }
}

/// Whether two names are equal; most differ in their length or at the end.
#[inline]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

/// A hash that can be changed.
#[derive(Clone, Debug)]
pub struct Fields {
    repr: Repr<FieldsTree>,
}

impl Fields {
    /// An empty one, in this buffer while it is small.
    pub fn empty_in(buffer: Vec<u8>) -> Self {
        Self { repr: Repr::Packed(PackedBuf::empty_in(buffer, Form::Compact)) }
    }

    pub(super) fn from_repr(repr: Repr<FieldsTree>) -> Self {
        Self { repr }
    }

    pub(super) fn into_repr(self) -> Repr<FieldsTree> {
        self.repr
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> FieldsRef<'_> {
        match &self.repr {
            Repr::Packed(buf) => FieldsRef::Packed(buf.view()),
            Repr::Tree(tree) => FieldsRef::Tree(tree),
        }
    }

    /// Makes room for so many new fields at once: if they are too many for a compact encoding, it is given up before.
    pub fn expect(&mut self, new: usize, limits: Limits) {
        if new > limits.entries && self.view().form() == Form::Compact {
            self.set_form(Form::Large);
        }
    }

    /// Inserts a field or replaces it with its deadline; answers what was there, live or not.
    pub fn put(&mut self, field: Field<'_>, limits: Limits) -> Before {
        let before = match &mut self.repr {
            Repr::Packed(buf) => match put_packed(buf, &field) {
                Some(before) => before,
                None => {
                    self.grow();
                    return self.put(field, limits);
                }
            },
            Repr::Tree(tree) => tree.put(&field),
        };
        self.reform(&field, limits);
        before
    }

    /// Removes a field that is there at `now_ms`; with `i64::MIN` whatever its deadline. True if there was one.
    pub fn remove(&mut self, name: &[u8], now_ms: i64) -> bool {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let field = |item| Field::read(item);
                let found = buf.view().items().find(|(_, item)| same_bytes(field(item).name, name));
                let found = found.filter(|(_, item)| field(item).is_live(now_ms)).map(|(at, _)| at);
                found.is_some_and(|at| {
                    buf.remove(at);
                    true
                })
            }
            Repr::Tree(tree) => tree.remove(name, now_ms),
        }
    }

    /// Gives a field that is there another deadline, or none.
    pub fn set_expire(&mut self, name: &[u8], expire_at_ms: Option<i64>, limits: Limits) {
        if let Some(field) = self.view().find_any(name) {
            let value = field.value.to_vec();
            self.put(Field { name, value: &value, expire_at_ms }, limits);
        }
    }

    /// Removes fields whose deadline is before `now_ms`, at most `most` of them, and answers their names.
    pub fn remove_due(&mut self, now_ms: i64, most: usize) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        match &mut self.repr {
            Repr::Packed(buf) => {
                while names.len() < most {
                    let mut items = buf.view().items().map(|(at, item)| (at, Field::read(item)));
                    let Some((at, field)) = items.find(|(_, field)| !field.is_live(now_ms)) else { break };
                    names.push(field.name.to_vec());
                    buf.remove(at);
                }
            }
            Repr::Tree(tree) => {
                for (at_ms, hash) in tree.deadlines.first(tree.deadlines.due(now_ms).min(most)) {
                    let mut fields = tree.dict.with_tag(hash).map(Field::read);
                    let field = fields.find(|field| field.expire_at_ms == Some(at_ms));
                    let name = field.expect("a deadline has its field").name.to_vec();
                    drop(fields);
                    tree.remove(&name, i64::MIN);
                    names.push(name);
                }
            }
        }
        names
    }

    /// Keeps the encoding that Valkey would report.
    fn reform(&mut self, field: &Field<'_>, limits: Limits) {
        let (form, len) = (self.view().form(), self.view().len());
        let next = match form {
            Form::Expiring => Form::Expiring,
            _ if field.expire_at_ms.is_some() => Form::Expiring,
            Form::Large => Form::Large,
            _ if len > limits.entries || field.name.len().max(field.value.len()) > limits.value => Form::Large,
            other => other,
        };
        if next != form {
            self.set_form(next);
        }
    }

    fn set_form(&mut self, form: Form) {
        match &mut self.repr {
            Repr::Packed(buf) => buf.set_form(form),
            Repr::Tree(tree) => {
                tree.form = form;
                if form != Form::Compact {
                    tree.order = Vec::new();
                }
            }
        }
    }

    /// From packed to a tree.
    fn grow(&mut self) {
        let form = self.view().form();
        let mut tree = FieldsTree { dict: Dict::default(), form, deadlines: Deadlines::default(), order: Vec::new() };
        if let Repr::Packed(buf) = &self.repr {
            for (_, item) in buf.view().items() {
                tree.put(&Field::read(item));
            }
        }
        self.repr = Repr::Tree(Box::new(tree));
    }
}

/// What was there before a field was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// A field with this deadline, which may be past.
    Field(Option<i64>),
}

impl Before {
    /// Whether there was a field at this time.
    pub fn was_live(self, now_ms: i64) -> bool {
        matches!(self, Self::Field(at_ms) if at_ms.is_none_or(|at_ms| at_ms >= now_ms))
    }

    /// Whether there was one whose time was past.
    pub fn was_past(self, now_ms: i64) -> bool {
        self != Self::Nothing && !self.was_live(now_ms)
    }
}

/// Puts a field into a packed hash; `None`, and no change, if it does not fit.
fn put_packed(buf: &mut PackedBuf, field: &Field<'_>) -> Option<Before> {
    field.with_parts(|parts| {
        let mut items = buf.view().items().map(|(at, item)| (at, item.len(), Field::read(item)));
        let found = items.find(|(_, _, other)| same_bytes(other.name, field.name));
        let found = found.map(|(at, len, other)| (at, len, other.expire_at_ms));
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if !buf.fits(len.saturating_sub(found.map_or(0, |(_, len, _)| len))) {
            return None;
        }
        match found {
            Some((at, _, old_ms)) => {
                buf.replace(at, parts);
                Some(Before::Field(old_ms))
            }
            None => {
                buf.push(parts);
                Some(Before::Nothing)
            }
        }
    })
}

impl FieldsTree {
    fn put(&mut self, field: &Field<'_>) -> Before {
        let place = self.dict.place(field.name);
        let old = self.dict.at(&place).map(|item| Field::read(item).expire_at_ms);
        if old.is_none() {
            self.came_last(place.tag());
        }
        field.with_item(|item| self.dict.put_at(&place, item));
        let old_ms = old.flatten();
        if old_ms != field.expire_at_ms {
            if let Some(at_ms) = old_ms {
                self.deadlines.remove(at_ms, place.tag());
            }
            if let Some(at_ms) = field.expire_at_ms {
                self.deadlines.add(at_ms, place.tag());
            }
        }
        old.map_or(Before::Nothing, Before::Field)
    }

    fn remove(&mut self, name: &[u8], now_ms: i64) -> bool {
        let place = self.dict.place(name);
        let Some(field) = self.dict.at(&place).map(Field::read).filter(|field| field.is_live(now_ms)) else {
            return false;
        };
        if let Some(at_ms) = field.expire_at_ms {
            self.deadlines.remove(at_ms, place.tag());
        }
        if let Some(at) = self.order.iter().position(|tag| *tag == place.tag()) {
            self.order.remove(at);
        }
        self.dict.remove_at(&place)
    }

    /// Notes a field that is about to be added.
    fn came_last(&mut self, tag: u32) {
        // Given up once, the order is not known again.
        if self.form == Form::Compact && self.order.len() == self.dict.len() && self.dict.len() < ORDERED_MAX {
            self.order.push(tag);
        } else {
            self.order = Vec::new();
        }
    }

    /// The items, oldest first, where that order is kept.
    fn in_order(&self) -> Vec<&[u8]> {
        let mut walk = self.dict.walk(0);
        let (mut tags, mut items) = (Vec::with_capacity(self.dict.len()), Vec::with_capacity(self.dict.len()));
        while let Some((tag, item)) = walk.item() {
            tags.push(tag);
            items.push(Some(item));
            walk.next();
        }
        let oldest_first = self.order.iter().map(|tag| {
            let from = lower_bound_evenly(&tags, *tag, |_| {});
            // Of fields with one tag any may come first: each comes once.
            items[from..].iter_mut().find_map(Option::take).expect("each field has its place in the order")
        });
        oldest_first.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const LIMITS: Limits = Limits { entries: 512, value: 64 };

    fn plain<'a>(name: &'a [u8], value: &'a [u8]) -> Field<'a> {
        Field { name, value, expire_at_ms: None }
    }

    /// Small and large alike, across the border between them.
    #[test]
    fn edits_agree_with_a_map() {
        for names in [12_u64, 3000] {
            let mut fields = Fields::empty_in(Vec::new());
            let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)> = BTreeMap::new();
            let mut random = 7_u64;
            for round in 0..30_000_i64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let name = format!("field:{}", (random >> 40) % names).into_bytes();
                let value = vec![b'v'; usize::try_from((random >> 20) % 70).expect("small")];
                if random >> 62 == 0 {
                    assert_eq!(fields.remove(&name, i64::MIN), model.remove(&name).is_some());
                } else if random >> 60 == 4 {
                    let now_ms = round - 50;
                    let mut due: Vec<_> = model
                        .iter()
                        .filter(|(_, (_, at))| at.is_some_and(|at| at < now_ms))
                        .map(|(name, _)| name.clone())
                        .collect();
                    let mut removed = fields.remove_due(now_ms, usize::MAX);
                    removed.sort();
                    due.sort();
                    due.iter().for_each(|name| drop(model.remove(name)));
                    assert_eq!(removed, due);
                } else {
                    let expire_at_ms = (random >> 61 == 7).then_some(round);
                    let before = fields.put(Field { name: &name, value: &value, expire_at_ms }, LIMITS);
                    let old = model.insert(name, (value, expire_at_ms));
                    assert_eq!(before, old.map_or(Before::Nothing, |(_, at)| Before::Field(at)));
                }
                let live = model.values().filter(|(_, at)| at.is_none_or(|at| at >= round - 20)).count();
                assert_eq!((fields.view().len(), fields.view().live_len(round - 20)), (model.len(), live));
            }
            for number in 0..names {
                let name = format!("field:{number}").into_bytes();
                let expected = model.get(&name).filter(|(_, at)| at.is_none_or(|at| at >= 29_000));
                let found = fields.view().find(&name, 29_000);
                assert_eq!(found.map(|f| (f.value, f.expire_at_ms)), expected.map(|(v, at)| (v.as_slice(), *at)));
            }
            assert_eq!(fields.view().deadline_ms(), model.values().filter_map(|(_, at)| *at).min());
        }
    }

    /// A hash of long values, which its thresholds let be compact, gave its fields in the order of their hashes: HGETALL of what Redis
    /// has as a listpack gives them in the order in which they came.
    #[test]
    fn a_compact_hash_keeps_the_order_of_its_fields() {
        let limits = Limits { entries: 600, value: 10_000 };
        let mut fields = Fields::empty_in(Vec::new());
        let mut model: Vec<Vec<u8>> = Vec::new();
        for number in 0..600_u32 {
            let name = format!("field{}", number.wrapping_mul(2_654_435_761) % 1000).into_bytes();
            let value = vec![b'v'; usize::try_from(number % 97).expect("small")];
            if fields.put(plain(&name, &value), limits) == Before::Nothing {
                model.push(name);
            }
            if number % 5 == 3 {
                let gone = model.remove(usize::try_from(number).expect("small") * 7 % model.len());
                assert!(fields.remove(&gone, 0));
            }
            assert_eq!(fields.view().form(), Form::Compact);
            let names: Vec<_> = fields.view().iter(0).map(|field| field.name.to_vec()).collect();
            assert_eq!(names, model, "after {number}");
        }
        assert!(matches!(fields.view(), FieldsRef::Tree(_)));
        let half = model.len() / 2;
        let tail: Vec<_> = fields.view().iter_from(half).map(|field| field.name.to_vec()).collect();
        assert_eq!(tail, model[half..]);
        let mut scanned = Vec::new();
        assert_eq!(fields.view().scan(0, 10, |field| scanned.push(field.name.to_vec())), 0, "visited whole");
        assert_eq!(scanned, model);
        let shared = fields.clone();
        // Beyond a threshold the order is that of the hashes.
        fields.put(plain(b"long", &[b'x'; 10_001]), limits);
        assert_eq!((fields.view().form(), fields.view().len()), (Form::Large, model.len() + 1));
        assert_eq!(fields.view().iter(0).count(), model.len() + 1);
        assert!(shared.view().iter(0).map(|field| field.name.to_vec()).eq(model));
    }

    /// With thresholds beyond reason the order is given up, not the shortness of a copy; no field is lost by it.
    #[test]
    fn the_order_of_very_many_fields_is_not_kept() {
        let limits = Limits { entries: usize::MAX, value: usize::MAX };
        let mut fields = Fields::empty_in(Vec::new());
        for number in 0..=ORDERED_MAX {
            assert_eq!(fields.view().iter(0).count(), number);
            fields.put(plain(number.to_string().as_bytes(), b"value"), limits);
        }
        fields.remove(b"5", 0);
        fields.put(plain(b"again", b"value"), limits);
        assert_eq!((fields.view().form(), fields.view().iter(0).count()), (Form::Compact, ORDERED_MAX + 1));
        let mut found: Vec<_> = fields.view().iter(0).map(|field| field.name.to_vec()).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), ORDERED_MAX + 1);
    }

    #[test]
    fn the_reported_encoding_follows_the_thresholds() {
        let mut fields = Fields::empty_in(Vec::new());
        fields.put(plain(b"a", b"1"), LIMITS);
        assert_eq!(fields.view().form(), Form::Compact);
        fields.put(Field { name: b"b", value: b"1", expire_at_ms: Some(5) }, LIMITS);
        assert_eq!(fields.view().form(), Form::Expiring);
        fields.put(plain(b"c", &[b'x'; 65]), LIMITS);
        assert_eq!(fields.view().form(), Form::Expiring, "what can expire is never said to be without deadlines");
        let mut long = Fields::empty_in(Vec::new());
        long.put(plain(b"c", &[b'x'; 65]), LIMITS);
        assert_eq!(long.view().form(), Form::Large);
        let mut many = Fields::empty_in(Vec::new());
        for number in 0..=512_u32 {
            assert_eq!(many.view().form(), Form::Compact, "{number}");
            many.put(plain(number.to_string().as_bytes(), b"value"), LIMITS);
        }
        assert_eq!(many.view().form(), Form::Large);
        assert!(matches!(many.view(), FieldsRef::Tree(_)));
    }
}
