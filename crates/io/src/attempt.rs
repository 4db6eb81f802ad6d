//! Sending at once, without blocking: what epoll does first with every output and io_uring with large ones.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::{Counters, Output, os};

/// An attempt stops after this many bytes, so that one large reply does not hold up the worker, and so that what the kernel copies is
/// still in the cache when the peer reads it: with 1 MiB at once replies of 2 MiB took 1.5 times the processor time.
pub(crate) const SEND_BYTES: usize = 128 * 1024;
/// Slices offered to one `sendmsg`.
pub(crate) const SLICES: usize = 64;

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// Everything is sent.
    Done,
    /// The socket takes no more for now.
    Full,
    /// As much went as one attempt may send; the socket would take more.
    Enough,
}

/// Sends until one of the ends of an [`Attempt`].
pub(crate) fn send(socket: BorrowedFd<'_>, output: &mut Output, counters: &mut Counters) -> io::Result<Attempt> {
    send_within(SEND_BYTES, socket, output, counters)
}

/// As [`send`], with another number of bytes after which it is enough.
#[inline(always)]
pub(crate) fn send_within(
    most: usize,
    socket: BorrowedFd<'_>,
    output: &mut Output,
    counters: &mut Counters,
) -> io::Result<Attempt> {
    // Most outputs are short and go at once.
    if let Some(bytes) = output.contiguous().filter(|bytes| (1..=most).contains(&bytes.len()))
        && let Ok(sent) = os::send(socket, bytes)
    {
        counters.sends += 1;
        if sent == bytes.len() {
            output.clear();
            return Ok(Attempt::Done);
        }
        counters.short_sends += 1;
        output.advance(sent);
        return Ok(Attempt::Full);
    }
    send_in_pieces(most, socket, output, counters)
}

/// As [`send`], for what is long, in several places or cannot be sent.
fn send_in_pieces(
    most: usize,
    socket: BorrowedFd<'_>,
    output: &mut Output,
    counters: &mut Counters,
) -> io::Result<Attempt> {
    let mut budget = most;
    while !output.is_empty() && budget > 0 {
        let (offered, result) = if let Some(bytes) = output.contiguous() {
            let bytes = &bytes[..bytes.len().min(budget)];
            (bytes.len(), os::send(socket, bytes))
        } else {
            let mut room = [IoSlice::new(&[]); SLICES];
            let (filled, bytes) = output.iovecs(&mut room, budget);
            counters.vector_sends += 1;
            counters.slices += filled as u64;
            (bytes, os::send_slices(socket, &room[..filled]))
        };
        counters.sends += 1;
        match result {
            Ok(sent) => {
                output.advance(sent);
                budget -= sent;
                if sent < offered {
                    counters.short_sends += 1;
                    return Ok(Attempt::Full);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                counters.short_sends += 1;
                return Ok(Attempt::Full);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(if output.is_empty() { Attempt::Done } else { Attempt::Enough })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn what_the_socket_does_not_take_stays() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut counters = Counters::default();
        let value = Arc::new(vec![b'v'; 100_000]);
        let mut output = Output::with_head(b"head".to_vec());
        for _ in 0..100 {
            output.push_shared(Arc::clone(&value), 0..value.len());
        }
        let total = output.len();
        assert_eq!(send(near.as_fd(), &mut output, &mut counters).unwrap(), Attempt::Enough);
        assert_eq!(output.len(), total - SEND_BYTES);
        while send(near.as_fd(), &mut output, &mut counters).unwrap() == Attempt::Enough {}
        assert!(!output.is_empty() && output.len() < total);
        assert_eq!(counters.short_sends, 1);
        drop(far);
        let error = send(near.as_fd(), &mut output, &mut counters).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
