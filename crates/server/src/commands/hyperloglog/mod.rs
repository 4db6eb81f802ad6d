//! HyperLogLog: how many different elements a key has seen, within 0.81 %, in at most 12 KiB.
//!
//! The values are strings in Redis's own format (`sketch.rs`); a dense one is changed in place.

mod debug;
mod estimate;
mod selftest;
mod sketch;

use crate::args::Args;
use crate::arguments::{key, string};
use crate::command::{Argument, Command, KeySpec, acl, flag::*, key_at, key_range, key1, keyflag::*};
use crate::commands::string::string_of;
use crate::exec::{Continuation, Exec, Key, LockedMany, Outcome, ReplyError, Stop, error};
use crate::kept::Kept;
use crate::notify;
use crate::offload;
use estimate::{REGISTERS, estimate, place};
use gimmal_store::{Encoding, Entry, NewValue, StringRef};
use sketch::{Corrupt, Cursor, Registers, Sketch, cache, cached, dense_register, forget, is_dense, is_sketch};
use std::borrow::Cow;
use std::sync::Arc;

const KEY: Argument = key("key", 0);

/// What all commands of the family have in common.
const HYPERLOGLOG: Command =
    Command { acl: acl::HYPERLOGLOG, since: "2.8.9", group: "hyperloglog", complexity: "N/A", ..Command::DEFAULT };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "pfadd",
        run: pfadd,
        arity: -2,
        flags: WRITE | DENYOOM | FAST,
        keys: &[key1(RW | INSERT)],
        complexity: "O(1) for each element",
        summary: "Shows elements to the HyperLogLog at a key; a missing key becomes one.",
        arguments: &[KEY, string("element").optional().many()],
        ..HYPERLOGLOG
    },
    Command {
        name: "pfcount",
        run: pfcount,
        arity: -2,
        flags: READONLY | MAY_REPLICATE,
        keys: &[KeySpec {
            notes: "Keeps the estimate of a single key in its value",
            ..key_range(1, -1, 1, RW | ACCESS)
        }],
        complexity: "O(1) for one key whose estimate is known, otherwise O(N) where N is the number of keys, with a large constant",
        summary: "Estimates how many different elements the HyperLogLogs at some keys have seen together.",
        arguments: &[KEY.many()],
        ..HYPERLOGLOG
    },
    Command {
        name: "pfmerge",
        run: pfmerge,
        arity: -2,
        flags: WRITE | DENYOOM,
        keys: &[key1(RW | ACCESS | INSERT), key_range(2, -1, 1, RO | ACCESS)],
        complexity: "O(N) where N is the number of keys, with a large constant",
        summary: "Makes the HyperLogLog at a key have seen what some others have.",
        arguments: &[key("destkey", 0), key("sourcekey", 1).optional().many()],
        ..HYPERLOGLOG
    },
    Command {
        name: "pfdebug",
        run: debug::pfdebug,
        arity: 3,
        flags: WRITE | DENYOOM | ADMIN | SYSCMD,
        keys: &[key_at(2, RW | ACCESS)],
        summary: "Shows the inside of the HyperLogLog at a key.",
        arguments: &[string("subcommand"), KEY],
        ..HYPERLOGLOG
    },
    Command {
        name: "pfselftest",
        run: selftest::pfselftest,
        flags: ADMIN | SYSCMD,
        summary: "Tests the registers and estimates of HyperLogLogs.",
        ..HYPERLOGLOG
    },
];

const NOT_ONE: ReplyError = error("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: ReplyError = error("INVALIDOBJ Corrupted HLL object detected");

impl From<Corrupt> for Stop {
    fn from(_: Corrupt) -> Stop {
        Stop::Error(CORRUPT)
    }
}

/// The bytes of an entry that holds a HyperLogLog. Only what no sound one can be is ever in several extents.
fn sketch_of<'e>(entry: &Entry<'e>) -> Result<&'e [u8], Stop> {
    let bytes: Cow<'e, [u8]> = match string_of(entry)? {
        StringRef::Bytes(bytes) => Cow::Borrowed(bytes),
        StringRef::Rope(rope) => match rope.as_single() {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let mut begin = Vec::with_capacity(sketch::HEADER);
                rope.copy_range(0, sketch::HEADER, &mut begin);
                Cow::Owned(begin)
            }
        },
        _ => return Err(NOT_ONE.into()),
    };
    match (is_sketch(&bytes), bytes) {
        (false, _) => Err(NOT_ONE.into()),
        (true, Cow::Borrowed(bytes)) => Ok(bytes),
        (true, Cow::Owned(_)) => Err(CORRUPT.into()),
    }
}

/// Size up to which a sketch stays sparse.
fn sparse_max(exec: &Exec<'_>) -> usize {
    use crate::config::Bytes;
    usize::try_from(exec.local.config.bytes(const { Bytes::of("hll-sparse-max-bytes") })).unwrap_or(usize::MAX)
}

/// Stores a changed sketch; its key is there or not, and keeps its time to live.
fn store(exec: &mut Exec<'_>, mut key: Key<'_, '_>, sketch: &Sketch) {
    if exec.peek(key.again()).is_none() {
        let _none = exec.put(key.again(), NewValue::Bytes(sketch.bytes()), None);
    }
    exec.write(key).expect("it was just seen or put").set_bytes(sketch.bytes());
}

/// Redis gives a sketch bytes of its own before it looks into it: OBJECT ENCODING shows it as a string that was written into.
fn mark_as_written(exec: &mut Exec<'_>, mut key: Key<'_, '_>) {
    if exec.peek(key.again()).is_some_and(|entry| entry.encoding() == Encoding::Embstr) {
        exec.write(key).expect("it was just seen").edit_bytes(|_| ()).expect("a short string is in one piece");
    }
}

