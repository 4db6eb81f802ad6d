//! Values: from their encoded form to a [`Sink`].

use crate::error::{Error, ErrorKind, Flaw, Result};
use crate::intset;
use crate::listpack::{Element, Listpack};
use crate::primitive::{Head, array, body, byte, corrupt, head, length, string, string_into};
use crate::sink::{Kind, Refusal, Sink, Taken};
use crate::source::Source;
use crate::stream;
use crate::tag;
use crate::ziplist::{Ziplist, Zipmap};

/// Decodes values, one after the other; keeps its working memory between them.
#[derive(Debug, Default)]
pub struct Decoder {
    first: Vec<u8>,
    second: Vec<u8>,
    stream: stream::Scratch,
}

impl Decoder {
    /// Decodes the value that `tag` announces, in data of this version of the format.
    pub fn decode<S: Source, K: Sink>(&mut self, tag: u8, version: u32, source: &mut S, sink: &mut K) -> Result<()> {
        let Some(kind) = tag::kind(tag) else { return Err(unknown(tag, source)) };
        let mut run = Run { source, sink, first: &mut self.first, second: &mut self.second, elements: 0 };
        match tag {
            tag::STRING => return run.string(),
            tag::LIST => run.plain_list()?,
            tag::SET => run.plain_set()?,
            tag::ZSET | tag::ZSET_2 => run.plain_sorted_set(tag)?,
            tag::HASH => run.plain_hash()?,
            tag::LIST_QUICKLIST | tag::LIST_QUICKLIST_2 => run.quicklist(tag)?,
            tag::SET_INTSET => run.intset()?,
            tag::HASH_ZIPMAP => run.zipmap()?,
            tag::HASH_METADATA => run.hash_with_expiries(Expiries::Metadata)?,
            tag::HASH_2 if tag::is_valkey(version) => run.hash_with_expiries(Expiries::Valkey)?,
            tag::HASH_2 => run.hash_with_expiries(Expiries::MetadataPreGa)?,
            tag::STREAM_LISTPACKS | tag::STREAM_LISTPACKS_2 | tag::STREAM_LISTPACKS_3 => {
                run.begin(Kind::Stream, None)?;
                // A stream may be empty.
                return stream::decode(tag, run.source, run.sink, &mut self.stream);
            }
            _ => run.packed(tag, kind)?,
        }
        if run.elements == 0 {
            return Err(Error::new(ErrorKind::Empty, run.source.position()));
        }
        Ok(())
    }

    /// Gives back memory that an uncommonly large value needed.
    pub fn shrink(&mut self) {
        const KEPT: usize = 1 << 20;
        for scratch in [&mut self.first, &mut self.second] {
            if scratch.capacity() > KEPT {
                *scratch = Vec::new();
            }
        }
        self.stream.shrink(KEPT);
    }
}

/// The error for a tag that cannot be decoded.
pub(crate) fn unknown<S: Source>(tag: u8, source: &S) -> Error {
    let kind = match tag {
        tag::MODULE_2 => ErrorKind::Unsupported("a value of a module"),
        tag::MODULE_PRE_GA => ErrorKind::Unsupported("a value of a module, in a format of release candidates"),
        _ => ErrorKind::UnknownType(tag),
    };
    Error::new(kind, source.position())
}

/// Strings longer than this come in parts of this size (the last is shorter).
pub const PART: usize = 256 * 1024;

/// Where a hash whose fields expire has its times.
#[derive(Clone, Copy, PartialEq)]
enum Expiries {
    /// Least time; per field: difference to it plus one, or 0; field; value.
    Metadata,
    /// Per field: time or 0; field; value.
    MetadataPreGa,
    /// Per field: field; value; time or -1.
    Valkey,
}

/// One value being decoded.
struct Run<'a, S, K> {
    source: &'a mut S,
    sink: &'a mut K,
    first: &'a mut Vec<u8>,
    second: &'a mut Vec<u8>,
    elements: u64,
}

