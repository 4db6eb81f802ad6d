//! System calls on sockets, epoll and eventfd, as safe functions. Nothing here keeps state.
//!
//! # Safety
//! Each block passes pointers to memory that is borrowed for the duration of the call, with its true length, or turns a
//! descriptor that the kernel has just created into the only owner of it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The C library's own functions for sending and receiving are points where a thread may be cancelled, and say so to each
/// other by two locked instructions a call, 1 % of a small request. Nobody cancels threads here.
const NULL: *const libc::c_void = std::ptr::null();

/// Receives without blocking, whatever the socket's mode. Zero is end of file.
pub(crate) fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (fd, pointer) = (socket.as_raw_fd(), buffer.as_mut_ptr());
    // SAFETY: pointer and length are those of a mutable slice that outlives the call; null says that no address is wanted.
    let count = unsafe { libc::syscall(libc::SYS_recvfrom, fd, pointer, buffer.len(), libc::MSG_DONTWAIT, NULL, NULL) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Sends without blocking and without SIGPIPE.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (fd, pointer) = (socket.as_raw_fd(), bytes.as_ptr());
    // SAFETY: pointer and length are those of a slice that outlives the call; null says that there is no address.
    let count = unsafe { libc::syscall(libc::SYS_sendto, fd, pointer, bytes.len(), flags, NULL, 0usize) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// [`send`] for bytes in several places.
pub(crate) fn send_slices(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: all-zero bytes are a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: IoSlice is ABI-compatible with iovec; the slices outlive the call, which does not write to them.
    let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Accepts one connection: blocking mode, closed on exec.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: null address pointers are allowed: the address is not wanted.
    let fd =
        unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    owned(fd)
}

/// Whether an error of `accept` concerns only the one client, so that the next can be accepted at once.
pub(crate) fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EAGAIN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::EPERM
        )
    )
}

/// Ends the outgoing stream.
pub(crate) fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) })
}

/// Sets or clears `O_NONBLOCK`, which belongs to the open file: clones share it.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    check(flags.min(0))?;
    let wanted = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    if wanted == flags {
        return Ok(());
    }
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, wanted) })
}

/// The socket's address family, such as `AF_INET` or `AF_UNIX`; an error if it is no socket.
pub(crate) fn domain(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value and length are live, and length says how large value is.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// A new eventfd; writes to it never block in practice, as nothing comes near its limit.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Adds one to an eventfd.
pub(crate) fn eventfd_write(event: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: pointer and length are those of an array that outlives the call.
    let count = unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    // Cannot fail on a descriptor that we own, short of 2^64 wakes; a lost wake would hang a worker.
    assert_eq!(count, 8, "eventfd write: {}", io::Error::last_os_error());
}

/// A new epoll instance.
pub(crate) fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Adds, changes or removes (`operation` is an `EPOLL_CTL_` constant) what is watched for a descriptor.
pub(crate) fn epoll_control(
    poll: BorrowedFd<'_>,
    operation: i32,
    fd: BorrowedFd<'_>,
    events: u32,
    token: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: token };
    // SAFETY: the event outlives the call, which copies it.
    check(unsafe { libc::epoll_ctl(poll.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) })
}

/// Waits for events; `None` waits without limit. Returns how many of `events` were filled. `EINTR` is zero events.
///
/// `epoll_pwait2` (kernel 5.11) has timeouts finer than a millisecond; where it is missing they are rounded up.
pub(crate) fn epoll_wait(
    poll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
    let count = match timeout {
        Some(timeout) if !timeout.is_zero() => epoll_pwait2(poll, events, room, timeout),
        // SAFETY: pointer and room are those of a mutable slice that outlives the call.
        _ => unsafe {
            let timeout_ms = if timeout.is_none() { -1 } else { 0 };
            libc::epoll_wait(poll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms)
        },
    };
    usize::try_from(count).or_else(|_| {
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
    })
}

fn epoll_pwait2(poll: BorrowedFd<'_>, events: &mut [libc::epoll_event], room: i32, timeout: Duration) -> i32 {
    let spec = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // SAFETY: pointer and room are those of a mutable slice, which like the timespec outlives the call; a null signal
    // mask is allowed.
    let count =
        unsafe { libc::epoll_pwait2(poll.as_raw_fd(), events.as_mut_ptr(), room, &raw const spec, std::ptr::null()) };
    if count >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
        return count;
    }
    let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: as above.
    unsafe { libc::epoll_wait(poll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) }
}

/// Takes a descriptor that the kernel has just returned from an operation into ownership.
pub(crate) fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd.min(0))?;
    // SAFETY: the callers pass only what a creating system call returned, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The running kernel's major and minor version; zeros if its name is not of that form.
pub(crate) fn kernel_version() -> (u32, u32) {
    // SAFETY: all-zero bytes are a valid utsname: arrays of characters.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: name outlives the call.
    if unsafe { libc::uname(&raw mut name) } != 0 {
        return (0, 0);
    }
    // SAFETY: uname ends the release with a zero byte.
    let release = unsafe { std::ffi::CStr::from_ptr(name.release.as_ptr()) };
    let release = release.to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn sockets_are_used_without_blocking_whatever_their_mode() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut buffer = [0; 16];
        let error = recv(near.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(send_slices(far.as_fd(), &[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(), 3);
        assert_eq!(recv(near.as_fd(), &mut buffer).unwrap(), 3);
        shutdown_write(far.as_fd()).unwrap();
        assert_eq!(recv(near.as_fd(), &mut buffer).unwrap(), 0);
        assert_eq!(domain(near.as_fd()).unwrap(), libc::AF_UNIX);
    }

    #[test]
    fn the_kernel_has_a_version() {
        assert!(kernel_version().0 >= 4);
    }

    #[test]
    fn an_eventfd_wakes_an_epoll_once_per_write_though_it_is_never_read() {
        let (poll, event) = (epoll_create().unwrap(), eventfd().unwrap());
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        epoll_control(poll.as_fd(), libc::EPOLL_CTL_ADD, event.as_fd(), events, 7).unwrap();
        let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 4];
        for _ in 0..3 {
            eventfd_write(event.as_fd());
            assert_eq!(epoll_wait(poll.as_fd(), &mut ready, None).unwrap(), 1);
            assert_eq!({ ready[0].u64 }, 7);
            assert_eq!(epoll_wait(poll.as_fd(), &mut ready, Some(Duration::ZERO)).unwrap(), 0);
        }
        assert_eq!(epoll_wait(poll.as_fd(), &mut ready, Some(Duration::from_micros(50))).unwrap(), 0);
    }
}
