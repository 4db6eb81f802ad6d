//! When parts are submitted, and as which entries.
//!
//! # Safety
//! The memory that an entry points to is that of a part of a connection, which stays until its completion; see the module.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fd;

use super::{IN_FLIGHT, Order, Part, SEND, Submit, UringSend};
use crate::attempt::SEND_BYTES;
use crate::table::Token;
use crate::uring::message::Message;
use crate::{Completion, ConnId, Engine, Output};

impl UringSend {
    /// Parts of this connection, so many of them new, are to be submitted.
    pub(super) fn has_waiting(&mut self, conn: ConnId, parts: usize) {
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        self.waiting += parts;
        if !std::mem::replace(&mut sending.is_dirty, true) {
            self.dirty.push(conn);
        }
        if !self.options.interval.is_zero() && self.waiting_since.is_none() {
            self.waiting_since = Some(Instant::now());
        }
    }

    /// Connections of which epoll said that they have room go on.
    pub(super) fn look_for_room(&mut self) {
        for conn in std::mem::take(&mut self.level.roomy) {
            let Some(sending) = self.sendings.get_mut(conn) else { continue };
            sending.awaits_room = false;
            let parts = sending.parts.len();
            self.has_waiting(conn, parts);
        }
    }

    /// Submits, if it is time, what waits; returns how long the wait to come may be.
    pub(super) fn submit_what_is_due(&mut self, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        let mut timeout = timeout;
        let (threshold, interval) = (self.options.threshold, self.options.interval);
        if self.options.submit == Submit::Sequential {
            for conn in std::mem::take(&mut self.dirty) {
                if let Some((output, result)) = self.submit_and_await(conn) {
                    self.level.finished(Completion::Sent { conn, output, result });
                }
            }
        }
        let is_enough = threshold > 0 && self.waiting >= threshold;
        let left = interval.saturating_sub(self.waiting_since.map_or(Duration::ZERO, |since| since.elapsed()));
        if self.dirty.is_empty() || is_enough || interval.is_zero() && threshold == 0 {
            self.submit()?;
        } else if !left.is_zero() {
            timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
        } else if interval.is_zero() {
            // There may be more to read, and to reply to; if not, nothing is worth waiting for.
            self.level.wait(Some(Duration::ZERO))?;
            if !self.level.is_at_hand() {
                self.submit()?;
            }
        } else {
            self.submit()?;
        }
        let goes_on = interval.is_zero() && !self.dirty.is_empty();
        Ok(if goes_on { Some(Duration::ZERO) } else { timeout })
    }