impl<S: Source, K: Sink> Run<'_, S, K> {
    fn begin(&mut self, kind: Kind, len: Option<u64>) -> Result<()> {
        self.sink.begin(kind, len).map_err(|refusal| refusal.at(self.source.position()))
    }

    /// Counts an element that the sink was given.
    #[inline]
    fn given(&mut self, taken: Taken) -> Result<()> {
        self.elements += 1;
        taken.map_err(|refusal| refusal.at(self.source.position()))
    }

    fn string(&mut self) -> Result<()> {
        let head = head(self.source)?;
        if let Head::Plain(len) = head {
            self.begin(Kind::String, Some(len))?;
            let mut rest = len;
            loop {
                let part = usize::try_from(rest).map_or(PART, |rest| rest.min(PART));
                rest -= part as u64;
                let taken = self.sink.string(self.source.take(part)?, rest);
                self.given(taken)?;
                if rest == 0 {
                    return Ok(());
                }
            }
        }
        let text = body(head, self.source, self.first)?;
        let len = text.len() as u64;
        self.sink
            .begin(Kind::String, Some(len))
            .and_then(|()| {
                let mut rest = len;
                for part in text.chunks(PART) {
                    rest -= part.len() as u64;
                    self.sink.string(part, rest)?;
                }
                if text.is_empty() { self.sink.string(b"", 0) } else { Ok(()) }
            })
            .map_err(|refusal| refusal.at(self.source.position()))
    }

    fn plain_list(&mut self) -> Result<()> {
        let len = length(self.source)?;
        self.begin(Kind::List, Some(len))?;
        for _ in 0..len {
            let taken = self.sink.list_item(string(self.source, self.first)?);
            self.given(taken)?;
        }
        Ok(())
    }

    fn plain_set(&mut self) -> Result<()> {
        let len = length(self.source)?;
        self.begin(Kind::Set, Some(len))?;
        for _ in 0..len {
            let taken = self.sink.set_member(string(self.source, self.first)?);
            self.given(taken)?;
        }
        Ok(())
    }

    fn plain_sorted_set(&mut self, tag: u8) -> Result<()> {
        let len = length(self.source)?;
        self.begin(Kind::SortedSet, Some(len))?;
        for _ in 0..len {
            string_into(self.source, self.first)?;
            let score = match tag {
                tag::ZSET_2 => f64::from_le_bytes(array(self.source)?),
                _ => text_score(self.source)?,
            };
            self.member(score)?;
        }
        Ok(())
    }

    /// Gives the sink the member in `first`.
    fn member(&mut self, score: f64) -> Result<()> {
        if score.is_nan() {
            return Err(corrupt(self.source, "score that is not a number"));
        }
        let taken = self.sink.sorted_set_member(self.first, score);
        self.given(taken)
    }

    fn plain_hash(&mut self) -> Result<()> {
        let len = length(self.source)?;
        self.begin(Kind::Hash, Some(len))?;
        for _ in 0..len {
            string_into(self.source, self.first)?;
            let value = string(self.source, self.second)?;
            let taken = self.sink.hash_field(self.first, value, None);
            self.given(taken)?;
        }
        Ok(())
    }

    fn hash_with_expiries(&mut self, layout: Expiries) -> Result<()> {
        let least = match layout {
            Expiries::Metadata => u64::from_le_bytes(array(self.source)?),
            _ => 0,
        };
        let len = length(self.source)?;
        self.begin(Kind::Hash, Some(len))?;
        for _ in 0..len {
            let before = match layout {
                Expiries::Valkey => 0,
                _ => length(self.source)?,
            };
            string_into(self.source, self.first)?;
            string_into(self.source, self.second)?;
            let expire_at_ms = match layout {
                Expiries::Valkey => match i64::from_le_bytes(array(self.source)?) {
                    -1 => None,
                    at => Some(u64::try_from(at).map_err(|_| corrupt(self.source, NEGATIVE_TIME))?),
                },
                Expiries::MetadataPreGa => Some(before).filter(|at| *at != 0),
                Expiries::Metadata if before == 0 => None,
                Expiries::Metadata => match least.checked_add(before - 1) {
                    Some(at) => Some(at),
                    None => return Err(corrupt(self.source, "expiry of a field that overflows")),
                },
            };
            let taken = self.sink.hash_field(self.first, self.second, expire_at_ms);
            self.given(taken)?;
        }
        Ok(())
    }

    fn quicklist(&mut self, tag: u8) -> Result<()> {
        let nodes = length(self.source)?;
        self.begin(Kind::List, None)?;
        for _ in 0..nodes {
            let container = match tag {
                tag::LIST_QUICKLIST_2 => length(self.source)?,
                _ => PACKED,
            };
            let offset = self.source.position();
            let blob = string(self.source, self.first)?;
            let flawed = |flaw: Flaw| flaw.at(offset);
            let sink = &mut *self.sink;
            let mut item = |element: Element<'_>| {
                self.elements += 1;
                sink.list_item(element.bytes(&mut itoa::Buffer::new())).map_err(|refusal| refusal.at(offset))
            };
            match (container, tag) {
                (PLAIN, _) if blob.is_empty() => return Err(flawed(Flaw("list node without bytes"))),
                (PLAIN, _) => item(Element::Bytes(blob))?,
                (PACKED, tag::LIST_QUICKLIST_2) => {
                    let mut listpack = Listpack::open(blob).map_err(flawed)?;
                    while let Some(element) = listpack.next().map_err(flawed)? {
                        item(element)?;
                    }
                }
                (PACKED, _) => {
                    let mut ziplist = Ziplist::open(blob).map_err(flawed)?;
                    while let Some(element) = ziplist.next().map_err(flawed)? {
                        item(element)?;
                    }
                }
                _ => return Err(flawed(Flaw("unknown kind of list node"))),
            }
        }
        Ok(())
    }

    fn intset(&mut self) -> Result<()> {
        let offset = self.source.position();
        let blob = string(self.source, self.first)?;
        let integers = intset::read(blob).map_err(|flaw| flaw.at(offset))?;
        self.sink.begin(Kind::Set, None).map_err(|refusal| refusal.at(offset))?;
        for integer in integers {
            self.elements += 1;
            let taken = self.sink.set_member(itoa::Buffer::new().format(integer).as_bytes());
            taken.map_err(|refusal| refusal.at(offset))?;
        }
        Ok(())
    }

    fn zipmap(&mut self) -> Result<()> {
        let offset = self.source.position();
        let mut zipmap = Zipmap::open(string(self.source, self.first)?).map_err(|flaw| flaw.at(offset))?;
        self.sink.begin(Kind::Hash, None).map_err(|refusal| refusal.at(offset))?;
        while let Some((field, value)) = zipmap.next().map_err(|flaw| flaw.at(offset))? {
            self.elements += 1;
            self.sink.hash_field(field, value, None).map_err(|refusal| refusal.at(offset))?;
        }
        Ok(())
    }

    /// Values that are one listpack or ziplist.
    fn packed(&mut self, tag: u8, kind: Kind) -> Result<()> {
        if tag == tag::HASH_LISTPACK_EX {
            // The least time of all fields, which the fields tell as well.
            array::<8, _>(self.source)?;
        }
        let offset = self.source.position();
        let blob = string(self.source, self.first)?;
        let flawed = |flaw: Flaw| flaw.at(offset);
        let refused = |refusal: Refusal| refusal.at(offset);
        self.sink.begin(kind, None).map_err(refused)?;
        let mut elements = match tag {
            tag::LIST_ZIPLIST | tag::ZSET_ZIPLIST | tag::HASH_ZIPLIST => {
                Packed::Ziplist(Ziplist::open(blob).map_err(flawed)?)
            }
            _ => Packed::Listpack(Listpack::open(blob).map_err(flawed)?),
        };
        let (mut digits, mut more) = (itoa::Buffer::new(), itoa::Buffer::new());
        while let Some(element) = elements.next().map_err(flawed)? {
            self.elements += 1;
            let text = element.bytes(&mut digits);
            let taken = match tag {
                tag::LIST_ZIPLIST => self.sink.list_item(text),
                tag::SET_LISTPACK => self.sink.set_member(text),
                tag::ZSET_ZIPLIST | tag::ZSET_LISTPACK => {
                    let score = score(elements.expect().map_err(flawed)?).map_err(flawed)?;
                    self.sink.sorted_set_member(text, score)
                }
                tag::HASH_LISTPACK_EX | tag::HASH_LISTPACK_EX_PRE_GA => {
                    let value = elements.expect().map_err(flawed)?.bytes(&mut more);
                    let Element::Int(at) = elements.expect().map_err(flawed)? else {
                        return Err(flawed(Flaw("expiry of a field that is not a number")));
                    };
                    let at = u64::try_from(at).map_err(|_| flawed(Flaw(NEGATIVE_TIME)))?;
                    self.sink.hash_field(text, value, Some(at).filter(|at| *at != 0))
                }
                _ => {
                    let value = elements.expect().map_err(flawed)?.bytes(&mut more);
                    self.sink.hash_field(text, value, None)
                }
            };
            taken.map_err(refused)?;
        }
        Ok(())
    }
}

