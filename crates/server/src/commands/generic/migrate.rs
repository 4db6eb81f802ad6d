//! MIGRATE: keys of this server become keys of another.
//!
//! The values are taken by their roots under the locks; a thread encodes and sends them and reads the answers, while
//! everybody is served. Then the keys are locked again and removed, if nobody has changed them meanwhile. If somebody has, what is
//! there now is sent again in place of what was sent before: what the other server has at the end is what is removed here. (Redis
//! stands still instead.) Each MIGRATE has a connection of its own.

use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, LockedMany, Outcome, ReplyError, Stop, error};
use crate::lazyfree::Lazyfree;
use crate::payload::{self, Written};
use crate::tx::Watch;
use crate::{notify, offload};
use gimmal_rdb::Options as Encoding;
use gimmal_resp::{Reply, ReplyReader, encode_array_header, encode_bulk, encode_bulk_header, encode_command};
use gimmal_store::OwnedEntry;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

const KEYS_AND_KEY: ReplyError =
    error("ERR When using MIGRATE KEYS option, the key argument must be set to the empty string");
const NOT_HERE: ReplyError = error("ERR MIGRATE cannot wait for another server now");
const CONNECTING: ReplyError = error("IOERR error or timeout connecting to the client");
const WRITING: ReplyError = error("IOERR error or timeout writing to target instance");
const READING: ReplyError = error("IOERR error or timeout reading to target instance");
const CHANGING: ReplyError =
    error("IOERR the keys were changed each time they had been sent; the target has what was sent last");

/// Times that keys are sent because they have changed.
const ROUNDS: u32 = 8;
/// An answer that is longer is none of RESTORE.
const LONGEST_ANSWER: usize = 64 * 1024;
/// Used when none is given, in ms.
const TIMEOUT_MS: u64 = 1000;

/// Where to, and how.
#[derive(Clone, Debug)]
struct Target {
    host: String,
    port: u16,
    db: i64,
    timeout: Duration,
    /// AUTH and its arguments.
    auth: Option<Vec<Vec<u8>>>,
    copy: bool,
    replace: bool,
}

