//! What was delivered and is not acknowledged: XACK, XPENDING, XCLAIM, XAUTOCLAIM.

use super::group::{self, Spoken, no_key_or_group};
use super::id::{self, IdText};
use super::{peek, range, read};
use crate::args::{Args, parse_int};
use crate::dispatch::SYNTAX;
use crate::exec::{Edited, Exec, Key, Locked, Outcome, ReplyError, Stop, error};
use crate::offload;
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_store::types::{Consumer, Entries, Group, Pending, Stream, StreamId};
use std::ops::Range;

pub(super) fn xack(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let alter = |stream: &mut Box<Stream>, args: &Args<'_>, _| -> Result<usize, ReplyError> {
        if stream.group(args.at(2)).is_none() {
            return Ok(0);
        }
        let ids = id::all(args, 3)?;
        let acknowledge = |group: &mut Group| ids.iter().filter(|id| group.acknowledge(**id)).count();
        Ok(stream.edit_group(args.at(2), acknowledge).unwrap_or(0))
    };
    let command = offload::Command { key: 1, handler: xack };
    offload::edit(exec, args, command, offload::Missing::Leave, args.len(), alter, acknowledged)
}

fn acknowledged(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut key: Locked<'_>,
    edited: Option<Edited<Result<usize, ReplyError>>>,
) -> Outcome {
    let acknowledged = edited.map_or(Ok(0), |edited| edited.result)?;
    if acknowledged > 0 {
        let words: Vec<&[u8]> = if exec.local.log_active { args.rest(0).collect() } else { Vec::new() };
        exec.effect_unwatched(key.key(), &words);
        exec.changed(acknowledged as u64 - 1);
    }
    exec.reply.put().count(acknowledged);
    Ok(())
}

/// The range that XPENDING is asked for.
struct Asked<'w> {
    idle_ms: i64,
    start: StreamId,
    end: StreamId,
    count: usize,
    consumer: Option<&'w [u8]>,
}

fn asked<'w>(args: &Args<'w>) -> Result<Option<Asked<'w>>, ReplyError> {
    if args.len() == 3 {
        return Ok(None);
    }
    if !(6..=9).contains(&args.len()) {
        return Err(SYNTAX);
    }
    let (mut at, mut idle_ms) = (3, 0);
    if args.is(3, "IDLE") {
        idle_ms = args.int(4)?;
        if args.len() < 8 {
            return Err(SYNTAX);
        }
        at += 2;
    }
    let count = usize::try_from(args.int(at + 2)?).unwrap_or(0);
    let (start, end) = (id::start(args.at(at))?, id::end(args.at(at + 1))?);
    let consumer = (at + 3 < args.len()).then(|| args.at(at + 3));
    Ok(Some(Asked { idle_ms, start, end, count, consumer }))
}

pub(super) fn xpending(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let asked = asked(args)?;
    let mut key = exec.lock(args.at(1))?;
    let group = read(exec, key.key())?.and_then(|stream| stream.group(args.at(2)));
    let group = group.ok_or_else(|| no_key_or_group(args))?;
    let Some(asked) = asked else {
        summary(exec, group);
        return Ok(());
    };
    let now_ms = exec.clock_ms();
    let most = asked.consumer.map_or(group.pending_len(), |name| group.consumer(name).map_or(0, Consumer::pending_len));
    if offload::is_due(exec, most) && asked.count > offload::MANY {
        let group = group.clone();
        drop(key);
        return offload::write(exec, args, move |args, reply| {
            if let Ok(Some(asked)) = self::asked(args) {
                list(&group, &asked, now_ms, reply);
            }
        });
    }
    list(group, &asked, now_ms, &mut exec.reply);
    Ok(())
}

/// The pending entries that are asked for.
fn list(group: &Group, asked: &Asked<'_>, now_ms: i64, reply: &mut Reply<'_>) {
    let fits = |one: &Pending| asked.idle_ms == 0 || now_ms.saturating_sub(one.delivered_ms) >= asked.idle_ms;
    let found: Vec<Pending> = match asked.consumer {
        None => {
            let all = group.pending_from(asked.start).take_while(|one| one.id <= asked.end);
            all.filter(fits).take(asked.count).collect()
        }
        Some(name) => {
            let own = group.consumer(name).into_iter().flat_map(|consumer| group.pending_of(consumer, asked.start));
            own.take_while(|one| one.id <= asked.end).filter(fits).take(asked.count).collect()
        }
    };
    let mut writer = reply.put();
    writer.array(found.len());
    for one in &found {
        writer.array(4);
        id::put(&mut writer, one.id);
        writer.bulk(group.owner(one).name());
        writer.integer(now_ms.saturating_sub(one.delivered_ms).max(0));
        writer.integer(one.deliveries.cast_signed());
    }
}

