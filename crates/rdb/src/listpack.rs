//! Listpack: `size u32 | count u16 | entry … | ff`, little endian; an entry is `encoding | data | length of both, readable
//! from the end`. Small integers are stored as numbers. The count is 65535 when it is not known.
//!
//! [`Listpack`] reads and checks everything that Redis's deep validation does; [`Builder`] writes.

use crate::error::Flaw;
use gimmal_resp::parse_i64;
use std::io;

/// An element of a packed value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element<'a> {
    /// A string.
    Bytes(&'a [u8]),
    /// A string that is a canonical decimal integer.
    Int(i64),
}

impl<'a> Element<'a> {
    /// Its bytes; `digits` holds those of an integer.
    #[inline]
    pub(crate) fn bytes<'b>(self, digits: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Element::Bytes(bytes) => bytes,
            Element::Int(integer) => digits.format(integer).as_bytes(),
        }
    }
}

/// Reads a listpack.
#[derive(Clone, Debug)]
pub(crate) struct Listpack<'a> {
    /// Entries that were not read yet.
    rest: &'a [u8],
    read: u64,
    /// As the header says; `None` if it does not.
    count: Option<u16>,
}

impl<'a> Listpack<'a> {
    /// Checks the frame.
    pub(crate) fn open(blob: &'a [u8]) -> Result<Listpack<'a>, Flaw> {
        let Some(([s0, s1, s2, s3, c0, c1], body)) = blob.split_first_chunk() else {
            return Err(Flaw("listpack without a header"));
        };
        if u64::from(u32::from_le_bytes([*s0, *s1, *s2, *s3])) != blob.len() as u64 {
            return Err(Flaw("listpack of the wrong size"));
        }
        let [rest @ .., END] = body else { return Err(Flaw("listpack without an end")) };
        let count = u16::from_le_bytes([*c0, *c1]);
        Ok(Listpack { rest, read: 0, count: (count != UNKNOWN_COUNT).then_some(count) })
    }

    /// The next element; `None` behind the last, if their number is right.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Element<'a>>, Flaw> {
        if self.rest.is_empty() {
            return match self.count {
                Some(count) if u64::from(count) != self.read => Err(Flaw("listpack with a wrong count")),
                _ => Ok(None),
            };
        }
        let (element, len) = element(self.rest).ok_or(Flaw("listpack element that is cut or unknown"))?;
        let (back, size) = back_length(len).ok_or(Flaw("listpack element that is too long"))?;
        let end = self.rest.get(len..len + size).ok_or(Flaw("listpack element without an end"))?;
        if end != &back[..size] {
            return Err(Flaw("listpack element with a wrong length at its end"));
        }
        self.rest = &self.rest[len + size..];
        self.read += 1;
        Ok(Some(element))
    }

    /// The next element, which must be there.
    pub(crate) fn expect(&mut self) -> Result<Element<'a>, Flaw> {
        self.next()?.ok_or(Flaw("listpack that ends too early"))
    }

    /// The next element, which must be an integer.
    pub(crate) fn expect_int(&mut self) -> Result<i64, Flaw> {
        match self.expect()? {
            Element::Int(integer) => Ok(integer),
            Element::Bytes(_) => Err(Flaw("listpack element that is not an integer")),
        }
    }
}

/// The element at the beginning of `bytes`, and its length without what follows it.
#[inline]
fn element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let (first, rest) = bytes.split_first()?;
    let first = *first;
    let text = |head: usize, len: usize| {
        let end = head.checked_add(len)?;
        bytes.get(head..end).map(|text| (Element::Bytes(text), end))
    };
    let integer = |value: i64, len: usize| Some((Element::Int(value), len));
    match first {
        0..=0x7f => integer(i64::from(first), 1),
        0x80..=0xbf => text(1, usize::from(first & 0x3f)),
        0xc0..=0xdf => {
            let raw = i16::from_be_bytes([first & 0x1f, *rest.first()?]);
            // Thirteen bits, the highest of which is the sign.
            integer(i64::from(raw << 3 >> 3), 2)
        }
        0xe0..=0xef => text(2, usize::from(u16::from_be_bytes([first & 0x0f, *rest.first()?]))),
        0xf0 => text(5, usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?),
        0xf1 => integer(i64::from(i16::from_le_bytes(*rest.first_chunk()?)), 3),
        0xf2 => {
            let [a, b, c] = *rest.first_chunk()?;
            integer(i64::from(i32::from_le_bytes([0, a, b, c]) >> 8), 4)
        }
        0xf3 => integer(i64::from(i32::from_le_bytes(*rest.first_chunk()?)), 5),
        0xf4 => integer(i64::from_le_bytes(*rest.first_chunk()?), 9),
        _ => None,
    }
}

/// The bytes behind an element of `len` bytes, from which it can be found backwards: seven bits a byte, the last ones at
/// the end, every byte but the first marked. The limits of two and more bytes are one short of what fits, as in Redis.
fn back_length(len: usize) -> Option<([u8; 5], usize)> {
    let len = u32::try_from(len).ok()?;
    let size = match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    let mut rest = len;
    for (at, byte) in bytes[..size].iter_mut().enumerate().rev() {
        let [low, ..] = rest.to_le_bytes();
        *byte = low & 0x7f | if at > 0 { 0x80 } else { 0 };
        rest >>= 7;
    }
    Some((bytes, size))
}

/// An upper bound of what [`Builder::push`] adds for a string of `len` bytes.
pub(crate) fn size_bound(len: usize) -> usize {
    let around = match len {
        0..=63 => 2,
        64..=4095 => 4,
        _ => 10,
    };
    // An integer takes up to ten bytes, and at most one more than its digits.
    len.saturating_add(around)
}

