//! From a value to its payload: small values at once, large ones in slices.
//!
//! A large value is held by its root, which costs nothing to take, and written without any lock. Its payload is made in
//! extents, so that it never has to be moved while it grows, and the reply refers to them.

use super::stream::{self, id, pairs};
use crate::config::Config;
use gimmal_rdb::{Encoder, Group, ListNodes, Options, Pieces, StreamNodes};
use gimmal_store::types::{FieldsRef, Form, Stream};
use gimmal_store::{Entry, OwnedEntry, Rope, StringRef, ValueRef};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Values that take so many bytes of memory are written under the lock: some ten µs.
const AT_ONCE: usize = 16 * 1024;
/// Elements, or extents of a string, between two looks at the clock.
const STEP: usize = 16;
/// Bytes of a payload between two looks at the clock.
const STEP_BYTES: usize = 64 * 1024;
/// Most elements that one listpack is given, whatever the thresholds.
const LISTPACK_ENTRIES: usize = 1024;

/// How values are written under a configuration.
pub fn options(config: &Config) -> Options {
    Options {
        compress: config.rdbcompression(),
        list_max_listpack_size: config.list_max_listpack_size(),
        hash_max_listpack_entries: config.hash_max_listpack_entries().min(LISTPACK_ENTRIES),
        hash_max_listpack_value: config.hash_max_listpack_value(),
        set_max_intset_entries: config.set_max_intset_entries(),
        zset_max_listpack_entries: config.zset_max_listpack_entries().min(LISTPACK_ENTRIES),
        zset_max_listpack_value: config.zset_max_listpack_value(),
        stream_node_max_entries: config.stream_node_max_entries(),
        ..Options::default()
    }
}

/// A payload, or what is needed to make one.
pub enum Written {
    /// The whole payload.
    Payload(Vec<u8>),
    /// A large value, to be written in slices.
    Large(Large),
}

/// The payload of an entry's value, or its root if that would take long.
pub fn written(entry: &Entry<'_>, options: Options) -> Written {
    match entry.memory_bytes() <= AT_ONCE {
        true => Written::Payload(whole(entry.value(), &options)),
        false => Written::Large(Large::new(entry.copied(entry.clock()), options)),
    }
}

/// The payload of a value, made at once.
pub fn whole(value: ValueRef<'_>, options: &Options) -> Vec<u8> {
    gimmal_rdb::dump(options, |to| encode(value, to)).expect(COMPLETE)
}

/// A vector takes everything, and the store counts its elements.
const COMPLETE: &str = "a value has as many elements as it says";

/// Writes a value at once.
///
/// # Errors
/// Those of the writer.
pub fn encode<W: Write>(value: ValueRef<'_>, to: Encoder<'_, W>) -> io::Result<()> {
    match value {
        ValueRef::String(StringRef::Int(n)) => to.string(itoa::Buffer::new().format(n).as_bytes()),
        ValueRef::String(StringRef::Bytes(bytes)) => to.string(bytes),
        ValueRef::String(StringRef::Rope(rope)) => match rope.as_single() {
            Some(bytes) => to.string(bytes),
            None => to.string_parts(rope.len() as u64, rope.extents().map(|extent| extent.as_slice())),
        },
        ValueRef::List(list) => {
            let items: Vec<&[u8]> = list.iter().collect();
            to.list(items.len(), items.iter())
        }
        ValueRef::Hash(fields) if expires(fields) => {
            let fields = fields.iter_from(0);
            let at_ms = |at_ms: Option<i64>| at_ms.and_then(|at_ms| u64::try_from(at_ms).ok());
            let fields: Vec<_> = fields.map(|field| (field.name, field.value, at_ms(field.expire_at_ms))).collect();
            to.hash_with_expiries(fields.len(), fields.iter().copied())
        }
        ValueRef::Hash(fields) => {
            let fields: Vec<_> = fields.iter_from(0).map(|field| (field.name, field.value)).collect();
            to.hash(fields.len(), fields.iter().copied())
        }
        ValueRef::SortedSet(set) => {
            let members: Vec<_> = set.iter().map(|found| (found.member, found.score)).collect();
            to.sorted_set(members.len(), members.iter().copied())
        }
        ValueRef::Set(set) => {
            let members: Vec<&[u8]> = set.iter().collect();
            to.set(members.len(), members.iter())
        }
        ValueRef::Stream(value) => {
            let entries: Vec<_> = value.entries().iter_from(0).map(|entry| (id(entry.id), pairs(&entry))).collect();
            let groups: Vec<Group> = value.groups().map(|(name, group)| stream::group(name, group)).collect();
            let entries = entries.iter().map(|(id, pairs)| (*id, pairs.iter().map(|(field, value)| (field, value))));
            to.stream(&stream::meta(value), entries, &groups)
        }
    }
}

