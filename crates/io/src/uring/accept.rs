//! Accepting clients, and the waker: the two multishot operations that belong to no connection.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};

use super::ring::Cqe;
use super::{ACCEPT, Uring, WAKE};
use crate::table::Token;
use crate::{Completion, ListenerId, os};

/// A listening socket and its accept operation.
pub(super) struct Listener {
    pub(super) id: ListenerId,
    /// Distinguishes listeners that reuse an id in completions.
    pub(super) serial: u32,
    pub(super) socket: OwnedFd,
    pub(super) armed: bool,
    pub(super) cancels: u32,
    pub(super) leaving: bool,
    pub(super) retry_at: Option<Instant>,
}

/// How long accepting rests after an error such as `EMFILE`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl<const PAPERS: bool> Uring<PAPERS> {
    pub(super) fn arm_accept(&mut self, at: usize) {
        let listener = &mut self.listeners[at];
        (listener.armed, listener.retry_at) = (true, None);
        let fd = Fd(listener.socket.as_raw_fd());
        let token = Token::new(listener.id, listener.serial, ACCEPT).0;
        self.push(opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build().user_data(token));
    }

    fn listener_of(&self, token: Token) -> Option<usize> {
        self.listeners.iter().position(|listener| (listener.id, listener.serial) == (token.index(), token.generation()))
    }

    pub(super) fn accepted(&mut self, token: Token, cqe: Cqe) {
        let socket = os::owned(cqe.result).ok(); // Owned first, so that it is closed on every path.
        let Some(at) = self.listener_of(token) else { return };
        let listener = &mut self.listeners[at];
        let (id, leaving) = (listener.id, listener.leaving);
        listener.armed &= cqueue::more(cqe.flags);
        let over = !listener.armed;
        if leaving {
            return self.settle_listener(at);
        }
        let error = io::Error::from_raw_os_error(-cqe.result.min(0));
        if let Some(socket) = socket {
            self.counters.accepts += 1;
            self.finished.push_back(Completion::Accepted { listener: id, socket: socket.into() });
        } else if over && !os::is_client_error(&error) {
            listener.retry_at = Some(Instant::now() + ACCEPT_PAUSE);
            self.finished.push_back(Completion::AcceptFailed { listener: id, error });
            return;
        }
        if over {
            self.counters.rearms += 1;
            self.arm_accept(at);
        }
    }

    pub(super) fn cancelled_accept(&mut self, token: Token) {
        let Some(at) = self.listener_of(token) else { return };
        self.listeners[at].cancels -= 1;
        self.settle_listener(at);
    }

    pub(super) fn settle_listener(&mut self, at: usize) {
        let listener = &self.listeners[at];
        if listener.leaving && !listener.armed && listener.cancels == 0 {
            self.listeners.remove(at);
        }
    }

    /// Resumes listeners whose pause is over; returns the shorter of `timeout` and the time to the next one.
    pub(super) fn retry_listeners(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let mut timeout = timeout;
        for at in 0..self.listeners.len() {
            let Some(retry_at) = self.listeners[at].retry_at else { continue };
            let left = retry_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.counters.rearms += 1;
                self.arm_accept(at);
            } else {
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
        }
        timeout
    }

    /// A multishot poll is edge-triggered, as the waker needs it.
    pub(super) fn arm_waker(&mut self) {
        self.waker_armed = true;
        let fd = Fd(self.waker.event().expect("a kernel waker has an eventfd").as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        self.push(entry.user_data(Token::new(0, 0, WAKE).0));
    }

    pub(super) fn woken(&mut self, cqe: Cqe) {
        self.waker_armed = cqueue::more(cqe.flags);
        if !self.waker_armed && cqe.result != -libc::ECANCELED {
            self.counters.rearms += 1;
            self.arm_waker();
        }
        if self.waker.take() {
            self.counters.wakes += 1;
            self.finished.push_back(Completion::Woken);
        }
    }
}
