//! A file system that keeps what was synced. At a cut it drops, reorders, tears or zero-fills the rest and loses names;
//! while it runs it injects errors, a full disk, short writes, delay and syncs that do not end.
//!
//! # How it is used
//! A server runs with its files on a [`CrashFs`] that is mounted ([`CrashFs::mount`]). Every operation is recorded and
//! counted: [`CrashFs::position`] after a client has read a reply bounds what the server had done before it replied. A cut
//! may then be taken at any position of the recording, with any seed and [`Policy`], as often as wanted: the image is
//! written to a directory of a real file system ([`Image::write_to`]), a server recovers there, and what it recovered is
//! compared with what was acknowledged.
//!
//! # Layers
//! `content` (bytes) ← `file` (seen, durable, pending) ← `state` (the tree; pure) ← `cut` (images; pure) ← `fs` (what may
//! be done, faults, the recording) ← `mount` (FUSE) and `control` (lines on a socket).
//!
//! [`durability`] does all that: clients, cuts, recoveries and the properties that must hold.
//!
//! # What it does not show
//! Syncs of the whole file system (sync, syncfs) never reach a FUSE file system, so they promise nothing here. The kernel
//! holds a file's lock during its FUSE fsync: writes to that file wait for it, which ext4's do not. There is no write-back by age: what was not synced stays pending.

#![forbid(unsafe_code)]

pub mod content;
pub mod control;
pub mod cut;
mod delay;
pub mod durability;
pub mod faults;
pub mod file;
pub mod fs;
mod mount;
pub mod operation;
pub mod random;
pub mod state;

pub use cut::{Image, Policy};
pub use faults::{Effect, Event, Rule};
pub use fs::{CrashFs, Options};
pub use mount::Mounted;
pub use state::{Personality, Recording, State};
