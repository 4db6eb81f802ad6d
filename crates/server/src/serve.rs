//! Serving one connection: bytes in, commands run in batches, replies queued.
//!
//! Commands are found and run where the bytes were received; only what is left over is copied into the connection.
//! A batch is parsed whole, hashed and prefetched whole, then executed in order. A connection gets at most
//! [`PASS_COMMANDS`] commands or about [`PASS_NS`] a pass. Its replies so far bound what it may go on to do: beyond
//! [`OUTPUT_PAUSE`] unread bytes it runs no more commands, and its input is not read.

use crate::args::Args;
use crate::batch::{Found, Parsed, Scratch};
use crate::command::Entry;
use crate::connection::{Aside, Connection, Parked, REPLY_FREE, State as Doing};
use crate::exec::{Continuation, Exec, Hint, Outcome, Stop};
use crate::kept::Kept;
use crate::persist::load;
use crate::pubsub::{Current, class_of};
use crate::reply::Reply;
use crate::session::ReplyMode;
use crate::usual::Turn;
use crate::worker::{Action, State};
use crate::{dispatch, evict, persist};
use gimmal_io::{ConnId, Output};
use gimmal_log::Lsn;
use gimmal_resp::ProtocolError;
use gimmal_store::types::disposal;
use gimmal_store::{Batch, RopeBuilder};
use std::io;
use std::sync::Arc;

/// Commands that one connection may run in one pass.
pub const PASS_COMMANDS: usize = 64;
/// About how long one connection may keep a pass, in ns; looked at after each command.
pub const PASS_NS: u64 = 200_000;
/// Unread reply bytes beyond which a connection's commands wait.
pub const OUTPUT_PAUSE: usize = 1 << 20;
/// Received and not yet run bytes beyond which the engine stops receiving.
const QUERY_PAUSE: usize = 1 << 20;
/// After this many failed tries a command closes the gate, so that one over many shards is not starved.
pub const TRIES_BEFORE_GATE: u32 = 8;
/// Before authentication: bytes of query, and of unread replies.
const UNAUTHENTICATED_QUERY: usize = 16 * 1024;
const UNAUTHENTICATED_OUTPUT: usize = 1024;

/// What came of a buffer.
pub struct Ran {
    /// How many of its bytes are done with.
    pub used: usize,
    /// The length of a command of very many arguments that follows: its spans are those of the scratch space.
    pub wide: Option<usize>,
}

