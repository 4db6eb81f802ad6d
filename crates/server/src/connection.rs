//! A connection's state on its worker: what was received and not yet run, what is to be sent and what is held back.

use crate::args::Detached;
use crate::blocking::Waiter;
use crate::exec::Continuation;
use crate::kept::Kept;
use crate::session::Session;
use gimmal_io::{ConnId, Output};
use gimmal_log::Lsn;
use gimmal_resp::Parser;
use gimmal_store::RopeBuilder;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of replies that do not count as memory in use. Redis has as many in each client's structure, used or not. If they
/// counted, keys would go for replies that the kernel has taken, as their completion is only seen in the next pass.
pub const REPLY_FREE: usize = 16 * 1024;

/// Everything of one connection but its socket, which the engine owns.
pub struct Connection {
    /// As commands see it.
    pub session: Session,
    /// Finds commands in what was received.
    pub parser: Parser,
    /// Received bytes from the first command that has not run yet.
    pub query: Vec<u8>,
    /// Where in `query` the next command begins.
    pub query_at: usize,
    /// Large and inline arguments of the command that is being received.
    pub detached: Vec<Detached>,
    /// Bytes of the large ones among them; without meaning while there are none.
    pub detached_bytes: usize,
    /// A large argument on its way in.
    pub building: Option<RopeBuilder>,
    /// Replies to be sent.
    pub output: Output,
    /// Replies that show writes not yet released, oldest first.
    pub held: VecDeque<(Lsn, Output)>,
    /// Bytes in `held`.
    pub held_bytes: usize,
    /// What of it is counted as memory in use.
    pub counted_bytes: usize,
    /// Messages that came while a long reply was being written, and the LSN they depend on; rare, so boxed.
    pub late: Option<Box<(Lsn, Output)>>,
    /// Bytes given to the engine and not yet confirmed; 0 if no send is in flight.
    pub sending: usize,
    /// What the connection is doing.
    pub state: State,
    /// Its command that waits for a key.
    pub waiting: Option<Arc<Waiter>>,
    /// What is set aside until it can go on; rare, so boxed.
    pub aside: Option<Box<Aside>>,
    /// Since when its output is over the soft limit (0 if it is not), or since when it lingers, in ms.
    pub since_ms: i64,
    /// Its marks.
    pub marks: Marks,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Running commands as they come.
    Open,
    /// Its next command waits: for a lock, a slice, a pause; see `aside`.
    Aside,
    /// Its reply comes by message.
    Waiting,
    /// No more commands; replies are sent, then the write side is shut and what still comes is dropped.
    Finishing,
    /// The write side is shut; waiting for the peer to close.
    Lingering,
    /// The engine was told to close.
    Closing,
    /// The engine was told to hand the socket back, to move to this worker.
    Moving(u16),
}

/// Boolean state of a connection.
#[derive(Debug, Default, Clone, Copy)]
pub struct Marks {
    /// In the worker's list of connections with replies to send.
    pub dirty: bool,
    /// In the worker's list of connections with commands to run.
    pub ready: bool,
    /// The engine was told to stop receiving.
    pub paused: bool,
    /// The peer has closed its side.
    pub ended: bool,
    /// In the worker's list of connections that wait for the log or for the end of a pause.
    pub holding: bool,
}

/// A command that could not run, or not to its end.
pub enum Aside {
    /// It goes on slice by slice; its reply will depend on this LSN at least.
    Continuation(Box<dyn Continuation>, Lsn),
    /// It is run again.
    Parked(Parked),
}

/// A command that is run again.
pub struct Parked {
    /// The command.
    pub command: Arc<Kept>,
    /// Times it could not lock.
    pub tries: u32,
}

impl Connection {
    /// A connection that has just arrived.
    pub fn new(session: Session) -> Connection {
        Connection {
            session,
            parser: Parser::default(),
            query: Vec::new(),
            query_at: 0,
            detached: Vec::new(),
            detached_bytes: 0,
            building: None,
            output: Output::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            counted_bytes: 0,
            late: None,
            sending: 0,
            state: State::Open,
            waiting: None,
            aside: None,
            since_ms: 0,
            marks: Marks::default(),
        }
    }

    /// Bytes received and not yet run, large arguments included.
    pub fn query_bytes(&self) -> usize {
        let taken = if self.detached.is_empty() { 0 } else { self.detached_bytes };
        self.query.len() - self.query_at + taken + self.building.as_ref().map_or(0, RopeBuilder::filled)
    }

    /// Bytes of replies not yet taken by the kernel, held ones apart.
    pub fn output_bytes(&self) -> usize {
        self.output.len() + self.sending
    }

    /// All bytes of replies that the peer has not taken.
    pub fn pending_bytes(&self) -> usize {
        self.output_bytes() + self.held_bytes
    }

