//! Snapshots without a fork: every entry as it was at one moment, while entries go on changing.
//!
//! A snapshot begins behind the closed gate ([`Keyspace::begin_snapshot`]): the *epoch* of every shard flips, so that all entries are
//! of the one before. A walker then goes through the tables of that moment in short steps ([`Keyspace::snapshot_step`]), each under one
//! shard's lock, copies what is still of the earlier epoch and moves it to the new one. Whoever changes or removes an entry that
//! the walker has not seen yet hands it over first, as it is ([`Keyspace::take_handed`]). Entries are born in the new epoch.
//!
//! Invariants:
//! - While no snapshot runs, all entries are of their shard's epoch; then one test per change is all that this costs.
//! - While one runs, an entry is of the earlier epoch if and only if it has not changed since the beginning, its time of expiry
//!   included, and neither the walker nor `before_change` has got it. Both move it to the new epoch under its shard's lock: so each
//!   entry of the beginning is handed out exactly once, and no other ever.
//! - Tables that grow or shrink move entries, not their epochs. Databases that are exchanged are walked where they are; one that is
//!   taken out whole is the walker's, and so frozen.
//! - When the walk is at its end every hand-over is visible to the walker: each was made under a lock, or before a closed gate, that
//!   it has passed since.
//!
//! A copy of a large value takes its root, in O(1); who changes the value copies the pages that it touches. What was handed over is
//! bounded by what there was in the beginning, and by how fast the walker takes it: for the walker it should come first.
//!
//! Dropped: comparing each change with the walker's position instead of a bit per entry (a table would have to know that
//! position, and the databases' order); encoding under the lock (compression takes longer than all the rest); the replaced allocation
//! itself instead of a copy (three of the four ways of changing an entry do not replace it).
//!
//! # Safety
//! [`Taken`] has the bytes of entries, copied whole, one behind the other from a word's border: each is read as the entry that it
//! was. An entry with a large value is never copied so, as two would own it. A [`Walk`] reaches a database that is in the keyspace by
//! its address: it is used inside a batch, the only thing that takes it out is [`Keyspace::detach_database`] behind the closed gate,
//! and that leaves it to the walk, which then owns it.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{MutexGuard, PoisonError};

use crossbeam_queue::SegQueue;

use crate::database::{Database, DetachedDatabase};
use crate::entry::{Entry, OwnedEntry, RawEntry};
use crate::gate::Batch;
use crate::keyspace::Keyspace;
use crate::sync::Padded;
use crate::table::Table;

/// One of two epochs that take turns; the byte of it is a flag in the entry's header.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Epoch(u8);

impl Epoch {
    /// The bit that the header has for it.
    pub(crate) const FLAG: u8 = 8;

    /// The epoch of a header's flag.
    #[inline]
    pub(crate) fn of(flag: u8) -> Self {
        Self(flag)
    }

    /// The flag for the header.
    #[inline]
    pub(crate) fn flag(self) -> u8 {
        self.0
    }
}

/// The epoch of a shard, and whether a snapshot wants to see what changes. Written behind the closed gate (but for the end of a
/// snapshot, when it no longer matters), read under the shard's lock.
#[derive(Default)]
pub(crate) struct Phase {
    epoch: AtomicU8,
    is_running: AtomicBool,
}

impl Phase {
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    fn flip(&self) {
        self.epoch.fetch_xor(Epoch::FLAG, Ordering::Relaxed);
        self.is_running.store(true, Ordering::Relaxed);
    }
}

/// Entries on their way from those who change them to the walker: a queue per participant, so that they do not meet.
pub(crate) struct Handover {
    queues: Box<[Padded<Queue>]>,
    /// Bytes that the walker has taken.
    taken: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    entries: SegQueue<Handed>,
    /// Bytes that were ever put in.
    put: AtomicUsize,
}

struct Handed {
    /// Of the table's cell, which says which database it was in.
    cell: usize,
    entry: OwnedEntry,
}

impl Handover {
    pub(crate) fn new(participants: usize) -> Self {
        Self { queues: (0..participants).map(|_| Padded::default()).collect(), taken: AtomicUsize::new(0) }
    }

    /// Hands over a copy of an entry, without waiting for anybody.
    pub(crate) fn push(&self, participant: usize, cell: NonZeroUsize, entry: OwnedEntry) {
        let queue = &self.queues[participant].0;
        // Only this participant writes it.
        queue
            .put
            .store(queue.put.load(Ordering::Relaxed).wrapping_add(entry.entry().memory_bytes()), Ordering::Relaxed);
        queue.entries.push(Handed { cell: cell.get(), entry });
    }
}

/// What is left of the tables that a snapshot began with.
pub(crate) struct Walk {
    sources: VecDeque<Source>,
    /// Which database the cells at these addresses were in the beginning. Ascending.
    homes: Vec<(RangeInclusive<usize>, usize)>,
}

/// A database to be walked, and how far that has come.
struct Source {
    db: usize,
    place: Place,
    shard: usize,
    cursor: u64,
}

