//! A key as the commands that make it again, for the base of an append-only file that is not to be an RDB.
//!
//! The commands are those that a Redis writes: at most [`ITEMS`] elements each, deadlines absolute. They are written element by
//! element, so that memory is bounded by an element, not by a value.
//!
//! A group's pending entries whose stream entry is gone are more than a Redis keeps: XCLAIM makes none of them. Here such an entry is
//! added for the time of its XCLAIM, and removed again; the stream's counts are set last.

use gimmal_resp::double::format_double;
use gimmal_resp::{encode_array_header, encode_bulk, encode_bulk_header};
use gimmal_store::types::stream::{Consumer, Group, StreamEntry, StreamId};
use gimmal_store::types::{FieldsRef, SortedSetRef, Stream};
use gimmal_store::{Entry, StringRef, ValueRef};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::{self, Write};

/// Elements of one command, as in Redis.
const ITEMS: usize = 64;

/// Writes a command that selects a database.
///
/// # Errors
/// The writer's.
pub fn select(db: usize, out: &mut impl Write) -> io::Result<()> {
    Commands { out, head: Vec::new() }.whole(&[b"SELECT", itoa::Buffer::new().format(db).as_bytes()])
}

/// Writes the commands that make a key in the database selected where there is none of its name. `out` should be buffered.
///
/// # Errors
/// The writer's.
pub fn write(entry: &Entry<'_>, out: &mut impl Write) -> io::Result<()> {
    let (key, mut to) = (entry.key(), Commands { out, head: Vec::new() });
    match entry.value() {
        ValueRef::String(text) => return string(key, text, entry.expire_at_ms(), &mut to),
        ValueRef::List(list) => to.items(b"RPUSH", key, 1, list.iter(), |to, item| to.arg(item))?,
        ValueRef::Set(set) => to.items(b"SADD", key, 1, set.iter(), |to, member| to.arg(member))?,
        ValueRef::SortedSet(set) => sorted_set(key, set, &mut to)?,
        ValueRef::Hash(fields) => hash(key, fields, &mut to)?,
        ValueRef::Stream(value) => stream(key, value, &mut to)?,
    }
    match entry.expire_at_ms() {
        None => Ok(()),
        Some(at_ms) => to.whole(&[b"PEXPIREAT", key, itoa::Buffer::new().format(at_ms).as_bytes()]),
    }
}

fn string(key: &[u8], text: StringRef<'_>, at_ms: Option<i64>, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    to.begin(if at_ms.is_some() { 5 } else { 3 }, &[b"SET", key])?;
    match text {
        StringRef::Int(n) => to.number(n)?,
        StringRef::Bytes(bytes) => to.arg(bytes)?,
        StringRef::Rope(rope) => to.parts(rope.len(), rope.extents().map(|extent| extent.as_slice()))?,
    }
    match at_ms {
        None => Ok(()),
        Some(at_ms) => {
            to.arg(b"PXAT")?;
            to.number(at_ms)
        }
    }
}

fn sorted_set(key: &[u8], set: SortedSetRef<'_>, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    to.items(b"ZADD", key, 2, set.iter(), |to, found| {
        to.arg(format_double(found.score).as_bytes())?;
        to.arg(found.member)
    })
}

fn hash(key: &[u8], fields: FieldsRef<'_>, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    to.items(b"HMSET", key, 2, fields.iter_from(0), |to, field| {
        to.arg(field.name)?;
        to.arg(field.value)
    })?;
    if fields.deadline_ms().is_none() {
        return Ok(());
    }
    for field in fields.iter_from(0) {
        if let Some(at_ms) = field.expire_at_ms {
            to.begin(6, &[b"HPEXPIREAT", key])?;
            to.number(at_ms)?;
            to.arg(b"FIELDS")?;
            to.number(1)?;
            to.arg(field.name)?;
        }
    }
    Ok(())
}

