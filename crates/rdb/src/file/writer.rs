//! Writing a file.

use crate::crc64::crc64;
use crate::encode::{Encoder, Scratch, write_length, write_text};
use crate::lzf::Compressor;
use crate::options::Options;
use crate::tag;
use std::io::{self, Write};

/// Writes a file: remarks and functions, then for each database its header and its keys, then the end.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Summed<W>,
    options: Options,
    scratch: Scratch,
}

/// What is written with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// When it expires, Unix time in milliseconds.
    pub expire_at_ms: Option<i64>,
    /// For how long it was not used, in seconds (policies of LRU).
    pub idle_s: Option<u64>,
    /// How often it is used (policies of LFU).
    pub frequency: Option<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file. Writes go out in pieces of 64 KiB or more. Without a checksum (`rdbchecksum no`) the file ends with
    /// zeros in its place.
    pub fn new(out: W, options: Options, has_checksum: bool) -> io::Result<Writer<W>> {
        let mut out = Summed { out, buf: Vec::with_capacity(2 * PIECE), crc: 0, written: 0, has_checksum };
        out.write_all(&options.version.magic())?;
        Ok(Writer { out, options, scratch: Scratch::default() })
    }

    /// A remark, such as `redis-ver` or `ctime`.
    pub fn aux(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        self.out.write_all(&[tag::AUX])?;
        self.text(name.as_bytes())?;
        self.text(value)
    }

    /// The source of a function library.
    pub fn function(&mut self, source: &[u8]) -> io::Result<()> {
        self.out.write_all(&[tag::FUNCTION2])?;
        self.text(source)
    }

    /// The keys that follow are of database `db`, which has about so many, of which so many expire.
    pub fn database(&mut self, db: u64, keys: u64, expiring: u64) -> io::Result<()> {
        self.select(db)?;
        self.out.write_all(&[tag::RESIZEDB])?;
        write_length(&mut self.out, keys)?;
        write_length(&mut self.out, expiring)
    }

    /// The keys that follow are of database `db`, whose header was written before.
    pub fn select(&mut self, db: u64) -> io::Result<()> {
        self.out.write_all(&[tag::SELECTDB])?;
        write_length(&mut self.out, db)
    }

    /// A key; its value is written by the encoder, of which exactly one method is to be called.
    pub fn entry<'a>(&'a mut self, key: &'a [u8], meta: &Meta) -> io::Result<Encoder<'a, impl Write + use<W>>> {
        self.meta(meta)?;
        Ok(Encoder::new(&mut self.out, &self.options, Some(key), &mut self.scratch))
    }

    /// A key whose value, of this type, comes in pieces: [`Pieces::take_tag`](crate::Pieces::take_tag), then what is taken of it goes
    /// to [`piece`](Writer::piece).
    pub fn large_entry(&mut self, key: &[u8], meta: &Meta, tag: u8) -> io::Result<()> {
        self.meta(meta)?;
        self.out.write_all(&[tag])?;
        self.text(key)
    }

    /// A part of an encoded value.
    pub fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    fn meta(&mut self, meta: &Meta) -> io::Result<()> {
        if let Some(at) = meta.expire_at_ms {
            self.out.write_all(&[tag::EXPIRETIME_MS])?;
            self.out.write_all(&at.to_le_bytes())?;
        }
        if let Some(idle) = meta.idle_s {
            self.out.write_all(&[tag::IDLE])?;
            write_length(&mut self.out, idle)?;
        }
        if let Some(frequency) = meta.frequency {
            self.out.write_all(&[tag::FREQ, frequency])?;
        }
        Ok(())
    }

    /// Bytes of the file so far.
    pub fn position(&self) -> u64 {
        self.out.written + self.out.buf.len() as u64
    }

    /// Ends the file and gives back what it was written to, with nothing left in buffers here; to sync is the caller's.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[tag::EOF])?;
        self.out.flush()?;
        let checksum = self.out.crc;
        self.out.out.write_all(&checksum.to_le_bytes())?;
        self.out.out.flush()?;
        Ok(self.out.out)
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        write_text(&mut self.out, text, self.options.compress, &mut Compressor::default())
    }
}

/// Buffers and sums up what is written.
#[derive(Debug)]
struct Summed<W> {
    out: W,
    buf: Vec<u8>,
    crc: u64,
    written: u64,
    has_checksum: bool,
}

impl<W: Write> Summed<W> {
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.has_checksum {
            self.crc = crc64(self.crc, bytes);
        }
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl<W: Write> Write for Summed<W> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() >= PIECE {
            self.flush()?;
            return self.pass(bytes);
        }
        self.buf.extend_from_slice(bytes);
        if self.buf.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buf = std::mem::take(&mut self.buf);
        let passed = self.pass(&buf);
        buf.clear();
        self.buf = buf;
        passed
    }
}

const PIECE: usize = 64 * 1024;
