//! A worker: one thread with its engine, its connections and its timers. The only event loop of the server.
//!
//! A pass: wait (which submits what the last pass queued), take completions and run the commands that arrived, run what
//! was left over, send the replies, read mail, tick. Commands run between entering and leaving the gate; nothing in a
//! pass waits for a lock. Between two connections the worker steps out of the gate if another one wants to close it.
//!
//! [`State`] is all of a worker but its engine, so that it is compiled once for the three engines; what it wants of the
//! engine while a completion is borrowed from it goes through `actions`.

use crate::batch::Scratch;
use crate::blocking::{Blocked, Waiter};
use crate::command::gate;
use crate::config::{AofAck, ClientClass, Config, Events};
use crate::connection::{Connection, Connections, State as Doing};
use crate::evict::Evictor;
use crate::held::Holding;
use crate::kept::Kept;
use crate::mail::Message;
use crate::notify;
use crate::persist::{aof, load};
use crate::pubsub::{Receiver, Subscribers};
use crate::session::Peer;
use crate::shared::{Hold, Settings, Shared};
use crate::spare::Spare;
use crate::stats::WorkerStats;
use crate::tracking::{Changes, Tracker};
use crate::tx::Gathered;
use crate::usual::RUN;
use crate::{accept, evict, flush, tick};
use gimmal_io::{Completion, ConnId, Engine, ListenerId, Socket};
use gimmal_log::aof::slice;
use gimmal_log::record::Record;
use gimmal_log::{Appender, Log, Lsn};
use gimmal_store::{AccessClock, Batch, Hash, NewValue, Table};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Unread replies that the smallest output limit allows, in bytes: Redis does not count a client's first 16 KiB.
const OUTPUT_UNLIMITED: usize = 16 * 1024;
/// After a command that took so many µs the pass's time is no longer taken for the time: deadlines are in ms.
pub const STALE_US: i64 = 1000;

/// A worker and its engine.
pub struct Worker<E> {
    /// What its connections are read and written with.
    pub engine: E,
    /// The rest.
    pub state: State,
}

/// All of a worker but its engine.
pub struct State {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// What commands need of this worker.
    pub local: Local,
    /// Its connections.
    pub connections: Connections,
    /// Connections with more commands to run.
    pub ready: VecDeque<ConnId>,
    /// Connections with replies to send.
    pub dirty: Vec<ConnId>,
    /// So many of these, the first ones, are to be sent at the end of the pass.
    pub sent_later: usize,
    /// Most commands that a connection runs before another one does, or its replies are sent.
    pub turn: usize,
    /// Connections whose replies wait for the log, or whose commands wait for the end of a pause.
    pub holding: Holding,
    /// Its connections that wait for a key.
    pub blocked: Blocked,
    /// Times that a ready key's waiters could not be served.
    pub serve_tries: u32,
    /// What the engine is to do.
    pub actions: Vec<Action>,
    /// Buffers of sent replies.
    pub spare: Spare,
    /// Scratch space of `deliver`.
    pub receivers: Vec<Receiver>,
    /// Scratch space of the parser.
    pub scratch: Scratch,
    /// Where the walks of the timers stand.
    pub ticker: tick::Ticker,
    /// What it is loading.
    pub load: load::Part,
    /// Listeners of this worker; only the first one has any.
    pub listeners: Vec<(ListenerId, Peer)>,
}

/// What the engine is to do once no completion is borrowed from it.
pub enum Action {
    /// Start serving a socket.
    Attach(ConnId, Socket),
    /// Stop receiving.
    Pause(ConnId),
    /// Receive again.
    Resume(ConnId),
    /// Shut the write side.
    Shutdown(ConnId),
    /// Ask how much of a send was taken, and close who takes nothing for too long.
    Measure(ConnId),
    /// Close.
    Close(ConnId),
    /// Give the socket back.
    Detach(ConnId),
}

