//! Streams: what they consist of, and how their data is read.
//!
//! A node is a listpack: a master entry (`count | deleted | number of fields | fields … | 0`), then entries
//! (`flags | id as two differences to the node's | fields and values, or values alone | number of elements`).

use crate::error::{Error, ErrorKind, Flaw, Result};
use crate::listpack::{Element, Listpack};
use crate::primitive::{array, corrupt, length, string, string_into};
use crate::sink::Sink;
use crate::source::Source;
use crate::tag;
use std::collections::HashSet;

/// The id of an entry, `ms-seq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Unix time in milliseconds.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    pub(crate) fn from_be_bytes(bytes: [u8; 16]) -> StreamId {
        let id = u128::from_be_bytes(bytes);
        let [ms, seq] =
            [id >> 64, id & u128::from(u64::MAX)].map(|half| u64::try_from(half).expect("half of the bits"));
        StreamId { ms, seq }
    }

    pub(crate) fn to_be_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
}

/// What a stream knows beside its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMeta {
    /// Entries that it holds. After decoding: as many as were counted.
    pub length: u64,
    /// The greatest id that it ever had.
    pub last_id: StreamId,
    /// The id of its first entry; 0-0 if it is empty.
    pub first_id: StreamId,
    /// The greatest id that was deleted.
    pub max_deleted_id: StreamId,
    /// Entries that were ever added.
    pub entries_added: u64,
}

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Vec<u8>,
    /// The id delivered last.
    pub last_id: StreamId,
    /// How many entries it has read, where that is known.
    pub entries_read: Option<u64>,
    /// Its consumers, names unique.
    pub consumers: Vec<Consumer>,
    /// Entries delivered and not acknowledged, ids ascending.
    pub pending: Vec<Pending>,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it last tried anything; Unix time in milliseconds.
    pub seen_time_ms: i64,
    /// When it last succeeded; -1 if never. Before version 11 the same as `seen_time_ms`.
    pub active_time_ms: i64,
}

/// A pending entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Its id; the entry itself may be deleted.
    pub id: StreamId,
    /// When it was delivered last; Unix time in milliseconds.
    pub delivery_time_ms: i64,
    /// How often.
    pub delivery_count: u64,
    /// Who has it, in [`Group::consumers`].
    pub consumer: usize,
}

/// Fields and values of one entry, in order.
///
/// Fields that entries share are held once: otherwise a hostile node, a long field with many entries of a few bytes, could
/// make work and memory out of nothing.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    shared: Texts,
    own: Texts,
    values: Texts,
    has_own: bool,
}

impl Fields {
    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.values.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.ends.is_empty()
    }

    /// Whether the fields are those of every entry of its node of which this is true.
    pub fn are_shared(&self) -> bool {
        !self.has_own
    }

    /// The pairs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        let fields = if self.has_own { &self.own } else { &self.shared };
        (0..self.len()).map(|at| (fields.text(at), self.values.text(at)))
    }
}

/// Strings one behind the other.
#[derive(Clone, Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn text(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[at]]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, element: Element<'_>) {
        self.bytes.extend_from_slice(element.bytes(&mut itoa::Buffer::new()));
        self.ends.push(self.bytes.len());
    }
}

/// Memory used again for each value.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    node: Vec<u8>,
    name: Vec<u8>,
    fields: Fields,
}

impl Scratch {
    /// Gives back what is larger than `kept`.
    pub(crate) fn shrink(&mut self, kept: usize) {
        for scratch in [&mut self.node, &mut self.name] {
            if scratch.capacity() > kept {
                *scratch = Vec::new();
            }
        }
        let Fields { shared, own, values, .. } = &mut self.fields;
        if [shared, own, values].iter().any(|texts| texts.bytes.capacity() > kept) {
            self.fields = Fields::default();
        }
    }
}

