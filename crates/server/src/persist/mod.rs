//! Persistence: what is on disk, from the server's side. The formats are the crates' `rdb` and `log`.
//!
//! * [`aof`]: the log's writer: when it is started, stopped and changed, and what follows when it fails.
//! * [`load`]: reading snapshot and log back, by all workers.
//! * [`save`]: snapshots without a fork.

pub mod aof;
pub mod load;
pub mod save;

/// What the server keeps on disk.
#[derive(Default)]
pub struct Persistence {
    /// The append-only file.
    pub aof: aof::Aof,
    /// Reading back what was kept.
    pub load: load::Loading,
    /// Snapshots.
    pub save: save::Saving,
}
