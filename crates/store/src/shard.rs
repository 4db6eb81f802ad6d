//! A shard: the lock over one part of the key space, in all databases, and the durability state of its keys.
//!
//! The lock is one word that names its holder. It is only ever tried: who fails goes on with other work, so that no thread waits
//! while it holds another shard. Dropped: a `Mutex` (it can block, and would hide who holds it).
//!
//! A transaction keeps the shards of all its commands locked while it runs them one after the other, and each of them locks what it
//! needs by itself: it *lends* what it holds ([`Shard::lend`]). A shard that its own participant lends can be locked by that
//! participant again, once at a time; unlocking gives it back to the [`LentShard`]. Dropped: handing guards from command to command,
//! which every handler would have to know of.
//!
//! # Safety
//! State and tables of a shard are reached through a [`Shard`] only, of which there is at most one: making it takes the lock word
//! from 0 with Acquire, or from "lent by me" to "mine"; dropping it stores what the word was before, with Release. A `LentShard`
//! gives no access. It is made by consuming a `Shard`, and when it is dropped the word must say that nobody borrows it, which is
//! asserted: so the word is 0 only when there is no `Shard`, and "lent by me" only when there is none either. Borrowing needs no
//! ordering: lender and borrower are one thread, since both borrow the participant's batch, which is bound to its thread, and of
//! which there is one at a time. A `LentShard` that is forgotten leaves the shard to this participant for good; later batches of the
//! participant, on whatever thread, are ordered by the gate's word.
//! A `Shard` borrows its batch, so that no shard is locked by a thread that is outside the gate.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::gate::Batch;
use crate::hash::Hash;
use crate::keyspace::Keyspace;
use crate::readers::{ReadKey, Reader, Readers, ReadersChange};
use crate::stamps::Stamps;
use crate::table::{Context, Table};
use crate::waiters::{Waiter, Waiters};
use crate::watch::Watchers;

/// A locked shard. Dropping it unlocks.
pub struct Shard<'k> {
    keyspace: &'k Keyspace,
    batch: &'k Batch<'k>,
    cell: &'k ShardCell,
    id: u32,
    /// What the lock word was before: 0, or lent by this participant.
    before: u32,
}

/// A shard that is locked and lent: its participant, and nobody else, can lock it. Dropping it unlocks.
pub struct LentShard<'k> {
    batch: &'k Batch<'k>,
    cell: &'k ShardCell,
    /// What the lock word becomes: 0, or lent by this participant to whoever lends it now.
    before: u32,
}

/// Set in the lock word of a shard that its holder lends.
const LENT: u32 = 1 << 31;

/// What belongs to a shard beside its tables. In declared order, so that the lock and what every command looks at under it share
/// a cache line, which [`Ahead::shard`](crate::Ahead::shard) requests.
#[repr(C, align(64))]
pub(crate) struct ShardCell {
    pub(crate) context: Context,
    state: UnsafeCell<ShardState>,
}

// SAFETY: the state is only reached by the thread that holds the lock (module's `Safety`); the context is atomic or never changes.
unsafe impl Sync for ShardCell {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for ShardCell {}

impl ShardCell {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, state: UnsafeCell::new(ShardState::default()) }
    }

    /// Takes the lock word, if it is free.
    #[inline(always)]
    fn take(&self, batch: &Batch<'_>) -> bool {
        let (owner, me) = (&self.context.owner, word_of(batch));
        if !batch.is_alone() {
            return owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok();
        }
        let is_free = owner.load(Ordering::Relaxed) == 0;
        if is_free {
            owner.store(me, Ordering::Relaxed);
        }
        is_free
    }

    /// Takes the lock word if it is lent by this participant, or becomes free within so many tries; returns what it was.
    #[cold]
    fn take_lent_or_spin(&self, batch: &Batch<'_>, spins: usize) -> Option<u32> {
        if self.is_lent_by(batch) {
            self.context.owner.store(word_of(batch), Ordering::Relaxed);
            return Some(word_of(batch) | LENT);
        }
        let mut taken = (0..spins).map(|_| {
            std::hint::spin_loop();
            self.take(batch)
        });
        taken.any(|taken| taken).then_some(0)
    }

    /// Whether this participant lends the shard, and nobody has borrowed it.
    pub(crate) fn is_lent_by(&self, batch: &Batch<'_>) -> bool {
        self.context.owner.load(Ordering::Relaxed) == word_of(batch) | LENT
    }
}

