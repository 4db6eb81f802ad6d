//! SINTER, SUNION, SDIFF and what stores or counts their results.
//!
//! The sources are taken by their roots, in O(1), and combined without any lock, in slices if they are large. A result of up to some
//! thousand members is stored under the locks under which its sources were taken. To store a larger one the keys are locked again:
//! if the sources still are what they were it is one of its moment, as the log says. If they were changed it begins again, and
//! after [`TRIES`] keeps the locks.

use super::{limits, read};
use crate::args::Args;
use crate::config::ClientClass;
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, LockedMany, Outcome, ReplyError, SLICE_US, Stop, error};
use crate::notify;
use gimmal_resp::encode_bulk;
use gimmal_store::types::{Combination, Kind, Operation, Set, SetBuilder};
use std::sync::Arc;
use std::time::Instant;

/// Members that are looked up in the other sets rather than merged with them: some 10 µs.
const LOOKED_UP: usize = 128;
/// Members of the sources that are merged under the locks, to store what they are merged to.
const UNDER_LOCKS: usize = 2048;
/// Beginnings without the locks.
const TRIES: u32 = 3;
/// Members between two looks at the clock.
const STEP: usize = 256;
/// Bytes of a chunk of the reply: large enough to be sent without copying, small enough to be filled soon.
const CHUNK: usize = 256 * 1024;

const BAD_NUMKEYS: ReplyError = error("ERR numkeys should be greater than 0");
const TOO_FEW_KEYS: ReplyError = error("ERR Number of keys can't be greater than number of args");
const BAD_LIMIT: ReplyError = error("ERR LIMIT can't be negative");

pub(super) fn sinter(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, Operation::Intersection, args.rest(1).collect(), Reply::default())
}

pub(super) fn sunion(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, Operation::Union, args.rest(1).collect(), Reply::default())
}

pub(super) fn sdiff(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    answer(exec, Operation::Difference, args.rest(1).collect(), Reply::default())
}

pub(super) fn sintercard(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let keys = args.int(1).ok().filter(|keys| *keys > 0).and_then(|keys| usize::try_from(keys).ok());
    let keys = keys.ok_or(BAD_NUMKEYS)?;
    if keys > args.len() - 2 {
        return Err(TOO_FEW_KEYS.into());
    }
    let mut limit = 0;
    for i in (2 + keys..args.len()).step_by(2) {
        if !args.is(i, "limit") || i + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        limit = args.int(i + 1).ok().and_then(|limit| usize::try_from(limit).ok()).ok_or(BAD_LIMIT)?;
    }
    let reply = Reply { count_up_to: Some(if limit == 0 { usize::MAX } else { limit }), ..Reply::default() };
    answer(exec, Operation::Intersection, args.rest(2).take(keys).collect(), reply)
}

pub(super) fn sinterstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    store(exec, args, Store::new(Operation::Intersection, "sinterstore", args))
}

pub(super) fn sunionstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    store(exec, args, Store::new(Operation::Union, "sunionstore", args))
}

pub(super) fn sdiffstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    store(exec, args, Store::new(Operation::Difference, "sdiffstore", args))
}

/// The sets at keys `from` and on; missing ones are empty.
fn sources(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>, from: usize) -> Result<Vec<Set>, Stop> {
    let count = keys.len();
    let set = |i| Ok(read(exec, keys.key(i))?.map_or_else(|| Set::empty_in(Vec::new()), |set| set.to_owned()));
    (from..count).map(set).collect()
}

fn answer(exec: &mut Exec<'_>, operation: Operation, names: Vec<&[u8]>, mut reply: Reply) -> Outcome {
    let sets = {
        let mut keys = exec.lock_all(names.into_iter())?;
        sources(exec, &mut keys, 0)?
    };
    if operation.work(&sets) <= LOOKED_UP {
        operation.look_up(&sets, &mut |member| reply.add(member));
        reply.write(exec);
        return Ok(());
    }
    let mut answer = Answer { combination: Combination::new(operation, sets), reply };
    match answer.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(answer))),
    }
}

/// A reply that is gathered, since its length comes first.
#[derive(Default)]
struct Reply {
    found: usize,
    chunks: Vec<Arc<Vec<u8>>>,
    open: Vec<u8>,
    bytes: usize,
    /// Only the number of members is answered, and no more than so many are counted.
    count_up_to: Option<usize>,
}

impl Reply {
    fn add(&mut self, member: &[u8]) {
        if self.count_up_to.is_some_and(|most| self.found >= most) {
            return;
        }
        self.found += 1;
        if self.count_up_to.is_none() {
            encode_bulk(&mut self.open, member);
            if self.open.len() >= CHUNK {
                self.bytes += self.open.len();
                self.chunks.push(Arc::new(std::mem::take(&mut self.open)));
            }
        }
    }

