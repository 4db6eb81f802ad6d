//! Reading sets: members, samples, walks.

use super::read;
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome};
use crate::offload;
use crate::reply::Reply;
use crate::sample::{self, Count, Ranked};
use crate::scan::{self, Options};
use crate::streamed::{self, Elements};
use gimmal_resp::encode_bulk;
use gimmal_store::types::{Form, Set, SetRef};
use std::ops::Range;

pub(super) fn sismember(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let has = read(exec, key.key())?.is_some_and(|set| set.contains(args.at(2)));
    exec.reply.put().integer(i64::from(has));
    Ok(())
}

pub(super) fn smismember(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let set = read(exec, key.key())?;
    if offload::is_due(exec, args.len()) {
        let set = set.map(|set| set.to_owned());
        drop(key);
        return offload::write(exec, args, move |args, reply| contained(set.as_ref().map(Set::view), args, reply));
    }
    contained(set, args, &mut exec.reply);
    Ok(())
}

/// Which of the arguments are members.
fn contained(set: Option<SetRef<'_>>, args: &Args<'_>, reply: &mut Reply<'_>) {
    let mut reply = reply.put();
    reply.array(args.len() - 2);
    args.rest(2).for_each(|member| reply.integer(i64::from(set.is_some_and(|set| set.contains(member)))));
}

pub(super) fn scard(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let len = read(exec, key.key())?.map_or(0, |set| set.len());
    exec.reply.put().count(len);
    Ok(())
}

pub(super) fn smembers(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let Some(set) = read(exec, key.key())? else {
        exec.reply.put().set(0);
        return Ok(());
    };
    exec.reply.put().set(set.len());
    if set.len() <= streamed::WRITTEN_AT_ONCE {
        set.iter().for_each(|member| exec.reply.put().bulk(member));
        return Ok(());
    }
    let (ranks, whole) = (0..set.len(), Whole(set.to_owned()));
    drop(key);
    streamed::elements(exec, ranks, whole)
}

pub(super) fn srandmember(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => None,
        3 => Some(Count::parse(args, 2)?),
        _ => return Err(SYNTAX.into()),
    };
    let mut key = exec.lock(args.at(1))?;
    let set = read(exec, key.key())?;
    let Some(count) = count else {
        match set {
            Some(set) => {
                let rank = sample::below(exec.local.random.next(), set.len());
                exec.reply.put().bulk(set.nth(rank).expect("the rank is below the length"));
            }
            None => exec.reply.put().null(),
        }
        return Ok(());
    };
    let len = set.map_or(0, |set| set.len());
    exec.reply.put().array(count.of(len));
    let Some(whole) = set.map(|set| Whole(set.to_owned())) else { return Ok(()) };
    drop(key);
    sample::write(exec, count, len, whole)
}

/// The members of a set at one moment.
pub(super) struct Whole(pub(super) Set);

impl Elements for Whole {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        self.0.view().iter_from(ranks.start).take(ranks.len()).for_each(|member| reply.put().bulk(member));
    }
}

impl Ranked for Whole {
    fn ranks(&self) -> usize {
        self.0.view().len()
    }

    fn write(&self, rank: usize, reply: &mut Reply<'_>) {
        reply.put().bulk(self.0.view().nth(rank).expect("the rank is below the length"));
    }
}

pub(super) fn sscan(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let cursor = scan::cursor(args.at(2))?;
    let options = Options::parse(args, 3, None);
    let mut key = exec.lock(args.at(1))?;
    let Some(set) = read(exec, key.key())? else {
        scan::answer(exec, 0, 0, &[]);
        return Ok(());
    };
    let options = options?;
    let (mut found, mut items) = (0, Vec::new());
    let count = scan::count(&options, set.form() != Form::Large, set.len());
    let next = set.scan(cursor, count, |member| {
        if options.fits(member) {
            found += 1;
            encode_bulk(&mut items, member);
        }
    });
    scan::answer(exec, next, found, &items);
    Ok(())
}
