//! Keys as wholes: removing, counting, renaming, copying and moving them.
//!
//! Two keys may be one, lie in one shard or in two: they are always locked together, and a value is taken out, changed
//! and put in, so that no two parts of a table are borrowed at once. What was removed is freed after the locks are
//! released.

use crate::args::Args;
use crate::commands::keyspace::database;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, Stop, error};
use crate::notify;
use gimmal_store::Entry;

const NO_SUCH_KEY: ReplyError = error("ERR no such key");
const SAME: ReplyError = error("ERR source and destination objects are the same");

pub(super) fn del(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    remove(exec, args, b"DEL")
}

pub(super) fn unlink(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    remove(exec, args, b"UNLINK")
}

fn remove(exec: &mut Exec<'_>, args: &Args<'_>, command: &[u8]) -> Outcome {
    if args.len() > 2 {
        return remove_many(exec, args, command);
    }
    // Declared before the lock, so dropped after it.
    let removed;
    let mut locked = exec.lock(args.at(1))?;
    removed = match exec.peek(locked.key()) {
        Some(_) => exec.remove(locked.key()),
        None => None,
    };
    if removed.is_some() {
        exec.effect(locked.key(), &[command, args.at(1)]);
        exec.notify(notify::GENERIC, "del", args.at(1));
    }
    exec.reply.put().integer(i64::from(removed.is_some()));
    Ok(())
}

fn remove_many(exec: &mut Exec<'_>, args: &Args<'_>, command: &[u8]) -> Outcome {
    let mut removed = Vec::new();
    let mut names = Vec::new();
    let mut keys = exec.lock_all(args.rest(1))?;
    for i in 0..keys.len() {
        // The first look removes an expired key and logs that; the second finds a key named twice gone.
        if exec.peek(keys.key(i)).is_some() {
            removed.extend(exec.remove(keys.key(i)));
            names.push(args.at(1 + i));
        }
    }
    if !names.is_empty() {
        exec.effect_many(&mut keys, names.len() as u64, |record, db| {
            record.begin_command(db, names.len() + 1).arg(command);
            for name in &names {
                record.arg(name);
            }
        });
        names.iter().for_each(|name| exec.notify(notify::GENERIC, "del", name));
    }
    exec.reply.put().count(removed.len());
    Ok(())
}

pub(super) fn exists(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = exec.lock_all(args.rest(1))?;
    let there = (0..keys.len()).filter(|i| exec.inspect(keys.key(*i)).is_some()).count();
    exec.reply.put().count(there);
    Ok(())
}

pub(super) fn touch(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = exec.lock_all(args.rest(1))?;
    // To touch keys is what it is for: a client that otherwise does not touches them here.
    let touches = std::mem::replace(&mut exec.session.touches, true);
    let there = (0..keys.len()).filter(|i| exec.read(keys.key(*i)).is_some()).count();
    exec.session.touches = touches;
    exec.reply.put().count(there);
    Ok(())
}

pub(super) fn type_of(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let name = exec.inspect(locked.key()).map_or("none", |entry| type_name(&entry));
    exec.reply.put().simple(name);
    Ok(())
}

/// What TYPE answers for a value.
pub(super) fn type_name(entry: &Entry<'_>) -> &'static str {
    entry.kind().name()
}

pub(super) fn rename(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    rename_key(exec, args, false)?;
    exec.reply.put().ok();
    Ok(())
}

pub(super) fn renamenx(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let renamed = rename_key(exec, args, true)?;
    exec.reply.put().integer(i64::from(renamed));
    Ok(())
}

/// Renames; false if `only_if_free` and the new name is taken.
fn rename_key(exec: &mut Exec<'_>, args: &Args<'_>, only_if_free: bool) -> Result<bool, Stop> {
    let mut keys = exec.lock_all(args.rest(1))?;
    if exec.peek(keys.key(0)).is_none() {
        return Err(NO_SUCH_KEY.into());
    }
    if args.at(1) == args.at(2) {
        return Ok(!only_if_free);
    }
    if exec.peek(keys.key(1)).is_some() && only_if_free {
        return Ok(false);
    }
    let entry = exec.remove(keys.key(0)).expect("it was just seen");
    let replaced = exec.put_owned(keys.key(1), entry);
    let command: &[u8] = if only_if_free { b"RENAMENX" } else { b"RENAME" };
    exec.effect_many(&mut keys, 1, |record, db| {
        record.command(db, &[command, args.at(1), args.at(2)]);
    });
    exec.notify(notify::GENERIC, "rename_from", args.at(1));
    exec.notify(notify::GENERIC, "rename_to", args.at(2));
    drop(keys);
    drop(replaced);
    Ok(true)
}

/// What COPY was asked beside its keys.
#[derive(Debug, PartialEq, Eq)]
struct CopyOptions {
    db: usize,
    replace: bool,
}

impl CopyOptions {
    fn parse(exec: &Exec<'_>, args: &Args<'_>) -> Result<CopyOptions, ReplyError> {
        let mut options = CopyOptions { db: exec.session.db, replace: false };
        let mut i = 3;
        while i < args.len() {
            if args.is(i, "replace") {
                options.replace = true;
            } else if args.is(i, "db") && i + 1 < args.len() {
                options.db = database(exec, args.int(i + 1)?)?;
                i += 1;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        Ok(options)
    }
}

pub(super) fn copy(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = CopyOptions::parse(exec, args)?;
    let db = exec.session.db;
    if db == options.db && args.at(1) == args.at(2) {
        return Err(SAME.into());
    }
    let mut keys = exec.lock_in([(db, args.at(1)), (options.db, args.at(2))].into_iter())?;
    let taken = exec.peek(keys.key(1)).is_some();
    let clock = exec.local.clock;
    let copied = exec.read(keys.key(0)).filter(|_| options.replace || !taken).map(|entry| entry.copied(clock));
    let Some(entry) = copied else {
        exec.reply.put().integer(0);
        return Ok(());
    };
    let replaced = exec.put_owned(keys.key(1), entry);
    exec.effect_many(&mut keys, 1, |record, db| {
        record.command(db, &args.rest(0).collect::<Vec<_>>());
    });
    exec.notify_in(options.db, notify::GENERIC, "copy_to", args.at(2));
    exec.reply.put().integer(1);
    drop(keys);
    drop(replaced);
    Ok(())
}

pub(super) fn move_key(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let from = exec.session.db;
    let to = database(exec, args.int(2)?)?;
    if from == to {
        return Err(SAME.into());
    }
    let mut keys = exec.lock_in([(from, args.at(1)), (to, args.at(1))].into_iter())?;
    let movable = exec.peek(keys.key(0)).is_some() && exec.peek(keys.key(1)).is_none();
    if movable {
        let entry = exec.remove(keys.key(0)).expect("it was just seen");
        let _none = exec.put_owned(keys.key(1), entry);
        exec.effect_many(&mut keys, 1, |record, db| {
            record.command(db, &[b"MOVE", args.at(1), args.at(2)]);
        });
        exec.notify_in(from, notify::GENERIC, "move_from", args.at(1));
        exec.notify_in(to, notify::GENERIC, "move_to", args.at(1));
    }
    exec.reply.put().integer(i64::from(movable));
    Ok(())
}
