//! [`Socket`]: what engines are given and give back, a kernel socket or an end of a simulated connection.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A connected or listening socket, owned.
#[derive(Debug)]
pub struct Socket(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Fd(OwnedFd),
}

impl Socket {
    /// The descriptor, unless the socket is simulated.
    #[must_use]
    pub fn raw_fd(&self) -> Option<RawFd> {
        match &self.0 {
            Kind::Fd(fd) => Some(fd.as_raw_fd()),
        }
    }

    /// The descriptor itself; `InvalidInput` if the socket is simulated.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        match self.0 {
            Kind::Fd(fd) => Ok(fd),
        }
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Socket {
        Socket(Kind::Fd(fd))
    }
}
