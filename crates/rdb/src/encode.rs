//! Values: from elements to their encoded form.
//!
//! Everything is written as it comes, nothing is collected beyond one packed node. What must be known first (is the value
//! small, how many nodes will it have) is found by going over the elements once before: iterators are cheap to clone, a
//! value in memory twice is not.

use crate::intset;
use crate::listpack::{Builder, LISTPACK_MAX, size_bound};
use crate::lzf::Compressor;
use crate::options::{Options, Version};
use crate::tag;
use gimmal_resp::parse_i64;
use std::io::{self, Write};

mod list;
mod pieces;
mod stream;

pub use pieces::{ListNodes, Pieces, StreamNodes};

/// Writes one value: the byte of its type, the key if it is in a file, and the value.
///
/// Each method takes the number of elements and the elements; an aggregate but a stream has at least
/// one. A wrong number is an error.
#[derive(Debug)]
pub struct Encoder<'a, W: Write> {
    out: &'a mut W,
    options: &'a Options,
    key: Option<&'a [u8]>,
    scratch: &'a mut Scratch,
    compress: bool,
}

/// Memory that encoders use one after the other.
#[derive(Debug, Default)]
pub struct Scratch {
    compressor: Compressor,
    listpack: Builder,
    blob: Vec<u8>,
}

impl<'a, W: Write> Encoder<'a, W> {
    /// Writes a value to `out`, with a key between type and value if there is one.
    pub fn new(
        out: &'a mut W,
        options: &'a Options,
        key: Option<&'a [u8]>,
        scratch: &'a mut Scratch,
    ) -> Encoder<'a, W> {
        Encoder { out, options, key, scratch, compress: options.compress }
    }

    /// A string.
    pub fn string(mut self, text: &[u8]) -> io::Result<()> {
        self.tag(tag::STRING)?;
        self.text(text)
    }

    /// A long string in parts, `len` bytes together. It is not compressed, which would take it in one piece.
    pub fn string_parts<T: AsRef<[u8]>>(mut self, len: u64, parts: impl IntoIterator<Item = T>) -> io::Result<()> {
        self.tag(tag::STRING)?;
        write_length(self.out, len)?;
        let mut written = 0;
        for part in parts {
            let part = part.as_ref();
            self.out.write_all(part)?;
            written += part.len() as u64;
        }
        same(len, written)
    }

    /// A set.
    pub fn set<T: AsRef<[u8]>>(mut self, len: usize, members: impl IntoIterator<Item = T> + Clone) -> io::Result<()> {
        not_empty(len)?;
        if len <= self.options.set_max_intset_entries {
            let integers: Option<Vec<i64>> = members.clone().into_iter().map(|m| parse_i64(m.as_ref())).collect();
            if let Some(mut integers) = integers {
                same(len as u64, integers.len() as u64)?;
                self.tag(tag::SET_INTSET)?;
                let mut blob = std::mem::take(&mut self.scratch.blob);
                blob.clear();
                intset::write(&mut integers, &mut blob);
                self.text(&blob)?;
                self.scratch.blob = blob;
                return Ok(());
            }
        }
        let (entries, value) = (self.options.set_max_listpack_entries, self.options.set_max_listpack_value);
        if self.options.version >= Version::V11 && len <= entries && fits(members.clone(), |m| m.as_ref().len(), value)
        {
            self.scratch.listpack.clear();
            for member in members {
                self.scratch.listpack.push(member.as_ref());
            }
            return self.packed(tag::SET_LISTPACK, len);
        }
        self.tag(tag::SET)?;
        self.plain(len, members, |encoder, member| encoder.text(member.as_ref()))
    }

    /// A sorted set, in ascending order of score and member, which the packed form must have.
    pub fn sorted_set<T: AsRef<[u8]>>(
        mut self,
        len: usize,
        members: impl IntoIterator<Item = (T, f64)> + Clone,
    ) -> io::Result<()> {
        not_empty(len)?;
        let (entries, value) = (self.options.zset_max_listpack_entries, self.options.zset_max_listpack_value);
        if len <= entries && fits(members.clone(), |(member, _)| member.as_ref().len(), value) {
            self.scratch.listpack.clear();
            for (member, score) in members {
                self.scratch.listpack.push(member.as_ref());
                push_score(&mut self.scratch.listpack, score);
            }
            return self.packed(tag::ZSET_LISTPACK, len.saturating_mul(2));
        }
        self.tag(tag::ZSET_2)?;
        self.plain(len, members, |encoder, (member, score)| {
            encoder.text(member.as_ref())?;
            encoder.out.write_all(&score.to_le_bytes())
        })
    }

    /// A hash none of whose fields expires.
    pub fn hash<F: AsRef<[u8]>, V: AsRef<[u8]>>(
        mut self,
        len: usize,
        pairs: impl IntoIterator<Item = (F, V)> + Clone,
    ) -> io::Result<()> {
        not_empty(len)?;
        let (entries, value) = (self.options.hash_max_listpack_entries, self.options.hash_max_listpack_value);
        let longest = |(field, value): (F, V)| field.as_ref().len().max(value.as_ref().len());
        if len <= entries && fits(pairs.clone(), longest, value) {
            self.scratch.listpack.clear();
            for (field, value) in pairs {
                self.scratch.listpack.push(field.as_ref());
                self.scratch.listpack.push(value.as_ref());
            }
            return self.packed(tag::HASH_LISTPACK, len.saturating_mul(2));
        }
        self.tag(tag::HASH)?;
        self.plain(len, pairs, |encoder, (field, value)| {
            encoder.text(field.as_ref())?;
            encoder.text(value.as_ref())
        })
    }

    /// A hash some of whose fields expire (Unix time in milliseconds), in Valkey 9's form.
    pub fn hash_with_expiries<F: AsRef<[u8]>, V: AsRef<[u8]>>(
        mut self,
        len: usize,
        fields: impl IntoIterator<Item = (F, V, Option<u64>)>,
    ) -> io::Result<()> {
        not_empty(len)?;
        self.tag(tag::HASH_2)?;
        self.plain(len, fields, |encoder, (field, value, at)| {
            encoder.text(field.as_ref())?;
            encoder.text(value.as_ref())?;
            let at = at.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX));
            encoder.out.write_all(&at.to_le_bytes())
        })
    }

    /// The number of elements, then each.
    fn plain<T>(
        &mut self,
        len: usize,
        elements: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        write_length(self.out, len as u64)?;
        let mut written = 0;
        for element in elements {
            write(self, element)?;
            written += 1;
        }
        same(len as u64, written)
    }

    /// The listpack that was built, of `len` elements, as the whole value.
    fn packed(&mut self, tag: u8, len: usize) -> io::Result<()> {
        same(len as u64, self.scratch.listpack.count())?;
        self.tag(tag)?;
        self.node()
    }

    /// The listpack that was built, as a string.
    fn node(&mut self) -> io::Result<()> {
        let Scratch { compressor, listpack, .. } = &mut *self.scratch;
        write_blob(self.out, listpack.finish()?, self.compress, compressor)
    }

    fn tag(&mut self, tag: u8) -> io::Result<()> {
        self.out.write_all(&[tag])?;
        match self.key.take() {
            Some(key) => self.text(key),
            None => Ok(()),
        }
    }

    /// A string, as a number or compressed if possible.
    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        write_text(self.out, text, self.compress, &mut self.scratch.compressor)
    }

    /// A string that is not a number, compressed if possible.
    fn blob(&mut self, blob: &[u8]) -> io::Result<()> {
        write_blob(self.out, blob, self.compress, &mut self.scratch.compressor)
    }
}

