//! The extendible table of one shard of one database: a directory of small segments.
//!
//! No operation costs more than one segment's rebuild (some µs) or one doubling of the directory (8 bytes per segment), at any
//! size: there is no rehash. `grow.rs` makes and gives back room, `scan.rs` visits, `expiry.rs` removes what is due, `edit.rs`
//! changes a value in place.
//!
//! Invariants:
//! - A `Table` is used by the holder of its shard's lock only. What others may read, the [`Root`], is beside it and atomic.
//! - Every change of an entry goes through `add`, `replace`, `detach` or [`EntryMut`]: there the counters and the deadlines are
//!   kept, and a snapshot that runs gets what the entry was (`before_change`).
//! - A table stays where it was made. Exchanging two through `&mut` would put each under the other's lock; it is refused.
//!
//! Dropped: one big open-addressed array per shard (a pause while it doubles), and a tree (misses per lookup).
//!
//! # Safety
//! A table points to the [`Cell`] that contains it and to its [`Context`]; whoever makes one keeps both allocated longer than the
//! table. Segments and directories that are linked are allocated; replaced ones go to [`Context::retire`] and are not used again.
//! Each entry is owned by exactly one slot.

mod edit;
mod expiry;
mod grow;
mod remains;
mod sample;
mod scan;

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::Release};

pub use edit::EntryMut;
pub use expiry::Expired;
pub(crate) use remains::Remains;
pub use scan::POSITION_BITS;

use crate::directory::Directory;
use crate::entry::{Body, Content, Entry, OwnedEntry, RawEntry};
use crate::hash::{Hash, Hasher};
use crate::reclaim::{Block, Reclaim};
use crate::segment::{self, Segment};
use crate::snapshot::Phase;
use crate::types::Aggregate;
use crate::value::{Large, NewValue};

/// The table; see the module's description.
pub struct Table {
    cell: NonNull<Cell>,
    context: NonNull<Context>,
    /// Segments as deep as the directory: it can be halved when there are none.
    deepest: u32,
    /// Where the running pass of active expiry continues, and the earliest deadline it has left behind.
    pass_position: u32,
    pass_deadline_ms: i64,
}

/// What [`Table::put`] did.
#[derive(Debug)]
#[must_use = "a large old value is to be dropped where that does no harm"]
pub struct Put {
    /// Whether the key was there.
    pub replaced: bool,
    /// The large value that it had.
    pub old: Option<Large>,
}

/// An entry taken out of a table: value and time of expiry. Dropping it frees it.
pub type Removed = OwnedEntry;

/// A table with what threads without the lock may read of it. One cache line.
#[repr(align(64))]
pub(crate) struct Cell {
    pub(crate) root: Root,
    pub(crate) table: UnsafeCell<Option<Table>>,
}

const _: () = assert!(size_of::<Cell>() == 64);

/// What is read without the lock: by prefetching and by sums over all shards.
pub(crate) struct Root {
    directory: AtomicPtr<AtomicPtr<segment::Header>>,
    len: AtomicU32,
    volatile: AtomicU32,
    bytes: AtomicUsize,
    /// No key expires before this.
    deadline_ms: AtomicI64,
}

/// What the tables of one shard have in common.
pub(crate) struct Context {
    /// The shard's lock: 0, or 1 + the participant that holds it.
    pub(crate) owner: AtomicU32,
    pub(crate) shard_bits: u8,
    /// What a snapshot wants of those who change entries.
    pub(crate) phase: Phase,
    pub(crate) hasher: Hasher,
    /// `None`: nobody reads the tables without the lock.
    pub(crate) reclaim: Option<Arc<Reclaim>>,
}

/// Where an entry is.
#[derive(Clone, Copy)]
struct Location {
    segment: Segment,
    index: usize,
    entry: RawEntry,
}