impl Target {
    fn parse(args: &Args<'_>) -> Result<(Target, std::ops::Range<usize>), ReplyError> {
        let (mut copy, mut replace, mut auth, mut keys) = (false, false, None, 3..4);
        let mut i = 6;
        while i < args.len() {
            let more = args.len() - 1 - i;
            let words = |count: usize| {
                let given = (i + 1..=i + count).map(|at| args.at(at).to_vec());
                Some([b"AUTH".to_vec()].into_iter().chain(given).collect())
            };
            if args.is(i, "copy") {
                copy = true;
            } else if args.is(i, "replace") {
                replace = true;
            } else if args.is(i, "auth") && more >= 1 {
                auth = words(1);
                i += 1;
            } else if args.is(i, "auth2") && more >= 2 {
                auth = words(2);
                i += 2;
            } else if args.is(i, "keys") {
                if args.length(3) > 0 {
                    return Err(KEYS_AND_KEY);
                }
                keys = i + 1..args.len();
                break;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        let timeout_ms = u64::try_from(args.int(5)?).ok().filter(|ms| *ms > 0).unwrap_or(TIMEOUT_MS);
        let db = args.int(4)?;
        let host = String::from_utf8_lossy(args.at(1)).into_owned();
        let port = std::str::from_utf8(args.at(2)).ok().and_then(|port| port.parse().ok()).ok_or(CONNECTING)?;
        Ok((Target { host, port, db, timeout: Duration::from_millis(timeout_ms), auth, copy, replace }, keys))
    }
}

/// The positions of the keys: behind KEYS if the key's own place is empty.
pub(super) fn keys(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    use crate::command::keyflag::{ACCESS, DELETE, RW};
    let flags = RW | ACCESS | DELETE;
    if args.len() < 6 {
        return None;
    }
    let word = (6..args.len()).find(|at| args.is(*at, "keys"));
    match word.filter(|_| args.length(3) == 0) {
        Some(word) => Some((word + 1..args.len()).map(|at| (at, flags)).collect()),
        None => Some(vec![(3, flags)]),
    }
}

pub(super) fn migrate(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (target, keys) = Target::parse(args)?;
    if !offload::is_possible(exec) {
        return Err(NOT_HERE.into());
    }
    let db = exec.session.db;
    let mut locked = exec.lock_in(keys.clone().map(|at| (db, args.at(at))))?;
    let names: Vec<Vec<u8>> = keys.map(|at| args.at(at).to_vec()).collect();
    let sent = Sent::take(exec, &mut locked, &names, target, db);
    drop(locked);
    if sent.keys.is_empty() {
        exec.reply.put().simple("NOKEY");
        return Ok(());
    }
    sent.start(exec)
}

/// Keys on their way.
struct Sent {
    target: Target,
    db: usize,
    keys: Vec<Moving>,
    encoding: Encoding,
    /// Whether they were changed since they were taken.
    watch: Watch,
    rounds: u32,
    now_ms: i64,
    lazyfree: Arc<Lazyfree>,
}

/// One key on its way.
struct Moving {
    name: Vec<u8>,
    entry: OwnedEntry,
}

impl Sent {
    /// Takes what there is of some keys, which are locked.
    fn take(exec: &mut Exec<'_>, locked: &mut LockedMany<'_>, names: &[Vec<u8>], target: Target, db: usize) -> Sent {
        let mut watch = Watch::new(Arc::clone(&exec.shared.watching));
        let mut keys: Vec<Moving> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let taken = exec.read(locked.key(i)).map(|entry| entry.copied(entry.clock()));
            let Some(entry) = taken else { continue };
            locked.key(i).watch(&mut watch);
            keys.push(Moving { name: name.clone(), entry });
        }
        let encoding = payload::options(&exec.local.config);
        let lazyfree = Arc::clone(&exec.shared.lazyfree);
        Sent { target, db, keys, encoding, watch, rounds: 0, now_ms: exec.now_ms(), lazyfree }
    }

    fn start(self, exec: &mut Exec<'_>) -> Outcome {
        offload::start(exec, move || {
            let answers = transfer(&self.target, &self.keys, &self.encoding, self.now_ms);
            let Sent { target, db, keys, watch, rounds, lazyfree, .. } = self;
            let names = keys.into_iter().map(|key| {
                // Whatever left the keyspace meanwhile.
                lazyfree.discard(key.entry);
                key.name
            });
            let (arrived, error) = answers.arrived(names);
            Box::new(Arrived { target, db, arrived, error, watch, rounds })
        })
    }
}

/// What the target said of the keys, in order.
struct Answers {
    /// Whether it has taken each of them, as far as it has answered.
    taken: Vec<bool>,
    error: Option<ReplyError>,
}

impl Answers {
    fn none(error: ReplyError) -> Answers {
        Answers { taken: Vec::new(), error: Some(error) }
    }

