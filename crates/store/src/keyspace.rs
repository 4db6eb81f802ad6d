//! The keyspace: databases × shards, the gate over all, and prefetching without locks.
//!
//! # Safety
//! `databases` holds null or a leaked box. A database is reached inside a batch only; it is replaced or taken out behind a closed
//! gate with no shard locked (`assert_alone`), when no other thread is in a batch, and freed by its new owner or when the
//! keyspace is dropped. Each use of a batch checks that it is of this keyspace's gate.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::database::{Database, DetachedDatabase};
use crate::gate::{Batch, Gate};
use crate::gauge::Gauge;
use crate::hash::{Hash, Hasher, SHARD_BITS_MAX};
use crate::prefetch::{prefetch, prefetch_to_write};
use crate::reclaim::Reclaim;
use crate::segment::Segment;
use crate::shard::{Shard, ShardCell};
use crate::snapshot::{Phase, Walk};
use crate::table::{Context, Root, Table};

/// How a keyspace is laid out.
pub struct Options {
    /// Number of shards: a power of two up to 16384.
    pub shards: usize,
    /// Number of databases.
    pub databases: usize,
    /// Threads that take part: workers and background threads.
    pub participants: usize,
    /// Secret seed of the hash.
    pub seed: (u64, u64),
}

/// The keyspace; see the module's description.
pub struct Keyspace {
    hasher: Hasher,
    shard_bits: u32,
    pub(crate) shards: Arc<[ShardCell]>,
    pub(crate) databases: Box<[AtomicPtr<Database>]>,
    /// The snapshot that runs. Locked by its walker inside a batch, and by who has closed the gate: nobody ever waits for it.
    pub(crate) walk: Mutex<Option<Walk>>,
    pub(crate) reclaim: Arc<Reclaim>,
}

/// One database, to request from memory what the commands of a batch are going to use. Takes no lock and reads no entry.
#[derive(Clone, Copy)]
pub struct Ahead<'b> {
    keyspace: &'b Keyspace,
    database: &'b Database,
}

impl<'b> Ahead<'b> {
    /// Requests the lock of a key's shard and the root of its table.
    #[inline]
    pub fn shard(&self, hash: Hash) {
        let shard = self.keyspace.shard_of(hash) as usize;
        prefetch_to_write(&raw const self.keyspace.shards[shard]);
        prefetch(std::ptr::from_ref(self.database.root(shard)));
    }

    /// Requests what a write that is logged looks at beside: the newest writes of the shard's keys.
    #[inline]
    pub fn stamps(&self, hash: Hash) {
        let shard = &raw const self.keyspace.shards[self.keyspace.shard_of(hash) as usize];
        prefetch_to_write(shard.cast::<u8>().wrapping_add(64));
    }

    /// Requests the place in the table's directory that says where a key's bucket is.
    #[inline]
    pub fn directory(&self, hash: Hash) {
        let bits = self.keyspace.shard_bits;
        // SAFETY: the batch, which is borrowed as long as `self`, lasts while this reads.
        unsafe { self.root(hash).prefetch_element(hash.below_shard(bits)) };
    }

    /// Requests what adding a key changes.
    #[inline]
    pub fn room(&self, hash: Hash) {
        let bits = self.keyspace.shard_bits;
        // SAFETY: the batch, which is borrowed as long as `self`, lasts while this reads.
        if let Some((segment, buckets)) = unsafe { self.root(hash).segment(hash.below_shard(bits)) } {
            Segment::prefetch_room(segment.as_ptr(), buckets, hash.fingerprint());
        }
    }

