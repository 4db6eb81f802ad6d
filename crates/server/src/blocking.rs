//! Blocking commands: waiting for a key, and serving who waits.
//!
//! A command that finds nothing lists itself with every key it names ([`Exec::block`]), under the same locks under which it looked:
//! whoever makes such a key comes after, and sees it. Every change of a key that somebody waits for is noted with the worker that
//! makes it ([`Local::woken`]); when the command has released its locks, *that worker* runs the waiters' commands, oldest first, as
//! ordinary commands with locks of their own, before it runs anything else ([`State::serve_ready`]). Only the reply travels to the
//! waiter's worker. What such a command makes ready in turn (BLMOVE) is noted and served likewise.
//!
//! Invariants:
//! - A key with elements and a waiter of its type is in some worker's list of ready keys: whoever made it so has noted it, and
//!   takes it off the list only when no waiter of the type is left or no element. So newcomers queue behind waiters ([`queues`]).
//! - A waiter is served by whoever claims it ([`Claim`]); its timeout, CLIENT UNBLOCK and the end of its connection race for the same
//!   word. A reply is sent for a claim that finished, or by who cancelled, never both.
//! - A worker does not sleep while it has ready keys; it closes the gate if it keeps meeting taken locks.
//!
//! Dropped: waking the waiter's worker to run the command there (another client's command could take the element in between, and
//! two workers would exchange messages for each element).

use crate::args::Args;
use crate::command::Entry;
use crate::connection::{Aside, Connection, Parked, State as Doing};
use crate::dispatch;
use crate::exec::{Exec, Key, LockedMany, Outcome, ReplyError, Stop, error};
use crate::kept::Kept;
use crate::mail::Message;
use crate::reply::Reply;
use crate::serve::TRIES_BEFORE_GATE;
use crate::session::{Peer, ReplyMode, Session};
use crate::slowlog::{self, Kind};
use crate::tracking::Tracker;
use crate::worker::{Local, State};
use gimmal_io::{ConnId, Output};
use gimmal_log::Lsn;
use gimmal_resp::Writer;
use gimmal_store::types::Type;
use gimmal_store::{Batch, Claim, Waiter as Listed};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Ready keys that are served in a row before the worker looks after its other connections.
const SERVED_AT_ONCE: usize = 256;

const BAD_TIMEOUT: ReplyError = error("ERR timeout is not a float or out of range");
const NEGATIVE_TIMEOUT: ReplyError = error("ERR timeout is negative");
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// What a wait is for.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// Values of this type can serve it.
    pub kind: Type,
    /// When it ends, in ms; `None`: never.
    pub until_ms: Option<i64>,
    /// When the command is to look again, before that.
    pub again_ms: Option<i64>,
    /// What is answered if there is nothing to wait for.
    pub nothing: Nothing,
    /// The keys are there, and are to stay what they are: a key that is removed, or gets a value of another type, ends the wait too.
    pub keys_stay: bool,
}

/// What a wait for nothing answers. RESP2 has two nulls; the second is for transactions, where there is no waiting, only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// `*-1`
    Array,
    /// `$-1`
    String,
    /// So many zeros: one alone is no array.
    Zeros(usize),
}

impl Nothing {
    /// Answers it at the end of a wait.
    fn put(self, mut writer: Writer<'_>) {
        match self {
            Nothing::Array | Nothing::String => writer.null_array(),
            Nothing::Zeros(1) => writer.integer(0),
            Nothing::Zeros(count) => {
                writer.array(count);
                (0..count).for_each(|_| writer.integer(0));
            }
        }
    }
}

/// A command that waits, with all that another worker needs to run it.
pub struct Waiter {
    claim: Claim,
    number: u64,
    kind: Type,
    keys_stay: bool,
    until_ms: Option<i64>,
    again_ms: Option<i64>,
    nothing: Nothing,
    worker: usize,
    conn: ConnId,
    command: Arc<Kept>,
    /// What it took to look and to begin to wait.
    took_ns: u64,
    client: Client,
}