impl<'k> Shard<'k> {
    /// Locks the shard by one compare-exchange, or by a store while the batch's participant is alone; `None` if it stays locked for
    /// so many more tries. The guard is made here alone, of values in registers: one that comes out of a call through memory costs
    /// as much as the rest of a look-up.
    #[inline(always)]
    pub(crate) fn try_lock(
        keyspace: &'k Keyspace,
        batch: &'k Batch<'k>,
        cell: &'k ShardCell,
        id: u32,
        spins: usize,
    ) -> Option<Self> {
        let before = if cell.take(batch) { 0 } else { cell.take_lent_or_spin(batch, spins)? };
        batch.locked().set(batch.locked().get() + 1);
        Some(Self { keyspace, batch, cell, id, before })
    }

    /// Keeps the shard locked, but so that this participant can lock it again.
    pub fn lend(self) -> LentShard<'k> {
        let shard = std::mem::ManuallyDrop::new(self);
        shard.cell.context.owner.store(word_of(shard.batch) | LENT, Ordering::Relaxed);
        LentShard { batch: shard.batch, cell: shard.cell, before: shard.before }
    }

    /// The shard's number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The shard's part of database `db`; made at first use.
    ///
    /// # Panics
    /// If there is no such database.
    pub fn table(&mut self, db: usize) -> &mut Table {
        // SAFETY: this shard is locked by `self`, which is borrowed uniquely as long as the table.
        unsafe { self.keyspace.table(db, self.id) }
    }

    /// The shard's part of database `db` and the durability state of its keys, to be used side by side.
    ///
    /// # Panics
    /// If there is no such database.
    #[inline(always)]
    pub fn parts(&mut self, db: usize) -> (&mut Table, &mut ShardState) {
        // SAFETY: this shard is locked by `self`, which is borrowed uniquely as long as both parts; they do not overlap.
        unsafe { (self.keyspace.table(db, self.id), &mut *self.cell.state.get()) }
    }

    /// The durability state of the shard's keys.
    #[inline(always)]
    pub fn state(&mut self) -> &mut ShardState {
        // SAFETY: the shard is locked by `self`, which is borrowed uniquely.
        unsafe { &mut *self.cell.state.get() }
    }
}

impl Drop for Shard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.batch.locked().set(self.batch.locked().get() - 1);
        self.cell.context.owner.store(self.before, Ordering::Release);
    }
}

impl Drop for LentShard<'_> {
    fn drop(&mut self) {
        assert!(self.cell.is_lent_by(self.batch), "a shard is given back while it is borrowed");
        self.batch.locked().set(self.batch.locked().get() - 1);
        self.cell.context.owner.store(self.before, Ordering::Release);
    }
}

/// A participant's lock word.
#[inline]
fn word_of(batch: &Batch<'_>) -> u32 {
    u32::try_from(batch.participant() + 1).expect("at most PARTICIPANTS_MAX")
}

/// Which of a shard's keys have writes that are not yet durable.
#[derive(Default)]
#[repr(C)]
pub struct ShardState {
    /// LSN of the shard's newest write.
    pub last_lsn: u64,
    /// Latest time, in ms, that a command in this shard has seen: time under the lock never goes back.
    pub last_now_ms: i64,
    /// Who watches keys of this shard, waits for them or keeps copies of them; `None` if nobody does.
    attention: Option<Box<Attention>>,
    /// The highest durable LSN that was seen here. From `last_lsn` on, nothing is remembered.
    durable_lsn: u64,
    /// A record that concerned all keys ended here.
    floor_lsn: u64,
    stamps: Stamps,
}

// What every command looks at is in the first cache line of the shard, with its lock, and what a write that is logged looks at in
// the second one. (In tests the context is larger.)
#[cfg(not(test))]
const _: () = assert!(std::mem::offset_of!(ShardCell, state) + std::mem::offset_of!(ShardState, durable_lsn) + 8 <= 64);
#[cfg(not(test))]
const _: () = assert!(std::mem::offset_of!(ShardCell, state) + std::mem::offset_of!(ShardState, floor_lsn) == 64);