    /// Bytes in its buffers, and of what it has queued or watches, that count as memory in use: not replies that are held back,
    /// nor the first [`REPLY_FREE`] bytes of the others, most of which are on their way out already.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        let detached = if self.detached.is_empty() { 0 } else { self.detached_bytes };
        let building = self.building.as_ref().map_or(0, RopeBuilder::filled);
        let parked = match self.aside.as_deref() {
            Some(Aside::Parked(parked)) => parked.command.bytes(),
            _ => 0,
        };
        let transaction = self.session.transaction_bytes();
        let replies = self.output_bytes().saturating_sub(REPLY_FREE);
        self.query.capacity() + detached + building + parked + transaction + replies
    }

    /// With no more than [`REPLY_FREE`] bytes of replies it takes no memory that counts and is over no limit, and nothing stands in
    /// the way of its next command.
    #[inline]
    pub fn is_as_usual(&self) -> bool {
        self.state == State::Open
            && self.session.authenticated
            && self.query.capacity() == 0
            && self.counted_bytes == 0
            && !(self.marks.paused || self.marks.ended)
            && self.detached.is_empty()
            && self.building.is_none()
            && !self.session.has_transaction()
    }

    /// Its next command can run.
    pub fn runs(&self) -> bool {
        self.state == State::Open
    }

    /// It still has its client: replies may be on their way to it.
    pub fn is_listed(&self) -> bool {
        !matches!(self.state, State::Lingering | State::Closing)
    }

    /// Its command waits: to be run, or for a key.
    pub fn is_blocked(&self) -> bool {
        self.waiting.is_some() || self.state == State::Aside && matches!(self.aside.as_deref(), Some(Aside::Parked(_)))
    }

    /// It is on its way to another worker.
    pub fn is_moving(&self) -> bool {
        matches!(self.state, State::Moving(_))
    }

    /// It is neither closed nor about to be.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Finishing | State::Lingering | State::Closing)
    }

    /// Nothing of it is under way: it can move to another worker.
    pub fn is_quiescent(&self) -> bool {
        self.state == State::Open
            && self.sending == 0
            && self.output.is_empty()
            && self.held.is_empty()
            && !self.marks.dirty
            && !self.marks.ready
            && !self.marks.paused
            && !self.marks.ended
            && self.building.is_none()
            && !self.session.is_known()
            && self.query_bytes() == 0
    }
}

/// A worker's connections by slot; a slot's generation changes each time it is used again.
#[derive(Default)]
pub struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    used: usize,
}

struct Slot {
    generation: u32,
    taken: bool,
    connection: Option<Box<Connection>>,
}

impl Connections {
    /// Gives a connection a slot.
    pub fn insert(&mut self, connection: Box<Connection>) -> ConnId {
        self.used += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.connection = Some(connection);
            slot.taken = true;
            return ConnId { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 connections");
        self.slots.push(Slot { generation: 0, taken: true, connection: Some(connection) });
        ConnId { index, generation: 0 }
    }

    /// The connection of this id.
    pub fn find(&mut self, id: ConnId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.connection.as_deref_mut() } else { None }
    }

    /// Lifts the connection out to work on it; [`Connections::put_back`] follows.
    #[inline]
    pub fn lift(&mut self, id: ConnId) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.connection.take() } else { None }
    }

    /// Puts back what was lifted.
    #[inline]
    pub fn put_back(&mut self, id: ConnId, connection: Box<Connection>) {
        self.slots[id.index as usize].connection = Some(connection);
    }

    /// Frees the slot.
    pub fn remove(&mut self, id: ConnId) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation || !slot.taken {
            return None;
        }
        slot.taken = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.used -= 1;
        self.free.push(id.index);
        slot.connection.take()
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.used
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Number of slots, used or not: what a walk in steps goes over.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The connection in slot `index`.
    pub fn at(&mut self, index: usize) -> Option<(ConnId, &mut Connection)> {
        let slot = self.slots.get_mut(index)?;
        let id = ConnId { index: u32::try_from(index).ok()?, generation: slot.generation };
        Some((id, slot.connection.as_deref_mut()?))
    }

    /// Every connection.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Connection)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = ConnId { index: u32::try_from(index).ok()?, generation: slot.generation };
            Some((id, slot.connection.as_deref()?))
        })
    }
}

const _: () = assert!(size_of::<Connection>() <= 640, "an idle connection must stay well under 1 KiB");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Peer;

    fn connection() -> Box<Connection> {
        Box::new(Connection::new(Session::new(1, Peer::Sim, true, 0)))
    }

    #[test]
    fn an_id_of_a_freed_slot_finds_nothing() {
        let mut connections = Connections::default();
        let first = connections.insert(connection());
        assert!(connections.remove(first).is_some());
        let second = connections.insert(connection());
        assert_eq!(first.index, second.index);
        assert!(connections.find(first).is_none(), "the old id reached the new connection");
        assert!(connections.remove(first).is_none());
        assert!(connections.find(second).is_some());
        assert_eq!(connections.len(), 1);
    }

    #[test]
    fn a_lifted_connection_can_still_be_removed() {
        let mut connections = Connections::default();
        let id = connections.insert(connection());
        let lifted = connections.lift(id).expect("it is there");
        assert!(connections.lift(id).is_none());
        connections.put_back(id, lifted);
        assert!(connections.remove(id).is_some());
        assert!(connections.is_empty());
    }
}
