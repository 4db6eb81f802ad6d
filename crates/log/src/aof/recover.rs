//! Reading an append-only directory back: the increments' bytes, in order, each group checked before its first byte is
//! handed out. The base is the caller's to load, before the first piece.
//!
//! # What is cut and what refuses
//! Where a group is damaged or missing, everything behind it is read through for valid headers. If one of them says that
//! more was durable than the damage's LSN, or if a later file has a group, then synced bytes were lost: the recovery refuses.
//! Otherwise it is the torn tail of a crash, of which nothing was acknowledged as durable: it ends there, and
//! [`Directory::start`] cuts it off.
//!
//! Memory is bounded: a group up to 1 MiB is read once for its checksum and once to be handed out; so is a larger one,
//! in pieces.
//!
//! A Redis that cut our file inside a group and went on writing is followed only where the prepared space proves it (see
//! `scan.rs`); otherwise what it wrote behind a torn group is part of the reported cut.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::directory::Directory;
use super::disk::{Disk, Open, told};
use super::resp::{RespError, RespFile};
use super::scan::{Behind, Damage, Item, PIECE, Scan, Start};
use super::window::read_exactly;
use crate::Lsn;

/// A recovery under way.
#[derive(Debug)]
pub struct Recovery {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// The increments' names.
    names: Vec<String>,
    /// Which one is next.
    next: usize,
    load_truncated: bool,
    reading: Reading,
    /// Whether the file being read had anything to hand out.
    used: bool,
    /// Where the next group must begin. After what a Redis wrote the positions may have been started anew.
    expected: Option<Lsn>,
    pieces: Vec<u8>,
    recovered: Recovered,
}

#[derive(Debug)]
enum Reading {
    Nothing,
    /// A file of ours; the part of the current group that was not handed out: from offset to offset, and its LSN.
    Groups(Scan, Rest),
    Resp(RespFile),
}

#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    at: u64,
    end: u64,
    lsn: Lsn,
}

/// Some bytes of the log: whole commands, unless the group that they are part of is larger than 1 MiB; then the next piece
/// goes on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// RESP.
    pub bytes: &'a [u8],
    /// The position of the first byte. `None`: a Redis wrote it, it has none, and the database selected is what these
    /// bytes select.
    pub lsn: Option<Lsn>,
    /// Whether this is a file's first piece: the database selected is 0 again.
    pub begins_file: bool,
}

/// A torn tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// Where it is cut off.
    pub offset: u64,
    /// The position of the log there, if known.
    pub lsn: Option<Lsn>,
    /// How many bytes are lost, prepared space not counted.
    pub bytes: u64,
    /// What was found there.
    pub reason: &'static str,
}

/// How a recovery ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The position reached. `None`: no file of ours said.
    pub lsn: Option<Lsn>,
    /// The position at which the first file of ours begins: that of the base.
    pub first_lsn: Option<Lsn>,
    /// What is to be cut off.
    pub cut: Option<Cut>,
    /// Whether a Redis wrote to the files: the history is another one than that of the positions.
    pub foreign: bool,
    /// Whether the log was closed at its end.
    pub clean: bool,
    /// Groups read.
    pub groups: u64,
    /// Bytes handed out.
    pub bytes: u64,
    /// Increments that hold nothing.
    pub unused: Vec<String>,
}

/// Why a recovery refuses.
#[derive(Debug)]
pub enum RecoverError {
    /// The file system's error.
    Io(io::Error),
    /// Bytes that were synced are damaged or lost.
    Damage {
        /// The directory.
        directory: PathBuf,
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The position of the log there, if known.
        lsn: Option<Lsn>,
        /// What was found there.
        reason: &'static str,
    },
    /// A torn tail, and `aof-load-truncated` is no.
    Torn {
        /// The directory.
        directory: PathBuf,
        /// What would be cut.
        cut: Cut,
    },
}

impl fmt::Display for RecoverError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Io(error) => error.fmt(out),
            RecoverError::Damage { directory, path, offset, lsn, reason } => {
                write!(out, "{} is damaged at offset {offset}{}: {reason}. ", path.display(), At(*lsn))?;
                out.write_str("Bytes that were synced are lost, so nothing is loaded. Make a copy of the directory; ")?;
                write!(out, "then gimmal-server --check-aof --fix {} gives up what follows.", directory.display())
            }
            RecoverError::Torn { directory, cut } => {
                let Cut { path, offset, lsn, bytes, reason } = cut;
                write!(out, "{} ends torn at offset {offset}{}: {reason}, ", path.display(), At(*lsn))?;
                write!(out, "{bytes} bytes. aof-load-truncated yes would cut them off, as would ")?;
                write!(out, "gimmal-server --check-aof --fix {}.", directory.display())
            }
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<RecoverError> for io::Error {
    fn from(error: RecoverError) -> io::Error {
        io::Error::other(error)
    }
}