/// Reads a stream with all that belongs to it.
pub(crate) fn decode<S: Source, K: Sink>(tag: u8, source: &mut S, sink: &mut K, scratch: &mut Scratch) -> Result<()> {
    let mut entries = Entries::default();
    for _ in 0..length(source)? {
        string_into(source, &mut scratch.name)?;
        let id = scratch.name[..].try_into().map_err(|_| corrupt(source, "stream node without an id"))?;
        let id = StreamId::from_be_bytes(id);
        let offset = source.position();
        let node = string(source, &mut scratch.node)?;
        decode_node(id, node, &mut entries, &mut scratch.fields, offset, sink)?;
    }
    let meta = decode_meta(tag, source, &entries)?;
    let offset = source.position();
    sink.stream_meta(&meta).map_err(|refusal| refusal.at(offset))?;
    let mut names = HashSet::new();
    for _ in 0..length(source)? {
        let group = decode_group(tag, source, &meta)?;
        if !names.insert(group.name.clone()) {
            return Err(Error::new(ErrorKind::Duplicate, source.position()));
        }
        let offset = source.position();
        sink.stream_group(group).map_err(|refusal| refusal.at(offset))?;
    }
    Ok(())
}

/// The entries read so far.
#[derive(Default)]
struct Entries {
    count: u64,
    first: StreamId,
    last: StreamId,
}

fn decode_node<K: Sink>(
    id: StreamId,
    node: &[u8],
    entries: &mut Entries,
    fields: &mut Fields,
    offset: u64,
    sink: &mut K,
) -> Result<()> {
    let flawed = |flaw: Flaw| flaw.at(offset);
    let mut listpack = Listpack::open(node).map_err(flawed)?;
    let live = listpack.expect_int().map_err(flawed)?;
    let deleted = listpack.expect_int().map_err(flawed)?;
    master_fields(&mut listpack, fields).map_err(flawed)?;
    let mut seen_live = 0_i64;
    let mut seen_deleted = 0_i64;
    // Every entry has elements, so their number is bounded by the bytes that are there.
    while let Some(flags) = listpack.next().map_err(flawed)? {
        let (entry_id, is_deleted) = entry(flags, id, &mut listpack, fields).map_err(flawed)?;
        if is_deleted {
            seen_deleted += 1;
            continue;
        }
        seen_live += 1;
        if entries.count > 0 && entry_id <= entries.last || entry_id == StreamId::default() {
            return Err(Flaw("stream entries that are not in order").at(offset));
        }
        if entries.count == 0 {
            entries.first = entry_id;
        }
        entries.last = entry_id;
        entries.count += 1;
        sink.stream_entry(entry_id, fields).map_err(|refusal| refusal.at(offset))?;
    }
    if (seen_live, seen_deleted) != (live, deleted) {
        return Err(Flaw("stream node with a wrong count").at(offset));
    }
    Ok(())
}

/// The fields of the master entry, behind its counters.
fn master_fields(listpack: &mut Listpack<'_>, fields: &mut Fields) -> std::result::Result<(), Flaw> {
    fields.shared.clear();
    for _ in 0..listpack.expect_int()? {
        fields.shared.push(listpack.expect()?);
    }
    match listpack.expect_int()? {
        0 => Ok(()),
        _ => Err(Flaw("stream node whose master entry does not end")),
    }
}

/// Reads an entry behind its flags: its id, and whether it is deleted.
fn entry(
    flags: Element<'_>,
    node: StreamId,
    listpack: &mut Listpack<'_>,
    fields: &mut Fields,
) -> std::result::Result<(StreamId, bool), Flaw> {
    let Element::Int(flags) = flags else { return Err(Flaw("stream entry without flags")) };
    // Differences are stored as signed numbers, whatever their size.
    let ms = node.ms.wrapping_add_signed(listpack.expect_int()?);
    let seq = node.seq.wrapping_add_signed(listpack.expect_int()?);
    fields.values.clear();
    fields.has_own = flags & SAME_FIELDS == 0;
    let elements = if fields.has_own {
        fields.own.clear();
        for _ in 0..listpack.expect_int()? {
            fields.own.push(listpack.expect()?);
            fields.values.push(listpack.expect()?);
        }
        2 * fields.len() + 4
    } else {
        for _ in 0..fields.shared.ends.len() {
            fields.values.push(listpack.expect()?);
        }
        fields.len() + 3
    };
    if i64::try_from(elements) != Ok(listpack.expect_int()?) {
        return Err(Flaw("stream entry with a wrong number of elements"));
    }
    if fields.is_empty() {
        return Err(Flaw("stream entry without fields"));
    }
    Ok((StreamId { ms, seq }, flags & DELETED != 0))
}

