//! CLIENT KILL, in its old form (an address) and its new one (filters).

use super::{NOT_IN_TRANSACTION, class};
use crate::args::Args;
use crate::dispatch::{SYNTAX, echoed};
use crate::exec::{Exec, Outcome, ReplyError, Stop};
use crate::gather::{ClientFilter, Gather, Question};
use crate::reply::Reply;
use crate::worker::State;

pub fn kill(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let old_form = args.len() == 3;
    let filter = match old_form {
        true => ClientFilter { address: Some(text(args, 2)), ..ClientFilter::default() },
        false => parse(args, exec.session.id)?,
    };
    if exec.in_transaction() {
        return Err(NOT_IN_TRANSACTION.into());
    }
    Gather::ask(Question::Kill(filter, old_form), exec);
    Err(Stop::Wait)
}

fn text(args: &Args<'_>, i: usize) -> String {
    String::from_utf8_lossy(args.at(i)).into_owned()
}

fn parse(args: &Args<'_>, me: u64) -> Result<ClientFilter, ReplyError> {
    let mut filter = ClientFilter { skip: Some(me), ..ClientFilter::default() };
    for i in (2..args.len()).step_by(2) {
        let value = i + 1;
        if value == args.len() {
            return Err(SYNTAX);
        }
        if args.is(i, "id") {
            let id = args.int(value).ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
            filter.ids = vec![id.ok_or("ERR client-id should be greater than 0")?];
        } else if args.is(i, "maxage") {
            let age = args.int(value).map_err(|_| "ERR maxage is not an integer or out of range")?;
            if age <= 0 {
                return Err("ERR maxage should be greater than 0".into());
            }
            filter.max_age_s = Some(age);
        } else if args.is(i, "type") {
            filter.class = Some(class(args, value)?);
        } else if args.is(i, "addr") {
            filter.address = Some(text(args, value));
        } else if args.is(i, "laddr") {
            filter.local_address = Some(text(args, value));
        } else if args.is(i, "user") {
            if args.at(value) != b"default" {
                return Err(format!("ERR No such user '{}'", echoed(args.at(value))).into());
            }
            filter.user = Some(text(args, value));
        } else if args.is(i, "skipme") && args.is(value, "yes") {
            filter.skip = Some(me);
        } else if args.is(i, "skipme") && args.is(value, "no") {
            filter.skip = None;
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(filter)
}

/// Closes this worker's connections that fit. The asker itself is counted, and closed when it has its reply.
pub fn answer(state: &mut State, filter: &ClientFilter, asker: u64) -> Vec<(u64, String)> {
    let now_ms = state.local.now_ms;
    let fits = state.connections.iter().filter(|(_, c)| c.is_open() && filter.fits(&c.session, now_ms));
    let found: Vec<_> = fits.map(|(conn, c)| (conn, c.session.id)).collect();
    for (conn, id) in &found {
        if *id != asker {
            state.close(*conn);
        }
    }
    found.into_iter().map(|(_, id)| (id, String::new())).collect()
}

/// Tells how many were closed.
pub fn answered(state: &mut State, gather: &Gather, old_form: bool) {
    let killed = gather.take();
    let failed = old_form && killed.is_empty();
    if failed {
        state.local.stats.errors.add(1);
        state.shared.count_error("ERR");
    }
    state.reply_later(gather.conn, |c, _| {
        c.session.close_after_reply |= killed.iter().any(|(id, _)| *id == gather.client);
        if gather.silent {
            return;
        }
        let mut reply = Reply::new(&mut c.output, c.session.resp3);
        match old_form {
            true if failed => reply.put().error("ERR No such client"),
            true => reply.put().ok(),
            false => reply.put().count(killed.len()),
        }
    });
}
