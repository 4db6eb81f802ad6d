//! What FLUSHALL and FLUSHDB took out of the keyspace: freed in slices by whichever workers have the time.
//!
//! A slice takes about 100 µs, one a pass, so that freeing millions of keys delays nobody. The alternative, a thread of
//! its own, would take a processor from a worker for whole time slices.

use gimmal_store::DetachedDatabase;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long one slice takes.
const SLICE: Duration = Duration::from_micros(100);
/// Keys freed between two looks at the clock.
const KEYS: usize = 64;

/// Databases to be freed.
#[derive(Default)]
pub struct Remains {
    waiting: AtomicUsize,
    databases: Mutex<VecDeque<DetachedDatabase>>,
    keys: AtomicUsize,
    freed: AtomicUsize,
}

impl Remains {
    /// Takes a database over.
    pub fn add(&self, database: DetachedDatabase) {
        self.keys.fetch_add(database.len(), Relaxed);
        self.push(database);
    }

    fn push(&self, database: DetachedDatabase) {
        self.databases.lock().expect("freeing does not panic").push_back(database);
        self.waiting.fetch_add(1, Relaxed);
    }

    /// Frees a slice; true if there is more for this worker to do. One load when there is nothing.
    #[inline]
    pub fn free_slice(&self) -> bool {
        self.waiting.load(Relaxed) > 0 && self.free_some()
    }

    #[cold]
    fn free_some(&self) -> bool {
        let Some(mut database) = self.databases.lock().expect("freeing does not panic").pop_front() else {
            return false;
        };
        self.waiting.fetch_sub(1, Relaxed);
        let started = Instant::now();
        loop {
            let before = database.len();
            let done = database.free_slice(KEYS);
            self.keys.fetch_sub(before - database.len(), Relaxed);
            self.freed.fetch_add(before - database.len(), Relaxed);
            if done {
                return self.waiting.load(Relaxed) > 0;
            }
            if started.elapsed() > SLICE {
                self.push(database);
                return true;
            }
        }
    }

    /// Keys that are not freed yet.
    pub fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Keys freed since the start or the last reset.
    pub fn freed(&self) -> usize {
        self.freed.load(Relaxed)
    }

    /// Puts the count of freed keys to zero.
    pub fn reset(&self) {
        self.freed.store(0, Relaxed);
    }
}