/// What commands need of their worker.
pub struct Local {
    /// Its number.
    pub id: usize,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
    /// The configuration this pass works with.
    pub config: Arc<Config>,
    config_version: u64,
    /// The time of this pass, in ms; under a lock never before the shard's last.
    pub now_ms: i64,
    /// What the access clocks of entries mean, at the time of the last tick.
    pub access: AccessClock,
    /// The access clock of a new entry, 24 bits.
    pub clock: u32,
    /// The memory limit.
    pub evictor: Evictor,
    /// Something reads the log.
    pub log_active: bool,
    /// Writes up to here may be shown.
    pub released: Lsn,
    /// The data set is being loaded: nothing may expire or be evicted.
    pub loading: bool,
    /// Commands are held: nothing may change the data set.
    pub held: bool,
    /// Replies wait for the log: `aof-ack durable`.
    pub holds_replies: bool,
    /// The log has failed: what is not released now never will be.
    pub log_failed: bool,
    /// Gates that are closed for all clients; see `command::gate`.
    pub gates: u32,
    /// Threshold of the slow log, in µs; negative: off.
    pub slower_than_us: i64,
    /// Threshold of the latency monitor, in µs.
    pub delayed_us: i64,
    /// The lowest of the two and [`STALE_US`]: from here on a command is looked at more closely.
    pub notable_ns: u64,
    /// Most brief commands that are timed together: more than one if none could be notable by what it does.
    pub timed_together: usize,
    /// Unread replies, in bytes, beyond which a client is closed at once.
    pub output_limit: usize,
    /// Bytes from which a request, and a reply, is entered into the command log.
    pub large_request: usize,
    /// See `large_request`.
    pub large_reply: usize,
    /// Durations of commands are kept in histograms.
    pub tracks_latency: bool,
    /// The processor time of every command is measured.
    pub tracks_cpu: bool,
    /// Classes of keyspace events that are published.
    pub events: Events,
    /// The gate is closed for the command that runs: its locks cannot fail.
    pub exclusive: bool,
    /// What the commands of the transaction that runs have changed.
    pub gathered: Gathered,
    /// Connections of this worker that listen, and what is to be handed to them.
    pub pubsub: Subscribers,
    /// What the command that runs has changed, for who asks for prefixes.
    pub changes: Changes,
    /// Whose reads are remembered: the client's whose command runs.
    pub reader: Option<Arc<Tracker>>,
    /// There are monitors.
    pub monitored: bool,
    /// The line of the command that runs, until it is shown.
    pub line: Option<Vec<u8>>,
    /// The reply of the command that ran is a push: CLIENT REPLY does not silence it.
    pub pushed: bool,
    /// The connection whose command runs.
    pub conn: ConnId,
    /// Random numbers.
    pub random: Random,
    /// A buffer for editing small aggregates.
    pub scratch: Vec<u8>,
    /// The key of a value that was found too small in this pass for its elements to be requested ahead.
    pub small: Option<Hash>,
    /// Keys that this worker made ready for who waits for them, in order.
    pub ready_keys: VecDeque<(usize, Box<[u8]>)>,
    /// The command that runs has begun to wait.
    pub blocking: Option<Arc<Waiter>>,
    /// The command that runs is a waiter's.
    pub serving: bool,
    /// While the log is replayed, when `now_ms` stands still: the time of day. Else 0.
    pub replay_clock_ms: i64,
    /// Errors of commands of the log that is being replayed.
    pub failures: Vec<load::Failure>,
    /// Times that the command that runs has begun anew, as what a thread had made for it was no use.
    pub begun_anew: u32,
    /// The command that runs, if it is kept already.
    pub kept: Option<Arc<Kept>>,
    appender: Appender,
    record: Record,
    timer: quanta::Clock,
    /// Thread CPU time at the end of the last step, if that is measured.
    step_ended: Duration,
    lap: u64,
    pass_began: u64,
    commands_before_pass: u64,
    /// In this pass a command could not lock.
    pub has_parked: bool,
}

/// Longest sleep: timers run ten times a second.
const TICK: Duration = Duration::from_millis(100);