enum Place {
    /// In the keyspace, perhaps under another number by now.
    Kept(NonNull<Database>),
    /// Taken out of it, and owned by the walk.
    Left(Box<Database>),
}

// SAFETY: a database is bound to no thread, and the address of one is used inside batches only (module's `Safety`).
unsafe impl Send for Place {}

/// How many keys a database had when a snapshot began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseSize {
    /// Its number then.
    pub db: usize,
    /// All keys.
    pub keys: usize,
    /// Those that expire.
    pub volatile: usize,
}

/// What one step of a snapshot has come to.
pub enum SnapshotStep {
    /// There may be entries in what was taken, all of this database, and there is more to walk.
    Taken {
        /// The database's number when the snapshot began.
        db: usize,
    },
    /// The next shard is locked by somebody else.
    Busy,
    /// A database that was taken out of the keyspace meanwhile was walked to its end, and is to be freed.
    Left(DetachedDatabase),
    /// Everything was walked; what was handed over can be taken to its end.
    Done,
}

/// Copies of entries, made under a shard's lock and read without it.
#[derive(Default)]
pub struct Taken {
    /// The padding at an entry's end is not written.
    words: Vec<MaybeUninit<u64>>,
    large: Vec<OwnedEntry>,
    len: usize,
}

impl Taken {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut at = 0;
        let small = std::iter::from_fn(move || {
            let rest = NonNull::from(self.words.get(at..).filter(|rest| !rest.is_empty())?);
            // SAFETY: `add` has put a whole entry there.
            let raw = unsafe { RawEntry::from_ptr(rest.cast()) };
            at += raw.size() / size_of::<u64>();
            Some(Entry::new(raw))
        });
        small.chain(self.large.iter().map(OwnedEntry::entry))
    }

    /// Forgets the entries; their memory is kept to be used again.
    pub fn clear(&mut self) {
        self.words.clear();
        self.large.clear();
        self.len = 0;
    }

    fn add(&mut self, raw: RawEntry) {
        self.len += 1;
        if raw.is_large() {
            let entry = Entry::new(raw);
            return self.large.push(entry.copied(entry.clock()));
        }
        let len = raw.size() / size_of::<u64>();
        self.words.reserve(len);
        let end = self.words.len();
        // SAFETY: an entry is so many whole words, aligned to 8; there is room for them; nobody writes the entry meanwhile, as its
        // shard's lock is held. Words may stay uninitialised.
        unsafe {
            self.words.as_mut_ptr().add(end).cast::<u8>().copy_from_nonoverlapping(raw.as_ptr().as_ptr(), raw.size());
            self.words.set_len(end + len);
        }
    }
}

/// What an empty or locked shard counts for in a step's budget, in entries.
const SHARD_COST: usize = 8;

impl Keyspace {
    /// Begins a snapshot of all that there is now; answers what that is, by database.
    ///
    /// # Panics
    /// If another one runs, or `batch` is of another gate, has not closed it ([`Batch::try_close`]), or holds a shard.
    pub fn begin_snapshot(&self, batch: &Batch<'_>) -> Vec<DatabaseSize> {
        self.assert_alone(batch);
        let mut walk = self.walk();
        assert!(walk.is_none(), "one snapshot at a time");
        let mut begun = Walk { sources: VecDeque::new(), homes: Vec::new() };
        let mut sizes = Vec::new();
        for (db, place) in self.databases.iter().enumerate() {
            let Some(database) = NonNull::new(place.load(Ordering::Acquire)) else { continue };
            let (keys, volatile) = (self.len(batch, db), self.volatile_len(batch, db));
            if keys > 0 {
                // SAFETY: it is in the keyspace, and this is a batch.
                begun.homes.push((unsafe { database.as_ref() }.addresses(), db));
                begun.sources.push_back(Source { db, place: Place::Kept(database), shard: 0, cursor: 0 });
                sizes.push(DatabaseSize { db, keys, volatile });
            }
        }
        begun.homes.sort_by_key(|(addresses, _)| *addresses.start());
        self.shards.iter().for_each(|shard| shard.context.phase.flip());
        *walk = Some(begun);
        sizes
    }

