//! Plays one case over a network and compares what comes back.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use super::pattern::{Variables, describe, expand};
use super::script::{Action, Case, Script, Step};
use super::{Pattern, Protocol};
use crate::reply::{self, Reply};

/// A client's connection.
pub trait Transport {
    /// Sends all bytes.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits for bytes, at most `within`.
    fn receive(&mut self, within: Duration) -> io::Result<Received>;
}

/// What a wait brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// At least one byte.
    Bytes(Vec<u8>),
    /// Nothing in time.
    Nothing,
    /// The server has closed the connection.
    Closed,
}

/// Where connections and time come from.
pub trait Network {
    /// Its connections.
    type Connection: Transport;
    /// Opens one to the server under test.
    fn connect(&mut self) -> io::Result<Self::Connection>;
    /// Lets time pass, with the server running.
    fn pause(&mut self, time: Duration) -> io::Result<()>;
}

/// Why a case failed.
#[derive(Debug)]
pub struct Failure {
    /// The line of the script.
    pub line: usize,
    /// What was expected and what came.
    pub message: String,
}

/// A `?` of the script and what the server answered there.
#[derive(Debug, PartialEq, Eq)]
pub struct Blank {
    /// The line of the script.
    pub line: usize,
    /// The answer as a pattern.
    pub pattern: String,
}

/// A reply that takes longer has not come.
const REPLY_LIMIT: Duration = Duration::from_secs(30);
/// What is called silence.
const SILENCE: Duration = Duration::from_millis(60);
/// Between pieces of raw bytes, so that the server reads them apart.
const CUT: Duration = Duration::from_millis(10);
/// Between two looks at what must come to be.
const AGAIN: Duration = Duration::from_millis(2);
/// What INFO says when the runner's own connection is the only one.
const ALONE: &[u8] = b"\r\nconnected_clients:1\r\n";

/// Empties the keyspace and waits until the clients of earlier cases are gone, so that the next case starts clean.
pub fn reset<N: Network>(network: &mut N, script: &Script) -> Result<(), Failure> {
    let mut admin = Admin::connect(network, script)?;
    match admin.ask(&["FLUSHALL"])? {
        Reply::Simple(_) => {}
        other => return Err(fail(0, format!("cannot empty the keyspace: {}", describe(&other)))),
    }
    let started = Instant::now();
    loop {
        match admin.ask(&["INFO", "clients"])? {
            Reply::Bulk(text) if text.windows(ALONE.len()).any(|part| part == ALONE) => return Ok(()),
            Reply::Bulk(text) if started.elapsed() > REPLY_LIMIT => {
                return Err(fail(0, format!("others stay connected: {}", String::from_utf8_lossy(&text))));
            }
            Reply::Bulk(_) => network.pause(AGAIN).map_err(|error| fail(0, error.to_string()))?,
            other => return Err(fail(0, format!("cannot count the clients: {}", describe(&other)))),
        }
    }
}

/// The first command that `case` needs and the server does not know.
pub fn missing_command<N: Network>(network: &mut N, script: &Script, case: &Case) -> Result<Option<String>, Failure> {
    for command in &case.needs {
        if let Reply::Array(known) = Admin::connect(network, script)?.ask(&["COMMAND", "INFO", command])?
            && matches!(known[..], [Reply::NullArray | Reply::NullBulk])
        {
            return Ok(Some(command.clone()));
        }
    }
    Ok(None)
}

/// A connection of the runner's own.
struct Admin<T>(Client<T>);

impl<T: Transport> Admin<T> {
    fn connect<N: Network<Connection = T>>(network: &mut N, script: &Script) -> Result<Self, Failure> {
        let connection = network.connect().map_err(|error| fail(0, format!("connect: {error}")))?;
        let mut admin = Self(Client::new(connection, Protocol::Resp2));
        if let Some(password) = &script.password {
            admin.ask(&["AUTH", password])?;
        }
        Ok(admin)
    }

    fn ask(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.0.command(&words).and_then(|()| self.0.reply()).map_err(|message| fail(0, message))
    }
}

