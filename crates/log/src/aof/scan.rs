//! Reading one file of ours: its groups one after the other, each checked, and what to make of the bytes that are none.
//!
//! Between groups there may be fill and time stamps. What else stands where a header should be is damage, or *foreign*: a
//! Redis opened the directory and went on writing at the file's end. A torn group must not be taken for that. It lies
//! within the prepared space or, beyond it, begins with its header or zeros. So RESP is foreign only from the end of the
//! prepared space on. The one exception: a tool of Redis has cut the file before, which shows in the last block of the
//! prepared space: no group is ever written there, so it is missing or changed only if somebody else was at work. That is
//! believed only if this space was synced, which a later header's durable LSN proves.

use std::io;
use std::sync::Arc;

use super::disk::DiskFile;
use super::header::{BLOCK, FILL, HEAD, Header, Kind, LONGEST, is_between_groups, parse_head};
use super::window::{Window, read_exactly};
use crate::Lsn;
use crate::mutant::{self, Mutant};

/// How much of a group is in memory while its checksum is computed. Bytes.
pub(super) const PIECE: usize = 1 << 20;

/// What a file begins as.
#[derive(Debug)]
pub(super) enum Start {
    Ours(Scan),
    /// Written by a Redis from its first byte on.
    Foreign,
    Empty,
    /// Ours, with a damaged head.
    Damaged,
}

/// What follows in a file.
#[derive(Debug)]
pub(super) enum Item {
    /// A group whose payload begins at this offset; it was checked.
    Group(Header, u64),
    /// The log was closed here.
    End,
    /// What a Redis wrote begins at this offset.
    Foreign(u64),
    /// There is no more.
    Eof,
    Damage(Damage),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// The end of the last whole group.
    pub(super) offset: u64,
    pub(super) reason: &'static str,
}

/// What lies behind a damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Behind {
    /// The highest durable LSN of a valid header.
    pub(super) durable: Option<Lsn>,
    /// Bytes up to the last that is neither fill nor zero.
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Scan {
    window: Window,
    nonce: u64,
    offset: u64,
    /// The end of the last group.
    group_end: u64,
    /// Where the prepared space ends, and the LSN whose durability proves that it was synced.
    prepared: u64,
    prepared_since: Lsn,
    /// The highest durable LSN of a header so far.
    durable: Lsn,
}

impl Scan {
    pub(super) fn open(file: Arc<dyn DiskFile>) -> io::Result<Start> {
        let mut window = Window::new(file)?;
        if window.length() == 0 {
            return Ok(Start::Empty);
        }
        let head = window.at(0, HEAD)?;
        let head = &head[..head.len().min(HEAD)];
        Ok(match parse_head(head) {
            Some(nonce) => {
                let (offset, group_end) = (HEAD as u64, HEAD as u64);
                Start::Ours(Scan { window, nonce, offset, group_end, prepared: offset, prepared_since: 0, durable: 0 })
            }
            // A Redis's begins with a command or a time stamp.
            None if head.starts_with(b"#") && !head.starts_with(b"#TS:") => Start::Damaged,
            None => Start::Foreign,
        })
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        self.window.file()
    }

    /// What follows. The next group must begin at `expected`, if that is known.
    pub(super) fn next(&mut self, expected: Option<Lsn>) -> io::Result<Item> {
        loop {
            let offset = self.offset;
            if offset == self.window.length() {
                return Ok(Item::Eof);
            }
            let bytes = self.window.at(offset, LONGEST)?;
            if let Some((header, line)) = Header::parse(bytes, offset, self.nonce) {
                return self.group(header, offset + line as u64, expected);
            }
            if bytes.get(..BLOCK).is_some_and(is_between_groups) {
                self.offset += BLOCK as u64;
                continue;
            }
            let foreign = begins_as_resp(bytes);
            if foreign && (offset >= self.prepared || self.was_cut_by_a_tool()?) {
                return Ok(Item::Foreign(offset));
            }
            return Ok(self.damage("a header is missing"));
        }
    }

    fn group(&mut self, header: Header, payload: u64, expected: Option<Lsn>) -> io::Result<Item> {
        self.durable = self.durable.max(header.durable);
        if expected.is_some_and(|expected| expected != header.lsn) {
            return Ok(self.damage("a group is missing"));
        }
        let whole = payload.checked_add(header.length).is_some_and(|end| end <= self.window.length());
        let matches = whole && (mutant::is(Mutant::NoCrc) || self.crc(payload, header.length)? == header.crc);
        if !matches {
            if self.was_cut_by_a_tool()? {
                return Ok(Item::Foreign(self.offset));
            }
            return Ok(self.damage(if whole { "a group's checksum does not match" } else { "a group is not whole" }));
        }
        self.offset = payload + header.length;
        self.group_end = self.offset;
        let end = header.lsn.saturating_add(header.length);
        if header.size != self.prepared {
            (self.prepared, self.prepared_since) = (header.size, end);
        }
        Ok(if header.kind == Kind::End { Item::End } else { Item::Group(header, payload) })
    }

    fn damage(&self, reason: &'static str) -> Item {
        Item::Damage(Damage { offset: self.group_end, reason })
    }

    /// Whether the prepared space, which was synced, has lost its last block.
    fn was_cut_by_a_tool(&mut self) -> io::Result<bool> {
        if self.prepared <= self.group_end || self.durable < self.prepared_since {
            return Ok(false);
        }
        if self.prepared > self.window.length() {
            return Ok(true);
        }
        let mut last = [0; BLOCK];
        read_exactly(&**self.window.file(), &mut last, self.prepared - BLOCK as u64)?;
        Ok(last != FILL)
    }

    fn crc(&self, mut at: u64, length: u64) -> io::Result<u32> {
        let mut buffer = vec![0; usize::try_from(length).unwrap_or(PIECE).min(PIECE)];
        let (mut crc, end) = (0, at + length);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            read_exactly(&**self.window.file(), &mut buffer[..piece], at)?;
            crc = crc32c::crc32c_append(crc, &buffer[..piece]);
            at += piece as u64;
        }
        Ok(crc)
    }

    /// Looks through everything behind a damage.
    pub(super) fn behind(&mut self, damage: Damage) -> io::Result<Behind> {
        let mut behind = Behind::default();
        let (mut at, length) = (damage.offset, self.window.length());
        while at < length {
            let bytes = self.window.at(at, LONGEST)?;
            if let Some((header, _)) = Header::parse(bytes, at, self.nonce) {
                behind.durable = behind.durable.max(Some(header.durable));
            }
            let block = &bytes[..bytes.len().min(BLOCK)];
            if block != FILL && block.iter().any(|byte| *byte != 0) {
                behind.bytes = at + block.len() as u64 - damage.offset;
            }
            at += BLOCK as u64;
        }
        Ok(behind)
    }
}

/// Whether bytes begin as what a Redis appends: a time stamp or a command.
fn begins_as_resp(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"*") else {
        return bytes.starts_with(b"#TS:");
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b"\r\n$")
}