fn summary(exec: &mut Exec<'_>, group: &Group) {
    let mut writer = exec.reply.put();
    writer.array(4);
    writer.count(group.pending_len());
    let (first, last) = (group.pending_from(StreamId::MIN).next(), group.last_pending());
    let (Some(first), Some(last)) = (first, last) else {
        writer.null();
        writer.null();
        writer.null_array();
        return;
    };
    id::put(&mut writer, first.id);
    id::put(&mut writer, last.id);
    let consumers = || group.consumers().filter(|consumer| consumer.pending_len() > 0);
    writer.array(consumers().count());
    for consumer in consumers() {
        writer.array(2);
        writer.bulk(consumer.name());
        writer.bulk(itoa::Buffer::new().format(consumer.pending_len()).as_bytes());
    }
}

/// What XCLAIM is asked.
struct Claim {
    idle_ms: i64,
    ids: Vec<StreamId>,
    delivered_ms: i64,
    deliveries: Option<u64>,
    force: bool,
    just_id: bool,
    last_id: StreamId,
}

fn claim(args: &Args<'_>, now_ms: i64) -> Result<Claim, ReplyError> {
    let number = |at: usize, what: &str| {
        parse_int(args.at(at)).ok_or_else(|| ReplyError::from(format!("ERR Invalid {what} argument for XCLAIM")))
    };
    let idle_ms = number(4, "min-idle-time")?.max(0);
    let ids: Vec<StreamId> = (5..args.len()).map_while(|at| id::strict(args.at(at), 0).ok()).collect();
    let (mut delivered_ms, mut deliveries, mut at) = (None, None, 5 + ids.len());
    let mut claim = Claim {
        idle_ms,
        ids,
        delivered_ms: now_ms,
        deliveries: None,
        force: false,
        just_id: false,
        last_id: StreamId::MIN,
    };
    while at < args.len() {
        let more = at + 1 < args.len();
        if args.is(at, "FORCE") {
            claim.force = true;
        } else if args.is(at, "JUSTID") {
            claim.just_id = true;
        } else if more && args.is(at, "IDLE") {
            at += 1;
            delivered_ms = Some(now_ms.wrapping_sub(number(at, "IDLE option")?));
        } else if more && args.is(at, "TIME") {
            at += 1;
            delivered_ms = Some(number(at, "TIME option")?);
        } else if more && args.is(at, "RETRYCOUNT") {
            at += 1;
            deliveries = Some(number(at, "RETRYCOUNT option")?);
        } else if more && args.is(at, "LASTID") {
            at += 1;
            claim.last_id = id::strict(args.at(at), 0)?;
        } else {
            return Err(format!("ERR Unrecognized XCLAIM option '{}'", group::shown(args.at(at))).into());
        }
        at += 1;
    }
    // A time that cannot be is taken for now, as in Redis: clients compute it by clocks of their own.
    claim.delivered_ms = delivered_ms.filter(|at_ms| (0..=now_ms).contains(at_ms)).unwrap_or(now_ms);
    claim.deliveries = deliveries.and_then(|count| u64::try_from(count).ok());
    Ok(claim)
}

/// What a consumer claimed, and what turned out to be gone.
#[derive(Default)]
struct Claimed {
    /// The entries that are the consumer's now.
    ids: Vec<StreamId>,
    /// Those that are no longer pending, as the entries were deleted.
    gone: Vec<StreamId>,
    /// All changes in their order, for the log: id, time and number of deliveries.
    changes: Vec<(StreamId, i64, u64)>,
    created: bool,
    last_id_set: bool,
    last_id: StreamId,
    entries_read: Option<u64>,
    /// Where XAUTOCLAIM goes on.
    cursor: StreamId,
}

impl Claimed {
    fn forget(&mut self, group: &mut Group, pending: Pending) {
        self.changes.push((pending.id, pending.delivered_ms, pending.deliveries));
        self.gone.push(pending.id);
        group.acknowledge(pending.id);
    }

    fn take(&mut self, group: &mut Group, consumer: &[u8], id: StreamId, delivered_ms: i64, deliveries: u64) {
        group.put(id, consumer, delivered_ms, deliveries);
        self.changes.push((id, delivered_ms, deliveries));
        self.ids.push(id);
    }

