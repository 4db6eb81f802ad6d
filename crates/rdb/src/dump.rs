//! Payloads of DUMP and RESTORE: `type | value | version u16 | checksum u64`, the last two little endian.

use crate::crc64::crc64;
use crate::decode::Decoder;
use crate::encode::{Encoder, Scratch};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Options, Version};
use crate::sink::Sink;
use crate::source::Slice;
use crate::tag::{HASH_2, NEWEST_VERSION};
use std::io;

/// The payload of the value that `write` gives to the encoder.
///
/// It carries the version of the options, or that of Valkey 9 if the value is a hash whose fields expire.
pub fn dump<F>(options: &Options, write: F) -> io::Result<Vec<u8>>
where
    F: for<'a> FnOnce(Encoder<'a, Vec<u8>>) -> io::Result<()>,
{
    let mut payload = Vec::new();
    write(Encoder::new(&mut payload, options, None, &mut Scratch::default()))?;
    let version = match payload.first() {
        Some(&HASH_2) => Version::V80,
        _ => options.version,
    };
    payload.extend_from_slice(&version.number().to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    Ok(payload)
}

/// A payload whose version and checksum are right.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The byte of its type; see [`kind`](crate::kind).
    pub tag: u8,
    /// Version of the format.
    pub version: u32,
    /// The encoded value.
    pub value: &'a [u8],
}

/// Checks version and checksum, which is what Redis's "DUMP payload version or checksum are wrong" is about.
pub fn verify(payload: &[u8]) -> Result<Payload<'_>> {
    let truncated = || Error::new(ErrorKind::Truncated, payload.len() as u64);
    let (summed, stored) = payload.split_last_chunk().ok_or_else(truncated)?;
    let (body, version) = summed.split_last_chunk().ok_or_else(truncated)?;
    let version = u32::from(u16::from_le_bytes(*version));
    if version > NEWEST_VERSION {
        return Err(Error::new(ErrorKind::Version(version), body.len() as u64));
    }
    let (stored, calculated) = (u64::from_le_bytes(*stored), crc64(0, summed));
    if stored != calculated {
        return Err(Error::new(ErrorKind::Checksum { stored, calculated }, summed.len() as u64));
    }
    let (tag, value) = body.split_first().ok_or_else(truncated)?;
    Ok(Payload { tag: *tag, version, value })
}

impl Payload<'_> {
    /// Decodes the value. Any error is Redis's "Bad data format".
    pub fn decode<K: Sink>(&self, sink: &mut K) -> Result<()> {
        let mut source = Slice::new(self.value);
        Decoder::default().decode(self.tag, self.version, &mut source, sink)?;
        match source.rest() {
            [] => Ok(()),
            _ => Err(Error::new(ErrorKind::Trailing, (self.value.len() - source.rest().len()) as u64)),
        }
    }
}
