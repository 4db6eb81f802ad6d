//! The workers' part of a snapshot: keys are taken out of chunks of the file, decoded, and put into their shards.
//!
//! A load waits for memory more than for the processor: each key is of another shard. So keys go in groups, and what each of
//! them needs is requested for the whole group before the first one is put. A key whose shard is taken is built and put aside
//! until the next slice; a shard is hardly ever taken, since there are many and each for some 100 ns.

use super::{LoadError, Rules, is_over};
use crate::args::new_value;
use crate::lazyfree::removal;
use crate::payload::{Build, Built, Limits};
use crate::shared::Shared;
use crate::worker::{Local, State};
use gimmal_rdb::file::{Entry, Key, Keys, Text};
use gimmal_rdb::{Decoder, Error, ErrorKind};
use gimmal_store::{Batch, Hash, NewValue, Put};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a chunk, about; a longer value is decoded by the loader. Decoding so much is a slice.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;
/// Keys that are requested from memory together.
const GROUP: usize = 32;

/// A part of a snapshot.
pub(super) enum Chunk {
    /// Keys as they stand in the file.
    Cut(Cut),
    /// A key whose value was decoded.
    Value(Value),
    /// A key that was left out, of which the log is to be told.
    Gone(Gone),
}

/// Keys as they stand in the file.
pub(super) struct Cut {
    pub file: Arc<File>,
    pub bytes: Vec<u8>,
    pub db: usize,
    /// How many keys a shard will have in this database, as the file says.
    pub expected: usize,
    /// Where they begin in the file.
    pub offset: u64,
}

/// What is the same for all keys of a file.
pub(super) struct File {
    pub path: PathBuf,
    pub version: u32,
    /// Keys that expire before are left out.
    pub alive_ms: i64,
    /// And so are fields. Not if the log is to be told: it would have to know of each.
    pub alive_fields_ms: i64,
    pub rules: Rules,
}

/// A key that was left out as expired.
pub(super) struct Gone {
    pub db: usize,
    pub name: Vec<u8>,
}

/// A key whose value was decoded.
pub(super) struct Value {
    pub file: Arc<File>,
    pub db: usize,
    pub name: Vec<u8>,
    pub entry: Entry,
    pub value: Built,
    /// Where it ends in the file.
    pub end: u64,
}

/// What a worker is inserting.
#[derive(Default)]
pub(super) struct Inserting {
    /// A chunk, and how many of its bytes are done with.
    cut: Option<(Cut, usize)>,
    /// Keys whose shard was taken.
    aside: Vec<Value>,
    /// Keys that were left out, of which the log was not told yet.
    gone: Vec<Gone>,
    decoder: Decoder,
}

impl Inserting {
    pub(super) fn is_busy(&self) -> bool {
        self.cut.is_some() || !self.aside.is_empty() || !self.gone.is_empty()
    }
}

impl File {
    /// Whether a key is left out.
    #[inline]
    pub(super) fn omits(&self, entry: &Entry) -> bool {
        entry.expire_at_ms.is_some_and(|at_ms| at_ms < self.alive_ms)
    }

    /// An error in a chunk that begins at `offset`.
    pub(super) fn damaged(&self, error: Error, offset: u64) -> LoadError {
        let error = Error { offset: error.offset + offset, ..error };
        LoadError::Snapshot { path: self.path.clone(), error }
    }
}

/// A worker's slice.
pub(super) fn step(state: &mut State, batch: &Batch<'_>, until: Instant) {
    let shared = state.shared.clone();
    let load = &shared.persist.load;
    let inserting = &mut state.load.inserting;
    if load.has_failed() {
        let taken = usize::from(inserting.cut.take().is_some()) + inserting.aside.len() + inserting.gone.len();
        inserting.aside.clear();
        inserting.gone.clear();
        return load.chunks.done(taken);
    }
    let limits = Limits::of(&state.local.config);
    let mut worker = Worker { shared: &shared, local: &mut state.local, batch, limits, empty: 0 };
    let mut outcome = Ok(());
    for value in std::mem::take(&mut inserting.aside) {
        match outcome {
            Ok(()) => outcome = worker.put_value(value, inserting),
            Err(_) => inserting.aside.push(value),
        }
    }
    worker.log_gone(inserting);
    while outcome.is_ok() && !is_over(&shared, until) {
        outcome = match inserting.cut.take() {
            Some((cut, at)) => worker.insert_some(cut, at, inserting),
            None => match load.chunks.take() {
                Some(Chunk::Cut(cut)) => worker.insert_some(cut, 0, inserting),
                Some(Chunk::Value(value)) => worker.put_value(value, inserting),
                Some(Chunk::Gone(gone)) => {
                    inserting.gone.push(gone);
                    break;
                }
                None => break,
            },
        };
    }
    if let Err(error) = outcome {
        load.fail(error);
    }
}

