//! XDELEX and XACKDEL: removing entries with an eye to the groups that have them pending.

use super::{add, id};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, Outcome, ReplyError, error};
use crate::notify;
use gimmal_store::types::{References, Stream, StreamId};

/// What comes of one id.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Released {
    Missing = -1,
    Deleted = 1,
    /// Other groups have it pending, or have yet to read it.
    Referenced = 2,
}

/// What is asked.
struct Options {
    references: References,
    ids: Vec<StreamId>,
}

fn options(args: &Args<'_>, from: usize) -> Result<Options, ReplyError> {
    let (mut references, mut ids, mut at) = (None, None, from);
    while at < args.len() {
        let left = args.len() - 1 - at;
        if let (Some(given), None) = (add::references(args, at), references) {
            references = Some(given);
        } else if args.is(at, "IDS") && left > 0 {
            let count =
                parse_int(args.at(at + 1)).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
            let count = count.ok_or(error("ERR Number of IDs must be a positive integer"))?;
            if count > left - 1 {
                return Err("ERR The `numids` parameter must match the number of arguments".into());
            }
            ids = Some(at + 2..at + 2 + count);
            at += 1 + count;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    let ids = ids.ok_or(SYNTAX)?;
    let ids = ids.map(|at| id::strict(args.at(at), 0)).collect::<Result<_, _>>()?;
    Ok(Options { references: references.unwrap_or_default(), ids })
}

pub(super) fn xdelex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let Options { references, ids } = options(args, 2)?;
    let mut key = exec.lock(args.at(1))?;
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| {
        let release = |id: &StreamId| match stream.delete_referenced(*id, references) {
            None => Released::Missing,
            Some(false) => Released::Referenced,
            Some(true) => Released::Deleted,
        };
        ids.iter().map(release).collect::<Vec<_>>()
    })?;
    let released = edited.map_or_else(|| vec![Released::Missing; ids.len()], |edited| edited.result);
    let deleted = released.iter().filter(|one| **one == Released::Deleted).count();
    if deleted > 0 {
        log(exec, key.key(), args, deleted);
        exec.notify(notify::STREAM, "xdel", args.at(1));
    }
    answer(exec, &released);
    Ok(())
}

pub(super) fn xackdel(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let Options { references, ids } = options(args, 3)?;
    let mut key = exec.lock(args.at(1))?;
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| {
        let mut deleted = false;
        let release = |id: &StreamId| {
            if stream.edit_group(args.at(2), |group| group.acknowledge(*id)) != Some(true) {
                return Released::Missing;
            }
            match stream.delete_referenced(*id, references) {
                Some(false) => Released::Referenced,
                Some(true) => {
                    deleted = true;
                    Released::Deleted
                }
                None => {
                    // The entry is gone already; what is left of it goes as well.
                    if references == References::Delete {
                        stream.forget_pending(*id);
                    }
                    Released::Deleted
                }
            }
        };
        (ids.iter().map(release).collect::<Vec<_>>(), deleted)
    })?;
    let missing = || (vec![Released::Missing; ids.len()], false);
    let (released, deleted) = edited.map_or_else(missing, |edited| edited.result);
    let acknowledged = released.iter().filter(|one| **one != Released::Missing).count();
    if acknowledged > 0 {
        log(exec, key.key(), args, acknowledged);
    }
    if deleted {
        exec.notify(notify::STREAM, "xdel", args.at(1));
    }
    answer(exec, &released);
    Ok(())
}

fn log(exec: &mut Exec<'_>, key: Key<'_, '_>, args: &Args<'_>, changes: usize) {
    let words: Vec<&[u8]> = args.rest(0).collect();
    exec.effect(key, &words);
    exec.changed(changes as u64 - 1);
}

fn answer(exec: &mut Exec<'_>, released: &[Released]) {
    let mut writer = exec.reply.put();
    writer.array(released.len());
    released.iter().for_each(|one| writer.integer(*one as i64));
}
