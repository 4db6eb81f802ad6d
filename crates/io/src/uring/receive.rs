//! Receiving: multishot operations that take buffers from the ring, and what ends them.
//!
//! A receive ends by itself (no buffer left, completion queue overflown), by cancellation (paused, leaving), or with
//! the stream. Only after its terminating completion it is armed again, so bytes stay in order.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::Flags;
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode};

use super::buffers::GROUP;
use super::ring::Cqe;
use super::{CANCEL, Leaving, POLL_IN, RECEIVE, Receive, ReceiveBy, Step, Uring};
use crate::table::Token;
use crate::{Completion, ConnId};

/// Buffers published for each connection. More are not: they would only let one busy uploader take the more per pass,
/// paused or not, and turn over more memory. One that finds no buffer waits for the next pass, which costs little
/// against what it has just sent.
const BUFFERS_PER_CONNECTION: usize = 2;
/// Buffers published besides.
const SPARE_BUFFERS: usize = 30;
/// Buffers published at most before any pass has found too few.
pub(super) const FIRST_BURST: u16 = 128;

impl<const PAPERS: bool> Uring<PAPERS> {
    pub(super) fn arm_receive(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        debug_assert!(connection.receive != Receive::Armed && connection.leaving == Leaving::No);
        connection.receive = Receive::Armed;
        connection.receive_cancelled = false;
        if PAPERS && self.papers.receive == ReceiveBy::Poll {
            return self.push_poll(conn, POLL_IN);
        }
        let fd = Fd(connection.socket.as_raw_fd());
        let entry = if connection.multishot {
            opcode::RecvMulti::new(fd, GROUP).build()
        } else {
            let receive = opcode::Recv::new(fd, std::ptr::null_mut(), self.options.buffer_bytes);
            receive.buf_group(GROUP).build().flags(Flags::BUFFER_SELECT)
        };
        self.push(entry.user_data(Token::conn(conn, RECEIVE).0));
    }

    pub(super) fn received(&mut self, token: Token, cqe: Cqe) -> Option<Step> {
        let buffer = cqueue::buffer_select(cqe.flags);
        if let Some(id) = buffer {
            self.buffers().lend(id);
        }
        let step = self.receive_step(token, cqe, buffer);
        match (&step, buffer) {
            (Some(Step::Received { .. }), _) => self.lent = buffer,
            (_, Some(id)) => self.buffers().recycle(id),
            _ => {}
        }
        step
    }

    fn receive_step(&mut self, token: Token, cqe: Cqe, buffer: Option<u16>) -> Option<Step> {
        let conn = self.connections.resolve(token)?;
        let connection = self.connections.get_mut(conn)?;
        let over = !cqueue::more(cqe.flags);
        if over {
            connection.receive = Receive::Idle;
        }
        let discard = connection.leaving == Leaving::Closing;
        let rearms = connection.multishot;
        match cqe.result {
            length @ 1.. if !discard => {
                self.counters.receives += 1;
                self.counters.rearms += u64::from(over && rearms);
                self.after_receive(conn, over);
                let buffer = buffer.expect("bytes were received into a provided buffer");
                return Some(Step::Received { conn, buffer, length: length.unsigned_abs() as usize });
            }
            0 if over && connection.leaving == Leaving::No => {
                connection.receive = Receive::Ended;
                return Some(Step::Finished(Completion::ReceiveEnded { conn, error: None }));
            }
            error if over && error < 0 && connection.leaving == Leaving::No => {
                return self.receive_failed(conn, -error);
            }
            _ => self.after_receive(conn, over),
        }
        None
    }

    pub(super) fn receive_failed(&mut self, conn: ConnId, error: i32) -> Option<Step> {
        match error {
            libc::ENOBUFS => {
                self.counters.enobufs += 1;
                self.starved = true;
                self.connections.get_mut(conn)?.receive = Receive::Parked;
                self.parked.push_back(conn);
            }
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                self.counters.rearms += 1;
                self.after_receive(conn, true);
            }
            _ => {
                self.connections.get_mut(conn)?.receive = Receive::Ended;
                let error = Some(io::Error::from_raw_os_error(error));
                return Some(Step::Finished(Completion::ReceiveEnded { conn, error }));
            }
        }
        None
    }

    /// Keeps a receive going, stops one that goes on although paused, or lets a leaving connection go.
    pub(super) fn after_receive(&mut self, conn: ConnId, over: bool) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.leaving != Leaving::No {
            self.settle(conn);
        } else if over && !connection.paused {
            self.arm_receive(conn);
        } else if !over && connection.paused && !connection.receive_cancelled {
            connection.receive_cancelled = true;
            connection.cancels += 1;
            let receive = CancelBuilder::user_data(Token::conn(conn, RECEIVE).0);
            let entry = opcode::AsyncCancel2::new(receive).build();
            self.push(entry.user_data(Token::conn(conn, CANCEL).0));
        }
    }

    /// Publishes buffers, then arms receives that found none: at most one for each buffer.
    pub(super) fn supply_buffers(&mut self) {
        if std::mem::take(&mut self.starved) {
            self.burst = self.burst.saturating_mul(2).min(self.options.buffers);
        }
        let useful = self.connections.len() * BUFFERS_PER_CONNECTION + SPARE_BUFFERS;
        let wanted = u16::try_from(useful).unwrap_or(u16::MAX).min(self.burst);
        self.buffers().publish(wanted);
        for _ in 0..self.buffers().published() {
            let Some(conn) = self.parked.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(conn) else { continue };
            if connection.receive == Receive::Parked {
                connection.receive = Receive::Idle;
                if !connection.paused && connection.leaving == Leaving::No {
                    self.arm_receive(conn);
                }
            }
        }
    }
}