impl<E: Engine> Worker<E> {
    /// A worker on its own thread, with the engine that was made there.
    pub fn new(id: usize, engine: E, shared: Arc<Shared>) -> Worker<E> {
        let waker = engine.waker();
        shared.log.set_waker(id, Box::new(move || waker.wake()));
        shared.mail[id].set_waker(engine.waker());
        let state = State {
            local: Local::new(id, &shared),
            shared,
            connections: Connections::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            sent_later: 0,
            turn: flush::turn(engine.flushes()),
            holding: Holding::default(),
            blocked: Blocked::default(),
            serve_tries: 0,
            actions: Vec::new(),
            spare: Spare::default(),
            receivers: Vec::new(),
            scratch: Scratch::default(),
            ticker: tick::Ticker::default(),
            load: load::Part::default(),
            listeners: Vec::new(),
        };
        Worker { engine, state }
    }

    /// Listens on these sockets; only the first worker does.
    pub fn listen(&mut self, sockets: Vec<(Socket, Peer)>) -> io::Result<()> {
        for (id, (socket, peer)) in (0..).zip(sockets) {
            self.engine.listen(id, socket)?;
            self.state.listeners.push((id, peer));
        }
        Ok(())
    }

    /// Serves until the server stops.
    pub fn run(mut self) -> io::Result<()> {
        let shared = self.state.shared.clone();
        shared.lazyfree.serve_this_thread();
        // Where it is refused, clients of a shared processor wait longer.
        let _refused = slice::set(slice::BRIEF).is_err();
        while !shared.lifecycle.is_stopping() {
            let timeout = self.sleep_for();
            self.pass(&shared, timeout)?;
        }
        self.close_all()
    }

    /// One pass over this worker's `shared` state, which sleeps for at most `timeout` if there is nothing to do. Whoever
    /// has no threads (a fuzzer) drives a worker by this; everyone else calls [`Worker::run`].
    pub fn pass(&mut self, shared: &Shared, timeout: Duration) -> io::Result<()> {
        let me = self.state.local.id;
        self.engine.wait(Some(timeout))?;
        self.state.local.end_step();
        shared.mail[me].awake();
        self.state.local.appender.awake();
        let mut batch = shared.keyspace.gate().enter(me);
        self.state.begin_pass();
        self.complete(&mut batch);
        self.state.time_out();
        self.state.local.end_step();
        self.run_ready(&mut batch);
        self.state.serve_ready(&mut batch);
        self.state.release_held();
        if shared.persist.load.is_under_way() {
            load::step(&mut self.state, &mut batch);
        }
        self.state.look_for_publications();
        self.flush();
        drop(batch);
        self.state.local.end_step();
        if self.state.local.log_active {
            shared.log.ring();
            if shared.persist.aof.is_inline() {
                self.write_log(shared);
            }
        }
        shared.keyspace.collect(me);
        self.state.read_mail();
        self.act();
        self.state.local.end_step();
        tick::tick(&mut self.state);
        self.act();
        self.state.local.end_step();
        self.state.end_pass(self.engine.counters());
        Ok(())
    }

    /// Connections that it has listed as holding replies, closed ones included.
    pub fn holders(&self) -> usize {
        self.state.holders()
    }

    /// Writes the log, as Redis does it: between running commands and sending their replies.
    #[cold]
    fn write_log(&mut self, shared: &Shared) {
        shared.persist.aof.write_inline(&shared.log);
        self.state.release_held();
        self.flush();
    }

    /// How long the engine may wait: not at all while there is work, else until the next tick.
    fn sleep_for(&mut self) -> Duration {
        let state = &mut self.state;
        let served = state.local.pubsub.is_done() && (state.local.ready_keys.is_empty() || state.local.held);
        let busy = !state.ready.is_empty() || !state.dirty.is_empty() || !served;
        if busy || !state.may_sleep_on_log() || !state.shared.mail[state.local.id].may_sleep() {
            return Duration::ZERO;
        }
        if load::has_work(state) {
            state.shared.mail[state.local.id].awake();
            return Duration::ZERO;
        }
        let pause_ms = state.shared.pause.until_ms() - state.local.now_ms;
        let most = if pause_ms > 0 { TICK.min(Duration::from_millis(pause_ms.unsigned_abs())) } else { TICK };
        let most = match state.blocked.next_ms() {
            None => most,
            // To the ms: clients measure their timeouts.
            Some(at_ms) => most.min(Duration::from_millis((at_ms - crate::now_ms()).max(1).unsigned_abs())),
        };
        state.ticker.until_next(TICK).min(most)
    }

