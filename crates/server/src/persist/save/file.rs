//! A snapshot as a file of Redis's format.
//!
//! It is written beside the one that it is to replace, synced, given its name, and the directory synced: at every moment there is one
//! whole file under that name. Unless `rdb-save-incremental-fsync` is off it is synced every few MiB, so that the disk is not asked
//! for everything at once at the end.

use super::{Begun, Done, Failure, Kind, Request, Sink};
use crate::config::{Config, MaxmemoryPolicy};
use crate::evict;
use crate::payload;
use crate::shared::Shared;
use crate::title::REDIS_VERSION;
use crate::warning;
use gimmal_log::aof::{Disk, RealDisk};
use gimmal_rdb::Options;
use gimmal_rdb::file::{Meta, Writer};
use gimmal_store::{AccessClock, DatabaseSize, Entry};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The field of a base that says where the log goes on behind it.
pub const LSN: &str = "gimmal-lsn";
/// Bytes between two syncs, as in Redis.
const SYNC_EVERY: usize = 4 << 20;

/// A file that a snapshot is written to: under a temporary name, until it is complete.
pub struct RdbFile {
    temporary: PathBuf,
    config: Arc<Config>,
    /// It is the base of an append-only file.
    is_base: bool,
    options: Options,
    writer: Option<Writer<Synced>>,
    sizes: Vec<DatabaseSize>,
    /// Whether the header of a database was written, as `sizes`.
    announced: Vec<bool>,
    db: Option<usize>,
    uses: Uses,
}

/// What is written of how a key is used: what the eviction policy goes by.
enum Uses {
    Nothing,
    Idleness(AccessClock),
    Frequency(AccessClock),
}

impl RdbFile {
    /// The file `temporary`, as the base of a log or not.
    pub fn new(config: Arc<Config>, temporary: PathBuf, is_base: bool) -> RdbFile {
        RdbFile {
            temporary,
            options: payload::options(&config),
            config,
            is_base,
            writer: None,
            sizes: Vec::new(),
            announced: Vec::new(),
            db: None,
            uses: Uses::Nothing,
        }
    }

    fn meta(&self, entry: &Entry<'_>) -> Meta {
        let mut meta = Meta { expire_at_ms: entry.expire_at_ms(), ..Meta::default() };
        match &self.uses {
            Uses::Nothing => {}
            Uses::Idleness(clock) => meta.idle_s = Some(u64::from(clock.idle_s(entry.clock()))),
            Uses::Frequency(clock) => meta.frequency = Some(clock.frequency(entry.clock())),
        }
        meta
    }

    /// Has what follows be of this database.
    fn select(&mut self, db: usize) -> io::Result<()> {
        if self.db == Some(db) {
            return Ok(());
        }
        self.db = Some(db);
        let writer = self.writer.as_mut().expect("it was begun");
        let at =
            self.sizes.iter().position(|size| size.db == db).expect("the snapshot began with every key's database");
        match std::mem::replace(&mut self.announced[at], true) {
            true => writer.select(db as u64),
            false => writer.database(db as u64, self.sizes[at].keys as u64, self.sizes[at].volatile as u64),
        }
    }
}

impl RdbFile {
    /// Writes the head.
    ///
    /// # Errors
    /// The file system's.
    pub fn begin(&mut self, shared: &Shared, begun: &Begun) -> io::Result<()> {
        let incremental = match self.is_base {
            true => self.config.aof_rewrite_incremental_fsync(),
            false => self.config.rdb_save_incremental_fsync(),
        };
        let file = File::create(&self.temporary).map_err(|error| named(error, "creating", &self.temporary))?;
        let mut writer = Writer::new(Synced::new(file, incremental), self.options.clone(), self.config.rdbchecksum())?;
        writer.aux("redis-ver", REDIS_VERSION.as_bytes())?;
        writer.aux("redis-bits", usize::BITS.to_string().as_bytes())?;
        writer.aux("ctime", (begun.at_ms / 1000).to_string().as_bytes())?;
        writer.aux("used-mem", shared.used_bytes(shared.dataset_bytes()).to_string().as_bytes())?;
        writer.aux("aof-base", if self.is_base { b"1" } else { b"0" })?;
        if self.is_base {
            writer.aux(LSN, begun.lsn.to_string().as_bytes())?;
        }
        self.writer = Some(writer);
        self.announced = vec![false; begun.sizes.len()];
        self.sizes.clone_from(&begun.sizes);
        let clock = AccessClock::new(begun.at_ms, evict::lfu(&self.config));
        self.uses = match self.config.maxmemory_policy() {
            MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::VolatileLru => Uses::Idleness(clock),
            MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu => Uses::Frequency(clock),
            _ => Uses::Nothing,
        };
        Ok(())
    }

