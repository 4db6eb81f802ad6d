//! A connection to each of the two servers, used in step.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::grammar::Words;
use crate::reply::{self, Reply};
use crate::wire::Protocol;

/// The same client on both servers.
pub struct Pair {
    /// On the oracle.
    pub redis: Link,
    /// On the server under test.
    pub gimmal: Link,
    /// What was queued since MULTI; `None` outside of a transaction.
    pub queued: Option<Vec<Words>>,
}

impl Pair {
    /// Connects to both.
    pub fn connect(ports: [u16; 2], protocol: Protocol) -> Result<Self> {
        let [redis, gimmal] = ports.map(|port| Link::connect(port, protocol));
        Ok(Self { redis: redis.context("redis")?, gimmal: gimmal.context("gimmal")?, queued: None })
    }

    /// Sends commands to both and takes the replies, of the oracle first.
    ///
    /// # Errors
    /// A connection that fails or ends, a reply that does not come in time or is no RESP.
    pub fn ask(&mut self, commands: &[Words]) -> Result<Vec<(Reply, Reply)>> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| encode(words, &mut bytes));
        self.redis.send(&bytes).context("redis")?;
        self.gimmal.send(&bytes).context("gimmal")?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            replies.push((self.redis.reply().context("redis")?, self.gimmal.reply().context("gimmal")?));
        }
        Ok(replies)
    }

    /// The same for one command.
    pub fn ask_one(&mut self, words: &Words) -> Result<(Reply, Reply)> {
        self.ask(std::slice::from_ref(words))?.pop().context("one reply")
    }
}

/// A connection to one server.
pub struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    taken: usize,
}

/// A reply that takes longer has not come.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

impl Link {
    fn connect(port: u16, protocol: Protocol) -> Result<Self> {
        let stream = crate::load::connect(port)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        stream.set_write_timeout(Some(REPLY_LIMIT))?;
        let mut link = Self { stream, input: Vec::new(), taken: 0 };
        if protocol == Protocol::Resp3 {
            let reply = link.ask(&words(&["HELLO", "3"]))?;
            ensure!(matches!(reply, Reply::Map(_)), "no RESP3: {reply:?}");
        }
        Ok(link)
    }

    /// One command and its reply.
    pub fn ask(&mut self, words: &Words) -> Result<Reply> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.send(&bytes)?;
        self.reply()
    }

    /// Sends encoded commands.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Reply> {
        loop {
            if let Some((reply, length)) = reply::parse(&self.input[self.taken..])? {
                self.taken += length;
                return Ok(reply);
            }
            self.input.drain(..self.taken);
            self.taken = 0;
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the connection was closed"),
                Ok(length) => self.input.extend_from_slice(&chunk[..length]),
                // A process that was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("no reply"),
            }
        }
    }
}

/// Words from text.
pub fn words(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Appends a command as an array of bulk strings.
pub fn encode(words: &Words, out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
