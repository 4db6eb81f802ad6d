//! Payloads of large values in pieces: for whoever must not hold a processor as long as one call of [`Encoder`] takes.
//!
//! The plain forms only: a number of elements, then each. A small value, which may have a packed form, is one call's work.

use super::list::{Nodes, Place};
use super::{Encoder, Scratch, same, stream, write_length};
use crate::crc64::crc64;
use crate::decode::PLAIN;
use crate::object::Pairs;
use crate::options::{Options, Version};
use crate::stream::{Group, StreamId, StreamMeta};
use crate::tag;
use std::io;

/// Writes the payload of one large value, element by element. What was written is taken with [`take`](Pieces::take).
#[derive(Debug)]
pub struct Pieces {
    options: Options,
    scratch: Scratch,
    out: Vec<u8>,
    checksum: u64,
    /// What is written is part of a file, which has a checksum of its own.
    tag_taken: bool,
    version: Version,
    /// Elements, or bytes of a string, that were announced.
    len: u64,
    written: u64,
    nodes: Nodes,
    stream: StreamNode,
}

/// The node of a stream that was begun.
#[derive(Debug)]
struct StreamNode {
    nodes: stream::Nodes,
    entries: Vec<(StreamId, Pairs)>,
}

/// Counts the nodes that a stream will have, which are announced before the first.
#[derive(Debug)]
pub struct StreamNodes {
    nodes: stream::Nodes,
    count: u64,
    entries: u64,
}

impl StreamNodes {
    /// Of a stream without entries.
    pub fn new(options: &Options) -> StreamNodes {
        StreamNodes { nodes: stream::Nodes::new(options), count: 0, entries: 0 }
    }

    /// Counts the next entry, of these fields and values.
    pub fn add<'f>(&mut self, pairs: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        self.count += u64::from(self.nodes.begins_with(stream::size(pairs)));
        self.entries += 1;
    }
}

/// Counts the nodes that a list will have, which are announced before the first.
#[derive(Debug)]
pub struct ListNodes {
    nodes: Nodes,
    count: u64,
    items: u64,
}

impl ListNodes {
    /// Of a list without items.
    pub fn new(options: &Options) -> ListNodes {
        ListNodes { nodes: Nodes::new(options.list_max_listpack_size), count: 0, items: 0 }
    }

    /// Counts the next item, of so many bytes.
    pub fn add(&mut self, len: usize) {
        self.count += u64::from(self.nodes.add(len) != Place::Here);
        self.items += 1;
    }
}

impl Pieces {
    fn new(options: &Options, tag: u8, len: u64) -> Pieces {
        Pieces {
            options: options.clone(),
            scratch: Scratch::default(),
            out: vec![tag],
            checksum: 0,
            tag_taken: false,
            version: options.version,
            len,
            written: 0,
            nodes: Nodes::new(options.list_max_listpack_size),
            stream: StreamNode { nodes: stream::Nodes::new(options), entries: Vec::new() },
        }
    }

    fn counted(options: &Options, tag: u8, len: u64) -> io::Result<Pieces> {
        let mut pieces = Pieces::new(options, tag, len);
        write_length(&mut pieces.out, len)?;
        Ok(pieces)
    }

    /// A string of `len` bytes; then [`bytes`](Pieces::bytes). It is not compressed.
    pub fn string(options: &Options, len: u64) -> io::Result<Pieces> {
        Pieces::counted(options, tag::STRING, len)
    }

    /// A set of `len` members; then each [`member`](Pieces::member).
    pub fn set(options: &Options, len: u64) -> io::Result<Pieces> {
        Pieces::counted(options, tag::SET, len)
    }

    /// A sorted set of `len` members; then each [`scored`](Pieces::scored) member.
    pub fn sorted_set(options: &Options, len: u64) -> io::Result<Pieces> {
        Pieces::counted(options, tag::ZSET_2, len)
    }

    /// A hash of `len` fields; then each [`field`](Pieces::field).
    pub fn hash(options: &Options, len: u64) -> io::Result<Pieces> {
        Pieces::counted(options, tag::HASH, len)
    }

    /// A hash of `len` fields of which some expire; then each [`expiring`](Pieces::expiring) field.
    pub fn hash_with_expiries(options: &Options, len: u64) -> io::Result<Pieces> {
        let mut pieces = Pieces::counted(options, tag::HASH_2, len)?;
        pieces.version = Version::V80;
        Ok(pieces)
    }

    /// A list of the items that were counted; then each [`item`](Pieces::item).
    pub fn list(options: &Options, counted: &ListNodes) -> io::Result<Pieces> {
        let mut pieces = Pieces::new(options, tag::LIST_QUICKLIST_2, counted.items);
        write_length(&mut pieces.out, counted.count)?;
        Ok(pieces)
    }

