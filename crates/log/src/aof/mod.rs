//! The log as files: Redis 7's multi-part append-only directory, written in checked groups, and its recovery.
//!
//! It knows bytes, LSNs and files; no command's meaning and nothing of what is inside an RDB.
//!
//! # Life of a group
//! 1. [`Writer::step`] takes what the log's [`Reader`](crate::Reader) can read and puts a [`Header`](header) before it.
//! 2. One vectored write; `Reader::consumed` gives the memory back; `written_lsn` moves.
//! 3. One fdatasync (by policy); `durable_lsn` moves; `Log::release` wakes who waits.
//!
//! # How a server uses it
//! * Start: [`Directory::open`], [`Directory::found`] (and [`Directory::adopt`]); load [`Directory::base`]; run each piece of
//!   [`Recovery::next_piece`], with a fresh parser and database 0 where a piece begins a file; [`Directory::start`] with what
//!   [`Recovery::finish`] says; [`Log::activate`](crate::Log::activate); [`Writer::new`]; [`Directory::remove_history`].
//! * Rewrite: [`Directory::add_increment`]; under the gate note the log's end as the snapshot's LSN, and give it with the
//!   increment to [`writer::Orders::rotate_at`]; write the snapshot to [`Directory::temporary_base`];
//!   [`Directory::replace_base`]; [`Directory::remove_history`]. A rewrite that fails leaves one increment more.
//! * Switched on while running: as a rewrite, but [`Directory::create_increment`], and the log is activated under the gate.
//! * Stop: [`WriterThread::stop`], or [`writer::Orders::stop`] and steps until [`Step::Stopped`].
//!
//! # Invariants
//! * A group ends where a record ends, begins and ends on 64 bytes, and is checked whole before a byte of it is used.
//! * A file is synced to its end, and its end is marked, before the next file gets its first group. So a damaged file that
//!   is followed by a group in a later file has lost what was synced.
//! * Every start writes to a new file. What lies behind a torn tail is never written over, so that no old group can come
//!   back to life, and a file has groups of one nonce.
//! * After an error of fdatasync nothing is synced or acknowledged again: the kernel may have dropped the pages.
//! * A group never lies across the end of the prepared space, and never in its last 64 bytes.
//!
//! # Dropped alternatives
//! * One checksum over header and payload: a torn group's header could not be believed, and it carries the newest durable
//!   LSN. So the header has its own, which also covers the header's place in the file: no value that a client stored can be
//!   taken for a header.
//! * Preallocation by a thread: it needs a mark of its own, synced before the space is used. Instead the group that does
//!   not fit brings its new space with it, in the same write and the same sync.
//! * Splitting large groups: a part would end inside a record. Instead recovery reads a large group twice.
//! * O_DIRECT with O_DSYNC: 19 to 27 µs where fdatasync over prepared lines takes 28 (`examples/aof_sync.rs`), but only for
//!   groups of whole pages from aligned memory: a copy, and 4 KiB of file for each small group.

#[allow(unsafe_code)]
mod cache;
mod chains;
pub mod check;
pub mod directory;
pub mod disk;
mod gather;
pub mod header;
pub mod manifest;
pub mod progress;
pub mod recover;
pub mod resp;
#[allow(unsafe_code)]
mod ring;
mod scan;
#[allow(unsafe_code)]
pub mod slice;
mod sync_thread;
pub mod thread;
mod window;
pub mod writer;

pub use chains::{Completion, Order, RingSettings};
pub use check::{CheckReport, check};
pub use directory::{BaseKind, Directory, Found, Increment};
pub use disk::{Disk, DiskFile, Open, RealDisk};
pub use manifest::{Entry, Manifest};
pub use progress::{Condition, Progress};
pub use recover::{Cut, Piece, RecoverError, Recovered, Recovery};
pub use resp::RespFile;
pub use thread::WriterThread;
pub use writer::{Fsync, Settings, Step, Timing, Writer};
