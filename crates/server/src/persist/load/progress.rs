//! How far a load is: for INFO, and a line in the log every [`EVERY_MS`].

use crate::notice;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Between two lines.
const EVERY_MS: i64 = 5000;

/// How far a load is.
#[derive(Debug, Default)]
pub struct Progress {
    started_ms: AtomicI64,
    told_ms: AtomicI64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    used_memory: AtomicU64,
    keys: AtomicU64,
    expired: AtomicU64,
    empty: AtomicU64,
}

impl Progress {
    pub(super) fn begin(&self, now_ms: i64, total_bytes: u64) {
        self.started_ms.store(now_ms, Relaxed);
        self.told_ms.store(now_ms, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
        self.loaded_bytes.store(0, Relaxed);
        self.used_memory.store(0, Relaxed);
    }

    /// How many bytes there are to load is known.
    pub(in crate::persist) fn set_total(&self, bytes: u64) {
        self.total_bytes.store(bytes, Relaxed);
    }

    /// A snapshot begins: its keys are counted anew.
    pub(super) fn begin_snapshot(&self) {
        self.keys.store(0, Relaxed);
        self.expired.store(0, Relaxed);
        self.empty.store(0, Relaxed);
    }

    /// So many bytes more are read.
    pub(super) fn read(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Relaxed);
    }

    /// Memory in use when the snapshot was made, as it says.
    pub(super) fn set_used_memory(&self, bytes: u64) {
        self.used_memory.store(bytes, Relaxed);
    }

    /// So many keys more are loaded, so many were left out, as their time was past or as they had no element.
    pub(super) fn count(&self, keys: u64, expired: u64, empty: u64) {
        self.keys.fetch_add(keys, Relaxed);
        self.expired.fetch_add(expired, Relaxed);
        self.empty.fetch_add(empty, Relaxed);
    }

    /// Keys of the last snapshot that were left out, as they had no element.
    pub fn empty(&self) -> u64 {
        self.empty.load(Relaxed)
    }

    /// When the load began, in ms.
    pub fn started_ms(&self) -> i64 {
        self.started_ms.load(Relaxed)
    }

    /// Bytes to load.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Relaxed)
    }

    /// Bytes read.
    pub fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Relaxed)
    }

    /// Memory in use when the snapshot was made, as it says; 0 if it does not.
    pub fn used_memory(&self) -> u64 {
        self.used_memory.load(Relaxed)
    }

    /// Keys of the last snapshot that were loaded.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Keys of the last snapshot that were left out, as their time was past.
    pub fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    /// How much of it is read, in percent.
    pub fn percent(&self) -> f64 {
        match self.total_bytes() {
            0 => 0.0,
            total => self.loaded_bytes() as f64 / total as f64 * 100.0,
        }
    }

    /// Seconds that are left if it goes on as it went so far; 1 as long as that cannot be told.
    pub fn eta_s(&self, now_ms: i64) -> u64 {
        let elapsed_s = u64::try_from((now_ms - self.started_ms()) / 1000).unwrap_or(0);
        let left = self.total_bytes().saturating_sub(self.loaded_bytes());
        if elapsed_s == 0 { 1 } else { elapsed_s.saturating_mul(left) / (self.loaded_bytes() + 1) }
    }

    /// The loader says how far it is, if it has not for a while.
    pub(super) fn report(&self) {
        let now_ms = crate::now_ms();
        if now_ms - self.told_ms.load(Relaxed) < EVERY_MS {
            return;
        }
        self.told_ms.store(now_ms, Relaxed);
        notice!(
            "Loading: {:.2}% of {} bytes, about {} s to go",
            self.percent(),
            self.total_bytes(),
            self.eta_s(now_ms)
        );
    }
}
