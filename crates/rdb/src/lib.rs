//! Redis's RDB format: single values as DUMP and RESTORE carry them, and whole files.
//!
//! * Reading a value: a [`Decoder`] takes bytes from a [`Source`] and gives elements to a [`Sink`], which builds the value
//!   where it belongs. Payloads of RESTORE: [`verify`], then [`Payload::decode`].
//! * Writing a value: an [`Encoder`] takes iterators of elements. Payloads of DUMP: [`dump`], or of
//!   large values [`Pieces`].
//! * Files: [`file::Reader`] and [`file::Writer`].
//! * [`Object`] is a value as plain data, for tools and tests.
//!
//! Read are all types of versions 1 to 11, hashes whose fields expire as Redis 7.4 and Valkey 9 write them, and neither
//! values of modules nor what release candidates wrote. Written are version 10 or 11 (see [`Options`]).
//!
//! Invariants: no I/O but `std::io::Read` and `Write`; nothing is known of server or store. Every byte that is read is
//! hostile: no panic, no loop without end, no allocation from a declared length before the bytes arrive (what LZF can make
//! out of them, at most 88 times as many, is the one amplification). What is accepted is what Redis's deep sanitizing
//! accepts, and a bit less: ids of a stream ascend, an entry is pending for one consumer only, nothing stands behind a value.

#![forbid(unsafe_code)]

mod crc64;
mod decode;
mod dump;
mod encode;
mod error;
pub mod file;
mod intset;
mod listpack;
mod lzf;
mod object;
mod options;
mod primitive;
mod sink;
mod skip;
mod source;
mod stream;
mod tag;
mod ziplist;

pub use crc64::crc64;
pub use decode::{Decoder, PART};
pub use dump::{Payload, dump, verify};
pub use encode::{Encoder, ListNodes, Pieces, Scratch, StreamNodes};
pub use error::{Error, ErrorKind, Result};
pub use object::{Collect, Object, Pairs, Stream};
pub use options::{Options, Version};
pub use sink::{Kind, Refusal, Sink, Taken};
pub use source::{Slice, Source};
pub use stream::{Consumer, Fields, Group, Pending, StreamId, StreamMeta};
pub use tag::{NEWEST_VERSION, kind};
