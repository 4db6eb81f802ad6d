//! ZPOPMIN, ZPOPMAX and ZMPOP.

use super::read::put_header;
use super::{Whole, sorted_set_of};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, Locked, Outcome, ReplyError, Stop, error};
use crate::notify;
use crate::offload;
use crate::streamed;
use gimmal_store::types::{self, Scored, SortedSet, Type};

/// Which members go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Those of the lowest scores.
    Min,
    /// Those of the highest.
    Max,
}

impl End {
    /// The end that argument `i` names.
    ///
    /// # Errors
    /// If it is none, or there is no such argument.
    pub fn parse(args: &Args<'_>, i: usize) -> Result<End, ReplyError> {
        match i < args.len() {
            true if args.is(i, "min") => Ok(End::Min),
            true if args.is(i, "max") => Ok(End::Max),
            _ => Err(SYNTAX),
        }
    }
}

/// Members that were taken out, in the order in which they went.
pub type Popped = Vec<(Vec<u8>, f64)>;

/// Takes up to `count` members out of the set at a locked key, which goes with the last of them; records and tells of it as ZPOPMIN
/// or ZPOPMAX, which are told the number if `counted`. Nothing if there is no such key.
///
/// # Errors
/// WRONGTYPE, and no change, if it holds a value of another type.
pub fn pop(exec: &mut Exec<'_>, mut key: Key<'_, '_>, end: End, count: usize, counted: bool) -> Result<Popped, Stop> {
    exec.give_way(&mut key, Type::SortedSet)?;
    take(exec, key, end, count, counted)
}

/// As [`pop`], for who has given way to those that wait.
fn take(exec: &mut Exec<'_>, mut key: Key<'_, '_>, end: End, count: usize, counted: bool) -> Result<Popped, Stop> {
    let edited = exec.edit(key.again(), |set: &mut SortedSet| {
        let len = set.view().len();
        let ranks = match end {
            End::Min => 0..count.min(len),
            End::Max => len - count.min(len)..len,
        };
        let owned = |Scored { member, score }: Scored<'_>| (member.to_vec(), score);
        let popped: Popped = set.view().range(ranks.clone(), end == End::Max).map(owned).collect();
        let whole = popped.len() == len;
        // A set that goes altogether is left to be freed elsewhere.
        if !whole {
            set.remove_ranks(ranks);
        }
        (popped, whole)
    })?;
    let Some(edited) = edited else { return Ok(Popped::new()) };
    let (popped, whole) = edited.result;
    if whole {
        drop(exec.remove(key.again()));
    }
    if !popped.is_empty() {
        tell(exec, key, end, popped.len(), counted, whole);
    }
    Ok(popped)
}

/// So many members were popped, the last one too if `whole`: records and tells of it as ZPOPMIN or ZPOPMAX.
fn tell(exec: &mut Exec<'_>, key: Key<'_, '_>, end: End, popped: usize, counted: bool, whole: bool) {
    let name = key.name();
    let (command, event): (&[u8], _) = match end {
        End::Min => (b"ZPOPMIN", "zpopmin"),
        End::Max => (b"ZPOPMAX", "zpopmax"),
    };
    match counted {
        false => exec.effect(key, &[command, name]),
        true => exec.effect(key, &[command, name, itoa::Buffer::new().format(popped).as_bytes()]),
    }
    exec.changed(popped as u64 - 1);
    exec.notify(notify::ZSET, event, name);
    if whole {
        exec.notify(notify::GENERIC, "del", name);
    }
}

pub(super) fn zpopmin(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_of_one(exec, args, End::Min)
}

pub(super) fn zpopmax(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    pop_of_one(exec, args, End::Max)
}

