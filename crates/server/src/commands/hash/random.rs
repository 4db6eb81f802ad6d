//! HRANDFIELD.

use super::read;
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::reply::Reply;
use crate::sample::{self, Count, Ranked};
use gimmal_store::types::{Field, Fields};

const OUT_OF_RANGE: ReplyError = error("ERR value is out of range");

pub(super) fn hrandfield(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() == 2 {
        return one(exec, args);
    }
    let count = Count::parse(args, 2)?;
    let with_values = match args.len() {
        3 => false,
        4 if args.is(3, "withvalues") => true,
        _ => return Err(SYNTAX.into()),
    };
    if with_values && count.magnitude() > usize::MAX / 4 {
        return Err(OUT_OF_RANGE.into());
    }
    let mut key = exec.lock(args.at(1))?;
    let now_ms = exec.now_ms();
    let Some(fields) = read(exec, key.key())? else {
        exec.reply.put().array(0);
        return Ok(());
    };
    let live = fields.live_len(now_ms);
    let answered = count.of(live);
    exec.reply.put().array(if with_values && !exec.session.resp3 { 2 * answered } else { answered });
    let source = Sampled { fields: fields.to_owned(), now_ms, with_values };
    drop(key);
    sample::write(exec, count, live, source)
}

/// One field, without an array around it.
fn one(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let now_ms = exec.now_ms();
    match read(exec, key.key())?.filter(|fields| fields.live_len(now_ms) > 0) {
        Some(fields) => {
            let source = Sampled { fields: fields.to_owned(), now_ms, with_values: false };
            let rank = sample::draw(&source, &mut exec.local.random);
            source.write(rank, &mut exec.reply);
        }
        None => exec.reply.put().null(),
    }
    Ok(())
}

/// A hash as it was at a time.
struct Sampled {
    fields: Fields,
    now_ms: i64,
    with_values: bool,
}

impl Sampled {
    fn field(&self, rank: usize) -> Field<'_> {
        self.fields.view().nth(rank).expect("the rank is below the length")
    }
}

impl Ranked for Sampled {
    fn ranks(&self) -> usize {
        self.fields.view().len()
    }

    fn is_there(&self, rank: usize) -> bool {
        self.field(rank).is_live(self.now_ms)
    }

    fn write(&self, rank: usize, reply: &mut Reply<'_>) {
        let field = self.field(rank);
        if self.with_values && reply.put().is_proto3() {
            reply.put().array(2);
        }
        reply.put().bulk(field.name);
        if self.with_values {
            reply.put().bulk(field.value);
        }
    }
}
