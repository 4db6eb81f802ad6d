//! Gimmal's keyspace: locked shards of extendible tables, entries, strings, expiry, scanning, prefetching, and the gate.
//!
//! No I/O, no clock, no protocol: time (ms, `i64`) and randomness come in as arguments.
//!
//! ```text
//! Keyspace ── databases ── one Cell per shard: Table (under the shard's lock) and Root (read by all)
//!                            └ Directory ── Segments (1 to 15 buckets of 8 slots) ── entries (header, key, value)
//! ```
//! A thread enters the [`Gate`] as a participant and gets a [`Batch`]; with it it prefetches ([`Keyspace::ahead`],
//! [`Ahead::directory`], [`Ahead::bucket`], [`Bucket::prefetch_entry`]) and locks shards ([`Keyspace::try_lock`]); a [`Shard`] gives
//! tables and durability state. Between batches it calls [`Keyspace::collect`].
//!
//! # API notes
//! - `unsafe` is confined to the modules marked below; each has a `# Safety` section.
//! - [`EntryMut`] has the editing methods itself; [`EntryMut::entry`] is the read-only view.
//! - [`Removed`] is [`OwnedEntry`]: the same value can be dropped, or given to [`Table::put_owned`] under another key.
//! - [`Keyspace::memory_bytes`] takes a batch, as it reads tables that another thread may take out.
//! - [`Allocator`] is what the process should declare as its `#[global_allocator]`: layouts are made for its size classes.
//! - A key is expired at times later than its `expire_at_ms`, as in Redis: at that very millisecond it still exists.
//! - What expired is given to the caller, who decides where it is dropped; so is what [`Table::remove`] and `put` return.
//! - [`Keyspace::bytes`] and [`Keyspace::volatile`] are kept as sums, so that a memory limit can be looked at per command.
//! - [`Entry::touch`] sets the access clock through a shared borrow, for reads.
//! - [`ShardState::newest`] must be called with the current durable LSN by every command: it also forgets what is durable.

#![deny(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("slots hold 48-bit addresses: 64-bit targets only");

mod access;
#[allow(unsafe_code)]
mod allocator;
mod claim;
#[allow(unsafe_code)]
mod database;
#[allow(unsafe_code)]
mod directory;
#[allow(unsafe_code)]
mod entry;
mod gate;
mod gauge;
mod hash;
#[allow(unsafe_code)]
mod keyspace;
#[allow(unsafe_code)]
mod prefetch;
mod readers;
#[allow(unsafe_code)]
mod reclaim;
mod rope;
#[allow(unsafe_code)]
mod segment;
#[allow(unsafe_code)]
mod shard;
#[allow(unsafe_code)]
mod snapshot;
mod stamps;
mod sync;
#[allow(unsafe_code)]
mod table;
pub mod types;
mod value;
mod waiters;
mod watch;

pub use access::{AccessClock, LFU_INITIAL, Lfu};
pub use allocator::Allocator;
pub use claim::Claim;
pub use database::DetachedDatabase;
pub use entry::{CLOCK_LIMIT, Entry, INLINE_MAX, OwnedEntry};
pub use gate::{Batch, Exclusive, Gate, PARTICIPANTS_MAX, Visit};
pub use gauge::Gauge;
pub use hash::{Hash, SHARD_BITS_MAX};
pub use keyspace::{Ahead, Bucket, Keyspace, Options};
pub use readers::{ReadKey, Reader, Readers, ReadersChange};
pub use rope::{EXTENT, Rope, RopeBuilder};
pub use shard::{LentShard, Shard, ShardState};
pub use snapshot::{DatabaseSize, SnapshotStep, Taken};
pub use table::{EntryMut, Expired, POSITION_BITS, Put, Removed, StandaloneTable, Table};
pub use value::{Encoding, Large, NewValue, StringRef, ValueRef};
pub use waiters::{Waiter, Waiters};
