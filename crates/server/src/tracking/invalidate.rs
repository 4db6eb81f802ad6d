//! Telling trackers of changes: what a worker gathers while a command runs, and the publications that it makes of it.

use super::{Tracker, Trackers};
use crate::exec::Exec;
use crate::pubsub::{Body, News, Publication, Target};
use crate::session::ReplyMode;
use crate::shared::Shared;
use crate::worker::Local;
use gimmal_store::{Batch, Hash, ReadKey, Readers, ReadersChange, ShardState};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys over the limit that a command lets go of before it runs.
pub const KEYS_PER_COMMAND: usize = 100;
/// As many in a tick.
pub const KEYS_PER_TICK: usize = 10_000;
/// Keys taken from one shard at a time, at least and at most.
const KEYS_PER_SHARD: (usize, usize) = (64, 1000);

/// What the command that runs has changed, for those who ask for prefixes: each key, and who changed it last (0: nobody's command).
#[derive(Debug, Default)]
pub struct Changes(BTreeMap<Box<[u8]>, u64>);

impl Changes {
    /// The keys that begin so.
    fn beginning(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], u64)> + Clone {
        let from = self.0.range::<[u8], _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.map(|(key, by)| (&**key, *by)).take_while(move |(key, _)| key.starts_with(prefix))
    }
}

impl Local {
    /// A key is changed by the command of client `by` (0: by nobody's), under its lock: who watches it is told, who waits for it will
    /// be served, who keeps a copy is told when the command has ended.
    #[inline]
    pub fn modified(&mut self, shared: &Shared, state: &mut ShardState, db: usize, hash: Hash, name: &[u8], by: u64) {
        if state.modified(db, hash, name) {
            self.woken(db, name);
        }
        if shared.trackers.is_active() {
            self.invalidate(shared, state, hash, name, by);
        }
    }

    #[cold]
    fn invalidate(&mut self, shared: &Shared, state: &mut ShardState, hash: Hash, name: &[u8], by: u64) {
        if shared.trackers.prefixes() > 0 {
            self.changes.0.insert(name.into(), by);
            self.pubsub.published = true;
        }
        let (readers, change) = state.take_readers(hash, name);
        shared.trackers.count(change);
        self.tell_readers(shared, readers, by);
    }

    /// Tells the readers of one or more keys that these are to be forgotten.
    fn tell_readers(&mut self, shared: &Shared, readers: Vec<ReadKey>, by: u64) {
        let mut readers = readers.into_iter().peekable();
        while let Some((name, first)) = readers.next() {
            let mut trackers = vec![tracker(first)];
            while let Some((_, reader)) = readers.next_if(|(next, _)| *next == name) {
                trackers.push(tracker(reader));
            }
            trackers.retain(|tracker| tracker.is_on() && !(tracker.is_noloop() && tracker.id == by));
            if !trackers.is_empty() {
                self.tell(shared, &trackers, &News::Keys(Body::keys([&*name].into_iter())));
            }
        }
    }

    /// Puts news for these trackers into the queues of their workers.
    fn tell(&mut self, shared: &Shared, trackers: &[Arc<Tracker>], news: &News) {
        let mut by_worker: BTreeMap<u16, Vec<Target>> = BTreeMap::new();
        for tracker in trackers {
            let (worker, conn, redirected) = match tracker.redirect() {
                None => (tracker.worker, tracker.conn, false),
                Some(inbox) if inbox.is_open() => (inbox.worker, inbox.conn, true),
                Some(inbox) => {
                    let target = Target { conn: tracker.conn, tracker: tracker.clone(), redirected: false };
                    self.post(shared, tracker.worker, vec![target], News::Broken(inbox.id));
                    continue;
                }
            };
            by_worker.entry(worker).or_default().push(Target { conn, tracker: tracker.clone(), redirected });
        }
        for (worker, targets) in by_worker {
            self.post(shared, worker, targets, news.clone());
        }
    }

    fn post(&mut self, shared: &Shared, worker: u16, targets: Vec<Target>, news: News) {
        let publication = Arc::new(Publication::invalidation(targets, news));
        shared.mail[usize::from(worker)].publish(publication.clone());
        self.pubsub.posted(worker, publication);
    }

