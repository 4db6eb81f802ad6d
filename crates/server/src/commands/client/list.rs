//! CLIENT LIST and CLIENT INFO.

use super::{Buffers, NOT_IN_TRANSACTION, class, line};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, Stop};
use crate::gather::{ClientFilter, Gather, Question};
use crate::reply::Reply;
use crate::worker::State;

pub fn info(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let output = exec.reply.output();
    let buffers = Buffers { replies: output.len(), reply_room: output.head_capacity(), ..Buffers::default() };
    let mut text = line(exec.shared, exec.local.conn, exec.session, buffers, exec.now_ms());
    text.push('\n');
    exec.reply.put().verbatim(b"txt", text.as_bytes());
    Ok(())
}

pub fn list(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let filter = parse(args)?;
    if exec.in_transaction() {
        return Err(NOT_IN_TRANSACTION.into());
    }
    Gather::ask(Question::List(filter), exec);
    Err(Stop::Wait)
}

fn parse(args: &Args<'_>) -> Result<ClientFilter, ReplyError> {
    let mut filter = ClientFilter::default();
    match args.len() {
        2 => {}
        4 if args.is(2, "type") => filter.class = Some(class(args, 3)?),
        4.. if args.is(2, "id") => {
            for i in 3..args.len() {
                let id = args.int(i).map_err(|_| "ERR Invalid client ID")?;
                // Ids begin at 1: a negative one is nobody's, as 0 is.
                filter.ids.push(u64::try_from(id).unwrap_or(0));
            }
        }
        _ => return Err(SYNTAX),
    }
    Ok(filter)
}

/// The lines of this worker's connections that fit.
pub fn answer(state: &State, filter: &ClientFilter) -> Vec<(u64, String)> {
    let now_ms = state.local.now_ms;
    let fits = state.connections.iter().filter(|(_, c)| c.is_listed() && filter.fits(&c.session, now_ms));
    fits.map(|(conn, c)| (c.session.id, super::describe(&state.shared, conn, c, now_ms))).collect()
}

/// Joins the lines: by id, or in the order in which ids were asked for.
pub fn answered(state: &mut State, gather: &Gather, filter: &ClientFilter) {
    let lines = gather.take();
    let mut text = String::new();
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    if filter.ids.is_empty() {
        lines.iter().for_each(|(_, line)| add(line));
    }
    for id in &filter.ids {
        if let Ok(at) = lines.binary_search_by_key(id, |(id, _)| *id) {
            add(&lines[at].1);
        }
    }
    state.reply_later(gather.conn, |c, _| {
        if !gather.silent {
            Reply::new(&mut c.output, c.session.resp3).put().verbatim(b"txt", text.as_bytes());
        }
    });
}