/// What inserting takes.
struct Worker<'s> {
    shared: &'s Shared,
    local: &'s mut Local,
    batch: &'s Batch<'s>,
    limits: Limits,
    /// Keys that had no element.
    empty: u64,
}

impl Worker<'_> {
    /// Inserts the group of keys that begins at byte `at` of a chunk; keeps the chunk if there are more.
    fn insert_some(&mut self, cut: Cut, at: usize, inserting: &mut Inserting) -> Result<(), LoadError> {
        let chunks = &self.shared.persist.load.chunks;
        match self.insert(&cut, at, inserting) {
            Ok(end) if end == cut.bytes.len() => {
                inserting.decoder.shrink();
                chunks.done(1);
            }
            Ok(next) => inserting.cut = Some((cut, next)),
            Err(error) => {
                chunks.done(1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Answers where the group ends.
    fn insert(&mut self, cut: &Cut, at: usize, inserting: &mut Inserting) -> Result<usize, LoadError> {
        let damaged = |error| cut.file.damaged(error, cut.offset);
        let keyspace = &self.shared.keyspace;
        let mut keys = Keys::new(&cut.bytes, at, cut.file.version, cut.db as u64);
        let ahead = keyspace.ahead(self.batch, cut.db);
        let mut group = Vec::with_capacity(GROUP);
        let mut expired = 0;
        while group.len() < GROUP {
            let Some(key) = keys.next().map_err(damaged)? else { break };
            if cut.file.omits(&key.entry) {
                expired += 1;
                if cut.file.rules.logs_expired {
                    let name = bytes_of(&key.name, &mut itoa::Buffer::new()).to_vec();
                    inserting.gone.push(Gone { db: cut.db, name });
                    self.shared.persist.load.chunks.add(1);
                }
                continue;
            }
            let hash = keyspace.hash(bytes_of(&key.name, &mut itoa::Buffer::new()));
            if let Some(ahead) = &ahead {
                ahead.shard(hash);
            }
            group.push((key, hash));
        }
        if let Some(ahead) = &ahead {
            group.iter().for_each(|(_, hash)| ahead.directory(*hash));
            group.iter().for_each(|(_, hash)| ahead.room(*hash));
        }
        for (key, hash) in &group {
            self.put_key(cut, key, *hash, inserting)?;
        }
        let load = &self.shared.persist.load;
        let empty = std::mem::take(&mut self.empty);
        load.progress.count(group.len() as u64 - empty, expired, empty);
        drop(group);
        Ok(keys.position())
    }

    /// Tells the log of keys that were left out. What has no room waits for the next slice.
    fn log_gone(&mut self, inserting: &mut Inserting) {
        let keyspace = &self.shared.keyspace;
        inserting.gone.retain(|Gone { db, name }| {
            let hash = keyspace.hash(name);
            if self.local.log_active && !self.shared.log.has_room() {
                return true;
            }
            let Some(mut shard) = keyspace.try_lock(self.batch, keyspace.shard_of(hash)) else { return true };
            // A key that was changed since is one that had not expired.
            if self.local.log_active && shard.table(*db).find(hash, name).is_none() {
                let lsn = self.local.append(*db, &[removal(self.local.config.lazyfree_lazy_expire()), name]);
                shard.state().stamp(*db, hash, lsn);
            }
            self.shared.persist.load.chunks.done(1);
            false
        });
    }

    #[inline]
    fn put_key(&mut self, cut: &Cut, key: &Key<'_>, hash: Hash, inserting: &mut Inserting) -> Result<(), LoadError> {
        let damaged = |error| cut.file.damaged(error, cut.offset);
        let text = key.text().map_err(damaged)?;
        let shard = self.shared.keyspace.try_lock(self.batch, self.shared.keyspace.shard_of(hash));
        let (Some(text), Some(mut shard)) = (text, shard) else {
            return self.put_built(cut, key, inserting);
        };
        let value = match &text {
            Text::Int(n) => NewValue::Int(*n),
            Text::Bytes(bytes) => new_value(bytes),
            Text::Unpacked(bytes) => new_value(bytes),
        };
        let mut digits = itoa::Buffer::new();
        let name = bytes_of(&key.name, &mut digits);
        let clock = self.clock(&key.entry);
        let table = shard.table(cut.db);
        if table.is_empty() {
            table.reserve(cut.expected);
        }
        let put = table.put(hash, name, value, key.entry.expire_at_ms, clock);
        self.settle(put, &cut.file, || (name.to_vec(), cut.offset + key.end))
    }

    /// As `put_key`, for a value that has to be built, or has to wait.
    fn put_built(&mut self, cut: &Cut, key: &Key<'_>, inserting: &mut Inserting) -> Result<(), LoadError> {
        let mut build = Build::new(self.limits).without_expired(cut.file.alive_fields_ms);
        match key.decode(&mut inserting.decoder, &mut build) {
            Ok(()) => {}
            Err(error) if error.is_empty_value() => {
                self.empty += 1;
                return Ok(());
            }
            Err(error) => return Err(cut.file.damaged(error, cut.offset)),
        }
        let nothing = || Error { kind: ErrorKind::Corrupt("a value of no type"), offset: key.end };
        let value = build.finish().ok_or_else(|| cut.file.damaged(nothing(), cut.offset))?;
        if value.is_void() {
            self.empty += 1;
            return Ok(());
        }
        let name = bytes_of(&key.name, &mut itoa::Buffer::new()).to_vec();
        let file = Arc::clone(&cut.file);
        self.shared.persist.load.chunks.add(1);
        self.put_value(Value { file, db: cut.db, name, entry: key.entry, value, end: cut.offset + key.end }, inserting)
    }

    /// Inserts a key whose value was decoded, or puts it aside.
    fn put_value(&mut self, value: Value, inserting: &mut Inserting) -> Result<(), LoadError> {
        let keyspace = &self.shared.keyspace;
        let hash = keyspace.hash(&value.name);
        let Some(mut shard) = keyspace.try_lock(self.batch, keyspace.shard_of(hash)) else {
            inserting.aside.push(value);
            return Ok(());
        };
        let Value { file, db, name, entry, value, end } = value;
        let (table, at_ms, clock) = (shard.table(db), entry.expire_at_ms, self.clock(&entry));
        let put = match value {
            Built::Text(text) => table.put(hash, &name, new_value(&text), at_ms, clock),
            Built::Rope(rope) => table.put(hash, &name, NewValue::Rope(rope), at_ms, clock),
            Built::Aggregate(value) => table.put_aggregate(hash, &name, value, at_ms, clock),
        };
        self.shared.persist.load.chunks.done(1);
        self.settle(put, &file, || (name, end))
    }

    /// A key was put; whether it may have been there is the rules' to say.
    #[inline]
    fn settle(&self, put: Put, file: &File, place: impl FnOnce() -> (Vec<u8>, u64)) -> Result<(), LoadError> {
        if !put.replaced {
            return Ok(());
        }
        put.old.into_iter().for_each(|old| self.shared.lazyfree.discard(old));
        if file.rules.merges {
            return Ok(());
        }
        let (name, offset) = place();
        Err(LoadError::Duplicate { path: file.path.clone(), offset, name })
    }

    /// The access clock that the file says, in terms of the policy in force.
    #[inline]
    fn clock(&self, entry: &Entry) -> u32 {
        let now = self.local.access;
        let told = match now.is_lfu() {
            true => entry.frequency.map(|count| now.of_frequency(count)),
            false => entry.idle_s.map(|idle_s| now.of_idle(idle_s)),
        };
        told.unwrap_or(self.local.clock)
    }
}

/// A key's name.
#[inline]
fn bytes_of<'t>(name: &'t Text<'_>, digits: &'t mut itoa::Buffer) -> &'t [u8] {
    match name {
        Text::Bytes(bytes) => bytes,
        Text::Int(n) => digits.format(*n).as_bytes(),
        Text::Unpacked(bytes) => bytes,
    }
}
