//! Transactions: what a session queues between MULTI and EXEC, what it watches, and how EXEC carries the queue out.
//!
//! EXEC first makes sure that nothing can stop it half way, then runs the queued commands as they are. Each command's keys
//! were found when it was queued; EXEC locks the shards of all of them and of the watched keys, in ascending order, by
//! try-lock, and *lends* them, so that the handlers lock what they need by themselves ([`gimmal_store::LentShard`]). If the
//! queue has a command whose keys are not in its arguments, EXEC closes the gate instead. If either fails it has done
//! nothing, and is tried again like any command.
//!
//! All effects are gathered into one record of the log ([`Gathered`]); the keys that were changed get its position once it
//! is known, before the locks are released.
//!
//! Dropped: locking each command's keys when its turn comes (others would see half of a transaction, and one that cannot
//! lock could not be undone), and a lock set handed to every handler (each of them would have to know of transactions).

use crate::args::{Args, Detached};
use crate::command::{Begin, Command, Entry, Find, flag, keyflag};
use crate::dispatch;
use crate::exec::{Continuation, Exec, Outcome, ReplyError, Stop, error};
use crate::keys;
use crate::persist::load;
use crate::session::ReplyMode;
use crate::tracking;
use gimmal_io::Output;
use gimmal_resp::Span;
use gimmal_store::{Hash, LentShard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const TOO_LARGE: ReplyError = error("ERR the transaction is larger than client-query-buffer-limit");
const TOO_MANY_WATCHES: ReplyError = error("ERR the watched keys are larger than client-query-buffer-limit");
/// What a command answers that would have to wait for other workers.
pub const NEEDS_TO_WAIT: ReplyError = error("ERR this command asks other threads and cannot run in a transaction");

/// Commands that lock nothing, so that a transaction may have them without closing the gate.
const KEYLESS: &[&str] = &[
    "client|getname",
    "client|id",
    "client|reply",
    "client|setname",
    "echo",
    "ping",
    "publish",
    "select",
    "spublish",
    "time",
    "unwatch",
    "wait",
    "waitaof",
];

/// Memory of a queued or watched item beside its bytes, about.
const OVERHEAD: usize = 64;

/// The commands that a session has queued.
#[derive(Debug, Default)]
pub struct Transaction {
    /// All arguments that are not detached.
    bytes: Vec<u8>,
    spans: Vec<Span>,
    detached: Vec<Detached>,
    /// Each command, and where its spans end.
    commands: Vec<(&'static Entry, usize)>,
    /// Shards of their keys, in any order.
    shards: Vec<u32>,
    /// The gates of all commands.
    gates: u32,
    /// Memory of it all, about.
    size: usize,
    /// There is a command whose keys are not in its arguments.
    wide: bool,
    spoilt: bool,
}

impl Transaction {
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// True if nothing was queued.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bits of `command::gate` for which the queued commands wait, or are refused.
    pub fn gates(&self) -> u32 {
        self.gates
    }

    /// A command was refused: EXEC will be too. What was queued is of no use any more.
    pub fn spoil(&mut self) {
        *self = Transaction { spoilt: true, ..Transaction::default() };
    }

    /// Whether a command was refused.
    pub fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    fn push(&mut self, entry: &'static Entry, args: &Args<'_>, limit: usize) -> Result<(), ReplyError> {
        let length: usize = (0..args.len()).map(|i| args.length(i)).sum();
        let size = self.size + length + OVERHEAD + args.len() * size_of::<Span>();
        // Spans have 32 bits.
        if size > limit.min(Span::DETACHED as usize) {
            return Err(TOO_LARGE);
        }
        let position = |at: usize| u32::try_from(at).expect("the limit has 32 bits");
        for (i, span) in args.spans().iter().enumerate() {
            if let Some(detached) = args.detached(i) {
                self.spans.push(Span { start: Span::DETACHED, len: position(self.detached.len()) });
                self.detached.push(detached.clone());
            } else {
                self.spans.push(Span { start: position(self.bytes.len()), len: span.len });
                self.bytes.extend_from_slice(args.at(i));
            }
        }
        self.commands.push((entry, self.spans.len()));
        self.gates |= entry.gates;
        self.size = size;
        Ok(())
    }

    /// The commands in order.
    fn commands(&self) -> impl Iterator<Item = (&'static Entry, Args<'_>)> {
        let mut from = 0;
        self.commands.iter().map(move |&(entry, to)| {
            let spans = &self.spans[std::mem::replace(&mut from, to)..to];
            (entry, Args::new(&self.bytes, spans, &self.detached))
        })
    }
}

/// Queues a command instead of carrying it out.
pub fn queue(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) -> Result<(), ReplyError> {
    let limit = exec.local.config.client_query_buffer_limit();
    // Not the next command's time.
    exec.local.lap_ns();
    let multi = exec.session.multi.as_mut().expect("only in MULTI commands are queued");
    if !multi.spoilt {
        multi.push(entry, args, limit)?;
        match declared_keys(entry, args) {
            None => multi.wide = true,
            Some(keys) => {
                let keyspace = &exec.shared.keyspace;
                multi.shards.extend(keys.into_iter().map(|(at, _)| keyspace.shard_of(keyspace.hash(args.at(at)))));
            }
        }
    }
    exec.session.last_command = u32::try_from(entry.id).unwrap_or(u32::MAX);
    exec.reply.put().simple("QUEUED");
    Ok(())
}

/// Positions of all keys that a command may lock; `None` if it may lock others too. Databases do not matter: a shard's
/// lock is that of the shard in all of them.
fn declared_keys(entry: &Entry, args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    if KEYLESS.contains(&entry.full_name.as_str()) {
        return Some(Vec::new());
    }
    if has_undeclared_keys(entry.command) { None } else { keys::find(entry.command, args) }
}

fn has_undeclared_keys(command: &Command) -> bool {
    let vague = command.keys.iter().any(|spec| {
        spec.flags & keyflag::INCOMPLETE != 0
            // A group or an option's value may be named like the word: what is found behind it is then not what is locked.
            || matches!(spec.begin, Begin::Unknown | Begin::Keyword(..))
            || matches!(spec.find, Find::Unknown)
    });
    vague
        || !keys::has_keys(command)
        || command.flags & flag::TOUCHES_ARBITRARY_KEYS != 0
        || command.group == "scripting"
}

/// What a session watches.
#[derive(Debug)]
pub struct Watch {
    /// Set by who changes a watched key, under that key's lock.
    flag: Arc<AtomicBool>,
    keys: HashMap<(usize, Arc<[u8]>), Hash>,
    /// Memory of the names, about.
    size: usize,
    watching: Arc<Watching>,
}

/// How much is watched, in the whole server.
#[derive(Debug, Default)]
pub struct Watching {
    clients: AtomicU64,
    keys: AtomicU64,
}

impl Watching {
    /// Clients that watch a key.
    pub fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }

    /// Keys that are watched, each as often as there are clients that watch it. Not 0 for whoever locks a watched key.
    #[inline]
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }
}