impl From<io::Error> for RecoverError {
    fn from(error: io::Error) -> RecoverError {
        RecoverError::Io(error)
    }
}

struct At(Option<Lsn>);

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |lsn| write!(out, " (LSN {lsn})"))
    }
}

impl Recovery {
    /// Begins to read the increments. `load_truncated` is `aof-load-truncated`.
    pub fn new(directory: &Directory, load_truncated: bool) -> Recovery {
        Recovery {
            disk: Arc::clone(directory.disk()),
            directory: directory.path().to_owned(),
            names: directory.manifest().increments.iter().map(|entry| entry.name.clone()).collect(),
            next: 0,
            load_truncated,
            reading: Reading::Nothing,
            used: true,
            expected: None,
            pieces: Vec::new(),
            recovered: Recovered::default(),
        }
    }

    /// For a base that consists of commands, or whose RDB ends at offset `from` with commands behind: hands these out
    /// first.
    ///
    /// # Errors
    /// The base is damaged, or torn where that is not allowed.
    pub fn begin_with_base(&mut self, path: PathBuf, from: u64) -> Result<(), RecoverError> {
        self.recovered.foreign = true;
        self.open_resp(path, from, 0)
    }

    /// The next bytes to run. `None`: that was all.
    ///
    /// # Errors
    /// The recovery refuses.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, RecoverError> {
        loop {
            match &mut self.reading {
                Reading::Nothing => {
                    if self.recovered.cut.is_some() || self.next == self.names.len() {
                        return Ok(None);
                    }
                    self.open_next()?;
                }
                Reading::Groups(_, rest) if rest.at < rest.end => return self.rest_of_group().map(Some),
                Reading::Groups(scan, _) => {
                    let item = scan.next(self.expected).map_err(told("reading", &path(self)))?;
                    self.take(item)?;
                }
                Reading::Resp(_) => {
                    if self.next_commands()? {
                        let begins_file = !std::mem::replace(&mut self.used, true);
                        self.recovered.bytes += self.pieces.len() as u64;
                        return Ok(Some(Piece { bytes: &self.pieces, lsn: None, begins_file }));
                    }
                    self.close_file();
                }
            }
        }
    }

    /// How it ended. To be called when there are no more pieces.
    ///
    /// # Panics
    /// When there may be more pieces.
    pub fn finish(self) -> Recovered {
        let at_end = self.recovered.cut.is_some() || self.next == self.names.len();
        assert!(at_end && matches!(self.reading, Reading::Nothing), "the recovery is at its end");
        self.recovered
    }

    /// Bytes handed out so far.
    pub fn bytes(&self) -> u64 {
        self.recovered.bytes
    }

    /// What was read before a refusal.
    pub(super) fn so_far(self) -> Recovered {
        self.recovered
    }

    fn open_next(&mut self) -> Result<(), RecoverError> {
        self.next += 1;
        let path = path(self);
        (self.used, self.recovered.clean) = (false, false);
        let file = self.disk.open(&path, Open::Read).map_err(told("opening", &path))?;
        match Scan::open(file).map_err(told("reading", &path))? {
            Start::Ours(scan) => self.reading = Reading::Groups(scan, Rest::default()),
            Start::Foreign => {
                self.recovered.foreign = true;
                self.open_resp(path, 0, self.next)?;
            }
            Start::Empty => self.close_file(),
            Start::Damaged => return Err(self.refuse(path, 0, "the file's head is damaged")),
        }
        Ok(())
    }

    fn open_resp(&mut self, path: PathBuf, from: u64, later: usize) -> Result<(), RecoverError> {
        let file = match RespFile::open(&*self.disk, &path, from) {
            Ok(file) => file,
            Err(RespError::Io(error)) => return Err(told("reading", &path)(error).into()),
            Err(RespError::Format { offset, reason }) => return Err(self.refuse(path, offset, reason)),
        };
        if file.torn() > 0 {
            let reason = "the last command is not whole";
            if self.has_content_from(later)? {
                return Err(self.refuse(path, file.end(), reason));
            }
            self.cut(Cut { path, offset: file.end(), lsn: None, bytes: file.torn(), reason })?;
        }
        self.expected = None;
        (self.used, self.reading) = (self.used && from > 0, Reading::Resp(file));
        Ok(())
    }

    fn close_file(&mut self) {
        self.reading = Reading::Nothing;
        if let (false, Some(at)) = (self.used, self.next.checked_sub(1)) {
            self.recovered.unused.push(self.names[at].clone());
        }
    }

    fn take(&mut self, item: Item) -> Result<(), RecoverError> {
        match item {
            Item::Group(header, at) => {
                let end = header.lsn.saturating_add(header.length);
                (self.recovered.lsn, self.expected) = (Some(end), Some(end));
                self.recovered.first_lsn.get_or_insert(header.lsn);
                self.recovered.groups += u64::from(header.length > 0);
                if let Reading::Groups(_, rest) = &mut self.reading {
                    *rest = Rest { at, end: at + header.length, lsn: header.lsn };
                }
            }
            Item::End => self.recovered.clean = true,
            Item::Foreign(offset) => {
                (self.recovered.foreign, self.recovered.clean) = (true, false);
                self.open_resp(path(self), offset, self.next)?;
            }
            Item::Eof => self.close_file(),
            Item::Damage(damage) => self.damaged(damage)?,
        }
        Ok(())
    }

    fn damaged(&mut self, damage: Damage) -> Result<(), RecoverError> {
        let path = path(self);
        let Reading::Groups(scan, _) = &mut self.reading else {
            unreachable!("a scan finds damage");
        };
        let Behind { durable, bytes } = scan.behind(damage).map_err(told("reading", &path))?;
        let lsn = self.recovered.lsn;
        // A file's first group is an empty one that is synced before any other. Without it no valid header may follow.
        let starts_file = damage.offset == super::header::HEAD as u64;
        let lost = durable.is_some_and(|durable| starts_file || lsn.is_none_or(|lsn| durable > lsn));
        if lost || self.recovered.clean || self.has_content_from(self.next)? {
            return Err(self.refuse(path, damage.offset, damage.reason));
        }
        self.cut(Cut { path, offset: damage.offset, lsn, bytes, reason: damage.reason })?;
        self.close_file();
        Ok(())
    }

    /// Whether an increment from that index on has anything in it.
    fn has_content_from(&self, first: usize) -> Result<bool, RecoverError> {
        for name in &self.names[first..] {
            let path = self.directory.join(name);
            let file = self.disk.open(&path, Open::Read).map_err(told("opening", &path))?;
            let content = match Scan::open(file).map_err(told("reading", &path))? {
                Start::Empty => false,
                Start::Ours(mut scan) => match scan.next(None).map_err(told("reading", &path))? {
                    Item::Eof => false,
                    Item::Damage(damage) => scan.behind(damage).map_err(told("reading", &path))?.durable.is_some(),
                    Item::Group(..) | Item::End | Item::Foreign(_) => true,
                },
                Start::Foreign | Start::Damaged => true,
            };
            if content {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn cut(&mut self, cut: Cut) -> Result<(), RecoverError> {
        if !self.load_truncated {
            return Err(RecoverError::Torn { directory: self.directory.clone(), cut });
        }
        self.recovered.unused.extend_from_slice(&self.names[self.next..]);
        self.recovered.cut = Some(cut);
        Ok(())
    }

    fn refuse(&self, path: PathBuf, offset: u64, reason: &'static str) -> RecoverError {
        let directory = self.directory.clone();
        RecoverError::Damage { directory, path, offset, lsn: self.recovered.lsn, reason }
    }

    fn rest_of_group(&mut self) -> Result<Piece<'_>, RecoverError> {
        let path = path(self);
        let Reading::Groups(scan, rest) = &mut self.reading else {
            unreachable!("a group is being read");
        };
        let count = usize::try_from(rest.end - rest.at).unwrap_or(PIECE).min(PIECE);
        self.pieces.resize(count, 0);
        read_exactly(&**scan.file(), &mut self.pieces, rest.at).map_err(told("reading", &path))?;
        let lsn = Some(rest.lsn);
        rest.at += count as u64;
        rest.lsn += count as u64;
        self.recovered.bytes += count as u64;
        let begins_file = !std::mem::replace(&mut self.used, true);
        Ok(Piece { bytes: &self.pieces, lsn, begins_file })
    }

    /// Copies the next commands of a Redis's file to `pieces`.
    fn next_commands(&mut self) -> Result<bool, RecoverError> {
        let path = path(self);
        let Reading::Resp(file) = &mut self.reading else {
            unreachable!("a file of commands is being read");
        };
        let commands = file.next_commands().map_err(told("reading", &path))?;
        self.pieces.clear();
        self.pieces.extend_from_slice(commands.unwrap_or_default());
        Ok(commands.is_some())
    }
}

/// The path of the increment being read; before the first, the directory's.
fn path(recovery: &Recovery) -> PathBuf {
    match recovery.next.checked_sub(1) {
        Some(at) => recovery.directory.join(&recovery.names[at]),
        None => recovery.directory.clone(),
    }
}