    /// Takes what the engine completed, and runs the commands that arrived.
    fn complete<'k>(&mut self, batch: &mut Batch<'k>) {
        let Worker { engine, state } = self;
        let mut foreseen = 0;
        loop {
            if foreseen == 0 {
                flush::after_group(engine, state);
                state.local.end_step();
                foreseen = engine.look_ahead();
                state.look_ahead((0..foreseen).filter_map(|at| engine.upcoming(at)), batch);
            }
            let Some(completion) = engine.next() else { break };
            foreseen = foreseen.saturating_sub(1);
            match completion {
                Completion::Received { conn, data } => state.received(conn, data, batch),
                Completion::Parsed { conn, data, requests } => state.received_parsed(conn, data, requests, batch),
                Completion::ReceiveEnded { conn, .. } => state.peer_closed(conn),
                Completion::Sent { conn, output, result } => flush::sent(engine, state, conn, output, result),
                Completion::Accepted { listener, socket } => accept::accepted(state, listener, socket),
                Completion::AcceptFailed { error, .. } => accept::failed(&error),
                Completion::Closed { conn } => state.forget(conn),
                Completion::Detached { conn, socket } => state.detached(conn, socket),
                Completion::Woken => {}
            }
            flush::after_completion(engine, state);
            state.local.end_step();
            state.step_aside(batch);
        }
        self.act();
    }

    /// Does what was put off while completions were borrowed from the engine.
    pub fn act(&mut self) {
        let Worker { engine, state } = self;
        for action in std::mem::take(&mut state.actions) {
            match action {
                Action::Attach(conn, socket) => {
                    if let Err(error) = engine.attach(conn, socket) {
                        crate::warning!("Cannot serve a new connection: {error}");
                        state.forget(conn);
                    }
                }
                Action::Pause(conn) => engine.pause(conn),
                Action::Resume(conn) => engine.resume(conn),
                Action::Shutdown(conn) => engine.shutdown_write(conn),
                Action::Measure(conn) => state.measured(conn, engine.unsent(conn)),
                Action::Close(conn) => engine.close(conn),
                Action::Detach(conn) => engine.detach(conn),
            }
        }
    }

    /// The server stops: replies that may be sent are sent, then every connection is closed.
    fn close_all(mut self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(2);
        for (id, _) in std::mem::take(&mut self.state.listeners) {
            self.engine.unlisten(id);
        }
        let started = std::time::Instant::now();
        // What was done is acknowledged as soon as it is on disk.
        while self.state.holds_replies() && started.elapsed() < PATIENCE {
            let shared = self.state.shared.clone();
            shared.log.ring();
            if shared.persist.aof.is_inline() {
                shared.persist.aof.write_inline(&shared.log);
            }
            self.state.release_held();
            if self.state.holds_replies() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.flush();
        let open: Vec<ConnId> = self.state.connections.iter().map(|(id, _)| id).collect();
        for conn in &open {
            let sending = self.state.connections.find(*conn).is_some_and(|c| c.sending > 0);
            if !sending {
                self.state.close(*conn);
            }
        }
        self.act();
        while !self.state.connections.is_empty() && started.elapsed() < PATIENCE {
            self.engine.wait(Some(Duration::from_millis(10)))?;
            while let Some(completion) = self.engine.next() {
                match completion {
                    Completion::Sent { conn, output, result } => {
                        // An error is its end as well.
                        drop((output, result));
                        let (engine, state) = (&self.engine, &mut self.state);
                        if engine.unsent(conn) == 0 {
                            state.close(conn);
                        }
                    }
                    Completion::Closed { conn } => self.state.forget(conn),
                    _ => {}
                }
            }
            self.act();
        }
        Ok(())
    }
}

