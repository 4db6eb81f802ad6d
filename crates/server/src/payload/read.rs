//! From a payload to a value: elements go into it as they are read.
//!
//! The value has the encoding that Redis gives it when it loads the payload: each type's own limits decide, not the form
//! that the payload has.

use super::stream::{read_group, read_id};
use crate::config::Config;
use crate::exec::{ReplyError, error};
use gimmal_rdb::{Group, Kind, Refusal, Sink, StreamId, StreamMeta, Taken};
use gimmal_store::types::{self, Aggregate, Before, End, Field, Fields, List, NodeLimit, Set, SetLimits, SortedSet};
use gimmal_store::{INLINE_MAX, Rope};

/// Up to where values have a compact encoding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    list: NodeLimit,
    hash: types::Limits,
    set: SetLimits,
    sorted_set: types::Limits,
}

impl Limits {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Limits {
        Limits {
            list: NodeLimit::of(config.list_max_listpack_size()),
            hash: types::Limits {
                entries: config.hash_max_listpack_entries(),
                value: config.hash_max_listpack_value(),
            },
            set: SetLimits {
                integers: config.set_max_intset_entries(),
                entries: config.set_max_listpack_entries(),
                value: config.set_max_listpack_value(),
            },
            sorted_set: types::Limits {
                entries: config.zset_max_listpack_entries(),
                value: config.zset_max_listpack_value(),
            },
        }
    }
}

/// A value on its way into the keyspace.
#[derive(Debug)]
pub enum Built {
    /// A string in one piece.
    Text(Vec<u8>),
    /// A long string.
    Rope(Rope),
    /// Anything else.
    Aggregate(Aggregate),
}

impl Built {
    /// Whether it is a hash of which no field was left.
    pub fn is_void(&self) -> bool {
        matches!(self, Built::Aggregate(Aggregate::Hash(fields)) if fields.view().is_empty())
    }
}

/// The value that a payload carries.
///
/// # Errors
/// Redis's text: one for a payload that is not whole, one for a value that is malformed.
pub fn built(payload: &[u8], limits: Limits) -> Result<Built, ReplyError> {
    let payload = gimmal_rdb::verify(payload).map_err(|_| error("ERR DUMP payload version or checksum are wrong"))?;
    let mut build = Build::new(limits);
    payload.decode(&mut build).map_err(|_| BAD_DATA)?;
    build.finish().ok_or(BAD_DATA)
}

const BAD_DATA: ReplyError = error("ERR Bad data format");

/// What a decoder gives its elements to.
pub struct Build {
    limits: Limits,
    /// Elements that the payload declares.
    len: usize,
    /// Fields that expire before are left out.
    alive_ms: i64,
    value: Option<Built>,
}

impl Build {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Build {
        Build { limits, len: 0, alive_ms: i64::MIN, value: None }
    }

    /// Leaves out fields that expire before this, in ms.
    pub fn without_expired(self, alive_ms: i64) -> Build {
        Build { alive_ms, ..self }
    }

    /// The value, if one was decoded.
    pub fn finish(self) -> Option<Built> {
        self.value
    }

    fn aggregate(&mut self) -> Option<&mut Aggregate> {
        match &mut self.value {
            Some(Built::Aggregate(value)) => Some(value),
            _ => None,
        }
    }
}

/// The decoder gives only elements of the type that it has begun.
const MISPLACED: Refusal = Refusal::Other("element of another type than was begun");

impl Sink for Build {
    fn begin(&mut self, kind: Kind, len: Option<u64>) -> Taken {
        let len = len.map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX));
        self.len = len;
        self.value = Some(match kind {
            Kind::String if len > INLINE_MAX => Built::Rope(Rope::default()),
            Kind::String => Built::Text(Vec::with_capacity(len)),
            Kind::List => Built::Aggregate(Aggregate::List(List::empty_in(Vec::new()))),
            Kind::Hash => {
                let mut fields = Fields::empty_in(Vec::new());
                fields.expect(len, self.limits.hash);
                Built::Aggregate(Aggregate::Hash(fields))
            }
            Kind::SortedSet => {
                let mut members = SortedSet::empty_in(Vec::new());
                members.expect(len, 0, self.limits.sorted_set);
                Built::Aggregate(Aggregate::SortedSet(members))
            }
            // Whether it is one of integers, its first member tells.
            Kind::Set => Built::Aggregate(Aggregate::Set(Set::empty_in(Vec::new()))),
            Kind::Stream => Built::Aggregate(Aggregate::Stream(Box::default())),
        });
        Ok(())
    }

    fn string(&mut self, part: &[u8], _rest: u64) -> Taken {
        match &mut self.value {
            Some(Built::Text(text)) => text.extend_from_slice(part),
            Some(Built::Rope(rope)) => rope.append(part),
            _ => return Err(MISPLACED),
        }
        Ok(())
    }

    fn list_item(&mut self, item: &[u8]) -> Taken {
        let limit = self.limits.list;
        let Some(Aggregate::List(list)) = self.aggregate() else { return Err(MISPLACED) };
        list.expect(1, item.len(), limit);
        list.push(End::Tail, item);
        Ok(())
    }

    fn set_member(&mut self, member: &[u8]) -> Taken {
        let (limits, len) = (self.limits.set, self.len);
        let Some(Aggregate::Set(members)) = self.aggregate() else { return Err(MISPLACED) };
        if members.view().is_empty() {
            members.expect(member, len, limits);
        }
        match members.add(member, limits) {
            true => Ok(()),
            false => Err(Refusal::Duplicate),
        }
    }

    fn sorted_set_member(&mut self, member: &[u8], score: f64) -> Taken {
        let limits = self.limits.sorted_set;
        let Some(Aggregate::SortedSet(members)) = self.aggregate() else { return Err(MISPLACED) };
        match members.put(member, score, limits) {
            None => Ok(()),
            Some(_) => Err(Refusal::Duplicate),
        }
    }

    fn hash_field(&mut self, name: &[u8], value: &[u8], expire_at_ms: Option<u64>) -> Taken {
        let (limits, alive_ms) = (self.limits.hash, self.alive_ms);
        let Some(Aggregate::Hash(fields)) = self.aggregate() else { return Err(MISPLACED) };
        // Beyond what a signed number holds is never.
        let expire_at_ms = expire_at_ms.map(|at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX));
        if expire_at_ms.is_some_and(|at_ms| at_ms < alive_ms) {
            return Ok(());
        }
        match fields.put(Field { name, value, expire_at_ms }, limits) {
            Before::Nothing => Ok(()),
            Before::Field(_) => Err(Refusal::Duplicate),
        }
    }

    fn stream_entry(&mut self, id: StreamId, fields: &gimmal_rdb::Fields) -> Taken {
        let Some(Aggregate::Stream(stream)) = self.aggregate() else { return Err(MISPLACED) };
        stream.append(read_id(id), fields.iter());
        Ok(())
    }

    fn stream_meta(&mut self, meta: &StreamMeta) -> Taken {
        let Some(Aggregate::Stream(stream)) = self.aggregate() else { return Err(MISPLACED) };
        stream.set_last_id(read_id(meta.last_id));
        stream.set_max_deleted_id(read_id(meta.max_deleted_id));
        stream.set_entries_added(meta.entries_added);
        Ok(())
    }

    fn stream_group(&mut self, group: Group) -> Taken {
        let Some(Aggregate::Stream(stream)) = self.aggregate() else { return Err(MISPLACED) };
        match stream.create_group(&group.name, read_group(&group)) {
            true => Ok(()),
            false => Err(Refusal::Duplicate),
        }
    }
}
