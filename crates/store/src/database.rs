//! One database: a table per shard, and a database taken out of the keyspace to be freed.
//!
//! # Safety
//! The cells come from a leaked box and are only reached by pointer until [`Database`] is dropped, so that tables can point to
//! their own cell. A cell's table is reached under its shard's lock ([`Database::table`]), its root by anyone inside a batch.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::shard::ShardCell;
use crate::table::{Cell, Remains, Root, Table};

/// The tables of one database, by shard.
pub(crate) struct Database {
    cells: NonNull<[Cell]>,
    /// The tables point into these.
    shards: Arc<[ShardCell]>,
}

// SAFETY: roots are atomic; tables are only reached under their shard's lock.
unsafe impl Sync for Database {}
// SAFETY: tables are bound to a lock, not to a thread; entries and ropes may be freed anywhere.
unsafe impl Send for Database {}

impl Database {
    pub(crate) fn new(shards: Arc<[ShardCell]>) -> Self {
        let cells: Box<[Cell]> = shards.iter().map(|_| Cell::empty()).collect();
        Self { cells: NonNull::from(Box::leak(cells)), shards }
    }

    /// What may be read without the lock of shard `shard`'s table.
    #[inline]
    pub(crate) fn root(&self, shard: usize) -> &Root {
        // SAFETY: the cells live as long as `self`; a root is only touched through shared references.
        unsafe { &(*self.cell(shard).as_ptr()).root }
    }

    /// The table of shard `shard`, made now if it was not.
    ///
    /// # Safety
    /// The caller holds that shard's lock for `'t`, and no other reference to the table.
    #[inline(always)]
    pub(crate) unsafe fn table<'t>(&self, shard: usize) -> &'t mut Table {
        let cell = self.cell(shard);
        // SAFETY: unaliased by this function's contract; the cell outlives the lock's batch.
        let table = unsafe { &mut *(*cell.as_ptr()).table.get() };
        table.get_or_insert_with(|| self.made(shard))
    }

    /// The table of a shard, empty, to be stored in its cell.
    #[cold]
    fn made(&self, shard: usize) -> Table {
        let context = NonNull::from(&self.shards[shard].context);
        // SAFETY: `table`, the only caller, stores it in this cell; `self` frees the cells, and so the tables, before it lets go of
        // the shards.
        unsafe { Table::new(self.cell(shard), context) }
    }

    /// Addresses of the cells, from first to last.
    pub(crate) fn addresses(&self) -> std::ops::RangeInclusive<usize> {
        let last = self.cell(self.shards.len() - 1);
        self.cell(0).addr().get()..=last.addr().get()
    }

    pub(crate) fn roots(&self) -> impl Iterator<Item = &Root> {
        (0..self.shards.len()).map(|shard| self.root(shard))
    }

    #[inline(always)]
    fn cell(&self, shard: usize) -> NonNull<Cell> {
        assert!(shard < self.shards.len());
        // SAFETY: within the cells, one per shard.
        unsafe { self.cells.cast::<Cell>().add(shard) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; nobody else has a reference when the database is dropped. The tables go with the cells.
        drop(unsafe { Box::from_raw(self.cells.as_ptr()) });
    }
}

/// A database that was taken out of the keyspace: nobody reads it any more. Dropping it frees what is left.
pub struct DetachedDatabase {
    database: Option<Box<Database>>,
    next_shard: usize,
    remains: Option<Remains>,
    len: usize,
}

// SAFETY: it owns its tables, directories and segments alone; like a `Database`, these are bound to no thread.
unsafe impl Send for DetachedDatabase {}

impl DetachedDatabase {
    /// Takes over a database that no other thread can reach.
    pub(crate) fn new(database: Option<Box<Database>>) -> Self {
        let len = database.as_ref().map_or(0, |database| database.roots().map(Root::len).sum());
        Self { database, next_shard: 0, remains: None, len }
    }

    /// All that was taken out, if there was anything.
    ///
    /// # Panics
    /// If some of it was freed.
    pub(crate) fn whole(self) -> Option<Box<Database>> {
        assert!(self.next_shard == 0 && self.remains.is_none(), "a database that is put back is whole");
        self.database
    }

    /// Keys that are left.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no keys are left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frees about `max_entries` keys, at least one segment; true when everything is freed.
    pub fn free_slice(&mut self, max_entries: usize) -> bool {
        let enough = self.len.saturating_sub(max_entries.max(1));
        while let Some(database) = &self.database {
            let mut remains = match self.remains.take() {
                Some(remains) => remains,
                None if self.next_shard == database.shards.len() => {
                    self.database = None;
                    break;
                }
                None => {
                    // SAFETY: nobody else can reach the database (`new`), and each shard's table is emptied once.
                    let remains = unsafe { database.table(self.next_shard).remains() };
                    self.next_shard += 1;
                    remains
                }
            };
            let before = remains.len();
            let done = remains.free_slice(self.len.saturating_sub(enough));
            self.len -= before - remains.len();
            if !done {
                self.remains = Some(remains);
            }
            if self.len <= enough && (self.len > 0 || !done) {
                return false;
            }
        }
        true
    }
}