    fn arrived(self, names: impl Iterator<Item = Vec<u8>>) -> (Vec<Vec<u8>>, Option<ReplyError>) {
        (names.zip(self.taken).filter(|(_, taken)| *taken).map(|(name, _)| name).collect(), self.error)
    }
}

/// Connects, sends all keys, and reads the answers.
fn transfer(target: &Target, keys: &[Moving], encoding: &Encoding, now_ms: i64) -> Answers {
    let Ok(stream) = connect(target) else { return Answers::none(CONNECTING) };
    let mut preparation = Vec::new();
    if let Some(auth) = &target.auth {
        encode_command(&mut preparation, auth);
    }
    encode_command(&mut preparation, &[b"SELECT".as_slice(), target.db.to_string().as_bytes()]);
    let mut output = io::BufWriter::with_capacity(64 * 1024, &stream);
    let send_all = |output: &mut io::BufWriter<&TcpStream>| {
        output.write_all(&preparation)?;
        keys.iter().try_for_each(|key| send(output, key, target, encoding, now_ms))?;
        output.flush()
    };
    if send_all(&mut output).is_err() {
        // What it holds back has nowhere to go.
        drop(output.into_parts());
        return Answers::none(WRITING);
    }
    drop(output);
    read_answers(&stream, 1 + usize::from(target.auth.is_some()), keys.len())
}

fn read_answers(stream: &TcpStream, preparation: usize, keys: usize) -> Answers {
    let mut answers = Answers { taken: Vec::new(), error: None };
    let mut replies = ReplyReader::default();
    // Without its password or database nothing has arrived where it should.
    let mut is_prepared = true;
    for i in 0..preparation + keys {
        let Ok(reply) = next_reply(stream, &mut replies) else {
            answers.error = answers.error.or(Some(READING));
            break;
        };
        if reply.is_error() && answers.error.is_none() {
            let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
            answers.error = Some(format!("ERR Target instance replied with error: {text}").into());
        }
        if i < preparation {
            is_prepared &= !reply.is_error();
        } else {
            answers.taken.push(!reply.is_error() && is_prepared);
        }
    }
    answers
}

fn connect(target: &Target) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, target.timeout) {
            Ok(stream) => {
                stream.set_read_timeout(Some(target.timeout))?;
                stream.set_write_timeout(Some(target.timeout))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends RESTORE of one key.
fn send(to: &mut impl Write, key: &Moving, target: &Target, encoding: &Encoding, now_ms: i64) -> io::Result<()> {
    // A key that has expired meanwhile does so there, too.
    let ttl_ms = key.entry.expire_at_ms().map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1));
    let mut head = Vec::new();
    encode_array_header(&mut head, 4 + usize::from(target.replace));
    encode_bulk(&mut head, b"RESTORE");
    encode_bulk(&mut head, &key.name);
    encode_bulk(&mut head, ttl_ms.to_string().as_bytes());
    match payload::written(&key.entry.entry(), encoding.clone()) {
        Written::Payload(payload) => {
            encode_bulk(&mut head, &payload);
            to.write_all(&head)?;
        }
        Written::Large(mut large) => {
            while !large.step(Duration::from_millis(100)) {}
            let payload = large.payload();
            encode_bulk_header(&mut head, payload.len());
            to.write_all(&head)?;
            payload.extents().try_for_each(|extent| to.write_all(extent))?;
            to.write_all(b"\r\n")?;
        }
    }
    match target.replace {
        true => to.write_all(b"$7\r\nREPLACE\r\n"),
        false => Ok(()),
    }
}

fn next_reply(mut stream: &TcpStream, replies: &mut ReplyReader) -> io::Result<Reply> {
    let mut chunk = [0; 4096];
    loop {
        match replies.next_reply() {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) if replies.pending() <= LONGEST_ANSWER => {}
            Ok(None) | Err(_) => return Err(ErrorKind::InvalidData.into()),
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => replies.feed(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What is left to do with keys that have arrived.
struct Arrived {
    target: Target,
    db: usize,
    arrived: Vec<Vec<u8>>,
    error: Option<ReplyError>,
    watch: Watch,
    rounds: u32,
}

impl Continuation for Arrived {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        if !self.target.copy && !self.arrived.is_empty() {
            self.remove(exec)?;
        }
        match self.error.take() {
            Some(error) => Err(error.into()),
            None => {
                exec.reply.put().ok();
                Ok(true)
            }
        }
    }
}

impl Arrived {
    /// Removes what has arrived, or sends it again if it has changed.
    fn remove(&mut self, exec: &mut Exec<'_>) -> Outcome {
        // Dropped after the locks.
        let mut removed = Vec::new();
        let Arrived { target, db, arrived, error, watch, rounds } = self;
        let mut locked = exec.lock_in(arrived.iter().map(|name| (*db, name.as_slice())))?;
        if watch.is_dirty() && error.is_none() {
            if *rounds == ROUNDS {
                return Err(CHANGING.into());
            }
            let target = Target { replace: true, ..target.clone() };
            let mut again = Sent::take(exec, &mut locked, arrived, target, *db);
            again.rounds = *rounds + 1;
            drop(locked);
            return if again.keys.is_empty() { Ok(()) } else { again.start(exec) };
        }
        if watch.is_dirty() {
            // It is not known which of them have changed: all of them stay, as after any error.
            return Ok(());
        }
        let mut names: Vec<&[u8]> = Vec::new();
        for (i, name) in arrived.iter().enumerate() {
            if exec.peek(locked.key(i)).is_some() {
                removed.extend(exec.remove(locked.key(i)));
                names.push(name);
            }
        }
        if !names.is_empty() {
            exec.effect_many(&mut locked, names.len() as u64, |record, db| {
                record.begin_command(db, names.len() + 1).arg(b"DEL");
                for name in &names {
                    record.arg(name);
                }
            });
            names.iter().for_each(|name| exec.notify_in(*db, notify::GENERIC, "del", name));
        }
        Ok(())
    }
}
