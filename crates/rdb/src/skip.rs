//! Finding the end of a value without decoding it, so that it can be decoded elsewhere: on another thread, or not at all.

use crate::decode::unknown;
use crate::error::{Error, ErrorKind, Result};
use crate::primitive::{byte, length, skip_string};
use crate::source::Source;
use crate::tag;

/// Passes over the value that `tag` announces. Only lengths are looked at: what was passed over can be corrupt nevertheless.
pub(crate) fn skip_value<S: Source>(tag: u8, version: u32, source: &mut S) -> Result<()> {
    let times = |strings: u64, after: u64, source: &mut S| {
        for _ in 0..length(source)? {
            for _ in 0..strings {
                skip_string(source)?;
            }
            source.skip(after)?;
        }
        Ok(())
    };
    match tag {
        tag::STRING
        | tag::HASH_ZIPMAP
        | tag::LIST_ZIPLIST
        | tag::SET_INTSET
        | tag::ZSET_ZIPLIST
        | tag::HASH_ZIPLIST
        | tag::HASH_LISTPACK
        | tag::ZSET_LISTPACK
        | tag::SET_LISTPACK
        | tag::HASH_LISTPACK_EX_PRE_GA => skip_string(source),
        tag::HASH_LISTPACK_EX => {
            source.skip(8)?;
            skip_string(source)
        }
        tag::LIST | tag::SET | tag::LIST_QUICKLIST => times(1, 0, source),
        tag::HASH => times(2, 0, source),
        tag::ZSET_2 => times(1, 8, source),
        tag::HASH_2 if tag::is_valkey(version) => times(2, 8, source),
        tag::ZSET => {
            for _ in 0..length(source)? {
                skip_string(source)?;
                match byte(source)? {
                    253..=255 => {}
                    len => source.skip(u64::from(len))?,
                }
            }
            Ok(())
        }
        tag::LIST_QUICKLIST_2 => {
            for _ in 0..length(source)? {
                length(source)?;
                skip_string(source)?;
            }
            Ok(())
        }
        tag::HASH_2 | tag::HASH_METADATA => {
            if tag == tag::HASH_METADATA {
                source.skip(8)?;
            }
            for _ in 0..length(source)? {
                length(source)?;
                skip_string(source)?;
                skip_string(source)?;
            }
            Ok(())
        }
        tag::STREAM_LISTPACKS | tag::STREAM_LISTPACKS_2 | tag::STREAM_LISTPACKS_3 => skip_stream(tag, source),
        _ => Err(unknown(tag, source)),
    }
}

fn skip_stream<S: Source>(tag: u8, source: &mut S) -> Result<()> {
    for _ in 0..length(source)? {
        skip_string(source)?;
        skip_string(source)?;
    }
    let is_first = tag == tag::STREAM_LISTPACKS;
    skip_lengths(if is_first { 3 } else { 8 }, source)?;
    for _ in 0..length(source)? {
        skip_string(source)?;
        skip_lengths(if is_first { 2 } else { 3 }, source)?;
        for _ in 0..length(source)? {
            source.skip(16 + 8)?;
            length(source)?;
        }
        for _ in 0..length(source)? {
            skip_string(source)?;
            source.skip(if tag == tag::STREAM_LISTPACKS_3 { 16 } else { 8 })?;
            let pending = length(source)?;
            let bytes = pending.checked_mul(16).ok_or_else(|| Error::new(ErrorKind::Truncated, source.position()))?;
            source.skip(bytes)?;
        }
    }
    Ok(())
}

fn skip_lengths<S: Source>(count: u64, source: &mut S) -> Result<()> {
    for _ in 0..count {
        length(source)?;
    }
    Ok(())
}

/// Passes over data of a module, which describes itself.
pub(crate) fn skip_module<S: Source>(source: &mut S) -> Result<()> {
    loop {
        match length(source)? {
            0 => return Ok(()),
            1 | 2 => skip_lengths(1, source)?,
            3 => source.skip(4)?,
            4 => source.skip(8)?,
            5 => skip_string(source)?,
            _ => return Err(crate::primitive::corrupt(source, "unknown kind of module data")),
        }
    }
}