    /// A stream of the entries that were counted; then each [`entry`](Pieces::entry), [`stream_meta`](Pieces::stream_meta)
    /// and each [`group`](Pieces::group).
    pub fn stream(options: &Options, counted: &StreamNodes) -> io::Result<Pieces> {
        let mut pieces = Pieces::new(options, stream::tag_of(options), counted.entries);
        write_length(&mut pieces.out, counted.count)?;
        Ok(pieces)
    }

    /// The next bytes of a string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.written += bytes.len() as u64;
    }

    /// The next member of a set.
    pub fn member(&mut self, member: &[u8]) -> io::Result<()> {
        self.written += 1;
        self.text(member)
    }

    /// The next member of a sorted set.
    pub fn scored(&mut self, member: &[u8], score: f64) -> io::Result<()> {
        self.member(member)?;
        self.out.extend_from_slice(&score.to_le_bytes());
        Ok(())
    }

    /// The next field of a hash.
    pub fn field(&mut self, field: &[u8], value: &[u8]) -> io::Result<()> {
        self.member(field)?;
        self.text(value)
    }

    /// The next field of a hash of which some expire (Unix time in milliseconds).
    pub fn expiring(&mut self, field: &[u8], value: &[u8], expire_at_ms: Option<i64>) -> io::Result<()> {
        self.field(field, value)?;
        self.out.extend_from_slice(&expire_at_ms.unwrap_or(-1).to_le_bytes());
        Ok(())
    }

    /// The next item of a list.
    pub fn item(&mut self, item: &[u8]) -> io::Result<()> {
        self.written += 1;
        match self.nodes.add(item.len()) {
            Place::Here => {}
            Place::Next => self.encoder(true).list_node()?,
            Place::Alone => {
                self.encoder(true).list_node()?;
                write_length(&mut self.out, PLAIN)?;
                return self.encoder(item.len() <= MOST_COMPRESSED).blob(item);
            }
        }
        self.scratch.listpack.push(item);
        Ok(())
    }

    /// The next entry of a stream.
    pub fn entry(&mut self, id: StreamId, pairs: Pairs) -> io::Result<()> {
        self.written += 1;
        let size = stream::size(pairs.iter().map(|(field, value)| (field, value)));
        if self.stream.nodes.begins_with(size) {
            self.stream_node()?;
        }
        self.stream.entries.push((id, pairs));
        Ok(())
    }

    /// What a stream knows beside its entries, and how many groups it has; after the last entry.
    pub fn stream_meta(&mut self, meta: &StreamMeta, groups: u64) -> io::Result<()> {
        self.stream_node()?;
        self.encoder(true).stream_meta(meta, groups)
    }

    /// The next group of a stream.
    pub fn group(&mut self, group: &Group) -> io::Result<()> {
        self.encoder(true).group(group)
    }

    fn stream_node(&mut self) -> io::Result<()> {
        let mut entries = std::mem::take(&mut self.stream.entries);
        self.encoder(true).stream_node(&entries)?;
        self.scratch.listpack.clear();
        entries.clear();
        self.stream.entries = entries;
        Ok(())
    }

    /// Gives what was written since the last time to `into`.
    pub fn take(&mut self, into: impl FnOnce(&[u8])) {
        if !self.tag_taken {
            self.checksum = crc64(self.checksum, &self.out);
        }
        into(&self.out);
        self.out.clear();
    }

    /// Bytes that were written and not taken.
    pub fn untaken(&self) -> usize {
        self.out.len()
    }

    /// The byte of the value's type, which a payload begins with; in a file the key comes in between. To be asked for before anything
    /// is taken, which is then the value alone.
    ///
    /// # Panics
    /// If it was taken.
    pub fn take_tag(&mut self) -> u8 {
        assert!(!self.tag_taken && self.checksum == 0, "a value's type comes first");
        self.tag_taken = true;
        self.out.remove(0)
    }

    /// Ends the value, without what follows it in a payload; its rest is to be taken.
    ///
    /// # Errors
    /// If there were more or fewer elements than announced.
    pub fn finish_value(&mut self) -> io::Result<()> {
        self.encoder(true).list_node()?;
        same(self.len, self.written)
    }

    /// Ends the payload; its rest is to be taken.
    ///
    /// # Errors
    /// If there were more or fewer elements than announced.
    pub fn finish(&mut self) -> io::Result<()> {
        self.finish_value()?;
        self.out.extend_from_slice(&self.version.number().to_le_bytes());
        let checksum = crc64(self.checksum, &self.out);
        self.out.extend_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.encoder(text.len() <= MOST_COMPRESSED).text(text)
    }

    fn encoder(&mut self, compress: bool) -> Encoder<'_, Vec<u8>> {
        Encoder {
            out: &mut self.out,
            options: &self.options,
            key: None,
            scratch: &mut self.scratch,
            compress: compress && self.options.compress,
        }
    }
}