/// Of a session, what its command may look at.
struct Client {
    id: u64,
    peer: Peer,
    name: Option<Box<str>>,
    db: usize,
    resp3: bool,
    touches: bool,
    silent: bool,
    /// What its command reads is remembered for it.
    reader: Option<Arc<Tracker>>,
}

impl Listed for Waiter {
    fn is_waiting(&self) -> bool {
        self.claim.is_open()
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn kind(&self) -> Type {
        self.kind
    }

    fn is_concerned(&self, there: Option<Type>) -> bool {
        self.keys_stay || there == Some(self.kind)
    }
}

impl Waiter {
    fn new(exec: &mut Exec<'_>, args: &Args<'_>, wait: Wait) -> Waiter {
        // Drawn under the locks of the keys: in each key's list numbers rise.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let took_ns = exec.local.lap_ns();
        let session = &exec.session;
        Waiter {
            claim: Claim::default(),
            number: NUMBERS.fetch_add(1, Relaxed),
            kind: wait.kind,
            keys_stay: wait.keys_stay,
            until_ms: wait.until_ms,
            again_ms: wait.again_ms,
            nothing: wait.nothing,
            worker: exec.local.id,
            conn: exec.local.conn,
            command: exec.keep(args),
            took_ns,
            client: Client {
                id: session.id,
                peer: session.peer.clone(),
                name: session.name.clone(),
                db: session.db,
                resp3: session.resp3,
                touches: session.touches,
                silent: session.reply_mode != ReplyMode::On,
                reader: exec.local.reader.clone(),
            },
        }
    }

    /// When this wait ends by itself.
    fn ends_ms(&self) -> Option<i64> {
        self.again_ms.or(self.until_ms)
    }

    /// Whether the wait is over: its reply is on its way.
    pub fn is_served(&self) -> bool {
        !self.claim.is_open()
    }

    fn session(&self, now_ms: i64) -> Session {
        let Client { id, db, resp3, touches, .. } = self.client;
        let mut session = Session::new(id, self.client.peer.clone(), true, now_ms);
        (session.db, session.resp3, session.touches) = (db, resp3, touches);
        session.name.clone_from(&self.client.name);
        session
    }
}

/// A timeout in seconds, with fractions, as a moment; 0 is never.
pub fn until_ms(exec: &Exec<'_>, args: &Args<'_>, i: usize) -> Result<Option<i64>, ReplyError> {
    let seconds = crate::double::parse(args.at(i)).ok_or(BAD_TIMEOUT)?;
    deadline(seconds * 1000.0, exec.now_ms())
}

/// A timeout in ms, without fractions, as a moment; 0 is never.
pub fn until_whole_ms(exec: &Exec<'_>, args: &Args<'_>, i: usize) -> Result<Option<i64>, ReplyError> {
    let ms = args.int(i).map_err(|_| error("ERR timeout is not an integer or out of range"))?;
    match ms {
        ..0 => Err(NEGATIVE_TIMEOUT),
        0 => Ok(None),
        _ => exec.now_ms().checked_add(ms).map(Some).ok_or(error("ERR timeout is out of range")),
    }
}

fn deadline(ms: f64, now_ms: i64) -> Result<Option<i64>, ReplyError> {
    // The largest integer below which every one has its own double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if ms < 0.0 {
        return Err(NEGATIVE_TIMEOUT);
    }
    if !(ms.is_finite() && ms < EXACT) {
        return Err(error("ERR timeout is out of range"));
    }
    if ms == 0.0 {
        return Ok(None);
    }
    // Exact, by the bound above; rounded up, as a wait may be longer than asked but not shorter.
    Ok(Some(now_ms + ms.ceil() as i64))
}

