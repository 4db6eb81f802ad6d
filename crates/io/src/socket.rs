//! [`Socket`]: what engines are given and give back, a kernel socket or an end of a simulated connection.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sim::SimSocket;

/// A connected or listening socket, owned.
#[derive(Debug)]
pub struct Socket(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Fd(OwnedFd),
    Sim(SimSocket),
}

impl Socket {
    /// The descriptor, unless the socket is simulated.
    #[must_use]
    pub fn raw_fd(&self) -> Option<RawFd> {
        match &self.0 {
            Kind::Fd(fd) => Some(fd.as_raw_fd()),
            Kind::Sim(_) => None,
        }
    }

    /// The descriptor itself; `InvalidInput` if the socket is simulated.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        match self.0 {
            Kind::Fd(fd) => Ok(fd),
            Kind::Sim(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "a simulated socket has no descriptor")),
        }
    }

    /// The simulated end; `InvalidInput` if the socket is the kernel's.
    pub(crate) fn into_sim(self) -> io::Result<SimSocket> {
        match self.0 {
            Kind::Sim(socket) => Ok(socket),
            Kind::Fd(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "the simulation has no kernel sockets")),
        }
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Socket {
        Socket(Kind::Fd(fd))
    }
}
