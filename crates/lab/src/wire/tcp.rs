//! Scripts over TCP on loopback.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::runner::{Network, Received, Transport};

/// A server that listens on a loopback port.
pub struct TcpNetwork {
    /// The port.
    pub port: u16,
}

impl Network for TcpNetwork {
    type Connection = TcpStream;

    fn connect(&mut self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn pause(&mut self, time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }
}

impl Transport for TcpStream {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.write_all(bytes) {
            // What the server said before it closed is still to be read, and is what a script looks at.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(()),
            result => result,
        }
    }

    fn receive(&mut self, within: Duration) -> io::Result<Received> {
        // The kernel knows no timeout of zero; one that short asks only for what is there.
        self.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let mut chunk = [0; 64 * 1024];
        // Stopped and continued, as by a debugger, a wait ends early: that is no silence.
        let received = loop {
            match self.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received,
            }
        };
        match received {
            Ok(0) => Ok(Received::Closed),
            Ok(length) => Ok(Received::Bytes(chunk[..length].to_vec())),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Received::Nothing),
                ErrorKind::ConnectionReset => Ok(Received::Closed),
                _ => Err(error),
            },
        }
    }
}
