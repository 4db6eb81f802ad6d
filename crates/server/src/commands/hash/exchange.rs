//! Fields that are read and changed, or written under conditions, with their deadlines: HGETEX, HGETDEL and HSETEX.

use super::expire::{deadline, fields_after_word};
use super::read::each;
use super::{NUMFIELDS, effect, fields_from, limits, peek, read, tell_of_write};
use crate::args::Args;
use crate::commands::string::ExpireUnit;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, Locked, Outcome, ReplyError, Stop};
use crate::notify;
use crate::offload::{self, Command, Handler, Missing};
use crate::reply::Reply;
use gimmal_io::Output;
use gimmal_store::types::{Field, Fields, FieldsRef, Limits};
use std::collections::{BTreeMap, HashSet};

/// What HGETEX and HSETEX were asked beside the fields.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Options {
    /// A unit, and the argument with the number.
    expire: Option<(ExpireUnit, usize)>,
    persist: bool,
    keep_ttl: bool,
    /// Only if the key is missing, or there.
    key: Option<bool>,
    /// Only if all fields are missing, or there.
    fields: Option<bool>,
    /// The number of the first field.
    first: usize,
}

impl Options {
    /// `written` for HSETEX, whose fields have values.
    fn parse(args: &Args<'_>, written: bool) -> Result<Options, ReplyError> {
        let word = (2..args.len() - 1).find(|i| args.is(*i, "fields")).ok_or(NUMFIELDS)?;
        let mut options = Options::default();
        let mut i = 2;
        while i < word {
            let no_time = options.expire.is_none() && !options.persist && !options.keep_ttl;
            if written && args.is(i, "nx") && options.key != Some(true) {
                options.key = Some(false);
            } else if written && args.is(i, "xx") && options.key != Some(false) {
                options.key = Some(true);
            } else if written && args.is(i, "fnx") && options.fields != Some(true) {
                options.fields = Some(false);
            } else if written && args.is(i, "fxx") && options.fields != Some(false) {
                options.fields = Some(true);
            } else if written && args.is(i, "keepttl") && no_time {
                options.keep_ttl = true;
            } else if !written && args.is(i, "persist") && no_time {
                options.persist = true;
            } else if let Some(unit) = ExpireUnit::named(args, i).filter(|_| no_time && i + 1 < word) {
                options.expire = Some((unit, i + 1));
                i += 1;
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        options.first = fields_from(args, word + 1, if written { 2 } else { 1 }, NUMFIELDS)?;
        Ok(options)
    }

    /// Whether the fields are missing, or there, as it was asked.
    fn fit(&self, fields: Option<FieldsRef<'_>>, args: &Args<'_>, now_ms: i64) -> bool {
        let mut names = args.rest(self.first).step_by(2);
        let there = |name| fields.is_some_and(|fields| fields.find(name, now_ms).is_some());
        self.fields.is_none_or(|wanted| names.all(|name| there(name) == wanted))
    }

    /// The deadline that was asked for.
    fn deadline(&self, args: &Args<'_>, now_ms: i64, command: &str) -> Result<Option<i64>, ReplyError> {
        self.expire.map(|(unit, i)| deadline(args.int(i)?, unit, now_ms, command)).transpose()
    }
}

/// Answers the values of fields; one that is named again was `removed` by then.
fn answer(
    fields: Option<FieldsRef<'_>>,
    now_ms: i64,
    args: &Args<'_>,
    first: usize,
    removed: bool,
    reply: &mut Reply<'_>,
) {
    let mut seen = HashSet::new();
    reply.put().array(args.len() - first);
    for name in args.rest(first) {
        let again = removed && !seen.insert(name);
        let field = fields.filter(|_| !again).and_then(|fields| fields.find(name, now_ms));
        super::read::answer(reply, field);
    }
}

/// Which fields are exchanged, and how.
#[derive(Clone, Copy)]
struct Exchange {
    handler: Handler,
    /// The number of the first field.
    first: usize,
    /// They are removed.
    removes: bool,
}

/// Answers the values of fields and then changes these by `alter`, which returns the numbers of those that it has changed; `finish`
/// records that, if there are any, and tells of it. A thread does both if they are very many.
fn exchange(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut key: Locked<'_>,
    what: Exchange,
    alter: impl FnOnce(&mut Fields, &Args<'_>) -> Vec<usize> + Send + 'static,
    finish: impl FnOnce(&mut Exec<'_>, &Args<'_>, Locked<'_>, Vec<usize>, bool) + Send + 'static,
) -> Outcome {
    let Exchange { handler, first, removes } = what;
    let (fields, now_ms) = (read(exec, key.key())?, exec.now_ms());
    if !offload::is_due(exec, args.len()) {
        answer(fields, now_ms, args, first, removes, &mut exec.reply);
        let edited = exec.edit(key.key(), |fields: &mut Fields| alter(fields, args))?;
        if let Some(edited) = edited.filter(|edited| !edited.result.is_empty()) {
            finish(exec, args, key, edited.result, edited.emptied);
        }
        return Ok(());
    }
    let original = fields.map(|fields| fields.to_owned());
    drop(key);
    let Some(original) = original else {
        return offload::write(exec, args, move |args, reply| answer(None, now_ms, args, first, removes, reply));
    };
    let resp3 = exec.session.resp3;
    let answer_and_alter = move |fields: &mut Fields, args: &Args<'_>| {
        let mut output = Output::default();
        answer(Some(fields.view()), now_ms, args, first, removes, &mut Reply::new(&mut output, resp3));
        (output, alter(fields, args))
    };
    let command = Command { key: 1, handler };
    offload::replace(exec, args, command, original, answer_and_alter, move |exec, args, key, edited| {
        let (output, changed) = edited.result;
        exec.reply.output().append(output);
        if !changed.is_empty() {
            finish(exec, args, key, changed, edited.emptied);
        }
        Ok(())
    })
}

/// Records that these fields were removed.
fn record_removal(exec: &mut Exec<'_>, key: Key<'_, '_>, args: &Args<'_>, fields: &[usize]) {
    let names = fields.iter().map(|i| args.at(*i));
    effect(exec, key, fields.len(), [b"HDEL", args.at(1)].into_iter().chain(names));
}

/// Removes fields; the argument numbers of those that were there, and whether the key went with them.
fn remove(
    exec: &mut Exec<'_>,
    mut key: Key<'_, '_>,
    args: &Args<'_>,
    fields: impl Iterator<Item = usize>,
    now_ms: i64,
) -> Result<(usize, bool), Stop> {
    let edited = exec.edit(key.again(), |hash: &mut Fields| -> Vec<usize> {
        fields.filter(|i| hash.remove(args.at(*i), now_ms)).collect()
    })?;
    let Some(edited) = edited.filter(|edited| !edited.result.is_empty()) else { return Ok((0, false)) };
    record_removal(exec, key, args, &edited.result);
    Ok((edited.result.len(), edited.emptied))
}

pub(super) fn hgetdel(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let first = fields_after_word(args, NUMFIELDS)?;
    let key = exec.lock(args.at(1))?;
    let now_ms = exec.now_ms();
    let what = Exchange { handler: hgetdel, first, removes: true };
    let alter = move |fields: &mut Fields, args: &Args<'_>| {
        (first..args.len()).filter(|i| fields.remove(args.at(*i), now_ms)).collect()
    };
    exchange(exec, args, key, what, alter, |exec, args, mut key, removed, emptied| {
        record_removal(exec, key.key(), args, &removed);
        exec.notify(notify::HASH, "hdel", args.at(1));
        if emptied {
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
    })
}

pub(super) fn hgetex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = Options::parse(args, false)?;
    let (first, limits) = (options.first, limits(exec));
    if options.expire.is_none() && !options.persist {
        return each(exec, args, first, |field, _, reply| super::read::answer(reply, field));
    }
    let mut key = exec.lock(args.at(1))?;
    peek(exec, key.key())?;
    let now_ms = exec.now_ms();
    let at_ms = options.deadline(args, exec.clock_ms(), "hgetex")?;
    let removes = at_ms.is_some_and(|at_ms| at_ms <= now_ms);
    let what = Exchange { handler: hgetex, first, removes };
    if removes {
        let alter = move |fields: &mut Fields, args: &Args<'_>| {
            (first..args.len()).filter(|i| fields.remove(args.at(*i), now_ms)).collect()
        };
        return exchange(exec, args, key, what, alter, |exec, args, mut key, removed, emptied| {
            record_removal(exec, key.key(), args, &removed);
            exec.local.stats.expired_fields.add(removed.len() as u64);
            exec.notify(notify::HASH, "hexpired", args.at(1));
            if emptied {
                exec.notify(notify::GENERIC, "del", args.at(1));
            }
        });
    }
    let alter = move |fields: &mut Fields, args: &Args<'_>| {
        let changes = |i: &usize| {
            let field = fields.view().find(args.at(*i), now_ms);
            let changes = field.is_some_and(|field| at_ms.is_some() || field.expire_at_ms.is_some());
            if changes {
                fields.set_expire(args.at(*i), at_ms, limits);
            }
            changes
        };
        (first..args.len()).filter(changes).collect()
    };
    exchange(exec, args, key, what, alter, move |exec, args, mut key, changed, _| {
        let (at, count) = (at_ms.unwrap_or(0).to_string(), changed.len().to_string());
        let (head, event): (&[&[u8]], _) = match at_ms {
            Some(_) => (&[b"HPEXPIREAT", args.at(1), at.as_bytes(), b"FIELDS", count.as_bytes()], "hexpire"),
            None => (&[b"HPERSIST", args.at(1), b"FIELDS", count.as_bytes()], "hpersist"),
        };
        effect(exec, key.key(), changed.len(), head.iter().copied().chain(changed.iter().map(|i| args.at(*i))));
        exec.notify(notify::HASH, event, args.at(1));
    })
}