    #[inline]
    fn root(&self, hash: Hash) -> &'b Root {
        // 14 bits fit.
        self.database.root(hash.shard(self.keyspace.shard_bits) as usize)
    }

    /// Finds and requests the bucket in which a key would be. `None` if there are no keys.
    #[inline]
    pub fn bucket(&self, hash: Hash) -> Option<Bucket<'b>> {
        let bits = self.keyspace.shard_bits;
        let root = self.root(hash);
        // SAFETY: the batch, which is borrowed as long as the bucket, lasts while it is used.
        let (segment, buckets) = unsafe { root.segment(hash.below_shard(bits)) }?;
        let fingerprint = hash.fingerprint();
        Segment::prefetch_buckets(segment.as_ptr(), buckets, fingerprint);
        Some(Bucket { segment, buckets, fingerprint, batch: PhantomData })
    }
}

/// A bucket that was requested, and stays allocated as long as the batch.
#[derive(Clone, Copy)]
pub struct Bucket<'b> {
    segment: Segment,
    buckets: usize,
    fingerprint: u16,
    batch: PhantomData<&'b ()>,
}

impl Bucket<'_> {
    /// Requests the entry in the bucket that has the key's fingerprint. Takes no lock and reads no entry, only the bucket.
    #[inline]
    pub fn prefetch_entry(&self) {
        self.segment.prefetch_entries(self.buckets, self.fingerprint);
    }
}

impl Keyspace {
    /// An empty keyspace.
    ///
    /// # Panics
    /// If the options are out of range.
    pub fn new(options: Options) -> Self {
        let shard_bits = options.shards.trailing_zeros();
        assert!(
            options.shards.is_power_of_two() && shard_bits <= SHARD_BITS_MAX,
            "a power of two of shards up to 16384"
        );
        assert!(options.databases > 0, "at least one database");
        let hasher = Hasher::new(options.seed);
        let reclaim = Arc::new(Reclaim::new(options.participants));
        let context = || Context {
            owner: AtomicU32::new(0),
            shard_bits: u8::try_from(shard_bits).expect("at most SHARD_BITS_MAX"),
            phase: Phase::default(),
            hasher,
            reclaim: Some(Arc::clone(&reclaim)),
        };
        Self {
            hasher,
            shard_bits,
            shards: (0..options.shards).map(|_| ShardCell::new(context())).collect(),
            databases: (0..options.databases).map(|_| AtomicPtr::new(null_mut())).collect(),
            walk: Mutex::default(),
            reclaim,
        }
    }

    /// Number of databases.
    pub fn databases(&self) -> usize {
        self.databases.len()
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The gate that every thread enters to use the keyspace.
    pub fn gate(&self) -> &Gate {
        &self.reclaim.gate
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> Hash {
        self.hasher.hash(key)
    }

    /// The shard of a key.
    #[inline(always)]
    pub fn shard_of(&self, hash: Hash) -> u32 {
        hash.shard(self.shard_bits)
    }

    /// Locks a shard by one compare-exchange; `None` if it is locked, by this thread or another, unless this thread lends it.
    #[inline(always)]
    pub fn try_lock<'k>(&'k self, batch: &'k Batch<'_>, shard: u32) -> Option<Shard<'k>> {
        self.try_lock_for(batch, shard, 0)
    }

