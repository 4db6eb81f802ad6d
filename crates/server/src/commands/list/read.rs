//! LLEN, LINDEX, LRANGE and LPOS.

use super::held::{Held, write};
use super::{COMPARED_AT_ONCE, End, index_of, list_of, range_of, symmetric};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::offload;
use crate::reply::Reply;
use crate::streamed::WRITTEN_AT_ONCE;
use gimmal_store::types::ListRef;

const ZERO_RANK: ReplyError = error(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the \
     end of the list",
);
const NEGATIVE_COUNT: ReplyError = error("ERR COUNT can't be negative");
const NEGATIVE_MAXLEN: ReplyError = error("ERR MAXLEN can't be negative");

pub(super) fn llen(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let len = match exec.read(locked.key()) {
        Some(entry) => list_of(&entry)?.len(),
        None => 0,
    };
    exec.reply.put().count(len);
    Ok(())
}

pub(super) fn lindex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let index = args.int(2);
    let mut locked = exec.lock(args.at(1))?;
    let Some(entry) = exec.read(locked.key()) else {
        exec.reply.put().null();
        return Ok(());
    };
    let list = list_of(&entry)?;
    // As in Redis, only where there is a list the index matters.
    match index_of(index?, list.len()).and_then(|index| list.nth(index)) {
        Some(element) => exec.reply.put().bulk(element),
        None => exec.reply.put().null(),
    }
    Ok(())
}

pub(super) fn lrange(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    let mut locked = exec.lock(args.at(1))?;
    let Some(entry) = exec.read(locked.key()) else {
        exec.reply.put().array(0);
        return Ok(());
    };
    let list = list_of(&entry)?;
    let range = range_of(start, stop, list.len());
    exec.reply.put().array(range.len());
    if range.len() <= WRITTEN_AT_ONCE {
        write(list, End::Head, range, &mut exec.reply);
        return Ok(());
    }
    let held = Held::new(list, End::Head);
    drop(locked);
    held.answer(exec, range)
}

/// What LPOS was asked beside its key and element.
#[derive(Debug, PartialEq, Eq)]
struct Search {
    /// The first match that is answered, counted from 1; negative from the end.
    rank: i64,
    /// Most matches, 0 for all; `None`: one, answered by itself.
    count: Option<usize>,
    /// Most elements compared, 0 for all.
    most_compared: usize,
}

impl Search {
    fn parse(args: &Args<'_>) -> Result<Search, ReplyError> {
        let mut search = Search { rank: 1, count: None, most_compared: 0 };
        let natural = |i| parse_int(args.at(i)).and_then(|n| usize::try_from(n).ok());
        let mut i = 3;
        while i < args.len() {
            if i + 1 == args.len() {
                return Err(SYNTAX);
            }
            if args.is(i, "rank") {
                search.rank = symmetric(args, i + 1)?;
                if search.rank == 0 {
                    return Err(ZERO_RANK);
                }
            } else if args.is(i, "count") {
                search.count = Some(natural(i + 1).ok_or(NEGATIVE_COUNT)?);
            } else if args.is(i, "maxlen") {
                search.most_compared = natural(i + 1).ok_or(NEGATIVE_MAXLEN)?;
            } else {
                return Err(SYNTAX);
            }
            i += 2;
        }
        Ok(search)
    }
}

pub(super) fn lpos(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let search = Search::parse(args)?;
    let mut locked = exec.lock(args.at(1))?;
    let list = exec.read(locked.key()).map(|entry| list_of(&entry)).transpose()?;
    if let Some(list) = list.filter(|list| offload::is_due(exec, list.len().min(search.compared()) / COMPARED_AT_ONCE))
    {
        let list = list.to_owned();
        drop(locked);
        return offload::write(exec, args, move |args, reply| search.answer(Some(list.view()), args.at(2), reply));
    }
    search.answer(list, args.at(2), &mut exec.reply);
    Ok(())
}

impl Search {
    /// Most elements that are compared.
    fn compared(&self) -> usize {
        if self.most_compared == 0 { usize::MAX } else { self.most_compared }
    }

    fn answer(&self, list: Option<ListRef<'_>>, element: &[u8], reply: &mut Reply<'_>) {
        let found = list.map_or_else(Vec::new, |list| self.find(list, element));
        let mut reply = reply.put();
        match (self.count, found.first()) {
            (Some(_), _) => {
                reply.array(found.len());
                found.iter().for_each(|index| reply.count(*index));
            }
            (None, Some(index)) => reply.count(*index),
            (None, None) => reply.null(),
        }
    }

    fn find(&self, list: ListRef<'_>, element: &[u8]) -> Vec<usize> {
        let skipped = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let wanted = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let (most, last) = (self.compared(), list.len() - 1);
        if self.rank > 0 {
            let equal = list.iter().take(most).enumerate().filter(|(_, other)| *other == element);
            equal.skip(skipped).take(wanted).map(|(index, _)| index).collect()
        } else {
            let equal = list.rev_from(last).take(most).enumerate().filter(|(_, other)| *other == element);
            equal.skip(skipped).take(wanted).map(|(distance, _)| last - distance).collect()
        }
    }
}
