//! Commands of the log, executed again.
//!
//! The loader hands out pieces of RESP; one worker executes them as if a client had sent them, with the parser, the prefetching
//! and the handlers of any client, on a connection that no engine and no list knows. What is different:
//!
//! * Time stands still before every deadline ([`REPLAY_MS`]): what has expired was removed by a command of the log.
//! * Nothing is refused (memory, pauses, a full log), shown to monitors, published, timed, logged or counted.
//! * Replies go nowhere. An error is one that the log's writer did not see, so it is told, with its position in the log; a
//!   command that does not exist here ends the load, since what it did is missing from then on.

use super::{LoadError, REPLAY_MS, is_over};
use crate::args::Args;
use crate::config::Events;
use crate::connection::{Connection, State as Doing};
use crate::session::{Peer, ReplyMode, Session};
use crate::shared::Shared;
use crate::worker::{Local, State};
use crate::{notice, warning};
use gimmal_io::ConnId;
use gimmal_log::Lsn;
use gimmal_store::Batch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The connection's id, which no connection of an engine has.
const CONN: ConnId = ConnId { index: u32::MAX, generation: u32::MAX };
/// Errors that are told one by one.
const TOLD: u64 = 20;

/// Feeds the log's commands to the server.
pub struct Replay {
    shared: Arc<Shared>,
    started: Instant,
}

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Commands.
    pub commands: u64,
    /// Those of them that answered an error.
    pub errors: u64,
}

/// A part of the log.
pub(super) struct Piece {
    bytes: Vec<u8>,
    /// Position of the first byte.
    lsn: Option<Lsn>,
    /// Nothing is left of what came before: a new file.
    begins: bool,
}

impl Replay {
    /// A replay that begins. Called by the loader, after [`begin`](super::begin).
    pub fn new(shared: &Arc<Shared>) -> Replay {
        shared.persist.load.replayed.reset();
        Replay { shared: Arc::clone(shared), started: Instant::now() }
    }

    /// Executes a piece of the log, whose first byte is at `lsn`; where one `begins_file`, database 0 is selected. A command may
    /// go on in the next piece. Blocks while the server is behind, not until all of it is executed.
    ///
    /// # Errors
    /// A command that cannot be executed, perhaps one of an earlier piece; or the server stops.
    pub fn feed(&mut self, bytes: &[u8], lsn: Option<Lsn>, begins_file: bool) -> Result<(), LoadError> {
        let load = &self.shared.persist.load;
        load.progress.read(bytes.len() as u64);
        load.pieces.hand_out(&self.shared, Piece { bytes: bytes.to_vec(), lsn, begins: begins_file })
    }

    /// Waits until everything is executed.
    ///
    /// # Errors
    /// As [`Replay::feed`]; or the log ends inside of a command or a transaction.
    pub fn finish(self) -> Result<Replayed, LoadError> {
        let load = &self.shared.persist.load;
        load.pieces.hand_out(&self.shared, Piece { bytes: Vec::new(), lsn: None, begins: true })?;
        load.pieces.wait(&self.shared)?;
        let replayed = load.replayed.so_far();
        let seconds = self.started.elapsed().as_secs_f64();
        notice!("Log loaded: {} commands, {seconds:.3} seconds", replayed.commands);
        if replayed.errors > 0 {
            warning!("{} of {} commands of the log answered an error", replayed.errors, replayed.commands);
        }
        Ok(replayed)
    }
}

/// What is counted while commands are replayed.
#[derive(Debug, Default)]
pub(super) struct Counts {
    commands: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    fn reset(&self) {
        self.commands.store(0, Relaxed);
        self.errors.store(0, Relaxed);
    }

    fn so_far(&self) -> Replayed {
        Replayed { commands: self.commands.load(Relaxed), errors: self.errors.load(Relaxed) }
    }
}

/// What the worker is executing.
pub(super) struct Replaying {
    connection: Connection,
    /// The piece, and how much of it is done with.
    piece: Option<(Piece, usize)>,
    /// What is left in the connection may hold a whole command.
    fresh: bool,
}

/// An error of a command of the log.
#[derive(Debug)]
pub struct Failure {
    /// Where the command's name is in memory.
    name_at: usize,
    name: String,
    text: String,
}

/// A command of the log answered an error.
#[cold]
pub fn note_failure(local: &mut Local, args: &Args<'_>, text: &str) {
    let first = if args.is_empty() { &b"?"[..] } else { args.at(0) };
    let name = String::from_utf8_lossy(&first[..first.len().min(64)]).into_owned();
    local.failures.push(Failure { name_at: first.as_ptr() as usize, name, text: text.to_owned() });
}

/// The worker's slice.
pub(super) fn step<'k>(state: &mut State, batch: &mut Batch<'k>, until: Instant) {
    let shared = state.shared.clone();
    let load = &shared.persist.load;
    if load.has_failed() {
        let piece = state.load.replaying.take().and_then(|replaying| replaying.piece);
        return load.pieces.done(usize::from(piece.is_some()));
    }
    if state.load.replaying.is_none() && load.pieces.is_empty() {
        return;
    }
    let usual = Usual::put_aside(&mut state.local);
    let mut replaying = state.load.replaying.take().unwrap_or_else(|| Box::new(Replaying::new(crate::now_ms())));
    let outcome = replaying.run(state, &shared, batch, until);
    usual.put_back(&mut state.local);
    match outcome {
        Ok(()) => state.load.replaying = Some(replaying),
        Err(error) => {
            load.pieces.done(usize::from(replaying.piece.is_some()));
            load.fail(error);
        }
    }
}

/// What is different for clients.
struct Usual {
    now_ms: i64,
    gates: u32,
    log_active: bool,
    monitored: bool,
    events: Events,
    hits: u64,
    misses: u64,
}

