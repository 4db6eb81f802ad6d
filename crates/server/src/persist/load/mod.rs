//! Reading back what was kept, on all processors, while clients are answered.
//!
//! Whoever loads calls [`begin`], then [`snapshot`] and [`Replay`], then [`end`], on a thread of its own, the *loader*. It reads,
//! checks and cuts; the workers take what it cut and decode, insert or execute it, in slices of at most [`SLICE`] between two
//! looks at their clients, who are told `-LOADING` by every command that needs data.
//!
//! * [`queue`]: what the loader hands to the workers, bounded.
//! * [`snapshot`](mod@snapshot): the loader's part for an RDB; [`insert`]: the workers'.
//! * [`replay`]: both parts for commands. One worker executes them: their order is that of the log.
//! * [`replace`]: a load while the server runs.
//! * [`progress`]: what INFO and the log tell. [`check`]: going through files without loading them.
//!
//! Invariants: nothing expires and nothing is evicted before [`end`]: a key whose time was past may be one whose DEL comes later
//! in the log. Memory beside the data set is bounded by [`queue`]. An error ends the load, and with it the start of the server.
//!
//! Dropped: threads of its own for decoding (they would be participants of the gate beside the workers, and compete with them
//! for the same processors).

pub mod check;
mod error;
mod insert;
mod progress;
mod queue;
pub mod replace;
mod replay;
mod snapshot;

pub use error::LoadError;
pub use replay::{Failure, Replay, Replayed, note_failure};
pub use snapshot::{Rules, Snapshot, load_by, snapshot};

use crate::shared::Shared;
use crate::worker::{Local, State};
use gimmal_store::Batch;
use insert::{Chunk, Inserting};
pub use progress::Progress;
use queue::Queue;
use replay::{Piece, Replaying};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// How long a worker loads before it looks at its clients.
const SLICE: Duration = Duration::from_millis(1);
/// The worker that executes commands.
const REPLAYER: usize = 0;

/// The data set as it is being loaded.
#[derive(Default)]
pub struct Loading {
    under_way: AtomicBool,
    chunks: Queue<Chunk>,
    pieces: Queue<Piece>,
    failed: AtomicBool,
    failure: Mutex<Option<LoadError>>,
    replayed: replay::Counts,
    exchange: replace::Exchange,
    /// How far it is.
    pub progress: Progress,
}

/// A worker's part.
#[derive(Default)]
pub struct Part {
    inserting: Inserting,
    replaying: Option<Box<Replaying>>,
}

/// Begins to load files of so many bytes together: from now on clients are told to wait. To be called before there are clients, or
/// while their commands are held.
pub fn begin(shared: &Shared, total_bytes: u64) {
    let load = &shared.persist.load;
    load.progress.begin(crate::now_ms(), total_bytes);
    *load.failure.lock().expect("noting an error does not panic") = None;
    load.failed.store(false, Release);
    load.under_way.store(true, Release);
    shared.tell_all();
}

/// The load is over, well or not: clients are served.
pub fn end(shared: &Shared) {
    shared.persist.load.under_way.store(false, Release);
    shared.tell_all();
}

impl Loading {
    /// Whether a load is under way.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.under_way.load(Acquire)
    }

    /// Whether something went wrong: what is left is dropped.
    fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// What went wrong on a worker.
    fn fail(&self, error: LoadError) {
        self.failure.lock().expect("noting an error does not panic").get_or_insert(error);
        self.failed.store(true, Release);
    }

    /// Whether clients should not have to wait for its end.
    pub fn is_long(&self) -> bool {
        self.is_under_way() && crate::now_ms() - self.progress.started_ms() >= replace::PATIENCE_MS
    }

    /// Waits until no worker has anything left to load; if the load has failed, they drop it.
    fn settle(&self, shared: &Shared, has_failed: bool) {
        if has_failed {
            self.failed.store(true, Release);
            self.chunks.abandon();
            self.pieces.abandon();
        }
        while !(self.chunks.is_done() && self.pieces.is_done() || shared.lifecycle.is_stopping()) {
            std::thread::sleep(SLICE);
        }
    }

    /// The loader looks whether to go on.
    fn check(&self, shared: &Shared) -> Result<(), LoadError> {
        if self.has_failed() {
            // What else was handed out is of no use; the workers drop what they have.
            self.chunks.abandon();
            self.pieces.abandon();
            let failure = self.failure.lock().expect("noting an error does not panic").take();
            return Err(failure.unwrap_or(LoadError::Stopped));
        }
        if shared.lifecycle.is_stopping() { Err(LoadError::Stopped) } else { Ok(()) }
    }
}

/// Whether this worker has something to load, and must not sleep. Looked at after it has announced its sleep.
#[inline]
pub fn has_work(state: &State) -> bool {
    let load = &state.shared.persist.load;
    load.is_under_way() && load.waits_for(state)
}

impl Loading {
    #[cold]
    fn waits_for(&self, state: &State) -> bool {
        let replaying = || state.load.replaying.as_ref().is_some_and(|replaying| replaying.is_busy());
        let commands = state.local.id == REPLAYER && (!self.pieces.is_empty() || replaying());
        let exchange = state.local.id == REPLAYER && self.exchange.is_asked();
        exchange || commands || !self.chunks.is_empty() || state.load.inserting.is_busy()
    }
}

/// A worker's slice.
#[cold]
pub fn step<'k>(state: &mut State, batch: &mut Batch<'k>) {
    let until = Instant::now() + SLICE;
    insert::step(state, batch, until);
    if state.local.id == REPLAYER {
        replay::step(state, batch, until);
        replace::step(state, batch);
    }
    // Not the next command's time.
    state.local.lap_ns();
}

/// Whether a slice has to end: its time is over, or another worker wants to close the gate.
fn is_over(shared: &Shared, until: Instant) -> bool {
    shared.keyspace.gate().is_closing() || Instant::now() >= until
}

/// The time that commands of the log see, in ms: no deadline has passed.
pub const REPLAY_MS: i64 = 0;

impl Local {
    /// The time of day in ms, also for a command of the log, for which [`Local::now_ms`] is before every deadline: what it counts
    /// from now on, or notes the time of.
    #[inline]
    pub fn clock_ms(&self) -> i64 {
        self.now_ms.max(self.replay_clock_ms)
    }
}