fn stream(key: &[u8], stream: &Stream, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    let mut gone = gone(stream).peekable();
    let mut added: u64 = 0;
    let mut last = StreamId::MIN;
    for entry in stream.entries().iter_from(0) {
        while let Some(id) = gone.next_if(|id| *id < entry.id) {
            stand_in(key, id, to)?;
            added += 1;
        }
        add(key, &entry, to)?;
        (added, last) = (added + 1, entry.id);
    }
    for id in gone {
        stand_in(key, id, to)?;
        (added, last) = (added + 1, id);
    }
    if added == 0 {
        // There is no stream without an entry but one that had some.
        to.whole(&[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"])?;
    }
    let stands_in = added > stream.len() as u64;
    // A group is not believed to have read more than there was, so this comes first.
    set_id(key, stream.last_id().max(last), stream.entries_added().max(added), StreamId::MIN, to)?;
    for (name, group) in stream.groups() {
        write_group(key, name, group, to)?;
    }
    if stands_in {
        take_away(key, stream, to)?;
    }
    set_id(key, stream.last_id(), stream.entries_added(), stream.max_deleted_id(), to)
}

fn add(key: &[u8], entry: &StreamEntry<'_>, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    to.begin(3 + 2 * entry.len(), &[b"XADD", key, text(entry.id).as_bytes()])?;
    for (field, value) in entry.fields() {
        to.arg(field)?;
        to.arg(value)?;
    }
    Ok(())
}

/// Adds an entry for one that is gone.
fn stand_in(key: &[u8], id: StreamId, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    to.whole(&[b"XADD", key, text(id).as_bytes(), b"x", b"y"])
}

/// Removes what stands in. XDEL would leave a greatest deleted id where there was none, and was not what removed the oldest entries
/// of such a stream.
fn take_away(key: &[u8], stream: &Stream, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    let first = stream.entries().first_id();
    match first {
        None => return to.whole(&[b"XTRIM", key, b"MAXLEN", b"0"]),
        Some(first) => to.whole(&[b"XTRIM", key, b"MINID", text(first).as_bytes()])?,
    }
    let later = gone(stream).filter(|id| Some(*id) > first);
    to.items(b"XDEL", key, 1, later, |to, id| to.arg(text(id).as_bytes()))
}

/// The entries that are pending and gone, in order, each once.
fn gone(stream: &Stream) -> impl Iterator<Item = StreamId> {
    let mut groups: Vec<_> = stream.groups().map(|(_, group)| group.pending_from(StreamId::MIN)).collect();
    let heads = groups.iter_mut().enumerate();
    let mut next: BinaryHeap<_> =
        heads.filter_map(|(number, pending)| Some(Reverse((pending.next()?.id, number)))).collect();
    let mut ids = std::iter::from_fn(move || {
        let mut head = next.peek_mut()?;
        let Reverse((id, number)) = *head;
        match groups[number].next() {
            Some(pending) => *head = Reverse((pending.id, number)),
            None => _ = PeekMut::pop(head),
        }
        Some(id)
    });
    let mut before = None;
    std::iter::from_fn(move || {
        let id = ids.find(|id| before != Some(*id) && !stream.entries().contains(*id))?;
        before = Some(id);
        before
    })
}

fn write_group(key: &[u8], name: &[u8], group: &Group, to: &mut Commands<'_, impl Write>) -> io::Result<()> {
    to.begin(7, &[b"XGROUP", b"CREATE", key, name, text(group.last_id).as_bytes(), b"ENTRIESREAD"])?;
    // Unknown is -1.
    to.number(group.entries_read.map_or(-1, |read| i64::try_from(read).unwrap_or(i64::MAX)))?;
    for consumer in group.consumers() {
        if consumer.pending_len() == 0 {
            to.whole(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer.name()])?;
        }
        claims(key, name, group, consumer, to)?;
    }
    Ok(())
}

fn claims(
    key: &[u8],
    name: &[u8],
    group: &Group,
    consumer: &Consumer,
    to: &mut Commands<'_, impl Write>,
) -> io::Result<()> {
    for pending in group.pending_of(consumer, StreamId::MIN) {
        to.begin(12, &[b"XCLAIM", key, name, consumer.name(), b"0", text(pending.id).as_bytes(), b"TIME"])?;
        to.number(pending.delivered_ms)?;
        to.arg(b"RETRYCOUNT")?;
        to.number(i64::try_from(pending.deliveries).unwrap_or(i64::MAX))?;
        to.arg(b"JUSTID")?;
        to.arg(b"FORCE")?;
    }
    Ok(())
}

fn set_id(
    key: &[u8],
    last: StreamId,
    added: u64,
    deleted: StreamId,
    to: &mut Commands<'_, impl Write>,
) -> io::Result<()> {
    let (last, deleted) = (text(last), text(deleted));
    let (added, mut digits) = (added, itoa::Buffer::new());
    to.whole(&[
        b"XSETID",
        key,
        last.as_bytes(),
        b"ENTRIESADDED",
        digits.format(added).as_bytes(),
        b"MAXDELETEDID",
        deleted.as_bytes(),
    ])
}

fn text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

/// Where commands go.
struct Commands<'o, W> {
    out: &'o mut W,
    /// Lengths, before they are written.
    head: Vec<u8>,
}

impl<W: Write> Commands<'_, W> {
    /// Begins a command of so many arguments with the first of them.
    fn begin(&mut self, count: usize, first: &[&[u8]]) -> io::Result<()> {
        self.head.clear();
        encode_array_header(&mut self.head, count);
        first.iter().for_each(|arg| encode_bulk(&mut self.head, arg));
        self.out.write_all(&self.head)
    }

    fn whole(&mut self, args: &[&[u8]]) -> io::Result<()> {
        self.begin(args.len(), args)
    }

    fn arg(&mut self, arg: &[u8]) -> io::Result<()> {
        self.parts(arg.len(), std::iter::once(arg))
    }

    fn number(&mut self, number: i64) -> io::Result<()> {
        self.arg(itoa::Buffer::new().format(number).as_bytes())
    }

    /// An argument of so many bytes, in parts.
    fn parts<'p>(&mut self, len: usize, parts: impl Iterator<Item = &'p [u8]>) -> io::Result<()> {
        self.head.clear();
        encode_bulk_header(&mut self.head, len);
        self.out.write_all(&self.head)?;
        for part in parts {
            self.out.write_all(part)?;
        }
        self.out.write_all(b"\r\n")
    }

    /// Commands of [`ITEMS`] elements, each of so many arguments.
    fn items<T>(
        &mut self,
        name: &[u8],
        key: &[u8],
        each: usize,
        items: impl Iterator<Item = T>,
        write: impl Fn(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut items = items.peekable();
        let mut batch = Vec::with_capacity(ITEMS);
        while items.peek().is_some() {
            batch.extend(items.by_ref().take(ITEMS));
            self.begin(2 + each * batch.len(), &[name, key])?;
            for item in batch.drain(..) {
                write(self, item)?;
            }
        }
        Ok(())
    }
}
