//! One thread that syncs, for `appendfsync everysec`: one sync at a time, asked for and answered through a slot.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::disk::DiskFile;
use crate::Lsn;

/// What a sync came to: up to where, how long it took, whether it failed.
pub(super) type Synced = (Lsn, Duration, io::Result<()>);

#[derive(Debug)]
pub(super) struct SyncThread {
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Asked(Arc<dyn DiskFile>, Lsn),
    Syncing,
    Done(Synced),
    Over,
}

impl SyncThread {
    pub(super) fn start() -> io::Result<SyncThread> {
        let slot = Arc::new(Slot::default());
        let shared = Arc::clone(&slot);
        let thread = Builder::new().name("aof-sync".to_owned()).spawn(move || shared.run())?;
        Ok(SyncThread { slot, thread: Some(thread) })
    }

    /// Asks for a sync of what was written up to `lsn`. Not while one is under way or unanswered.
    pub(super) fn ask(&self, file: &Arc<dyn DiskFile>, lsn: Lsn) {
        let mut state = self.slot.lock();
        assert!(matches!(*state, State::Idle), "one sync at a time");
        *state = State::Asked(Arc::clone(file), lsn);
        self.slot.changed.notify_all();
    }

    /// The answer, once.
    pub(super) fn answer(&self) -> Option<Synced> {
        let mut state = self.slot.lock();
        match std::mem::take(&mut *state) {
            State::Done(synced) => Some(synced),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Waits until nothing is under way.
    pub(super) fn wait(&self) -> Option<Synced> {
        let mut state = self.slot.lock();
        while matches!(*state, State::Asked(..) | State::Syncing) {
            state = self.slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.answer()
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            match std::mem::take(&mut *state) {
                State::Asked(file, lsn) => {
                    *state = State::Syncing;
                    drop(state);
                    let started = Instant::now();
                    let result = file.sync_data();
                    drop(file);
                    state = self.lock();
                    if !matches!(*state, State::Over) {
                        *state = State::Done((lsn, started.elapsed(), result));
                        self.changed.notify_all();
                    }
                }
                State::Over => return,
                other => {
                    *state = other;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        *self.slot.lock() = State::Over;
        self.slot.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ends after the sync that is under way; a panic in it was an abort already.
            drop(thread.join());
        }
    }
}
