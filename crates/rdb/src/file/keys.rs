//! Keys that were cut out of a file as they stand there, to be decoded elsewhere: [`Reader::keys`](super::Reader::keys) finds
//! out where they end, another thread takes them apart.

use super::reader::Entry;
use crate::decode::Decoder;
use crate::error::{Error, Result};
use crate::primitive::{Head, array, byte, head, length, skip_string};
use crate::skip::skip_value;
use crate::source::{Slice, Source};
use crate::{Sink, lzf, tag};

/// Whole keys with their values, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// As they stand in the file.
    pub bytes: &'a [u8],
    /// How many keys there are.
    pub keys: u64,
    /// Their database.
    pub db: u64,
    /// Where they begin in the file.
    pub offset: u64,
}

/// Goes over the keys of a [`Cut`].
#[derive(Clone, Debug)]
pub struct Keys<'a> {
    rest: Slice<'a>,
    version: u32,
    db: u64,
}

/// A key out of a [`Cut`].
#[derive(Debug)]
pub struct Key<'a> {
    /// What stands with it.
    pub entry: Entry,
    /// Its name.
    pub name: Text<'a>,
    /// Its value, encoded.
    pub value: &'a [u8],
    /// Where it ends, from the beginning of the cut.
    pub end: u64,
    version: u32,
}

/// A string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// Bytes that are there already.
    Bytes(&'a [u8]),
    /// A number, of which the string is the decimal form.
    Int(i64),
    /// It was compressed.
    Unpacked(Vec<u8>),
}

impl<'a> Keys<'a> {
    /// The keys in `bytes`, which are a cut's from `at` on: 0, or what [`Keys::position`] was. `version` is that of the file.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn new(bytes: &'a [u8], at: usize, version: u32, db: u64) -> Keys<'a> {
        Keys { rest: Slice::after(bytes, at), version, db }
    }

    /// Bytes that were gone over.
    pub fn position(&self) -> usize {
        usize::try_from(self.rest.position()).expect("a position in memory")
    }

    /// The next key; `None` behind the last.
    ///
    /// # Errors
    /// Only for its name: the value is looked at when it is decoded. Offsets count from the beginning of the cut.
    #[allow(clippy::should_implement_trait, reason = "an iterator's item would be a result that ends nothing")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Key<'a>>> {
        if self.rest.rest().is_empty() {
            return Ok(None);
        }
        let mut entry = Entry { db: self.db, ..Entry::default() };
        loop {
            entry.tag = byte(&mut self.rest)?;
            if !attribute(&mut self.rest, &mut entry)? {
                break;
            }
        }
        let name = Text::take(&mut self.rest)?;
        let from = self.rest.rest();
        skip_value(entry.tag, self.version, &mut self.rest)?;
        let value = &from[..from.len() - self.rest.rest().len()];
        Ok(Some(Key { entry, name, value, end: self.rest.position(), version: self.version }))
    }
}

impl<'a> Key<'a> {
    /// The value, if it is a string that need not be built.
    ///
    /// # Errors
    /// If it cannot be unpacked.
    #[inline]
    pub fn text(&self) -> Result<Option<Text<'a>>> {
        match self.entry.tag {
            tag::STRING => Text::take(&mut Slice::new(self.value)).map(Some),
            _ => Ok(None),
        }
    }
}

impl Key<'_> {
    /// Decodes the value.
    ///
    /// # Errors
    /// As [`Decoder::decode`]; offsets count from the beginning of the cut.
    pub fn decode<K: Sink>(&self, decoder: &mut Decoder, sink: &mut K) -> Result<()> {
        let begin = self.end - self.value.len() as u64;
        let moved = |error: Error| Error { offset: error.offset + begin, ..error };
        decoder.decode(self.entry.tag, self.version, &mut Slice::new(self.value), sink).map_err(moved)
    }
}

impl<'a> Text<'a> {
    #[inline]
    fn take(source: &mut Slice<'a>) -> Result<Text<'a>> {
        match head(source)? {
            Head::Plain(len) => {
                let bytes = source.rest();
                source.skip(len)?;
                Ok(Text::Bytes(&bytes[..bytes.len() - source.rest().len()]))
            }
            Head::Int(n) => Ok(Text::Int(n)),
            Head::Lzf { packed, len } => {
                let offset = source.position();
                let mut unpacked = Vec::new();
                lzf::decompress(source.take(packed)?, len, &mut unpacked).map_err(|flaw| flaw.at(offset))?;
                Ok(Text::Unpacked(unpacked))
            }
        }
    }
}

/// Takes what stands with a key in front of its type, of which `entry.tag` was read as the type; false if it is none of that.
#[inline]
pub(super) fn attribute<S: Source>(source: &mut S, entry: &mut Entry) -> Result<bool> {
    match entry.tag {
        tag::EXPIRETIME_MS => entry.expire_at_ms = Some(i64::from_le_bytes(array(source)?)),
        tag::EXPIRETIME => entry.expire_at_ms = Some(i64::from(i32::from_le_bytes(array(source)?)) * 1000),
        tag::IDLE => entry.idle_s = Some(length(source)?),
        tag::FREQ => entry.frequency = Some(byte(source)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Passes over a key and its value. False if something else comes: some bytes of it may have been taken.
pub(super) fn skip_key<S: Source>(version: u32, source: &mut S) -> Result<bool> {
    let mut entry = Entry::default();
    loop {
        entry.tag = byte(source)?;
        if attribute(source, &mut entry)? {
            continue;
        }
        if entry.tag >= tag::SLOT_IMPORT {
            return Ok(false);
        }
        skip_string(source)?;
        return skip_value(entry.tag, version, source).map(|()| true);
    }
}
