//! Faults put in on purpose, one at a time, for the checker of acknowledged writes to catch: what it does not catch it cannot see.
//!
//! They are there only with the feature `mutants`. Without it [`is`] is the constant `false`, so that nothing is left of them. With it
//! the environment variable [`VARIABLE`] names the one that is at work. `tests/durability/mutants` runs them all.

use std::ops::Range;
#[cfg(feature = "mutants")]
use std::sync::OnceLock;

use crate::{Lsn, Reader};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A group is released when it is written, before it is synced.
    AckBeforeFsync,
    /// Files are never synced.
    NoFsync,
    /// Directories are never synced.
    NoDirsync,
    /// A sync of the log does not wait for the write before it (`aof-io uring`).
    UnlinkedSync,
    /// A recovery does not look at the checksum of a group's bytes.
    NoCrc,
    /// A reply does not wait for the writes that it shows, only for its own.
    NoReadGate,
    /// A failed sync is tried again.
    RetryAfterEio,
    /// A transaction is logged as commands without a frame, and a group may end between them.
    MultiSplit,
    /// A rewrite's base lacks some keys.
    RewriteDrops,
    /// What a rewrite replaces is removed before the manifest names what replaces it.
    HistoryEarly,
}

/// Every fault and what [`VARIABLE`] calls it.
pub const ALL: [(&str, Mutant); 10] = [
    ("ack-before-fsync", Mutant::AckBeforeFsync),
    ("no-fsync", Mutant::NoFsync),
    ("no-dirsync", Mutant::NoDirsync),
    ("unlinked-sync", Mutant::UnlinkedSync),
    ("no-crc", Mutant::NoCrc),
    ("no-read-gate", Mutant::NoReadGate),
    ("retry-after-eio", Mutant::RetryAfterEio),
    ("multi-split", Mutant::MultiSplit),
    ("rewrite-drops", Mutant::RewriteDrops),
    ("history-early", Mutant::HistoryEarly),
];

/// The environment variable that chooses.
pub const VARIABLE: &str = "GIMMAL_MUTANT";

/// Where a group ends under [`Mutant::MultiSplit`]: behind a command in the second half of what there is, whatever record it is of.
pub(crate) fn split(reader: &Reader, range: Range<Lsn>) -> Lsn {
    let bytes: Vec<u8> = reader.chunks(range.clone()).flat_map(|chunk| chunk.bytes().iter().copied()).collect();
    let half = bytes.len() / 2;
    // The line end of one command and the head of the next.
    let next = bytes[half..].windows(3).position(|window| window == b"\r\n*");
    next.map_or(range.end, |at| range.start + (half + at + 2) as Lsn)
}

/// Whether this fault is at work.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_: Mutant) -> bool {
    false
}

/// Whether this fault is at work.
///
/// # Panics
/// When the variable names none.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    static CHOSEN: OnceLock<Option<Mutant>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
        let known = ALL.iter().find(|(known, _)| *known == name);
        let (_, mutant) = known.unwrap_or_else(|| panic!("{VARIABLE}: there is no mutant {name:?}"));
        eprintln!("This server is broken on purpose: {name}.");
        Some(*mutant)
    });
    *chosen == Some(mutant)
}

#[cfg(all(test, not(feature = "mutants")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_no_fault_is_there() {
        // Known to the compiler, so that the code of a fault is left out.
        const { assert!(!is(Mutant::NoFsync) && !is(Mutant::NoCrc) && !is(Mutant::NoReadGate)) };
        assert!(ALL.iter().all(|(_, mutant)| !is(*mutant)));
    }
}