fn decode_meta<S: Source>(tag: u8, source: &mut S, entries: &Entries) -> Result<StreamMeta> {
    // The declared number differs from what is there only where a server miscounted; what counts is what is there.
    let _declared = length(source)?;
    let last_id = decode_id(source)?;
    if last_id < entries.last {
        return Err(corrupt(source, "stream whose last id is below that of an entry"));
    }
    let mut meta = StreamMeta {
        length: entries.count,
        last_id,
        first_id: entries.first,
        entries_added: entries.count,
        ..StreamMeta::default()
    };
    if tag != tag::STREAM_LISTPACKS {
        let _first = decode_id(source)?;
        meta.max_deleted_id = decode_id(source)?;
        meta.entries_added = length(source)?;
    }
    Ok(meta)
}

fn decode_id<S: Source>(source: &mut S) -> Result<StreamId> {
    Ok(StreamId { ms: length(source)?, seq: length(source)? })
}

fn decode_group<S: Source>(tag: u8, source: &mut S, meta: &StreamMeta) -> Result<Group> {
    let mut group = Group::default();
    string_into(source, &mut group.name)?;
    group.last_id = decode_id(source)?;
    group.entries_read = match tag {
        tag::STREAM_LISTPACKS => entries_read(meta, group.last_id),
        // -1 stands for unknown.
        _ => Some(length(source)?).filter(|read| i64::try_from(*read).is_ok()),
    };
    for _ in 0..length(source)? {
        let id = StreamId::from_be_bytes(array(source)?);
        let delivery_time_ms = i64::from_le_bytes(array(source)?);
        let delivery_count = length(source)?;
        group.pending.push(Pending { id, delivery_time_ms, delivery_count, consumer: NOBODY });
    }
    group.pending.sort_unstable_by_key(|pending| pending.id);
    if !group.pending.is_sorted_by(|one, next| one.id < next.id) {
        return Err(Error::new(ErrorKind::Duplicate, source.position()));
    }
    let mut names = HashSet::new();
    for number in 0..length(source)? {
        let consumer = decode_consumer(tag, source)?;
        if !names.insert(consumer.name.clone()) {
            return Err(Error::new(ErrorKind::Duplicate, source.position()));
        }
        group.consumers.push(consumer);
        let number = usize::try_from(number).expect("as many as are in memory");
        decode_claims(source, number, &mut group.pending)?;
    }
    if group.pending.iter().any(|pending| pending.consumer == NOBODY) {
        return Err(corrupt(source, "pending stream entry without a consumer"));
    }
    Ok(group)
}

fn decode_consumer<S: Source>(tag: u8, source: &mut S) -> Result<Consumer> {
    let mut consumer = Consumer::default();
    string_into(source, &mut consumer.name)?;
    consumer.seen_time_ms = i64::from_le_bytes(array(source)?);
    consumer.active_time_ms = match tag {
        tag::STREAM_LISTPACKS_3 => i64::from_le_bytes(array(source)?),
        _ => consumer.seen_time_ms,
    };
    Ok(consumer)
}

/// The ids that a consumer has, each of which is pending and nobody else's.
fn decode_claims<S: Source>(source: &mut S, consumer: usize, pending: &mut [Pending]) -> Result<()> {
    for _ in 0..length(source)? {
        let id = StreamId::from_be_bytes(array(source)?);
        let at = pending.binary_search_by_key(&id, |pending| pending.id);
        let at = at.map_err(|_| corrupt(source, "stream consumer with an entry that is not pending"))?;
        if pending[at].consumer != NOBODY {
            return Err(Error::new(ErrorKind::Duplicate, source.position()));
        }
        pending[at].consumer = consumer;
    }
    Ok(())
}

/// How many entries a group whose position is `id` has read, for data from before version 10, which did not say so.
/// Nothing is known of deletions in such data: what is there is taken for all that was ever added.
fn entries_read(meta: &StreamMeta, id: StreamId) -> Option<u64> {
    if meta.length == 0 || id < meta.first_id {
        return Some(0);
    }
    match id {
        id if id == meta.last_id => Some(meta.entries_added),
        id if id == meta.first_id => Some(1),
        _ => None,
    }
}

/// No consumer, while a group is being read.
const NOBODY: usize = usize::MAX;
/// Flag: the entry is deleted.
pub(crate) const DELETED: i64 = 1;
/// Flag: the entry has the master entry's fields.
pub(crate) const SAME_FIELDS: i64 = 2;
