//! A worker's own part: which of its connections listen to what, and the publications it has still to hand out.

use super::{Kind, Payload, Publication, Published};
use crate::command::gate;
use crate::exec::{Exec, Stop};
use crate::mail::Mailbox;
use crate::session::Session;
use crate::shared::Shared;
use crate::worker::Local;
use gimmal_io::ConnId;
use gimmal_log::Lsn;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Connections in an order: slot and generation.
type Conn = (u32, u32);

/// Connections, each with the number or place from which on it receives.
type Since = BTreeMap<Conn, u64>;

fn key(conn: ConnId) -> Conn {
    (conn.index, conn.generation)
}

/// What a session listens to.
#[derive(Debug, Default)]
pub struct Subscriptions {
    /// Names by [`Kind`].
    names: [BTreeSet<Arc<[u8]>>; 3],
    /// Publications of its worker before this place in the queue were handed to it, whatever the queue says.
    caught_up: u64,
}

impl Subscriptions {
    /// Names of one kind.
    pub fn names(&self, kind: Kind) -> &BTreeSet<Arc<[u8]>> {
        &self.names[kind as usize]
    }

    /// What a confirmation counts: sharded channels, or channels and patterns together.
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.names(Kind::Shard).len(),
            _ => self.names(Kind::Channel).len() + self.names(Kind::Pattern).len(),
        }
    }

    /// Whether the publication at this place of the worker's queue was handed to it before its turn.
    pub fn has_had(&self, place: u64) -> bool {
        place < self.caught_up
    }
}

/// A worker's listeners, and its queue.
#[derive(Debug, Default)]
pub struct Subscribers {
    /// By [`Kind`] and name: from which number on each of them receives.
    listeners: [HashMap<Arc<[u8]>, Since>; 3],
    /// From which place in the queue on each of them is shown lines.
    monitors: Since,
    /// Taken out of the mailbox, and not handed out yet.
    backlog: VecDeque<Arc<Publication>>,
    /// The place of the backlog's front.
    place: u64,
    /// Published by the command that runs.
    unsettled: Vec<Arc<Publication>>,
    /// What is published depends on this at least: there were changes that are not the running command's own, as of a waiter that
    /// it served, or of a key that was evicted for it.
    others_lsn: Lsn,
    /// Workers to be woken after it.
    to_wake: Vec<u16>,
    /// The command that runs has published something.
    pub published: bool,
}

/// A receiver, and the pattern that it gets the message for, or its target, by its place in the publication.
pub type Receiver = (ConnId, Option<usize>);

impl Subscribers {
    /// Takes what others have left.
    pub fn take_in(&mut self, mailbox: &Mailbox) {
        while let Some(publication) = mailbox.take_publication() {
            self.backlog.push_back(publication);
        }
    }

    /// Whether all was handed out.
    pub fn is_done(&self) -> bool {
        self.backlog.is_empty()
    }

    /// The next publication, its place, and its LSN, unless it is not settled.
    pub fn take_next(&mut self) -> Option<(Arc<Publication>, u64, Lsn)> {
        let lsn = self.backlog.front()?.lsn()?;
        let publication = self.backlog.pop_front()?;
        self.place += 1;
        Some((publication, self.place - 1, lsn))
    }

    /// An invalidation was put into the queue of a worker, and waits for the end of the command.
    pub fn posted(&mut self, worker: u16, invalidation: Arc<Publication>) {
        self.published = true;
        self.unsettled.push(invalidation);
        self.to_wake.push(worker);
    }

    /// Finds the connections that get it.
    pub fn receivers(&self, publication: &Publication, place: u64, found: &mut Vec<Receiver>) {
        let conn = |(index, generation): &Conn| ConnId { index: *index, generation: *generation };
        if !publication.targets().is_empty() {
            found.extend(publication.targets().iter().enumerate().map(|(at, target)| (target.conn, Some(at))));
            return;
        }
        let Some(kind) = publication.kind() else {
            found.extend(self.monitors.iter().filter(|(_, since)| **since <= place).map(|(key, _)| (conn(key), None)));
            return;
        };
        if let Some(listeners) = self.listeners[kind as usize].get(publication.channel()) {
            let number = publication.number();
            found.extend(listeners.iter().filter(|(_, since)| **since <= number).map(|(key, _)| (conn(key), None)));
        }
        let (version, patterns) = publication.patterns();
        for (at, pattern) in patterns.iter().enumerate() {
            let Some(listeners) = self.listeners[Kind::Pattern as usize].get(pattern) else { continue };
            let now = listeners.iter().filter(|(_, since)| **since <= version);
            found.extend(now.map(|(key, _)| (conn(key), Some(at))));
        }
    }