    /// As [`Keyspace::try_lock`], with so many more tries.
    #[inline(always)]
    pub fn try_lock_for<'k>(&'k self, batch: &'k Batch<'_>, shard: u32, spins: usize) -> Option<Shard<'k>> {
        self.check(batch);
        // 32 bits fit.
        Shard::try_lock(self, batch, &self.shards[shard as usize], shard, spins)
    }

    /// Whether a shard is lent by this batch's participant, and not borrowed.
    pub fn is_lent(&self, batch: &Batch<'_>, shard: u32) -> bool {
        self.check(batch);
        // 32 bits fit.
        self.shards[shard as usize].is_lent_by(batch)
    }

    /// For prefetching in one database. `None` if it was never used.
    #[inline]
    pub fn ahead<'b>(&'b self, batch: &'b Batch<'_>, db: usize) -> Option<Ahead<'b>> {
        self.database(batch, db).map(|database| Ahead { keyspace: self, database })
    }

    /// Number of keys in a database: a sum over shards that may be changing.
    pub fn len(&self, batch: &Batch<'_>, db: usize) -> usize {
        self.sum(batch, db, Root::len)
    }

    /// Number of keys of one shard in a database; it may be changing.
    pub fn shard_len(&self, batch: &Batch<'_>, db: usize, shard: u32) -> usize {
        // 32 bits fit.
        self.database(batch, db).map_or(0, |database| database.root(shard as usize).len())
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, batch: &Batch<'_>, db: usize) -> bool {
        self.len(batch, db) == 0
    }

    /// Number of keys of one shard in a database that expire; it may be changing.
    pub fn shard_volatile_len(&self, batch: &Batch<'_>, db: usize, shard: u32) -> usize {
        // 32 bits fit.
        self.database(batch, db).map_or(0, |database| database.root(shard as usize).volatile_len())
    }

    /// Number of keys of a database that expire.
    pub fn volatile_len(&self, batch: &Batch<'_>, db: usize) -> usize {
        self.sum(batch, db, Root::volatile_len)
    }

    /// Bytes of what is there before any key: locks and states of the shards.
    pub fn fixed_bytes(&self) -> usize {
        size_of_val(&*self.shards) + size_of_val(&*self.databases)
    }

    /// Bytes of entries, segments and directories in all databases, kept as a sum.
    pub fn bytes(&self) -> &Gauge {
        &self.reclaim.bytes
    }

    /// Number of keys of all databases that expire, kept as a sum.
    pub fn volatile(&self) -> &Gauge {
        &self.reclaim.volatile
    }

    /// Bytes of entries, segments and directories in all databases: a sum over tables that may be changing.
    pub fn memory_bytes(&self, batch: &Batch<'_>) -> usize {
        (0..self.databases.len()).map(|db| self.sum(batch, db, Root::bytes)).sum()
    }

    /// No key and no field of a database expires before this, in ms; `i64::MAX` if none does.
    pub fn earliest_ms(&self, batch: &Batch<'_>, db: usize) -> i64 {
        let database = self.database(batch, db);
        database.and_then(|database| database.roots().map(Root::deadline_ms).min()).unwrap_or(i64::MAX)
    }

    /// No key and no field of this shard and database expires before this, in ms; `i64::MAX` if none does. Takes no lock: active expiry asks
    /// this before it does.
    pub fn deadline_ms(&self, batch: &Batch<'_>, db: usize, shard: u32) -> i64 {
        self.database(batch, db).map_or(i64::MAX, |database| database.root(shard as usize).deadline_ms())
    }

    /// Exchanges two databases.
    ///
    /// # Panics
    /// If `batch` is of another gate, has not closed it ([`Batch::try_close`]), or holds a shard.
    pub fn swap_databases(&self, batch: &Batch<'_>, a: usize, b: usize) {
        self.assert_alone(batch);
        let of_a = self.databases[a].load(Ordering::Acquire);
        let of_b = self.databases[b].swap(of_a, Ordering::AcqRel);
        self.databases[a].store(of_b, Ordering::Release);
    }

    /// Takes a database's contents out, leaving it empty. What a snapshot has yet to see of them it keeps, and later leaves to its
    /// walker to be freed; what is returned is then empty.
    ///
    /// # Panics
    /// If `batch` is of another gate, has not closed it ([`Batch::try_close`]), or holds a shard.
    pub fn detach_database(&self, batch: &Batch<'_>, db: usize) -> DetachedDatabase {
        self.assert_alone(batch);
        let database = self.databases[db].swap(null_mut(), Ordering::AcqRel);
        // SAFETY: leaked by `made`; no other thread is inside the gate, and this one holds no reference into it.
        let database = (!database.is_null()).then(|| unsafe { Box::from_raw(database) });
        for root in database.iter().flat_map(|database| database.roots()) {
            self.reclaim.bytes.change(batch.participant(), root.bytes().cast_signed().wrapping_neg());
            self.reclaim.volatile.change(batch.participant(), root.volatile_len().cast_signed().wrapping_neg());
        }
        DetachedDatabase::new(database.and_then(|database| self.leave_to_snapshot(database)))
    }

    /// Puts back what was taken out of a database by [`Keyspace::detach_database`] and not freed since. What is there now is taken out.
    ///
    /// There must have been no snapshot since, nor may one be going on: what comes back is of the epoch in which it went.
    ///
    /// # Panics
    /// If `batch` is of another gate, has not closed it ([`Batch::try_close`]), or holds a shard; or if some of it was freed.
    pub fn attach_database(&self, batch: &Batch<'_>, db: usize, detached: DetachedDatabase) -> DetachedDatabase {
        let there = self.detach_database(batch, db);
        if let Some(database) = detached.whole() {
            for root in database.roots() {
                self.reclaim.bytes.change(batch.participant(), root.bytes().cast_signed());
                self.reclaim.volatile.change(batch.participant(), root.volatile_len().cast_signed());
            }
            self.databases[db].store(Box::into_raw(database), Ordering::Release);
        }
        there
    }

    /// Frees what `participant` retired and nobody can be reading any more. To be called between batches; one relaxed load when
    /// there is nothing.
    pub fn collect(&self, participant: usize) {
        self.reclaim.collect(participant);
    }

    /// Directories and segments that wait to be freed.
    pub fn retired(&self) -> usize {
        self.reclaim.pending()
    }

    /// The table of a shard.
    ///
    /// # Safety
    /// The caller holds the shard's lock for `'t`, and no other reference to the table.
    #[inline(always)]
    pub(crate) unsafe fn table<'t>(&self, db: usize, shard: u32) -> &'t mut Table {
        let mut database = self.databases[db].load(Ordering::Acquire);
        if database.is_null() {
            database = self.made(db);
        }
        // SAFETY: in a batch a database is not freed; the lock is the caller's.
        unsafe { (*database).table(shard as usize) }
    }

    /// Makes a database at its first use; another thread may be faster.
    #[cold]
    fn made(&self, db: usize) -> *mut Database {
        let new = Box::into_raw(Box::new(Database::new(Arc::clone(&self.shards))));
        let set = self.databases[db].compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        set.map_or_else(
            |others| {
                // SAFETY: leaked above and not published.
                drop(unsafe { Box::from_raw(new) });
                others
            },
            |_| new,
        )
    }

    #[inline(always)]
    fn database<'b>(&self, batch: &'b Batch<'_>, db: usize) -> Option<&'b Database> {
        self.check(batch);
        // SAFETY: null or a database that is not freed before the batch ends: that takes a closed gate, or this thread's own
        // exclusive access, during which it calls nothing else.
        unsafe { self.databases[db].load(Ordering::Acquire).as_ref() }
    }

    fn sum(&self, batch: &Batch<'_>, db: usize, of: impl Fn(&Root) -> usize) -> usize {
        self.database(batch, db).map_or(0, |database| database.roots().map(of).sum())
    }

    /// A batch of another keyspace's gate would protect nothing here.
    #[inline(always)]
    pub(crate) fn check(&self, batch: &Batch<'_>) {
        assert!(std::ptr::eq(batch.gate(), self.gate()), "a batch of another keyspace's gate");
    }

    /// That this batch has closed the gate is checked here instead of asked for as an [`Exclusive`](crate::Exclusive): a
    /// command may run while its caller holds that.
    pub(crate) fn assert_alone(&self, batch: &Batch<'_>) {
        self.check(batch);
        assert!(batch.has_closed(), "a database was taken while the gate is open");
        assert_eq!(batch.locked().get(), 0, "a database was taken while a shard is locked");
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        for database in &self.databases {
            let database = database.load(Ordering::Acquire);
            if !database.is_null() {
                // SAFETY: leaked by `made`; batches and shards borrow the keyspace, so there are none.
                drop(unsafe { Box::from_raw(database) });
            }
        }
    }
}