impl Refusal {
    pub(crate) fn at(self, offset: u64) -> Error {
        match self {
            Refusal::Duplicate => Error::new(ErrorKind::Duplicate, offset),
            Refusal::Other(what) => Error::new(ErrorKind::Corrupt(what), offset),
        }
    }
}

/// Either packed form.
enum Packed<'a> {
    Listpack(Listpack<'a>),
    Ziplist(Ziplist<'a>),
}

impl<'a> Packed<'a> {
    fn next(&mut self) -> std::result::Result<Option<Element<'a>>, Flaw> {
        match self {
            Packed::Listpack(listpack) => listpack.next(),
            Packed::Ziplist(ziplist) => ziplist.next(),
        }
    }

    fn expect(&mut self) -> std::result::Result<Element<'a>, Flaw> {
        self.next()?.ok_or(Flaw("packed value with an odd number of elements"))
    }
}

/// A score in a listpack or ziplist.
fn score(element: Element<'_>) -> std::result::Result<f64, Flaw> {
    let score = match element {
        // Scores beyond 2^53 are never written as integers by the servers, but rounding is what they would do.
        Element::Int(integer) => integer as f64,
        Element::Bytes(text) => parse_score(text).ok_or(BAD_SCORE)?,
    };
    if score.is_nan() { Err(BAD_SCORE) } else { Ok(score) }
}

fn parse_score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The score of a sorted set before version 8: its length and its digits, or a mark.
fn text_score<S: Source>(source: &mut S) -> Result<f64> {
    match byte(source)? {
        255 => Ok(f64::NEG_INFINITY),
        254 => Ok(f64::INFINITY),
        253 => Ok(f64::NAN),
        len => match parse_score(source.take(usize::from(len))?) {
            Some(score) => Ok(score),
            None => Err(corrupt(source, BAD_SCORE.0)),
        },
    }
}

/// A list node that is one item.
pub(crate) const PLAIN: u64 = 1;
/// A list node that is a listpack.
pub(crate) const PACKED: u64 = 2;
const BAD_SCORE: Flaw = Flaw("score that is not a number");
const NEGATIVE_TIME: &str = "expiry of a field before 1970";
