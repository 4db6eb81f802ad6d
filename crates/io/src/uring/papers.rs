//! Netty's io_uring transport, as "Netty IO_URING: RPC" (2021) measured it, and a receive that is armed anew each time: what
//! the engine does otherwise for comparison, behind a constant of its type.
//!
//! Netty's way is readiness on a ring: an entry that waits until the connection is readable, then one that reads; one write of
//! a vector in flight per connection, and when the socket is full an entry that waits for room. Once more than so many entries
//! wait to be submitted, further ones are left to threads of the kernel (IOSQE_ASYNC).
//!
//! # Safety
//! A reading entry points into a vector of `Uring::reading`, whose bytes stay where they are, untouched, until its completion; a
//! writing one into the slot's boxed [`Message`] and its output, likewise.

use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fd;

use super::message::Message;
use super::ring::Cqe;
use super::{Leaving, POLL_IN, READ, Receive, SEND, Step, Uring};
use crate::table::Token;
use crate::{Completion, ConnId};

/// How bytes are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReceiveBy {
    /// By one entry for the life of a connection, into provided buffers.
    #[default]
    Multishot,
    /// By an entry for each receive, into provided buffers.
    Single,
    /// By an entry that waits until there is something, then one that reads it.
    Poll,
}

/// How replies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteBy {
    /// SEND and SENDMSG; the kernel waits for room.
    #[default]
    Send,
    /// WRITEV; an entry of its own waits for room.
    Writev,
}

/// What of the papers an io_uring engine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UringModelOptions {
    /// How bytes are received.
    pub receive: ReceiveBy,
    /// How replies are sent.
    pub write: WriteBy,
    /// Entries that wait beyond which others are left to threads of the kernel; 0 for never.
    pub async_threshold: u32,
}

/// Buffers kept for reading.
const READ_BUFFERS: usize = 64;

impl<const PAPERS: bool> Uring<PAPERS> {
    /// Queues an entry that may be left to the kernel's threads.
    fn push_or_defer(&mut self, entry: Entry) {
        let threshold = self.papers.async_threshold;
        if threshold > 0 && self.ring.queued() > threshold {
            self.counters.asyncs += 1;
            return self.push(entry.flags(Flags::ASYNC));
        }
        self.push(entry);
    }

    /// Waits until a connection is readable or has room.
    pub(super) fn push_poll(&mut self, conn: ConnId, operation: u8) {
        let Some(connection) = self.connections.get(conn) else { return };
        let events = if operation == POLL_IN { libc::POLLIN | libc::POLLRDHUP } else { libc::POLLOUT };
        let entry = opcode::PollAdd::new(Fd(connection.socket.as_raw_fd()), events as u32).build();
        self.counters.poll_entries += 1;
        self.push_or_defer(entry.user_data(Token::conn(conn, operation).0));
    }

    fn push_read(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let mut buffer = self.read_buffers.pop().unwrap_or_default();
        buffer.resize(self.options.buffer_bytes as usize, 0);
        let fd = Fd(connection.socket.as_raw_fd());
        let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), self.options.buffer_bytes);
        let entry = entry.rw_flags(libc::RWF_NOWAIT).build().user_data(Token::conn(conn, READ).0);
        connection.receive = Receive::Armed;
        self.reading.insert(conn, buffer);
        self.counters.read_entries += 1;
        self.push_or_defer(entry);
    }

    pub(super) fn polled_or_read(&mut self, token: Token, cqe: Cqe) -> Option<Step> {
        let conn = self.connections.resolve(token)?;
        let connection = self.connections.get_mut(conn)?;
        connection.receive = Receive::Idle;
        if token.operation() == POLL_IN {
            if cqe.result >= 0 && connection.leaving == Leaving::No && !connection.paused {
                self.push_read(conn);
            } else {
                self.after_receive(conn, true);
            }
            return None;
        }
        let leaving = connection.leaving;
        let buffer = self.reading.remove(conn);
        match cqe.result {
            length @ 1.. if leaving != Leaving::Closing => {
                self.counters.receives += 1;
                self.after_receive(conn, true);
                let buffer = buffer.expect("a read has a buffer");
                let before = std::mem::replace(&mut self.read, buffer);
                if self.read_buffers.len() < READ_BUFFERS {
                    self.read_buffers.push(before);
                }
                Some(Step::Read { conn, length: length.unsigned_abs() as usize })
            }
            0 if leaving == Leaving::No => {
                self.connections.get_mut(conn)?.receive = Receive::Ended;
                Some(Step::Finished(Completion::ReceiveEnded { conn, error: None }))
            }
            error if error < 0 && leaving == Leaving::No => self.receive_failed(conn, -error),
            _ => {
                self.after_receive(conn, true);
                None
            }
        }
    }

    pub(super) fn push_writev(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(output) = connection.output.as_ref() else { return };
        let mut message = connection.message.take().or_else(|| self.messages.pop()).unwrap_or_else(Message::new);
        let (slices, _) = message.fill(output);
        let (iovecs, count) = message.iovecs();
        let fd = Fd(connection.socket.as_raw_fd());
        connection.message = Some(message);
        let entry = opcode::Writev::new(fd, iovecs, count).rw_flags(libc::RWF_NOWAIT).build();
        self.counters.sends += 1;
        self.counters.vector_sends += 1;
        self.counters.slices += slices as u64;
        self.push_or_defer(entry.user_data(Token::conn(conn, SEND).0));
    }

    pub(super) fn has_room(&mut self, token: Token, cqe: Cqe) {
        let Some(conn) = self.connections.resolve(token) else { return };
        let Some(connection) = self.connections.get(conn) else { return };
        if connection.leaving == Leaving::No && cqe.result >= 0 {
            return self.push_writev(conn);
        }
        // It is cut off, or broken.
        self.sent(token, Cqe { result: cqe.result.min(0), ..cqe });
    }
}
