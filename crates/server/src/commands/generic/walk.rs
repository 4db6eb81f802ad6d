//! KEYS and SCAN: walks over a database, shard by shard, in slices.
//!
//! A cursor is the shard's number above the position in its table. A table's positions are hash prefixes: whatever
//! splits and merges happen between two calls, a key that is there throughout is visited once, and in SCAN a cursor is
//! good for ever. SCAN removes what it finds expired, KEYS does not. A slice takes about [`SLICE_US`] and holds one shard's lock at a time; a lock that another worker
//! holds ends the slice, not the walk. KEYS gathers its reply outside of the connection, since the count comes first.
//!
//! Dropped: one snapshot of all shards (KEYS over millions of keys would hold every lock for a second). A key that is
//! renamed while KEYS runs may be missed, or named twice.

use crate::args::Args;
use crate::commands::generic::keys::type_name;
use crate::config::ClientClass;
use crate::dispatch::{SYNTAX, echoed};
use crate::exec::{Continuation, Exec, Outcome, ReplyError, SLICE_US, Stop};
use crate::glob;
use crate::scan;
use gimmal_resp::encode_bulk;
use gimmal_store::{Entry, POSITION_BITS, Shard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries between two looks at the clock: some µs.
const STEP: usize = 64;
/// Bytes of a chunk of the gathered reply: large enough to be sent without copying, small enough to be filled soon.
const CHUNK: usize = 256 * 1024;
/// Entries that SCAN visits unless told otherwise.
const COUNT: usize = 10;
/// What TYPE can say, and values of modules, which there are none of.
const TYPES: [&str; 7] = ["string", "list", "set", "zset", "hash", "stream", "module"];

pub(super) fn keys(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let pattern = args.at(1);
    if !pattern.iter().any(|byte| b"*?[\\".contains(byte)) {
        return named_key(exec, pattern);
    }
    let walk = Walk::new(exec, Cursor::START, Filter::new(pattern));
    go_on(exec, Keys(walk))
}

/// KEYS with a pattern that fits one key only.
fn named_key(exec: &mut Exec<'_>, name: &[u8]) -> Outcome {
    let mut locked = exec.lock(name)?;
    let there = exec.peek(locked.key()).is_some();
    exec.reply.put().array(usize::from(there));
    if there {
        exec.reply.put().bulk(name);
    }
    Ok(())
}

pub(super) fn scan(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let cursor = Cursor::of(scan::cursor(args.at(1))?);
    let (filter, count) = scan_options(args)?;
    let walk = Walk { expires: true, ..Walk::new(exec, cursor, filter) };
    go_on(exec, Scan { walk, count })
}

fn scan_options(args: &Args<'_>) -> Result<(Filter, usize), ReplyError> {
    let (mut filter, mut count) = (Filter::default(), COUNT);
    for i in (2..args.len()).step_by(2) {
        if i + 1 == args.len() {
            return Err(SYNTAX);
        }
        if args.is(i, "count") {
            count = usize::try_from(args.int(i + 1)?).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
        } else if args.is(i, "match") {
            filter.pattern = Filter::new(args.at(i + 1)).pattern;
        } else if args.is(i, "type") {
            let name = str::from_utf8(args.at(i + 1)).unwrap_or_default().to_ascii_lowercase();
            if !TYPES.contains(&name.as_str()) {
                return Err(format!("ERR unknown type name '{}'", echoed(args.at(i + 1))).into());
            }
            filter.type_name = Some(name);
        } else {
            return Err(SYNTAX);
        }
    }
    Ok((filter, count))
}

/// Runs a walk's first slice at once.
fn go_on(exec: &mut Exec<'_>, mut walk: impl Continuation + 'static) -> Outcome {
    match walk.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(walk))),
    }
}

/// Which keys are wanted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    /// `None`: all.
    pattern: Option<Vec<u8>>,
    /// In lower case.
    type_name: Option<String>,
}

impl Filter {
    fn new(pattern: &[u8]) -> Filter {
        Filter { pattern: (pattern != b"*").then(|| pattern.to_vec()), type_name: None }
    }

    fn fits(&self, entry: &Entry<'_>) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, entry.key()))
            && self.type_name.as_ref().is_none_or(|name| type_name(entry) == name)
    }
}

/// A place in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    shard: u32,
    position: u64,
}

impl Cursor {
    const START: Cursor = Cursor { shard: 0, position: 0 };

    fn of(number: u64) -> Cursor {
        let shard = u32::try_from(number >> POSITION_BITS).expect("32 bits are left");
        Cursor { shard, position: number & ((1 << POSITION_BITS) - 1) }
    }

    fn number(self) -> u64 {
        u64::from(self.shard) << POSITION_BITS | self.position
    }
}

