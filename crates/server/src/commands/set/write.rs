//! Adding, removing and moving members.

use super::{effect, limits, peek};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Edited, Exec, Key, Locked, Outcome, ReplyError, error};
use crate::lazyfree::removal;
use crate::notify;
use crate::offload::{self, Command, Missing};
use crate::sample;
use crate::streamed;
use crate::worker::Random;
use gimmal_resp::encode_bulk;
use gimmal_store::types::Set;
use std::sync::Arc;

use super::read::Whole;

const NOT_POSITIVE: ReplyError = error("ERR value is out of range, must be positive");
/// Members of one record of the log: as many as Redis puts into one SREM.
const RECORD: usize = 1024;
/// Bytes of a reply's part that are copied rather than shared.
const COPIED: usize = 4096;

pub(super) fn sadd(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let limits = limits(exec);
    let alter = move |set: &mut Set, args: &Args<'_>, _| {
        set.expect(args.at(2), args.len() - 2, limits);
        args.rest(2).filter(|member| set.add(member, limits)).count()
    };
    offload::edit(exec, args, Command { key: 1, handler: sadd }, Missing::Create, args.len(), alter, added)
}

fn added(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, edited: Option<Edited<usize>>) -> Outcome {
    let count = edited.map_or(0, |edited| edited.result);
    if count > 0 {
        effect(exec, key.key(), count, [b"SADD", args.at(1)].into_iter().chain(args.rest(2)));
        exec.notify(notify::SET, "sadd", args.at(1));
    }
    exec.reply.put().count(count);
    Ok(())
}

pub(super) fn srem(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let alter = |set: &mut Set, args: &Args<'_>, _| args.rest(2).filter(|member| set.remove(member)).count();
    offload::edit(exec, args, Command { key: 1, handler: srem }, Missing::Leave, args.len(), alter, removed)
}

fn removed(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, edited: Option<Edited<usize>>) -> Outcome {
    let (removed, emptied) = edited.map_or((0, false), |edited| (edited.result, edited.emptied));
    if removed > 0 {
        effect(exec, key.key(), removed, [b"SREM", args.at(1)].into_iter().chain(args.rest(2)));
        exec.notify(notify::SET, "srem", args.at(1));
        if emptied {
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
    if count > 0 && count < len {
        return pop_some(exec, args, key, count);
    }
    exec.reply.put().set(count.min(len));
    match count {
        0 => Ok(()),
        _ if len == 0 => Ok(()),
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
fn pop_some(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, count: usize) -> Outcome {
    let random: Random = exec.local.random.split();
    let alter = move |set: &mut Set, _: &Args<'_>| -> Popped {
        let (mut random, mut popped) = (random, Popped::default());
        (0..count).for_each(|_| popped.add(&pop(set, random.next())));
        popped
    };
    if offload::is_due(exec, count)
        && let Some(set) = peek(exec, key.key())?.map(|set| set.to_owned())
    {
        drop(key);
        return offload::change(exec, args, Command { key: 1, handler: spop }, set, alter, popped_some);
    }
    let edited = exec.edit(key.key(), |set: &mut Set| alter(set, args))?;
    popped_some(exec, args, key, edited.map_or_else(Popped::default, |edited| edited.result))
}

fn popped_some(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, popped: Popped) -> Outcome {
    exec.reply.put().set(popped.count);
    popped.record(exec, key.key(), args.at(1));
    exec.notify(notify::SET, "spop", args.at(1));
    for part in popped.parts {
        match part.len() {
            0..COPIED => exec.reply.output().bytes_mut().extend_from_slice(&part),
            len => exec.reply.output().push_shared(part, 0..len),
        }
    }
    Ok(())
}

/// Members that were popped, as they are answered.
#[derive(Default)]
struct Popped {
    count: usize,
    /// Bulk strings, [`RECORD`] in all parts but the last.
    parts: Vec<Arc<Vec<u8>>>,
}

impl Popped {
    fn add(&mut self, member: &[u8]) {
        if self.count.is_multiple_of(RECORD) {
            self.parts.push(Arc::default());
        }
        self.count += 1;
        let part = self.parts.last_mut().and_then(Arc::get_mut).expect("a part that nobody shares");
        encode_bulk(part, member);
    }

    /// Records their removal.
    fn record(&self, exec: &mut Exec<'_>, mut key: Key<'_, '_>, name: &[u8]) {
        if !exec.local.log_active {
            exec.changed(self.count as u64);
            return exec.modified(&mut key);
        }
        for part in &self.parts {
            let members: Vec<&[u8]> = bulks(part).collect();
            let words = [b"SREM", name].into_iter().chain(members.iter().copied());
            effect(exec, key.again(), members.len(), words);
        }
    }
}

/// The strings of a part.
fn bulks(mut part: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = part.iter().position(|byte| *byte == b'\r')?;
        let len = parse_int(&part[1..end]).and_then(|len| usize::try_from(len).ok()).expect("a length was written");
        let (member, rest) = part[end + 2..].split_at(len);
        part = &rest[2..];
        Some(member)
    })
}

/// All members: the key goes, and its value becomes the reply.
fn pop_all(exec: &mut Exec<'_>, mut key: Locked<'_>, name: &[u8], len: usize) -> Outcome {
    let whole = peek(exec, key.key())?.map(|set| Whole(set.to_owned())).expect("it was just seen, under its lock");
    drop(exec.remove(key.key()));
    exec.effect(key.key(), &[removal(exec.local.config.lazyfree_lazy_server_del()), name]);
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
    exec.notify(notify::SET, "srem", source);
    if taken.is_some_and(|taken| taken.emptied) {
        exec.notify(notify::GENERIC, "del", source);
    }
    // What has the member already is not changed: who watches it need not know.
    if !there_already {
        exec.edit_or_create(keys.key(1), |set: &mut Set| {
            set.expect(member, 1, limits);
            set.add(member, limits)
        })?;
    }
    let changes = if there_already { 1 } else { 2 };
    exec.effect_many(&mut keys, changes, |record, db| {
        record.command(db, &[&b"SMOVE"[..], source, destination, member]);
    });
    if !there_already {
        exec.notify(notify::SET, "sadd", destination);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_popped_is_read_back() {
        let mut popped = Popped::default();
        let members: Vec<Vec<u8>> = (0..3000).map(|n| vec![b'\r'; n % 7]).collect();
        members.iter().for_each(|member| popped.add(member));
        assert_eq!((popped.count, popped.parts.len()), (3000, 3));
        let read: Vec<&[u8]> = popped.parts.iter().flat_map(|part| bulks(part)).collect();
        assert_eq!(read, members);
    }
}
