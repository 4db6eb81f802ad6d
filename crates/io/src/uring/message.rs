//! [`Message`]: what a SENDMSG entry points to.
//!
//! # Safety
//! It points into an [`Output`] and into itself: its owner keeps both in place, and untouched, until the completion. It is
//! boxed, so that it does not move with its owner. Nothing is dereferenced here.

use crate::Output;
use crate::attempt::{SEND_BYTES, SLICES};

/// A message header and its vector.
pub(crate) struct Message {
    header: libc::msghdr,
    slices: [libc::iovec; SLICES],
}

impl Message {
    pub(crate) fn new() -> Box<Message> {
        // SAFETY: all-zero bytes are a valid msghdr and valid iovecs: null pointers with zero lengths.
        Box::new(unsafe { std::mem::zeroed() })
    }

    /// Points to the output's unsent bytes, up to the limits of one operation; how many slices and bytes those are.
    pub(crate) fn fill(&mut self, output: &Output) -> (usize, usize) {
        let (mut filled, mut bytes) = (0, 0);
        for (entry, slice) in self.slices.iter_mut().zip(output.slices()) {
            if bytes == SEND_BYTES {
                break;
            }
            let length = slice.len().min(SEND_BYTES - bytes);
            *entry = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: length };
            (filled, bytes) = (filled + 1, bytes + length);
        }
        self.header.msg_iov = self.slices.as_mut_ptr();
        self.header.msg_iovlen = filled;
        (filled, bytes)
    }

    pub(crate) fn header(&self) -> *const libc::msghdr {
        &raw const self.header
    }

    /// The vector alone, and its length.
    pub(crate) fn iovecs(&self) -> (*const libc::iovec, u32) {
        // SLICES fits.
        (self.slices.as_ptr(), self.header.msg_iovlen as u32)
    }
}
