//! A decoded value as plain data: for tools and tests, and for values that are small anyway.

use crate::encode::Encoder;
use crate::sink::{Kind, Refusal, Sink, Taken};
use crate::stream::{Fields, Group, StreamId, StreamMeta};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A value. Members and fields are in the order of their bytes, whatever that of the data.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A string.
    String(Vec<u8>),
    /// A list.
    List(Vec<Vec<u8>>),
    /// A set.
    Set(BTreeSet<Vec<u8>>),
    /// A sorted set.
    SortedSet(BTreeMap<Vec<u8>, f64>),
    /// A hash: value and expiry of each field.
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>),
    /// A stream.
    Stream(Stream),
}

/// Fields and values of a stream's entry.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Its entries, ids ascending.
    pub entries: Vec<(StreamId, Pairs)>,
    /// What it knows beside them.
    pub meta: StreamMeta,
    /// Its consumer groups.
    pub groups: Vec<Group>,
}

impl Object {
    /// Writes it.
    pub fn encode<W: Write>(&self, to: Encoder<'_, W>) -> io::Result<()> {
        match self {
            Object::String(text) => to.string(text),
            Object::List(items) => to.list(items.len(), items),
            Object::Set(members) => to.set(members.len(), members),
            Object::SortedSet(members) => {
                let mut sorted: Vec<(&Vec<u8>, f64)> = members.iter().map(|(member, score)| (member, *score)).collect();
                // Members are in order already, and the sort is stable. Scores are never NaN; 0 and -0 are equal.
                sorted.sort_by(|(_, one), (_, other)| one.partial_cmp(other).unwrap_or(Ordering::Equal));
                to.sorted_set(sorted.len(), sorted.iter().copied())
            }
            Object::Hash(fields) if fields.values().any(|(_, at)| at.is_some()) => {
                to.hash_with_expiries(fields.len(), fields.iter().map(|(field, (value, at))| (field, value, *at)))
            }
            Object::Hash(fields) => to.hash(fields.len(), fields.iter().map(|(field, (value, _))| (field, value))),
            Object::Stream(Stream { entries, meta, groups }) => {
                let entries =
                    entries.iter().map(|(id, pairs)| (*id, pairs.iter().map(|(field, value)| (field, value))));
                to.stream(meta, entries, groups)
            }
        }
    }
}

/// Collects an [`Object`].
#[derive(Debug, Default)]
pub struct Collect {
    object: Option<Object>,
}

impl Collect {
    /// What was collected; `None` before a value was begun.
    pub fn finish(self) -> Option<Object> {
        self.object
    }
}

impl Sink for Collect {
    fn begin(&mut self, kind: Kind, _len: Option<u64>) -> Taken {
        self.object = Some(match kind {
            Kind::String => Object::String(Vec::new()),
            Kind::List => Object::List(Vec::new()),
            Kind::Set => Object::Set(BTreeSet::new()),
            Kind::SortedSet => Object::SortedSet(BTreeMap::new()),
            Kind::Hash => Object::Hash(BTreeMap::new()),
            Kind::Stream => Object::Stream(Stream::default()),
        });
        Ok(())
    }

    fn string(&mut self, part: &[u8], _rest: u64) -> Taken {
        let Some(Object::String(text)) = &mut self.object else { return Err(MISPLACED) };
        text.extend_from_slice(part);
        Ok(())
    }

    fn list_item(&mut self, item: &[u8]) -> Taken {
        let Some(Object::List(items)) = &mut self.object else { return Err(MISPLACED) };
        items.push(item.to_vec());
        Ok(())
    }

    fn set_member(&mut self, member: &[u8]) -> Taken {
        let Some(Object::Set(members)) = &mut self.object else { return Err(MISPLACED) };
        if members.insert(member.to_vec()) { Ok(()) } else { Err(Refusal::Duplicate) }
    }

    fn sorted_set_member(&mut self, member: &[u8], score: f64) -> Taken {
        let Some(Object::SortedSet(members)) = &mut self.object else { return Err(MISPLACED) };
        if members.insert(member.to_vec(), score).is_none() { Ok(()) } else { Err(Refusal::Duplicate) }
    }

    fn hash_field(&mut self, field: &[u8], value: &[u8], expire_at_ms: Option<u64>) -> Taken {
        let Some(Object::Hash(fields)) = &mut self.object else { return Err(MISPLACED) };
        let before = fields.insert(field.to_vec(), (value.to_vec(), expire_at_ms));
        if before.is_none() { Ok(()) } else { Err(Refusal::Duplicate) }
    }

    fn stream_entry(&mut self, id: StreamId, fields: &Fields) -> Taken {
        let Some(Object::Stream(stream)) = &mut self.object else { return Err(MISPLACED) };
        let pairs = fields.iter().map(|(field, value)| (field.to_vec(), value.to_vec()));
        stream.entries.push((id, pairs.collect()));
        Ok(())
    }

    fn stream_meta(&mut self, meta: &StreamMeta) -> Taken {
        let Some(Object::Stream(stream)) = &mut self.object else { return Err(MISPLACED) };
        stream.meta = *meta;
        Ok(())
    }

    fn stream_group(&mut self, group: Group) -> Taken {
        let Some(Object::Stream(stream)) = &mut self.object else { return Err(MISPLACED) };
        stream.groups.push(group);
        Ok(())
    }
}

const MISPLACED: Refusal = Refusal::Other("element of another type than was begun");