pub(super) fn hsetex(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = Options::parse(args, true)?;
    let mut key = exec.lock(args.at(1))?;
    let now_ms = exec.now_ms();
    let fields = peek(exec, key.key())?;
    let at_ms = options.deadline(args, exec.clock_ms(), "hsetex")?;
    let to_be_kept = at_ms.is_none_or(|at_ms| at_ms > now_ms);
    let key_fits = options.key.is_none_or(|wanted| wanted == fields.is_some());
    if key_fits && to_be_kept && offload::is_due(exec, args.len()) {
        return store_many(exec, args, key, options, at_ms);
    }
    let wanted = key_fits && options.fit(fields, args, now_ms);
    exec.reply.put().integer(i64::from(wanted));
    if !wanted {
        return Ok(());
    }
    if to_be_kept {
        let limits = limits(exec);
        let edited =
            exec.edit_or_create(key.key(), |fields: &mut Fields| write(fields, args, &options, at_ms, now_ms, limits))?;
        stored(exec, key.key(), args, at_ms, edited.result);
        return Ok(());
    }
    // To be written and to be past at once: removed, and told of as if it had been there for a moment.
    let (first, was_missing) = (options.first, fields.is_none());
    let (_, emptied) = remove(exec, key.key(), args, (first..args.len()).step_by(2), i64::MIN)?;
    exec.local.stats.expired_fields.add(((args.len() - first) / 2) as u64);
    for event in ["hset", "hexpire", "hexpired"] {
        exec.notify(notify::HASH, event, args.at(1));
    }
    if emptied || was_missing {
        exec.notify(notify::GENERIC, "del", args.at(1));
    }
    Ok(())
}

