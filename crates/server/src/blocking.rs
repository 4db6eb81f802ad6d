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
use crate::connection::{Connection, Parked, State as Doing};
use crate::dispatch;
use crate::exec::{Exec, Key, LockedMany, Outcome, ReplyError, Stop, error};
use crate::mail::Message;
use crate::reply::Reply;
use crate::serve::TRIES_BEFORE_GATE;
use crate::session::{Peer, ReplyMode, Session};
use crate::slowlog::{self, Kind};
use crate::worker::{Local, State};
use gimmal_io::{ConnId, Output};
use gimmal_log::Lsn;
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

/// What a wait is for. When its time is over it answers a null array, whatever the command.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// Values of this type can serve it.
    pub kind: Type,
    /// When it ends, in ms; `None`: never.
    pub until_ms: Option<i64>,
    /// What is answered in a transaction, where there is no waiting.
    pub null_in_transaction: Null,
}

/// RESP2 has two; RESP3 makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Null {
    /// `*-1`
    Array,
    /// `$-1`
    String,
}

/// A command that waits, with all that another worker needs to run it.
pub struct Waiter {
    claim: Claim,
    number: u64,
    kind: Type,
    until_ms: Option<i64>,
    worker: usize,
    conn: ConnId,
    command: Parked,
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
            until_ms: wait.until_ms,
            worker: exec.local.id,
            conn: exec.local.conn,
            command: Parked::whole(args),
            took_ns,
            client: Client {
                id: session.id,
                peer: session.peer.clone(),
                name: session.name.clone(),
                db: session.db,
                resp3: session.resp3,
                touches: session.touches,
                silent: session.reply_mode != ReplyMode::On,
            },
        }
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

    /// Nothing was found at the first `waited` of these keys, which are locked: wait for them. In a transaction, and for who is being
    /// served, there is no waiting.
    pub fn block(&mut self, keys: &mut LockedMany<'_>, waited: usize, args: &Args<'_>, wait: Wait) -> Outcome {
        if self.local.serving {
            return Err(Stop::Wait);
        }
        if self.in_transaction() {
            match wait.null_in_transaction {
                Null::Array => self.reply.put().null_array(),
                Null::String => self.reply.put().null(),
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
        if let Some(at_ms) = waiter.until_ms {
            self.deadlines.insert((at_ms, waiter.number), id);
        }
    }

    fn end(&mut self, waiter: &Waiter) {
        self.len -= 1;
        if let Some(at_ms) = waiter.until_ms {
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
        }
    }

    /// The connection ends: nobody is to be served any more. A reply that is on its way will not find it.
    pub fn end_wait(&mut self, c: &mut Connection) {
        if let Some(waiter) = c.waiting.take() {
            waiter.claim.cancel();
            self.blocked.end(&waiter);
        }
    }

    /// As [`State::end_wait`], by id.
    pub fn end_wait_of(&mut self, id: ConnId) {
        if let Some(waiter) = self.connections.find(id).and_then(|c| c.waiting.take()) {
            waiter.claim.cancel();
            self.blocked.end(&waiter);
        }
    }

    /// Serves the waiters of the keys that this worker made ready. False if a lock was taken, or there is much to do: then no other
    /// command may run here before this was called again.
    pub fn serve_ready<'k>(&mut self, batch: &mut Batch<'k>) -> bool {
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
            match self.run_waiter(&waiter, batch) {
                Ok(Some((output, lsn))) => {
                    waiter.claim.finish();
                    self.post_served(&waiter, output, lsn);
                }
                Ok(None) => {
                    waiter.claim.give_back();
                    from = waiter.number + 1;
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

    /// The oldest waiter from this number on that a key's value can serve, of streams also if there is no value: who reads for a group
    /// is told that it is gone.
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
        shard.state().sweep_waiters(db, key);
        let (table, state) = shard.parts(db);
        let kind = table.find(hash, key).map_or(Type::Stream, |entry| entry.kind());
        let Some(waiters) = state.waiters() else { return Ok(None) };
        let next = waiters.from_number(db, key, from).find(|waiter| waiter.kind() == kind);
        Ok(next.map(|waiter| {
            let waiter: Arc<dyn Any + Send + Sync> = waiter.clone();
            waiter.downcast().expect("only this module lists waiters")
        }))
    }

    /// Runs a waiter's command. `None`: there is still nothing for it.
    fn run_waiter<'k>(&mut self, waiter: &Waiter, batch: &Batch<'k>) -> Result<Option<(Output, Lsn)>, ()> {
        let mut session = waiter.session(self.local.now_ms);
        let mut output = Output::default();
        let args = waiter.command.args();
        let conn = std::mem::replace(&mut self.local.conn, waiter.conn);
        self.local.serving = true;
        let mut exec = Exec {
            shared: &self.shared,
            local: &mut self.local,
            session: &mut session,
            reply: Reply::new(&mut output, waiter.client.resp3),
            batch,
            depends_on: 0,
            hint: None,
        };
        let entry: Option<&'static Entry> = dispatch::lookup(self.shared.commands, &args, None);
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
        self.local.serving = false;
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
        let entry = dispatch::lookup(self.shared.commands, &args, None).expect("it was found when it began to wait");
        let (local, nanos) = (&self.local, waiter.took_ns.saturating_add(took_ns));
        local.stats.commands.add(1);
        local.stats.command(entry.id).ran(nanos, local.tracks_latency);
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
            self.waited(&waiter, 0, false);
            self.resume(id, number, |c, silent| {
                if !silent {
                    Reply::new(&mut c.output, c.session.resp3).put().null_array();
                }
                0
            });
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
                false => reply.put().null_array(),
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
            self.blocked.end(&waiter);
            if c.state == Doing::Waiting {
                c.state = Doing::Open;
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
