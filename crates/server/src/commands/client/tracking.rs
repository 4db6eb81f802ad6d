//! CLIENT TRACKING and its kin: who keeps copies of keys and is told when they change. How they are told: `crate::tracking`.

use super::NOT_IN_TRANSACTION;
use crate::args::Args;
use crate::command::gate;
use crate::dispatch::{SYNTAX, echoed};
use crate::exec::{Continuation, Exec, Outcome, ReplyError, Stop, error};
use crate::gather::{Gather, Question};
use crate::tracking::{Inbox, Options, Tracker};
use crate::worker::State;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const NO_SUCH_CLIENT: ReplyError = error("ERR The client ID you want redirect to does not exist");
/// How often a client that is just moving to another worker is looked for.
const LOOKS: usize = 64;

/// What CLIENT TRACKING ON asks for.
#[derive(Debug, Clone, Default)]
struct Wanted {
    redirect: u64,
    bcast: bool,
    optin: bool,
    optout: bool,
    noloop: bool,
    prefixes: Vec<Box<[u8]>>,
}

/// The search for the client that is to be told.
#[derive(Debug)]
pub struct Redirection {
    wanted: Wanted,
    found: Mutex<Option<Arc<Inbox>>>,
    /// Searches before this one.
    looks: usize,
}

pub fn tracking(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let wanted = parse(args)?;
    if args.is(2, "off") {
        exec.stop_tracking();
        exec.reply.put().ok();
        return Ok(());
    }
    if !args.is(2, "on") {
        return Err(SYNTAX.into());
    }
    check(exec.tracks(), &wanted)?;
    if wanted.redirect == 0 {
        return enable(exec, &wanted, None);
    }
    if wanted.redirect == exec.session.id {
        let inbox = inbox(exec);
        return enable(exec, &wanted, Some(inbox));
    }
    if exec.in_transaction() {
        return Err(NOT_IN_TRANSACTION.into());
    }
    let redirection = Redirection { wanted, found: Mutex::default(), looks: 0 };
    Gather::ask(Question::Redirect(Arc::new(redirection)), exec);
    Err(Stop::Wait)
}

fn parse(args: &Args<'_>) -> Result<Wanted, ReplyError> {
    let mut wanted = Wanted::default();
    let mut i = 3;
    while i < args.len() {
        let more = i + 1 < args.len();
        if args.is(i, "redirect") && more {
            if wanted.redirect != 0 {
                return Err("ERR A client can only redirect to a single other client".into());
            }
            i += 1;
            let id = args.int(i)?;
            // There is no client 0, nor one with a negative number.
            wanted.redirect = u64::try_from(id).ok().filter(|id| *id > 0).ok_or(NO_SUCH_CLIENT)?;
        } else if args.is(i, "bcast") {
            wanted.bcast = true;
        } else if args.is(i, "optin") {
            wanted.optin = true;
        } else if args.is(i, "optout") {
            wanted.optout = true;
        } else if args.is(i, "noloop") {
            wanted.noloop = true;
        } else if args.is(i, "prefix") && more {
            i += 1;
            wanted.prefixes.push(args.at(i).into());
        } else {
            return Err(SYNTAX);
        }
        i += 1;
    }
    Ok(wanted)
}

