//! The loader's part of a snapshot: the file is read, summed up and cut into chunks of whole keys.

use super::insert::{CHUNK_BYTES, Chunk, Cut, File, Gone, Value};
use super::{LoadError, Loading};
use crate::payload::{Build, Limits};
use crate::shared::Shared;
use crate::{notice, warning};
use gimmal_rdb::file::{Entry, Item, Reader};
use gimmal_rdb::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Keys that were loaded.
    pub keys: u64,
    /// Keys that were left out, as their time was past.
    pub expired: u64,
    /// Keys that were left out, as they had no element: bugs of old servers left such behind.
    pub empty: u64,
    /// Remarks, such as `redis-ver`, `ctime`, `repl-id`.
    pub remarks: BTreeMap<String, Vec<u8>>,
    /// Where the file's RDB ends: commands may follow, in the base of an append-only file.
    pub end: u64,
}

/// Remarks that are kept, and how long one may be.
const REMARKS: usize = 64;
const REMARK_BYTES: usize = 4096;
/// Bytes that a key has at least, about.
const KEY_BYTES: u64 = 8;
/// Bytes of a chunk while keys are delayed, so that the delay is spread.
const DELAYED_BYTES: usize = 512;

/// What becomes of keys that are not simply put in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Those whose time is past are loaded too: commands of a log follow, which may go on with them.
    pub keeps_expired: bool,
    /// The log, which goes on meanwhile, is told of those that are left out.
    pub logs_expired: bool,
    /// Those that are there already are replaced; else they are an error.
    pub merges: bool,
}

/// Loads a snapshot into the keyspace. Without `keep_expired` (a snapshot on its own) keys whose time is past are left out; with
/// it (one that commands of a log follow) they are kept, since the log may go on with them.
///
/// Blocks until all is loaded. Called by the loader, after [`begin`](super::begin).
///
/// # Errors
/// The file cannot be read or is damaged, or the server stops: a part of it may be loaded.
pub fn snapshot(shared: &Shared, path: &Path, keep_expired: bool) -> Result<Snapshot, LoadError> {
    load_by(shared, path, Rules { keeps_expired: keep_expired, ..Rules::default() })
}

/// As [`snapshot`], by these rules.
///
/// # Errors
/// As [`snapshot`].
pub fn load_by(shared: &Shared, path: &Path, rules: Rules) -> Result<Snapshot, LoadError> {
    let started = Instant::now();
    let load = &shared.persist.load;
    load.progress.begin_snapshot();
    let config = shared.settings.current();
    let damaged = |error| LoadError::Snapshot { path: path.to_owned(), error };
    let io = |error| LoadError::Io(path.to_owned(), error);
    let file = fs::File::open(path).map_err(io)?;
    let most_keys = file.metadata().map_err(io)?.len() / KEY_BYTES;
    let mut reader = Reader::new(file).map_err(damaged)?;
    reader.check_sum(config.rdbchecksum());
    let alive_ms = if rules.keeps_expired { i64::MIN } else { crate::now_ms() };
    let alive_fields_ms = if rules.logs_expired { i64::MIN } else { alive_ms };
    let file = Arc::new(File { path: path.to_owned(), version: reader.version(), alive_ms, alive_fields_ms, rules });
    let mut loader = Loader {
        shared,
        load,
        file,
        limits: Limits::of(&config),
        delay: Delay::of(config.key_load_delay()),
        read: 0,
        most_keys,
        expected: 0,
        noted: Noted::default(),
        snapshot: Snapshot::default(),
    };
    loader.read_all(&mut reader)?;
    load.chunks.wait(shared)?;
    let progress = &load.progress;
    let snapshot = Snapshot {
        keys: progress.keys(),
        expired: progress.expired(),
        empty: progress.empty(),
        end: reader.position(),
        ..loader.snapshot
    };
    let Snapshot { keys, expired, empty, .. } = &snapshot;
    let left_out = match (expired, empty) {
        (0, 0) => String::new(),
        _ => format!(" ({expired} left out as expired, {empty} as empty)"),
    };
    notice!("DB loaded from {}: {keys} keys{left_out}, {:.3} seconds", path.display(), started.elapsed().as_secs_f64());
    Ok(snapshot)
}

struct Loader<'s> {
    shared: &'s Shared,
    load: &'s Loading,
    file: Arc<File>,
    limits: Limits,
    delay: Delay,
    /// Bytes that were reported.
    read: u64,
    /// Keys that the file has room for: what it says may be wrong.
    most_keys: u64,
    /// Keys of the current database for each shard.
    expected: usize,
    noted: Noted,
    snapshot: Snapshot,
}

/// What is said once.
#[derive(Default)]
struct Noted {
    functions: bool,
    modules: bool,
}

