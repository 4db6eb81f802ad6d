//! The packed values of older servers, which are only read.
//!
//! Ziplist (to Redis 6.2): `size u32 | tail u32 | count u16 | entry … | ff`, little endian; an entry is
//! `length of the entry before | encoding | data`. Zipmap (to Redis 2.4): `count | (length | field | length | free | value |
//! unused …) … | ff`.

use crate::error::Flaw;
use crate::listpack::Element;

/// Reads a ziplist, with all checks of Redis's deep validation.
#[derive(Debug)]
pub(crate) struct Ziplist<'a> {
    /// The blob without its end mark.
    bytes: &'a [u8],
    at: usize,
    /// Length of the entry before `at`.
    before: usize,
    tail: usize,
    read: u64,
    count: Option<u16>,
}

impl<'a> Ziplist<'a> {
    /// Checks the frame.
    pub(crate) fn open(blob: &'a [u8]) -> Result<Ziplist<'a>, Flaw> {
        let Some(([s0, s1, s2, s3, t0, t1, t2, t3, c0, c1], _)) = blob.split_first_chunk() else {
            return Err(Flaw("ziplist without a header"));
        };
        if u64::from(u32::from_le_bytes([*s0, *s1, *s2, *s3])) != blob.len() as u64 {
            return Err(Flaw("ziplist of the wrong size"));
        }
        let [bytes @ .., 0xff] = blob else { return Err(Flaw("ziplist without an end")) };
        let tail = usize::try_from(u32::from_le_bytes([*t0, *t1, *t2, *t3])).map_err(|_| WRONG_TAIL)?;
        let count = u16::from_le_bytes([*c0, *c1]);
        let count = (count != u16::MAX).then_some(count);
        if bytes.len() < HEADER {
            return Err(Flaw("ziplist without an end"));
        }
        Ok(Ziplist { bytes, at: HEADER, before: 0, tail, read: 0, count })
    }

    /// The next element; `None` behind the last, if number and tail are right.
    pub(crate) fn next(&mut self) -> Result<Option<Element<'a>>, Flaw> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            if self.count.is_some_and(|count| u64::from(count) != self.read) {
                return Err(Flaw("ziplist with a wrong count"));
            }
            if self.tail != self.at - self.before {
                return Err(WRONG_TAIL);
            }
            return Ok(None);
        }
        let (before, head) = length_before(rest).ok_or(CUT)?;
        if before != self.before {
            return Err(Flaw("ziplist entry with a wrong length of the one before"));
        }
        let (element, len) = ziplist_element(&rest[head..]).ok_or(CUT)?;
        self.before = head + len;
        self.at += self.before;
        self.read += 1;
        Ok(Some(element))
    }
}

/// The length of the entry before, and how many bytes say so.
fn length_before(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [0xfe, a, b, c, d, ..] => Some((usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?, 5)),
        [short @ 0..=0xfd, ..] => Some((usize::from(short), 1)),
        _ => None,
    }
}

/// The element at the beginning of `bytes`, and its length.
fn ziplist_element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let (first, rest) = bytes.split_first()?;
    let first = *first;
    let text = |head: usize, len: usize| {
        let end = head.checked_add(len)?;
        bytes.get(head..end).map(|text| (Element::Bytes(text), end))
    };
    let integer = |value: i64, len: usize| Some((Element::Int(value), len));
    match first {
        0..=0x3f => text(1, usize::from(first)),
        0x40..=0x7f => text(2, usize::from(u16::from_be_bytes([first & 0x3f, *rest.first()?]))),
        0x80 => text(5, usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?),
        0xc0 => integer(i64::from(i16::from_le_bytes(*rest.first_chunk()?)), 3),
        0xd0 => integer(i64::from(i32::from_le_bytes(*rest.first_chunk()?)), 5),
        0xe0 => integer(i64::from_le_bytes(*rest.first_chunk()?), 9),
        0xf0 => {
            let [a, b, c] = *rest.first_chunk()?;
            integer(i64::from(i32::from_le_bytes([0, a, b, c]) >> 8), 4)
        }
        0xfe => integer(i64::from(i8::from_le_bytes(*rest.first_chunk()?)), 2),
        0xf1..=0xfd => integer(i64::from(first & 0x0f) - 1, 1),
        _ => None,
    }
}

/// A field and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// Reads a zipmap.
#[derive(Debug)]
pub(crate) struct Zipmap<'a> {
    rest: &'a [u8],
    read: u64,
    count: Option<u8>,
}

