//! [`Coming`]: what an engine over readiness is going to hand out, in order, and the bytes that belong to it.
//!
//! Bytes lie in the one buffer that is hot in the cache, if the engine received them lazily for a few connections, or in a
//! [`Piece`] of their own, if threads received them for many at once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use crate::{Completion, ConnId, Counters, LOOK_AHEAD, ListenerId, Requests, os};

/// What is to be handed out.
pub(crate) struct Coming {
    steps: VecDeque<Step>,
    buffer: Box<[u8]>,
    /// How much of the buffer belongs to what is in `steps`.
    filled: usize,
    /// What was handed out last, if that is a piece.
    lent: Piece,
    /// Pieces to be used again.
    spare: Vec<Piece>,
}

/// What is to be handed out; the borrow of the bytes is made by [`Coming::next`].
enum Step {
    Finished(Completion<'static>),
    /// Bytes from this position of the buffer on, and how many.
    Received(ConnId, usize, usize),
    Piece(ConnId, Piece),
}

/// Bytes of one connection, and the requests in them.
#[derive(Default)]
pub(crate) struct Piece {
    room: Vec<u8>,
    count: usize,
    requests: Requests,
}

/// Receives until it is handed out take at most this: large enough that a system call is amortised, small enough for
/// the L2 cache.
const BUFFER_BYTES: usize = 64 * 1024;
/// With less room no further connection receives into the buffer.
const LEAST_ROOM: usize = 32 * 1024;
/// What was received begins at multiples of this in the buffer: two requests share no cache line.
const LINE: usize = 64;
/// What a piece has room for, as Redis's PROTO_IOBUF_LEN.
const PIECE_BYTES: usize = 16 * 1024;

impl Coming {
    pub(crate) fn new() -> Coming {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Coming { steps: VecDeque::new(), buffer, filled: 0, lent: Piece::default(), spare: Vec::new() }
    }

    /// Nothing is to be handed out: what is received from now on may take the place of what was lent.
    pub(crate) fn restart(&mut self) {
        debug_assert!(self.steps.is_empty(), "bytes would be overwritten");
        self.filled = 0;
    }

    pub(crate) fn has_room(&self) -> bool {
        self.steps.len() < LOOK_AHEAD && self.buffer.len() - self.filled >= LEAST_ROOM
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn push(&mut self, completion: Completion<'static>) {
        self.steps.push_back(Step::Finished(completion));
    }

    /// Hands out a piece; one without bytes is kept for later use.
    pub(crate) fn push_piece(&mut self, conn: ConnId, piece: Piece) {
        if piece.count == 0 {
            self.spare.push(piece);
        } else {
            self.steps.push_back(Step::Piece(conn, piece));
        }
    }

    /// An empty piece.
    pub(crate) fn piece(&mut self) -> Piece {
        self.spare.pop().unwrap_or_default()
    }

    /// Receives once from a connection. The answer is how the connection has ended, if it has.
    pub(crate) fn receive(
        &mut self,
        conn: ConnId,
        socket: BorrowedFd<'_>,
        counters: &mut Counters,
    ) -> Option<Option<io::Error>> {
        match received(os::recv(socket, &mut self.buffer[self.filled..])) {
            Ok(0) => None,
            Ok(count) => {
                counters.receives += 1;
                self.steps.push_back(Step::Received(conn, self.filled, count));
                self.filled = (self.filled + count).next_multiple_of(LINE).min(self.buffer.len());
                None
            }
            Err(end) => Some(end),
        }
    }

    /// Takes back the news that a connection has ended; and, unless it only moves, what was received from it.
    pub(crate) fn forget(&mut self, conn: ConnId, received_too: bool) {
        self.steps.retain(|step| match step {
            Step::Received(of, ..) | Step::Piece(of, _) => *of != conn || !received_too,
            Step::Finished(Completion::ReceiveEnded { conn: of, .. }) => *of != conn,
            Step::Finished(_) => true,
        });
    }

    /// Drops clients that were accepted from a listener that is given up.
    pub(crate) fn forget_listener(&mut self, id: ListenerId) {
        let dropped =
            |step: &Step| matches!(step, Step::Finished(Completion::Accepted { listener, .. }) if *listener == id);
        self.steps.retain(|step| !dropped(step));
    }

    pub(crate) fn next(&mut self) -> Option<Completion<'_>> {
        match self.steps.pop_front()? {
            Step::Finished(completion) => Some(completion),
            Step::Received(conn, at, count) => Some(Completion::Received { conn, data: &self.buffer[at..at + count] }),
            Step::Piece(conn, piece) => {
                let before = std::mem::replace(&mut self.lent, piece);
                if !before.room.is_empty() {
                    self.spare.push(before);
                }
                Some(Completion::Parsed { conn, data: self.lent.bytes(), requests: &self.lent.requests })
            }
        }
    }

    /// See [`crate::Engine::upcoming`].
    pub(crate) fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        match self.steps.get(at)? {
            Step::Received(conn, at, count) => Some((*conn, &self.buffer[*at..at + count])),
            Step::Piece(conn, piece) => Some((*conn, piece.bytes())),
            Step::Finished(Completion::Sent { conn, .. }) => Some((*conn, &[])),
            Step::Finished(_) => None,
        }
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.room[..self.count]
    }

    pub(crate) fn is_some(&self) -> bool {
        self.count > 0
    }

    /// Receives once, and has the requests found. The error is how the connection has ended.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        find: impl FnOnce(&[u8], &mut Requests),
    ) -> Result<(), Option<io::Error>> {
        self.room.resize(PIECE_BYTES, 0);
        self.count = 0;
        self.requests.clear();
        self.count = received(os::recv(socket, &mut self.room))?;
        find(&self.room[..self.count], &mut self.requests);
        Ok(())
    }
}

/// How many bytes came, none if it was nothing for now; the error is how the connection has ended.
fn received(result: io::Result<usize>) -> Result<usize, Option<io::Error>> {
    match result {
        Ok(0) => Err(None),
        Ok(count) => Ok(count),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        Err(error) => Err(Some(error)),
    }
}