impl State {
    /// Looks at clock, configuration, log and pause, once for the whole pass.
    fn begin_pass(&mut self) {
        let local = &mut self.local;
        local.now_ms = crate::now_ms();
        local.lap = local.timer.raw();
        local.pass_began = local.lap;
        local.commands_before_pass = local.stats.commands.value();
        local.has_parked = false;
        local.small = None;
        local.look_at(&self.shared.settings);
        // In this order: who starts the log ends the load afterwards, so no write is let in that is not logged.
        local.loading = self.shared.persist.load.is_under_way();
        local.look_at_log(&self.shared);
        local.monitored = self.shared.pubsub.has_monitors();
        local.gates = match self.shared.pause.at(local.now_ms) {
            None => 0,
            Some(false) => gate::PAUSED_WRITES,
            Some(true) => gate::PAUSED_ALL,
        };
        // A replacement that takes long lets through what needs no data, and refuses the rest.
        let hold = self.shared.lifecycle.hold();
        local.held = hold.is_some();
        let refuses = hold == Some(Hold::Replacement) && self.shared.persist.load.is_long();
        local.gates |= if local.held && !refuses { gate::HELD } else { 0 };
        local.gates |= if local.evictor.is_on() { gate::MEMORY } else { 0 };
        let persist = &self.shared.persist;
        let refused = persist.save.refuses_writes(&local.config) || persist.aof.state() != aof::State::Fine;
        local.gates |= if refused { gate::DISK } else { 0 };
        local.gates |= if local.loading { gate::LOADING } else { 0 };
        local.look_for_room(&self.shared.log);
    }

    /// Whether any reply waits for the log.
    fn holds_replies(&self) -> bool {
        self.connections.iter().any(|(_, c)| !c.held.is_empty())
    }

    fn end_pass(&mut self, counters: gimmal_io::Counters) {
        let blocked = self.held_aside() + self.blocked.len();
        self.local.stats.blocked.set(blocked as u64);
        let stats = &self.local.stats;
        stats.passes.add(1);
        let ended = self.local.timer.raw();
        let took_ns = self.local.timer.delta_as_nanos(self.local.pass_began, ended);
        stats.busy_ns.add(took_ns);
        stats.pass_max_ns.raise(took_ns);
        // RESETSTAT may have come in between.
        let ran = stats.commands.value().saturating_sub(self.local.commands_before_pass);
        stats.pass_max_commands.raise(ran);
        if self.local.has_parked && ran == 0 {
            // Whoever has the lock may be waiting for this very processor.
            std::thread::yield_now();
        }
        stats.pass_us.raise(took_ns / 1000);
        for (counter, value) in stats.engine.iter().zip(counters.values()) {
            counter.set(value);
        }
    }

