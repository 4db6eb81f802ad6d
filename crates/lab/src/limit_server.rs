//! The least that a RESP server can do on this kernel: what it reaches is the limit for any other.
//!
//! It reads, counts the commands that arrived, and answers each with one fixed reply. No arguments are parsed, there
//! is no keyspace; one thread, epoll, blocking sockets. A command is counted where a line starts with `*`, so values
//! that contain such a line would be miscounted: loads use values of one letter.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use crate::sys::{Epoll, Interest, deepen_backlog};

/// One read takes what Redis's does, so that large batches meet the same number of system calls.
const READ_BYTES: usize = 16 * 1024;
const LISTENER: u64 = u64::MAX;

/// Serves on loopback `port` for ever. The reply is a bulk string of `reply_bytes`, or `+OK` for `None`.
pub fn run(port: u16, reply_bytes: Option<usize>) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("port {port}"))?;
    deepen_backlog(&listener, 4096)?;
    let mut server = LimitServer {
        epoll: Epoll::new(1024)?,
        listener,
        connections: Vec::new(),
        input: vec![0; READ_BYTES],
        output: Vec::with_capacity(1 << 20),
        reply: fixed_reply(reply_bytes),
    };
    server.epoll.add(&server.listener, LISTENER, Interest::Read)?;
    loop {
        for event in 0..server.epoll.wait(-1)? {
            match server.epoll.token(event) {
                LISTENER => server.accept()?,
                token => server.serve(usize::try_from(token)?),
            }
        }
    }
}

struct LimitServer {
    epoll: Epoll,
    listener: TcpListener,
    connections: Vec<Option<TcpStream>>,
    input: Vec<u8>,
    output: Vec<u8>,
    reply: Vec<u8>,
}

impl LimitServer {
    fn accept(&mut self) -> Result<()> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => return Ok(()),
            Err(error) => return Err(error).context("accept"),
        };
        stream.set_nodelay(true)?;
        let slot = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        self.epoll.add(&stream, u64::try_from(slot)?, Interest::Read)?;
        if slot == self.connections.len() {
            self.connections.push(Some(stream));
        } else {
            self.connections[slot] = Some(stream);
        }
        Ok(())
    }

    /// Answers what has arrived on one connection; a connection that ends or fails is closed.
    fn serve(&mut self, slot: usize) {
        let Some(stream) = &mut self.connections[slot] else { return };
        let open = match stream.read(&mut self.input) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.output.clear();
                for _ in 0..count_commands(&self.input[..length]) {
                    self.output.extend_from_slice(&self.reply);
                }
                stream.write_all(&self.output).is_ok()
            }
        };
        if !open {
            self.connections[slot] = None;
        }
    }
}

fn count_commands(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'*', bytes).filter(|&at| at == 0 || bytes[at - 1] == b'\n').count()
}

fn fixed_reply(bytes: Option<usize>) -> Vec<u8> {
    let Some(bytes) = bytes else { return b"+OK\r\n".to_vec() };
    let mut reply = format!("${bytes}\r\n").into_bytes();
    reply.resize(reply.len() + bytes, b'x');
    reply.extend_from_slice(b"\r\n");
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_at_line_starts() {
        assert_eq!(count_commands(b"*2\r\n$3\r\nGET\r\n$1\r\n*\r\n*1\r\n$4\r\nPING\r\n"), 3);
        assert_eq!(count_commands(b"*1\r\n$4\r\na*b*\r\n"), 1);
        assert_eq!(count_commands(b""), 0);
    }

    #[test]
    fn replies_are_resp() {
        assert_eq!(fixed_reply(Some(3)), b"$3\r\nxxx\r\n");
        assert_eq!(fixed_reply(None), b"+OK\r\n");
    }
}