/// HSETEX of very many fields, by a thread; of the conditions it is known that the key fits.
fn store_many(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut key: Locked<'_>,
    options: Options,
    at_ms: Option<i64>,
) -> Outcome {
    let (limits, now_ms) = (limits(exec), exec.now_ms());
    let original = offload::share(exec, &mut key, Missing::Create)?.expect("a hash that is missing is made");
    drop(key);
    let alter = move |fields: &mut Fields, args: &Args<'_>| {
        options.fit(Some(fields.view()), args, now_ms).then(|| write(fields, args, &options, at_ms, now_ms, limits))
    };
    let command = Command { key: 1, handler: hsetex };
    offload::replace(exec, args, command, original, alter, move |exec, args, mut key, edited| {
        exec.reply.put().integer(i64::from(edited.result.is_some()));
        if let Some(written) = edited.result {
            stored(exec, key.key(), args, at_ms, written);
        }
        Ok(())
    })
}

/// Fields that had expired before they were written, and the numbers of all that were, by the deadlines that they have now.
type Written = (usize, BTreeMap<Option<i64>, Vec<usize>>);

/// Writes the fields of HSETEX with a deadline, without one, or with those that they had.
fn write(
    fields: &mut Fields,
    args: &Args<'_>,
    options: &Options,
    at_ms: Option<i64>,
    now_ms: i64,
    limits: Limits,
) -> Written {
    fields.expect((args.len() - options.first) / 2, limits);
    let (mut past, mut kept) = (0, BTreeMap::<Option<i64>, Vec<usize>>::new());
    for i in (options.first..args.len()).step_by(2) {
        let (name, value) = (args.at(i), args.at(i + 1));
        let old = fields.view().find(name, now_ms).filter(|_| options.keep_ttl);
        let expire_at_ms = at_ms.or(old.and_then(|field| field.expire_at_ms));
        past += usize::from(fields.put(Field { name, value, expire_at_ms }, limits).was_past(now_ms));
        kept.entry(expire_at_ms).or_default().push(i);
    }
    (past, kept)
}

/// Records and tells of what HSETEX has written.
fn stored(exec: &mut Exec<'_>, mut key: Key<'_, '_>, args: &Args<'_>, at_ms: Option<i64>, (past, kept): Written) {
    // What is replayed must not depend on what has expired by then: each deadline is named.
    for (expire_at_ms, fields) in kept {
        let (at, count) = (expire_at_ms.unwrap_or(0).to_string(), fields.len().to_string());
        let head: &[&[u8]] = match expire_at_ms {
            Some(_) => &[b"HSETEX", args.at(1), b"PXAT", at.as_bytes(), b"FIELDS", count.as_bytes()],
            None => &[b"HSET", args.at(1)],
        };
        let pairs = fields.iter().flat_map(|i| [args.at(*i), args.at(*i + 1)]);
        effect(exec, key.again(), fields.len(), head.iter().copied().chain(pairs));
    }
    tell_of_write(exec, args.at(1), past, "hset");
    if at_ms.is_some() {
        exec.notify(notify::HASH, "hexpire", args.at(1));
    }
}