/// Whether no element is longer than `longest`, and all together fit a listpack.
fn fits<T>(elements: impl IntoIterator<Item = T>, len: impl Fn(T) -> usize, longest: usize) -> bool {
    let mut total = 0_usize;
    elements.into_iter().all(|element| {
        let len = len(element);
        // Twice: the value of a hash's field, or a score, may be as long.
        total = total.saturating_add(2 * size_bound(len.min(LISTPACK_MAX)));
        len <= longest && total <= LISTPACK_MAX
    })
}

fn same(declared: u64, written: u64) -> io::Result<()> {
    match declared == written {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "a value has not as many elements as it said")),
    }
}

/// Aggregates have elements: servers refuse a payload without, and drop such a key of a file.
fn not_empty(len: usize) -> io::Result<()> {
    match len {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, "a value without elements")),
        _ => Ok(()),
    }
}

fn push_score(listpack: &mut Builder, score: f64) {
    match exact_integer(score) {
        Some(integer) => listpack.push_int(integer),
        // The shortest digits that read back as the same number; with an exponent where they would be many.
        None => listpack.push(format!("{score:?}").as_bytes()),
    }
}

/// The score as an integer, if it is one that every double up to it represents; minus zero is none.
fn exact_integer(score: f64) -> Option<i64> {
    const EXACT: f64 = 4_503_599_627_370_496.0; // 2^52
    // The cast saturates and cuts fractions off, which the comparison finds.
    let integer = score as i64;
    let is_exact = score.abs() < EXACT && integer as f64 == score && (integer != 0 || score.is_sign_positive());
    is_exact.then_some(integer)
}

/// Writes a length or another unsigned number.
pub(crate) fn write_length<W: Write>(out: &mut W, len: u64) -> io::Result<()> {
    let [.., b4, b5, b6, b7] = len.to_be_bytes();
    match len {
        0..=0x3f => out.write_all(&[b7]),
        0x40..=0x3fff => out.write_all(&[0x40 | b6, b7]),
        0x4000..=0xffff_ffff => out.write_all(&[0x80, b4, b5, b6, b7]),
        _ => {
            out.write_all(&[0x81])?;
            out.write_all(&len.to_be_bytes())
        }
    }
}

/// Writes a string, as a number if it is one of up to 32 bits.
pub(crate) fn write_text<W: Write>(
    out: &mut W,
    text: &[u8],
    compress: bool,
    compressor: &mut Compressor,
) -> io::Result<()> {
    if text.len() <= LONGEST_I32
        && let Some(integer) = parse_i64(text)
    {
        let [b0, b1, b2, b3, ..] = integer.to_le_bytes();
        match integer {
            -0x80..=0x7f => return out.write_all(&[0xc0, b0]),
            -0x8000..=0x7fff => return out.write_all(&[0xc1, b0, b1]),
            -0x8000_0000..=0x7fff_ffff => return out.write_all(&[0xc2, b0, b1, b2, b3]),
            _ => {}
        }
    }
    write_blob(out, text, compress, compressor)
}

/// Writes a string that is not a number.
pub(crate) fn write_blob<W: Write>(
    out: &mut W,
    blob: &[u8],
    compress: bool,
    compressor: &mut Compressor,
) -> io::Result<()> {
    if compress
        && blob.len() > NOT_COMPRESSED
        && let Some(packed) = compressor.compress(blob)
    {
        out.write_all(&[0xc3])?;
        write_length(out, packed.len() as u64)?;
        write_length(out, blob.len() as u64)?;
        return out.write_all(packed);
    }
    write_length(out, blob.len() as u64)?;
    out.write_all(blob)
}

/// Strings up to this are not worth the try, as in Redis.
const NOT_COMPRESSED: usize = 20;
/// `-2147483648` has so many bytes.
const LONGEST_I32: usize = 11;
