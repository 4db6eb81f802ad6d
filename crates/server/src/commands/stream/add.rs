//! Adding entries and removing them.

use super::id::{self, IdText, NewId};
use super::{peek, ready};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::exec::{Edited, Exec, Locked, Outcome, ReplyError, Stop, error};
use crate::notify;
use crate::offload::{self, Command, Missing};
use gimmal_store::types::{Exactness, Keep, References, Stream, StreamId};

const BELOW: ReplyError = error("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const ZERO: ReplyError = error("ERR The ID specified in XADD must be greater than 0-0");
const EXHAUSTED: ReplyError = error("ERR The stream has exhausted the last possible ID, unable to add more items");
const TOO_LARGE: ReplyError = error("ERR Elements are too large to be stored");
/// Bytes of an entry from which on Redis refuses it.
const ENTRY_MAX: usize = 1 << 30;

/// How a stream is to be trimmed.
struct Trim {
    keep: Keep,
    approximate: bool,
    exactness: Exactness,
    references: References,
}

/// The word for what becomes of references to a removed entry.
pub(super) fn references(args: &Args<'_>, at: usize) -> Option<References> {
    let words = [("KEEPREF", References::Keep), ("DELREF", References::Delete), ("ACKED", References::Acked)];
    words.into_iter().find(|(word, _)| args.is(at, word)).map(|(_, references)| references)
}

/// The options of XADD and XTRIM.
struct Options {
    trim: Option<Trim>,
    no_stream: bool,
    /// Where the id is, for XADD.
    id_at: usize,
    id: NewId,
}

/// Reads the options of XADD or XTRIM.
fn options(exec: &Exec<'_>, args: &Args<'_>, adds: bool) -> Result<Options, ReplyError> {
    let (mut keep, mut approximate, mut limit, mut no_stream) = (None, false, None, false);
    let (mut id, mut at, mut refs) = (NewId::Auto, 2, None);
    while at < args.len() {
        let more = args.len() - 1 - at;
        if adds && args.at(at) == b"*" {
            break;
        } else if more > 0 && (args.is(at, "MAXLEN") || args.is(at, "MINID")) {
            if keep.is_some() {
                return Err("ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into());
            }
            let by_length = args.is(at, "MAXLEN");
            approximate = more >= 2 && args.at(at + 1) == b"~";
            at += if more >= 2 && matches!(args.at(at + 1), b"~" | b"=") { 2 } else { 1 };
            keep = Some(if by_length {
                let most = u64::try_from(args.int(at)?);
                Keep::Newest(most.map_err(|_| error("ERR The MAXLEN argument must be >= 0."))?)
            } else {
                Keep::From(id::strict(args.at(at), 0)?)
            });
        } else if more > 0 && args.is(at, "LIMIT") {
            at += 1;
            let most = usize::try_from(args.int(at)?);
            limit = Some(most.map_err(|_| error("ERR The LIMIT argument must be >= 0."))?);
        } else if let (Some(given), None) = (references(args, at), refs) {
            refs = Some(given);
        } else if adds && args.is(at, "NOMKSTREAM") {
            no_stream = true;
        } else if adds {
            id = id::new_id(args.at(at))?;
            break;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    if keep.is_none() && limit.is_some_and(|limit| limit > 0) {
        return Err("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy".into());
    }
    if keep.is_none() && !adds {
        return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
    }
    if limit.is_some() && !approximate {
        return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
    }
    let exactness = exactness(exec, approximate, limit);
    let references = refs.unwrap_or_default();
    let trim = keep.map(|keep| Trim { keep, approximate, exactness, references });
    Ok(Options { trim, no_stream, id_at: at, id })
}

/// By whole nodes, as large as the configuration says, and at most a hundred of them if there is no limit.
fn exactness(exec: &Exec<'_>, approximate: bool, limit: Option<usize>) -> Exactness {
    if !approximate {
        return Exactness::Exact;
    }
    let configured = exec.local.config.stream_node_max_entries();
    let size = if configured == 0 { 100 } else { configured };
    let limit = limit.unwrap_or_else(|| size.saturating_mul(100).min(1_000_000));
    Exactness::Nodes { size, limit }
}

impl Trim {
    fn apply(&self, stream: &mut Stream) -> usize {
        stream.trim_referenced(self.keep, self.exactness, self.references)
    }

    /// The word for the log, if it is not what goes without saying.
    fn word(&self) -> Option<&'static [u8]> {
        match self.references {
            References::Keep => None,
            References::Delete => Some(b"DELREF"),
            References::Acked => Some(b"ACKED"),
        }
    }

    /// What a log or a replica is to do: to the entry, whatever was removed by nodes.
    fn as_effect(&self, stream: &Stream) -> (&'static [u8], Vec<u8>) {
        match self.keep {
            // The first entry may be one that had to stay: the number of entries says what went.
            Keep::From(_) if self.approximate && self.references == References::Acked => {
                (b"MAXLEN", itoa::Buffer::new().format(stream.len()).as_bytes().to_vec())
            }
            Keep::Newest(most) => {
                let most = if self.approximate { stream.len() as u64 } else { most };
                (b"MAXLEN", itoa::Buffer::new().format(most).as_bytes().to_vec())
            }
            Keep::From(id) => {
                // Without entries there is no first: then everything up to the last is gone.
                let first = stream.entries().first_id().unwrap_or(id);
                (b"MINID", IdText::new(if self.approximate { first } else { id }).bytes().to_vec())
            }
        }
    }
}

/// What came of an entry.
struct Added {
    id: StreamId,
    trimmed: usize,
    trim: Option<(&'static [u8], Vec<u8>)>,
}

fn add(stream: &mut Stream, options: &Options, args: &Args<'_>, now_ms: i64) -> Result<Added, ReplyError> {
    let last = stream.last_id();
    if last == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    let id = match options.id {
        NewId::Exactly(id) => id,
        NewId::Within(ms) if ms == last.ms => StreamId { ms, seq: last.seq.checked_add(1).ok_or(BELOW)? },
        NewId::Within(ms) => StreamId { ms, seq: 0 },
        NewId::Auto => stream.next_id(u64::try_from(now_ms).unwrap_or(0)).ok_or(EXHAUSTED)?,
    };
    if id <= last {
        return Err(BELOW);
    }
    let fields = (options.id_at + 1..args.len()).step_by(2);
    stream.append(id, fields.map(|at| (args.at(at), args.at(at + 1))));
    let trimmed = options.trim.as_ref().map_or(0, |trim| trim.apply(stream));
    let trim = options.trim.as_ref().map(|trim| trim.as_effect(stream));
    Ok(Added { id, trimmed, trim })
}

pub(super) fn xadd(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = options(exec, args, true)?;
    let first = options.id_at + 1;
    if first + 2 > args.len() || (args.len() - first) % 2 == 1 {
        return Err("ERR wrong number of arguments for 'xadd' command".into());
    }
    if options.id == NewId::Exactly(StreamId::MIN) {
        return Err(ZERO.into());
    }
    if (first..args.len())
        .try_fold(0, |sum: usize, at| sum.checked_add(args.length(at)))
        .is_none_or(|sum| sum > ENTRY_MAX)
    {
        return Err(TOO_LARGE.into());
    }
    let mut key = exec.lock(args.at(1))?;
    let now_ms = exec.clock_ms();
    if options.no_stream && peek(exec, key.key())?.is_none() {
        exec.reply.put().null();
        return Ok(());
    }
    let edited = exec.edit_or_create(key.key(), |stream: &mut Box<Stream>| add(stream, &options, args, now_ms))?;
    let added = edited.result?;
    let id = IdText::new(added.id);
    if exec.local.log_active {
        let mut words: Vec<&[u8]> = vec![b"XADD", args.at(1)];
        if let Some((strategy, threshold)) = &added.trim {
            words.extend(options.trim.as_ref().and_then(Trim::word));
            words.extend([*strategy, b"=", threshold]);
        }
        words.push(id.bytes());
        words.extend(args.rest(first));
        exec.effect(key.key(), &words);
    } else {
        exec.effect(key.key(), &[]);
    }
    exec.notify(notify::STREAM, "xadd", args.at(1));
    if added.trimmed > 0 {
        exec.notify(notify::STREAM, "xtrim", args.at(1));
    }
    exec.reply.put().bulk(id.bytes());
    Ok(())
}

pub(super) fn xtrim(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = options(exec, args, false)?;
    let Some(trim) = options.trim else { return Err(SYNTAX.into()) };
    let mut key = exec.lock(args.at(1))?;
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| {
        let removed = trim.apply(stream);
        (removed, trim.as_effect(stream))
    })?;
    let Some((removed, (strategy, threshold))) = edited.map(|edited| edited.result) else {
        exec.reply.put().count(0);
        return Ok(());
    };
    if removed > 0 {
        let words = [b"XTRIM", args.at(1), strategy, b"=", &threshold].into_iter().chain(trim.word());
        exec.effect(key.key(), &words.collect::<Vec<_>>());
        exec.changed(removed as u64 - 1);
        exec.notify(notify::STREAM, "xtrim", args.at(1));
    }
    exec.reply.put().count(removed);
    Ok(())
}

pub(super) fn xdel(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let alter = |stream: &mut Box<Stream>, args: &Args<'_>, _| -> Result<usize, ReplyError> {
        Ok(id::all(args, 2)?.iter().filter(|id| stream.delete(**id)).count())
    };
    offload::edit(exec, args, Command { key: 1, handler: xdel }, Missing::Leave, args.len(), alter, deleted)
}

fn deleted(
    exec: &mut Exec<'_>,
    args: &Args<'_>,
    mut key: Locked<'_>,
    edited: Option<Edited<Result<usize, ReplyError>>>,
) -> Outcome {
    let deleted = edited.map_or(Ok(0), |edited| edited.result)?;
    if deleted > 0 {
        let words = [b"XDEL", args.at(1)].into_iter().chain(args.rest(2));
        let words: Vec<&[u8]> = if exec.local.log_active { words.collect() } else { Vec::new() };
        exec.effect(key.key(), &words);
        exec.changed(deleted as u64 - 1);
        exec.notify(notify::STREAM, "xdel", args.at(1));
    }
    exec.reply.put().count(deleted);
    Ok(())
}

pub(super) fn xsetid(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let last = id::strict(args.at(2), 0)?;
    let (mut added, mut deleted, mut at) = (None, StreamId::MIN, 3);
    while at < args.len() {
        if args.is(at, "ENTRIESADDED") && at + 1 < args.len() {
            let count = u64::try_from(args.int(at + 1)?);
            added = Some(count.map_err(|_| error("ERR entries_added must be positive"))?);
        } else if args.is(at, "MAXDELETEDID") && at + 1 < args.len() {
            deleted = id::strict(args.at(at + 1), 0)?;
            if last < deleted {
                return Err("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into());
            }
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let mut key = exec.lock(args.at(1))?;
    let edited = exec.edit(key.key(), |stream: &mut Box<Stream>| -> Result<(), ReplyError> {
        if last < stream.max_deleted_id() {
            return Err(error("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
        }
        if stream.entries().last_id().is_some_and(|top| last < top) {
            return Err(error("ERR The ID specified in XSETID is smaller than the target stream top item"));
        }
        if !stream.is_empty() && added.is_some_and(|added| added < stream.len() as u64) {
            return Err(error("ERR The entries_added specified in XSETID is smaller than the target stream length"));
        }
        stream.set_last_id(last);
        if let Some(added) = added {
            stream.set_entries_added(added);
        }
        if deleted != StreamId::MIN {
            stream.set_max_deleted_id(deleted);
        }
        Ok(())
    })?;
    edited.ok_or(Stop::from("ERR no such key"))?.result?;
    let words: Vec<&[u8]> = args.rest(0).collect();
    ready(exec, key.key(), &words, "xsetid");
    exec.reply.put().ok();
    Ok(())
}