impl Watch {
    /// A watch of no keys yet.
    pub fn new(watching: Arc<Watching>) -> Watch {
        watching.clients.fetch_add(1, Relaxed);
        Watch { flag: Arc::default(), keys: HashMap::new(), size: 0, watching }
    }

    /// Whether a watched key was changed.
    pub fn is_dirty(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Adds a key; called under its lock. What is to be left there: its name and the flag, unless it is watched already.
    pub(crate) fn add(&mut self, db: usize, hash: Hash, name: &[u8]) -> Option<(Arc<[u8]>, &Arc<AtomicBool>)> {
        let name: Arc<[u8]> = Arc::from(name);
        if self.keys.insert((db, Arc::clone(&name)), hash).is_some() {
            return None;
        }
        self.size += name.len() + OVERHEAD;
        self.watching.keys.fetch_add(1, Relaxed);
        Some((name, &self.flag))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watching.clients.fetch_sub(1, Relaxed);
        self.watching.keys.fetch_sub(self.keys.len() as u64, Relaxed);
    }
}

/// Watches keys of the session's database.
pub fn watch(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if exec.session.watch.as_ref().is_some_and(|watch| watch.is_dirty()) {
        // EXEC will fail whatever else happens.
        return Ok(());
    }
    let more: usize = args.rest(1).map(|name| name.len() + OVERHEAD).sum();
    let size = exec.session.watch.as_ref().map_or(0, |watch| watch.size);
    if size + more > exec.local.config.client_query_buffer_limit() {
        return Err(TOO_MANY_WATCHES.into());
    }
    let mut keys = exec.lock_all(args.rest(1))?;
    let watching = &exec.shared.watching;
    let mut watch = exec.session.watch.take().unwrap_or_else(|| Box::new(Watch::new(Arc::clone(watching))));
    for i in 0..keys.len() {
        // What has expired goes now: then its going is no change that the watch would see.
        exec.peek(keys.key(i));
        keys.key(i).watch(&mut watch);
    }
    exec.session.watch = Some(watch);
    Ok(())
}

/// Carries out what is queued; all of it, or nothing if a watched key was changed.
pub fn execute(exec: &mut Exec<'_>) -> Outcome {
    let Some(multi) = exec.session.multi.as_deref() else { return Err("ERR EXEC without MULTI".into()) };
    if multi.spoilt {
        exec.session.discard();
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    let closed = if multi.wide { exec.exclusive()? } else { None };
    let was_exclusive = exec.local.exclusive;
    exec.local.exclusive |= closed.is_some();
    let lent = if exec.local.exclusive { Vec::new() } else { hold(exec)? };
    let multi = exec.session.end().expect("it was just seen");
    exec.local.begin_transaction();
    if end_watch(exec) {
        exec.reply.put().null_array();
    } else {
        run(exec, &multi);
    }
    commit(exec);
    drop(lent);
    exec.local.exclusive = was_exclusive;
    drop(closed);
    Ok(())
}

/// Locks and lends the shards of all keys, queued and watched. Dropping the result on failure releases what was taken.
fn hold<'a>(exec: &mut Exec<'a>) -> Result<Vec<LentShard<'a>>, Stop> {
    let keyspace = &exec.shared.keyspace;
    let watched = exec.session.watch.iter().flat_map(|watch| watch.keys.values());
    let mut ids: Vec<u32> = watched.map(|hash| keyspace.shard_of(*hash)).collect();
    ids.extend(exec.session.multi.iter().flat_map(|multi| &multi.shards));
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| exec.lock_to_lend(id)).collect()
}