/// Writes a listpack.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    count: u64,
    is_too_large: bool,
}

impl Builder {
    /// Begins a listpack, keeping the memory of the last.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        self.count = 0;
        self.is_too_large = false;
    }

    /// Elements since [`Builder::clear`].
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Appends a string, as an integer if it is one.
    pub(crate) fn push(&mut self, text: &[u8]) {
        match parse_i64(text) {
            Some(integer) => self.push_int(integer),
            None => self.push_text(text),
        }
    }

    /// Appends an integer.
    pub(crate) fn push_int(&mut self, integer: i64) {
        let begin = self.bytes.len();
        if LISTPACK_MAX - begin < size_bound(0) + 9 {
            self.is_too_large = true;
            return;
        }
        let bytes = integer.to_le_bytes();
        let [b0, b1, ..] = bytes;
        if (0..=127).contains(&integer) {
            self.bytes.push(b0);
        } else if (-4096..=4095).contains(&integer) {
            self.bytes.extend_from_slice(&[0xc0 | b1 & 0x1f, b0]);
        } else {
            let (tag, width) = match integer {
                -0x8000..=0x7fff => (0xf1, 2),
                -0x80_0000..=0x7f_ffff => (0xf2, 3),
                -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                _ => (0xf4, 8),
            };
            self.bytes.push(tag);
            self.bytes.extend_from_slice(&bytes[..width]);
        }
        self.close(begin);
    }

    fn push_text(&mut self, text: &[u8]) {
        let begin = self.bytes.len();
        let Some(len) = u32::try_from(text.len()).ok().filter(|_| size_bound(text.len()) <= LISTPACK_MAX - begin)
        else {
            self.is_too_large = true;
            return;
        };
        let [b0, b1, ..] = len.to_le_bytes();
        match len {
            0..=63 => self.bytes.push(0x80 | b0),
            64..=4095 => self.bytes.extend_from_slice(&[0xe0 | b1, b0]),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&len.to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.close(begin);
    }

    fn close(&mut self, begin: usize) {
        let (back, size) = back_length(self.bytes.len() - begin).expect("bounded above");
        self.bytes.extend_from_slice(&back[..size]);
        self.count += 1;
    }

    /// The finished listpack; an error if it would be larger than servers load.
    pub(crate) fn finish(&mut self) -> io::Result<&[u8]> {
        self.bytes.push(END);
        let size = u32::try_from(self.bytes.len()).ok().filter(|_| !self.is_too_large);
        let Some(size) = size else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a packed value would be larger than 1 GiB"));
        };
        let count = u16::try_from(self.count).unwrap_or(UNKNOWN_COUNT);
        let [s0, s1, s2, s3] = size.to_le_bytes();
        let [c0, c1] = count.to_le_bytes();
        self.bytes[..HEADER].copy_from_slice(&[s0, s1, s2, s3, c0, c1]);
        Ok(&self.bytes)
    }
}

/// Redis refuses to make larger ones, 1 GiB.
pub(crate) const LISTPACK_MAX: usize = 1 << 30;
const HEADER: usize = 6;
const END: u8 = 0xff;
const UNKNOWN_COUNT: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn build(texts: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = Builder::default();
        builder.clear();
        for text in texts {
            let before = builder.bytes.len();
            builder.push(text);
            assert!(builder.bytes.len() - before <= size_bound(text.len()));
        }
        builder.finish().expect("small").to_vec()
    }

    fn all(blob: &[u8]) -> Result<Vec<Vec<u8>>, Flaw> {
        let mut listpack = Listpack::open(blob)?;
        let mut texts = Vec::new();
        while let Some(element) = listpack.next()? {
            texts.push(element.bytes(&mut itoa::Buffer::new()).to_vec());
        }
        Ok(texts)
    }

    fn samples() -> Vec<Vec<u8>> {
        let edges =
            [0, 127, 128, 4095, 4096, 32_767, 32_768, 8_388_607, 8_388_608, 2_147_483_647, 2_147_483_648, i64::MAX];
        let integers = edges.iter().flat_map(|n| [*n, -n, -n - 1]).map(|n| n.to_string().into_bytes());
        let lengths = [0, 1, 63, 64, 121, 126, 127, 4095, 4096, 16_377, 16_378, 16_379, 70_000];
        integers.chain(lengths.iter().map(|len| vec![b'x'; *len])).chain([b"007".to_vec(), b"-0".to_vec()]).collect()
    }

    #[test]
    fn round_trips() {
        let texts = samples();
        assert_eq!(all(&build(&texts)).expect("a listpack"), texts);
        assert_eq!(all(&build(&[])).expect("a listpack"), Vec::<Vec<u8>>::new());
        let many = vec![b"1".to_vec(); 70_000];
        assert_eq!(all(&build(&many)).expect("a listpack").len(), 70_000);
    }

    #[test]
    fn known_bytes() {
        let blob = build(&[b"1".to_vec(), b"ab".to_vec(), b"-1".to_vec()]);
        assert_eq!(blob, [16, 0, 0, 0, 3, 0, 1, 1, 0x82, b'a', b'b', 3, 0xdf, 0xff, 2, 0xff]);
    }

    #[test]
    fn no_damage_goes_unnoticed_or_panics() {
        let blob = build(&samples()[..40]);
        for cut in 0..blob.len() {
            assert!(all(&blob[..cut]).is_err());
        }
        for at in 0..blob.len() {
            for flip in 1..=255 {
                let mut damaged = blob.clone();
                damaged[at] ^= flip;
                // It may be another listpack; reading it ends.
                if let Ok(texts) = all(&damaged) {
                    assert!(texts.len() <= blob.len());
                }
            }
        }
    }
}