impl<'a> Zipmap<'a> {
    /// Checks the frame.
    pub(crate) fn open(blob: &'a [u8]) -> Result<Zipmap<'a>, Flaw> {
        let [count, rest @ .., 0xff] = blob else { return Err(Flaw("zipmap without a frame")) };
        Ok(Zipmap { rest, read: 0, count: (*count < BIG).then_some(*count) })
    }

    /// The next field and value; `None` behind the last.
    pub(crate) fn next(&mut self) -> Result<Option<Pair<'a>>, Flaw> {
        if self.rest.is_empty() {
            return match self.count {
                Some(count) if u64::from(count) != self.read => Err(Flaw("zipmap with a wrong count")),
                _ => Ok(None),
            };
        }
        self.pair().map(Some).ok_or(Flaw("zipmap entry that is cut"))
    }

    fn pair(&mut self) -> Option<Pair<'a>> {
        let (len, rest) = zipmap_length(self.rest)?;
        let (field, rest) = rest.split_at_checked(len)?;
        let (len, rest) = zipmap_length(rest)?;
        let (unused, rest) = rest.split_first()?;
        let (value, rest) = rest.split_at_checked(len)?;
        self.rest = rest.get(usize::from(*unused)..)?;
        self.read += 1;
        Some((field, value))
    }
}

fn zipmap_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [BIG, a, b, c, d, rest @ ..] => Some((usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).ok()?, rest)),
        [short @ 0..BIG, rest @ ..] => Some((usize::from(*short), rest)),
        _ => None,
    }
}

const HEADER: usize = 10;
const CUT: Flaw = Flaw("ziplist entry that is cut or unknown");
const WRONG_TAIL: Flaw = Flaw("ziplist with a wrong tail");
/// In a zipmap: a length follows in four bytes; as the count: not known.
const BIG: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    /// `["ab", 5, -1, 300, 2^40]`, written by hand.
    fn sample() -> Vec<u8> {
        let mut body: Vec<u8> = vec![0, 2, b'a', b'b', 4, 0xf6, 2, 0xfe, 0xff, 3, 0xc0, 0x2c, 1, 4, 0xe0];
        body.extend((1_i64 << 40).to_le_bytes());
        let mut blob = Vec::new();
        blob.extend(u32::try_from(body.len() + 11).expect("short").to_le_bytes());
        blob.extend([23, 0, 0, 0, 5, 0]);
        blob.extend(body);
        blob.push(0xff);
        blob
    }

    fn all(blob: &[u8]) -> Result<Vec<Vec<u8>>, Flaw> {
        let mut ziplist = Ziplist::open(blob)?;
        let mut texts = Vec::new();
        while let Some(element) = ziplist.next()? {
            texts.push(element.bytes(&mut itoa::Buffer::new()).to_vec());
        }
        Ok(texts)
    }

    #[test]
    fn elements_are_read() {
        let texts = all(&sample()).expect("a ziplist");
        assert_eq!(texts, [&b"ab"[..], b"5", b"-1", b"300", b"1099511627776"]);
        assert_eq!(all(&[11, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0xff]).expect("a ziplist"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn no_damage_panics() {
        let blob = sample();
        for cut in 0..blob.len() {
            assert!(all(&blob[..cut]).is_err());
        }
        for at in 0..HEADER {
            let mut damaged = blob.clone();
            damaged[at] ^= 0x41;
            assert!(all(&damaged).is_err(), "byte {at}");
        }
        for at in 0..blob.len() {
            for flip in 1..=255 {
                let mut damaged = blob.clone();
                damaged[at] ^= flip;
                assert!(all(&damaged).map_or(0, |texts| texts.len()) <= blob.len());
            }
        }
    }

    #[test]
    fn zipmaps() {
        let blob = [2, 1, b'a', 2, 1, b'x', b'y', b'?', 0, 0, 0, 0xff];
        let mut zipmap = Zipmap::open(&blob).expect("a zipmap");
        assert_eq!(zipmap.next(), Ok(Some((&b"a"[..], &b"xy"[..]))));
        assert_eq!(zipmap.next(), Ok(Some((&b""[..], &b""[..]))));
        assert_eq!(zipmap.next(), Ok(None));
        for cut in 0..blob.len() {
            let mut zipmap = Zipmap { rest: &blob[cut..], read: 0, count: Some(2) };
            while let Ok(Some(_)) = zipmap.next() {}
        }
        assert!(Zipmap::open(&[]).is_err() && Zipmap::open(&[0xff]).is_err());
        assert!(Zipmap::open(&[1, 0xff]).expect("a frame").next().is_err());
    }
}