/// Whether the options fit each other and how the session tracks already.
fn check(now: Option<&mut Options>, wanted: &Wanted) -> Result<(), ReplyError> {
    const ANOTHER_MODE: &str =
        "before disabling tracking for this client, and then re-enabling it with a different mode.";
    if !wanted.bcast && !wanted.prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    if now.as_ref().is_some_and(|now| now.tracker.bcast != wanted.bcast) {
        return Err(format!("ERR You can't switch BCAST mode on/off {ANOTHER_MODE}").into());
    }
    if wanted.bcast && (wanted.optin || wanted.optout) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if wanted.optin && wanted.optout {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    if now.as_ref().is_some_and(|now| wanted.optin && now.optout || wanted.optout && now.optin) {
        return Err(format!("ERR You can't switch OPTIN/OPTOUT mode {ANOTHER_MODE}").into());
    }
    let there = now.map(|now| &now.prefixes);
    for (i, prefix) in wanted.prefixes.iter().enumerate() {
        let overlaps = |other: &[u8]| prefix.starts_with(other) || other.starts_with(prefix);
        let existing = there.and_then(|there| there.iter().find(|other| overlaps(other)));
        let provided = wanted.prefixes[i + 1..].iter().find(|other| overlaps(other));
        let (other, kind) = match (existing, provided) {
            (Some(other), _) => (other, "an existing prefix"),
            (_, Some(other)) => (other, "another provided prefix"),
            _ => continue,
        };
        let text = format!(
            "ERR Prefix '{}' overlaps with {kind} '{}'. Prefixes for a single client must not overlap.",
            echoed(prefix),
            echoed(other)
        );
        return Err(text.into());
    }
    Ok(())
}

/// The session's own connection as a place where others are told.
fn inbox(exec: &mut Exec<'_>) -> Arc<Inbox> {
    let (id, worker, conn) = (exec.session.id, worker(exec.local.id), exec.local.conn);
    let tracking = exec.session.tracking.get_or_insert_default();
    tracking.inbox.get_or_insert_with(|| Arc::new(Inbox::new(id, worker, conn))).clone()
}

fn worker(id: usize) -> u16 {
    u16::try_from(id).expect("at most 1024 workers")
}

fn enable(exec: &mut Exec<'_>, wanted: &Wanted, inbox: Option<Arc<Inbox>>) -> Outcome {
    // No other worker is in a batch that began without this tracker.
    let closed = exec.exclusive()?;
    let trackers = &exec.shared.trackers;
    let (id, worker, conn) = (exec.session.id, worker(exec.local.id), exec.local.conn);
    let options = exec.session.tracking.get_or_insert_default().on.get_or_insert_with(|| {
        let tracker = Arc::new(Tracker::new(id, worker, conn, wanted.bcast));
        trackers.add(&tracker);
        Options { tracker, optin: false, optout: false, caching: false, prefixes: BTreeSet::new() }
    });
    options.tracker.set(inbox, wanted.noloop);
    (options.optin, options.optout) = (wanted.optin, wanted.optout);
    let every: [Box<[u8]>; 1] = [Box::default()];
    let prefixes = match wanted.prefixes.as_slice() {
        [] if wanted.bcast => &every,
        given => given,
    };
    for prefix in prefixes {
        if options.prefixes.insert(prefix.clone()) {
            trackers.add_prefix(prefix, &options.tracker);
        }
    }
    if !wanted.bcast {
        exec.session.gates |= gate::CACHING;
    }
    drop(closed);
    exec.reply.put().ok();
    Ok(())
}

/// This worker's part of the search; who is told does not move from now on.
pub fn answer(state: &mut State, redirection: &Redirection) -> Vec<(u64, String)> {
    let wanted = redirection.wanted.redirect;
    let found = state.connections.iter().find(|(_, c)| c.session.id == wanted && c.is_open());
    let Some((conn, _)) = found else { return Vec::new() };
    let me = worker(state.local.id);
    let c = state.connections.find(conn).expect("it was just found");
    if !c.is_moving() {
        let tracking = c.session.tracking.get_or_insert_default();
        let inbox = tracking.inbox.get_or_insert_with(|| Arc::new(Inbox::new(wanted, me, conn)));
        *redirection.found.lock().expect("no search panics") = Some(inbox.clone());
    }
    vec![(wanted, String::new())]
}

/// All workers have searched: the asking session goes on. A client on its way from one worker to another may have been missed by
/// both, so that one who is not found is looked for once more.
pub fn answered(state: &mut State, gather: &Gather, redirection: &Redirection) {
    let seen = !gather.take().is_empty();
    let found = redirection.found.lock().expect("no search panics").clone();
    let (wanted, looks) = (redirection.wanted.clone(), redirection.looks + 1);
    let again = found.is_none() && looks < if seen { LOOKS } else { 2 };
    if again {
        let next = Redirection { wanted, found: Mutex::default(), looks };
        return gather.ask_again(Question::Redirect(Arc::new(next)), &state.shared.mail);
    }
    state.take_up(gather.conn, Box::new(Found { wanted, inbox: found }));
}

/// The end of a search.
struct Found {
    wanted: Wanted,
    inbox: Option<Arc<Inbox>>,
}

impl Continuation for Found {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let inbox = self.inbox.clone().ok_or(NO_SUCH_CLIENT)?;
        enable(exec, &self.wanted, Some(inbox))?;
        Ok(true)
    }
}

