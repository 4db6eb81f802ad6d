//! Giving back the page cache of what is on disk: the log is not read again before the next start.
//!
//! The kernel then writes the next part of the log to the pages of the last one, which are in the processor's cache, where otherwise
//! it takes, and clears, ever new memory, until all of it is full of the log.
//!
//! # Safety
//! One system call with four numbers.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Advises the kernel that this range of a file is not needed in memory. Pages that are not on disk stay.
///
/// # Errors
/// The kernel's, for a file that has no such pages.
pub(super) fn let_go(file: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<()> {
    let number = |bytes: u64| libc::off_t::try_from(bytes).map_err(io::Error::other);
    let (start, length) = (number(range.start)?, number(range.end - range.start)?);
    // SAFETY: an open descriptor and numbers; no memory.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), start, length, libc::POSIX_FADV_DONTNEED) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    #[test]
    fn a_file_is_advised_about_and_a_pipe_is_not() {
        let file = std::fs::File::open(std::env::current_exe().expect("the test runs")).expect("it can be read");
        super::let_go(file.as_fd(), &(0..4096)).expect("a file has pages");
        assert!(super::let_go(file.as_fd(), &(0..u64::MAX)).is_err());
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert!(super::let_go(reader.as_fd(), &(0..4096)).is_err());
    }
}
