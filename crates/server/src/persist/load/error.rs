//! Why a load ended early.

use gimmal_log::Lsn;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why what was kept is not loaded. Nothing should be served then.
#[derive(Debug)]
pub enum LoadError {
    /// A file cannot be read.
    Io(PathBuf, io::Error),
    /// A snapshot is damaged, or holds what is not known here.
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What, and where.
        error: gimmal_rdb::Error,
    },
    /// A snapshot has a key twice.
    Duplicate {
        /// The file.
        path: PathBuf,
        /// Where the second one ends.
        offset: u64,
        /// The key.
        name: Vec<u8>,
    },
    /// A snapshot has keys of a database that this server is configured not to have.
    Database {
        /// The file.
        path: PathBuf,
        /// The database.
        db: u64,
        /// How many there are.
        databases: usize,
    },
    /// The log has a command that cannot be carried out.
    Command {
        /// Its position in the log, if known.
        lsn: Option<Lsn>,
        /// What is wrong.
        text: String,
    },
    /// The server stops.
    Stopped,
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Io(path, error) => write!(out, "{}: {error}", path.display()),
            LoadError::Snapshot { path, error } => {
                write!(out, "{} cannot be loaded: {} at offset {}. ", path.display(), error.kind, error.offset)?;
                write!(out, "gimmal-server --check-rdb {} goes through the whole file; ", path.display())?;
                out.write_str("to start without it, put a copy that is whole in its place, or move it away.")
            }
            LoadError::Duplicate { path, offset, name } => {
                let name = name.escape_ascii();
                write!(out, "{} cannot be loaded: the key '{name}' is in it twice, ", path.display())?;
                write!(out, "the second time in front of offset {offset}. ")?;
                write!(out, "gimmal-server --check-rdb {} goes through the whole file.", path.display())
            }
            LoadError::Database { path, db, databases } => {
                write!(out, "{} has keys of database {db}, but there are only {databases}: ", path.display())?;
                write!(out, "start with 'databases {}' or more.", db.saturating_add(1))
            }
            LoadError::Command { lsn, text } => {
                out.write_str("the log cannot be loaded: ")?;
                match lsn {
                    Some(lsn) => write!(out, "at LSN {lsn}: {text}"),
                    None => out.write_str(text),
                }
            }
            LoadError::Stopped => out.write_str("the server was stopped while it was loading"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<LoadError> for io::Error {
    fn from(error: LoadError) -> io::Error {
        io::Error::other(error)
    }
}
