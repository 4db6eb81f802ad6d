//! Replies that wait for the log: held back by the connection, let go when what they show is released.
//!
//! A worker lists the connections that hold something, and knows a lower bound of what the first of them waits for: while the log is
//! not released so far, it looks at none of them. (500 clients with a durable write each hold a reply each, and there are ten passes
//! to a sync.)

use gimmal_io::ConnId;
use gimmal_log::Lsn;

use crate::command::gate;
use crate::connection::{Aside, Connection, State as Doing};
use crate::worker::State;

/// So many listed connections that are closed are not worth a look.
const CLOSED: usize = 1024;

/// Connections whose replies wait for the log, or whose commands wait for the end of a pause.
pub struct Holding {
    ids: Vec<ConnId>,
    /// No reply of these waits for less.
    lowest: Lsn,
    /// Some of these have a command set aside: each pass looks whether it may run.
    has_aside: bool,
}

impl Default for Holding {
    fn default() -> Holding {
        Holding { ids: Vec::new(), lowest: Lsn::MAX, has_aside: false }
    }
}

impl State {
    /// Holds back the replies of a batch that shows writes which are not released yet, and all after them.
    #[inline]
    pub fn hold(&mut self, id: ConnId, c: &mut Connection, depends_on: Lsn) {
        let depends_on = match &c.late {
            Some(_) if !matches!(c.aside.as_deref(), Some(Aside::Continuation(..))) => {
                depends_on.max(State::say_late(c))
            }
            _ => depends_on,
        };
        // While any reply is held all later ones are, also once the log has been switched off.
        if c.held.is_empty() && depends_on <= self.local.released {
            return;
        }
        // What the slices so far have seen, the reply will show.
        if let Some(Aside::Continuation(_, lsn)) = c.aside.as_deref_mut() {
            *lsn = (*lsn).max(depends_on);
        }
        if c.output.is_empty() {
            return;
        }
        if self.local.log_failed {
            return self.begin_close(id, c);
        }
        let output = std::mem::take(&mut c.output);
        c.held_bytes += output.len();
        c.held.push_back((depends_on, output));
        self.wait_for_release(id, c);
    }

    /// Lists a connection, once, among those that [`State::release_held`] looks at.
    #[inline]
    pub fn wait_for_release(&mut self, id: ConnId, c: &mut Connection) {
        if let Some((lsn, _)) = c.held.front() {
            self.holding.lowest = self.holding.lowest.min(*lsn);
        }
        self.holding.has_aside |= c.state == Doing::Aside;
        if !c.marks.holding {
            c.marks.holding = true;
            self.holding.ids.push(id);
        }
    }

    /// Lets go of replies whose writes were released, and of commands whose pause is over.
    pub fn release_held(&mut self) {
        if self.holding.ids.is_empty() {
            return;
        }
        self.local.look_at_log(&self.shared);
        let released = self.local.released;
        // Connections that were closed meanwhile are found when the others are looked at.
        let is_long = self.holding.ids.len() > 2 * self.connections.len() + CLOSED;
        if released < self.holding.lowest && !self.holding.has_aside && !self.local.log_failed && !is_long {
            return;
        }
        self.local.look_for_room(&self.shared.log);
        let (paused, halted) = (self.local.gates & gate::WAITING != 0, self.local.held);
        for id in std::mem::take(&mut self.holding).ids {
            let Some(mut connection) = self.connections.lift(id) else { continue };
            let c = &mut *connection;
            c.marks.holding = false;
            while c.held.front().is_some_and(|(lsn, _)| *lsn <= released) {
                let (_, output) = c.held.pop_front().expect("there is a front");
                c.held_bytes -= output.len();
                c.output.append(output);
            }
            if self.local.log_failed && !c.held.is_empty() && c.state != Doing::Closing {
                // What it waits to be told was lost, and so was what comes behind.
                self.begin_close(id, c);
            }
            let more = c.state == Doing::Open && c.held.is_empty() && c.query.len() > c.query_at;
            self.mark(id, c, more);
            let stays = if matches!(c.aside.as_deref(), Some(Aside::Parked(_))) { paused } else { halted };
            let waits = c.state == Doing::Aside && !c.marks.ready;
            if waits && !stays {
                self.mark(id, c, true);
            }
            if !c.held.is_empty() || waits && stays {
                self.wait_for_release(id, c);
            }
            self.after_commands(id, c);
            self.connections.put_back(id, connection);
        }
    }

    /// False if the log was released so far that a held reply may go, or a waiting write may run: then the worker must not sleep.
    pub fn may_sleep_on_log(&mut self) -> bool {
        if self.holding.ids.is_empty() {
            return true;
        }
        let mut lowest = self.holding.lowest;
        if self.local.gates & gate::LOG_FULL != 0 {
            lowest = lowest.min(self.shared.log.room_after());
        }
        lowest == Lsn::MAX || self.local.await_release(lowest)
    }

    /// Connections that are listed, closed ones included.
    pub fn holders(&self) -> usize {
        self.holding.ids.len()
    }

    /// Connections whose commands wait for something else than the log, behind replies or not.
    pub fn held_aside(&mut self) -> usize {
        if !self.holding.has_aside {
            return 0;
        }
        let State { holding, connections, .. } = self;
        holding.ids.iter().filter(|id| connections.find(**id).is_some_and(|c| c.is_blocked())).count()
    }
}