/// Ends the session's watches; true if a watched key was changed, or has expired.
fn end_watch(exec: &mut Exec<'_>) -> bool {
    let Some(watch) = exec.session.watch.take() else { return false };
    for ((db, name), hash) in &watch.keys {
        let mut locked = exec.lock_held(*db, *hash, name);
        // One that has expired is removed here, and the flag set.
        exec.peek(locked.key());
        locked.key().unwatch(&watch.flag);
    }
    watch.is_dirty()
}

fn run(exec: &mut Exec<'_>, multi: &Transaction) {
    if !is_silent(exec) {
        exec.reply.put().array(multi.len());
    }
    for (entry, args) in multi.commands() {
        // Beyond the output limit the client is closed when the transaction has ended: nobody reads the rest.
        let full = exec.reply.output().len() > exec.local.output_limit;
        let before = (full || is_silent(exec)).then(|| std::mem::take(exec.reply.output()));
        run_one(exec, entry, &args);
        if let Some(before) = before {
            settle(exec, before, full);
        }
    }
    if let Some(id) = exec.commands().find(b"exec").map(|entry| entry.id) {
        exec.session.last_command = u32::try_from(id).unwrap_or(u32::MAX);
    }
}

/// A command ran while CLIENT REPLY was off: what it wrote counts only if it has switched replies on.
fn settle(exec: &mut Exec<'_>, before: Output, full: bool) {
    let written = std::mem::replace(exec.reply.output(), before);
    if !full && !is_silent(exec) {
        exec.reply.output().append(written);
    }
}

/// Whether replies are dropped now. A skip that was asked for in the transaction concerns the command after EXEC.
fn is_silent(exec: &Exec<'_>) -> bool {
    matches!(exec.session.reply_mode, ReplyMode::Off | ReplyMode::Skip)
}