    /// Logs what was claimed, one command for each run of equal times and numbers.
    fn log(&self, exec: &mut Exec<'_>, mut key: Key<'_, '_>, who: &Spoken<'_>) {
        if self.created {
            group::tell_of_consumer(exec, key.again(), who);
        }
        for run in self.changes.chunk_by(|a, b| (a.1, a.2) == (b.1, b.2)) {
            let ids = run.iter().map(|(id, ..)| *id);
            group::log_claims(exec, key.again(), who, ids, run.len(), (run[0].1, run[0].2), self.last_id);
        }
        if self.last_id_set && self.changes.is_empty() {
            group::log_last_id(exec, key, who, self.last_id, self.entries_read);
        }
    }
}

fn claim_in(group: &mut Group, entries: &Entries, consumer: &[u8], claim: &Claim, now_ms: i64) -> Claimed {
    let mut claimed = Claimed { created: group.see(consumer, false, now_ms), ..Claimed::default() };
    if claim.last_id > group.last_id {
        group.last_id = claim.last_id;
        claimed.last_id_set = true;
    }
    for &id in &claim.ids {
        let before = group.pending(id);
        if !entries.contains(id) {
            if let Some(before) = before {
                claimed.forget(group, before);
            }
            continue;
        }
        let before_deliveries = match before {
            None if !claim.force => continue,
            Some(before) if claim.idle_ms > 0 && now_ms.saturating_sub(before.delivered_ms) < claim.idle_ms => continue,
            // One that is made by force counts as delivered once before it is claimed, as in Redis.
            before => before.map_or(1, |before| before.deliveries),
        };
        let counted = before_deliveries.saturating_add(u64::from(!claim.just_id));
        claimed.take(group, consumer, id, claim.delivered_ms, claim.deliveries.unwrap_or(counted));
    }
    if !claimed.ids.is_empty() {
        group.see(consumer, true, now_ms);
    }
    (claimed.last_id, claimed.entries_read) = (group.last_id, group.entries_read);
    claimed
}

pub(super) fn xclaim(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut key = exec.lock(args.at(1))?;
    let stream = read(exec, key.key())?;
    let stream = stream.filter(|stream| stream.group(args.at(2)).is_some()).ok_or_else(|| no_key_or_group(args))?;
    let now_ms = exec.clock_ms();
    let alter = move |stream: &mut Box<Stream>, args: &Args<'_>| -> Result<Option<(Claimed, bool)>, ReplyError> {
        let (entries, claim) = (stream.entries().clone(), claim(args, now_ms)?);
        let claimed = stream.edit_group(args.at(2), |group| claim_in(group, &entries, args.at(3), &claim, now_ms));
        Ok(claimed.map(|claimed| (claimed, claim.just_id)))
    };
    if offload::is_due(exec, args.len()) {
        let original = Box::new(stream.clone());
        drop(key);
        let command = offload::Command { key: 1, handler: xclaim };
        return offload::change(exec, args, command, original, alter, claimed);
    }
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| alter(stream, args))?;
    claimed(exec, args, key, edited.map_or(Ok(None), |edited| edited.result))
}

fn claimed(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut key: Locked<'_>,
    claimed: Result<Option<(Claimed, bool)>, ReplyError>,
) -> Outcome {
    let (claimed, just_id) = claimed?.ok_or_else(|| no_key_or_group(args))?;
    let entries = peek(exec, key.key())?.map(|stream| stream.entries().clone()).unwrap_or_default();
    claimed.log(exec, key.key(), &Spoken { key: args.at(1), group: args.at(2), consumer: args.at(3) });
    drop(key);
    let len = claimed.ids.len();
    exec.reply.put().array(len);
    streamed::elements(exec, 0..len, Answer { entries, ids: claimed.ids, gone: None, just_id })
}

/// Claimed entries, and behind them, if they are asked for, the ids of those that are gone.
struct Answer {
    entries: Entries,
    ids: Vec<StreamId>,
    gone: Option<Vec<StreamId>>,
    just_id: bool,
}

impl Elements for Answer {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        let mut writer = reply.put();
        for rank in ranks {
            match self.ids.get(rank) {
                Some(id) if self.just_id => id::put(&mut writer, *id),
                Some(id) => {
                    range::put(&mut writer, &self.entries.find(*id).expect("only entries that exist are claimed"))
                }
                None => {
                    let gone = self.gone.as_deref().unwrap_or(&[]);
                    writer.array(gone.len());
                    gone.iter().for_each(|id| id::put(&mut writer, *id));
                }
            }
        }
    }
}