    /// Steps out of the gate and in again if another worker wants it closed.
    #[inline]
    pub fn step_aside<'k>(&mut self, batch: &mut Batch<'k>) {
        if self.shared.keyspace.gate().is_closing() {
            batch.renew();
            self.begin_pass();
        }
    }

    fn read_mail(&mut self) {
        // Outside of the gate the configuration may have changed since the pass began; a client that arrives is let in, or
        // asked for a password, by the one in force.
        self.local.look_at(&self.shared.settings);
        // And a reply that arrives may depend on a log that was not there then.
        self.local.look_at_log(&self.shared);
        while let Some(message) = self.shared.mail[self.local.id].take() {
            match message {
                Message::Adopt(socket, peer) => accept::adopt(self, socket, peer),
                Message::Move(socket, connection) => self.arrive(socket, connection),
                Message::Ask(gather) => crate::commands::client::answer(self, &gather),
                Message::Answered(gather) => crate::commands::client::answered(self, &gather),
                Message::Served { conn, number, output, lsn } => self.served(conn, number, output, lsn),
                Message::Resume { conn, rest } => self.take_up(conn, rest),
                Message::Replace(order) => load::replace::start(&self.shared, order),
                Message::Look => {}
            }
        }
    }

    /// A connection moved here from another worker.
    fn arrive(&mut self, socket: Socket, connection: Box<Connection>) {
        let id = self.connections.insert(connection);
        self.local.stats.connections.add(1);
        self.actions.push(Action::Attach(id, socket));
        if self.connections.find(id).is_some_and(|c| c.query_bytes() > 0) {
            self.mark_ready(id);
        }
    }

    /// A connection that was to move has let go of its socket.
    fn detached(&mut self, id: ConnId, socket: Socket) {
        let Some(mut connection) = self.connections.remove(id) else { return };
        self.uncount_buffers(&mut connection);
        self.local.stats.connections.set(self.connections.len() as u64);
        let Doing::Moving(to) = connection.state else {
            // It was closed on its way out, by CLIENT KILL for one: dropping the socket is all that is left to do.
            self.shared.lifecycle.leave();
            return;
        };
        connection.state = Doing::Open;
        connection.marks = Default::default();
        self.local.stats.moved.add(1);
        self.shared.mail[to as usize].post(Message::Move(socket, connection));
    }

    /// A connection goes, and its buffers with it.
    pub fn uncount_buffers(&self, c: &mut Connection) {
        let bytes = std::mem::take(&mut c.counted_bytes);
        self.shared.client_bytes.change(self.local.id, bytes.cast_signed().wrapping_neg());
    }

    /// Starts closing a connection: nothing more is run or sent.
    pub fn close(&mut self, id: ConnId) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        if connection.state != Doing::Closing {
            self.begin_close(id, &mut connection);
        }
        self.connections.put_back(id, connection);
    }

    /// The engine is through with a connection.
    fn forget(&mut self, id: ConnId) {
        if let Some(mut connection) = self.connections.remove(id) {
            self.uncount_buffers(&mut connection);
            if connection.session.is_known() {
                self.local.end_session(&self.shared, &mut connection.session, id);
            }
            self.shared.lifecycle.leave();
            self.local.stats.connections.set(self.connections.len() as u64);
        }
    }
}

impl Local {
    fn new(id: usize, shared: &Shared) -> Local {
        let timer = quanta::Clock::new();
        Local {
            id,
            stats: shared.stats[id].clone(),
            config: shared.settings.current(),
            config_version: 0,
            now_ms: crate::now_ms(),
            access: AccessClock::new(crate::now_ms(), None),
            clock: 0,
            evictor: Evictor::default(),
            log_active: false,
            released: 0,
            loading: false,
            held: false,
            holds_replies: true,
            log_failed: false,
            gates: 0,
            slower_than_us: -1,
            delayed_us: i64::MAX,
            notable_ns: u64::MAX,
            timed_together: 1,
            output_limit: usize::MAX,
            large_request: usize::MAX,
            large_reply: usize::MAX,
            tracks_latency: true,
            tracks_cpu: false,
            events: Events::default(),
            exclusive: false,
            gathered: Gathered::default(),
            pubsub: Subscribers::default(),
            changes: Changes::default(),
            reader: None,
            monitored: false,
            line: None,
            pushed: false,
            conn: ConnId { index: 0, generation: 0 },
            random: Random::seeded(),
            appender: shared.log.appender(id),
            scratch: Vec::new(),
            ready_keys: VecDeque::new(),
            small: None,
            blocking: None,
            serving: false,
            replay_clock_ms: 0,
            failures: Vec::new(),
            begun_anew: 0,
            kept: None,
            record: Record::new(),
            step_ended: Duration::ZERO,
            lap: timer.raw(),
            pass_began: timer.raw(),
            commands_before_pass: 0,
            has_parked: false,
            timer,
        }
    }

    /// Nanoseconds since the last call or the start of the pass: what one command took.
    #[inline]
    pub fn lap_ns(&mut self) -> u64 {
        let now = self.timer.raw();
        let nanos = self.timer.delta_as_nanos(self.lap, now);
        self.lap = now;
        nanos
    }

