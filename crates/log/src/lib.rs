//! The log: every write's effect, as RESP, in commit order, in memory. It is what the AOF, the replicas and the held
//! replies read. It knows no command. The log itself knows no file either; [`aof`] writes it to files and reads it back.
//!
//! # Shape
//! A position in the log is an [`Lsn`]: the number of bytes before it. Workers [`append`](Appender::append) records under
//! their shard locks; one [`Reader`] takes the bytes in order; [`Log::release`] moves the watermark that held replies wait
//! for. An append never waits and never fails: one fetch-add reserves the space, room is checked before the locks.
//!
//! # Memory
//! The stream is cut into blocks of 1 MiB, found through a ring of pointers by `lsn / BLOCK`, made on demand and reused
//! after they were consumed. A record over 16 KiB takes its positions but no block space: its bytes are referenced, and
//! handed to the reader beside the blocks (`aside.rs`). So are the records for which the ring is too short, which takes 4
//! GiB in flight: they cost an allocation, but nothing waits for the ring.
//!
//! # Why a reader never sees an unfilled byte
//! Each worker has a word `filling`, which is a lower bound of the lowest position that it has reserved and not filled.
//! 1. An appender stores a lower bound of the position that it is about to get (where its last record ended), then
//!    reserves with a fetch-add, stores the position that it got, copies, and stores "nothing".
//! 2. The reader loads the end of the log first, and then every `filling`; what lies below the minimum is readable.
//!
//! All stores to `filling` are releases, the fetch-add is both, all loads acquire. A reader that sees an end behind a
//! record has synchronised with the record's fetch-add (later fetch-adds continue its release sequence), so it sees the
//! lower bound or something newer; and what is newer than the bound of that record was stored after the copy, or is the
//! record's own position. Lower bounds and positions are ends of records, so a reader stops between records.
//! `tests/loom_append.rs` is the model.
//!
//! # Why no block is reused under an appender
//! A block is recycled when all its positions are consumed; what is consumed was readable; what is readable is filled.
//! An appender touches only blocks in which it holds an unfilled reservation. For the same reason it may remember the
//! block it used last: block numbers are never used twice.
//!
//! # Dropped alternatives
//! * A lock around a `Vec`: a worker preempted inside it stops all others, and they hold shard locks.
//! * A log per worker, merged by sequence number: the reader would sort, and a record's position, which is what replies
//!   and replicas wait for, would not be known at commit.
//! * A tail per block (as in an array queue): an append that finds the block full must wait for the next or retry, so that
//!   a fetch-add no longer is the commit order.

#![deny(unsafe_code)]

pub mod aof;
#[allow(unsafe_code)]
mod append;
#[allow(unsafe_code)]
mod aside;
#[allow(unsafe_code)]
mod blocks;
mod doorbell;
mod log;
pub mod mutant;
#[allow(unsafe_code)]
mod read;
pub mod record;
mod release;
mod sync;

pub use append::{Appender, Part};
pub use log::Log;
pub use read::{Chunk, Chunks, Reader};
pub use record::Record;

/// A position in the log: how many bytes of the replication stream lie before it. Monotonic for the life of the process.
pub type Lsn = u64;

/// Records above this size are referenced, not copied into blocks. Bytes.
#[cfg(not(loom))]
pub const LARGE_RECORD: usize = 16 * 1024;
/// Records above this size are referenced, not copied into blocks. Small, to be met in models.
#[cfg(loom)]
pub const LARGE_RECORD: usize = 6;
