//! What can be wrong with encoded data: what, and at which byte.

use std::fmt;
use std::io;

/// Result of everything that reads.
pub type Result<T> = std::result::Result<T, Error>;

/// Data that cannot be read.
#[derive(Debug)]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where, in bytes from the beginning of the payload or file; inside a packed value (listpack, ziplist, …) the end of it.
    pub offset: u64,
}

/// What is wrong with the data.
#[derive(Debug)]
pub enum ErrorKind {
    /// The data ends in the middle of something.
    Truncated,
    /// The reader below failed.
    Io(io::Error),
    /// Not an RDB file: these are its first bytes.
    Magic(Vec<u8>),
    /// A version of the format that nobody writes, or that is newer than [`NEWEST_VERSION`](crate::NEWEST_VERSION).
    Version(u32),
    /// The checksum that the data carries is not that of the data.
    Checksum {
        /// As stored.
        stored: u64,
        /// As calculated.
        calculated: u64,
    },
    /// A type or opcode that is not known.
    UnknownType(u8),
    /// Known, and not supported here: data of modules, formats of release candidates.
    Unsupported(&'static str),
    /// The data contradicts itself or its type's rules.
    Corrupt(&'static str),
    /// A set, sorted set or hash contains this twice, or a stream its group.
    Duplicate,
    /// An aggregate without elements, which no command leaves behind (but bugs of old servers did). In a file the reader
    /// stands behind the value and can go on.
    Empty,
    /// There are bytes behind the value.
    Trailing,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, offset: u64) -> Error {
        Error { kind, offset }
    }

    /// Whether the value had no elements: loading a file goes on with the next key, as Redis does.
    pub fn is_empty_value(&self) -> bool {
        matches!(self.kind, ErrorKind::Empty)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Truncated => f.write_str("unexpected end"),
            ErrorKind::Io(error) => write!(f, "cannot read: {error}"),
            ErrorKind::Magic(bytes) => write!(f, "not an RDB file (begins with \"{}\")", bytes.escape_ascii()),
            ErrorKind::Version(version) => write!(f, "unknown RDB version {version}"),
            ErrorKind::Checksum { stored, calculated } => {
                write!(f, "wrong checksum (stored {stored:016x}, calculated {calculated:016x})")
            }
            ErrorKind::UnknownType(tag) => write!(f, "unknown RDB type or opcode {tag}"),
            ErrorKind::Unsupported(what) => write!(f, "not supported: {what}"),
            ErrorKind::Corrupt(what) => f.write_str(what),
            ErrorKind::Duplicate => f.write_str("duplicate element"),
            ErrorKind::Empty => f.write_str("value without elements"),
            ErrorKind::Trailing => f.write_str("bytes behind the value"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// What is wrong inside a packed value, which does not know where it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Flaw(pub &'static str);

impl Flaw {
    pub(crate) fn at(self, offset: u64) -> Error {
        Error::new(ErrorKind::Corrupt(self.0), offset)
    }
}
