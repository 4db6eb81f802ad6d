//! What a handler works with: its session, its reply, the keys it locked, and the log of what it changed.
//!
//! Invariants: a handler reaches only keys that [`Exec::lock`] or [`Exec::lock_all`] gave it; keys are locked in
//! ascending order of their shards by try-lock and all released together; nothing has an effect before the locks are
//! held, so a command that could not lock is simply run again later. A `read` of an expired key removes it and logs
//! the removal under the same lock.

use crate::args::Args;
use crate::command::{Table as Commands, gate};
use crate::lazyfree::removal;
use crate::lazyfree::{Garbage, Taken};
use crate::notify;
use crate::persist::load::REPLAY_MS;
use crate::reply::Reply;
use crate::session::Session;
use crate::shared::Shared;
use crate::tx::Watch;
use crate::worker::{Local, value_arg};
use gimmal_log::Lsn;
use gimmal_log::mutant::{self, Mutant};
use gimmal_log::record::Record;
use gimmal_store::types::ahead::{self, TOGETHER};
use gimmal_store::types::{Aggregate, Kind, Type};
use gimmal_store::{
    Batch, Entry, EntryMut, Exclusive, Hash, LentShard, NewValue, OwnedEntry, Put, Reader, ReadersChange, Shard,
    ShardState, Waiter,
};
use std::borrow::Cow;
use std::cell::Cell;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An error reply's text, with its prefix (`ERR …`).
pub type ReplyError = Cow<'static, str>;

/// An error reply of fixed text.
pub const fn error(text: &'static str) -> ReplyError {
    Cow::Borrowed(text)
}

/// Why a handler ended without its whole reply.
pub enum Stop {
    /// The reply is this error.
    Error(ReplyError),
    /// A lock was held by another worker: nothing happened, run it again.
    Park,
    /// The reply arrives as a message; the connection waits.
    Wait,
    /// The server is paused for this command, or the log is full: run it again when that is over.
    Paused,
    /// There is more to do than one pass should carry.
    Continue(Box<dyn Continuation>),
}

impl From<ReplyError> for Stop {
    fn from(error: ReplyError) -> Stop {
        Stop::Error(error)
    }
}

impl From<&'static str> for Stop {
    fn from(text: &'static str) -> Stop {
        Stop::Error(Cow::Borrowed(text))
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Error(Cow::Owned(text))
    }
}

/// What a handler returns.
pub type Outcome = Result<(), Stop>;

/// A long command, carried out in slices between which the worker serves its other connections.
pub trait Continuation: Send {
    /// Does a slice of about `SLICE_US`; true when the command is finished and its reply complete.
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop>;
}

/// How long one slice of a continuation should take.
pub const SLICE_US: u64 = 100;

/// How long a worker spins on a shard's lock before it parks the connection; none when workers fill the processors.
const LOCK_SPINS: usize = 64;

/// Where a command's first key is in memory, and its hash.
pub type Hint = Option<(NonZero<usize>, Hash)>;

/// The context of a command.
pub struct Exec<'a> {
    /// What all workers share.
    pub shared: &'a Shared,
    /// This worker's own state.
    pub local: &'a mut Local,
    /// The connection as commands see it.
    pub session: &'a mut Session,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) depends_on: Lsn,
    pub(crate) hint: Hint,
}

/// What [`Exec::edit`] did.
pub struct Edited<R> {
    /// What the change returned.
    pub result: R,
    /// The last element went, and the key with it.
    pub emptied: bool,
}

/// The value is of another type than the command works on.
pub const WRONG_TYPE: ReplyError = error("WRONGTYPE Operation against a key holding the wrong kind of value");

/// One locked key.
pub struct Locked<'l> {
    shard: Shard<'l>,
    hash: Hash,
    key: &'l [u8],
    db: usize,
}

/// Several locked keys, of one or more databases.
pub struct LockedMany<'l> {
    shards: Vec<Shard<'l>>,
    keys: Vec<ManyKey<'l>>,
}

struct ManyKey<'l> {
    shard: usize,
    hash: Hash,
    key: &'l [u8],
    db: usize,
    /// Its value was given out to be edited.
    written: Cell<bool>,
}

/// A key whose shard is locked: what `read`, `write`, `put` and `remove` take.
pub struct Key<'m, 'l> {
    shard: &'m mut Shard<'l>,
    hash: Hash,
    key: &'m [u8],
    db: usize,
    /// Where to note that its value is edited, if it is one of several.
    written: Option<&'m Cell<bool>>,
}

