//! Leaving: a connection is cancelled, waited for, and only then closed or handed out.
//!
//! Closing a descriptor does not end the operations on it, and its number may be taken by the next client while an
//! operation or a cancellation by descriptor is still queued. So the slot waits for all of them.

use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::types::{CancelBuilder, Fd};

use super::ring::Cqe;
use super::{CANCEL, Leaving, Uring};
use crate::table::Token;
use crate::{Completion, ConnId};

impl<const PAPERS: bool> Uring<PAPERS> {
    pub(super) fn leave(&mut self, conn: ConnId, leaving: Leaving) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.leaving != Leaving::No {
            return;
        }
        connection.leaving = leaving;
        if connection.in_flight() {
            self.cancel_all_of(conn);
        } else {
            self.settle(conn);
        }
    }

    fn cancel_all_of(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.cancels += 1;
        let all = CancelBuilder::fd(Fd(connection.socket.as_raw_fd())).all();
        self.push(opcode::AsyncCancel2::new(all).build().user_data(Token::conn(conn, CANCEL).0));
    }

    /// A cancellation can miss an operation that is just completing; if it goes on after all, it is tried again.
    pub(super) fn cancelled(&mut self, token: Token, cqe: Cqe) {
        let Some(conn) = self.connections.resolve(token) else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.cancels -= 1;
        let missed = cqe.result <= 0 && connection.cancels == 0;
        if missed {
            connection.receive_cancelled = false;
        }
        if missed && connection.leaving != Leaving::No && connection.in_flight() {
            self.cancel_all_of(conn);
        } else {
            self.settle(conn);
        }
    }

    /// Lets a leaving connection go if nothing of it is in flight.
    pub(super) fn settle(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get(conn) else { return };
        if connection.leaving == Leaving::No || connection.in_flight() {
            return;
        }
        let Some(connection) = self.connections.remove(conn) else { return };
        self.finished.push_back(match connection.leaving {
            Leaving::Detaching => Completion::Detached { conn, socket: connection.socket.into() },
            _ => Completion::Closed { conn },
        });
    }
}
