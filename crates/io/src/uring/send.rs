//! Sending: one operation in flight per connection, SEND for one piece and SENDMSG for several.
//!
//! The kernel is asked to send all (MSG_WAITALL), so that a full socket costs one completion, not one per piece; what
//! is short all the same goes on from here.
//!
//! # Safety
//! The operation's memory is the slot's [`Output`](crate::Output) and [`Message`], which stay until the completion.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::types::Fd;

use super::message::Message;
use super::ring::Cqe;
use super::{Leaving, POLL_OUT, SEND, Uring, WriteBy};
use crate::attempt::SEND_BYTES;
use crate::table::Token;
use crate::{Completion, ConnId};

const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

impl<const PAPERS: bool> Uring<PAPERS> {
    pub(super) fn push_send(&mut self, conn: ConnId) {
        if PAPERS && self.papers.write == WriteBy::Writev {
            return self.push_writev(conn);
        }
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(output) = connection.output.as_ref() else { return };
        let fd = Fd(connection.socket.as_raw_fd());
        let entry = if let Some(bytes) = output.contiguous() {
            let length = bytes.len().min(SEND_BYTES) as u32; // SEND_BYTES fits.
            opcode::Send::new(fd, bytes.as_ptr(), length).flags(FLAGS).build()
        } else {
            let mut message = connection.message.take().or_else(|| self.messages.pop()).unwrap_or_else(Message::new);
            let (slices, _) = message.fill(output);
            self.counters.vector_sends += 1;
            self.counters.slices += slices as u64;
            let header = message.header();
            connection.message = Some(message);
            opcode::SendMsg::new(fd, header).flags(FLAGS as u32).build()
        };
        self.counters.sends += 1;
        self.push(entry.user_data(Token::conn(conn, SEND).0));
    }

    pub(super) fn sent(&mut self, token: Token, cqe: Cqe) {
        let Some(conn) = self.connections.resolve(token) else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(output) = connection.output.as_mut() else { return };
        let result = match cqe.result {
            count @ 0.. => {
                output.advance(count.unsigned_abs() as usize);
                Ok(())
            }
            error if matches!(-error, libc::EINTR | libc::EAGAIN) => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        if result.is_ok() && !output.is_empty() && connection.leaving == Leaving::No {
            self.counters.short_sends += 1;
            if PAPERS && self.papers.write == WriteBy::Writev {
                return self.push_poll(conn, POLL_OUT);
            }
            return self.push_send(conn);
        }
        let cut_off = result.is_ok() && !output.is_empty();
        let result = if cut_off { Err(io::Error::from_raw_os_error(libc::ECANCELED)) } else { result };
        self.messages.extend(connection.message.take());
        if let Some(mut output) = connection.output.take() {
            output.clear();
            self.finished.push_back(Completion::Sent { conn, output, result });
        }
        self.settle(conn);
    }
}
