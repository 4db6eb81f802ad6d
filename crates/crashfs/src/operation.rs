//! The operations of the file system: what the state is changed by, what a recording consists of.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Inode number.
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: OsString,
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this path.
    Symlink(PathBuf),
}

/// One operation. The state takes what is possible only (a name that exists, an inode of the right kind); the file
/// system answers the error otherwise.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A new inode under a new name.
    Create {
        /// Where.
        name: Name,
        /// Its number, not used before.
        ino: Ino,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        mode: u32,
    },
    /// One more name of an inode.
    Link {
        /// The new name.
        name: Name,
        /// The inode.
        ino: Ino,
    },
    /// A name removed: unlink and rmdir.
    Remove {
        /// The name.
        name: Name,
    },
    /// A name moved over another, or both exchanged.
    Rename {
        /// The old name.
        from: Name,
        /// The new name.
        to: Name,
        /// Whether both exist and stay.
        is_exchange: bool,
    },
    /// Bytes written.
    Write {
        /// The file.
        ino: Ino,
        /// Where.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// Truncated or extended.
    Resize {
        /// The file.
        ino: Ino,
        /// Its new size.
        size: u64,
    },
    /// A range made zero and the file at least so long: fallocate in all its modes.
    Zero {
        /// The file.
        ino: Ino,
        /// Start of the range.
        offset: u64,
        /// Its length.
        len: u64,
        /// The least size afterwards.
        size: u64,
    },
    /// A range became durable: the end of a write under `O_DSYNC` or `RWF_DSYNC`.
    SyncRange {
        /// The file.
        ino: Ino,
        /// Start of the range.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// fsync or fdatasync of a file. Both need the size, so they are the same here.
    Sync {
        /// The file.
        ino: Ino,
    },
    /// One that answered an error.
    SyncFailed {
        /// The file.
        ino: Ino,
    },
    /// fsync of a directory.
    SyncDirectory {
        /// The directory.
        ino: Ino,
    },
}