    /// The worker turns to something else: if that is measured, remembers the processor time since it last did, if it is the most
    /// so far. So the steps are all that the worker does: commands and what is around them, sends, timers.
    #[inline]
    pub fn end_step(&mut self) {
        if self.tracks_cpu {
            self.measure_step();
        }
    }

    #[cold]
    fn measure_step(&mut self) {
        let now = crate::os::thread_cpu();
        // Nothing was measured before the first time.
        if self.step_ended > Duration::ZERO {
            let took_us = (now - self.step_ended).as_nanos().div_ceil(1000);
            self.stats.step_cpu_max_us.raise(u64::try_from(took_us).unwrap_or(u64::MAX));
        }
        self.step_ended = now;
    }

    /// Whether CLIENT PAUSE keeps the data as they are.
    #[inline]
    pub fn pauses_writes(&self) -> bool {
        self.gates & (gate::PAUSED_ALL | gate::PAUSED_WRITES) != 0
    }

    /// Moves the time on within a pass.
    pub fn advance_clock(&mut self) {
        self.now_ms = self.now_ms.max(crate::now_ms());
    }

    /// The timer's reading at the end of the last command.
    #[inline]
    pub fn now_raw(&self) -> u64 {
        self.lap
    }

    /// The raw reading this many nanoseconds after the end of the last command, about.
    pub fn raw_after(&self, ns: u64) -> u64 {
        // A tick is a nanosecond or less; what a million of them is says how much less.
        let per_million = self.timer.delta_as_nanos(0, 1_000_000).max(1);
        self.lap + ns * 1_000_000 / per_million
    }

    /// Takes over how far the log is.
    #[inline]
    pub fn look_at_log(&mut self, shared: &Shared) {
        self.log_active = shared.log.is_active();
        // A log that was switched off still has what was acknowledged by nobody.
        let holds = self.holds_replies && (self.log_active || shared.log.has_reader());
        self.released = if holds { shared.log.released() } else { Lsn::MAX };
        self.log_failed = holds && shared.persist.aof.state() == aof::State::Failed;
    }

    /// Announces that this worker is about to sleep until `lsn` is released; false if it is.
    pub fn await_release(&mut self, lsn: Lsn) -> bool {
        self.appender.await_release(lsn)
    }

    /// Has the log's writer begin with what this pass has made so far, if that is much.
    #[inline]
    pub fn ring_if_far(&mut self) {
        self.appender.ring_if_far();
    }

    /// Whether the log has room for another write; looked at before each batch, since an append itself never waits.
    #[inline]
    pub fn look_for_room(&mut self, log: &Log) {
        if self.log_active && !log.has_room() {
            self.gates |= gate::LOG_FULL;
        } else {
            self.gates &= !gate::LOG_FULL;
        }
    }

    /// Takes over the configuration in force, if it has changed.
    #[inline]
    pub fn look_at(&mut self, settings: &Settings) {
        let version = settings.version();
        if version != self.config_version {
            self.config_version = version;
            self.adopt(settings.current());
        }
    }

    /// Puts a configuration's values where the data path reads them.
    fn adopt(&mut self, config: Arc<Config>) {
        self.slower_than_us = config.slowlog_log_slower_than();
        self.delayed_us = match config.latency_monitor_threshold() {
            0 => i64::MAX,
            threshold_ms => threshold_ms.saturating_mul(1000),
        };
        let slow_us = if self.slower_than_us < 0 { i64::MAX } else { self.slower_than_us };
        let notable_us = slow_us.min(self.delayed_us).min(STALE_US);
        self.notable_ns = u64::try_from(notable_us).unwrap_or(0).saturating_mul(1000);
        self.timed_together = if slow_us.min(self.delayed_us) >= STALE_US { RUN } else { 1 };
        self.output_limit = match config.client_output_buffer_limit(ClientClass::Normal).hard {
            0 => usize::MAX,
            hard => usize::try_from(hard).unwrap_or(usize::MAX).max(OUTPUT_UNLIMITED),
        };
        // A negative threshold is none.
        let bytes = |threshold| usize::try_from(threshold).unwrap_or(usize::MAX);
        self.large_request = bytes(config.commandlog_request_larger_than());
        self.large_reply = bytes(config.commandlog_reply_larger_than());
        self.holds_replies = config.aof_ack() == AofAck::Durable;
        self.tracks_latency = config.latency_tracking();
        self.tracks_cpu = config.command_cpu_tracking();
        self.step_ended = Duration::ZERO;
        self.evictor.adopt(&config);
        self.events = notify::published(config.notify_keyspace_events());
        self.config = config;
        self.look_at_clock();
    }