fn pop_of_one(exec: &mut Exec<'_>, args: &Args<'_>, end: End) -> Outcome {
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let counted = args.len() == 3;
    let count = if counted { count(args, 2, 0, "ERR value is out of range, must be positive")? } else { 1 };
    let mut locked = exec.lock(args.at(1))?;
    exec.give_way(&mut locked.key(), Type::SortedSet)?;
    if count > offload::MANY
        && let Some(set) = exec.peek(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()?
        && set.len() > offload::MANY
    {
        let set = set.to_owned();
        return pop_many(exec, args, locked, end, set, count);
    }
    if !counted {
        return pop_first(exec, locked, end);
    }
    let popped = take(exec, locked.key(), end, count, true)?;
    let mut reply = exec.reply.put();
    let nested = reply.is_proto3();
    reply.array(if nested { popped.len() } else { popped.len() * 2 });
    for (member, score) in &popped {
        if nested {
            reply.array(2);
        }
        reply.bulk(member);
        reply.double(*score);
    }
    Ok(())
}

/// Pops and answers one member, if there is one.
fn pop_first(exec: &mut Exec<'_>, mut locked: Locked<'_>, end: End) -> Outcome {
    let at = if end == End::Min { types::End::Head } else { types::End::Tail };
    let popped = exec.edit_and_answer(locked.key(), |set: &mut SortedSet, reply| {
        set.pop(at, |Scored { member, score }| {
            let mut reply = reply.put();
            reply.array(2);
            reply.bulk(member);
            reply.double(score);
        });
    })?;
    match popped {
        Some(popped) => tell(exec, locked.key(), end, 1, false, popped.emptied),
        None => exec.reply.put().array(0),
    }
    Ok(())
}

/// Pops many members: they are answered from the set as it was, and removed by a thread, or with the key.
fn pop_many(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut locked: Locked<'_>,
    end: End,
    set: SortedSet,
    count: usize,
) -> Outcome {
    let len = set.view().len();
    let count = count.min(len);
    let ranks = match end {
        End::Min => 0..count,
        End::Max => len - count..len,
    };
    let popped = Whole::new(set.view(), ranks.clone(), end == End::Max, true);
    if count == len {
        drop(exec.remove(locked.key()));
        return popped_many(exec, locked, end, popped, true);
    }
    let alter = move |set: &mut SortedSet, _: &Args<'_>| set.remove_ranks(ranks);
    if !offload::is_possible(exec) {
        exec.edit(locked.key(), |set: &mut SortedSet| alter(set, args))?;
        return popped_many(exec, locked, end, popped, false);
    }
    drop(locked);
    let handler: offload::Handler = if end == End::Min { zpopmin } else { zpopmax };
    offload::change(exec, args, offload::Command { key: 1, handler }, set, alter, move |exec, _, locked, ()| {
        popped_many(exec, locked, end, popped, false)
    })
}

fn popped_many(exec: &mut Exec<'_>, mut locked: Locked<'_>, end: End, popped: Whole, whole: bool) -> Outcome {
    tell(exec, locked.key(), end, popped.len(), true, whole);
    drop(locked);
    put_header(&mut exec.reply, popped.len(), true);
    streamed::elements(exec, 0..popped.len(), popped)
}

/// What ZMPOP and BZMPOP are told behind the number of keys.
#[derive(Clone, Copy, Debug)]
pub struct MultiPop {
    /// Number of keys.
    pub keys: usize,
    /// Where to pop.
    pub end: End,
    /// How many members.
    pub count: usize,
}

impl MultiPop {
    /// The options; the number of keys is argument `at`, the keys follow it.
    ///
    /// # Errors
    /// As Redis words them.
    pub fn parse(args: &Args<'_>, at: usize) -> Result<MultiPop, ReplyError> {
        let keys = count(args, at, 1, "ERR numkeys should be greater than 0")?;
        let mut i = at.saturating_add(keys).saturating_add(1);
        let end = End::parse(args, i)?;
        let mut wanted = None;
        while i + 1 < args.len() {
            if wanted.is_some() || !args.is(i + 1, "count") || i + 2 >= args.len() {
                return Err(SYNTAX);
            }
            wanted = Some(count(args, i + 2, 1, "ERR count should be greater than 0")?);
            i += 2;
        }
        Ok(MultiPop { keys, end, count: wanted.unwrap_or(1) })
    }
}

fn count(args: &Args<'_>, i: usize, least: i64, otherwise: &'static str) -> Result<usize, ReplyError> {
    let count = parse_int(args.at(i)).filter(|count| *count >= least).ok_or(error(otherwise))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

pub(super) fn zmpop(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = MultiPop::parse(args, 1)?;
    let names: Vec<&[u8]> = args.rest(2).take(options.keys).collect();
    let mut keys = exec.lock_all(names.iter().copied())?;
    for (i, name) in names.iter().enumerate() {
        let Some(entry) = exec.peek(keys.key(i)) else { continue };
        sorted_set_of(&entry)?;
        let popped = pop(exec, keys.key(i), options.end, options.count, true)?;
        answer(exec, name, &popped);
        return Ok(());
    }
    exec.reply.put().null_array();
    Ok(())
}

/// The reply of ZMPOP and BZMPOP: the key, and its members.
pub fn answer(exec: &mut Exec<'_>, name: &[u8], popped: &Popped) {
    let mut reply = exec.reply.put();
    reply.array(2);
    reply.bulk(name);
    reply.array(popped.len());
    for (member, score) in popped {
        reply.array(2);
        reply.bulk(member);
        reply.double(*score);
    }
}
