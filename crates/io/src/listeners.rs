//! [`Listeners`]: listening sockets that an epoll instance watches.
//!
//! Watched level-triggered: the event stays current until the backlog is empty, so that a storm of clients is accepted in
//! one pass. A failure such as `EMFILE` takes the socket out of the epoll for a pause.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::table::Token;
use crate::{Completion, Counters, ListenerId, Socket, os};

#[derive(Default)]
pub(crate) struct Listeners(Vec<Listener>);

struct Listener {
    id: ListenerId,
    socket: OwnedFd,
    /// Set while accepting is suspended after an error.
    retry_at: Option<Instant>,
}

/// The operation in the tokens of their events.
pub(crate) const LISTENER: u8 = 1;

const READ: u32 = libc::EPOLLIN as u32;
/// How long accepting rests after an error such as `EMFILE`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Listeners {
    pub(crate) fn add(&mut self, poll: BorrowedFd<'_>, id: ListenerId, socket: Socket) -> io::Result<()> {
        let socket = socket.into_fd()?;
        // A client that gives up between the event and the accept must not block the worker.
        os::set_nonblocking(socket.as_fd(), true)?;
        os::epoll_control(poll, libc::EPOLL_CTL_ADD, socket.as_fd(), READ, Token::new(id, 0, LISTENER).0)?;
        self.0.push(Listener { id, socket, retry_at: None });
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: ListenerId) {
        self.0.retain(|listener| listener.id != id);
    }

    /// Accepts one client of a listener that had an event: what there is to report, and whether the event is dealt with.
    pub(crate) fn accept(
        &mut self,
        poll: BorrowedFd<'_>,
        id: ListenerId,
        counters: &mut Counters,
    ) -> (Option<Completion<'static>>, bool) {
        // It may have been given up since.
        let Some(listener) = self.0.iter_mut().find(|listener| listener.id == id) else { return (None, true) };
        match os::accept(listener.socket.as_fd()) {
            Ok(socket) => {
                counters.accepts += 1;
                (Some(Completion::Accepted { listener: id, socket: socket.into() }), false)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (None, true),
            Err(error) if os::is_client_error(&error) => (None, false),
            Err(error) => {
                listener.retry_at = Some(Instant::now() + ACCEPT_PAUSE);
                // Removal of what was added cannot fail; were it to, the next event would find the same error.
                let removed = os::epoll_control(poll, libc::EPOLL_CTL_DEL, listener.socket.as_fd(), 0, 0);
                debug_assert!(removed.is_ok());
                (Some(Completion::AcceptFailed { listener: id, error }), true)
            }
        }
    }

    /// Resumes listeners whose pause is over; returns the shorter of `timeout` and the time to the next one.
    pub(crate) fn retry(&mut self, poll: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        let mut timeout = timeout;
        for listener in &mut self.0 {
            let Some(at) = listener.retry_at else { continue };
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let token = Token::new(listener.id, 0, LISTENER).0;
                os::epoll_control(poll, libc::EPOLL_CTL_ADD, listener.socket.as_fd(), READ, token)?;
                listener.retry_at = None;
            } else {
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
        }
        Ok(timeout)
    }
}