/// Who is to be told of changes.
#[derive(Default)]
struct Attention {
    watchers: Watchers,
    waiters: Waiters,
    readers: Readers,
}

impl ShardState {
    /// Notes that a key was written, or that it was removed, by the record that ends at `lsn`.
    pub fn stamp(&mut self, db: usize, hash: Hash, lsn: u64) {
        self.last_lsn = self.last_lsn.max(lsn);
        if self.last_lsn <= self.durable_lsn {
            return;
        }
        self.stamps.add(db, hash, lsn);
        self.forget();
    }

    /// Notes that all keys of the shard were written or removed, in every database, by the record that ends at `lsn`: a flush, an
    /// exchange of databases.
    pub fn stamp_all(&mut self, lsn: u64) {
        self.last_lsn = self.last_lsn.max(lsn);
        if self.last_lsn > self.durable_lsn {
            self.floor_lsn = self.floor_lsn.max(lsn);
        }
    }

    /// LSN of the newest write of a key if it is beyond `durable_lsn`, else 0. Two keys with one 64-bit hash share an answer, which
    /// can only be too high.
    #[inline]
    pub fn newest(&mut self, db: usize, hash: Hash, durable_lsn: u64) -> u64 {
        if self.last_lsn <= self.durable_lsn {
            return 0;
        }
        self.newest_of_dirty(db, hash, durable_lsn)
    }

    /// A key was changed or removed: who watches it is told. True if somebody waits for it, who is then to be served. One branch
    /// while nobody watches a key of this shard or waits for one.
    #[inline]
    #[must_use = "waiters are served by the worker that made the change"]
    pub fn modified(&mut self, db: usize, hash: Hash, name: &[u8]) -> bool {
        self.attention.is_some() && self.attend(db, hash, name)
    }

    #[cold]
    fn attend(&mut self, db: usize, hash: Hash, name: &[u8]) -> bool {
        let Some(attention) = &mut self.attention else { return false };
        attention.watchers.tell(db, hash, name);
        let waited = attention.waiters.waits(db, name);
        self.forget_attention();
        waited
    }

    /// Sets `flag` when the key is next changed.
    pub fn watch(&mut self, db: usize, hash: Hash, name: &Arc<[u8]>, flag: &Arc<AtomicBool>) {
        self.attention.get_or_insert_default().watchers.add(db, hash, name, flag);
    }

    /// Ends a watch. Dropping the flag ends it too, only later.
    pub fn unwatch(&mut self, db: usize, hash: Hash, flag: &Arc<AtomicBool>) {
        if let Some(attention) = &mut self.attention {
            attention.watchers.remove(db, hash, flag);
            self.forget_attention();
        }
    }

    /// The keys that are watched here, each by database, hash and name, perhaps more than once; some of the watches may have ended.
    pub fn watched(&self) -> Vec<(usize, Hash, Arc<[u8]>)> {
        self.attention.as_ref().map_or_else(Vec::new, |attention| attention.watchers.keys())
    }

    /// Who waits for keys of this shard, if anybody does.
    #[inline]
    pub fn waiters(&self) -> Option<&Waiters> {
        self.attention.as_ref().map(|attention| &attention.waiters)
    }

    /// Lists somebody who waits for a key.
    pub fn wait(&mut self, db: usize, name: &[u8], waiter: Arc<dyn Waiter>) {
        self.attention.get_or_insert_default().waiters.add(db, name, waiter);
    }

    /// Forgets those who no longer wait for a key.
    pub fn sweep_waiters(&mut self, db: usize, name: &[u8]) {
        if let Some(attention) = &mut self.attention {
            attention.waiters.sweep_key(db, name);
            self.forget_attention();
        }
    }

    /// Lists somebody who reads a key, and will be told when it changes.
    pub fn read_by(&mut self, hash: Hash, name: &[u8], reader: &Arc<dyn Reader>) -> ReadersChange {
        self.attention.get_or_insert_default().readers.add(hash, name, reader)
    }

    /// Takes those who have read a key, to tell them that it has changed: in any database, since they know only its name.
    #[inline]
    pub fn take_readers(&mut self, hash: Hash, name: &[u8]) -> (Vec<ReadKey>, ReadersChange) {
        let Some(attention) = &mut self.attention else { return Default::default() };
        let taken = attention.readers.take(hash, name);
        self.forget_attention();
        taken
    }