impl Exec<'_> {
    /// Whether a command that would take elements from this key must wait behind others, who are about to be served.
    pub fn queues(&self, key: &mut Key<'_, '_>, kind: Type) -> bool {
        !self.local.serving && key.is_waited_for(kind)
    }

    /// For a command that takes elements and does not wait: whoever waits for this key comes first. The key has such a value, so that
    /// the worker that made it is about to serve him; until then the command is set aside. A transaction has its locks and goes on.
    pub fn give_way(&mut self, key: &mut Key<'_, '_>, kind: Type) -> Result<(), Stop> {
        if !self.queues(key, kind) || self.in_transaction() {
            return Ok(());
        }
        match self.peek(key.again()) {
            Some(entry) if entry.kind() == kind => Err(Stop::Park),
            _ => Ok(()),
        }
    }

    /// Nothing was found at the first `waited` of these keys, which are locked: wait for them. In a transaction, and for who is being
    /// served, there is no waiting.
    pub fn block(&mut self, keys: &mut LockedMany<'_>, waited: usize, args: &Args<'_>, wait: Wait) -> Outcome {
        if self.local.serving {
            return Err(Stop::Wait);
        }
        if self.in_transaction() {
            match wait.nothing {
                Nothing::String => self.reply.put().null(),
                nothing => nothing.put(self.reply.put()),
            }
            return Ok(());
        }
        let waiter = Arc::new(Waiter::new(self, args, wait));
        for i in 0..waited {
            keys.key(i).wait(waiter.clone());
        }
        self.local.blocking = Some(waiter);
        Err(Stop::Wait)
    }

    /// Databases were emptied or exchanged, behind the closed gate: notes every key of theirs that somebody waits for.
    pub fn wake_databases(&mut self, concerned: impl Fn(usize) -> bool) {
        let databases = self.shared.keyspace.databases();
        for id in 0..u32::try_from(self.shared.keyspace.shards()).expect("at most 16384 shards") {
            let keyspace = &self.shared.keyspace;
            let mut shard = keyspace.try_lock(self.batch(), id).expect("the gate is closed, or the shard is lent");
            let Some(waiters) = shard.state().waiters() else { continue };
            for db in (0..databases).filter(|db| concerned(*db)) {
                let keys = waiters.keys(db).map(|key| (db, Box::from(key)));
                self.local.ready_keys.extend(keys);
            }
        }
    }
}

/// For INFO.
impl Exec<'_> {
    /// How many keys somebody waits for, and how many of them somebody who is told when the value is gone. A shard that another
    /// worker has locked is left out.
    pub fn keys_waited_for(&mut self) -> [usize; 2] {
        let mut counts = [0, 0];
        if self.shared.sum(|stats| stats.blocked.value()) == 0 {
            return counts;
        }
        let keyspace = &self.shared.keyspace;
        for id in 0..u32::try_from(keyspace.shards()).expect("at most 16384 shards") {
            let Some(mut shard) = keyspace.try_lock(self.batch(), id) else { continue };
            let Some(waiters) = shard.state().waiters() else { continue };
            for db in 0..keyspace.databases() {
                for key in waiters.keys(db) {
                    let mut listed = waiters.from_number(db, key, 0).peekable();
                    counts[0] += usize::from(listed.peek().is_some());
                    // Who is concerned when there is nothing at all.
                    counts[1] += usize::from(listed.any(|waiter| waiter.is_concerned(None)));
                }
            }
        }
        counts
    }
}

impl Local {
    /// Notes a key that somebody waits for, to be served when this command has ended.
    #[cold]
    pub fn woken(&mut self, db: usize, key: &[u8]) {
        self.ready_keys.push_back((db, Box::from(key)));
    }
}

/// The waits of one worker's connections.
#[derive(Default)]
pub struct Blocked {
    /// By the moment at which they end, those that end by themselves.
    deadlines: BTreeMap<(i64, u64), ConnId>,
    /// All of them.
    len: usize,
}

impl Blocked {
    /// Connections that wait for a key.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When the next wait is over, in ms.
    pub fn next_ms(&self) -> Option<i64> {
        self.deadlines.first_key_value().map(|((at_ms, _), _)| *at_ms)
    }

    fn begin(&mut self, id: ConnId, waiter: &Waiter) {
        self.len += 1;
        if let Some(at_ms) = waiter.ends_ms() {
            self.deadlines.insert((at_ms, waiter.number), id);
        }
    }

    fn end(&mut self, waiter: &Waiter) {
        self.len -= 1;
        if let Some(at_ms) = waiter.ends_ms() {
            self.deadlines.remove(&(at_ms, waiter.number));
        }
    }
}

