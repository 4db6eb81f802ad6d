//! Handing publications to the connections of a worker.

use super::{Publication, Target, class_of};
use crate::connection::{Aside, Connection};
use crate::session::Session;
use crate::worker::State;
use gimmal_io::{ConnId, Output};
use gimmal_log::Lsn;

/// The connection whose command has just run: it is not in its slot.
pub struct Current<'c> {
    /// Its id.
    pub id: ConnId,
    /// The connection.
    pub connection: &'c mut Connection,
    /// What its replies of this batch depend on.
    pub depends_on: &'c mut Lsn,
    /// Its command has more to write.
    pub is_writing: bool,
}

impl State {
    /// Hands out what has come, as far as it is settled.
    pub fn deliver(&mut self, mut current: Option<Current<'_>>) {
        self.local.pubsub.take_in(&self.shared.mail[self.local.id]);
        let mut receivers = std::mem::take(&mut self.receivers);
        while let Some((publication, place, lsn)) = self.local.pubsub.take_next() {
            self.local.pubsub.receivers(&publication, place, &mut receivers);
            for (id, at) in receivers.drain(..) {
                let message = Message { publication: &publication, at, place, lsn };
                match &mut current {
                    Some(current) if current.id == id => self.hand_to_current(current, &message),
                    _ => self.hand_to(id, &message),
                }
            }
        }
        self.receivers = receivers;
    }

    fn hand_to_current(&mut self, current: &mut Current<'_>, message: &Message<'_>) {
        let c = &mut *current.connection;
        if !message.is_for(c) {
            return;
        }
        if current.is_writing {
            message.write_late(c);
        } else {
            message.write(&c.session, &mut c.output);
            *current.depends_on = (*current.depends_on).max(message.lsn);
        }
        self.check_limit(current.id, c);
    }

    fn hand_to(&mut self, id: ConnId, message: &Message<'_>) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        let c = &mut *connection;
        if message.is_for(c) {
            // As behind a reply that is being written, so behind one that is on its way.
            let answered = message.target().is_some() && c.waiting.as_ref().is_some_and(|waiter| waiter.is_served());
            if answered || matches!(c.aside.as_deref(), Some(Aside::Continuation(..))) {
                message.write_late(c);
            } else {
                self.say(id, c, message);
            }
            self.check_limit(id, c);
            self.after_commands(id, c);
        }
        self.connections.put_back(id, connection);
    }

    /// Writes behind all that is said to a connection on which no command runs, held back like a reply.
    fn say(&mut self, id: ConnId, c: &mut Connection, message: &Message<'_>) {
        let lsn = message.lsn;
        if c.held.is_empty() && lsn <= self.local.released {
            if c.output.head_capacity() == 0 {
                c.output = self.spare.take();
            }
            return message.write(&c.session, &mut c.output);
        }
        if c.held.back().is_none_or(|(last, _)| *last < lsn) {
            c.held.push_back((lsn, Output::default()));
            self.wait_for_release(id, c);
        }
        let (_, output) = c.held.back_mut().expect("there is one");
        let before = output.len();
        message.write(&c.session, output);
        c.held_bytes += output.len() - before;
    }

    /// A listener that takes too little is closed.
    fn check_limit(&mut self, id: ConnId, c: &mut Connection) {
        let limit = self.local.config.client_output_buffer_limit(class_of(&c.session));
        let bytes = c.pending_bytes() as u64;
        if limit.hard > 0 && bytes > limit.hard || limit.soft > 0 && (bytes > limit.soft || c.since_ms != 0) {
            self.enforce_limits(id, c);
        }
    }

    /// Puts the messages that came while a long reply was written behind it.
    #[cold]
    pub fn say_late(c: &mut Connection) -> Lsn {
        let Some(late) = c.late.take() else { return 0 };
        let (lsn, output) = *late;
        c.output.append(output);
        lsn
    }
}

/// A publication as one receiver gets it.
struct Message<'p> {
    publication: &'p Publication,
    /// Its pattern, or its target.
    at: Option<usize>,
    place: u64,
    lsn: Lsn,
}

impl Message<'_> {
    fn target(&self) -> Option<&Target> {
        self.publication.targets().get(self.at?)
    }

    fn is_for(&self, c: &Connection) -> bool {
        if let Some(target) = self.target() {
            let had = c.session.tracking.as_ref().is_some_and(|tracking| self.place < tracking.caught_up);
            return c.is_open() && !had && target.is_for(c.session.resp3, c.session.subscriptions.is_some());
        }
        let had = c.session.subscriptions.as_ref().is_some_and(|all| all.has_had(self.place));
        c.is_open() && !(had && self.publication.kind().is_some())
    }

    fn write(&self, session: &Session, output: &mut Output) {
        match self.target() {
            Some(target) => self.publication.invalidate(output, session.resp3, target),
            None => {
                let pattern = self.at.map(|at| &*self.publication.patterns().1[at]);
                self.publication.write(output, session.resp3, pattern);
            }
        }
    }

    fn write_late(&self, c: &mut Connection) {
        let (lsn, output) = &mut **c.late.get_or_insert_default();
        self.write(&c.session, output);
        *lsn = (*lsn).max(self.lsn);
    }
}
