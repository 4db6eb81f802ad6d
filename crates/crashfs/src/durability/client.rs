//! Clients: operations as RESP, their answers, and what a server holds.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gimmal_resp::{Reply, ReplyReader, encode_command};

use super::history::{Action, Answer, Data, Place, Recovered, Value};

/// How long an answer may take before the client gives the operation up.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Keys asked for at once when a recovered state is read.
const KEYS_AT_ONCE: usize = 200;

/// A connection.
pub struct Client {
    stream: TcpStream,
    replies: ReplyReader,
}

impl Client {
    /// Connects to loopback.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Self { stream, replies: ReplyReader::default() })
    }

    /// Sends bytes made by [`encode`].
    ///
    /// # Errors
    /// The server has gone.
    pub fn send(&mut self, commands: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(commands)?)
    }

    /// Reads the answer to one action.
    ///
    /// # Errors
    /// The server has gone, or answers something that no server answers to it.
    pub fn answer(&mut self, action: &Action) -> Result<Answer> {
        if let Action::Pair(_, _, true) = action {
            // MULTI and two queued commands.
            let queued = [self.reply()?, self.reply()?, self.reply()?];
            let executed = self.reply()?;
            let error = queued.into_iter().chain([executed]).find(|reply| matches!(reply, Reply::Error(_)));
            return Ok(error.map_or(Answer::Done, |error| Answer::Failed(format!("{error:?}"))));
        }
        let reply = self.reply()?;
        Ok(match (action, reply) {
            (_, Reply::Error(text)) => Answer::Failed(String::from_utf8_lossy(&text).into_owned()),
            (Action::Increment(_) | Action::Push(..), Reply::Integer(count)) => Answer::Count(u64::try_from(count)?),
            (Action::Get(_), Reply::Bulk(text)) => Answer::Value(Some(String::from_utf8_lossy(&text).into_owned())),
            (Action::Get(_), Reply::NullBulk) => Answer::Value(None),
            (Action::Range(_) | Action::GetPair(_), Reply::Array(values)) => {
                Answer::Values(values.into_iter().map(element).collect::<Result<_>>()?)
            }
            (Action::Look(_), Reply::Bulk(text)) => Answer::Value(Some(String::from_utf8_lossy(&text).into_owned())),
            (Action::Look(_), Reply::NullBulk) => Answer::Value(None),
            (Action::Set(..) | Action::Pair(..) | Action::Move(_), Reply::Simple(_))
            | (Action::Delete(_), Reply::Integer(_)) => Answer::Done,
            (action, reply) => bail!("{action:?} was answered {reply:?}"),
        })
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// The server has gone.
    pub fn ask(&mut self, command: &[&str]) -> Result<Reply> {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, command);
        self.send(&bytes)?;
        self.reply()
    }

    /// Everything that the server holds.
    ///
    /// # Errors
    /// The server has gone, or holds what no operation writes.
    pub fn recovered(&mut self) -> Result<Recovered> {
        let Reply::Array(keys) = self.ask(&["KEYS", "*"])? else { bail!("KEYS is no array") };
        let keys = keys.into_iter().map(element).collect::<Result<Vec<String>>>()?;
        let mut recovered = Recovered::default();
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let mut commands = Vec::new();
            for key in keys {
                match key.starts_with("l:") {
                    true => encode_command(&mut commands, &["LRANGE", key, "0", "-1"]),
                    false => encode_command(&mut commands, &["GET", key]),
                }
                encode_command(&mut commands, &["PEXPIRETIME", key]);
            }
            self.send(&commands)?;
            for key in keys {
                let data = match self.reply()? {
                    Reply::Array(values) => Data::List(values.into_iter().map(element).collect::<Result<_>>()?),
                    Reply::Error(text) => Data::Text(format!("({})", String::from_utf8_lossy(&text))),
                    value => Data::Text(element(value).with_context(|| key.clone())?),
                };
                let Reply::Integer(deadline) = self.reply()? else { bail!("PEXPIRETIME is no integer") };
                let deadline_ms = u64::try_from(deadline).ok();
                recovered.values.insert(key.clone(), Value { data, deadline_ms });
            }
        }
        Ok(recovered)
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut buffer = [0; 64 << 10];
        loop {
            if let Some(reply) = self.replies.next_reply()? {
                return Ok(reply);
            }
            let read = self.stream.read(&mut buffer)?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection").into());
            }
            self.replies.feed(&buffer[..read]);
        }
    }
}

fn element(reply: Reply) -> Result<String> {
    match reply {
        // What damage left may be no text; it is wrong then anyway.
        Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Reply::NullBulk => Ok(String::new()),
        reply => bail!("not a string: {reply:?}"),
    }
}

/// Appends the commands of one action.
pub fn encode(out: &mut Vec<u8>, action: &Action) {
    match action {
        Action::Set(key, value, None) => encode_command(out, &["SET", key, value]),
        Action::Set(key, value, Some(deadline)) => {
            encode_command(out, &["SET", key, value, "PXAT", &deadline.to_string()]);
        }
        Action::Delete(key) => encode_command(out, &["DEL", key]),
        Action::Get(key) => encode_command(out, &["GET", key]),
        Action::Increment(key) => encode_command(out, &["INCR", key]),
        Action::Push(key, value) => encode_command(out, &["RPUSH", key, value]),
        Action::Range(key) => encode_command(out, &["LRANGE", key, "0", "-1"]),
        Action::Pair([first, second], value, false) => encode_command(out, &["MSET", first, value, second, value]),
        Action::Pair([first, second], value, true) => {
            encode_command(out, &["MULTI"]);
            encode_command(out, &["SET", first, value]);
            encode_command(out, &["SET", second, value]);
            encode_command(out, &["EXEC"]);
        }
        Action::GetPair([first, second]) => encode_command(out, &["MGET", first, second]),
        Action::Move(place @ Place { step: 0, .. }) => encode_command(out, &["SET", &place.key(), &place.value()]),
        Action::Move(place) => {
            let before = Place { step: place.step - 1, ..*place };
            encode_command(out, &["RENAME", &before.key(), &place.key()]);
        }
        Action::Look(place) => encode_command(out, &["GET", &place.key()]),
    }
}
