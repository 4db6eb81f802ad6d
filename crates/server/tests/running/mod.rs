//! The real binary as a child process on a free port, and blocking clients of it: what the tests of limits, fairness and
//! fallbacks share.

// Each test uses a part of this.
#![allow(dead_code)]

use gimmal_lab::process::{ServerProcess, ServerSpec};
use gimmal_resp::{Reply, ReplyReader, encode_command};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The binary under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_gimmal-server");
/// How long a reply may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed when dropped.
pub struct Running {
    process: ServerProcess,
}

impl Running {
    /// Starts the server with these arguments, separated by blanks, beside those that every test wants.
    pub fn start(arguments: &str) -> Running {
        let mut last = None;
        // Another process may take the port between its choice and its use.
        for _ in 0..5 {
            let port = free_port();
            let spec = ServerSpec { name: "gimmal".into(), port, argv: command_line(port, arguments) };
            match ServerProcess::start(&spec, None, &std::env::temp_dir()) {
                Ok(process) => {
                    let server = Running { process };
                    server.await_log("Ready to accept connections");
                    return server;
                }
                Err(error) => last = Some(error),
            }
        }
        panic!("the server does not start: {:#}", last.expect("five attempts failed"));
    }

    /// A new client.
    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.process.port())).expect("the server accepts");
        Client::new(stream)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.process.port()
    }

    /// The process.
    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// Ends it as a power cut would, for all that the process can tell.
    pub fn kill(&self) {
        let killed = Command::new("kill").args(["-9", &self.process.pid().to_string()]).status();
        assert!(killed.expect("there is a kill").success(), "the server was alive");
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.process.printed()
    }

    /// Its resident memory in MiB.
    pub fn rss_mib(&self) -> u64 {
        self.process.rss_bytes().expect("the server lives") >> 20
    }

    /// The most it ever had, in MiB.
    pub fn peak_rss_mib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = std::fs::read_to_string(path).expect("the server lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("every process has a VmHWM");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        kib >> 10
    }

    /// Waits until the log has a line with this text.
    pub fn await_log(&self, text: &str) {
        let started = Instant::now();
        while !self.log().contains(text) {
            assert!(started.elapsed() < PATIENCE, "the log never said {text:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The binary and its arguments.
pub fn command_line(port: u16, arguments: &str) -> Vec<String> {
    let port = port.to_string();
    let fixed = [PROGRAM, "--port", &port, "--save", ""];
    fixed.into_iter().chain(arguments.split_whitespace()).map(String::from).collect()
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.expect("a free port").port()
}

/// A directory of this test's own; removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty one.
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("gimmal-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What a test that failed has left is worth a look.
        if !std::thread::panicking() {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }
}

/// A blocking client.
pub struct Client {
    /// Its socket.
    pub stream: TcpStream,
    reader: ReplyReader,
}

impl Client {
    /// A client on an open connection.
    pub fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a legal timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a legal timeout");
        stream.set_nodelay(true).expect("a TCP socket");
        Client { stream, reader: ReplyReader::default() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// As `send`; false if the server has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) if is_reset(&error) => false,
            Err(error) => panic!("the server does not read: {error}"),
        }
    }

    /// Sends a command and returns its reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Reply {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, words);
        self.send(&bytes);
        self.reply()
    }

    /// As `call`, of words separated by blanks.
    pub fn ask(&mut self, line: &str) -> Reply {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call(&words)
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        self.next_reply().expect("a reply, not the end")
    }

    /// The next reply, or none if the server closed or reset the connection.
    pub fn next_reply(&mut self) -> Option<Reply> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some(reply) = self.reader.next_reply().expect("a legal stream of replies") {
                return Some(reply);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.reader.feed(&chunk[..count]),
                // The kernel wakes threads of a process whose rings end.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_reset(&error) => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The next reply, if it comes in this time.
    pub fn try_reply(&mut self, patience: Duration) -> Option<Reply> {
        let mut chunk = vec![0; 64 * 1024];
        let deadline = Instant::now() + patience;
        self.stream.set_nonblocking(true).expect("an open socket");
        let reply = loop {
            if let Some(reply) = self.reader.next_reply().expect("a legal stream of replies") {
                break Some(reply);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => break None,
                Ok(count) => self.reader.feed(&chunk[..count]),
                Err(_) if Instant::now() >= deadline => break None,
                Err(_) => std::thread::sleep(Duration::from_micros(100)),
            }
        };
        self.stream.set_nonblocking(false).expect("an open socket");
        reply
    }

    /// Waits until the server has closed the connection; whatever still comes is dropped. False: it did not.
    pub fn is_closed_within(&mut self, time: Duration) -> bool {
        let started = Instant::now();
        let mut chunk = vec![0; 64 * 1024];
        while let Some(left) = time.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
            self.stream.set_read_timeout(Some(left)).expect("a legal timeout");
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return is_reset(&error),
            }
        }
        false
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// The text of an error reply.
pub fn error_text(reply: &Reply) -> String {
    assert!(reply.is_error(), "no error: {reply:?}");
    String::from_utf8_lossy(reply.as_bytes().expect("an error has a text")).into_owned()
}

/// Whether the server knows the command; says so if not, since what needs it is then not run.
pub fn knows(client: &mut Client, line: &str, what: &str) -> bool {
    let reply = client.ask(line);
    let unknown = reply.is_error() && error_text(&reply).starts_with("ERR unknown command");
    if unknown {
        eprintln!("not run: {what}: the server has no {}", line.split(' ').next().unwrap_or_default());
    }
    !unknown
}

/// The reply to what was done.
pub fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// A field of INFO persistence.
pub fn info(client: &mut Client, field: &str) -> String {
    let reply = client.ask("INFO persistence");
    let text = String::from_utf8_lossy(reply.as_bytes().expect("a text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

/// Such a field, as a number.
pub fn number(client: &mut Client, field: &str) -> u64 {
    info(client, field).parse().expect("a number")
}

/// Waits until such a field has this value.
pub fn await_info(client: &mut Client, field: &str, value: &str) {
    let started = Instant::now();
    while info(client, field) != value {
        assert!(started.elapsed() < PATIENCE, "{field} never was {value}, but {}", info(client, field));
        std::thread::sleep(Duration::from_millis(5));
    }
}