/// Plays `case` with connections that speak `protocol`, and returns what stands for its blanks.
///
/// # Errors
/// The first step that went otherwise than the script says.
pub fn run_case<N: Network>(network: &mut N, case: &Case, protocol: Protocol) -> Result<Vec<Blank>, Failure> {
    let mut play = Play {
        network,
        protocol,
        clients: BTreeMap::new(),
        variables: Variables::new(),
        blanks: vec![],
        until: Until::Once,
    };
    for step in &case.steps {
        play.step(step).map_err(|message| fail(step.line, message))?;
    }
    let last = case.steps.last().map_or(case.line, |step| step.line);
    play.nothing_is_left().map_err(|message| fail(last, message))?;
    Ok(play.blanks)
}

fn fail(line: usize, message: String) -> Failure {
    Failure { line, message }
}

struct Play<'a, N: Network> {
    network: &'a mut N,
    protocol: Protocol,
    clients: BTreeMap<String, Client<N::Connection>>,
    variables: Variables,
    blanks: Vec<Blank>,
    until: Until,
}

/// Whether a command is sent again if its reply is not as expected.
enum Until {
    Once,
    /// The next one is.
    Next,
    /// This one is.
    Again(Vec<Vec<u8>>),
}

impl<N: Network> Play<'_, N> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Until => {
                self.until = Until::Next;
                return Ok(());
            }
            Action::Sleep(time) => return self.network.pause(*time).map_err(|error| error.to_string()),
            Action::Close => {
                let closed = self.clients.remove(&step.connection);
                return closed.map(drop).ok_or_else(|| format!("no connection {:?} to close", step.connection));
            }
            _ => {}
        }
        self.open(&step.connection)?;
        let client = self.clients.get_mut(&step.connection).expect("just opened");
        match &step.action {
            Action::Command(words) => {
                let words: Vec<Vec<u8>> = words.iter().map(|word| expand(word, &self.variables)).collect();
                let sent = client.command(&words);
                let is_again = matches!(self.until, Until::Next);
                self.until = if is_again { Until::Again(words) } else { Until::Once };
                sent
            }
            Action::Raw(pieces) => {
                for (at, piece) in pieces.iter().enumerate() {
                    if at > 0 {
                        self.network.pause(CUT).map_err(|error| error.to_string())?;
                    }
                    client.send(&expand(piece, &self.variables))?;
                }
                Ok(())
            }
            Action::Expect(only, pattern) if only.is_none_or(|only| only == client.protocol) => {
                let mut reply = client.reply()?;
                if *pattern == Pattern::Blank {
                    self.blanks.push(Blank { line: step.line, pattern: describe(&reply) });
                }
                let mut fits = pattern.matches(&reply, client.protocol, &mut self.variables);
                let started = Instant::now();
                if let Until::Again(words) = std::mem::replace(&mut self.until, Until::Once) {
                    while !fits && started.elapsed() < REPLY_LIMIT {
                        self.network.pause(AGAIN).map_err(|error| error.to_string())?;
                        client.command(&words)?;
                        reply = client.reply()?;
                        fits = pattern.matches(&reply, client.protocol, &mut self.variables);
                    }
                }
                fits.then_some(()).ok_or_else(|| format!("the reply is {}", describe(&reply)))
            }
            Action::ExpectEnd => client.expect_end(),
            Action::ExpectSilence => client.expect_silence(SILENCE),
            _ => Ok(()),
        }
    }

    fn open(&mut self, name: &str) -> Result<(), String> {
        if self.clients.contains_key(name) {
            return Ok(());
        }
        let connection = self.network.connect().map_err(|error| format!("connect: {error}"))?;
        let mut client = Client::new(connection, Protocol::Resp2);
        if self.protocol == Protocol::Resp3 {
            client.command(&[b"HELLO".to_vec(), b"3".to_vec()])?;
            let reply = client.reply()?;
            if client.protocol != Protocol::Resp3 {
                return Err(format!("HELLO 3 is answered with {}", describe(&reply)));
            }
        }
        self.clients.insert(name.to_owned(), client);
        Ok(())
    }

    fn nothing_is_left(&mut self) -> Result<(), String> {
        for (name, client) in &mut self.clients {
            client
                .expect_silence(Duration::ZERO)
                .map_err(|message| format!("{name}: at the end of the case {message}"))?;
        }
        Ok(())
    }
}