/// What XAUTOCLAIM is asked.
struct AutoClaim {
    idle_ms: i64,
    start: StreamId,
    count: usize,
    just_id: bool,
}

/// Pending entries that XAUTOCLAIM looks at for each that it may claim.
const ATTEMPTS: usize = 10;
/// Most that XAUTOCLAIM takes for a count: what Redis can count attempts for and keep ids of.
const COUNT_MAX: i64 = i64::MAX / 16;

fn auto_claim(args: &Args<'_>) -> Result<AutoClaim, ReplyError> {
    let idle_ms = parse_int(args.at(4)).ok_or(error("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let mut asked = AutoClaim { idle_ms: idle_ms.max(0), start: id::start(args.at(5))?, count: 100, just_id: false };
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "COUNT") && at + 1 < args.len() {
            at += 1;
            let count = parse_int(args.at(at)).filter(|count| (1..=COUNT_MAX).contains(count));
            asked.count = count.and_then(|count| usize::try_from(count).ok()).ok_or(error("ERR COUNT must be > 0"))?;
        } else if args.is(at, "JUSTID") {
            asked.just_id = true;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    Ok(asked)
}

fn auto_claim_in(group: &mut Group, entries: &Entries, consumer: &[u8], asked: &AutoClaim, now_ms: i64) -> Claimed {
    let mut claimed = Claimed { created: group.see(consumer, false, now_ms), ..Claimed::default() };
    let attempts = asked.count.saturating_mul(ATTEMPTS);
    let (mut looked_at, mut cursor) = (Vec::new(), None);
    let mut found = 0;
    for (attempt, one) in group.pending_from(asked.start).enumerate() {
        if attempt == attempts || found == asked.count {
            cursor = Some(one.id);
            break;
        }
        let exists = entries.contains(one.id);
        if !exists || asked.idle_ms == 0 || now_ms.saturating_sub(one.delivered_ms) >= asked.idle_ms {
            found += 1;
            looked_at.push((one, exists));
        }
    }
    for (one, exists) in looked_at {
        match exists {
            true => {
                let deliveries = one.deliveries.saturating_add(u64::from(!asked.just_id));
                claimed.take(group, consumer, one.id, now_ms, deliveries);
            }
            false => claimed.forget(group, one),
        }
    }
    if !claimed.ids.is_empty() {
        group.see(consumer, true, now_ms);
    }
    claimed.cursor = cursor.unwrap_or_default();
    (claimed.last_id, claimed.entries_read) = (group.last_id, group.entries_read);
    claimed
}

pub(super) fn xautoclaim(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let asked = auto_claim(args)?;
    let mut key = exec.lock(args.at(1))?;
    let stream = read(exec, key.key())?;
    let stream = stream.filter(|stream| stream.group(args.at(2)).is_some()).ok_or_else(|| no_key_or_group(args))?;
    let pending = stream.group(args.at(2)).map_or(0, Group::pending_len);
    let (now_ms, due) = (exec.clock_ms(), asked.count.min(pending));
    let alter = move |stream: &mut Box<Stream>, args: &Args<'_>| {
        let entries = stream.entries().clone();
        stream.edit_group(args.at(2), |group| auto_claim_in(group, &entries, args.at(3), &asked, now_ms))
    };
    if offload::is_due(exec, due) {
        let original = Box::new(stream.clone());
        drop(key);
        let command = offload::Command { key: 1, handler: xautoclaim };
        return offload::change(exec, args, command, original, alter, auto_claimed);
    }
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| alter(stream, args))?;
    auto_claimed(exec, args, key, edited.and_then(|edited| edited.result))
}

fn auto_claimed(exec: &mut Exec<'_>, args: &Args<'_>, mut key: Locked<'_>, claimed: Option<Claimed>) -> Outcome {
    let claimed = claimed.ok_or_else(|| Stop::from("ERR no such key"))?;
    let just_id = auto_claim(args)?.just_id;
    let entries = read(exec, key.key())?.map(|stream| stream.entries().clone()).unwrap_or_default();
    let who = Spoken { key: args.at(1), group: args.at(2), consumer: args.at(3) };
    claimed.log(exec, key.key(), &who);
    drop(key);
    let mut writer = exec.reply.put();
    writer.array(3);
    writer.bulk(IdText::new(claimed.cursor).bytes());
    writer.array(claimed.ids.len());
    let ranks = 0..claimed.ids.len() + 1;
    streamed::elements(exec, ranks, Answer { entries, ids: claimed.ids, gone: Some(claimed.gone), just_id })
}