    /// From which number on a connection receives what this name names.
    fn since(&self, kind: Kind, name: &[u8], conn: ConnId) -> Option<u64> {
        self.listeners[kind as usize].get(name)?.get(&key(conn)).copied()
    }

    fn add(&mut self, kind: Kind, name: &Arc<[u8]>, conn: ConnId, since: u64) {
        self.listeners[kind as usize].entry(Arc::clone(name)).or_default().insert(key(conn), since);
    }

    fn remove(&mut self, kind: Kind, name: &[u8], conn: ConnId) {
        let listeners = &mut self.listeners[kind as usize];
        let of_name = listeners.get_mut(name).expect("it was added");
        of_name.remove(&key(conn));
        if of_name.is_empty() {
            listeners.remove(name);
        }
    }

    /// A connection is shown lines from now on; false if it is already.
    pub fn add_monitor(&mut self, mailbox: &Mailbox, conn: ConnId) -> bool {
        self.take_in(mailbox);
        let since = self.place + self.backlog.len() as u64;
        match self.monitors.entry(key(conn)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(since);
                true
            }
        }
    }

    /// Publications that wait to be handed out, with their places, as far as they are settled.
    pub fn settled(&self) -> impl Iterator<Item = (u64, &Publication, Lsn)> {
        let placed = (self.place..).zip(&self.backlog);
        placed.map_while(|(place, publication)| Some((place, &**publication, publication.lsn()?)))
    }
}

impl Local {
    fn number(&self) -> u16 {
        u16::try_from(self.id).expect("at most 1024 workers")
    }

    /// Addresses a message to its subscribers; how many there are. It waits to be settled while the log is read.
    pub fn publish(&mut self, shared: &Shared, kind: Kind, channel: &[u8], message: Payload<'_>) -> usize {
        let settled = !self.log_active;
        let workers = &mut self.pubsub.to_wake;
        let Published { receivers, publication } =
            shared.pubsub.publish(&shared.mail, kind, channel, message, settled, workers);
        self.pubsub.published |= receivers > 0;
        if !settled {
            self.pubsub.unsettled.extend(publication);
        }
        receivers
    }

    /// Shows a line to all monitors.
    pub fn show(&mut self, shared: &Shared, line: Vec<u8>) {
        shared.pubsub.show(&shared.mail, line, &mut self.pubsub.to_wake);
        self.pubsub.published = true;
    }

    /// A change that is not the running command's own ends at `lsn`; its events are published already, or about to be.
    pub fn changed_by_others(&mut self, lsn: Lsn) {
        self.pubsub.others_lsn = self.pubsub.others_lsn.max(lsn);
    }

    /// What was published depends on this; its receivers' workers are woken.
    pub fn settle(&mut self, shared: &Shared, lsn: Lsn) {
        self.broadcast(shared);
        self.pubsub.published = false;
        let lsn = lsn.max(std::mem::take(&mut self.pubsub.others_lsn));
        for publication in self.pubsub.unsettled.drain(..) {
            publication.settle(lsn);
        }
        for worker in self.pubsub.to_wake.drain(..) {
            if usize::from(worker) != self.id {
                shared.mail[usize::from(worker)].wake_if_asleep();
            }
        }
    }

    /// A connection ends, and with it all that others know of it.
    #[cold]
    pub fn end_session(&mut self, shared: &Shared, session: &mut Session, conn: ConnId) {
        self.stop_listening(shared, session, conn);
        session.close_inbox();
        shared.trackers.remove(session);
    }

    /// Ends all that a connection listens to.
    #[cold]
    pub fn stop_listening(&mut self, shared: &Shared, session: &mut Session, conn: ConnId) {
        if self.pubsub.monitors.remove(&key(conn)).is_some() {
            shared.pubsub.count_monitor(self.id, false);
        }
        session.monitors = false;
        session.gates &= !(gate::SUBSCRIBED | gate::MONITORING);
        let Some(subscriptions) = session.subscriptions.take() else { return };
        for kind in [Kind::Channel, Kind::Shard, Kind::Pattern] {
            for name in subscriptions.names(kind) {
                shared.pubsub.leave(kind, self.number(), name);
                self.pubsub.remove(kind, name, conn);
            }
        }
        self.count_listener(false);
    }

