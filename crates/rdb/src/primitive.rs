//! Lengths and strings, of which everything else is made.
//!
//! ```text
//! 00LLLLLL | 01LLLLLL b | 80 u32 | 81 u64      a length, big endian; of a string its bytes follow
//! c0 i8 | c1 i16 | c2 i32                      a string that is a number, little endian
//! c3 packed-length length packed-bytes         a string compressed with LZF
//! ```

use crate::error::{Error, ErrorKind, Result};
use crate::lzf;
use crate::source::Source;

/// What begins a string.
#[derive(Clone, Copy)]
pub(crate) enum Head {
    /// So many bytes.
    Plain(u64),
    /// A number.
    Int(i64),
    /// Compressed: its length so, and as it is.
    Lzf { packed: usize, len: usize },
}

/// An error at the current position.
pub(crate) fn corrupt<S: Source>(source: &S, what: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt(what), source.position())
}

/// The next `N` bytes.
#[inline]
pub(crate) fn array<const N: usize, S: Source>(source: &mut S) -> Result<[u8; N]> {
    let bytes = source.take(N)?;
    Ok(bytes.try_into().expect("as many bytes as were asked for"))
}

/// The next byte.
#[inline]
pub(crate) fn byte<S: Source>(source: &mut S) -> Result<u8> {
    let [byte] = array(source)?;
    Ok(byte)
}

/// A length or another unsigned number.
#[inline]
pub(crate) fn length<S: Source>(source: &mut S) -> Result<u64> {
    let first = byte(source)?;
    length_after(first, source)?.ok_or_else(|| corrupt(source, "an encoded string where a length belongs"))
}

/// The length that `first` begins; `None` if it begins an encoded string.
#[inline]
fn length_after<S: Source>(first: u8, source: &mut S) -> Result<Option<u64>> {
    match first {
        0..=0x3f => Ok(Some(u64::from(first))),
        0x40..=0x7f => Ok(Some(u64::from(u16::from_be_bytes([first & 0x3f, byte(source)?])))),
        0x80 => Ok(Some(u64::from(u32::from_be_bytes(array(source)?)))),
        0x81 => Ok(Some(u64::from_be_bytes(array(source)?))),
        0x82..=0xbf => Err(corrupt(source, "unknown length encoding")),
        0xc0..=0xff => Ok(None),
    }
}

/// A length that counts bytes in memory.
pub(crate) fn size<S: Source>(source: &mut S) -> Result<usize> {
    let len = length(source)?;
    usize::try_from(len).map_err(|_| Error::new(ErrorKind::Truncated, source.position()))
}

/// The beginning of a string.
#[inline]
pub(crate) fn head<S: Source>(source: &mut S) -> Result<Head> {
    let first = byte(source)?;
    if let Some(len) = length_after(first, source)? {
        return Ok(Head::Plain(len));
    }
    match first {
        0xc0 => Ok(Head::Int(i64::from(i8::from_le_bytes(array(source)?)))),
        0xc1 => Ok(Head::Int(i64::from(i16::from_le_bytes(array(source)?)))),
        0xc2 => Ok(Head::Int(i64::from(i32::from_le_bytes(array(source)?)))),
        0xc3 => Ok(Head::Lzf { packed: size(source)?, len: size(source)? }),
        _ => Err(corrupt(source, "unknown string encoding")),
    }
}

/// The rest of a string, from the source's memory or, if it had to be made, in `scratch`.
#[inline]
pub(crate) fn body<'a, S: Source>(head: Head, source: &'a mut S, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    match head {
        Head::Plain(len) => match usize::try_from(len) {
            Ok(len) => source.take(len),
            Err(_) => Err(Error::new(ErrorKind::Truncated, source.position())),
        },
        Head::Int(integer) => {
            scratch.clear();
            scratch.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
            Ok(scratch)
        }
        Head::Lzf { packed, len } => {
            let offset = source.position();
            lzf::decompress(source.take(packed)?, len, scratch).map_err(|flaw| flaw.at(offset))?;
            Ok(scratch)
        }
    }
}

/// A whole string; see [`body`].
#[inline]
pub(crate) fn string<'a, S: Source>(source: &'a mut S, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    let head = head(source)?;
    body(head, source, scratch)
}

/// A whole string, moved into `to`, so that the next can be read beside it.
#[inline]
pub(crate) fn string_into<S: Source>(source: &mut S, to: &mut Vec<u8>) -> Result<()> {
    match head(source)? {
        Head::Plain(len) => {
            let len = usize::try_from(len).map_err(|_| Error::new(ErrorKind::Truncated, source.position()))?;
            let bytes = source.take(len)?;
            to.clear();
            to.extend_from_slice(bytes);
            Ok(())
        }
        head => body(head, source, to).map(|_| ()),
    }
}

/// Passes over a string; what it contains is not looked at.
pub(crate) fn skip_string<S: Source>(source: &mut S) -> Result<()> {
    match head(source)? {
        Head::Plain(len) => source.skip(len),
        Head::Int(_) => Ok(()),
        Head::Lzf { packed, .. } => source.skip(packed as u64),
    }
}
