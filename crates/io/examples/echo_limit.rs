//! What an engine costs by itself: a server that counts the commands that arrive and answers each with one fixed reply,
//! like the plain epoll loop in C that is taken as the limit of this kernel.
//!
//! usage: `echo_limit PORT REPLY_BYTES uring|epoll [OPTION...]`   (`REPLY_BYTES` -1 answers `+OK`)
//! options: `defer`, `coop` (task work), `sync`, `async` (the ring engine sends at once, or never), `batch` (send after
//! the pass instead of after each receive: on epoll 3 to 5 % faster with pipelines), `buffers=N`, `bytes=N`, `sq=N`,
//! `cq=N`, `stats` (counters on standard error, each second)

#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gimmal_io::{Completion, ConnId, Engine, Epoll, Output, TaskRun, Uring, UringOptions};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, reply_bytes, engine, options @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: echo_limit PORT REPLY_BYTES uring|epoll [OPTION...]"));
    };
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let value: i32 = reply_bytes.parse().map_err(io::Error::other)?;
    let mut uring = UringOptions::default();
    let (mut batch, mut stats) = (false, false);
    for option in options {
        let number = |text: &str| text.parse::<u32>().map_err(io::Error::other);
        match option.split_once('=') {
            Some(("buffers", n)) => uring.buffers = n.parse().map_err(io::Error::other)?,
            Some(("bytes", n)) => uring.buffer_bytes = number(n)?,
            Some(("sq", n)) => uring.sq_entries = number(n)?,
            Some(("cq", n)) => uring.cq_entries = number(n)?,
            _ => match option.as_str() {
                "defer" => uring.task_run = TaskRun::Defer,
                "coop" => uring.task_run = TaskRun::Coop,
                "sync" => uring.sync_send_bytes = 0,
                "async" => uring.sync_send_bytes = usize::MAX,
                "batch" => batch = true,
                "stats" => stats = true,
                _ => return Err(io::Error::other(format!("unknown option {option}"))),
            },
        }
    }
    let engine: Box<dyn Engine> = match engine.as_str() {
        "uring" => Box::new(Uring::new(uring)?),
        "epoll" => Box::new(Epoll::new()?),
        _ => return Err(io::Error::other("the engine is uring or epoll")),
    };
    let reply = match usize::try_from(value) {
        Ok(length) => format!("${length}\r\n{}\r\n", "x".repeat(length)).into_bytes(),
        Err(_) => b"+OK\r\n".to_vec(),
    };
    Server { engine, reply, connections: Vec::new(), dirty: Vec::new(), pool: Vec::new(), batch }.run(port, stats)
}

struct Server {
    engine: Box<dyn Engine>,
    reply: Vec<u8>,
    connections: Vec<Connection>,
    dirty: Vec<ConnId>,
    /// Outputs that came back; the last is the hottest in the cache.
    pool: Vec<Output>,
    batch: bool,
}

#[derive(Default)]
struct Connection {
    generation: u32,
    open: bool,
    sending: bool,
    dirty: bool,
    replies: usize,
}

impl Server {
    fn run(mut self, port: u16, stats: bool) -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        self.engine.listen(0, OwnedFd::from(listener).into())?;
        let mut reported = Instant::now();
        loop {
            self.engine.wait(stats.then_some(Duration::from_secs(1)))?;
            self.pass()?;
            for conn in std::mem::take(&mut self.dirty) {
                self.flush(conn);
            }
            if stats && reported.elapsed() >= Duration::from_secs(1) {
                eprintln!("{:?}", self.engine.counters());
                reported = Instant::now();
            }
        }
    }

    fn pass(&mut self) -> io::Result<()> {
        while let Some(completion) = self.engine.next() {
            match completion {
                Completion::Received { conn, data } | Completion::Parsed { conn, data, .. } => {
                    let commands = count_commands(data);
                    let connection = &mut self.connections[conn.index as usize];
                    connection.replies += commands;
                    if connection.sending || connection.dirty {
                        continue;
                    }
                    if self.batch {
                        connection.dirty = true;
                        self.dirty.push(conn);
                    } else {
                        self.flush(conn);
                    }
                }
                Completion::Sent { conn, output, result } => {
                    let connection = &mut self.connections[conn.index as usize];
                    connection.sending = false;
                    self.pool.push(output);
                    match result {
                        Ok(()) if connection.replies > 0 => self.flush(conn),
                        Ok(()) => {}
                        Err(_) => self.engine.close(conn),
                    }
                }
                Completion::Accepted { socket, .. } => {
                    let stream = TcpStream::from(socket.into_fd()?);
                    stream.set_nodelay(true)?;
                    let conn = self.slot();
                    self.engine.attach(conn, OwnedFd::from(stream).into())?;
                }
                Completion::ReceiveEnded { conn, .. } => self.engine.close(conn),
                Completion::Closed { conn } => self.connections[conn.index as usize].open = false,
                Completion::AcceptFailed { error, .. } => eprintln!("accept: {error}"),
                Completion::Detached { .. } | Completion::Woken => {}
            }
        }
        Ok(())
    }

    fn slot(&mut self) -> ConnId {
        let index = self.connections.iter().position(|connection| !connection.open).unwrap_or_else(|| {
            self.connections.push(Connection::default());
            self.connections.len() - 1
        });
        let generation = self.connections[index].generation + 1;
        self.connections[index] = Connection { generation, open: true, ..Connection::default() };
        ConnId { index: u32::try_from(index).expect("fewer connections than descriptors"), generation }
    }

    fn flush(&mut self, conn: ConnId) {
        let connection = &mut self.connections[conn.index as usize];
        connection.dirty = false;
        if connection.replies == 0 || !connection.open {
            return;
        }
        let mut output = self.pool.pop().unwrap_or_default();
        for _ in 0..std::mem::take(&mut connection.replies) {
            output.bytes_mut().extend_from_slice(&self.reply);
        }
        match self.engine.send(conn, output) {
            None => connection.sending = true,
            Some((output, Ok(()))) => self.pool.push(output),
            Some((_, Err(_))) => self.engine.close(conn),
        }
    }
}

fn count_commands(data: &[u8]) -> usize {
    memchr::memchr_iter(b'*', data).filter(|&at| at == 0 || data[at - 1] == b'\n').count()
}