/// A walk under way, with the keys that it found, encoded as they will be answered.
struct Walk {
    db: usize,
    filter: Filter,
    cursor: Cursor,
    shards: u32,
    /// Entries seen.
    visited: usize,
    /// Whether expired keys that were looked for are removed.
    expires: bool,
    /// Keys found.
    found: usize,
    chunks: Vec<Arc<Vec<u8>>>,
    open: Vec<u8>,
    bytes: usize,
}

/// How a slice ended.
#[derive(Debug, PartialEq, Eq)]
enum Slice {
    /// All shards are done.
    End,
    /// So many entries as were asked for were visited.
    Enough,
    /// The time is over.
    Late,
    /// A shard is locked by another worker.
    Locked,
}

impl Walk {
    fn new(exec: &Exec<'_>, cursor: Cursor, filter: Filter) -> Walk {
        let shards = u32::try_from(exec.shared.keyspace.shards()).expect("at most 16384 shards");
        let db = exec.session.db;
        let (chunks, open) = (Vec::new(), Vec::new());
        Walk { db, filter, cursor, shards, visited: 0, expires: false, found: 0, chunks, open, bytes: 0 }
    }

    /// Walks on for a slice, or until `enough` entries were visited.
    fn slice(&mut self, exec: &mut Exec<'_>, enough: usize) -> Result<Slice, Stop> {
        let until = Instant::now() + Duration::from_micros(SLICE_US);
        while self.cursor.shard < self.shards {
            let mut shard = match exec.lock_shard(self.cursor.shard) {
                Ok(shard) => shard,
                Err(Stop::Park) => return Ok(Slice::Locked),
                Err(other) => return Err(other),
            };
            loop {
                if self.visited >= enough {
                    return Ok(Slice::Enough);
                }
                self.step(exec, &mut shard, STEP.min(enough - self.visited));
                if self.open.len() >= CHUNK {
                    self.close_chunk();
                }
                if self.cursor.position == 0 {
                    break;
                }
                if Instant::now() >= until {
                    return Ok(Slice::Late);
                }
            }
            self.cursor.shard += 1;
            if Instant::now() >= until {
                return Ok(Slice::Late);
            }
        }
        self.cursor = Cursor::START;
        Ok(Slice::End)
    }

    /// Visits about so many entries of the cursor's shard.
    fn step(&mut self, exec: &mut Exec<'_>, shard: &mut Shard<'_>, entries: usize) {
        let now_ms = exec.now_ms();
        let mut expired = Vec::new();
        let Walk { db, filter, expires, found, open, visited, .. } = self;
        self.cursor.position = shard.table(*db).scan(self.cursor.position, entries, &mut |entry| {
            *visited += 1;
            if !filter.fits(&entry) {
                return;
            }
            if entry.expire_at_ms().is_none_or(|at_ms| at_ms >= now_ms) {
                *found += 1;
                encode_bulk(open, entry.key());
            } else if *expires {
                expired.push(Box::<[u8]>::from(entry.key()));
            }
        });
        for name in expired {
            exec.expire_in(shard, *db, &name);
        }
    }

    fn close_chunk(&mut self) {
        // The next one will be as large, and a little over: it should not be moved while it grows.
        let chunk = std::mem::replace(&mut self.open, Vec::with_capacity(CHUNK + CHUNK / 16));
        self.bytes += chunk.len();
        self.chunks.push(Arc::new(chunk));
    }

    /// More was gathered than any client may leave unread.
    fn is_too_large(&self, exec: &Exec<'_>) -> bool {
        let limit = exec.local.config.client_output_buffer_limit(ClientClass::Normal).hard;
        limit > 0 && (self.bytes + self.open.len()) as u64 > limit
    }

    /// Moves the keys into the reply. Beyond the limit the connection is then closed, as for any reply that is too large.
    fn answer(&mut self, exec: &mut Exec<'_>) {
        exec.reply.put().array(self.found);
        let output = exec.reply.output();
        for chunk in self.chunks.drain(..) {
            let len = chunk.len();
            output.push_shared(chunk, 0..len);
        }
        output.bytes_mut().extend_from_slice(&self.open);
    }
}

/// KEYS under way.
struct Keys(Walk);

impl Continuation for Keys {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let Keys(walk) = self;
        let done = walk.slice(exec, usize::MAX)? == Slice::End || walk.is_too_large(exec);
        if done {
            walk.answer(exec);
        }
        Ok(done)
    }
}

/// SCAN under way.
struct Scan {
    walk: Walk,
    count: usize,
}

impl Continuation for Scan {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let Scan { walk, count } = self;
        let done = match walk.slice(exec, *count)? {
            Slice::End | Slice::Enough => true,
            // What there is will do.
            Slice::Locked => walk.visited > 0,
            Slice::Late => walk.is_too_large(exec),
        };
        if done {
            exec.reply.put().array(2);
            exec.reply.put().bulk_str(&walk.cursor.number().to_string());
            walk.answer(exec);
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_shard_and_position() {
        let cursor = Cursor { shard: 16383, position: (1 << POSITION_BITS) - 1 };
        assert_eq!(Cursor::of(cursor.number()), cursor);
    }
}
