//! Adding, removing and moving members.

use super::{effect, limits, peek};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Locked, Outcome, ReplyError, error};
use crate::notify;
use crate::sample;
use crate::streamed;
use crate::worker::Random;
use gimmal_store::types::Set;

use super::read::Whole;

const NOT_POSITIVE: ReplyError = error("ERR value is out of range, must be positive");
/// Members of one record of the log: as many as Redis puts into one SREM.
const RECORD: usize = 1024;

pub(super) fn sadd(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let limits = limits(exec);
    let mut key = exec.lock(args.at(1))?;
    let edited = exec.edit_or_create(key.key(), |set: &mut Set| {
        set.expect(args.at(2), args.len() - 2, limits);
        args.rest(2).filter(|member| set.add(member, limits)).count()
    })?;
    if edited.result > 0 {
        effect(exec, key.key(), edited.result, [b"SADD", args.at(1)].into_iter().chain(args.rest(2)));
        if edited.created {
            exec.notify(notify::NEW, "new", args.at(1));
        }
        exec.notify(notify::SET, "sadd", args.at(1));
    }
    exec.reply.put().count(edited.result);
    Ok(())
}

pub(super) fn srem(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let edited = exec.edit(key.key(), |set: &mut Set| args.rest(2).filter(|member| set.remove(member)).count())?;
    let removed = edited.as_ref().map_or(0, |edited| edited.result);
    if removed > 0 {
        effect(exec, key.key(), removed, [b"SREM", args.at(1)].into_iter().chain(args.rest(2)));
        exec.notify(notify::SET, "srem", args.at(1));
        if edited.is_some_and(|edited| edited.emptied) {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
    }
    exec.reply.put().count(removed);
    Ok(())
}

pub(super) fn spop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => return pop_one(exec, args),
        3 => usize::try_from(args.int(2).map_err(|_| NOT_POSITIVE)?).map_err(|_| NOT_POSITIVE)?,
        _ => return Err(SYNTAX.into()),
    };
    let mut key = exec.lock(args.at(1))?;
    let len = peek(exec, key.key())?.map_or(0, |set| set.len());
    exec.reply.put().set(count.min(len));
    match count {
        0 => Ok(()),
        _ if len == 0 => Ok(()),
        _ if count < len => pop_some(exec, key, args.at(1), count),
        _ => pop_all(exec, key, args.at(1), len),
    }
}

/// One member, without an array around it.
fn pop_one(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let random = exec.local.random.next();
    let Some(edited) = exec.edit(key.key(), |set: &mut Set| pop(set, random))? else {
        exec.reply.put().null();
        return Ok(());
    };
    exec.effect(key.key(), &[b"SREM", args.at(1), &edited.result]);
    exec.notify(notify::SET, "spop", args.at(1));
    if edited.emptied {
        exec.notify(notify::GENERIC, "del", args.at(1));
    }
    exec.reply.put().bulk(&edited.result);
    Ok(())
}

/// Removes a random member.
fn pop(set: &mut Set, random: u64) -> Vec<u8> {
    let rank = sample::below(random, set.view().len());
    let member = set.view().nth(rank).expect("the rank is below the length").to_vec();
    set.remove_nth(rank);
    member
}

/// Some members, but not all.
fn pop_some(exec: &mut Exec<'_>, mut key: Locked<'_>, name: &[u8], count: usize) -> Outcome {
    let mut random: Random = exec.local.random.split();
    let edited = exec
        .edit(key.key(), |set: &mut Set| -> Vec<Vec<u8>> { (0..count).map(|_| pop(set, random.next())).collect() })?;
    let members = edited.map_or(Vec::new(), |edited| edited.result);
    for members in members.chunks(RECORD) {
        let words = [b"SREM", name].into_iter().chain(members.iter().map(Vec::as_slice));
        effect(exec, key.key(), members.len(), words);
    }
    exec.notify(notify::SET, "spop", name);
    members.iter().for_each(|member| exec.reply.put().bulk(member));
    Ok(())
}

/// All members: the key goes, and its value becomes the reply.
fn pop_all(exec: &mut Exec<'_>, mut key: Locked<'_>, name: &[u8], len: usize) -> Outcome {
    let whole = peek(exec, key.key())?.map(|set| Whole(set.to_owned())).expect("it was just seen, under its lock");
    drop(exec.remove(key.key()));
    exec.effect(key.key(), &[b"DEL", name]);
    exec.changed(len as u64 - 1);
    exec.notify(notify::SET, "spop", name);
    exec.notify(notify::GENERIC, "del", name);
    drop(key);
    streamed::elements(exec, 0..len, whole)
}

pub(super) fn smove(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (source, destination, member) = (args.at(1), args.at(2), args.at(3));
    let limits = limits(exec);
    let mut keys = exec.lock_all([source, destination].into_iter())?;
    let Some(there) = peek(exec, keys.key(0))?.map(|set| set.contains(member)) else {
        exec.reply.put().integer(0);
        return Ok(());
    };
    let there_already = peek(exec, keys.key(1))?.is_some_and(|set| set.contains(member));
    exec.reply.put().integer(i64::from(there));
    if source == destination || !there {
        return Ok(());
    }
    let taken = exec.edit(keys.key(0), |set: &mut Set| set.remove(member))?;
    // What has the member already is not changed: who watches it need not know.
    let added = match there_already {
        true => None,
        false => Some(exec.edit_or_create(keys.key(1), |set: &mut Set| {
            set.expect(member, 1, limits);
            set.add(member, limits)
        })?),
    };
    let changes = if added.is_some() { 2 } else { 1 };
    exec.effect_many(&mut keys, changes, |record, db| {
        record.command(db, &[&b"SMOVE"[..], source, destination, member]);
    });
    exec.notify(notify::SET, "srem", source);
    if taken.is_some_and(|taken| taken.emptied) {
        exec.notify(notify::GENERIC, "del", source);
    }
    if let Some(added) = added {
        if added.created {
            exec.notify(notify::NEW, "new", destination);
        }
        exec.notify(notify::SET, "sadd", destination);
    }
    Ok(())
}