    /// Submits all parts that may be, by one system call unless the ring is too small for them, and takes what has come of it.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        (self.waiting, self.waiting_since) = (0, None);
        for conn in std::mem::take(&mut self.dirty) {
            self.push_parts(conn)?;
        }
        self.enter()?;
        self.take_completions();
        Ok(())
    }

    /// Submits what is queued; no system call if that is nothing.
    fn enter(&mut self) -> io::Result<()> {
        self.counters.submits += u64::from(std::mem::take(&mut self.queued) > 0);
        self.ring.submit_and_wait(false, None)
    }

    /// Queues the entries of a connection: a chain, if the kernel is to keep its replies in order.
    fn push_parts(&mut self, conn: ConnId) -> io::Result<()> {
        let is_kernels = self.options.order == Order::Kernel;
        let Some(sending) = self.sendings.get_mut(conn) else { return Ok(()) };
        sending.is_dirty = false;
        if sending.is_closing || sending.is_broken || sending.awaits_room {
            return Ok(());
        }
        // Behind what the kernel has or has sent.
        let from =
            sending.parts.iter().rposition(|part| part.is_submitted || part.output.is_empty()).map_or(0, |at| at + 1);
        let most = if is_kernels { IN_FLIGHT } else { 1 };
        let parts = (sending.parts.len() - from).min(most.saturating_sub(sending.in_flight));
        // One that is longer than what an entry sends ends its chain: its rest comes before the next.
        let long = sending.parts.range(from..from + parts).position(|part| part.output.len() > SEND_BYTES);
        let mut chain = long.map_or(parts, |at| at + 1);
        // A chain ends with what is submitted together.
        if self.ring.room() < chain {
            self.enter()?;
            chain = chain.min(self.ring.room());
        }
        for at in 0..chain {
            let mut flags = Flags::empty();
            if is_kernels && at + 1 < chain {
                flags |= Flags::IO_LINK;
                self.counters.links += 1;
            }
            if is_kernels && self.queued == 0 {
                flags |= Flags::IO_DRAIN;
                self.counters.drains += 1;
            }
            self.push_part(conn, from + at, flags);
        }
        Ok(())
    }

    fn push_part(&mut self, conn: ConnId, at: usize, flags: Flags) {
        let wait = if self.is_patient() { 0 } else { libc::MSG_DONTWAIT };
        let (Some(sending), Some(socket)) = (self.sendings.get_mut(conn), self.level.socket(conn)) else { return };
        let fd = Fd(socket.as_raw_fd());
        let Some(part) = sending.parts.get_mut(at) else { return };
        if part.output.contiguous().is_none() && part.message.is_none() {
            part.message = Some(self.messages.pop().unwrap_or_else(Message::new));
        }
        let (entry, slices) = part.entry(fd, libc::MSG_NOSIGNAL | libc::MSG_WAITALL | wait);
        part.is_submitted = true;
        sending.in_flight += 1;
        self.queued += 1;
        let token = Token::conn(conn, SEND | part.number);
        self.counters.sends += 1;
        self.counters.ring_sends += 1;
        if slices > 1 {
            self.counters.vector_sends += 1;
            self.counters.slices += slices as u64;
        }
        // SAFETY: the part's bytes stay where they are, and are not touched, until its completion; a message is boxed.
        unsafe { self.ring.push(entry.user_data(token.0).flags(flags)) };
    }

    /// Whether the kernel waits for room in a full socket; else epoll does.
    pub(super) fn is_patient(&self) -> bool {
        self.options.order == Order::App && self.options.submit != Submit::Sequential
    }

    /// Submits the one part of this connection and waits until it is sent, again and again until nothing is left or the
    /// socket is full.
    pub(super) fn submit_and_await(&mut self, conn: ConnId) -> Option<(Output, io::Result<()>)> {
        loop {
            let pushed = self.push_parts(conn);
            let mut result = pushed;
            while result.is_ok() && self.sendings.get(conn).is_some_and(|sending| sending.in_flight > 0) {
                self.counters.submits += u64::from(std::mem::take(&mut self.queued) > 0);
                self.counters.submit_waits += 1;
                result = self.ring.submit_and_wait(true, None);
                self.take_completions();
            }
            // What the kernel has not taken stays queued: the next wait tries again, and reports.
            result.ok()?;
            let sending = self.sendings.get_mut(conn)?;
            sending.is_broken = false;
            let result = match sending.error.take() {
                Some(error) => Err(error),
                None if sending.parts.front()?.output.is_empty() => Ok(()),
                None if sending.awaits_room => match self.level.await_room(conn) {
                    Ok(()) => return None,
                    error => error,
                },
                None => continue,
            };
            let mut part = self.sendings.get_mut(conn)?.parts.pop_front()?;
            self.messages.extend(part.message.take());
            part.output.clear();
            return Some((part.output, result));
        }
    }
}

impl Part {
    /// The entry that sends what is left, up to the limits of one, and from how many places.
    fn entry(&mut self, fd: Fd, flags: i32) -> (Entry, usize) {
        if let Some(bytes) = self.output.contiguous() {
            self.offered = bytes.len().min(SEND_BYTES);
            let entry = opcode::Send::new(fd, bytes.as_ptr(), self.offered as u32); // SEND_BYTES fits.
            return (entry.flags(flags).build(), 1);
        }
        let message = self.message.get_or_insert_with(Message::new);
        let (slices, bytes) = message.fill(&self.output);
        self.offered = bytes;
        (opcode::SendMsg::new(fd, message.header()).flags(flags as u32).build(), slices)
    }
}
