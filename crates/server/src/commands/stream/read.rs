//! XREAD and XREADGROUP: what is new in several streams, for a client or for a consumer of a group.
//!
//! A reply's entries are written after the locks are released, from the streams' roots. Who is told to wait is run again by whoever
//! adds an entry, with the ids that `$` stood for.

use super::group::{self, Spoken};
use super::{id, range, stream_of};
use crate::args::{Args, Detached, parse_int};
use crate::blocking::{Nothing, Wait, until_whole_ms};
use crate::command::keyflag::{ACCESS, RO};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Key, LockedMany, Outcome, ReplyError, Stop, error};
use crate::offload;
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_resp::{Span, Writer};
use gimmal_store::types::{Entries, Group, Pending, Stream, StreamEntry, StreamId, Type};
use std::ops::Range;

const MEANINGLESS: &str = "in the context of XREADGROUP: you want to read the history of this consumer by specifying a \
    proper ID, or use the > ID to get new messages. The";
const ONLY_GROUPS: ReplyError =
    error("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.");

/// What XREAD and XREADGROUP are asked.
struct Options {
    /// Most entries of each stream.
    count: usize,
    /// To wait, until then.
    block: Option<Option<i64>>,
    /// Where the group's name is, and the consumer's behind it.
    group: Option<usize>,
    no_ack: bool,
    /// Where the time to wait is.
    block_at: usize,
    /// What others have had pending for so many ms is claimed first.
    claim_ms: Option<i64>,
    /// Where the keys begin.
    keys: usize,
    /// How many there are.
    len: usize,
}