    /// Goes on with the snapshot that runs: copies about `budget` entries into `taken`, which should be empty. If `keeps` is false
    /// nothing is copied, and the walk is only brought to its end. For one thread, the walker. The shard that is locked meanwhile
    /// is locked for as long as the copies take, and one segment more than the budget may be copied.
    ///
    /// # Panics
    /// If no snapshot runs, or the batch is of another gate.
    pub fn snapshot_step(&self, batch: &Batch<'_>, budget: usize, keeps: bool, taken: &mut Taken) -> SnapshotStep {
        self.check(batch);
        let mut guard = self.walk();
        let walk = guard.as_mut().expect("a snapshot runs");
        let Some(source) = walk.sources.front_mut() else {
            // Nothing of the earlier epoch is left: who still sees the flag finds nothing to do.
            self.shards.iter().for_each(|shard| shard.context.phase.is_running.store(false, Ordering::Relaxed));
            return SnapshotStep::Done;
        };
        let (db, mut left) = (source.db, budget);
        while source.shard < self.shards.len() {
            let epoch = self.shards[source.shard].context.phase.epoch();
            let visited = match &source.place {
                Place::Left(_) if !keeps => {
                    source.shard = self.shards.len();
                    0
                }
                Place::Left(database) => {
                    // SAFETY: the walk owns the database, and is borrowed uniquely.
                    let table = unsafe { database.table(source.shard) };
                    source.walk(table, epoch, left, Some(taken))
                }
                Place::Kept(database) => {
                    let id = u32::try_from(source.shard).expect("at most 16384");
                    let Some(_shard) = self.try_lock(batch, id) else {
                        return if taken.is_empty() { SnapshotStep::Busy } else { SnapshotStep::Taken { db } };
                    };
                    // SAFETY: inside a batch it is not taken out of the keyspace; its shard's lock is held.
                    let table = unsafe { database.as_ref().table(source.shard) };
                    source.walk(table, epoch, left, keeps.then_some(&mut *taken))
                }
            };
            left = left.saturating_sub(SHARD_COST + visited);
            if left == 0 {
                return SnapshotStep::Taken { db };
            }
        }
        // What is behind the last shard is next: with the step that finds nothing more to take.
        if !taken.is_empty() {
            return SnapshotStep::Taken { db };
        }
        match walk.sources.pop_front().map(|source| source.place) {
            Some(Place::Left(database)) => SnapshotStep::Left(DetachedDatabase::new(Some(database))),
            _ => SnapshotStep::Taken { db },
        }
    }

    /// Ends a snapshot whose walk is done and all of whose entries were taken: another one may begin.
    ///
    /// # Panics
    /// If there is something left, or the batch is of another gate.
    pub fn end_snapshot(&self, batch: &Batch<'_>) {
        self.check(batch);
        let walk = self.walk().take().expect("a snapshot runs");
        assert!(walk.sources.is_empty(), "a snapshot ends before its walk");
        assert!(self.handover().queues.iter().all(|queue| queue.0.entries.is_empty()), "an entry was not taken");
    }

    /// Moves about `most` of the entries that were handed over to `into`, each with the number that its database had in the beginning.
    /// For the walker.
    ///
    /// # Panics
    /// If no snapshot runs, or the batch is of another gate.
    pub fn take_handed(&self, batch: &Batch<'_>, most: usize, into: &mut Vec<(usize, OwnedEntry)>) {
        self.check(batch);
        let guard = self.walk();
        let walk = guard.as_ref().expect("a snapshot runs");
        for queue in &self.handover().queues {
            while into.len() < most
                && let Some(Handed { cell, entry }) = queue.0.entries.pop()
            {
                self.handover().taken.fetch_add(entry.entry().memory_bytes(), Ordering::Relaxed);
                into.push((walk.home(cell), entry));
            }
        }
    }

    /// Bytes of entries that were handed over and not yet taken; of a large value all of it, though most of that may be shared.
    pub fn handed_bytes(&self) -> usize {
        // First what was taken: it is never ahead of what was put.
        let taken = self.handover().taken.load(Ordering::Relaxed);
        let put = self.handover().queues.iter().map(|queue| queue.0.put.load(Ordering::Relaxed));
        put.fold(0, usize::wrapping_add).saturating_sub(taken)
    }

    /// Keeps a database that goes for the snapshot that has not walked it yet; hands it back if there is none.
    pub(crate) fn leave_to_snapshot(&self, database: Box<Database>) -> Option<Box<Database>> {
        let mut guard = self.walk();
        let here = NonNull::from(&*database);
        let is_here = |source: &&mut Source| matches!(source.place, Place::Kept(place) if place == here);
        match guard.as_mut().and_then(|walk| walk.sources.iter_mut().find(is_here)) {
            Some(source) => {
                source.place = Place::Left(database);
                None
            }
            None => Some(database),
        }
    }

    fn walk(&self) -> MutexGuard<'_, Option<Walk>> {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handover(&self) -> &Handover {
        &self.reclaim.handover
    }
}

impl Walk {
    /// The database that a cell was in.
    fn home(&self, cell: usize) -> usize {
        let after = self.homes.partition_point(|(addresses, _)| *addresses.start() <= cell);
        let (addresses, db) = &self.homes[after.checked_sub(1).expect("what is handed over was there")];
        assert!(addresses.contains(&cell), "an entry was handed over that the snapshot did not begin with");
        *db
    }
}

impl Source {
    /// Copies what is of an earlier epoch, or only moves it to this one.
    /// Answers how many entries were looked at.
    fn walk(&mut self, table: &mut Table, epoch: Epoch, budget: usize, into: Option<&mut Taken>) -> usize {
        let (cursor, visited) = match into {
            Some(taken) => table.take_earlier(epoch, self.cursor, budget, &mut |raw| taken.add(raw)),
            None => table.take_earlier(epoch, self.cursor, budget, &mut |_| ()),
        };
        self.cursor = cursor;
        if cursor == 0 {
            self.shard += 1;
        }
        visited
    }
}
