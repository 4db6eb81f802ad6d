//! XREAD and XREADGROUP: what is new in several streams, for a client or for a consumer of a group.
//!
//! A reply's entries are written after the locks are released, from the streams' roots. Who is told to wait is run again by whoever
//! adds an entry, with the ids that `$` stood for.

use super::group::{self, Spoken};
use super::{id, range, stream_of};
use crate::args::{Args, Detached};
use crate::blocking::{Null, Wait, until_whole_ms};
use crate::command::keyflag::{ACCESS, RO};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, LockedMany, Outcome, ReplyError, Stop, error};
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_resp::Span;
use gimmal_store::types::{Entries, Stream, StreamId, Type};
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
    /// Where the keys begin.
    keys: usize,
    /// How many there are.
    len: usize,
}

fn options(exec: &Exec<'_>, args: &Args<'_>, of_group: bool) -> Result<Options, ReplyError> {
    let mut options = Options { count: usize::MAX, block: None, group: None, no_ack: false, keys: 0, len: 0 };
    let mut at = 1;
    while at < args.len() {
        let more = args.len() - 1 - at;
        if args.is(at, "BLOCK") && more > 0 {
            at += 1;
            options.block = Some(until_whole_ms(exec, args, at)?);
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
    wait(exec, &mut keys, args, until_ms, |at| {
        let i = at.checked_sub(first + len)?;
        (args.at(at) == b"$").then(|| id::IdText::new(last_ids[i]).bytes().to_vec())
    })
}

/// Waits for the keys, with some of the arguments replaced.
fn wait(
    exec: &mut Exec<'_>,
    keys: &mut LockedMany<'_>,
    args: &Args<'_>,
    until_ms: Option<i64>,
    replaced: impl Fn(usize) -> Option<Vec<u8>>,
) -> Outcome {
    let wait = Wait { kind: Type::Stream, until_ms, null_in_transaction: Null::Array };
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
    part: Option<(Entries, Part, usize)>,
    /// The group's last id changed.
    advanced: bool,
    last_id: StreamId,
    entries_read: Option<u64>,
}

fn get(stream: &mut Stream, who: &Spoken<'_>, from: From, options: &Options, now_ms: i64) -> Option<Got> {
    let group = stream.group(who.group)?;
    let (last_id, top) = (group.last_id, stream.entries().last_id());
    let created = stream.edit_group(who.group, |group| group.see(who.consumer, false, now_ms))?;
    let mut got = Got { created, part: None, advanced: false, last_id, entries_read: None };
    match from {
        From::Group if top.is_some_and(|top| top > last_id) => {
            let rank = stream.entries().rank_behind(last_id);
            let len = options.count.min(stream.len() - rank);
            got.advanced = stream.deliver(who.group, who.consumer, rank..rank + len, !options.no_ack, now_ms);
            if !options.no_ack {
                stream.edit_group(who.group, |group| group.see(who.consumer, true, now_ms));
            }
            got.part = Some((stream.entries().clone(), Part::New(rank), len));
        }
        From::Group => {}
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
    let now_ms = exec.now_ms();
    let mut found = Stretches { all: Vec::new(), len: 0, resp3: exec.session.resp3 };
    for (i, source) in sources.into_iter().enumerate() {
        let who = Spoken { key: args.at(first + i), group: args.at(group_at), consumer: args.at(group_at + 1) };
        let edited = exec.edit(keys.key(i), |stream: &mut Box<Stream>| get(stream, &who, source, &options, now_ms))?;
        let Some(got) = edited.and_then(|edited| edited.result) else { continue };
        if got.created {
            group::tell_of_consumer(exec, keys.key(i), &who);
        }
        if let Some((entries, part, len)) = got.part {
            if let (Part::New(rank), false) = (&part, options.no_ack) {
                let ids = entries.iter_from(*rank).take(len).map(|entry| entry.id);
                group::log_claims(exec, keys.key(i), &who, ids, now_ms, 1, got.last_id);
            }
            if got.advanced {
                group::log_last_id(exec, keys.key(i), &who, got.last_id, got.entries_read);
            }
            found.push(who.key, entries, part, len);
        }
    }
    if !found.all.is_empty() {
        drop(keys);
        return found.answer(exec);
    }
    match options.block {
        Some(until_ms) => wait(exec, &mut keys, args, until_ms, |_| None),
        None => {
            exec.reply.put().null_array();
            Ok(())
        }
    }
}