impl Table {
    /// The entry of a key.
    #[inline]
    pub fn find(&self, hash: Hash, key: &[u8]) -> Option<Entry<'_>> {
        self.locate(hash, key).map(|at| Entry::new(at.entry))
    }

    /// The entry of a key, for changing it: the only way to change a value in place.
    #[inline]
    pub fn find_mut(&mut self, hash: Hash, key: &[u8]) -> Option<EntryMut<'_>> {
        self.locate(hash, key).map(|at| EntryMut::new(self, at, hash))
    }

    /// The entry of a key that is alive at `now_ms`. One whose time is past is removed if it `may_go`, and given to `expired`.
    #[inline(always)]
    pub fn find_live(
        &mut self,
        hash: Hash,
        key: &[u8],
        now_ms: i64,
        may_go: bool,
        expired: impl FnOnce(Removed),
    ) -> Option<Entry<'_>> {
        let entry = self.look(hash, key)?;
        if entry.expire_at_ms().is_none_or(|at_ms| at_ms >= now_ms) {
            return Some(Entry::new(entry));
        }
        if may_go {
            expired(self.remove(hash, key).expect("it was just found"));
        }
        None
    }

    /// As [`Table::find_live`], for changing the entry.
    #[inline(always)]
    pub fn find_live_mut(
        &mut self,
        hash: Hash,
        key: &[u8],
        now_ms: i64,
        expired: impl FnOnce(Removed),
    ) -> Option<EntryMut<'_>> {
        self.locate_live(hash, key, now_ms, expired).map(|at| EntryMut::new(self, at, hash))
    }

    #[inline(always)]
    fn locate_live(&mut self, hash: Hash, key: &[u8], now_ms: i64, expired: impl FnOnce(Removed)) -> Option<Location> {
        let at = self.locate(hash, key)?;
        if at.entry.expire_at_ms().is_none_or(|at_ms| at_ms >= now_ms) {
            return Some(at);
        }
        expired(self.take_out(at, hash));
        None
    }

    #[cold]
    fn take_out(&mut self, at: Location, hash: Hash) -> Removed {
        let removed = self.detach(at, hash);
        self.give_back(hash);
        removed
    }

    /// Inserts a key or replaces its value, time of expiry and clock. An allocation of the same size is used again.
    #[inline]
    pub fn put(&mut self, hash: Hash, key: &[u8], value: NewValue<'_>, expire_at_ms: Option<i64>, clock: u32) -> Put {
        let at = self.locate(hash, key);
        if let (Some(at), NewValue::Bytes(bytes), None) = (&at, &value, expire_at_ms) {
            self.before_change(at.entry);
            if at.entry.rewrite(bytes, clock) {
                return Put { replaced: true, old: None };
            }
        }
        let epoch = self.context().phase.epoch();
        let content = Content { body: Body::new(value), expire_at_ms, clock, modified: false, epoch };
        self.put_content(at, hash, key, content)
    }

    /// As [`Table::put`], for an aggregate; a large one is taken as it is.
    pub fn put_aggregate(
        &mut self,
        hash: Hash,
        key: &[u8],
        value: Aggregate,
        expire_at_ms: Option<i64>,
        clock: u32,
    ) -> Put {
        let epoch = self.context().phase.epoch();
        let content = Content { body: Body::aggregate(value), expire_at_ms, clock, modified: false, epoch };
        self.put_content(self.locate(hash, key), hash, key, content)
    }

    /// Takes a key's entry out.
    #[inline(never)]
    pub fn remove(&mut self, hash: Hash, key: &[u8]) -> Option<Removed> {
        let at = self.locate(hash, key)?;
        let removed = self.detach(at, hash);
        self.give_back(hash);
        Some(removed)
    }

    /// Takes a key's entry out, to be put under another key or into another table by [`Table::put_owned`].
    pub fn take(&mut self, hash: Hash, key: &[u8]) -> Option<OwnedEntry> {
        self.remove(hash, key)
    }

    /// Puts an entry that was taken out under `key`, with its value, time of expiry and clock; a large value is not copied.
    pub fn put_owned(&mut self, hash: Hash, key: &[u8], owned: OwnedEntry) -> Put {
        let raw = owned.into_raw();
        // SAFETY: the shell is freed below, after the content was used.
        let mut content = unsafe { raw.take_content() };
        content.epoch = self.context().phase.epoch();
        let put = self.put_content(self.locate(hash, key), hash, key, content);
        raw.free_shell();
        put
    }

    /// Sets or, with `None`, removes the time at which a key expires. False if there is no such key.
    pub fn set_expire(&mut self, hash: Hash, key: &[u8], at_ms: Option<i64>) -> bool {
        self.find_mut(hash, key).map(|mut entry| entry.set_expire(at_ms)).is_some()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.root().len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that expire.
    pub fn volatile_len(&self) -> usize {
        self.root().volatile_len()
    }

    /// Bytes of entries, segments and directory.
    pub fn bytes(&self) -> usize {
        self.root().bytes()
    }

    /// No key and no field expires before this; `i64::MAX` if none does. May be too early after removals.
    pub fn deadline_ms(&self) -> i64 {
        self.root().deadline_ms()
    }

    /// The table in `cell`, empty.
    ///
    /// # Safety
    /// `cell` and `context` outlive the table, and the table is stored in that cell before it is used.
    pub(crate) unsafe fn new(cell: NonNull<Cell>, context: NonNull<Context>) -> Self {
        Self { cell, context, deepest: 0, pass_position: 0, pass_deadline_ms: i64::MAX }
    }

    /// Takes everything out, to be freed. The table is empty afterwards.
    ///
    /// # Safety
    /// No other thread can be reading the table's root.
    pub(crate) unsafe fn remains(&mut self) -> Remains {
        let directory = self.directory();
        self.root().directory.store(null_mut(), Relaxed);
        let len = self.len();
        self.root().len.store(0, Relaxed);
        self.root().volatile.store(0, Relaxed);
        self.root().bytes.store(0, Relaxed);
        self.root().deadline_ms.store(i64::MAX, Relaxed);
        Remains::new(directory, len)
    }

    #[inline]
    fn root(&self) -> &Root {
        let cell = self.cell.as_ptr();
        // SAFETY: only an address is computed, within the cell, which outlives the table (`new`).
        let place = unsafe { &raw const (*cell).table };
        assert_eq!(place.addr(), std::ptr::from_ref(self).addr(), "a table was moved out of its place");
        // SAFETY: the cell outlives the table, and the root is only touched through shared references.
        unsafe { &(*cell).root }
    }

    #[inline]
    fn context(&self) -> &Context {
        // SAFETY: the context outlives the table (`new`) and is only touched through shared references.
        unsafe { self.context.as_ref() }
    }

    #[inline]
    fn directory(&self) -> Option<Directory> {
        // SAFETY: a linked directory is not freed; whoever retires it stores its successor first.
        unsafe { Directory::from_word(self.root().directory.load(Relaxed)) }
    }

    /// Publishes a directory. Release: its elements are written before its address can be seen.
    fn set_directory(&mut self, directory: Directory) {
        self.root().directory.store(directory.word(), Release);
    }

    /// The hash's bits for the directory, at the top.
    #[inline]
    fn bits(&self, hash: Hash) -> u64 {
        hash.below_shard(u32::from(self.context().shard_bits))
    }

    /// The address of a key's entry: an answer in a register, for who only reads.
    #[inline(never)]
    fn look(&self, hash: Hash, key: &[u8]) -> Option<RawEntry> {
        self.locate(hash, key).map(|at| at.entry)
    }

    #[inline]
    fn locate(&self, hash: Hash, key: &[u8]) -> Option<Location> {
        let directory = self.directory()?;
        let (segment, buckets) = directory.tagged_segment(directory.index(self.bits(hash)));
        let (index, entry) = segment.find(buckets, hash.fingerprint(), |entry| entry.has_key(key))?;
        Some(Location { segment, index, entry })
    }

    /// Gives the key, which is `at` or nowhere, its content.
    fn put_content(&mut self, at: Option<Location>, hash: Hash, key: &[u8], content: Content<'_>) -> Put {
        match at {
            Some(at) => Put { replaced: true, old: self.replace(at, hash, key, content) },
            None => {
                self.add(hash, RawEntry::allocate(key, content));
                Put { replaced: false, old: None }
            }
        }
    }

    /// Links a new entry, whose key is not there.
    fn add(&mut self, hash: Hash, entry: RawEntry) {
        let bits = self.bits(hash);
        let segment = loop {
            let directory = self.directory_or_first();
            let segment = directory.segment(directory.index(bits));
            if segment.insert(hash.fingerprint(), entry).is_some() {
                break segment;
            }
            self.make_room(bits);
        };
        self.root().len.store(self.root().len.load(Relaxed) + 1, Relaxed);
        self.account(entry.memory_bytes(), 0);
        self.note_expire(segment, None, entry.expire_at_ms(), hash);
        self.note_fields(segment, entry, hash);
    }

    /// Gives an entry another content; returns the large value it had.
    fn replace(&mut self, at: Location, hash: Hash, key: &[u8], content: Content<'_>) -> Option<Large> {
        let old = at.entry;
        self.before_change(old);
        let (expired_ms, expires_ms) = (old.expire_at_ms(), content.expire_at_ms);
        let before = old.memory_bytes();
        let (entry, large) = match old.overwrite(key, content) {
            Ok(large) => (old, large),
            Err(content) => {
                let entry = RawEntry::allocate(key, content);
                at.segment.set(at.index, hash.fingerprint(), entry);
                // SAFETY: of the content only the large value, which is moved, is used after the shell was freed.
                let body = unsafe { old.take_content() }.body;
                old.free_shell();
                (entry, body.into_large())
            }
        };
        self.account(entry.memory_bytes(), before);
        self.note_expire(at.segment, expired_ms, expires_ms, hash);
        self.note_fields(at.segment, entry, hash);
        large
    }

    /// Unlinks an entry.
    fn detach(&mut self, at: Location, hash: Hash) -> OwnedEntry {
        self.before_change(at.entry);
        at.segment.clear(at.index);
        self.root().len.store(self.root().len.load(Relaxed) - 1, Relaxed);
        self.account(0, at.entry.memory_bytes());
        self.note_expire(at.segment, at.entry.expire_at_ms(), None, hash);
        OwnedEntry::new(at.entry)
    }

    /// An entry is about to change or go: a snapshot that has not got it yet gets it as it is.
    #[inline]
    fn before_change(&self, entry: RawEntry) {
        if self.context().phase.is_running() {
            self.hand_over(entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn hand_over(&self, entry: RawEntry) {
        let context = self.context();
        let epoch = context.phase.epoch();
        if entry.epoch() != epoch {
            entry.set_epoch(epoch);
            let shared = Entry::new(entry);
            let reclaim = context.reclaim.as_ref().expect("snapshots are of a keyspace's tables");
            reclaim.handover.push(context.holder(), self.cell.addr(), shared.copied(shared.clock()));
        }
    }

    /// Keeps counts and deadlines when an entry's time of expiry changes.
    #[inline]
    fn note_expire(&mut self, segment: Segment, before_ms: Option<i64>, after_ms: Option<i64>, hash: Hash) {
        if before_ms.is_some() != after_ms.is_some() {
            let change: i8 = if after_ms.is_some() { 1 } else { -1 };
            segment.add_volatile(i16::from(change));
            let volatile = &self.root().volatile;
            let count = volatile.load(Relaxed).checked_add_signed(i32::from(change));
            volatile.store(count.expect("counts of volatile keys are exact"), Relaxed);
            self.context().count_volatile(isize::from(change));
        }
        if let Some(at_ms) = after_ms {
            self.note_due(segment, at_ms, hash);
        }
    }

    /// Keeps deadlines when something of an entry is due at a time: its key, or a field of a hash.
    fn note_due(&mut self, segment: Segment, at_ms: i64, hash: Hash) {
        segment.note_deadline_ms(at_ms);
        let directory = self.directory().expect("the entry is in a segment of it");
        directory.note_deadline_ms(directory.index(self.bits(hash)), segment.depth(), at_ms);
        let deadline = &self.root().deadline_ms;
        deadline.store(deadline.load(Relaxed).min(at_ms), Relaxed);
        self.pass_deadline_ms = self.pass_deadline_ms.min(at_ms);
    }

    /// As [`Table::note_due`], for the fields of an entry that was added or changed.
    #[inline]
    fn note_fields(&mut self, segment: Segment, entry: RawEntry, hash: Hash) {
        if let Some(at_ms) = entry.fields_due_ms() {
            self.note_due(segment, at_ms, hash);
        }
    }

    /// Adds to and subtracts from the bytes in use.
    #[inline]
    fn account(&self, added: usize, removed: usize) {
        // Nothing to add: do not take the line, which other threads read to prefetch.
        if added != removed {
            let bytes = &self.root().bytes;
            bytes.store(bytes.load(Relaxed) + added - removed, Relaxed);
            self.context().count_bytes(added.wrapping_sub(removed).cast_signed());
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: a table is dropped with its cell, when its keyspace is, or after it was detached behind a closed gate.
        drop(unsafe { self.remains() });
    }
}

impl Cell {
    /// A cell whose table is not yet made.
    pub(crate) fn empty() -> Self {
        let root = Root {
            directory: AtomicPtr::new(null_mut()),
            len: AtomicU32::new(0),
            volatile: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            deadline_ms: AtomicI64::new(i64::MAX),
        };
        Self { root, table: UnsafeCell::new(None) }
    }
}

impl Root {
    pub(crate) fn len(&self) -> usize {
        // 32 bits fit.
        self.len.load(Relaxed) as usize
    }

    pub(crate) fn volatile_len(&self) -> usize {
        // 32 bits fit.
        self.volatile.load(Relaxed) as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn deadline_ms(&self) -> i64 {
        self.deadline_ms.load(Relaxed)
    }

    /// The segment for a hash, its address and number of buckets only.
    ///
    /// # Safety
    /// The caller holds the shard's lock, or is inside a batch while it uses the result.
    #[inline]
    pub(crate) unsafe fn segment(&self, bits: u64) -> Option<(Segment, usize)> {
        // SAFETY: as the caller's.
        let directory = unsafe { self.linked_directory() }?;
        Some(directory.tagged_segment(directory.index(bits)))
    }

    /// Requests what [`Root::segment`] is going to read for a hash.
    ///
    /// # Safety
    /// As of [`Root::segment`].
    #[inline]
    pub(crate) unsafe fn prefetch_element(&self, bits: u64) {
        // SAFETY: as the caller's.
        if let Some(directory) = unsafe { self.linked_directory() } {
            directory.prefetch(directory.index(bits));
        }
    }

    /// # Safety
    /// As of [`Root::segment`].
    #[inline]
    unsafe fn linked_directory(&self) -> Option<Directory> {
        // SAFETY: in a batch a directory that was linked at its beginning is not freed. Acquire: its elements are visible.
        unsafe { Directory::from_word(self.directory.load(std::sync::atomic::Ordering::Acquire)) }
    }
}

impl Context {
    /// Counts bytes that the holder of the lock has added or, negative, removed.
    #[inline]
    fn count_bytes(&self, by: isize) {
        if let Some(reclaim) = &self.reclaim {
            reclaim.bytes.change(self.holder(), by);
        }
    }

    /// Counts keys that have got a time of expiry or, negative, lost it.
    fn count_volatile(&self, by: isize) {
        if let Some(reclaim) = &self.reclaim {
            reclaim.volatile.change(self.holder(), by);
        }
    }

    /// The participant that holds the shard's lock.
    #[inline]
    fn holder(&self) -> usize {
        // A participant's number fits.
        self.owner.load(Relaxed).checked_sub(1).expect("tables change under the shard's lock") as usize
    }

    /// Gives up a directory or segment that is no longer linked.
    fn retire(&self, (pointer, layout): (NonNull<u8>, Layout)) {
        // SAFETY: directories and segments are plain bytes allocated with this layout, and just unlinked by their owner.
        let block = unsafe { Block::new(pointer, layout) };
        if let Some(reclaim) = &self.reclaim {
            reclaim.retire(self.holder(), block);
        }
    }
}

/// A table on its own, outside of any keyspace and without lock-free readers.
pub struct StandaloneTable {
    cell: NonNull<Cell>,
    context: NonNull<Context>,
}

impl StandaloneTable {
    /// An empty table whose hashes use `seed` and leave the top `shard_bits` bits out.
    pub fn new(seed: (u64, u64), shard_bits: u32) -> Self {
        Self::with_hasher(Hasher::new(seed), shard_bits)
    }

    /// Empties the table into what is to be freed in slices.
    #[cfg(test)]
    fn empty_out(&mut self) -> Remains {
        // SAFETY: no other thread reads a standalone table.
        unsafe { self.remains() }
    }

    fn with_hasher(hasher: Hasher, shard_bits: u32) -> Self {
        let shard_bits = u8::try_from(shard_bits).expect("at most SHARD_BITS_MAX");
        let (owner, phase) = (AtomicU32::new(0), Phase::default());
        let context = Context { owner, shard_bits, phase, hasher, reclaim: None };
        let cell = NonNull::from(Box::leak(Box::new(Cell::empty())));
        let context = NonNull::from(Box::leak(Box::new(context)));
        // SAFETY: both boxes are freed after the table only, in `drop`; nobody else knows the cell yet.
        unsafe { *cell.as_ref().table.get() = Some(Table::new(cell, context)) };
        Self { cell, context }
    }

    /// The hash of a key under the table's seed.
    pub fn hash(&self, key: &[u8]) -> Hash {
        self.context().hasher.hash(key)
    }
}

impl std::ops::Deref for StandaloneTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        // SAFETY: the cell lives as long as `self`, and only `deref_mut` makes a unique reference, from a unique borrow.
        unsafe { (*self.cell.as_ref().table.get()).as_ref() }.expect("made in `new`")
    }
}

impl std::ops::DerefMut for StandaloneTable {
    fn deref_mut(&mut self) -> &mut Table {
        // SAFETY: the cell lives as long as `self`, which is borrowed uniquely.
        unsafe { (*self.cell.as_ref().table.get()).as_mut() }.expect("made in `new`")
    }
}

impl Drop for StandaloneTable {
    fn drop(&mut self) {
        // SAFETY: both came from boxes in `new`; the table goes with the cell, before the context.
        unsafe {
            drop(Box::from_raw(self.cell.as_ptr()));
            drop(Box::from_raw(self.context.as_ptr()));
        }
    }
}

#[cfg(test)]
mod tests;
