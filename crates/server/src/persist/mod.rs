//! Persistence: what is on disk, from the server's side. The formats are the crates' `rdb` and `log`.
//!
//! * [`aof`]: the log's writer: when it is started, stopped and changed, and what follows when it fails.
//! * [`load`]: reading snapshot and log back, by all workers.
//! * [`save`]: snapshots without a fork.
//! * [`start`]: what of this is loaded at start.

pub mod aof;
pub mod load;
pub mod save;
pub mod start;

use crate::exec::{Exec, Outcome, ReplyError, error};

/// What a client is told that asks for what may not be on disk after the log has failed.
pub const LOST: ReplyError =
    error("MISCONF The log has failed before what this command would show was on disk. See 'aof-on-error'.");

/// What a write is told after a snapshot has failed.
const NOT_SAVED: ReplyError = error(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify \
     the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails \
     (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);

/// Whether a command that writes may run although something is wrong with the disk.
pub fn admit(exec: &mut Exec<'_>) -> Outcome {
    if exec.shared.persist.save.refuses_writes(&exec.local.config) {
        return Err(NOT_SAVED.into());
    }
    match exec.shared.persist.aof.state() {
        aof::State::Fine => Ok(()),
        aof::State::Full | aof::State::Failed => {
            let reason = exec.shared.persist.aof.reason();
            Err(format!("MISCONF Errors writing to the AOF file: {reason}").into())
        }
    }
}

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
