//! Client-side caching: clients that keep copies of what they read are told when a key changes (CLIENT TRACKING).
//!
//! # The parts
//! - [`Tracker`]: a client that wants to be told, and where: its own connection, or that of another client ([`Inbox`]).
//! - [`Trackers`], shared: all of them, the prefixes of those that ask for every key that begins so (BCAST), and the numbers.
//! - [`gimmal_store::Readers`], one per shard: who has read which key, for those that do not ask for prefixes.
//! - [`Tracking`], one per session that tracks or is told for another: its options.
//!
//! # The path of an invalidation
//! A read-only command of a tracker lists it with each key *under the key's lock*, when it locks ([`Exec::remember`]). Whoever
//! changes a key under that lock takes the list ([`Local::modified`]) and puts a publication for each worker concerned into its
//! queue (`pubsub`), so that no reader falls between. Keys for prefixes are gathered, and published when the command has ended, one
//! message per prefix. All of these are *unsettled* until the command has ended: who is told, and then reads, finds the new
//! value or waits for the lock; the message is held back like a reply that shows the write; and the changing client
//! gets it behind its own reply.
//!
//! # Bounds
//! Each shard's lists are bounded by the trackers that are alive. Above `tracking-table-max-keys` keys some are forgotten, and their
//! readers told as if they had changed: some by each command of a tracker, the rest by the ticks. Unread invalidations count
//! against the receiver's output limit.
//!
//! While nobody tracks, a change looks at one flag ([`Trackers::is_active`]) and a lock at an empty option. The flag rises behind
//! the closed gate, so that no change that begins after the reply of CLIENT TRACKING is missed; it falls when the last tracker has
//! gone and the lists are empty.
//!
//! Dropped: client ids in the lists, as in Redis (each invalidation would look them up in a table of all clients).

mod invalidate;
mod trackers;

pub use invalidate::Changes;
pub use trackers::{Inbox, Tracker, Trackers};

use crate::args::Args;
use crate::command::{Entry, flag, gate};
use crate::dispatch;
use crate::exec::{Exec, Key, Outcome, Stop};
use gimmal_store::Reader;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of a session that tracks, or is told for one that does.
#[derive(Debug, Default)]
pub struct Tracking {
    /// It tracks.
    pub on: Option<Options>,
    /// Others let their invalidations come here.
    pub inbox: Option<Arc<Inbox>>,
    /// Invalidations of its worker's queue before this place were handed to it, whatever the queue says.
    pub caught_up: u64,
}

/// How a session tracks.
#[derive(Debug)]
pub struct Options {
    /// The session as others know it.
    pub tracker: Arc<Tracker>,
    /// What it reads is remembered only behind CLIENT CACHING YES.
    pub optin: bool,
    /// What it reads is remembered unless behind CLIENT CACHING NO.
    pub optout: bool,
    /// CLIENT CACHING was given for the next command.
    pub caching: bool,
    /// With BCAST: the prefixes.
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Options {
    fn remembers(&self) -> bool {
        let left_out = if self.optin { !self.caching } else { self.optout && self.caching };
        !self.tracker.bcast && !left_out
    }
}

impl Exec<'_> {
    /// How the session tracks, if it does.
    pub fn tracks(&mut self) -> Option<&mut Options> {
        self.session.tracking.as_mut()?.on.as_mut()
    }

    /// The session stops to track.
    pub fn stop_tracking(&mut self) {
        self.shared.trackers.remove(self.session);
    }

    /// Lists the tracker whose command runs with a key that is locked.
    #[cold]
    pub fn remember(&mut self, mut key: Key<'_, '_>) {
        // What has expired goes first, or its going would be taken for a change after the read.
        self.peek(key.again());
        let Some(tracker) = &self.local.reader else { return };
        let reader: Arc<dyn Reader> = tracker.clone();
        let change = key.read_by(&reader);
        self.shared.trackers.count(change);
    }
}

/// Calls a command of a session that tracks what it reads.
#[cold]
pub fn call(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) -> Outcome {
    let reads = entry.command.flags & flag::READONLY != 0;
    let tracker = exec.tracks().filter(|options| reads && options.remembers()).map(|options| options.tracker.clone());
    exec.local.reader = tracker;
    let outcome = dispatch::call(exec, entry, args);
    exec.local.reader = None;
    let runs_again = matches!(outcome, Err(Stop::Park | Stop::Paused));
    if !runs_again && exec.session.multi.is_none() && !exec.in_transaction() {
        exec.tracks().into_iter().for_each(|options| options.caching = false);
    }
    outcome
}

/// Before a command of a session that tracks: lets go of keys over the limit, and hands out what concerns the session itself, which
/// is to stand before the reply.
#[cold]
pub fn before(exec: &mut Exec<'_>) {
    if exec.in_transaction() {
        return;
    }
    invalidate::shrink(exec.local, exec.shared, exec.batch(), invalidate::KEYS_PER_COMMAND);
    exec.hand_over();
}

/// Whether the session's commands go through [`call`].
pub fn is_gated(exec: &Exec<'_>, entry: &Entry) -> bool {
    entry.gates & exec.session.gates & gate::CACHING != 0
}

/// A tick: lets go of keys over the limit, and of all when nobody tracks any more.
pub fn tick(state: &mut crate::worker::State) {
    if !state.shared.trackers.is_active() {
        return;
    }
    let shared = state.shared.clone();
    let batch = shared.keyspace.gate().enter(state.local.id);
    invalidate::shrink(&mut state.local, &shared, &batch, invalidate::KEYS_PER_TICK);
    if state.local.id == 0 {
        // In a batch: nobody begins to track meanwhile.
        shared.trackers.rest();
    }
}