impl Loader<'_> {
    fn read_all(&mut self, reader: &mut Reader<fs::File>) -> Result<(), LoadError> {
        let limit = if self.delay.is_none() { CHUNK_BYTES } else { DELAYED_BYTES };
        loop {
            while let Some(cut) = reader.keys(limit).map_err(|error| self.damaged(error))? {
                let db = self.database(cut.db)?;
                let keys = cut.keys;
                let (file, expected) = (Arc::clone(&self.file), self.expected);
                let cut = Cut { file, bytes: cut.bytes.to_vec(), db, expected, offset: cut.offset };
                self.hand_out(Chunk::Cut(cut), keys, reader.position())?;
            }
            let item = reader.next().map_err(|error| self.damaged(error))?;
            match item {
                Item::Entry(entry) => {
                    if let Some(value) = self.decode(entry, reader)? {
                        self.hand_out(Chunk::Value(value), 1, reader.position())?;
                    }
                }
                Item::Aux { name, value } => self.remark(name, value),
                Item::Function(_) => {
                    if !std::mem::replace(&mut self.noted.functions, true) {
                        let path = self.file.path.display();
                        warning!(
                            "{path} has libraries of functions, which this version does not have: they are left out"
                        );
                    }
                }
                Item::ModuleAux => {
                    if !std::mem::replace(&mut self.noted.modules, true) {
                        let path = self.file.path.display();
                        warning!("{path} has data of modules, which this server does not have: they are left out");
                    }
                }
                Item::Database(_) => self.expected = 0,
                Item::Sizes { keys, .. } => {
                    let keys = keys.min(self.most_keys) / self.shared.keyspace.shards() as u64;
                    self.expected = usize::try_from(keys).unwrap_or(0);
                }
                Item::End => {
                    self.report(reader.position());
                    return Ok(());
                }
            }
        }
    }

    /// Decodes a long value while it is being read.
    fn decode(&mut self, entry: Entry, reader: &mut Reader<fs::File>) -> Result<Option<Value>, LoadError> {
        let db = self.database(entry.db)?;
        if self.file.omits(&entry) {
            self.load.progress.count(0, 1, 0);
            if self.file.rules.logs_expired {
                let name = reader.key().to_vec();
                self.hand_out(Chunk::Gone(Gone { db, name }), 0, reader.position())?;
            }
            return Ok(None);
        }
        let name = reader.key().to_vec();
        let mut build = Build::new(self.limits).without_expired(self.file.alive_fields_ms);
        match reader.value(&mut build) {
            Ok(()) => {}
            Err(error) if error.is_empty_value() => {
                self.load.progress.count(0, 0, 1);
                return Ok(None);
            }
            Err(error) => return Err(self.damaged(error)),
        }
        let end = reader.position();
        let nothing = || Error { kind: ErrorKind::Corrupt("a value of no type"), offset: end };
        let value = build.finish().ok_or_else(|| self.damaged(nothing()))?;
        if value.is_void() {
            self.load.progress.count(0, 0, 1);
            return Ok(None);
        }
        self.load.progress.count(1, 0, 0);
        Ok(Some(Value { file: Arc::clone(&self.file), db, name, entry, value, end }))
    }

    fn hand_out(&mut self, chunk: Chunk, keys: u64, position: u64) -> Result<(), LoadError> {
        self.report(position);
        self.load.chunks.hand_out(self.shared, chunk)?;
        self.delay.wait(keys, || self.load.check(self.shared))
    }

    fn report(&mut self, position: u64) {
        self.load.progress.read(position - self.read);
        self.read = position;
    }

    fn database(&self, db: u64) -> Result<usize, LoadError> {
        let databases = self.shared.keyspace.databases();
        let known = usize::try_from(db).ok().filter(|db| *db < databases);
        known.ok_or_else(|| LoadError::Database { path: self.file.path.clone(), db, databases })
    }

    fn remark(&mut self, name: &[u8], value: &[u8]) {
        let remarks = &mut self.snapshot.remarks;
        let Ok(name) = std::str::from_utf8(name) else { return };
        if remarks.len() == REMARKS || name.len() + value.len() > REMARK_BYTES {
            return;
        }
        if name == "used-mem"
            && let Some(bytes) = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok())
        {
            self.load.progress.set_used_memory(bytes);
        }
        remarks.insert(name.to_owned(), value.to_vec());
    }

    fn damaged(&self, error: Error) -> LoadError {
        LoadError::Snapshot { path: self.file.path.clone(), error }
    }
}

/// `key-load-delay`: µs for each key, or, negative, a µs for so many keys.
struct Delay {
    ns_per_key: u64,
}

impl Delay {
    fn of(directive: i64) -> Delay {
        let ns_per_key = match directive {
            0.. => directive.unsigned_abs().saturating_mul(1000),
            _ => 1000 / directive.unsigned_abs(),
        };
        Delay { ns_per_key }
    }

    fn is_none(&self) -> bool {
        self.ns_per_key == 0
    }

    /// Waits for so many keys, and looks now and then whether to go on.
    fn wait(&self, keys: u64, go_on: impl Fn() -> Result<(), LoadError>) -> Result<(), LoadError> {
        const STEP: Duration = Duration::from_millis(20);
        let mut left = Duration::from_nanos(self.ns_per_key.saturating_mul(keys));
        while !left.is_zero() {
            let step = left.min(STEP);
            std::thread::sleep(step);
            left -= step;
            go_on()?;
        }
        Ok(())
    }
}