    /// Writes a key.
    ///
    /// # Errors
    /// The file system's.
    pub fn entry(&mut self, db: usize, entry: &Entry<'_>) -> io::Result<()> {
        self.select(db)?;
        let meta = self.meta(entry);
        let writer = self.writer.as_mut().expect("it was begun");
        if !payload::is_large(entry) {
            return payload::encode(entry.value(), writer.entry(entry.key(), &meta)?);
        }
        let writer = std::cell::RefCell::new(writer);
        let begin = |tag| writer.borrow_mut().large_entry(entry.key(), &meta, tag);
        payload::encode_large(entry.value(), &self.options, begin, |piece| writer.borrow_mut().piece(piece))
    }

    /// Writes the end, and syncs. Answers how many bytes there are.
    ///
    /// # Errors
    /// The file system's.
    pub fn complete(&mut self) -> io::Result<u64> {
        let writer = self.writer.take().expect("it was begun");
        let synced = writer.finish()?;
        synced.finish().map_err(|error| named(error, "syncing", &self.temporary))
    }

    /// Removes what was written.
    pub fn abandon(&mut self) {
        self.writer = None;
        remove(&self.temporary);
    }
}

/// A snapshot that replaces the one before it.
struct Snapshot {
    file: RdbFile,
    path: PathBuf,
}

impl Sink for Snapshot {
    fn begin(&mut self, shared: &Shared, begun: &Begun) -> io::Result<()> {
        self.file.begin(shared, begun)
    }

    fn entry(&mut self, db: usize, entry: &Entry<'_>) -> io::Result<()> {
        self.file.entry(db, entry)
    }

    fn finish(&mut self, _: &Shared) -> io::Result<u64> {
        let bytes = self.file.complete()?;
        std::fs::rename(&self.file.temporary, &self.path)
            .map_err(|error| named(error, "moving the temporary file to", &self.path))?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        RealDisk.sync_directory(directory).map_err(|error| named(error, "syncing the directory", directory))?;
        Ok(bytes)
    }

    fn abandon(&mut self, _: &Shared) {
        self.file.abandon();
    }
}

/// An error with what was done to which file.
pub(super) fn named(error: io::Error, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// A file that is synced every so often.
pub(super) struct Synced {
    file: File,
    unsynced: usize,
    every: usize,
}

impl Synced {
    pub(super) fn new(file: File, incremental: bool) -> Synced {
        Synced { file, unsynced: 0, every: if incremental { SYNC_EVERY } else { usize::MAX } }
    }

    /// Syncs all of it. Answers how many bytes it has.
    pub(super) fn finish(self) -> io::Result<u64> {
        self.file.sync_all()?;
        Ok(self.file.metadata()?.len())
    }
}

impl Write for Synced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= self.every {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Where a snapshot is written before it has its name.
fn temporary(config: &Config) -> PathBuf {
    config.dir().join(format!("temp-{}.rdb", std::process::id()))
}

/// Removes what a snapshot that is not completed has left.
pub fn remove_temporary(config: &Config) {
    remove(&temporary(config));
}

pub(super) fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => warning!("Removing {}: {error}", path.display()),
        _ => {}
    }
}

/// A snapshot into the file that `dbfilename` names, under the configuration in force.
pub fn request(
    shared: &Shared,
    kind: Kind,
    done: impl FnOnce(&Shared, Result<Done, Failure>) + Send + 'static,
) -> Request {
    let config = shared.settings.current();
    let (temporary, path) = (temporary(&config), config.dir().join(config.dbfilename()));
    let sink = Box::new(Snapshot { file: RdbFile::new(config, temporary, false), path });
    Request { kind, sink, done: Box::new(done) }
}