/// Runs one command to its end; there is nothing that it could wait for.
fn run_one(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) {
    let outcome = match tracking::is_gated(exec, entry) {
        true => tracking::call(exec, entry, args),
        false => dispatch::call(exec, entry, args),
    };
    let outcome = match outcome {
        Err(Stop::Continue(long)) => finish(exec, long),
        other => other,
    };
    let text = match outcome {
        Ok(()) => return,
        Err(Stop::Error(text)) => text,
        Err(Stop::Wait) => NEEDS_TO_WAIT,
        Err(Stop::Park | Stop::Paused | Stop::Continue(_)) => {
            panic!("{} has to wait in a transaction that has locked its keys", entry.full_name)
        }
    };
    if exec.session.reply_mode == ReplyMode::Replay {
        return load::note_failure(exec.local, args, &text);
    }
    exec.local.stats.errors.add(1);
    exec.shared.count_error(dispatch::error_prefix(&text));
    exec.reply.put().error(text.as_bytes());
}

/// All slices of a long command at once: as in Redis, a transaction is not interrupted.
fn finish(exec: &mut Exec<'_>, mut long: Box<dyn Continuation>) -> Outcome {
    while !long.step(exec)? {}
    Ok(())
}

/// What the commands of the running transaction have changed: their effects are in the worker's record, the keys here, to
/// be stamped with the record's position.
#[derive(Debug, Default)]
pub struct Gathered {
    open: bool,
    keys: Vec<(usize, Hash)>,
    /// Whole databases were changed.
    all: bool,
}

impl Gathered {
    /// Room for so many keys is kept between transactions.
    const KEPT: usize = 1024;

    /// Whether a transaction runs.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// A transaction begins.
    pub fn open(&mut self) {
        assert!(!self.open, "transactions do not nest");
        self.open = true;
    }

    /// Its commands have run.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// A key was changed.
    pub fn key(&mut self, db: usize, hash: Hash) {
        self.keys.push((db, hash));
    }

    /// Whole databases were changed.
    pub fn all(&mut self) {
        self.all = true;
    }
}

/// Appends the one record of all effects and stamps the keys with its position, under the locks that are still held.
fn commit(exec: &mut Exec<'_>) {
    let appended = exec.local.end_transaction();
    let mut keys = std::mem::take(&mut exec.local.gathered.keys);
    let all = std::mem::take(&mut exec.local.gathered.all);
    if let Some(lsn) = appended {
        exec.stamp_held(&keys, all, lsn);
    }
    keys.clear();
    keys.shrink_to(Gathered::KEPT);
    exec.local.gathered.keys = keys;
}

