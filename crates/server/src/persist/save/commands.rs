//! A snapshot as a file of commands: the base of an append-only file with `aof-use-rdb-preamble no`.

use super::file::{Synced, named, remove};
use crate::config::Config;
use crate::payload::commands;
use gimmal_store::Entry;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Bytes that are written together.
const BUFFER: usize = 64 * 1024;

/// The file, under a temporary name until it is complete.
pub struct CommandsFile {
    temporary: PathBuf,
    out: Option<BufWriter<Synced>>,
    db: Option<usize>,
}

impl CommandsFile {
    /// The file `temporary`.
    pub fn new(temporary: PathBuf) -> CommandsFile {
        CommandsFile { temporary, out: None, db: None }
    }

    /// Creates it; `at_ms` is the time of the snapshot.
    ///
    /// # Errors
    /// The file system's.
    pub fn begin(&mut self, config: &Config, at_ms: i64) -> io::Result<()> {
        let file = File::create(&self.temporary).map_err(|error| named(error, "creating", &self.temporary))?;
        let mut out = BufWriter::with_capacity(BUFFER, Synced::new(file, config.aof_rewrite_incremental_fsync()));
        if config.aof_timestamp_enabled() {
            write!(out, "#TS:{}\r\n", at_ms / 1000)?;
        }
        self.out = Some(out);
        Ok(())
    }

    /// Writes a key.
    ///
    /// # Errors
    /// The file system's.
    pub fn entry(&mut self, db: usize, entry: &Entry<'_>) -> io::Result<()> {
        let out = self.out.as_mut().expect("it was begun");
        if self.db.replace(db) != Some(db) {
            commands::select(db, out)?;
        }
        commands::write(entry, out)
    }

    /// Syncs. Answers how many bytes there are.
    ///
    /// # Errors
    /// The file system's.
    pub fn complete(&mut self) -> io::Result<u64> {
        let out = self.out.take().expect("it was begun");
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.finish().map_err(|error| named(error, "syncing", &self.temporary))
    }

    /// Removes what was written.
    pub fn abandon(&mut self) {
        self.out = None;
        remove(&self.temporary);
    }
}