/// Longest element that is compressed: that takes time at once, which pieces are to spare.
const MOST_COMPRESSED: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collect, Object, verify};
    use std::collections::{BTreeMap, BTreeSet};

    /// Elements of many lengths.
    fn elements() -> Vec<Vec<u8>> {
        (0..3000).chain([9000]).map(|len| format!("{len}:{}", "x".repeat(len % 1500)).into_bytes()).collect()
    }

    fn decoded(mut pieces: Pieces, mut payload: Vec<u8>) -> Object {
        pieces.finish().expect("as many as were announced");
        pieces.take(|part| payload.extend_from_slice(part));
        let mut collect = Collect::default();
        verify(&payload).expect("a right checksum").decode(&mut collect).expect("a good payload");
        collect.finish().expect("a value")
    }

    #[test]
    fn pieces_decode_as_what_went_in() {
        let (options, elements) = (Options::default(), elements());
        let len = elements.len() as u64;
        let mut payload = Vec::new();
        let mut set = Pieces::set(&options, len).expect("a vector takes everything");
        for member in &elements {
            set.member(member).expect("a vector takes everything");
            set.take(|part| payload.extend_from_slice(part));
        }
        assert_eq!(decoded(set, payload), Object::Set(BTreeSet::from_iter(elements.iter().cloned())));

        let mut zset = Pieces::sorted_set(&options, len).expect("a vector takes everything");
        let mut hash = Pieces::hash_with_expiries(&options, len).expect("a vector takes everything");
        let mut plain = Pieces::hash(&options, len).expect("a vector takes everything");
        let mut model = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (at, element) in (0_u32..).zip(&elements) {
            zset.scored(element, f64::from(at)).expect("a vector takes everything");
            model.0.insert(element.clone(), f64::from(at));
            let at = (at % 2 == 0).then_some(at);
            hash.expiring(element, b"v", at.map(i64::from)).expect("a vector takes everything");
            model.1.insert(element.clone(), (b"v".to_vec(), at.map(u64::from)));
            plain.field(element, b"v").expect("a vector takes everything");
            model.2.insert(element.clone(), (b"v".to_vec(), None));
        }
        assert_eq!(decoded(zset, Vec::new()), Object::SortedSet(model.0));
        assert_eq!(decoded(hash, Vec::new()), Object::Hash(model.1));
        assert_eq!(decoded(plain, Vec::new()), Object::Hash(model.2));
    }

    #[test]
    fn a_list_is_as_the_encoder_writes_it() {
        let (options, mut elements) = (Options::default(), elements());
        elements.push(vec![b'y'; MOST_COMPRESSED]);
        let mut counted = ListNodes::new(&options);
        elements.iter().for_each(|item| counted.add(item.len()));
        let mut list = Pieces::list(&options, &counted).expect("a vector takes everything");
        elements.iter().for_each(|item| list.item(item).expect("a vector takes everything"));
        list.finish().expect("as many as were counted");
        let mut payload = Vec::new();
        list.take(|part| payload.extend_from_slice(part));
        let whole = crate::dump(&options, |to| to.list(elements.len(), &elements)).expect("a vector takes everything");
        assert!(payload == whole);
    }

    #[test]
    fn a_stream_is_as_the_encoder_writes_it() {
        let options = Options::default();
        let id = |ms| StreamId { ms, seq: ms % 3 };
        let pairs = |ms: u64| vec![(b"f".to_vec(), ms.to_string().into_bytes()), (vec![b'x'; 40], vec![b'v'; 60])];
        let entries: Vec<(StreamId, Pairs)> = (1..2000).map(|ms| (id(ms), pairs(ms % 7))).collect();
        let meta = StreamMeta { length: 1999, last_id: id(5000), first_id: id(1), ..StreamMeta::default() };
        let groups =
            [Group { name: b"g".to_vec(), ..Group::default() }, Group { name: b"h".to_vec(), ..Group::default() }];
        let whole = |to: Encoder<'_, Vec<u8>>| to.stream(&meta, entries.iter().cloned(), &groups);
        let whole = crate::dump(&options, whole).expect("a vector takes everything");
        let mut counted = StreamNodes::new(&options);
        for (_, pairs) in &entries {
            counted.add(pairs.iter().map(|(field, value)| (field.as_slice(), value.as_slice())));
        }
        let mut stream = Pieces::stream(&options, &counted).expect("a vector takes everything");
        let mut payload = Vec::new();
        for (id, pairs) in entries {
            stream.entry(id, pairs).expect("a vector takes everything");
            stream.take(|part| payload.extend_from_slice(part));
        }
        stream.stream_meta(&meta, 2).expect("a vector takes everything");
        groups.iter().for_each(|group| stream.group(group).expect("a vector takes everything"));
        stream.finish().expect("as many as were counted");
        stream.take(|part| payload.extend_from_slice(part));
        assert!(payload == whole);
    }

    #[test]
    fn a_wrong_number_of_elements_is_an_error() {
        let mut set = Pieces::set(&Options::default(), 2).expect("a vector takes everything");
        set.member(b"only").expect("a vector takes everything");
        assert!(set.finish().is_err());
        let mut string = Pieces::string(&Options::default(), 3).expect("a vector takes everything");
        string.bytes(b"four");
        assert!(string.finish().is_err());
    }
}