impl<'l> Locked<'l> {
    /// The key, to act on.
    #[inline(always)]
    pub fn key(&mut self) -> Key<'_, 'l> {
        Key { shard: &mut self.shard, hash: self.hash, key: self.key, db: self.db, written: None }
    }
}

impl<'l> LockedMany<'l> {
    /// Key number `i` of those that were locked, to act on.
    pub fn key(&mut self, i: usize) -> Key<'_, 'l> {
        let key = &self.keys[i];
        Key {
            shard: &mut self.shards[key.shard],
            hash: key.hash,
            key: key.key,
            db: key.db,
            written: Some(&key.written),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no key was given.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl<'a> Exec<'a> {
    /// Locks one key of the session's database. Inlined into each handler, and `read`, `peek` and what they call in the store too: a
    /// guard that is handed on through memory costs more than the lock.
    #[inline(always)]
    pub fn lock<'l>(&mut self, key: &'l [u8]) -> Result<Locked<'l>, Stop>
    where
        'a: 'l,
    {
        let hash = match self.hint.take() {
            Some((at, hash)) if at.get() == key.as_ptr().addr() => hash,
            _ => self.hash(key),
        };
        let mut shard = self.try_lock(self.shared.keyspace.shard_of(hash))?;
        self.enter_shard(&mut shard);
        let db = self.session.db;
        self.depend(&mut shard, db, hash);
        if self.local.line.is_some() || self.local.reader.is_some() {
            // In a place of its own: the guard stays in registers where nobody asks for its address.
            let mut shown = shard;
            self.show_lock(Key { shard: &mut shown, hash, key, db, written: None });
            shard = shown;
        }
        Ok(Locked { shard, hash, key, db })
    }

    #[inline(never)]
    fn hash(&self, key: &[u8]) -> Hash {
        self.shared.keyspace.hash(key)
    }

    /// A key is locked that monitors are shown, or whose reader is remembered.
    #[cold]
    fn show_lock(&mut self, key: Key<'_, '_>) {
        self.show_line();
        if self.local.reader.is_some() {
            self.remember(key);
        }
    }

    /// Locks several keys of the session's database, in ascending order of their shards.
    pub fn lock_all<'l>(&mut self, keys: impl Iterator<Item = &'l [u8]>) -> Result<LockedMany<'l>, Stop>
    where
        'a: 'l,
    {
        let db = self.session.db;
        self.lock_in(keys.map(|key| (db, key)))
    }

    /// Locks several keys, each in the database named with it.
    pub fn lock_in<'l>(&mut self, keys: impl Iterator<Item = (usize, &'l [u8])>) -> Result<LockedMany<'l>, Stop>
    where
        'a: 'l,
    {
        let keyspace = &self.shared.keyspace;
        let hashed: Vec<_> = keys.map(|(db, key)| (keyspace.hash(key), db, key)).collect();
        let mut ids: Vec<u32> = hashed.iter().map(|(hash, ..)| keyspace.shard_of(*hash)).collect();
        ids.sort_unstable();
        ids.dedup();
        // Dropping `shards` on failure releases what was taken: no lock is held while waiting for another.
        let mut shards = Vec::with_capacity(ids.len());
        for &id in &ids {
            let mut shard = self.try_lock(id)?;
            self.enter_shard(&mut shard);
            shards.push(shard);
        }
        // The command's time is the latest of all: none of its shards may go back behind it.
        for shard in &mut shards {
            let last = &mut shard.state().last_now_ms;
            *last = self.local.now_ms.max(*last);
        }
        let mut many = Vec::with_capacity(hashed.len());
        for (hash, db, key) in hashed {
            let at = ids.binary_search(&keyspace.shard_of(hash)).expect("every key's shard was locked");
            self.depend(&mut shards[at], db, hash);
            many.push(ManyKey { shard: at, hash, key, db, written: Cell::new(false) });
        }
        self.show_line();
        let mut locked = LockedMany { shards, keys: many };
        for i in 0..if self.local.reader.is_some() { locked.len() } else { 0 } {
            self.remember(locked.key(i));
        }
        Ok(locked)
    }

    /// Locks one whole shard: for commands that walk the keyspace slice by slice.
    pub fn lock_shard<'l>(&mut self, shard: u32) -> Result<Shard<'l>, Stop>
    where
        'a: 'l,
    {
        let mut shard = self.try_lock(shard)?;
        self.enter_shard(&mut shard);
        self.depends_on = self.depends_on.max(shard.state().last_lsn);
        self.show_line();
        Ok(shard)
    }

    /// Locks a shard to lend it to the commands of a transaction.
    pub fn lock_to_lend(&mut self, shard: u32) -> Result<LentShard<'a>, Stop> {
        let mut shard = self.try_lock(shard)?;
        self.enter_shard(&mut shard);
        Ok(shard.lend())
    }

    /// Locks a key whose shard the transaction that runs has lent, or keeps others from by the closed gate.
    ///
    /// # Panics
    /// If it has not.
    pub fn lock_held<'l>(&mut self, db: usize, hash: Hash, key: &'l [u8]) -> Locked<'l>
    where
        'a: 'l,
    {
        let mut shard = self.locked_held(self.shared.keyspace.shard_of(hash));
        self.depend(&mut shard, db, hash);
        Locked { shard, hash, key, db }
    }

    fn locked_held<'l>(&mut self, id: u32) -> Shard<'l>
    where
        'a: 'l,
    {
        let batch: &'a Batch<'a> = self.batch;
        let mut shard = self.shared.keyspace.try_lock(batch, id).expect("a transaction has locked what it looks at");
        self.enter_shard(&mut shard);
        shard
    }

    /// The keys watched in a shard, behind the closed gate.
    pub fn watched_in(&mut self, shard: u32) -> Vec<(usize, Hash, Arc<[u8]>)> {
        self.locked_held(shard).state().watched()
    }

    /// Whether the command is part of a transaction: it must not block, and cannot wait for other workers.
    #[inline]
    pub fn in_transaction(&self) -> bool {
        self.local.gathered.is_open()
    }

    /// Closes the gate: every other worker is outside its batch until the result is dropped.
    pub fn exclusive(&mut self) -> Result<Option<Exclusive<'a>>, Stop> {
        if self.local.exclusive {
            return Ok(None);
        }
        let batch: &'a Batch<'a> = self.batch;
        let closed = batch.try_close().ok_or(Stop::Park)?;
        self.show_line();
        Ok(Some(closed))
    }

    /// The command has its locks: its place in the order of commands is known, and monitors are shown it.
    #[inline]
    fn show_line(&mut self) {
        if let Some(line) = self.local.line.take() {
            self.local.show(self.shared, line);
        }
    }

    #[inline(always)]
    fn try_lock<'l>(&self, id: u32) -> Result<Shard<'l>, Stop>
    where
        'a: 'l,
    {
        let batch: &'a Batch<'a> = self.batch;
        let keyspace = &self.shared.keyspace;
        debug_assert!(
            !self.in_transaction() || self.local.exclusive || keyspace.is_lent(batch, id),
            "a command locks a key that is not among those it declares"
        );
        let spins = if self.shared.spin_on_locks { LOCK_SPINS } else { 0 };
        match keyspace.try_lock_for(batch, id, spins) {
            Some(shard) => Ok(shard),
            None => Err(Stop::Park),
        }
    }

    /// Time under a lock never runs backwards, whichever worker comes: the later of the worker's and the shard's.
    #[inline(always)]
    fn enter_shard(&mut self, shard: &mut Shard<'_>) {
        let last = &mut shard.state().last_now_ms;
        if *last < self.local.now_ms {
            *last = self.local.now_ms;
        } else if self.local.now_ms != REPLAY_MS {
            self.local.now_ms = *last;
        }
    }

    /// The reply depends on the newest write of every key that the command looks at, found or not.
    #[inline(always)]
    fn depend(&mut self, shard: &mut Shard<'_>, db: usize, hash: Hash) {
        let state = shard.state();
        if state.last_lsn > self.local.released && !mutant::is(Mutant::NoReadGate) {
            self.depends_on = self.depends_on.max(state.newest(db, hash, self.local.released));
        }
    }

    /// Milliseconds since the epoch: the moment of this command.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.local.now_ms
    }

    /// As [`Exec::now_ms`], but for a command of the log that is being replayed the time of day: from when time that is relative is
    /// counted, and what is noted as the time of something.
    #[inline]
    pub fn clock_ms(&self) -> i64 {
        self.local.clock_ms()
    }

    /// The live value of a key; an expired one is removed, and the removal logged.
    #[inline(always)]
    pub fn read<'m>(&mut self, key: Key<'m, '_>) -> Option<Entry<'m>> {
        let (db, name) = (key.db, key.key);
        let found = self.peek(key);
        match &found {
            Some(entry) => {
                self.local.stats.keyspace_hits.add(1);
                if self.session.touches {
                    entry.touch(self.local.clock_after_use(entry.clock()));
                }
            }
            None => self.missed(db, name),
        }
        found
    }

    /// As [`Exec::read`], for commands that ask about a key without using it: no access time is recorded.
    pub fn inspect<'m>(&mut self, key: Key<'m, '_>) -> Option<Entry<'m>> {
        let (db, name) = (key.db, key.key);
        let found = self.peek(key);
        match &found {
            Some(_) => self.local.stats.keyspace_hits.add(1),
            None => self.missed(db, name),
        }
        found
    }

    #[cold]
    fn missed(&mut self, db: usize, name: &[u8]) {
        self.local.stats.keyspace_misses.add(1);
        self.notify_in(db, notify::KEY_MISS, "keymiss", name);
    }

    /// As [`Exec::read`], for commands that are no use of the key: no hit, miss or access time is recorded.
    #[inline(always)]
    pub fn peek<'m>(&mut self, key: Key<'m, '_>) -> Option<Entry<'m>> {
        let Key { shard, hash, key: name, db, .. } = key;
        let (table, state) = shard.parts(db);
        let Exec { shared, local, depends_on, .. } = self;
        let now_ms = local.now_ms;
        // While writes are paused the data does not change, not even by itself.
        let may_go = !local.pauses_writes();
        table.find_live(hash, name, now_ms, may_go, |removed| {
            expired(local, state, depends_on, shared, db, hash, removed)
        })
    }

    /// Whether CLIENT PAUSE keeps the data as they are.
    pub fn writes_are_paused(&self) -> bool {
        self.local.pauses_writes()
    }

    /// Requests from memory what looking for these elements of the value at a key is going to read, if it is so large that this pays.
    /// If it is not it is not looked at again in this pass.
    pub fn request_elements<'e>(
        &mut self,
        hash: Hash,
        key: &[u8],
        places: bool,
        elements: impl FnOnce() -> ([&'e [u8]; TOGETHER], usize),
    ) {
        if self.local.small == Some(hash) {
            return;
        }
        let Ok(mut shard) = self.try_lock(self.shared.keyspace.shard_of(hash)) else { return };
        let value = shard.table(self.session.db).find(hash, key).map(|entry| entry.value());
        match value.filter(|value| ahead::pays(*value)) {
            Some(value) => {
                let (names, found) = elements();
                ahead::request(value, &names[..found], places);
            }
            None => self.local.small = Some(hash),
        }
    }

    /// Removes a key of a locked shard if it has expired.
    pub fn expire_in(&mut self, shard: &mut Shard<'_>, db: usize, name: &[u8]) {
        let hash = self.shared.keyspace.hash(name);
        self.peek(Key { shard, hash, key: name, db, written: None });
    }

    /// The live value of a key, to edit in place.
    #[inline(always)]
    pub fn write<'m>(&mut self, key: Key<'m, '_>) -> Option<EntryMut<'m>> {
        let Key { shard, hash, key: name, db, written } = key;
        if let Some(written) = written {
            written.set(true);
        }
        let (table, state) = shard.parts(db);
        let Exec { shared, local, depends_on, .. } = self;
        let now_ms = local.now_ms;
        let expired = |removed| expired(local, state, depends_on, shared, db, hash, removed);
        let mut entry = table.find_live_mut(hash, name, now_ms, expired)?;
        if self.session.touches {
            let clock = self.local.clock_after_use(entry.clock());
            entry.set_clock(clock);
        }
        Some(entry)
    }

    /// Changes the aggregate at a key, and removes the key if that leaves no element. `None` if there is no such key.
    ///
    /// # Errors
    /// WRONGTYPE, and no change, if it holds a value of another type.
    pub fn edit<T: Kind, R>(
        &mut self,
        key: Key<'_, '_>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<Edited<R>>, Stop> {
        self.edit_and_answer(key, |value, _| change(value))
    }

    /// As [`Exec::edit`], for a change that answers what it sees: what is removed need not be copied, nor looked up twice.
    ///
    /// # Errors
    /// As [`Exec::edit`]; then nothing is answered.
    pub fn edit_and_answer<T: Kind, R>(
        &mut self,
        mut key: Key<'_, '_>,
        change: impl FnOnce(&mut T, &mut Reply<'a>) -> R,
    ) -> Result<Option<Edited<R>>, Stop> {
        let Some(entry) = self.write(key.again()) else { return Ok(None) };
        let (result, emptied) = self.edit_entry(entry, change)?;
        if emptied {
            drop(self.remove(key));
        }
        Ok(Some(Edited { result, emptied }))
    }

    /// Changes the aggregate of an entry; also says whether that has left no element.
    #[inline]
    fn edit_entry<T: Kind, R>(
        &mut self,
        mut entry: EntryMut<'_>,
        change: impl FnOnce(&mut T, &mut Reply<'a>) -> R,
    ) -> Result<(R, bool), Stop> {
        let edited = entry.edit(&mut self.local.scratch, |value: &mut T| {
            let result = change(value, &mut self.reply);
            (result, value.is_void())
        });
        edited.ok_or_else(|| Stop::Error(WRONG_TYPE))
    }

    /// As [`Exec::edit`]; a missing key is made with an empty value, and is not kept if that stays empty.
    pub fn edit_or_create<T: Kind, R>(
        &mut self,
        mut key: Key<'_, '_>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Edited<R>, Stop> {
        let Some(entry) = self.write(key.again()) else { return Ok(self.create(key, change)) };
        let (result, emptied) = self.edit_entry(entry, |value, _| change(value))?;
        if emptied {
            drop(self.remove(key));
        }
        Ok(Edited { result, emptied })
    }

    /// Makes a missing key with what `change` puts into an empty value.
    #[inline(never)]
    fn create<T: Kind, R>(&mut self, key: Key<'_, '_>, change: impl FnOnce(&mut T) -> R) -> Edited<R> {
        let mut value = T::new_in(Vec::new());
        let result = change(&mut value);
        if !value.is_void() {
            let put = self.put_aggregate(key, value.into_aggregate(), None);
            debug_assert!(!put.replaced);
        }
        Edited { result, emptied: false }
    }

    /// As [`Exec::put`], for an aggregate with elements.
    pub fn put_aggregate(&mut self, key: Key<'_, '_>, value: Aggregate, expire_at_ms: Option<i64>) -> Put {
        let (table, state) = key.shard.parts(key.db);
        self.local.modified(self.shared, state, key.db, key.hash, key.key, self.session.id);
        let clock = self.local.clock_of_put(table, key.hash, key.key);
        let put = table.put_aggregate(key.hash, key.key, value, expire_at_ms, clock);
        self.replaced(put, key.db, key.key)
    }

    /// Stores a value, in place of any other, with this deadline or none. The other one is discarded.
    #[inline]
    pub fn put(&mut self, key: Key<'_, '_>, value: NewValue<'_>, expire_at_ms: Option<i64>) -> Put {
        let (table, state) = key.shard.parts(key.db);
        self.local.modified(self.shared, state, key.db, key.hash, key.key, self.session.id);
        let clock = self.local.clock_of_put(table, key.hash, key.key);
        let put = table.put(key.hash, key.key, value, expire_at_ms, clock);
        self.replaced(put, key.db, key.key)
    }

    /// Stores an entry that was taken out elsewhere or copied, with its deadline and clock, in place of any other, which is
    /// discarded.
    pub fn put_owned(&mut self, key: Key<'_, '_>, entry: impl Into<OwnedEntry>) -> Put {
        let (table, state) = key.shard.parts(key.db);
        self.local.modified(self.shared, state, key.db, key.hash, key.key, self.session.id);
        let mut put = table.put_owned(key.hash, key.key, entry.into());
        // As in Redis this is a new key even where another was: that one was removed first.
        self.notify_in(key.db, notify::NEW, "new", key.key);
        if let Some(old) = put.old.take() {
            self.discard(old);
        }
        put
    }

    /// Removes a key. What it had is discarded when the result is dropped, unless it is put under another key.
    pub fn remove(&mut self, key: Key<'_, '_>) -> Option<Taken<'a>> {
        let (table, state) = key.shard.parts(key.db);
        let removed = table.remove(key.hash, key.key)?;
        self.local.modified(self.shared, state, key.db, key.hash, key.key, self.session.id);
        Some(Taken::new(removed, &self.shared.lazyfree))
    }

    /// Frees what is no longer in the keyspace, in the background if that takes long.
    #[inline]
    pub fn discard(&self, garbage: impl Into<Garbage>) {
        self.shared.lazyfree.discard(garbage);
    }

    #[inline]
    fn replaced(&mut self, mut put: Put, db: usize, name: &[u8]) -> Put {
        if !put.replaced {
            self.notify_in(db, notify::NEW, "new", name);
        }
        if let Some(old) = put.old.take() {
            self.discard(old);
        }
        put
    }

    /// A key was changed: who watches it is told, who waits for it will be served, who keeps a copy is told later. Every
    /// effective change comes through here or through [`Local::modified`]: what is put or removed when that happens, what is edited when its effect is recorded,
    /// since only then it is known that there was one.
    #[inline]
    pub fn modified(&mut self, key: &mut Key<'_, '_>) {
        self.local.modified(self.shared, key.shard.state(), key.db, key.hash, key.key, self.session.id);
    }

    /// A database's keys are about to go, or be replaced, all at once: who watches this one is told, and who waits for it will be
    /// served.
    pub fn tell_watchers(&mut self, key: Key<'_, '_>) {
        if key.shard.state().modified(key.db, key.hash, key.key) {
            self.local.woken(key.db, key.key);
        }
    }

    /// Records the effect of a change of this key, as a command to replay; called under the key's lock.
    #[inline]
    pub fn effect(&mut self, mut key: Key<'_, '_>, command: &[&[u8]]) {
        self.local.stats.dirty.add(1);
        self.modified(&mut key);
        self.log(&mut key, command);
    }

    /// As [`Exec::effect`], for a change that Redis does not tell watchers of, like that of a stream's groups.
    pub fn effect_unwatched(&mut self, mut key: Key<'_, '_>, command: &[&[u8]]) {
        self.local.stats.dirty.add(1);
        self.log(&mut key, command);
    }

    /// Who waits for values of this type at a key will be served, or told that there is nothing to wait for.
    pub fn wake(&mut self, key: &mut Key<'_, '_>, kind: Type) {
        if key.is_waited_for(kind) {
            self.local.woken(key.db, key.key);
        }
    }

    /// As [`Exec::effect`] for a command with a value among its arguments, which may be large.
    #[inline]
    pub fn effect_value(&mut self, mut key: Key<'_, '_>, before: &[&[u8]], value: &NewValue<'_>, after: &[&[u8]]) {
        self.local.stats.dirty.add(1);
        self.modified(&mut key);
        if self.local.log_active {
            let lsn = self.local.append_value(key.db, before, value, after);
            self.stamp(&mut key, lsn);
        }
    }

    /// Records an effect of so many changes of this key by the command as it was given; large arguments are referenced.
    pub fn effect_given(&mut self, mut key: Key<'_, '_>, args: &Args<'_>, changes: u64) {
        self.local.stats.dirty.add(changes);
        self.modified(&mut key);
        if self.local.log_active {
            let lsn = self.local.append_with(key.db, |record, db| {
                record.begin_command(db, args.len());
                for i in 0..args.len() {
                    match args.rope(i) {
                        Some(rope) => value_arg(record, &NewValue::Rope(rope.clone())),
                        None => _ = record.arg(args.at(i)),
                    }
                }
            });
            self.stamp(&mut key, lsn);
        }
    }

    /// Counts a change that needs no log record of its own.
    pub fn changed(&mut self, times: u64) {
        self.local.stats.dirty.add(times);
    }

    /// Records one effect of several locked keys as one record, written by `write` for the database it is given.
    pub fn effect_many(&mut self, keys: &mut LockedMany<'_>, changes: u64, write: impl FnOnce(&mut Record, u32)) {
        self.local.stats.dirty.add(changes);
        for i in 0..keys.len() {
            if keys.keys[i].written.get() {
                self.modified(&mut keys.key(i));
            }
        }
        if !self.local.log_active {
            return;
        }
        let Some(first) = keys.keys.first() else { return };
        let lsn = self.local.append_with(first.db, write);
        for i in 0..keys.len() {
            let mut key = keys.key(i);
            self.stamp(&mut key, lsn);
        }
    }

    /// Records an effect on whole databases; the gate is closed.
    pub fn effect_exclusive(&mut self, command: &[&[u8]]) {
        self.local.stats.dirty.add(1);
        if !self.local.log_active {
            return;
        }
        let lsn = self.local.append(self.session.db, command);
        match self.in_transaction() {
            true => self.local.gathered.all(),
            false => self.stamp_held(&[], true, lsn),
        }
    }

    /// Notes that a record was appended which ends at `lsn` and concerns these keys, or `all`; their shards are lent, or
    /// the gate is closed.
    pub fn stamp_held(&mut self, keys: &[(usize, Hash)], all: bool, lsn: Lsn) {
        for (db, hash) in keys {
            let mut shard = self.locked_held(self.shared.keyspace.shard_of(*hash));
            shard.state().stamp(*db, *hash, lsn);
        }
        let shards = u32::try_from(self.shared.keyspace.shards()).expect("at most 16384 shards");
        for id in 0..if all { shards } else { 0 } {
            self.locked_held(id).state().stamp_all(lsn);
        }
        self.depends_on = self.depends_on.max(lsn);
    }

    #[inline]
    fn log(&mut self, key: &mut Key<'_, '_>, command: &[&[u8]]) {
        if self.local.log_active {
            let lsn = self.local.append(key.db, command);
            self.stamp(key, lsn);
        }
    }

    fn stamp(&mut self, key: &mut Key<'_, '_>, lsn: Lsn) {
        stamp(self.local, key.shard.state(), &mut self.depends_on, key.db, key.hash, lsn);
    }

    /// Bits of `command::gate` that are closed for this client now.
    #[inline]
    pub fn active_gates(&self) -> u32 {
        self.local.gates | self.session.gates | if self.session.authenticated { 0 } else { gate::NEEDS_AUTH }
    }

    /// The batch this command runs in.
    pub fn batch(&self) -> &'a Batch<'a> {
        self.batch
    }

    /// Every command of this server.
    pub fn commands(&self) -> &'a Commands {
        self.shared.commands
    }
}

/// A key was found expired and is being removed: its removal is an effect like any other.
#[cold]
fn expired(
    local: &mut Local,
    state: &mut ShardState,
    depends_on: &mut Lsn,
    shared: &Shared,
    db: usize,
    hash: Hash,
    removed: OwnedEntry,
) {
    local.stats.expired_keys.add(1);
    local.modified(shared, state, db, hash, removed.entry().key(), 0);
    if local.log_active {
        let lsn = local.append(db, &[removal(local.config.lazyfree_lazy_expire()), removed.entry().key()]);
        stamp(local, state, depends_on, db, hash, lsn);
    }
    local.expired(shared, db, removed.entry().key());
    shared.lazyfree.discard(removed);
}

/// A key's newest write ends at `lsn`; in a transaction that is known when it ends.
fn stamp(local: &mut Local, state: &mut ShardState, depends_on: &mut Lsn, db: usize, hash: Hash, lsn: Lsn) {
    if local.gathered.is_open() {
        local.gathered.key(db, hash);
        return;
    }
    state.stamp(db, hash, lsn);
    *depends_on = (*depends_on).max(lsn);
}

impl<'m, 'l> Key<'m, 'l> {
    /// The key's name.
    pub fn name(&self) -> &'m [u8] {
        self.key
    }

    /// The same key, borrowed for a shorter time.
    #[inline(always)]
    pub fn again(&mut self) -> Key<'_, 'l> {
        Key { shard: self.shard, hash: self.hash, key: self.key, db: self.db, written: self.written }
    }

    /// Whether somebody waits for a value of this type at the key.
    pub fn is_waited_for(&mut self, kind: Type) -> bool {
        let (db, key) = (self.db, self.key);
        self.shard.state().waiters().is_some_and(|waiters| waiters.waits_for(db, key, kind))
    }

    /// Lists somebody who waits for the key.
    pub fn wait(&mut self, waiter: Arc<dyn Waiter>) {
        self.shard.state().wait(self.db, self.key, waiter);
    }

    /// Lists who reads the key.
    pub fn read_by(&mut self, reader: &Arc<dyn Reader>) -> ReadersChange {
        self.shard.state().read_by(self.hash, self.key, reader)
    }

    /// Watches the key.
    pub fn watch(&mut self, watch: &mut Watch) {
        if let Some((name, flag)) = watch.add(self.db, self.hash, self.key) {
            self.shard.state().watch(self.db, self.hash, &name, flag);
        }
    }

    /// Ends the watch of the key that has this flag.
    pub fn unwatch(&mut self, flag: &Arc<AtomicBool>) {
        self.shard.state().unwatch(self.db, self.hash, flag);
    }
}