impl Usual {
    fn put_aside(local: &mut Local) -> Usual {
        local.replay_clock_ms = crate::now_ms();
        Usual {
            now_ms: std::mem::replace(&mut local.now_ms, REPLAY_MS),
            gates: std::mem::take(&mut local.gates),
            log_active: std::mem::take(&mut local.log_active),
            monitored: std::mem::take(&mut local.monitored),
            events: std::mem::take(&mut local.events),
            hits: local.stats.keyspace_hits.value(),
            misses: local.stats.keyspace_misses.value(),
        }
    }

    fn put_back(self, local: &mut Local) {
        let Usual { now_ms, gates, log_active, monitored, events, hits, misses } = self;
        local.replay_clock_ms = 0;
        (local.now_ms, local.gates, local.log_active) = (now_ms, gates, log_active);
        (local.monitored, local.events) = (monitored, events);
        local.stats.keyspace_hits.set(hits);
        local.stats.keyspace_misses.set(misses);
    }
}

impl Replaying {
    fn new(now_ms: i64) -> Replaying {
        let mut session = Session::new(0, Peer::Unix, true, now_ms);
        session.reply_mode = ReplyMode::Replay;
        let mut connection = Connection::new(session);
        // In no list, and not to be put into one: what is left over is run from here.
        connection.marks.ready = true;
        connection.marks.holding = true;
        Replaying { connection, piece: None, fresh: false }
    }

    /// Whether there is something to execute.
    pub(super) fn is_busy(&self) -> bool {
        self.piece.is_some() || self.fresh || self.connection.state != Doing::Open
    }

    /// Executes for a slice.
    fn run<'k>(
        &mut self,
        state: &mut State,
        shared: &Shared,
        batch: &mut Batch<'k>,
        until: Instant,
    ) -> Result<(), LoadError> {
        let load = &shared.persist.load;
        while !is_over(shared, until) {
            match self.connection.state {
                Doing::Open => {}
                Doing::Aside => {
                    state.run_aside(CONN, &mut self.connection, batch);
                    self.settle(state, shared)?;
                    if self.connection.state == Doing::Aside {
                        break;
                    }
                    continue;
                }
                _ => return Err(self.error("what is there is no command, or one that ends or leaves its connection")),
            }
            if self.fresh {
                let before = self.connection.query_bytes();
                state.run_query(CONN, &mut self.connection, batch);
                self.settle(state, shared)?;
                self.fresh = self.connection.query_bytes() != before || self.connection.state != Doing::Open;
                continue;
            }
            let Some((piece, at)) = &mut self.piece else {
                match load.pieces.take() {
                    None => return Ok(()),
                    Some(piece) if !piece.begins => self.piece = Some((piece, 0)),
                    Some(piece) => {
                        self.piece = Some((piece, 0));
                        self.begin_file()?;
                    }
                }
                continue;
            };
            let c = &mut self.connection;
            if *at == piece.bytes.len() {
                self.piece = None;
                load.pieces.done(1);
                continue;
            }
            let rest = &piece.bytes[*at..];
            if c.query.is_empty() && c.building.is_none() {
                // Commands are executed where they are; what is not whole waits in the connection.
                let used = state.run(CONN, c, rest, false, batch).used;
                *at += used;
                if used == 0 && c.state == Doing::Open {
                    c.query.extend_from_slice(rest);
                    *at = piece.bytes.len();
                }
                self.settle(state, shared)?;
            } else {
                c.take_in(rest);
                *at = piece.bytes.len();
                self.fresh = true;
            }
        }
        Ok(())
    }

    /// A file begins, so nothing may be left of the one before.
    fn begin_file(&mut self) -> Result<(), LoadError> {
        let c = &self.connection;
        if c.query_bytes() > 0 || c.building.is_some() {
            return Err(self.error("the file before ends inside of a command"));
        }
        if c.session.multi.is_some() {
            return Err(self.error("the file before ends inside of a transaction"));
        }
        let piece = self.piece.take();
        *self = Replaying { piece, ..Replaying::new(crate::now_ms()) };
        Ok(())
    }

    /// Drops replies, and tells errors.
    fn settle(&mut self, state: &mut State, shared: &Shared) -> Result<(), LoadError> {
        self.connection.output.clear();
        let counts = &shared.persist.load.replayed;
        counts.commands.fetch_add(std::mem::take(&mut self.connection.session.commands), Relaxed);
        for failure in state.local.failures.drain(..) {
            let Failure { name_at, name, text } = failure;
            let lsn = self.position_of(name_at);
            if text.starts_with("ERR unknown command") || text.starts_with("ERR unknown subcommand") {
                return Err(LoadError::Command { lsn, text });
            }
            if counts.errors.fetch_add(1, Relaxed) < TOLD {
                let at = lsn.map_or("without a position".to_owned(), |lsn| format!("at LSN {lsn}"));
                warning!("A command of the log, {name} {at}, answered: {text}");
            }
        }
        Ok(())
    }

    /// The position in the log of a command whose name is there in memory. If it was kept in the connection: of its piece.
    fn position_of(&self, name_at: usize) -> Option<Lsn> {
        let (piece, _) = self.piece.as_ref()?;
        let begin = piece.bytes.as_ptr() as usize;
        let offset = name_at.checked_sub(begin).filter(|offset| *offset < piece.bytes.len());
        piece.lsn.map(|lsn| lsn + offset.unwrap_or(0) as u64)
    }

    fn error(&self, text: &str) -> LoadError {
        let lsn = self.piece.as_ref().and_then(|(piece, at)| piece.lsn.map(|lsn| lsn + *at as u64));
        LoadError::Command { lsn, text: text.to_owned() }
    }
}
