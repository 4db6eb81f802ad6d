//! A whole connection: bytes in, replies out, on one worker that is driven pass by pass, without a thread or a socket.
//!
//! The server is new for each input, so that what is found can be repeated. Checked, beside all assertions on the way:
//! the replies are well-formed to the last byte, there is one for each command where that can be said, and a client that
//! has said everything and reads everything is served to its end: nothing hangs.
//!
//! Input: a byte for the network's faults and the password, a byte for the cuts, then the script (see [`crate::script`]).

use crate::pieces::cut;
use crate::script::{self, Script};
use gimmal_io::{Faults, SimClient, SimEngine, SimNet};
use gimmal_resp::ReplyReader;
use gimmal_server::config::{self, Config};
use gimmal_server::logging::{self, Level};
use gimmal_server::session::Peer;
use gimmal_server::shared::Shared;
use gimmal_server::start::{self, EngineChoice};
use gimmal_server::worker::Worker;
use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const PORT: u16 = 1;
/// Passes after which a connection that was not served to its end is taken to hang.
const PASSES: usize = 200_000;
/// A connection that may wait is given up earlier, without a complaint.
const PASSES_WHEN_WAITING: usize = 500;

static OPEN: LazyLock<Config> = LazyLock::new(|| configuration(&[]));
static WITH_PASSWORD: LazyLock<Config> = LazyLock::new(|| configuration(&["--requirepass", "k"]));
/// For programs that compare values by their digests.
static WITH_DEBUG: LazyLock<Config> = LazyLock::new(|| configuration(&["--enable-debug-command", "yes"]));

fn configuration(more: &[&str]) -> Config {
    logging::configure(Level::Nothing, "");
    // Few shards, because every input makes its own; short strings, so that no command may ask for much memory.
    let fixed = ["--save", "", "--shards", "4", "--proto-max-bulk-len", "1mb"];
    let words: Vec<String> = fixed.iter().chain(more).map(|word| (*word).to_owned()).collect();
    config::read(&words).expect("a good configuration").config
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let [mode, how, rest @ ..] = input else { return };
    let has_password = mode & 2 != 0;
    let config = if has_password { &*WITH_PASSWORD } else { &*OPEN };
    let faults = if mode & 1 != 0 { Faults::hostile() } else { Faults::none() };
    let mut front = Front::new(config.clone(), faults, u64::from(*how));
    let Some(script) = script::read(rest, front.shared.commands) else { return };
    let outcome = front.converse(&script, *how);
    let Some(replies) = outcome else {
        assert!(script.may_wait, "the connection hangs: {}", script.bytes.escape_ascii());
        return;
    };
    let count = count_replies(&replies, &script);
    // Before authentication a client may be closed for what it sends.
    if script.is_countable && !has_password {
        assert_eq!(count, script.commands, "replies to {}", script.bytes.escape_ascii());
    }
}

/// What a server without password or faults, and with DEBUG, answers to these commands.
///
/// # Panics
/// If it hangs, or the replies are not one for each command.
pub fn answer(bytes: Vec<u8>, commands: usize, how: u8) -> Vec<u8> {
    let script = Script { bytes, commands, is_countable: true, may_wait: false };
    let mut front = Front::new(WITH_DEBUG.clone(), Faults::none(), 0);
    let Some(replies) = front.converse(&script, how) else {
        panic!("the connection hangs: {}", script.bytes.escape_ascii())
    };
    assert_eq!(count_replies(&replies, &script), commands, "replies to {}", script.bytes.escape_ascii());
    replies
}

fn count_replies(bytes: &[u8], script: &Script) -> usize {
    let mut reader = ReplyReader::default();
    reader.feed(bytes);
    let mut count = 0;
    loop {
        match reader.next_reply() {
            Ok(Some(_)) => count += 1,
            Ok(None) => break,
            Err(error) => panic!("{error} in the replies to {}", script.bytes.escape_ascii()),
        }
    }
    assert_eq!(reader.pending(), 0, "half a reply to {}", script.bytes.escape_ascii());
    count
}

/// A server without threads, and its one client.
struct Front {
    shared: Arc<Shared>,
    worker: Worker<SimEngine>,
    client: SimClient,
}

impl Front {
    fn new(config: Config, faults: Faults, seed: u64) -> Front {
        let net = SimNet::new(seed, faults);
        let listener = net.listen(PORT).expect("the port is free");
        let mut client = net.connect(PORT).expect("the backlog is empty");
        client.set_timeout(Duration::ZERO);
        let make = EngineChoice::Sim(Arc::new({
            let net = Arc::clone(&net);
            move |_| SimEngine::new(&net)
        }));
        let shared = Arc::new(start::shared(config, 1, &make).expect("the state of a server"));
        let mut worker = Worker::new(0, SimEngine::new(&net), Arc::clone(&shared));
        worker.listen(vec![(listener, Peer::Sim)]).expect("a simulated listener");
        Front { shared, worker, client }
    }

    /// Sends everything, ends the stream, and reads until the server has closed. `None`: it never did.
    fn converse(&mut self, script: &Script, how: u8) -> Option<Vec<u8>> {
        let mut replies = Vec::new();
        let mut pieces = cut(&script.bytes, how).into_iter();
        let mut piece = pieces.next();
        let most = if script.may_wait { PASSES_WHEN_WAITING } else { PASSES };
        let mut idle = 0;
        while idle < most {
            idle += 1;
            if let Some(bytes) = piece {
                match self.client.write(bytes) {
                    Ok(count) if count < bytes.len() => piece = Some(&bytes[count..]),
                    Ok(_) => {
                        piece = pieces.next();
                        idle = 0;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // The server has closed; what it said before can still be read.
                    Err(_) => piece = None,
                }
            } else {
                self.client.end_writing();
            }
            self.worker.pass(&self.shared, Duration::ZERO).expect("a simulated engine does not fail");
            match self.receive(&mut replies) {
                Received::Something => idle = 0,
                Received::Nothing => {}
                Received::End => return Some(replies),
            }
        }
        None
    }

    fn receive(&mut self, replies: &mut Vec<u8>) -> Received {
        let mut chunk = [0; 16 * 1024];
        match self.client.read(&mut chunk) {
            Ok(0) => Received::End,
            Ok(count) => {
                replies.extend_from_slice(&chunk[..count]);
                Received::Something
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Received::Nothing,
            // A server that closes with input unread resets the connection, and replies on their way are lost.
            Err(_) => {
                replies.clear();
                Received::End
            }
        }
    }
}

enum Received {
    Something,
    Nothing,
    End,
}