    /// Takes those who have read some keys, up to `most`, to tell them that these are remembered no longer.
    pub fn forget_readers(&mut self, most: usize) -> (Vec<ReadKey>, ReadersChange) {
        let Some(attention) = &mut self.attention else { return Default::default() };
        let taken = attention.readers.take_some(most);
        self.forget_attention();
        taken
    }

    /// Takes all that is known of who has read what.
    pub fn take_all_readers(&mut self) -> (Readers, ReadersChange) {
        let Some(attention) = &mut self.attention else { return Default::default() };
        let readers = std::mem::take(&mut attention.readers);
        let change = readers.whole();
        self.forget_attention();
        (readers, change)
    }

    fn forget_attention(&mut self) {
        let idle = |attention: &Attention| {
            attention.watchers.is_empty() && attention.waiters.is_empty() && attention.readers.is_empty()
        };
        if self.attention.as_deref().is_some_and(idle) {
            self.attention = None;
        }
    }

    /// Keys that are remembered.
    pub fn stamped_len(&self) -> usize {
        self.stamps.len()
    }

    fn newest_of_dirty(&mut self, db: usize, hash: Hash, durable_lsn: u64) -> u64 {
        self.durable_lsn = self.durable_lsn.max(durable_lsn);
        self.forget();
        let lsn = self.stamps.newest(db, hash).max(self.floor_lsn);
        if lsn > durable_lsn { lsn } else { 0 }
    }

    /// Drops what is durable.
    fn forget(&mut self) {
        if self.floor_lsn <= self.durable_lsn {
            self.floor_lsn = 0;
        }
        self.stamps.forget(self.durable_lsn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_dirty_until_its_write_is_durable() {
        let mut state = ShardState::default();
        assert_eq!(state.newest(0, Hash(1), 0), 0);
        state.stamp(0, Hash(1), 100);
        state.stamp(1, Hash(1), 150);
        state.stamp(0, Hash(2), 200);
        assert_eq!((state.newest(0, Hash(1), 0), state.newest(1, Hash(1), 0)), (100, 150));
        assert_eq!(state.newest(0, Hash(1), 99), 100);
        assert_eq!(state.newest(0, Hash(1), 100), 0);
        assert_eq!(state.newest(0, Hash(3), 100), 0);
        assert_eq!(state.newest(0, Hash(2), 199), 200);
        assert_eq!(state.newest(0, Hash(2), 200), 0);
        assert_eq!(state.stamped_len(), 0);
    }

    #[test]
    fn a_record_about_all_keys_makes_each_dirty() {
        let mut state = ShardState::default();
        state.stamp(0, Hash(1), 10);
        state.stamp_all(50);
        assert_eq!((state.newest(0, Hash(1), 0), state.newest(3, Hash(9), 49)), (50, 50));
        state.stamp(0, Hash(1), 60);
        assert_eq!(state.newest(0, Hash(1), 0), 60);
        assert_eq!(state.newest(3, Hash(9), 50), 0);
    }

    #[test]
    fn later_writes_win_across_generations() {
        let mut state = ShardState::default();
        for lsn in 1..=1000 {
            state.stamp(0, Hash(lsn % 7), lsn);
            let durable = lsn.saturating_sub(5);
            assert_eq!(state.newest(0, Hash(lsn % 7), durable), lsn);
            let before = lsn.saturating_sub(6);
            let expected = if before > durable { before } else { 0 };
            assert_eq!(
                state.newest(0, Hash(before % 7), durable),
                expected.max(if before % 7 == lsn % 7 { lsn } else { 0 })
            );
        }
    }

    #[test]
    fn memory_is_bounded_while_the_log_keeps_up() {
        let mut state = ShardState::default();
        let mut most = 0;
        for lsn in 1..=100_000_u64 {
            state.newest(0, Hash(lsn << 20), lsn.saturating_sub(1000));
            state.stamp(0, Hash(lsn << 20), lsn);
            most = most.max(state.stamped_len());
        }
        assert!(most <= 3000, "{most} keys remembered for 1000 that are not durable");
        assert_eq!(state.newest(0, Hash(0), 100_000), 0);
        assert_eq!(state.stamped_len(), 0);
    }
}