fn pfadd(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if !offload::is_due(exec, args.len()) {
        return add(exec, args, args.rest(2).map(place), false);
    }
    let kept = exec.keep(args);
    offload::start(exec, move || {
        // What is left is the highest value of each register.
        let mut highest = Box::new([0; REGISTERS]);
        for (index, value) in kept.args().rest(2).map(place) {
            highest[index] = value.max(highest[index]);
        }
        Box::new(Hashed { kept, highest })
    })
}

/// PFADD, whose many elements a thread has hashed.
struct Hashed {
    kept: Arc<Kept>,
    highest: Box<Registers>,
}

impl Continuation for Hashed {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let places = self.highest.iter().copied().enumerate().filter(|(_, value)| *value > 0);
        add(exec, &self.kept.args(), places, true).map(|()| true)
    }
}

/// Makes the sketch at a key have seen elements with these places; `ascending` if their registers are in order.
fn add(exec: &mut Exec<'_>, args: &Args<'_>, places: impl Iterator<Item = (usize, u8)>, ascending: bool) -> Outcome {
    let sparse_max = sparse_max(exec);
    let mut locked = exec.lock(args.at(1))?;
    let mut changes = 0u64;
    let old = exec.peek(locked.key()).map(|entry| sketch_of(&entry)).transpose()?;
    if let Some(bytes) = old.filter(|bytes| is_dense(bytes)) {
        let higher: Vec<(usize, u8)> = places.filter(|(index, value)| dense_register(bytes, *index) < *value).collect();
        if !higher.is_empty() {
            let mut entry = exec.write(locked.key()).expect("it was just read");
            changes = entry.edit_bytes(|bytes| raise_dense(bytes, &higher)).expect("it was seen in one piece");
        }
    } else {
        let mut sketch = match old {
            Some(bytes) => Sketch::of(bytes)?,
            None => {
                changes += 1;
                Sketch::new()
            }
        };
        let mut cursor = Cursor::START;
        for (index, value) in places {
            if !ascending {
                cursor = Cursor::START;
            }
            changes += u64::from(sketch.raise(index, value, sparse_max, &mut cursor)?);
        }
        if changes > 0 {
            forget(sketch.bytes_mut());
            store(exec, locked.key(), &sketch);
        }
    }
    if changes > 0 {
        exec.changed(changes - 1);
        let words = std::iter::once(&b"PFADD"[..]).chain(args.rest(1));
        let words: Vec<&[u8]> = if exec.local.log_active { words.collect() } else { Vec::new() };
        exec.effect(locked.key(), &words);
        exec.notify(notify::STRING, "pfadd", args.at(1));
    } else {
        mark_as_written(exec, locked.key());
    }
    exec.reply.put().integer(i64::from(changes > 0));
    Ok(())
}

/// Raises registers of a dense sketch in place; two elements may want the same one.
fn raise_dense(bytes: &mut [u8], higher: &[(usize, u8)]) -> u64 {
    let mut changes = 0;
    for (index, value) in higher {
        if dense_register(bytes, *index) < *value {
            sketch::set_dense_register(bytes, *index, *value);
            changes += 1;
        }
    }
    forget(bytes);
    changes
}

fn pfcount(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() > 2 {
        let mut keys = exec.lock_all(args.rest(1))?;
        let (registers, _) = union(exec, &mut keys)?;
        let count = estimate(&sketch::histogram_of(&registers));
        exec.reply.put().integer(i64::try_from(count).unwrap_or(i64::MAX));
        return Ok(());
    }
    let mut locked = exec.lock(args.at(1))?;
    let Some(entry) = exec.read(locked.key()) else {
        exec.reply.put().integer(0);
        return Ok(());
    };
    let bytes = sketch_of(&entry)?;
    let count = match cached(bytes) {
        Some(count) => {
            mark_as_written(exec, locked.key());
            count
        }
        None => {
            let count = estimate(&sketch::histogram(bytes)?);
            let mut entry = exec.write(locked.key()).expect("it was just read");
            entry.edit_bytes(|bytes| cache(bytes, count)).expect("it was seen in one piece");
            exec.effect(locked.key(), &[b"PFCOUNT", args.at(1)]);
            count
        }
    };
    exec.reply.put().integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// The highest of each register over all keys, and whether one of them is dense.
fn union(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>) -> Result<(Box<Registers>, bool), Stop> {
    let mut registers = Box::new([0; REGISTERS]);
    let mut dense = false;
    for i in 0..keys.len() {
        if let Some(entry) = exec.read(keys.key(i)) {
            let bytes = sketch_of(&entry)?;
            dense |= is_dense(bytes);
            sketch::merge(bytes, &mut registers)?;
        }
    }
    Ok((registers, dense))
}

fn pfmerge(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let sparse_max = sparse_max(exec);
    let mut keys = exec.lock_all(args.rest(1))?;
    let (registers, dense) = union(exec, &mut keys)?;
    let mut merged = match exec.peek(keys.key(0)) {
        Some(entry) => Sketch::of(sketch_of(&entry)?)?,
        None => Sketch::new(),
    };
    if dense {
        merged.make_dense()?;
    }
    let mut cursor = Cursor::START;
    for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        merged.raise(index, *value, sparse_max, &mut cursor)?;
    }
    forget(merged.bytes_mut());
    store(exec, keys.key(0), &merged);
    let words: Vec<&[u8]> = std::iter::once(&b"PFMERGE"[..]).chain(args.rest(1)).collect();
    exec.effect(keys.key(0), &words);
    exec.notify(notify::STRING, "pfadd", args.at(1));
    exec.reply.put().ok();
    Ok(())
}