    /// Brings the access clock up to this worker's time.
    pub fn look_at_clock(&mut self) {
        self.access = AccessClock::new(self.now_ms, evict::lfu(&self.config));
        self.clock = self.access.fresh();
    }

    /// The access clock of an entry that is used now, from the one it has.
    #[inline]
    pub fn clock_after_use(&mut self, clock: u32) -> u32 {
        if self.access.is_lfu() { self.access.used(clock, self.random.next()) } else { self.clock }
    }

    /// The access clock of an entry that is put under this key: how often it is used stays with the key.
    #[inline]
    pub fn clock_of_put(&mut self, table: &Table, hash: Hash, key: &[u8]) -> u32 {
        if !self.access.is_lfu() {
            return self.clock;
        }
        table.find(hash, key).map_or(self.clock, |entry| self.clock_after_use(entry.clock()))
    }

    /// Appends one command as a record of database `db`; returns the position behind it.
    pub fn append(&mut self, db: usize, command: &[&[u8]]) -> Lsn {
        self.append_with(db, |record, db| {
            record.command(db, command);
        })
    }

    /// Appends a command of which one argument is `value`; a large one is referenced, not copied.
    pub fn append_value(&mut self, db: usize, before: &[&[u8]], value: &NewValue<'_>, after: &[&[u8]]) -> Lsn {
        self.append_with(db, |record, db| {
            record.begin_command(db, before.len() + 1 + after.len());
            for arg in before {
                record.arg(arg);
            }
            value_arg(record, value);
            for arg in after {
                record.arg(arg);
            }
        })
    }

    /// Appends what `write` puts into a record of database `db`. In a transaction it joins the one record of all commands,
    /// and the answer is 0: the position is known when the transaction ends.
    pub fn append_with(&mut self, db: usize, write: impl FnOnce(&mut Record, u32)) -> Lsn {
        let gathers = self.gathered.is_open();
        if !gathers {
            self.record.clear();
        }
        write(&mut self.record, u32::try_from(db).expect("there are fewer than 2^32 databases"));
        if gathers {
            return 0;
        }
        self.record.finish();
        self.appender.append_record(&self.record)
    }

    /// From here on all effects are one record.
    pub fn begin_transaction(&mut self) {
        self.gathered.open();
        self.record.clear();
        self.record.transaction();
    }

    /// Appends the record of all effects; the position behind it, if there were any.
    pub fn end_transaction(&mut self) -> Option<Lsn> {
        self.gathered.close();
        if self.record.commands() == 0 {
            return None;
        }
        self.record.finish();
        Some(self.appender.append_record(&self.record))
    }
}

/// Adds a value as an argument; a large one is referenced, not copied.
pub fn value_arg(record: &mut Record, value: &NewValue<'_>) {
    match value {
        NewValue::Int(n) => record.arg(itoa::Buffer::new().format(*n).as_bytes()),
        NewValue::Bytes(bytes) => record.arg(bytes),
        NewValue::Rope(rope) => {
            let extents = rope.extents().map(|extent| (extent.clone(), 0..extent.len()));
            record.shared_arg_of(rope.len(), extents)
        }
    };
}

/// A small fast generator (splitmix64), seeded by the operating system: for sampling and RANDOMKEY, not for secrets.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    fn seeded() -> Random {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).expect("the operating system gives random bytes");
        Random(u64::from_le_bytes(seed))
    }

    /// Numbers that follow from a seed.
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// Other numbers, for a command that goes on later.
    pub fn split(&mut self) -> Random {
        Random(self.next())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "numbers without end are drawn, not iterated over")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
