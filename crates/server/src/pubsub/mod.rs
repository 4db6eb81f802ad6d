//! Publish/subscribe: who listens to what, and how a message comes to each of them.
//!
//! # The parts
//! - [`PubSub`], shared: for each channel and pattern how many subscribers which worker has (`registry.rs`).
//! - [`Subscribers`], one per worker: which of its connections they are, and what is still to be handed to them.
//! - [`Subscriptions`], one per listening session: the names.
//! - [`Publication`]: one message, encoded once, shared by all workers and connections.
//!
//! # The path of a message
//! Whoever publishes looks up the channel's audience and the matching patterns, and *while it holds the channel's registry
//! lock* puts one reference to the publication into the queue of each worker that has receivers, its own included.
//! A worker empties its queue after each of its commands that published, and in each pass; it appends the message to its
//! subscribers' outputs. Wakers are called after the command, when no lock is held.
//!
//! # No message is lost, none comes twice, the count is exact
//! A registry shard numbers its publications. SUBSCRIBE enters the registry under the same lock and remembers the next
//! number; so a publication either came before (it does not count the newcomer, and its number is smaller: not handed
//! to it, even if it still lies in the queue) or comes after (it counts the newcomer, and is put into its worker's queue).
//! A PUBLISH that starts after SUBSCRIBE's reply is of the second kind. UNSUBSCRIBE leaves the registry under the lock and
//! remembers the next number; every publication that counted the client lies in its worker's queue by then, and is
//! handed to it before the confirmation ([`Exec::catch_up`](crate::exec::Exec::catch_up)). Patterns do the same with
//! one version number under a readers-writer lock. Only a client that is disconnected, or unsubscribes in a
//! transaction or while one that published is still under way, may be counted and get nothing.
//!
//! # Order
//! A worker's queue is first in, first out, and it is the only way to its subscribers. So a subscriber gets one
//! publisher's messages in order, and events of one key, which are published under the key's lock, in the order of its
//! changes. A publisher that listens to its own channel gets the message behind its reply, as in Valkey.
//!
//! # Held messages
//! While the log is read a publication is *unsettled* until the command that published it has ended and the LSN of its
//! writes is known. A worker's queue stops at an unsettled one, for as long as that command runs. A receiver's output is
//! then held like any reply that shows the write.
//!
//! Dropped: matching patterns on each receiving worker (the publisher must match them anyway, for its count), and direct
//! delivery to the publisher's own worker (it would overtake what others have put into the queue).

mod deliver;
mod publication;
mod registry;
mod subscribers;

pub use deliver::Current;
pub use publication::{Body, News, Payload, Publication, Target};
pub use subscribers::{Receiver, Subscribers, Subscriptions};

use crate::config::ClientClass;
use crate::mail::Mailbox;
use crate::session::Session;
use registry::{Patterns, Registry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

/// What can be subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A channel.
    Channel,
    /// A sharded channel.
    Shard,
    /// A glob that channels match.
    Pattern,
}

/// Bytes that may wait in one worker's queue before publishers wait.
pub const BACKLOG: usize = 64 << 20;

/// Who listens, on which worker.
#[derive(Debug)]
pub struct PubSub {
    channels: Registry,
    shard_channels: Registry,
    patterns: Patterns,
    monitors: Box<[AtomicU32]>,
    monitors_total: AtomicUsize,
}

/// What a publisher got to know.
#[derive(Debug, Default)]
pub struct Published {
    /// Clients that the message was addressed to.
    pub receivers: usize,
    /// The message, if there was anyone to address.
    pub publication: Option<Arc<Publication>>,
}

impl PubSub {
    /// Nobody listens yet.
    pub fn new(workers: usize) -> PubSub {
        PubSub {
            channels: Registry::default(),
            shard_channels: Registry::default(),
            patterns: Patterns::default(),
            monitors: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            monitors_total: AtomicUsize::new(0),
        }
    }

    fn registry(&self, kind: Kind) -> &Registry {
        if kind == Kind::Shard { &self.shard_channels } else { &self.channels }
    }

    /// Counts a subscriber of `worker` in; the number from which on it receives.
    pub fn enter(&self, kind: Kind, worker: u16, name: &Arc<[u8]>) -> u64 {
        match kind {
            Kind::Pattern => self.patterns.enter(worker, name),
            _ => self.registry(kind).enter(worker, name),
        }
    }

