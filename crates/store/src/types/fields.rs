//! A hash: fields with values, some of which expire.
//!
//! An item is `field length << 1 | expires (varint) | field | deadline i64, if it expires | value`, packed and in a tree alike. A
//! field whose time is past is not there for readers ([`FieldsRef`] is made for a moment); it is removed by the next edit or by
//! active expiry.

use super::dict::{Dict, Keyed};
use super::packed::{Packed, PackedBuf};
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
    /// No field expires before this; `i64::MAX` if none does. May be too early after removals.
    deadline_ms: i64,
    /// Fields that expire.
    volatile: usize,
}

impl FieldsTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.dict.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.dict.free_cost()
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

    /// Writes an item.
    fn write(&self, to: &mut Vec<u8>) {
        to.clear();
        let mut head = self.name.len() << 1 | usize::from(self.expire_at_ms.is_some());
        while head >= 0x80 {
            to.push(u8::try_from(head & 0x7F).expect("7 bits") | 0x80);
            head >>= 7;
        }
        to.push(u8::try_from(head).expect("7 bits"));
        to.extend_from_slice(self.name);
        if let Some(at_ms) = self.expire_at_ms {
            to.extend_from_slice(&at_ms.to_le_bytes());
        }
        to.extend_from_slice(self.value);
    }

    fn is_live(&self, now_ms: i64) -> bool {
        self.expire_at_ms.is_none_or(|at_ms| at_ms > now_ms)
    }
}

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

    /// What OBJECT ENCODING should call it.
    pub fn form(self) -> Form {
        match self {
            Self::Packed(packed) => packed.form(),
            Self::Tree(tree) => tree.form,
        }
    }

    /// The field of this name, if its time is not past at `now_ms`.
    #[inline]
    pub fn find(self, name: &[u8], now_ms: i64) -> Option<Field<'a>> {
        let field = match self {
            Self::Packed(packed) => {
                packed.items().map(|(_, item)| Field::read(item)).find(|field| field.name == name)?
            }
            Self::Tree(tree) => Field::read(tree.dict.find(name)?),
        };
        field.is_live(now_ms).then_some(field)
    }

    /// The fields from number `rank` on, those whose time is past included.
    pub fn iter_from(self, rank: usize) -> impl Iterator<Item = Field<'a>> {
        let (packed, tree) = match self {
            Self::Packed(packed) => (Some(packed.items().skip(rank)), None),
            Self::Tree(tree) => (None, Some(tree.dict.iter_from(rank))),
        };
        let packed = packed.into_iter().flatten().map(|(_, item)| item);
        packed.chain(tree.into_iter().flatten()).map(Field::read)
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

    /// Visits fields from a cursor on; see [`Dict::scan`]. A small hash is visited whole.
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(Field<'a>)) -> u64 {
        match self {
            Self::Packed(packed) => {
                packed.items().for_each(|(_, item)| visit(Field::read(item)));
                0
            }
            Self::Tree(tree) => tree.dict.scan(cursor, count, |item| visit(Field::read(item))),
        }
    }

    /// No field expires before this; `i64::MAX` if none does.
    pub fn deadline_ms(self) -> i64 {
        match self {
            Self::Packed(packed) if packed.form() == Form::Compact => i64::MAX,
            Self::Packed(packed) => {
                let deadlines = packed.items().filter_map(|(_, item)| Field::read(item).expire_at_ms);
                deadlines.min().unwrap_or(i64::MAX)
            }
            Self::Tree(tree) => tree.deadline_ms,
        }
    }
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

    /// Inserts a field or replaces it with its deadline; true if there was none of this name.
    pub fn put(&mut self, field: Field<'_>, limits: Limits) -> bool {
        let mut item = Vec::new();
        field.write(&mut item);
        if let Repr::Packed(buf) = &mut self.repr {
            let found = buf.view().items().find(|(_, item)| Field::read(item).name == field.name);
            let found = found.map(|(at, item)| (at, item.len()));
            let old_len = found.map_or(0, |(_, len)| len);
            if buf.fits(item.len().saturating_sub(old_len)) {
                match found {
                    Some((at, _)) => buf.replace(at, &[&item]),
                    None => buf.push(&[&item]),
                }
                let new = found.is_none();
                self.reform(&field, limits);
                return new;
            }
            self.grow();
        }
        let Repr::Tree(tree) = &mut self.repr else { unreachable!("it was made large") };
        if tree.volatile > 0
            && let Some(old) = tree.dict.find(field.name)
        {
            tree.volatile -= usize::from(Field::read(old).expire_at_ms.is_some());
        }
        let new = tree.dict.put(&item);
        if let Some(at_ms) = field.expire_at_ms {
            tree.volatile += 1;
            tree.deadline_ms = tree.deadline_ms.min(at_ms);
        }
        self.reform(&field, limits);
        new
    }

    /// Removes a field; true if it was there, live or not.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let found = buf.view().items().find(|(_, item)| Field::read(item).name == name).map(|(at, _)| at);
                found.is_some_and(|at| {
                    buf.remove(at);
                    true
                })
            }
            Repr::Tree(tree) => {
                if tree.volatile > 0
                    && let Some(old) = tree.dict.find(name)
                    && Field::read(old).expire_at_ms.is_some()
                {
                    tree.volatile -= 1;
                }
                tree.dict.remove(name)
            }
        }
    }

    /// Keeps the encoding that Redis would report.
    fn reform(&mut self, field: &Field<'_>, limits: Limits) {
        let (form, len) = (self.view().form(), self.view().len());
        let longest = field.name.len().max(field.value.len());
        let next = match form {
            Form::Large => Form::Large,
            _ if len > limits.entries || longest > limits.value => Form::Large,
            _ if field.expire_at_ms.is_some() => Form::Expiring,
            other => other,
        };
        if next != form {
            match &mut self.repr {
                Repr::Packed(buf) => buf.set_form(next),
                Repr::Tree(tree) => tree.form = next,
            }
        }
    }

    /// From packed to a tree.
    fn grow(&mut self) {
        let view = self.view();
        let mut tree =
            FieldsTree { dict: Dict::default(), form: view.form(), deadline_ms: view.deadline_ms(), volatile: 0 };
        if let Repr::Packed(buf) = &self.repr {
            for (_, item) in buf.view().items() {
                tree.dict.put(item);
                tree.volatile += usize::from(Field::read(item).expire_at_ms.is_some());
            }
        }
        self.repr = Repr::Tree(Box::new(tree));
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
                    assert_eq!(fields.remove(&name), model.remove(&name).is_some());
                } else {
                    let expire_at_ms = (random >> 61 == 7).then_some(round);
                    let new = fields.put(Field { name: &name, value: &value, expire_at_ms }, LIMITS);
                    assert_eq!(new, model.insert(name, (value, expire_at_ms)).is_none());
                }
                assert_eq!(fields.view().len(), model.len());
            }
            for number in 0..names {
                let name = format!("field:{number}").into_bytes();
                let expected = model.get(&name).filter(|(_, at)| at.is_none_or(|at| at > 29_000));
                let found = fields.view().find(&name, 29_000);
                assert_eq!(found.map(|f| (f.value, f.expire_at_ms)), expected.map(|(v, at)| (v.as_slice(), *at)));
            }
            let earliest = model.values().filter_map(|(_, at)| *at).min().unwrap_or(i64::MAX);
            assert!(fields.view().deadline_ms() <= earliest);
        }
    }

    #[test]
    fn the_reported_encoding_follows_the_thresholds() {
        let mut fields = Fields::empty_in(Vec::new());
        fields.put(plain(b"a", b"1"), LIMITS);
        assert_eq!(fields.view().form(), Form::Compact);
        fields.put(Field { name: b"b", value: b"1", expire_at_ms: Some(5) }, LIMITS);
        assert_eq!(fields.view().form(), Form::Expiring);
        fields.put(plain(b"c", &[b'x'; 65]), LIMITS);
        assert_eq!(fields.view().form(), Form::Large);
        let mut many = Fields::empty_in(Vec::new());
        for number in 0..=512_u32 {
            assert_eq!(many.view().form(), Form::Compact, "{number}");
            many.put(plain(number.to_string().as_bytes(), b"value"), LIMITS);
        }
        assert_eq!(many.view().form(), Form::Large);
        assert!(matches!(many.view(), FieldsRef::Tree(_)));
    }
}