pub fn caching(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    const NOT_TRACKING: &str =
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
    let options = exec.tracks().ok_or(NOT_TRACKING)?;
    if args.is(2, "yes") {
        if !options.optin {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into());
        }
    } else if args.is(2, "no") {
        if !options.optout {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into());
        }
    } else {
        return Err(SYNTAX.into());
    }
    options.caching = true;
    exec.reply.put().ok();
    Ok(())
}

pub fn getredir(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let id = exec.tracks().map_or(-1, |options| options.tracker.redirect_id().cast_signed());
    exec.reply.put().integer(id);
    Ok(())
}

pub fn trackinginfo(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let session = &*exec.session;
    let options = session.tracking.as_ref().and_then(|tracking| tracking.on.as_ref());
    let mut flags = vec![if options.is_some() { "on" } else { "off" }];
    if let Some(options) = options {
        let given = [
            (options.tracker.bcast, "bcast"),
            (options.optin, "optin"),
            (options.optin && options.caching, "caching-yes"),
            (options.optout, "optout"),
            (options.optout && options.caching, "caching-no"),
            (options.tracker.is_noloop(), "noloop"),
            (options.tracker.is_broken(), "broken_redirect"),
        ];
        flags.extend(given.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag));
    }
    let mut reply = exec.reply.put();
    reply.map(3);
    reply.bulk_str("flags");
    reply.set(flags.len());
    flags.into_iter().for_each(|flag| reply.bulk_str(flag));
    reply.bulk_str("redirect");
    reply.integer(options.map_or(-1, |options| options.tracker.redirect_id().cast_signed()));
    reply.bulk_str("prefixes");
    reply.array(options.map_or(0, |options| options.prefixes.len()));
    options.iter().flat_map(|options| &options.prefixes).for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_io::ConnId;

    fn wanted(prefixes: &[&str]) -> Wanted {
        let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect();
        Wanted { bcast: true, prefixes, ..Wanted::default() }
    }

    #[test]
    fn prefixes_of_one_client_do_not_overlap() {
        assert!(check(None, &wanted(&["a", "b", "cd"])).is_ok());
        for (given, kind) in [(["ab", "a"], "another"), (["a", "ab"], "another"), (["", "x"], "another")] {
            let text = check(None, &wanted(&given)).expect_err("they overlap");
            assert!(text.contains(kind), "{text}");
        }
        let tracker = Arc::new(Tracker::new(1, 0, ConnId { index: 0, generation: 0 }, true));
        let prefixes = BTreeSet::from([b"foo".as_slice().into()]);
        let mut now = Options { tracker, optin: false, optout: false, caching: false, prefixes };
        let text = check(Some(&mut now), &wanted(&["bar", "foobar"])).expect_err("they overlap");
        assert!(text.starts_with("ERR Prefix 'foobar' overlaps with an existing prefix 'foo'."), "{text}");
        assert!(check(Some(&mut now), &wanted(&["bar"])).is_ok());
    }
}