    /// The command has ended: tells those who ask for prefixes what it has changed, one message per prefix.
    pub fn broadcast(&mut self, shared: &Shared) {
        if self.changes.0.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        shared.trackers.each_prefix(|prefix, trackers| {
            let all = changes.beginning(prefix);
            if all.clone().next().is_none() {
                return;
            }
            let own = |tracker: &Tracker| tracker.is_noloop() && all.clone().any(|(_, by)| by == tracker.id);
            let (apart, together): (Vec<_>, Vec<_>) = trackers.iter().cloned().partition(|tracker| own(tracker));
            if !together.is_empty() {
                self.tell(shared, &together, &News::Keys(Body::keys(all.clone().map(|(key, _)| key))));
            }
            for tracker in apart {
                let others = all.clone().filter(|(_, by)| *by != tracker.id).map(|(key, _)| key);
                if others.clone().next().is_some() {
                    let news = News::Keys(Body::keys(others));
                    self.tell(shared, &[tracker], &news);
                }
            }
        });
    }
}

fn tracker(reader: Arc<dyn gimmal_store::Reader>) -> Arc<Tracker> {
    let reader: Arc<dyn Any + Send + Sync> = reader;
    reader.downcast().expect("only trackers are listed")
}

impl Exec<'_> {
    /// All keys are gone, behind the closed gate: every tracker is told so, and what was remembered is forgotten.
    pub fn invalidate_all(&mut self) {
        let shared = self.shared;
        if !shared.trackers.is_active() {
            return;
        }
        let mut forgotten = Vec::new();
        for id in 0..u32::try_from(shared.keyspace.shards()).expect("at most 16384 shards") {
            let mut shard = shared.keyspace.try_lock(self.batch(), id).expect("the gate is closed");
            let (readers, change) = shard.state().take_all_readers();
            shared.trackers.count(change);
            if !readers.is_empty() {
                forgotten.push(readers);
            }
        }
        self.discard(forgotten);
        self.local.tell(shared, &shared.trackers.all(), &News::All);
    }

    /// Hands to the session what was published to it before its command, so that it stands before the reply.
    pub fn hand_over(&mut self) {
        let Exec { local, session, reply, shared, depends_on, .. } = self;
        if !local.pubsub.published || session.reply_mode != ReplyMode::On {
            return;
        }
        let lsn = if local.log_active { shared.log.end() } else { 0 };
        local.settle(shared, lsn);
        local.pubsub.take_in(&shared.mail[local.id]);
        let listens = session.subscriptions.is_some();
        let Some(tracking) = &mut session.tracking else { return };
        let since = tracking.caught_up;
        for (place, publication, lsn) in local.pubsub.settled() {
            tracking.caught_up = tracking.caught_up.max(place + 1);
            let targets = publication.targets().iter().filter(|target| target.conn == local.conn);
            for target in targets.filter(|target| place >= since && target.is_for(session.resp3, listens)) {
                publication.invalidate(reply.output(), session.resp3, target);
                *depends_on = (*depends_on).max(lsn);
            }
        }
        // The others' are handed out when the command has ended.
        local.pubsub.published = true;
    }
}

/// Lets go of up to `most` keys if there are more than allowed, shard by shard; taken locks are passed over.
pub fn shrink(local: &mut Local, shared: &Shared, batch: &Batch<'_>, most: usize) {
    let trackers: &Trackers = &shared.trackers;
    let allowed = match (trackers.clients(), local.config.tracking_table_max_keys()) {
        (0, _) => 0,
        (_, 0) => return,
        (_, max) => max,
    };
    // Claimed in one step: other workers let go of others at the same time.
    let mut left = trackers.claim(allowed, most);
    let shards = shared.keyspace.shards();
    let at_once = (most / shards).clamp(KEYS_PER_SHARD.0, KEYS_PER_SHARD.1);
    let first = usize::try_from(local.random.next() % shards as u64).expect("below the number of shards");
    for n in 0..if left > 0 { shards } else { 0 } {
        let id = u32::try_from((first + n) % shards).expect("at most 16384 shards");
        let Some(mut shard) = shared.keyspace.try_lock(batch, id) else { continue };
        let (readers, change) = shard.state().forget_readers(left.min(at_once));
        // The keys were counted out when they were claimed.
        trackers.count(ReadersChange { keys: 0, ..change });
        left -= change.keys.unsigned_abs();
        local.tell_readers(shared, readers, 0);
        if left == 0 {
            return;
        }
    }
    trackers.count(ReadersChange { keys: left.cast_signed(), items: 0 });
}

impl From<Vec<Readers>> for crate::lazyfree::Garbage {
    fn from(readers: Vec<Readers>) -> crate::lazyfree::Garbage {
        crate::lazyfree::Garbage::Readers(readers)
    }
}