    /// More was gathered than any client may leave unread, or all was counted that matters.
    fn is_enough(&self, exec: &Exec<'_>) -> bool {
        let limit = exec.local.config.client_output_buffer_limit(ClientClass::Normal).hard;
        let too_large = limit > 0 && (self.bytes + self.open.len()) as u64 > limit;
        too_large || self.count_up_to.is_some_and(|most| self.found >= most)
    }

    fn write(&mut self, exec: &mut Exec<'_>) {
        if self.count_up_to.is_some() {
            return exec.reply.put().count(self.found);
        }
        exec.reply.put().set(self.found);
        let output = exec.reply.output();
        for chunk in self.chunks.drain(..) {
            let len = chunk.len();
            output.push_shared(chunk, 0..len);
        }
        output.bytes_mut().extend_from_slice(&self.open);
    }
}

/// An answer under way.
struct Answer {
    combination: Combination,
    reply: Reply,
}

impl Continuation for Answer {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let started = Instant::now();
        while !self.combination.is_done() && !self.reply.is_enough(exec) {
            self.combination.step(STEP, &mut |_, member| self.reply.add(member));
            if started.elapsed().as_micros() >= u128::from(SLICE_US) {
                return Ok(false);
            }
        }
        self.reply.write(exec);
        Ok(true)
    }
}

fn store(exec: &mut Exec<'_>, args: &Args<'_>, mut work: Store) -> Outcome {
    {
        let mut keys = exec.lock_all(args.rest(1))?;
        work.sources = sources(exec, &mut keys, 1)?;
        let (operation, members) = (work.operation, work.operation.work(&work.sources));
        if members <= LOOKED_UP {
            operation.look_up(&work.sources, &mut |member| work.result.add(member));
            return work.store(exec, &mut keys);
        }
        work.begin();
        if members <= UNDER_LOCKS {
            work.finish();
            return work.store(exec, &mut keys);
        }
    }
    // The locks are released.
    match work.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(work))),
    }
}

/// A result that is going to be stored.
struct Store {
    operation: Operation,
    command: &'static str,
    /// Destination and sources.
    names: Vec<Vec<u8>>,
    sources: Vec<Set>,
    combination: Combination,
    result: SetBuilder,
    tries: u32,
}

impl Store {
    fn new(operation: Operation, command: &'static str, args: &Args<'_>) -> Store {
        Store {
            operation,
            command,
            names: args.rest(1).map(<[u8]>::to_vec).collect(),
            sources: Vec::new(),
            combination: Combination::new(operation, Vec::new()),
            result: SetBuilder::default(),
            tries: 0,
        }
    }

    /// Begins with the sources, anew.
    fn begin(&mut self) {
        self.combination = Combination::new(self.operation, self.sources.clone());
        self.result = SetBuilder::default();
        self.tries += 1;
    }

    fn finish(&mut self) {
        self.combination.step(usize::MAX, &mut |tag, member| self.result.push(tag, member));
    }

    fn store(&mut self, exec: &mut Exec<'_>, keys: &mut LockedMany<'_>) -> Outcome {
        let result = std::mem::take(&mut self.result).finish(limits(exec));
        let (len, destination) = (result.view().len(), &self.names[0]);
        let there = exec.peek(keys.key(0)).is_some();
        exec.reply.put().count(len);
        if len > 0 {
            let _old = exec.put_aggregate(keys.key(0), result.into_aggregate(), None);
        } else if there {
            drop(exec.remove(keys.key(0)));
        } else {
            return Ok(());
        }
        let words: Vec<&[u8]> =
            [self.command.as_bytes()].into_iter().chain(self.names.iter().map(Vec::as_slice)).collect();
        exec.effect(keys.key(0), &words);
        match len {
            0 => exec.notify(notify::GENERIC, "del", destination),
            _ => exec.notify(notify::SET, self.command, destination),
        }
        Ok(())
    }
}

impl Continuation for Store {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let started = Instant::now();
        while !self.combination.is_done() {
            self.combination.step(STEP, &mut |tag, member| self.result.push(tag, member));
            if started.elapsed().as_micros() >= u128::from(SLICE_US) {
                return Ok(false);
            }
        }
        let names = self.names.clone();
        let mut keys = exec.lock_all(names.iter().map(Vec::as_slice))?;
        let now = sources(exec, &mut keys, 1)?;
        if !now.iter().zip(&self.sources).all(|(now, then)| now.view().is_same(then.view())) {
            self.sources = now;
            self.begin();
            if self.tries <= TRIES {
                return Ok(false);
            }
            self.finish();
        }
        self.store(exec, &mut keys)?;
        Ok(true)
    }
}