/// What came of one ready key.
enum Served {
    /// Nobody is left that it could serve.
    All,
    /// A lock was taken.
    Busy,
}

impl State {
    /// A command of this connection began to wait.
    pub fn begin_wait(&mut self, id: ConnId, c: &mut Connection) {
        if let Some(waiter) = self.local.blocking.take() {
            self.blocked.begin(id, &waiter);
            c.waiting = Some(waiter);
            if c.marks.ended {
                self.leave_wait(c);
            }
        }
    }

    /// The command that ran has begun to wait for a connection that is closed already.
    pub fn give_up_wait(&mut self) {
        if let Some(waiter) = self.local.blocking.take() {
            waiter.claim.leave();
        }
    }

    /// The peer has closed its side: nobody is there to take what the connection waits for, and what was sent behind the command
    /// will not be reached. What it was answered before is still sent.
    pub fn leave_wait(&mut self, c: &mut Connection) {
        if c.waiting.is_some() {
            self.end_wait(c);
            c.state = Doing::Finishing;
        }
    }

    /// The connection ends: nobody is to be served any more. A reply that is on its way will not find it.
    pub fn end_wait(&mut self, c: &mut Connection) {
        if let Some(waiter) = c.waiting.take() {
            waiter.claim.leave();
            self.blocked.end(&waiter);
        }
    }