/// Whether a hash has fields that expire.
fn expires(fields: FieldsRef<'_>) -> bool {
    fields.form() == Form::Expiring && fields.deadline_ms().is_some()
}

/// Writes a large value at once, piece by piece: first the byte of its type, then what follows the key.
///
/// # Errors
/// Those of the writer.
pub fn encode_large(
    value: ValueRef<'_>,
    options: &Options,
    begin: impl FnOnce(u8) -> io::Result<()>,
    mut piece: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut work = Work::begin(value, options);
    while let Work::Counting(..) | Work::CountingEntries(..) = work {
        work.count(value, options);
    }
    let Work::Writing(mut pieces, mut from) = work else { unreachable!("what was counted is written") };
    begin(pieces.take_tag())?;
    loop {
        let count = write(value, &mut pieces, from)?;
        from += count;
        if count == 0 {
            pieces.finish_value()?;
        }
        let mut taken = Ok(());
        pieces.take(|bytes| taken = piece(bytes));
        taken?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// Whether a value takes so much memory that it is written in pieces.
pub fn is_large(entry: &Entry<'_>) -> bool {
    entry.memory_bytes() > AT_ONCE
}

/// The payload of a large value that is being made.
pub struct Large {
    value: OwnedEntry,
    options: Options,
    work: Work,
    payload: Rope,
}

enum Work {
    /// The nodes of a list are counted from this item on.
    Counting(ListNodes, usize),
    /// Those of a stream are, from this entry on.
    CountingEntries(StreamNodes, usize),
    /// Elements, or extents of a string, are written from this one on.
    Writing(Box<Pieces>, usize),
    /// The payload is complete.
    Finished,
}

impl Work {
    /// What is to be done first for a value.
    fn begin(value: ValueRef<'_>, options: &Options) -> Work {
        let elements = |len: usize| len as u64;
        let pieces = match value {
            ValueRef::String(StringRef::Rope(rope)) => Pieces::string(options, rope.len() as u64),
            ValueRef::Hash(fields) if expires(fields) => Pieces::hash_with_expiries(options, elements(fields.len())),
            ValueRef::Hash(fields) => Pieces::hash(options, elements(fields.len())),
            ValueRef::List(_) => return Work::Counting(ListNodes::new(options), 0),
            ValueRef::SortedSet(set) => Pieces::sorted_set(options, elements(set.len())),
            ValueRef::Set(set) => Pieces::set(options, elements(set.len())),
            ValueRef::Stream(_) => return Work::CountingEntries(StreamNodes::new(options), 0),
            ValueRef::String(_) => unreachable!("a short string is not large"),
        };
        Work::Writing(Box::new(pieces.expect(COMPLETE)), 0)
    }

    /// Counts some more of what is announced before the first element.
    fn count(&mut self, value: ValueRef<'_>, options: &Options) {
        match (&mut *self, value) {
            (Work::Counting(nodes, from), ValueRef::List(list)) => {
                let before = *from;
                for item in list.iter_from(before).take(STEP * STEP) {
                    nodes.add(item.len());
                    *from += 1;
                }
                if *from == before {
                    *self = Work::Writing(Box::new(Pieces::list(options, nodes).expect(COMPLETE)), 0);
                }
            }
            (Work::CountingEntries(nodes, from), ValueRef::Stream(stream)) => {
                let before = *from;
                for entry in stream.entries().iter_from(before).take(STEP * STEP) {
                    nodes.add(entry.fields());
                    *from += 1;
                }
                if *from == before {
                    *self = Work::Writing(Box::new(Pieces::stream(options, nodes).expect(COMPLETE)), 0);
                }
            }
            _ => unreachable!("only the nodes of lists and streams are counted"),
        }
    }
}

impl Large {
    fn new(value: OwnedEntry, options: Options) -> Large {
        let work = Work::begin(value.value(), &options);
        Large { value, options, work, payload: Rope::default() }
    }

    /// Goes on for about so long. True when the payload is complete.
    pub fn step(&mut self, slice: Duration) -> bool {
        let started = Instant::now();
        while !matches!(self.work, Work::Finished) && started.elapsed() < slice {
            self.advance();
        }
        matches!(self.work, Work::Finished)
    }

    /// The payload.
    ///
    /// # Panics
    /// If it is not complete.
    pub fn payload(&self) -> &Rope {
        assert!(matches!(self.work, Work::Finished), "a payload was taken before it was complete");
        &self.payload
    }

    /// The value, which somebody may have to free.
    pub fn into_value(self) -> OwnedEntry {
        self.value
    }

    fn advance(&mut self) {
        let Large { value, options, work, payload } = self;
        match work {
            Work::Counting(..) | Work::CountingEntries(..) => work.count(value.value(), options),
            Work::Writing(pieces, from) => {
                let count = write(value.value(), pieces, *from).expect(COMPLETE);
                *from += count;
                if count == 0 {
                    pieces.finish().expect(COMPLETE);
                }
                pieces.take(|bytes| payload.append(bytes));
                if count == 0 {
                    *work = Work::Finished;
                }
            }
            Work::Finished => {}
        }
    }
}

/// Writes some elements from number `from` on; how many, 0 at the end.
fn write(value: ValueRef<'_>, to: &mut Pieces, from: usize) -> io::Result<usize> {
    let mut count = 0;
    // What is written is looked at before the next element is: one may be very long.
    macro_rules! each {
        ($elements:expr, |$element:pat_param| $write:expr) => {
            for $element in $elements.take(STEP) {
                $write;
                count += 1;
                if to.untaken() >= STEP_BYTES {
                    break;
                }
            }
        };
    }
    match value {
        ValueRef::String(StringRef::Rope(rope)) => each!(rope.extents().skip(from).take(1), |extent| to.bytes(extent)),
        ValueRef::List(list) => each!(list.iter_from(from), |item| to.item(item)?),
        ValueRef::Hash(fields) if expires(fields) => {
            each!(fields.iter_from(from), |field| to.expiring(field.name, field.value, field.expire_at_ms)?);
        }
        ValueRef::Hash(fields) => each!(fields.iter_from(from), |field| to.field(field.name, field.value)?),
        ValueRef::SortedSet(set) => {
            each!(set.range(from..from + STEP, false), |found| to.scored(found.member, found.score)?);
        }
        ValueRef::Set(set) => each!(set.iter_from(from), |member| to.member(member)?),
        ValueRef::Stream(stream) if from < stream.len() => {
            each!(stream.entries().iter_from(from), |entry| to.entry(id(entry.id), pairs(&entry))?);
        }
        ValueRef::Stream(stream) => return write_groups(stream, to, from - stream.len()),
        ValueRef::String(_) => unreachable!("a short string is not large"),
    }
    Ok(count)
}

/// Writes what follows a stream's entries: number 0 is what it knows beside them, then each group.
fn write_groups(value: &Stream, to: &mut Pieces, from: usize) -> io::Result<usize> {
    match from.checked_sub(1) {
        None => to.stream_meta(&stream::meta(value), value.groups_len() as u64)?,
        Some(number) => match value.groups().nth(number) {
            Some((name, group)) => to.group(&stream::group(name, group))?,
            None => return Ok(0),
        },
    }
    Ok(1)
}