    /// Counts a subscriber of `worker` out; the number from which on it does not receive.
    pub fn leave(&self, kind: Kind, worker: u16, name: &[u8]) -> u64 {
        match kind {
            Kind::Pattern => self.patterns.leave(worker, name),
            _ => self.registry(kind).leave(worker, name),
        }
    }

    /// Subscribers of a channel, patterns apart.
    pub fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.registry(kind).subscribers(channel)
    }

    /// Calls `visit` with every channel that has subscribers.
    pub fn each_channel(&self, kind: Kind, visit: impl FnMut(&[u8])) {
        self.registry(kind).each(visit);
    }

    /// Number of different names with subscribers.
    pub fn names(&self, kind: Kind) -> usize {
        match kind {
            Kind::Pattern => self.patterns.len(),
            _ => self.registry(kind).len(),
        }
    }

    /// Whether a message of this kind could have a receiver at all: two loads.
    #[inline]
    pub fn has_listeners(&self, kind: Kind) -> bool {
        self.registry(kind).len() > 0 || kind == Kind::Channel && self.patterns.len() > 0
    }

    /// Addresses a message to the subscribers of a channel and, unless it is a sharded one, of the patterns that match.
    /// The workers that got it are added to `workers`; they have to be woken. Unless `settled` it waits for its LSN.
    pub fn publish(
        &self,
        mail: &[Mailbox],
        kind: Kind,
        channel: &[u8],
        message: Payload<'_>,
        settled: bool,
        workers: &mut Vec<u16>,
    ) -> Published {
        if !self.has_listeners(kind) {
            return Published::default();
        }
        let mut matching = if kind == Kind::Channel { self.patterns.matching(channel) } else { Default::default() };
        if matching.is_empty() && self.subscribers(kind, channel) == 0 {
            return Published::default();
        }
        // Encoded before the lock: what happens under it does not depend on the length.
        let body = Body::message(channel, message);
        let mut shard = self.registry(kind).lock(channel);
        let patterns = (kind == Kind::Channel).then(|| self.patterns.read());
        if let Some(patterns) = &patterns
            && patterns.version() != matching.version
        {
            matching = patterns.matching(channel);
        }
        let audience = shard.audience(channel);
        let receivers = audience.map_or(0, |audience| audience.total()) + matching.receivers();
        if receivers == 0 {
            return Published::default();
        }
        let first = workers.len();
        let all = audience.into_iter().chain(matching.audiences()).flat_map(|audience| audience.workers());
        for worker in all {
            if !workers[first..].contains(&worker) {
                workers.push(worker);
            }
        }
        let publication = Arc::new(Publication::new(kind, body, shard.next_number(), matching.into_names(), settled));
        for &worker in &workers[first..] {
            mail[usize::from(worker)].publish(Arc::clone(&publication));
        }
        Published { receivers, publication: Some(publication) }
    }

    /// Counts a monitor of `worker` in or out.
    pub fn count_monitor(&self, worker: usize, one_more: bool) {
        if one_more {
            self.monitors[worker].fetch_add(1, SeqCst);
            self.monitors_total.fetch_add(1, SeqCst);
        } else {
            self.monitors[worker].fetch_sub(1, SeqCst);
            self.monitors_total.fetch_sub(1, SeqCst);
        }
    }

    /// Whether there is any monitor.
    #[inline]
    pub fn has_monitors(&self) -> bool {
        self.monitors_total.load(SeqCst) > 0
    }

    /// Addresses a line to all monitors.
    pub fn show(&self, mail: &[Mailbox], line: Vec<u8>, workers: &mut Vec<u16>) {
        let line = Arc::new(Publication::monitored(line));
        for (worker, count) in (0..).zip(&self.monitors) {
            if count.load(SeqCst) > 0 {
                mail[usize::from(worker)].publish(Arc::clone(&line));
                workers.push(worker);
            }
        }
    }
}

/// The class whose limit of unread replies a client has.
pub fn class_of(session: &Session) -> ClientClass {
    if session.subscriptions.is_some() { ClientClass::Pubsub } else { ClientClass::Normal }
}
