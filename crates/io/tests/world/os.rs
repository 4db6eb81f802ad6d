//! Socket options that the standard library does not offer.
//!
//! # Safety
//! Each call passes a pointer to a local that outlives it, with its true length.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The smallest send buffer that the kernel allows (it raises what is asked for).
pub fn shrink_send_buffer(socket: &impl AsFd) {
    set(socket, libc::SO_SNDBUF, &1i32);
}

/// Closing this socket will send a reset instead of ending the stream in order.
pub fn reset_on_close(socket: &impl AsFd) {
    set(socket, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
}

fn set<T>(socket: &impl AsFd, option: i32, value: &T) {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: value is a plain option struct that outlives the call, and length is its size.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, std::ptr::from_ref(value).cast(), length) };
    assert_eq!(result, 0, "setsockopt {option}: {}", io::Error::last_os_error());
}