    /// Serves the waiters of the keys that this worker made ready. False if a lock was taken, or there is much to do: then no other
    /// command may run here before this was called again.
    pub fn serve_ready<'k>(&mut self, batch: &mut Batch<'k>) -> bool {
        if self.local.held {
            // Nor does any other command run that looks at a key.
            return true;
        }
        // The command that made the keys may have taken long: what it gave a deadline may be over.
        self.local.advance_clock();
        for _ in 0..SERVED_AT_ONCE {
            let Some((db, key)) = self.local.ready_keys.pop_front() else {
                self.serve_tries = 0;
                return true;
            };
            // The gate keeps every other worker out while this one locks what it needs.
            let closes = self.serve_tries >= TRIES_BEFORE_GATE && !self.local.exclusive;
            let closed = if closes { batch.try_close() } else { None };
            let was_exclusive = self.local.exclusive;
            self.local.exclusive |= closed.is_some();
            let served = self.serve_key(db, &key, batch);
            self.local.exclusive = was_exclusive;
            drop(closed);
            if matches!(served, Served::Busy) {
                self.serve_tries += 1;
                self.local.ready_keys.push_front((db, key));
                return false;
            }
            self.serve_tries = 0;
        }
        self.local.ready_keys.is_empty()
    }

    /// Serves the waiters of one key, oldest first, while there is something for them.
    fn serve_key<'k>(&mut self, db: usize, key: &[u8], batch: &Batch<'k>) -> Served {
        let mut from = 0;
        loop {
            let waiter = match self.next_waiter(db, key, from, batch) {
                Ok(Some(waiter)) => waiter,
                Ok(None) => return Served::All,
                Err(()) => return Served::Busy,
            };
            if !waiter.claim.claim() {
                if waiter.claim.is_open() {
                    // Another worker has it for another key, and may have looked at this one before it was ready. Were it passed over
                    // and then given back, nobody would come for it again.
                    return Served::Busy;
                }
                continue;
            }
            // Those before it are through: neither they nor it are looked at again.
            from = waiter.number + 1;
            match self.run_waiter(&waiter, batch) {
                Ok(Some((output, lsn))) => {
                    waiter.claim.finish();
                    self.post_served(&waiter, output, lsn);
                }
                Ok(None) => {
                    waiter.claim.give_back();
                    // A stream's entries stay, so that the next one may find what is new to it; the others take elements, and the
                    // oldest has found none.
                    if waiter.kind != Type::Stream {
                        return Served::All;
                    }
                }
                Err(()) => {
                    waiter.claim.give_back();
                    return Served::Busy;
                }
            }
        }
    }

    /// The oldest waiter from this number on that what is at a key concerns. If there is none those who no longer wait are forgotten.
    fn next_waiter<'k>(
        &mut self,
        db: usize,
        key: &[u8],
        from: u64,
        batch: &Batch<'k>,
    ) -> Result<Option<Arc<Waiter>>, ()> {
        let keyspace = &self.shared.keyspace;
        let hash = keyspace.hash(key);
        let mut shard = keyspace.try_lock(batch, keyspace.shard_of(hash)).ok_or(())?;
        let (table, state) = shard.parts(db);
        // A value whose time is over serves nobody. It is removed by who looks at it, not by who waits.
        let now_ms = self.local.now_ms;
        let live = table.find(hash, key).filter(|entry| entry.expire_at_ms().is_none_or(|at_ms| at_ms >= now_ms));
        let there = live.map(|entry| entry.kind());
        let Some(waiters) = state.waiters() else { return Ok(None) };
        let next = waiters.from_number(db, key, from).find(|waiter| waiter.is_concerned(there));
        let Some(next) = next else {
            state.sweep_waiters(db, key);
            return Ok(None);
        };
        let waiter: Arc<dyn Any + Send + Sync> = next.clone();
        Ok(Some(waiter.downcast().expect("only this module lists waiters")))
    }

    /// Runs a waiter's command. `None`: there is still nothing for it.
    fn run_waiter<'k>(&mut self, waiter: &Waiter, batch: &Batch<'k>) -> Result<Option<(Output, Lsn)>, ()> {
        let mut session = waiter.session(self.local.now_ms);
        let mut output = Output::default();
        let args = waiter.command.args();
        let conn = std::mem::replace(&mut self.local.conn, waiter.conn);
        self.local.serving = true;
        self.local.reader.clone_from(&waiter.client.reader);
        let mut exec = Exec {
            shared: &self.shared,
            local: &mut self.local,
            session: &mut session,
            reply: Reply::new(&mut output, waiter.client.resp3),
            batch,
            depends_on: 0,
            hint: None,
        };
        let entry: Option<&'static Entry> = dispatch::lookup(self.shared.commands, &args);
        let entry = entry.expect("it was found when it began to wait");
        let mut outcome = (entry.command.run)(&mut exec, &args);
        while let Err(Stop::Continue(mut long)) = outcome {
            outcome = match long.step(&mut exec) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Stop::Continue(long)),
                Err(stop) => Err(stop),
            };
        }
        let lsn = exec.depends_on;
        self.local.changed_by_others(lsn);
        self.local.serving = false;
        self.local.reader = None;
        self.local.conn = conn;
        let took_ns = self.local.lap_ns();
        match outcome {
            Ok(()) => {
                self.waited(waiter, took_ns, false);
                Ok(Some((output, lsn)))
            }
            Err(Stop::Wait) => Ok(None),
            Err(Stop::Error(text)) => {
                self.local.stats.errors.add(1);
                self.shared.count_error(dispatch::error_prefix(&text));
                self.waited(waiter, took_ns, true);
                Reply::new(&mut output, waiter.client.resp3).put().error(text.as_bytes());
                Ok(Some((output, lsn)))
            }
            Err(Stop::Park | Stop::Paused) => Err(()),
            Err(Stop::Continue(_)) => unreachable!("its slices were run"),
        }
    }

    /// A command's wait is over: it is counted, by the worker that ended it.
    fn waited(&self, waiter: &Waiter, took_ns: u64, failed: bool) {
        let args = waiter.command.args();
        let entry = dispatch::lookup(self.shared.commands, &args).expect("it was found when it began to wait");
        let (local, nanos) = (&self.local, waiter.took_ns.saturating_add(took_ns));
        local.stats.commands.add(1);
        local.stats.command(entry.id).ran(1, nanos, local.tracks_latency);
        local.stats.command(entry.id).failed.add(u64::from(failed));
        let took_us = i64::try_from(nanos / 1000).unwrap_or(i64::MAX);
        if local.slower_than_us >= 0 && took_us >= local.slower_than_us {
            let session = waiter.session(local.now_ms);
            slowlog::enter(&self.shared, local, &session, Kind::Slow, entry.command, &args, nanos / 1000);
        }
    }

    fn post_served(&mut self, waiter: &Waiter, output: Output, lsn: Lsn) {
        if waiter.worker == self.local.id {
            self.served(waiter.conn, waiter.number, output, lsn);
        } else {
            let message = Message::Served { conn: waiter.conn, number: waiter.number, output, lsn };
            self.shared.mail[waiter.worker].post(message);
        }
    }

    /// The reply to a wait has come. If its connection is gone, or about to be, it is dropped.
    pub fn served(&mut self, id: ConnId, number: u64, output: Output, lsn: Lsn) {
        self.resume(id, number, |c, silent| {
            if !silent {
                c.output.append(output);
            }
            lsn
        });
    }

    /// Ends waits whose time is over.
    pub fn time_out(&mut self) {
        while let Some((&(at_ms, number), &id)) = self.blocked.deadlines.first_key_value() {
            if at_ms > self.local.now_ms {
                return;
            }
            let Some(waiter) = self.connections.find(id).and_then(|c| c.waiting.clone()) else {
                unreachable!("a deadline goes with its wait");
            };
            if !waiter.claim.cancel() {
                // It is being served at this moment: the reply comes, or this was too early by as much.
                return;
            }
            if waiter.again_ms.is_some() {
                self.look_again(id, &waiter);
                continue;
            }
            self.waited(&waiter, 0, false);
            self.resume(id, number, |c, silent| {
                if !silent {
                    waiter.nothing.put(Reply::new(&mut c.output, c.session.resp3).put());
                }
                0
            });
        }
    }

    /// A wait is over for now: its command is run once more.
    fn look_again(&mut self, id: ConnId, waiter: &Waiter) {
        let Some(c) = self.connections.find(id) else { return };
        c.waiting = None;
        self.blocked.end(waiter);
        if c.state == Doing::Waiting {
            c.aside = Some(Box::new(Aside::Parked(Parked { command: waiter.command.clone(), tries: 0 })));
            c.state = Doing::Aside;
            self.mark_ready(id);
        }
    }

    /// CLIENT UNBLOCK: ends the wait of a connection of this worker, as if its time were over or with an error.
    pub fn unblock(&mut self, client: u64, with_error: bool) -> bool {
        let found =
            self.connections.iter().find(|(_, c)| c.session.id == client).map(|(id, c)| (id, c.waiting.clone()));
        let Some((id, Some(waiter))) = found else { return false };
        if !waiter.claim.cancel() {
            return false;
        }
        if with_error {
            self.local.stats.errors.add(1);
            self.shared.count_error("UNBLOCKED");
        }
        self.waited(&waiter, 0, with_error);
        self.resume(id, waiter.number, |c, silent| {
            let mut reply = Reply::new(&mut c.output, c.session.resp3);
            match with_error {
                _ if silent => {}
                true => reply.put().error(UNBLOCKED),
                false => waiter.nothing.put(reply.put()),
            }
            0
        });
        true
    }

    /// Lets a connection whose wait has ended go on, with the reply that `write` puts and that depends on the LSN it returns.
    fn resume(&mut self, id: ConnId, number: u64, write: impl FnOnce(&mut Connection, bool) -> Lsn) {
        let Some(mut connection) = self.connections.lift(id) else { return };
        let c = &mut *connection;
        if c.waiting.as_ref().is_some_and(|waiter| waiter.number == number) {
            let waiter = c.waiting.take().expect("just seen");
            c.session.awaits = None;
            self.blocked.end(&waiter);
            if c.state == Doing::Waiting {
                c.state = Doing::Open;
                c.session.commands += 1;
                let lsn = write(c, waiter.client.silent);
                self.go_on(id, c, lsn);
            }
        }
        self.connections.put_back(id, connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_and_bounded() {
        assert_eq!(deadline(0.0, 1000), Ok(None));
        assert_eq!(deadline(0.1, 1000), Ok(Some(1001)));
        assert_eq!(deadline(1500.0, 1000), Ok(Some(2500)));
        assert_eq!(deadline(-1.0, 0), Err(NEGATIVE_TIMEOUT));
        for ms in [f64::NAN, f64::INFINITY, 1e300] {
            assert!(deadline(ms, 0).is_err());
        }
    }
}