fn options(exec: &Exec<'_>, args: &Args<'_>, of_group: bool) -> Result<Options, ReplyError> {
    let mut options = Options {
        count: usize::MAX,
        block: None,
        group: None,
        no_ack: false,
        block_at: 0,
        claim_ms: None,
        keys: 0,
        len: 0,
    };
    let mut at = 1;
    while at < args.len() {
        let more = args.len() - 1 - at;
        if args.is(at, "BLOCK") && more > 0 {
            at += 1;
            options.block = Some(until_whole_ms(exec, args, at)?);
            options.block_at = at;
        } else if args.is(at, "COUNT") && more > 0 {
            at += 1;
            // As in Redis, none and less than none are all.
            options.count = usize::try_from(args.int(at)?).ok().filter(|count| *count > 0).unwrap_or(usize::MAX);
        } else if args.is(at, "STREAMS") && more > 0 {
            if more % 2 == 1 {
                let (name, symbol) = if of_group { ("xreadgroup", '>') } else { ("xread", '$') };
                return Err(format!(
                    "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified."
                )
                .into());
            }
            (options.keys, options.len) = (at + 1, more / 2);
            break;
        } else if args.is(at, "GROUP") && more >= 2 {
            if !of_group {
                return Err("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into());
            }
            options.group = Some(at + 1);
            at += 2;
        } else if args.is(at, "CLAIM") && more > 0 {
            if !of_group {
                return Err("ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.".into());
            }
            at += 1;
            let idle_ms = parse_int(args.at(at)).ok_or(error("ERR min-idle-time is not an integer"))?;
            if idle_ms < 0 {
                return Err("ERR min-idle-time must be a positive integer".into());
            }
            options.claim_ms = Some(idle_ms);
        } else if args.is(at, "NOACK") {
            if !of_group {
                return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
            }
            options.no_ack = true;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    if options.len == 0 {
        return Err(SYNTAX);
    }
    if of_group && options.group.is_none() {
        return Err("ERR Missing GROUP option for XREADGROUP".into());
    }
    Ok(options)
}

/// The keys of XREAD and XREADGROUP, where a group or consumer is called as an option is.
pub(super) fn keys(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    let at = (1..args.len()).find(|at| args.is(*at, "STREAMS"))?;
    let more = args.len() - 1 - at;
    (more > 0 && more.is_multiple_of(2)).then(|| (at + 1..=at + more / 2).map(|at| (at, RO | ACCESS)).collect())
}

/// What a stream contributes to the reply.
enum Part {
    /// Entries from a rank on.
    New(usize),
    /// What a consumer has pending, whether the entries are still there or not.
    History(Vec<StreamId>),
    /// What it claimed, each with how long it was idle and how often it had been delivered, then entries from a rank on.
    Claimed(Vec<(StreamId, i64, u64)>, usize),
}

/// One stream of a reply.
struct Stretch {
    key: Vec<u8>,
    entries: Entries,
    part: Part,
    /// Number of entries.
    len: usize,
    /// Elements of the reply before it; its header is one.
    begin: usize,
}

/// A reply's streams.
struct Stretches {
    all: Vec<Stretch>,
    len: usize,
    resp3: bool,
}

impl Stretches {
    fn push(&mut self, key: &[u8], entries: Entries, part: Part, len: usize) {
        self.all.push(Stretch { key: key.to_vec(), entries, part, len, begin: self.len });
        self.len += len + 1;
    }

    fn answer(self, exec: &mut Exec<'_>) -> Outcome {
        match self.resp3 {
            true => exec.reply.put().map(self.all.len()),
            false => exec.reply.put().array(self.all.len()),
        }
        streamed::elements(exec, 0..self.len, self)
    }
}

impl Elements for Stretches {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        let mut writer = reply.put();
        let first = self.all.partition_point(|one| one.begin + one.len < ranks.start);
        for one in self.all[first..].iter().take_while(|one| one.begin < ranks.end) {
            if one.begin >= ranks.start {
                if !self.resp3 {
                    writer.array(2);
                }
                writer.bulk(&one.key);
                writer.array(one.len);
            }
            let from = ranks.start.saturating_sub(one.begin + 1);
            let behind = (ranks.end - one.begin - 1).min(one.len);
            match &one.part {
                Part::New(rank) => {
                    let entries = one.entries.iter_from(rank + from).take(behind - from);
                    entries.for_each(|entry| range::put(&mut writer, &entry));
                }
                Part::Claimed(claimed, rank) => {
                    for (id, idle_ms, deliveries) in claimed.iter().take(behind).skip(from) {
                        let entry = one.entries.find(*id).expect("only entries that exist are claimed");
                        put_claimed(&mut writer, &entry, *idle_ms, *deliveries);
                    }
                    let (from, behind) = (from.saturating_sub(claimed.len()), behind.saturating_sub(claimed.len()));
                    let entries = one.entries.iter_from(rank + from).take(behind - from);
                    entries.for_each(|entry| put_claimed(&mut writer, &entry, 0, 0));
                }
                Part::History(ids) => {
                    for id in &ids[from..behind] {
                        match one.entries.find(*id) {
                            Some(entry) => range::put(&mut writer, &entry),
                            None => {
                                writer.array(2);
                                id::put(&mut writer, *id);
                                writer.null_array();
                            }
                        }
                    }
                }
            }
        }
    }
}

/// An entry with what XREADGROUP tells of it when it claims.
fn put_claimed(writer: &mut Writer<'_>, entry: &StreamEntry<'_>, idle_ms: i64, deliveries: u64) {
    writer.array(4);
    range::put_parts(writer, entry);
    writer.integer(idle_ms);
    writer.integer(deliveries.cast_signed());
}

pub(super) fn xread(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = options(exec, args, false)?;
    let (first, len) = (options.keys, options.len);
    let mut keys = exec.lock_all((first..first + len).map(|at| args.at(at)))?;
    let mut found = Stretches { all: Vec::new(), len: 0, resp3: exec.session.resp3 };
    let mut last_ids = Vec::with_capacity(len);
    for i in 0..len {
        let entry = exec.read(keys.key(i));
        let stream = entry.as_ref().map(stream_of).transpose()?;
        let last = stream.map_or(StreamId::MIN, |stream| stream.last_id());
        let after = match args.at(first + len + i) {
            b"$" => last,
            b"+" if stream.is_some() => last.before().ok_or(error("ERR the stream last element ID is 0-0"))?,
            b"+" => StreamId::MIN,
            b">" => return Err(ONLY_GROUPS.into()),
            text => id::strict(text, 0)?,
        };
        last_ids.push(last);
        if let Some(stream) = stream.filter(|stream| stream.entries().last_id().is_some_and(|top| top > after)) {
            let entries = stream.entries();
            let rank = entries.rank_behind(after);
            let count = options.count.min(entries.len() - rank);
            found.push(args.at(first + i), entries.clone(), Part::New(rank), count);
        }
    }
    if !found.all.is_empty() {
        drop(keys);
        return found.answer(exec);
    }
    let Some(until_ms) = options.block else {
        exec.reply.put().null_array();
        return Ok(());
    };
    wait(exec, &mut keys, args, (until_ms, None), false, |at| {
        let i = at.checked_sub(first + len)?;
        (args.at(at) == b"$").then(|| id::IdText::new(last_ids[i]).bytes().to_vec())
    })
}

/// Waits for the keys until the first of these moments, to look again at the second, with some of the arguments replaced.
fn wait(
    exec: &mut Exec<'_>,
    keys: &mut LockedMany<'_>,
    args: &Args<'_>,
    (until_ms, again_ms): (Option<i64>, Option<i64>),
    keys_stay: bool,
    replaced: impl Fn(usize) -> Option<Vec<u8>>,
) -> Outcome {
    let wait = Wait { kind: Type::Stream, until_ms, again_ms, nothing: Nothing::Array, keys_stay };
    if (0..args.len()).all(|at| replaced(at).is_none()) {
        return exec.block(keys, keys.len(), args, wait);
    }
    let words = (0..args.len()).map(|at| Detached::Bytes(replaced(at).unwrap_or_else(|| args.at(at).to_vec())));
    let words: Vec<Detached> = words.collect();
    let spans: Vec<Span> = (0..).zip(&words).map(|(len, _)| Span { start: Span::DETACHED, len }).collect();
    exec.block(keys, keys.len(), &Args::new(&[], &spans, &words), wait)
}

/// From where a consumer reads.
#[derive(Clone, Copy)]
enum From {
    /// `>`: behind what its group has read.
    Group,
    /// What it has pending behind an id.
    History(StreamId),
}

fn from(text: &[u8]) -> Result<From, ReplyError> {
    match text {
        b"$" | b"+" => {
            let symbol = char::from(text[0]);
            Err(format!(
                "ERR The {symbol} ID is meaningless {MEANINGLESS} {symbol} ID would just return an empty result set."
            )
            .into())
        }
        b">" => Ok(From::Group),
        _ => match id::strict(text, 0)? {
            StreamId::MAX => Ok(From::Group),
            after => Ok(From::History(after)),
        },
    }
}

/// What a consumer got of a stream.
struct Got {
    created: bool,
    /// When it got it; a thread may have had it since.
    at_ms: i64,
    part: Option<(Entries, Part, usize)>,
    /// When something will have been idle for long enough to be claimed.
    idle_at_ms: Option<i64>,
    /// The group's last id changed.
    advanced: bool,
    last_id: StreamId,
    entries_read: Option<u64>,
}

fn get(stream: &mut Stream, who: &Spoken<'_>, from: From, options: &Options, now_ms: i64) -> Option<Got> {
    let group = stream.group(who.group)?;
    let (last_id, top) = (group.last_id, stream.entries().last_id());
    let created = stream.edit_group(who.group, |group| group.see(who.consumer, false, now_ms))?;
    let mut got =
        Got { created, at_ms: now_ms, part: None, idle_at_ms: None, advanced: false, last_id, entries_read: None };
    let mut claimed = None;
    if let (From::Group, Some(claim_ms)) = (from, options.claim_ms) {
        let entries = stream.entries().clone();
        let claim = |group: &mut Group| claim(group, &entries, who.consumer, claim_ms, options.count, now_ms);
        let (found, idle_at_ms) = stream.edit_group(who.group, claim)?;
        got.idle_at_ms = idle_at_ms;
        claimed = Some(found);
    }
    let count = options.count - claimed.as_ref().map_or(0, Vec::len);
    match from {
        From::Group if top.is_some_and(|top| top > last_id) && count > 0 => {
            let rank = stream.entries().rank_behind(last_id);
            let len = count.min(stream.len() - rank);
            got.advanced = stream.deliver(who.group, who.consumer, rank..rank + len, !options.no_ack, now_ms);
            if !options.no_ack {
                stream.edit_group(who.group, |group| group.see(who.consumer, true, now_ms));
            }
            let before = claimed.as_ref().map_or(0, Vec::len);
            let part = claimed.map_or(Part::New(rank), |claimed| Part::Claimed(claimed, rank));
            got.part = Some((stream.entries().clone(), part, before + len));
        }
        From::Group => {
            let claimed = claimed.filter(|claimed| !claimed.is_empty());
            got.part = claimed.map(|claimed| {
                let (entries, len) = (stream.entries().clone(), claimed.len());
                (entries, Part::Claimed(claimed, 0), len)
            });
        }
        From::History(after) => {
            let entries = stream.entries().clone();
            let ids = stream.edit_group(who.group, |group| {
                let consumer = group.consumer(who.consumer)?;
                let after = after.next().unwrap_or(StreamId::MIN);
                let pending: Vec<_> = group.pending_of(consumer, after).take(options.count).collect();
                for one in pending.iter().filter(|one| entries.contains(one.id)) {
                    group.put(one.id, who.consumer, now_ms, one.deliveries.saturating_add(1));
                }
                Some(pending.iter().map(|one| one.id).collect::<Vec<_>>())
            })??;
            let len = ids.len();
            got.part = Some((entries, Part::History(ids), len));
        }
    }
    let group = stream.group(who.group)?;
    (got.last_id, got.entries_read) = (group.last_id, group.entries_read);
    Some(got)
}

/// What XREADGROUP claims for a consumer: what has been pending for long enough, the longest first, up to `count`; and when the next
/// entry will have been.
fn claim(
    group: &mut Group,
    entries: &Entries,
    consumer: &[u8],
    claim_ms: i64,
    count: usize,
    now_ms: i64,
) -> (Vec<(StreamId, i64, u64)>, Option<i64>) {
    // Usually nothing has been pending for long enough, and that is known without a look at each.
    if now_ms.saturating_sub(group.pending_since_ms()) < claim_ms {
        return (Vec::new(), (group.pending_len() > 0).then(|| group.pending_since_ms().saturating_add(claim_ms)));
    }
    let (mut idle, mut next, mut since_ms) = (Vec::new(), None::<i64>, now_ms);
    for one in group.pending_from(StreamId::MIN).filter(|one| entries.contains(one.id)) {
        if now_ms.saturating_sub(one.delivered_ms) >= claim_ms {
            idle.push(one);
        } else {
            since_ms = since_ms.min(one.delivered_ms);
            let at_ms = one.delivered_ms.saturating_add(claim_ms);
            next = Some(next.map_or(at_ms, |next| next.min(at_ms)));
        }
    }
    idle.sort_by_key(|one| one.delivered_ms);
    since_ms = idle.get(count).map_or(since_ms, |left| since_ms.min(left.delivered_ms));
    idle.truncate(count);
    group.note_pending_since(since_ms);
    for one in &idle {
        group.put(one.id, consumer, now_ms, one.deliveries.saturating_add(1));
    }
    if !idle.is_empty() {
        group.see(consumer, true, now_ms);
    }
    let told = |one: &Pending| (one.id, now_ms.saturating_sub(one.delivered_ms).max(0), one.deliveries);
    (idle.iter().map(told).collect(), next)
}

/// Logs what was delivered to a consumer.
fn log(exec: &mut Exec<'_>, mut key: Key<'_, '_>, who: &Spoken<'_>, part: &Delivered<'_>, last_id: StreamId) {
    let (entries, delivered, len, no_ack, at_ms) = (part.entries, part.part, part.len, part.no_ack, part.at_ms);
    let (claimed, rank) = match delivered {
        Part::History(_) => return,
        Part::New(rank) => (&[][..], *rank),
        Part::Claimed(claimed, rank) => (claimed.as_slice(), *rank),
    };
    for run in claimed.chunk_by(|a, b| a.2 == b.2) {
        let ids = run.iter().map(|(id, ..)| *id);
        group::log_claims(exec, key.again(), who, ids, run.len(), (at_ms, run[0].2.saturating_add(1)), last_id);
    }
    let new = len - claimed.len();
    if new > 0 && !no_ack {
        let ids = entries.iter_from(rank).take(new).map(|entry| entry.id);
        group::log_claims(exec, key, who, ids, new, (at_ms, 1), last_id);
    }
}

/// What a consumer was delivered of a stream.
struct Delivered<'d> {
    entries: &'d Entries,
    part: &'d Part,
    len: usize,
    no_ack: bool,
    at_ms: i64,
}

/// About how many entries a consumer gets.
fn work(stream: &Stream, group: &[u8], consumer: &[u8], from: From, options: &Options) -> usize {
    let Some(group) = stream.group(group) else { return 0 };
    let there = match from {
        From::Group => stream.len() - stream.entries().rank_behind(group.last_id),
        From::History(_) => group.consumer(consumer).map_or(0, |consumer| consumer.pending_len()),
    };
    there.min(options.count)
}

/// Records what a consumer got of the stream at a key, and adds it to the reply.
fn take(exec: &mut Exec<'_>, mut key: Key<'_, '_>, who: &Spoken<'_>, got: Got, no_ack: bool, found: &mut Stretches) {
    if got.created {
        group::tell_of_consumer(exec, key.again(), who);
    }
    let Some((entries, part, len)) = got.part else { return };
    log(
        exec,
        key.again(),
        who,
        &Delivered { entries: &entries, part: &part, len, no_ack, at_ms: got.at_ms },
        got.last_id,
    );
    if got.advanced {
        group::log_last_id(exec, key, who, got.last_id, got.entries_read);
    }
    found.push(who.key, entries, part, len);
}

pub(super) fn xreadgroup(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = options(exec, args, true)?;
    let Some(group_at) = options.group else { return Err(SYNTAX.into()) };
    let (first, len) = (options.keys, options.len);
    let mut keys = exec.lock_all((first..first + len).map(|at| args.at(at)))?;
    let mut sources = Vec::with_capacity(len);
    for i in 0..len {
        let entry = exec.read(keys.key(i));
        let stream = entry.as_ref().map(stream_of).transpose()?;
        if stream.and_then(|stream| stream.group(args.at(group_at))).is_none() {
            let (key, group) = (group::shown(args.at(first + i)), group::shown(args.at(group_at)));
            return Err(Stop::Error(
                format!("NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option")
                    .into(),
            ));
        }
        sources.push(from(args.at(first + len + i))?);
    }
    let now_ms = exec.clock_ms();
    if let ([source], Some(stream)) = (&sources[..], exec.peek(keys.key(0)).as_ref().map(stream_of).transpose()?)
        && offload::is_due(exec, work(stream, args.at(group_at), args.at(group_at + 1), *source, &options))
    {
        let (original, source, no_ack) = (Box::new(stream.clone()), *source, options.no_ack);
        drop(keys);
        let command = offload::Command { key: first, handler: xreadgroup };
        let alter = move |stream: &mut Box<Stream>, args: &Args<'_>| {
            let who = Spoken { key: args.at(first), group: args.at(group_at), consumer: args.at(group_at + 1) };
            get(stream, &who, source, &options, now_ms)
        };
        return offload::change(exec, args, command, original, alter, move |exec, args, mut key, got| {
            let who = Spoken { key: args.at(first), group: args.at(group_at), consumer: args.at(group_at + 1) };
            let mut found = Stretches { all: Vec::new(), len: 0, resp3: exec.session.resp3 };
            // So much work has a result.
            let got = got.ok_or(SYNTAX)?;
            take(exec, key.key(), &who, got, no_ack, &mut found);
            drop(key);
            found.answer(exec)
        });
    }
    let mut found = Stretches { all: Vec::new(), len: 0, resp3: exec.session.resp3 };
    let mut again_ms = None;
    for (i, source) in sources.into_iter().enumerate() {
        let who = Spoken { key: args.at(first + i), group: args.at(group_at), consumer: args.at(group_at + 1) };
        let edited = exec.edit(keys.key(i), |stream: &mut Box<Stream>| get(stream, &who, source, &options, now_ms))?;
        let Some(got) = edited.and_then(|edited| edited.result) else { continue };
        again_ms = again_ms.into_iter().chain(got.idle_at_ms).min();
        take(exec, keys.key(i), &who, got, options.no_ack, &mut found);
    }
    if !found.all.is_empty() {
        drop(keys);
        return found.answer(exec);
    }
    match options.block {
        Some(until_ms) => {
            // What is pending will have been idle for long enough before the wait is over: it looks again then.
            let again_ms = again_ms.filter(|again_ms| until_ms.is_none_or(|until_ms| *again_ms < until_ms));
            let rest_ms = again_ms.zip(until_ms).map(|(again_ms, until_ms)| until_ms - again_ms);
            wait(exec, &mut keys, args, (until_ms, again_ms), true, |at| {
                rest_ms.filter(|_| at == options.block_at).map(|rest_ms| rest_ms.to_string().into_bytes())
            })
        }
        None => {
            exec.reply.put().null_array();
            Ok(())
        }
    }
}