impl State {
    /// Bytes arrived.
    #[inline]
    pub fn received<'k>(&mut self, id: ConnId, data: &[u8], batch: &mut Batch<'k>) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        let c = &mut *connection;
        self.note_received(c, data.len());
        match c.state {
            Doing::Finishing | Doing::Lingering | Doing::Closing => {}
            Doing::Open if c.query.is_empty() && c.building.is_none() && !c.marks.ready => {
                let used = self.run(id, c, data, false, batch).used;
                c.query.extend_from_slice(&data[used..]);
            }
            _ => {
                c.take_in(data);
                // A limit is exceeded even by what would complete a command.
                if c.query_bytes() > QUERY_PAUSE {
                    self.enforce_limits(id, c);
                }
                if c.state == Doing::Open && !c.marks.ready {
                    self.run_query(id, c, batch);
                }
            }
        }
        self.after_commands(id, c);
        self.connections.put_back(id, connection);
    }

    /// So many bytes have come.
    #[inline(always)]
    pub fn note_received(&self, c: &mut Connection, bytes: usize) {
        c.session.active_ms = self.local.now_ms;
        c.session.received_bytes += bytes as u64;
        self.local.stats.received_bytes.add(bytes as u64);
    }

    /// Runs what was left over: more commands, parked commands, the next slices of long ones.
    pub fn run_ready<'k>(&mut self, batch: &mut Batch<'k>) {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(mut connection) = self.connections.lift(id) else { continue };
            let c = &mut *connection;
            c.marks.ready = false;
            if c.state == Doing::Aside {
                self.run_aside(id, c, batch);
            }
            if c.state == Doing::Open {
                self.run_query(id, c, batch);
            }
            self.after_commands(id, c);
            self.connections.put_back(id, connection);
            self.local.end_step();
            self.step_aside(batch);
        }
    }

    /// Runs commands out of the connection's own buffer. While a large argument is on its way there is only its command's
    /// beginning, which was parsed.
    pub fn run_query<'k>(&mut self, id: ConnId, c: &mut Connection, batch: &mut Batch<'k>) {
        if c.query.is_empty() || c.building.is_some() {
            return;
        }
        let query = std::mem::take(&mut c.query);
        let at = std::mem::take(&mut c.query_at);
        let ran = self.run(id, c, &query[at..], true, batch);
        let used = at + ran.used;
        if let Some(length) = ran.wide {
            return self.run_wide(id, c, query, used..used + length, batch);
        }
        // `run` may have moved a large argument's prefix into `c.query`; then all of the old buffer was used.
        if !c.query.is_empty() {
            return;
        }
        c.query = query;
        c.query_at = used;
        if used == c.query.len() {
            c.query_at = 0;
            c.query.clear();
            c.query.shrink_to(QUERY_KEEP);
        } else if used > c.query.len() / 2 {
            c.query.drain(..used);
            c.query_at = 0;
        }
    }

    /// Runs a command of very many arguments, which were just parsed and lie here in `query`: it gets the buffer as its own, since to
    /// copy them takes ms. What is behind it is the connection's, and is run afterwards.
    #[cold]
    fn run_wide<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        mut query: Vec<u8>,
        place: std::ops::Range<usize>,
        batch: &mut Batch<'k>,
    ) {
        c.query = query.split_off(place.end);
        let (spans, detached) = (std::mem::take(&mut self.scratch.spans), std::mem::take(&mut c.detached));
        let command = Arc::new(Kept::taken(query, place.start, spans, detached));
        let mut depends_on = 0;
        self.run_parked(id, c, Parked { command, tries: 0 }, batch, &mut depends_on);
        self.hold(id, c, depends_on);
        let more = c.state == Doing::Open && !c.query.is_empty();
        self.mark(id, c, more);
    }

    /// Runs the commands in `buffer`. One of very many arguments is left to the caller who can give it the buffer.
    pub fn run<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        buffer: &[u8],
        can_give: bool,
        batch: &mut Batch<'k>,
    ) -> Ran {
        let mut scratch = std::mem::take(&mut self.scratch);
        let until = self.local.raw_after(PASS_NS);
        let (mut at, mut left, mut wide) = (0, self.turn, None);
        let used = loop {
            // Who waits for what the last command made comes first.
            if !self.local.ready_keys.is_empty() && !self.serve_ready(batch) {
                self.mark(id, c, true);
                break at;
            }
            if c.pending_bytes() > self.output_pause(c) || left == 0 {
                self.mark(id, c, left == 0 && at < buffer.len());
                break at;
            }
            if self.local.log_active {
                self.local.ring_if_far();
                self.local.look_for_room(&self.shared.log);
            }
            scratch.clear();
            let (kept, found) = self.parse(c, buffer, at, left, &mut scratch, batch);
            if can_give && scratch.is_wide() {
                wide = Some(kept - at);
                break at;
            }
            self.prefetch(c, &scratch, batch);
            let ran = self.execute_all(id, c, buffer, &mut scratch, batch, until);
            left -= ran;
            at = scratch.parsed.get(ran).map_or(kept, |next| next.begin);
            if ran < scratch.parsed.len() || c.state != Doing::Open {
                // What was parsed ahead is parsed again later.
                c.parser = Default::default();
                if c.state != Doing::Aside {
                    c.detached.clear();
                }
                self.mark(id, c, c.state == Doing::Open);
                break at;
            }
            match found {
                Found::More => {}
                Found::Rest => break at,
                Found::Large(payload, missing) => {
                    let mut builder = RopeBuilder::new(missing);
                    builder.push(&buffer[payload..]);
                    c.parser.large_taken(buffer.len() - payload);
                    c.building = Some(builder);
                    c.query.clear();
                    c.query_at = 0;
                    c.query.extend_from_slice(&buffer[at..payload]);
                    break buffer.len();
                }
                Found::Broken(error) => {
                    self.protocol_error(c, &error);
                    // Behind replies that are held.
                    self.hold(id, c, 0);
                    break buffer.len();
                }
            }
        };
        self.scratch = scratch;
        Ran { used, wide }
    }

    /// Executes the batch in order until something stops it; returns how many commands are done with. One of its two callers
    /// is not for the default engines: the other one must not pay for it.
    #[inline(always)]
    pub fn execute_all<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        buffer: &[u8],
        s: &mut Scratch,
        batch: &mut Batch<'k>,
        until: u64,
    ) -> usize {
        self.local.conn = id;
        // What the peer has not taken is counted from here on by what the output grows.
        let room = self.output_pause(c).saturating_sub(c.pending_bytes());
        let mut turn = Turn { until, full_at: c.output.end().saturating_add(room), depends_on: 0 };
        let mut ran = 0;
        while ran < s.parsed.len() {
            let (usual, outcome) = self.execute_usual(c, buffer, s, ran, batch, &mut turn);
            ran += usual.max(1);
            let command = &s.parsed[ran - 1];
            let args = Args::new(buffer, &s.spans[command.spans.clone()], &[]);
            let depends_on = &mut turn.depends_on;
            let outcome = match usual {
                0 if command.detached => {
                    self.execute_detached(id, c, command, args, batch, depends_on);
                    Ok(())
                }
                0 => self.execute(id, c, command.named.entry, &args, command.hint, batch, depends_on),
                // Nothing is read of an outcome that was just written: that would wait for all stores before it.
                _ if outcome.is_ok() => self.executed(id, c, depends_on, Ok(())),
                _ => self.executed(id, c, depends_on, outcome),
            };
            match outcome {
                Ok(()) => {}
                // Most long commands are done in a slice: the next command of the pipeline need not wait for a pass.
                Err(Stop::Continue(rest)) => {
                    self.run_continuation(id, c, rest, batch, depends_on);
                    // What was published meanwhile is said before the next reply.
                    if c.late.is_some() {
                        break;
                    }
                }
                Err(stop) => self.stopped(id, c, stop, &args),
            }
            if !self.local.ready_keys.is_empty() && !self.serve_ready(batch) {
                break;
            }
            if c.state != Doing::Open || c.output.end() > turn.full_at || self.local.now_raw() > until {
                break;
            }
        }
        self.hold(id, c, turn.depends_on);
        ran
    }

    /// Executes a command with arguments that are not in the buffer.
    #[cold]
    fn execute_detached<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        command: &Parsed,
        args: Args<'_>,
        batch: &mut Batch<'k>,
        depends_on: &mut Lsn,
    ) {
        let detached = std::mem::take(&mut c.detached);
        let args = args.with_detached(&detached);
        if let Err(stop) = self.execute(id, c, command.named.entry, &args, command.hint, batch, depends_on) {
            self.stopped(id, c, stop, &args);
        }
    }

    /// Runs one command with its context.
    #[allow(clippy::too_many_arguments, reason = "the parts of a command's context, which live in different owners")]
    #[inline]
    fn execute<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        entry: Option<&'static Entry>,
        args: &Args<'_>,
        hint: Hint,
        batch: &Batch<'k>,
        depends_on: &mut Lsn,
    ) -> Outcome {
        self.local.conn = id;
        if c.session.reply_mode != ReplyMode::On || self.local.log_failed {
            return self.execute_apart(id, c, entry, args, hint, batch, depends_on);
        }
        if c.output.head_capacity() == 0 {
            c.output = self.spare.take();
        }
        let outcome = self.dispatch(c, entry, args, hint, batch, depends_on);
        self.executed(id, c, depends_on, outcome)
    }

    /// Executes a command whose reply may not be given. That of a client that switched replies off goes nowhere, unless it
    /// switched them on again, or pushes. That which shows a write that the failed log has lost is an error.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "the parts of a command's context, which live in different owners")]
    fn execute_apart<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        entry: Option<&'static Entry>,
        args: &Args<'_>,
        hint: Hint,
        batch: &Batch<'k>,
        depends_on: &mut Lsn,
    ) -> Outcome {
        if c.session.reply_mode == ReplyMode::Replay {
            let outcome = self.with_context(c, hint, batch, depends_on, |exec| dispatch::replay(exec, entry, args));
            return self.executed(id, c, depends_on, outcome);
        }
        self.local.pushed = false;
        let mut seen = 0;
        let kept = std::mem::take(&mut c.output);
        let mut outcome = self.dispatch(c, entry, args, hint, batch, &mut seen);
        let said = std::mem::replace(&mut c.output, kept);
        if self.local.log_failed && seen > self.local.released {
            if !matches!(outcome, Err(Stop::Park | Stop::Paused | Stop::Wait)) {
                outcome = Err(persist::LOST.into());
            }
            return self.executed(id, c, depends_on, outcome);
        }
        *depends_on = seen.max(*depends_on);
        if c.session.reply_mode == ReplyMode::On || self.local.pushed {
            c.output.append(said);
        }
        self.executed(id, c, depends_on, outcome)
    }

    /// Runs one command, its reply going to the connection's output.
    #[inline(always)]
    fn dispatch<'k>(
        &mut self,
        c: &mut Connection,
        entry: Option<&'static Entry>,
        args: &Args<'_>,
        hint: Hint,
        batch: &Batch<'k>,
        depends_on: &mut Lsn,
    ) -> Outcome {
        self.with_context(c, hint, batch, depends_on, |exec| dispatch::run(exec, entry, args))
    }

    /// Calls `run` with a command's context, its reply going to the connection's output.
    #[inline(always)]
    pub fn with_context<'k>(
        &mut self,
        c: &mut Connection,
        hint: Hint,
        batch: &Batch<'k>,
        depends_on: &mut Lsn,
        run: impl FnOnce(&mut Exec<'_>) -> Outcome,
    ) -> Outcome {
        let resp3 = c.session.resp3;
        let mut exec = Exec {
            shared: &self.shared,
            local: &mut self.local,
            session: &mut c.session,
            reply: Reply::new(&mut c.output, resp3),
            batch,
            depends_on: 0,
            hint,
        };
        let outcome = run(&mut exec);
        *depends_on = (*depends_on).max(exec.depends_on);
        outcome
    }

    /// What follows a command, whatever its outcome.
    #[inline(always)]
    fn executed(&mut self, id: ConnId, c: &mut Connection, depends_on: &mut Lsn, outcome: Outcome) -> Outcome {
        // `stopped` looks at the mode before it writes an error.
        if c.session.reply_mode != ReplyMode::On && !matches!(outcome, Err(Stop::Error(_))) {
            self.quiet(c, &outcome);
        }
        if c.session.close_after_reply && c.state == Doing::Open {
            c.state = Doing::Finishing;
            c.session.close_inbox();
        }
        if self.local.pubsub.published {
            self.published(id, c, depends_on, matches!(outcome, Err(Stop::Continue(_))));
        }
        outcome
    }

    /// A command published: its messages depend on what its connection is still to be told, and those to its own worker
    /// come behind its reply and before the next one.
    #[cold]
    fn published(&mut self, id: ConnId, connection: &mut Connection, depends_on: &mut Lsn, is_writing: bool) {
        let earlier = connection.held.back().map_or(0, |(lsn, _)| *lsn);
        self.local.settle(&self.shared, earlier.max(*depends_on));
        self.deliver(Some(Current { id, connection, depends_on, is_writing }));
    }

    /// Settles what was published by no connection's command: keys that have expired, waiters that were served. Their
    /// changes are in the log by now.
    #[inline]
    pub fn publish_rest(&mut self) {
        if self.local.pubsub.published {
            let lsn = if self.local.log_active { self.shared.log.end() } else { 0 };
            self.local.settle(&self.shared, lsn);
            self.deliver(None);
        }
    }

    /// Hands out what other workers have published.
    #[inline]
    pub fn look_for_publications(&mut self) {
        // Commands of waiters publish behind the command that served them.
        self.publish_rest();
        if !self.local.pubsub.is_done() || self.shared.mail[self.local.id].has_publications() {
            self.deliver(None);
        }
    }

    /// Moves CLIENT REPLY SKIP on: the command after the one that asked is silent, then all is as before.
    fn quiet(&self, c: &mut Connection, outcome: &Outcome) {
        if matches!(outcome, Err(Stop::Park | Stop::Paused | Stop::Continue(_))) {
            return;
        }
        c.session.reply_mode = match c.session.reply_mode {
            ReplyMode::SkipNext => ReplyMode::Skip,
            ReplyMode::Skip => ReplyMode::On,
            other => other,
        };
    }

    /// A command that has not replied: it answers an error, or is set aside.
    #[cold]
    fn stopped(&mut self, id: ConnId, c: &mut Connection, stop: Stop, args: &Args<'_>) {
        match stop {
            Stop::Error(text) if c.session.reply_mode == ReplyMode::Replay => {
                load::note_failure(&mut self.local, args, &text);
            }
            Stop::Error(text) => {
                self.local.stats.errors.add(1);
                self.shared.count_error(dispatch::error_prefix(&text));
                if c.session.reply_mode == ReplyMode::On {
                    Reply::new(&mut c.output, c.session.resp3).put().error(text.as_bytes());
                }
                self.quiet(c, &Ok(()));
            }
            // Closed by what its own command published to it: nobody is there to go on for.
            _ if c.state == Doing::Closing => self.give_up_wait(),
            Stop::Park | Stop::Paused => {
                self.local.stats.parks.add(1);
                let command = Arc::new(Kept::copied(args));
                c.aside = Some(Box::new(Aside::Parked(Parked { command, tries: 0 })));
                c.state = Doing::Aside;
                match matches!(stop, Stop::Park) {
                    true => self.park(id, c),
                    false => self.wait_for_release(id, c),
                }
            }
            Stop::Continue(continuation) => {
                c.aside = Some(Box::new(Aside::Continuation(continuation, 0)));
                c.state = Doing::Aside;
                self.mark(id, c, true);
            }
            Stop::Wait => {
                c.state = Doing::Waiting;
                self.begin_wait(id, c);
            }
        }
    }

    /// A command could not lock: it runs again in the next pass.
    fn park(&mut self, id: ConnId, c: &mut Connection) {
        self.local.has_parked = true;
        self.mark(id, c, true);
    }

    /// Takes up a command that was set aside.
    pub fn run_aside<'k>(&mut self, id: ConnId, c: &mut Connection, batch: &mut Batch<'k>) {
        if c.pending_bytes() > self.output_pause(c) {
            return;
        }
        if !self.local.ready_keys.is_empty() && !self.serve_ready(batch) {
            self.mark(id, c, true);
            return;
        }
        // What is replayed is what the others are held for.
        let is_begun = matches!(c.aside.as_deref(), Some(Aside::Continuation(..)));
        if self.local.held && is_begun && c.session.reply_mode != ReplyMode::Replay {
            return self.wait_for_release(id, c);
        }
        let Some(aside) = c.aside.take() else { return };
        c.state = Doing::Open;
        let mut depends_on = 0;
        match *aside {
            Aside::Parked(parked) => self.run_parked(id, c, parked, batch, &mut depends_on),
            Aside::Continuation(continuation, lsn) => {
                depends_on = lsn;
                self.run_continuation(id, c, continuation, batch, &mut depends_on);
            }
        }
        self.hold(id, c, depends_on);
    }

    fn run_continuation<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        mut continuation: Box<dyn Continuation>,
        batch: &Batch<'k>,
        depends_on: &mut Lsn,
    ) {
        self.local.conn = id;
        let mut nowhere = Output::default();
        let output = if c.session.reply_mode == ReplyMode::On { &mut c.output } else { &mut nowhere };
        let resp3 = c.session.resp3;
        let mut exec = Exec {
            shared: &self.shared,
            local: &mut self.local,
            session: &mut c.session,
            reply: Reply::new(output, resp3),
            batch,
            depends_on: *depends_on,
            hint: None,
        };
        let done = match exec.local.tracks_cpu {
            false => continuation.step(&mut exec),
            true => dispatch::measured(&mut exec, |exec| continuation.step(exec)),
        };
        *depends_on = exec.depends_on;
        // Not the next command's time.
        self.local.lap_ns();
        if self.local.pubsub.published {
            self.published(id, c, depends_on, !matches!(done, Ok(true)));
        }
        match done {
            Ok(true) => self.quiet(c, &Ok(())),
            Ok(false) | Err(Stop::Park) => self.stopped(id, c, Stop::Continue(continuation), &Args::new(&[], &[], &[])),
            Err(stop) => self.stopped(id, c, stop, &Args::new(&[], &[], &[])),
        }
    }

    fn run_parked<'k>(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        mut parked: Parked,
        batch: &mut Batch<'k>,
        depends_on: &mut Lsn,
    ) {
        let command = parked.command.clone();
        let args = command.args();
        let entry = dispatch::lookup(self.shared.commands, &args);
        // The gate keeps every other worker out while this one locks what it needs.
        let closed = if parked.tries >= TRIES_BEFORE_GATE { batch.try_close() } else { None };
        self.local.exclusive = closed.is_some();
        self.local.kept = Some(command.clone());
        let outcome = self.execute(id, c, entry, &args, None, batch, depends_on);
        self.local.kept = None;
        self.local.exclusive = false;
        drop(closed);
        match outcome {
            Ok(()) => {}
            Err(stop @ (Stop::Park | Stop::Paused)) if c.state != Doing::Closing => {
                parked.tries += u32::from(matches!(stop, Stop::Park));
                c.state = Doing::Aside;
                match matches!(stop, Stop::Park) {
                    true => self.park(id, c),
                    false => self.wait_for_release(id, c),
                }
                c.aside = Some(Box::new(Aside::Parked(parked)));
            }
            Err(stop) => self.stopped(id, c, stop, &args),
        }
    }

    /// Marks a connection that has more to run.
    #[inline]
    pub fn mark(&mut self, id: ConnId, c: &mut Connection, more: bool) {
        if more && !c.marks.ready {
            c.marks.ready = true;
            self.ready.push_back(id);
        }
    }

    /// As `mark`, by id.
    pub fn mark_ready(&mut self, id: ConnId) {
        if let Some(c) = self.connections.find(id)
            && !c.marks.ready
        {
            c.marks.ready = true;
            self.ready.push_back(id);
        }
    }

    /// After commands ran: note what is to be sent, stop reading from a client that does not read, enforce limits.
    #[inline]
    pub fn after_commands(&mut self, id: ConnId, c: &mut Connection) {
        let output = c.output.len();
        if output > 0 && !c.marks.dirty {
            c.marks.dirty = true;
            self.dirty.push(id);
        }
        let is_little = output + c.sending + c.held_bytes <= REPLY_FREE;
        if !(is_little && c.is_as_usual()) {
            self.look_after(id, c);
        }
    }

    /// What there is to do after commands for a connection that is not as most are.
    fn look_after(&mut self, id: ConnId, c: &mut Connection) {
        if c.output_bytes() > self.local.output_limit {
            self.enforce_limits(id, c);
        }
        self.count_buffers(c);
        let query = c.query_bytes();
        // Only input that can be run later may wait in the kernel: the rest of an unfinished command must come in.
        let runs_later = c.marks.ready || c.state != Doing::Open;
        let over = c.pending_bytes() > self.output_pause(c) || query > QUERY_PAUSE && runs_later;
        if over != c.marks.paused && !matches!(c.state, Doing::Closing | Doing::Moving(_)) {
            c.marks.paused = over;
            self.actions.push(if over { Action::Pause(id) } else { Action::Resume(id) });
        }
        if over || query > QUERY_PAUSE || query > UNAUTHENTICATED_QUERY && !c.session.authenticated {
            self.enforce_limits(id, c);
        }
        let said = c.output.is_empty() && c.sending == 0 && c.held.is_empty();
        if said && (c.marks.ended || c.state == Doing::Finishing) {
            self.finish(id, c);
        }
    }

    /// Brings up to date what the connection's buffers add to the memory in use.
    #[inline]
    fn count_buffers(&self, c: &mut Connection) {
        let (before, now) = (c.counted_bytes, c.buffer_bytes());
        if before != now && c.state != Doing::Closing {
            c.counted_bytes = now;
            evict::clients::grown(self, c, now);
            self.shared.client_bytes.change(self.local.id, now.wrapping_sub(before).cast_signed());
        }
    }

    /// Bytes of unread replies beyond which the connection waits.
    #[inline]
    pub fn output_pause(&self, c: &Connection) -> usize {
        if c.session.authenticated { OUTPUT_PAUSE } else { UNAUTHENTICATED_OUTPUT }
    }

    /// Closes a connection that is over a hard limit, or over the soft one for too long. As this server pauses a client
    /// long before the usual soft limit, one that was paused and takes nothing for as many seconds is closed as well.
    #[cold]
    pub fn enforce_limits(&mut self, id: ConnId, c: &mut Connection) {
        if matches!(c.state, Doing::Closing) {
            return;
        }
        let limit = self.local.config.client_output_buffer_limit(class_of(&c.session));
        let now = self.local.now_ms;
        // Nobody but others' publishing bounds what waits for a subscriber: held messages count, and it is not paused.
        let (bytes, paused) = match c.session.subscriptions.is_some() {
            true => (c.pending_bytes() as u64, false),
            false => (c.output_bytes() as u64, c.output_bytes() > self.output_pause(c)),
        };
        let soft = limit.soft > 0 && (bytes > limit.soft || paused);
        if !soft {
            c.since_ms = 0;
        } else if c.since_ms == 0 {
            c.since_ms = now;
        }
        let too_long = soft && now - c.since_ms > limit.soft_seconds.saturating_mul(1000);
        if limit.hard > 0 && bytes > limit.hard || too_long && (c.session.subscriptions.is_some() || c.sending == 0) {
            return self.close_over_limit(id, c);
        }
        if too_long {
            // What waits is at most one reply beyond the pause: whoever still takes some of it may take its time.
            self.actions.push(Action::Measure(id));
        }
        let query_limit = match c.session.authenticated {
            true => self.local.config.client_query_buffer_limit(),
            false => UNAUTHENTICATED_QUERY,
        };
        if c.query_bytes() > query_limit {
            let line = crate::commands::client::describe(&self.shared, id, c, now);
            crate::warning!("Closing client that reached max query buffer length: {line}");
            self.local.stats.query_limit_closes.add(1);
            self.begin_close(id, c);
        }
    }

    fn close_over_limit(&mut self, id: ConnId, c: &mut Connection) {
        let line = crate::commands::client::describe(&self.shared, id, c, self.local.now_ms);
        crate::warning!("Client {line} closed: it is over its output buffer limits.");
        self.local.stats.output_limit_closes.add(1);
        self.begin_close(id, c);
    }

    /// So much of a connection's send is not taken yet. It was over its soft limit for too long: it is closed, unless it
    /// took something since that was looked at last.
    pub fn measured(&mut self, id: ConnId, unsent: usize) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        let c = &mut *connection;
        match c.sending.checked_sub(unsent) {
            Some(taken @ 1..) if unsent > 0 => {
                self.local.stats.sent_bytes.add(taken as u64);
                c.session.replied_bytes += taken as u64;
                c.sending = unsent;
                c.since_ms = self.local.now_ms;
                self.room_again(id, c);
            }
            // The send is over: its completion is on the way.
            _ if unsent == 0 => {}
            _ if c.state == Doing::Closing => {}
            _ => self.close_over_limit(id, c),
        }
        self.connections.put_back(id, connection);
    }

    /// As [`State::close`], for a connection that was lifted out and is not being closed yet.
    pub fn begin_close(&mut self, id: ConnId, c: &mut Connection) {
        if c.session.is_known() {
            self.local.end_session(&self.shared, &mut c.session, id);
        }
        self.end_wait(c);
        c.state = Doing::Closing;
        c.aside = None;
        self.actions.push(Action::Close(id));
    }

    /// Everything was said: shut our side, and let the peer close its own, so that it reads the last reply.
    fn finish(&mut self, id: ConnId, c: &mut Connection) {
        if c.marks.ended {
            // Who waits for a message has something to be said still; what it sent behind that is run then.
            if !c.marks.ready && !matches!(c.state, Doing::Aside | Doing::Waiting | Doing::Closing) {
                self.begin_close(id, c);
            }
        } else {
            if c.session.is_known() {
                self.local.end_session(&self.shared, &mut c.session, id);
            }
            c.state = Doing::Lingering;
            c.since_ms = self.local.now_ms;
            self.actions.push(Action::Shutdown(id));
            if c.marks.paused {
                c.marks.paused = false;
                self.actions.push(Action::Resume(id));
            }
        }
    }

    /// The peer sends no more. What it sent before is still carried out and answered, then the connection is closed.
    pub fn peer_closed(&mut self, id: ConnId) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        connection.marks.ended = true;
        self.leave_wait(&mut connection);
        self.after_commands(id, &mut connection);
        self.connections.put_back(id, connection);
    }

    /// Whether a connection may get more to send before the pass ends: it has commands to run, or others publish to it.
    #[inline]
    pub fn gets_more(&mut self, id: ConnId) -> bool {
        self.connections.find(id).is_some_and(|c| c.marks.ready || c.session.subscriptions.is_some())
    }

    /// What to send for a connection: nothing if a send is in flight, unless the engine `pipelines`.
    #[inline]
    pub fn to_send(&mut self, id: ConnId, pipelines: bool) -> Option<Output> {
        let c = self.connections.find(id)?;
        c.marks.dirty = false;
        if c.sending > 0 && !pipelines || c.output.is_empty() || c.state == Doing::Closing {
            return None;
        }
        let output = std::mem::take(&mut c.output);
        c.sending += output.len();
        Some(output)
    }

    /// A send is over; of others, so much is in flight.
    #[inline]
    pub fn sent(&mut self, id: ConnId, output: Output, left: usize, result: io::Result<()>) {
        if let Some(output) = self.spare.keep(output)
            && output.end() > disposal::FREED_AT_ONCE
        {
            disposal::dispose(output);
        }
        let Some(mut connection) = self.connections.lift(id) else { return };
        let c = &mut *connection;
        let taken = (c.sending - left) as u64;
        self.local.stats.sent_bytes.add(taken);
        c.session.replied_bytes += taken;
        c.sending = left;
        match result {
            Ok(()) => {
                if c.output_bytes() as u64 <= self.local.config.client_output_buffer_limit(class_of(&c.session)).soft {
                    c.since_ms = 0;
                }
                self.room_again(id, c);
            }
            Err(_) if c.state == Doing::Closing => {}
            // The peer is gone, or reset the connection: there is no one to tell.
            Err(_) => self.begin_close(id, c),
        }
        self.connections.put_back(id, connection);
    }

    /// There is room for replies again: commands that wait for it run.
    #[inline]
    fn room_again(&mut self, id: ConnId, c: &mut Connection) {
        let waiting = c.query.len() > c.query_at || c.state == Doing::Aside;
        self.mark(id, c, waiting && matches!(c.state, Doing::Open | Doing::Aside) && !self.is_held(c));
        self.after_commands(id, c);
    }

    /// A paused command waits in `holding`, not in `ready`.
    fn is_held(&self, c: &Connection) -> bool {
        matches!(c.aside.as_deref(), Some(Aside::Parked(_))) && c.marks.holding
    }

    /// A thread has done its part of a command: the rest runs here.
    pub fn take_up(&mut self, id: ConnId, rest: Box<dyn Continuation>) {
        let Some(c) = self.connections.find(id) else { return };
        if c.state == Doing::Waiting {
            c.aside = Some(Box::new(Aside::Continuation(rest, 0)));
            c.state = Doing::Aside;
            self.mark_ready(id);
        }
    }

    /// A reply that came by message; the connection goes on with its next command.
    pub fn reply_later(&mut self, id: ConnId, write: impl FnOnce(&mut Connection, &mut State)) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        if connection.state == Doing::Waiting {
            connection.state = Doing::Open;
            write(&mut connection, self);
            if !connection.held.is_empty() {
                self.hold(id, &mut connection, 0);
            }
            if connection.session.close_after_reply {
                connection.state = Doing::Finishing;
            }
            let more = connection.state == Doing::Open && !connection.query.is_empty();
            self.mark(id, &mut connection, more);
            self.after_commands(id, &mut connection);
        }
        self.connections.put_back(id, connection);
    }

    /// The connection's wait is over, and its reply written, which depends on `lsn`: it goes on with what it sent meanwhile.
    pub fn go_on(&mut self, id: ConnId, c: &mut Connection, lsn: Lsn) {
        self.hold(id, c, lsn);
        let more = c.state == Doing::Open && !c.query.is_empty();
        self.mark(id, c, more);
        self.after_commands(id, c);
    }

    /// Answers a broken request, and closes once the answer is sent.
    #[cold]
    fn protocol_error(&mut self, c: &mut Connection, error: &ProtocolError) {
        let text = format!("ERR Protocol error: {}", String::from_utf8_lossy(&error.text()));
        self.local.stats.errors.add(1);
        self.shared.count_error("ERR");
        Reply::new(&mut c.output, c.session.resp3).put().error(&text);
        c.state = Doing::Finishing;
    }
}

/// Capacity that an emptied query buffer keeps: nothing, so that an idle connection costs nothing.
const QUERY_KEEP: usize = 0;

impl Connection {
    /// Keeps received bytes: first what a large argument is missing, the rest for the parser.
    pub fn take_in(&mut self, mut data: &[u8]) {
        if let Some(builder) = &mut self.building {
            let missing = self.parser.large_missing();
            let (payload, rest) = data.split_at(missing.min(data.len()));
            builder.push(payload);
            self.parser.large_taken(payload.len());
            data = rest;
            if payload.len() == missing {
                let rope = self.building.take().expect("it was just filled").finish();
                let before = if self.detached.is_empty() { 0 } else { self.detached_bytes };
                self.detached_bytes = before + rope.len();
                self.detached.push(rope.into());
            }
        }
        self.query.extend_from_slice(data);
    }
}