struct Client<T> {
    connection: T,
    input: Vec<u8>,
    protocol: Protocol,
    /// For each command whose reply was not taken yet: the protocol that it asks for, if it is a HELLO.
    hellos: VecDeque<Option<Protocol>>,
    ended: bool,
}

impl<T: Transport> Client<T> {
    fn new(connection: T, protocol: Protocol) -> Self {
        Self { connection, input: Vec::new(), protocol, hellos: VecDeque::new(), ended: false }
    }

    fn command(&mut self, words: &[Vec<u8>]) -> Result<(), String> {
        self.hellos.push_back(hello(words));
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.send(&bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.connection.send(bytes).map_err(|error| format!("send: {error}"))
    }

    fn reply(&mut self) -> Result<Reply, String> {
        loop {
            if let Some((reply, used)) = reply::parse(&self.input).map_err(|error| self.malformed(&error))? {
                self.input.drain(..used);
                self.note_hello(&reply);
                return Ok(reply);
            }
            match self.receive(REPLY_LIMIT)? {
                Received::Bytes(bytes) => self.input.extend_from_slice(&bytes),
                Received::Nothing => return Err(format!("no reply in {REPLY_LIMIT:?}{}", self.half_a_reply())),
                Received::Closed => return Err(format!("the connection was closed{}", self.half_a_reply())),
            }
        }
    }

    fn note_hello(&mut self, reply: &Reply) {
        if matches!(reply, Reply::Push(_)) {
            return;
        }
        if let (Some(Some(protocol)), false) = (self.hellos.pop_front(), matches!(reply, Reply::Error(_))) {
            self.protocol = protocol;
        }
    }

    fn expect_end(&mut self) -> Result<(), String> {
        if !self.input.is_empty() {
            return Err(format!("instead of the end there is {}", self.left_over()));
        }
        match self.receive(REPLY_LIMIT)? {
            Received::Closed => Ok(()),
            Received::Nothing => Err(format!("the connection is still open after {REPLY_LIMIT:?}")),
            Received::Bytes(bytes) => {
                self.input = bytes;
                Err(format!("instead of the end there is {}", self.left_over()))
            }
        }
    }

    fn expect_silence(&mut self, time: Duration) -> Result<(), String> {
        if self.input.is_empty() && !self.ended {
            match self.receive(time)? {
                Received::Bytes(bytes) => self.input = bytes,
                Received::Nothing => {}
                Received::Closed if time.is_zero() => {}
                Received::Closed => return Err("the connection was closed".to_owned()),
            }
        }
        if self.input.is_empty() { Ok(()) } else { Err(format!("there is {}", self.left_over())) }
    }

    fn receive(&mut self, within: Duration) -> Result<Received, String> {
        if self.ended {
            return Ok(Received::Closed);
        }
        let received = self.connection.receive(within).map_err(|error| format!("receive: {error}"))?;
        self.ended = received == Received::Closed;
        Ok(received)
    }

    fn malformed(&self, error: &anyhow::Error) -> String {
        format!("no RESP: {error}: {}", self.left_over())
    }

    fn half_a_reply(&self) -> String {
        if self.input.is_empty() { String::new() } else { format!(", only {}", self.left_over()) }
    }

    fn left_over(&self) -> String {
        format!("b{}", describe(&Reply::Bulk(self.input.clone())))
    }
}

fn hello(words: &[Vec<u8>]) -> Option<Protocol> {
    let [name, version, ..] = words else { return None };
    match (name.eq_ignore_ascii_case(b"HELLO"), version.as_slice()) {
        (true, b"2") => Some(Protocol::Resp2),
        (true, b"3") => Some(Protocol::Resp3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that answers each send with the next of some replies, a byte at a time.
    struct Canned(VecDeque<&'static [u8]>, VecDeque<u8>);

    impl Transport for Canned {
        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            self.1.extend(self.0.pop_front().unwrap_or_default());
            Ok(())
        }

        fn receive(&mut self, _: Duration) -> io::Result<Received> {
            let end = if self.0.is_empty() { Received::Closed } else { Received::Nothing };
            Ok(self.1.pop_front().map_or(end, |byte| Received::Bytes(vec![byte])))
        }
    }

    struct CannedNetwork(&'static [&'static [u8]]);

    impl Network for CannedNetwork {
        type Connection = Canned;

        fn connect(&mut self) -> io::Result<Canned> {
            Ok(Canned(self.0.iter().copied().collect(), VecDeque::new()))
        }

        fn pause(&mut self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn play(steps: &str, replies: &'static [&'static [u8]]) -> Result<Vec<Blank>, (usize, String)> {
        let script = Script::parse("x", &format!("== a case\n{steps}")).expect("parses");
        run_case(&mut CannedNetwork(replies), &script.cases[0], Protocol::Resp2)
            .map_err(|failure| (failure.line, failure.message))
    }

    #[test]
    fn a_case_that_goes_as_written_passes() {
        assert!(play("> PING\n< +PONG\n> ECHO x\n< \"x\"\n< EOF\n", &[b"+PONG\r\n", b"$1\r\nx\r\n"]).is_ok());
        assert!(play("> A\n> B\n< :1\n< :2\n", &[b":1\r\n", b":2\r\n", b""]).is_ok());
        assert!(play("> PING\n<3 +NO\n<2 +PONG\n", &[b"+PONG\r\n"]).is_ok());
    }

    #[test]
    fn hello_changes_how_later_replies_are_read() {
        assert!(play("> HELLO 3\n< []\n> GET x\n<3 _\n", &[b"%0\r\n", b"_\r\n"]).is_err(), "its own reply too");
        assert!(play("> HELLO 3\n< {}\n> GET x\n<3 _\n", &[b"%0\r\n", b"_\r\n"]).is_ok());
        assert!(play("> HELLO 3\n< -NO\n> GET x\n<2 _\n", &[b"-NO\r\n", b"$-1\r\n"]).is_ok());
    }

    #[test]
    fn a_case_that_goes_otherwise_fails_where_it_does() {
        let failed = play("> PING\n< +PONG\n", &[b"+PING\r\n"]);
        assert_eq!(failed, Err((3, "the reply is +PING".to_owned())));
        assert!(
            play("! until\n> GET\n< :2\n> GET\n< :1\n", &[b":0\r\n", b":1\r\n", b":2\r\n", b":1\r\n", b""]).is_ok()
        );
        let failed = play("! until\n> GET\n< :1\n> GET\n< :2\n", &[b":0\r\n", b":1\r\n", b":0\r\n"]);
        assert_eq!(failed, Err((6, "the reply is :0".to_owned())), "the next one is asked once");
        let failed = play("> PING\n< +PONG\n", &[b"+PONG\r\n+PONG\r\n"]).expect_err("a reply too many");
        assert!(failed.1.contains("at the end of the case"), "{failed:?}");
        assert!(play("> PING\n< EOF\n", &[b"+PONG\r\n"]).is_err());
        assert!(play("> PING\n< SILENCE\n", &[b"+PONG\r\n", b""]).is_err());
        assert!(play("> PING\n< +PONG\n", &[b"+PO"]).expect_err("half a reply").1.contains("only b\"+PO\""));
        assert!(play("> PING\n< +PONG\n", &[b"what\r\n"]).expect_err("no RESP").1.contains("no RESP"));
    }

    #[test]
    fn a_missing_command_is_told_from_one_that_is_there() {
        let script = Script::parse("x", "== a case [needs:lpush]\n> PING\n").expect("parses");
        let missing = |replies| missing_command(&mut CannedNetwork(replies), &script, &script.cases[0]);
        assert_eq!(missing(&[b"*1\r\n*-1\r\n"]).expect("asked").as_deref(), Some("lpush"));
        assert_eq!(missing(&[b"*1\r\n*1\r\n$5\r\nlpush\r\n"]).expect("asked"), None);
    }

    #[test]
    fn blanks_are_filled() {
        let filled = play("> GET x\n< ?\n", &[b"$1\r\na\r\n"]).expect("plays");
        assert_eq!(filled, [Blank { line: 3, pattern: "\"a\"".to_owned() }]);
    }
}