/// Databases are about to be emptied or exchanged, behind the closed gate: who watches a key that is there, or will be, is
/// told. `partner` is the database whose keys a database gets, `None` if it is not concerned, itself if it is emptied.
pub fn tell_watchers(exec: &mut Exec<'_>, partner: impl Fn(usize) -> Option<usize>) {
    if exec.shared.watching.keys() == 0 {
        return;
    }
    for id in 0..u32::try_from(exec.shared.keyspace.shards()).expect("at most 16384 shards") {
        for (db, hash, name) in exec.watched_in(id) {
            let Some(other) = partner(db) else { continue };
            // The looks remove what has expired: a watched key that is replaced by an expired one has not changed.
            let there = [db, other].map(|db| {
                let mut locked = exec.lock_held(db, hash, &name);
                exec.peek(locked.key()).is_some()
            });
            if there.contains(&true) {
                let mut locked = exec.lock_held(db, hash, &name);
                exec.tell_watchers(locked.key());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_store::Rope;

    fn table() -> &'static crate::command::Table {
        Box::leak(Box::new(crate::commands::table()))
    }

    fn with_words<T>(line: &str, check: impl FnOnce(&'static Entry, &Args<'_>) -> T) -> T {
        let words: Vec<Detached> = line.split(' ').map(|word| Detached::Bytes(word.as_bytes().to_vec())).collect();
        let spans: Vec<Span> = (0..).zip(&words).map(|(i, _)| Span { start: Span::DETACHED, len: i }).collect();
        let args = Args::new(&[], &spans, &words);
        let entry = table().find(args.at(0)).expect("a command");
        let entry = if args.len() > 1 { entry.subcommand(args.at(1)).unwrap_or(entry) } else { entry };
        check(entry, &args)
    }

    fn keys(line: &str) -> Option<Vec<usize>> {
        with_words(line, |entry, args| Some(declared_keys(entry, args)?.into_iter().map(|(at, _)| at).collect()))
    }

    #[test]
    fn keys_are_declared_or_the_gate_is_closed() {
        assert_eq!(keys("get a"), Some(vec![1]));
        assert_eq!(keys("mset a 1 b 2"), Some(vec![1, 3]));
        assert_eq!(keys("copy a b db 3"), Some(vec![1, 2]));
        assert_eq!(keys("object encoding a"), Some(vec![2]));
        assert_eq!(keys("set a 1 get"), Some(vec![1]));
        for keyless in ["ping", "echo x", "select 1", "client id", "unwatch"] {
            assert_eq!(keys(keyless), Some(Vec::new()), "{keyless}");
        }
        let wide = [
            "flushall",
            "keys *",
            "scan 0",
            "dbsize",
            "randomkey",
            "swapdb 0 1",
            "config get x",
            "info",
            "debug object a",
        ];
        for wide in wide {
            assert_eq!(keys(wide), None, "{wide}");
        }
        for name in KEYLESS {
            assert!(table().find_full(name.as_bytes()).is_some(), "{name} is no command");
        }
    }

    #[test]
    fn what_is_queued_is_kept_whole() {
        let mut queue = Transaction::default();
        let table = table();
        let buffer = b"*3 SET key value";
        let span = |start: u32, len: u32| Span { start, len };
        let rope = Rope::from_slice(&[b'x'; 100_000]);
        let detached = [Detached::Bytes(b"word".to_vec()), Detached::from(rope.clone())];
        let spans = [span(3, 3), span(7, 3), span(11, 5)];
        let large = [span(3, 3), span(Span::DETACHED, 0), span(Span::DETACHED, 1)];
        let set = table.find(b"set").expect("SET");
        for spans in [&spans, &large, &spans, &large] {
            queue.push(set, &Args::new(buffer, spans, &detached), 1 << 30).expect("there is room");
        }
        assert_eq!(queue.len(), 4);
        for (i, (entry, args)) in queue.commands().enumerate() {
            assert_eq!((entry.full_name.as_str(), args.len(), args.at(0)), ("set", 3, b"SET".as_slice()));
            match i % 2 {
                0 => assert_eq!((args.at(1), args.at(2)), (b"key".as_slice(), b"value".as_slice())),
                _ => assert_eq!((args.at(1), args.rope(2)), (b"word".as_slice(), Some(&rope))),
            }
        }
        assert!(queue.size() > 200_000);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = Transaction::default();
        let mut count = 0;
        let refused = with_words("set k v", |entry, args| {
            loop {
                match queue.push(entry, args, 10_000) {
                    Ok(()) => count += 1,
                    Err(text) => break text,
                }
            }
        });
        assert_eq!(refused, TOO_LARGE);
        assert!((50..200).contains(&count) && queue.size() <= 10_000, "{count} commands, {} bytes", queue.size());
        queue.spoil();
        assert!(queue.is_empty() && queue.is_spoilt() && queue.size() == 0);
    }

    #[test]
    fn watches_are_counted_while_they_last() {
        let watching = Arc::new(Watching::default());
        let mut watch = Watch::new(Arc::clone(&watching));
        assert!(watch.add(0, Hash(1), b"a").is_some());
        assert!(watch.add(0, Hash(1), b"a").is_none(), "watched already");
        assert!(watch.add(1, Hash(1), b"a").is_some());
        assert_eq!((watching.clients(), watching.keys(), watch.len()), (1, 2, 2));
        drop(watch);
        assert_eq!((watching.clients(), watching.keys()), (0, 0));
    }
}