    fn count_listener(&mut self, one_more: bool) {
        let counter = &self.stats.pubsub_clients;
        counter.set(if one_more { counter.value() + 1 } else { counter.value() - 1 });
    }
}

impl Exec<'_> {
    /// Publishes to the subscribers of a channel; how many there are. Waits while a receiving worker is far behind.
    pub fn publish(&mut self, kind: Kind, channel: &[u8], message: Payload<'_>) -> Result<usize, Stop> {
        // A transaction cannot wait half way.
        let may_wait = self.shared.pubsub.has_listeners(kind) && !self.local.gathered.is_open();
        if may_wait && self.shared.mail.iter().any(|mail| mail.backlog() > super::BACKLOG) {
            return Err(Stop::Park);
        }
        Ok(self.local.publish(self.shared, kind, channel, message))
    }

    /// The session listens to a name from now on, if it did not before.
    pub fn subscribe(&mut self, kind: Kind, name: &[u8]) {
        if self.session.subscriptions.is_none() {
            self.session.subscriptions = Some(Box::default());
            self.local.count_listener(true);
            self.session.restrict();
        }
        let names = &mut self.session.subscriptions.as_mut().expect("there are some now").names[kind as usize];
        if names.contains(name) {
            return;
        }
        let name: Arc<[u8]> = name.into();
        let since = self.shared.pubsub.enter(kind, self.local.number(), &name);
        self.local.pubsub.add(kind, &name, self.local.conn, since);
        names.insert(name);
    }

    /// The session does not listen to a name any more; it has got what was published to it until now.
    pub fn unsubscribe(&mut self, kind: Kind, name: &[u8]) {
        let listens = self.session.subscriptions.as_ref().is_some_and(|all| all.names(kind).contains(name));
        if !listens {
            return;
        }
        let until = self.shared.pubsub.leave(kind, self.local.number(), name);
        self.catch_up(kind, name, until);
        self.local.pubsub.remove(kind, name, self.local.conn);
        let Some(subscriptions) = &mut self.session.subscriptions else { return };
        subscriptions.names[kind as usize].remove(name);
        if subscriptions.names.iter().all(BTreeSet::is_empty) {
            self.session.subscriptions = None;
            self.session.gates &= !gate::SUBSCRIBED;
            self.local.count_listener(false);
        }
    }

    /// Ends all that the session listens to, without a word.
    pub fn stop_listening(&mut self) {
        let conn = self.local.conn;
        self.local.stop_listening(self.shared, self.session, conn);
    }

    /// Hands to the session what its worker has not handed out yet; what is published to the ending subscription as
    /// number `until` or later is not for it.
    fn catch_up(&mut self, ending: Kind, ending_name: &[u8], until: u64) {
        let Exec { local, session, reply, shared, depends_on, .. } = self;
        let Some(subscriptions) = &mut session.subscriptions else { return };
        if local.gathered.is_open() {
            // Nothing but replies can stand in the reply of a transaction.
            return;
        }
        local.pubsub.take_in(&shared.mail[local.id]);
        let (conn, pubsub) = (local.conn, &local.pubsub);
        let is_for = |kind: Kind, name: &[u8], number: u64| {
            let before_end = kind != ending || name != ending_name || number < until;
            before_end && pubsub.since(kind, name, conn).is_some_and(|since| since <= number)
        };
        for (place, publication, lsn) in pubsub.settled() {
            let had = subscriptions.has_had(place);
            subscriptions.caught_up = subscriptions.caught_up.max(place + 1);
            let Some(kind) = publication.kind().filter(|_| !had) else { continue };
            let (version, patterns) = publication.patterns();
            let to_channel = is_for(kind, publication.channel(), publication.number()).then_some(None);
            let to_patterns = patterns.iter().filter(|name| is_for(Kind::Pattern, name, version));
            for pattern in to_channel.into_iter().chain(to_patterns.map(|name| Some(&**name))) {
                publication.write(reply.output(), session.resp3, pattern);
                *depends_on = (*depends_on).max(lsn);
            }
        }
    }
}
