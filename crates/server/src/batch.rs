//! A batch of commands ahead of its execution: found in a connection's bytes, named, hashed, requested from memory. A command that
//! begins as the one before is known by that.
//!
//! Everything is kept in a [`Scratch`] of the worker, so that nothing is allocated; spans point into the received bytes.

use crate::args::{Args, Detached};
use crate::command::Entry;
use crate::connection::Connection;
use crate::dispatch;
use crate::exec::Hint;
use crate::serve::PASS_COMMANDS;
use crate::worker::State;
use gimmal_io::Requests;
use gimmal_resp::{Beginning, Limits, Next, ProtocolError, Span};
use gimmal_store::{Batch, Hash};
use std::ops::Range;
use std::ptr::NonNull;

/// From this many commands on a batch is prefetched; below, the loads overlap too little to pay.
const PREFETCH_FROM: usize = 3;
/// Arguments from which on a command is kept with the buffer in which it came rather than copied.
const WIDE: usize = 4096;

/// Scratch space of the parser, one per worker.
#[derive(Default)]
pub struct Scratch {
    /// Of all commands, one after another.
    pub spans: Vec<Span>,
    /// The commands.
    pub parsed: Vec<Parsed>,
    /// Of their keys, without one that is the key before: what is prefetched.
    hashes: Vec<Hash>,
    /// How the last command of a client that has authenticated began, whoever's it was, and what that says of a command.
    last: (Beginning, Named),
}

impl Scratch {
    /// Makes room for the next batch.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.parsed.clear();
        self.hashes.clear();
    }

    /// Whether there is nothing but a command of very many arguments.
    pub fn is_wide(&self) -> bool {
        self.spans.len() > WIDE && self.parsed.len() == 1
    }
}

/// A parsed command.
pub struct Parsed {
    /// Its arguments in `Scratch::spans`.
    pub spans: Range<usize>,
    /// Where its bytes begin in the buffer.
    pub begin: usize,
    /// It has arguments that are large, or were a line with quotes: they are the connection's `detached`.
    pub detached: bool,
    /// What it is.
    pub named: Named,
    /// Its first key, hashed.
    pub hint: Hint,
}

/// What name and number of arguments say of a command.
#[derive(Clone, Copy, Default)]
pub struct Named {
    /// Its declaration.
    pub entry: Option<&'static Entry>,
    /// It has a handler, and the number of arguments that this wants.
    pub fits: bool,
    /// Argument index of its first key; 0: it has none, or not here.
    key_at: usize,
}

impl Named {
    fn new(entry: Option<&'static Entry>, args: usize) -> Named {
        let Some(found) = entry else { return Named::default() };
        let fits = found.subcommands.is_empty() && found.command.accepts(args);
        Named { entry, fits, key_at: if found.first_key < args { found.first_key } else { 0 } }
    }
}

/// What stopped the parser.
pub enum Found {
    /// The batch is full.
    More,
    /// The rest is not complete.
    Rest,
    /// A large argument begins at this position, of which this many bytes are missing.
    Large(usize, usize),
    /// The stream is broken.
    Broken(ProtocolError),
}

impl State {
    /// Parses up to `most` commands, hashes their keys and requests the keys' locks and roots; returns the first byte to keep, and
    /// what ended the batch.
    pub fn parse(
        &self,
        c: &mut Connection,
        buffer: &[u8],
        from: usize,
        most: usize,
        s: &mut Scratch,
        batch: &Batch<'_>,
    ) -> (usize, Found) {
        let limits = match c.session.authenticated {
            true => Limits::authenticated(self.local.config.proto_max_bulk_len()),
            false => Limits::unauthenticated(),
        };
        // Before authentication each command may change the limits of the next.
        let most = if c.session.authenticated { most } else { 1 };
        let keyspace = &self.shared.keyspace;
        let ahead = keyspace.ahead(batch, c.session.db);
        // Others have other limits.
        let (mut beginning, mut named) = if c.session.authenticated { s.last } else { Default::default() };
        // Of a pipeline that fills one list or counts one thing the key need not be hashed each time.
        let mut last: Option<(&[u8], Hash)> = None;
        let mut at = from;
        let ended = loop {
            if s.parsed.len() >= most {
                break (at, Found::More);
            }
            let (begin, first) = (at, s.spans.len());
            match c.parser.next_after(buffer, &mut at, &limits, &mut s.spans, &mut beginning) {
                Ok((Next::Command, true)) => {}
                Ok((Next::Command, false)) if s.spans.len() == first => continue,
                Ok((Next::Command, false)) => named = self.name_after(buffer, s, first, named, &c.detached),
                Ok((Next::Inline(words), _)) => {
                    let spans = (0..).zip(&words).map(|(i, _)| Span { start: Span::DETACHED, len: i });
                    s.spans.extend(spans);
                    c.detached = words.into_iter().map(Detached::Bytes).collect();
                    named = self.name(buffer, &s.spans[first..], &c.detached);
                }
                Ok((Next::Incomplete, _)) => break (at, Found::Rest),
                Ok((Next::Large { missing }, _)) => break (begin, Found::Large(at, missing)),
                Err(error) => break (at, Found::Broken(error)),
            }
            let spans = first..s.spans.len();
            let detached = !c.detached.is_empty();
            let mut hint = None;
            if named.key_at != 0 && !detached {
                let key = s.spans[first + named.key_at].bytes(buffer);
                let hash = match last {
                    Some((before, hash)) if is_same(before, key) => hash,
                    _ => {
                        let hash = keyspace.hash(key);
                        ahead.iter().for_each(|ahead| ahead.shard(hash));
                        s.hashes.push(hash);
                        last = Some((key, hash));
                        hash
                    }
                };
                hint = Some((NonNull::from(key).addr(), hash));
            }
            let wide = spans.len() > WIDE;
            s.parsed.push(Parsed { spans, begin, detached, named, hint });
            if detached || wide {
                break (at, Found::More);
            }
        };
        if c.session.authenticated {
            s.last = (beginning, named);
        }
        ended
    }

    /// As [`State::parse`], for commands that were found already, these ones of `requests`.
    pub fn take_parsed(
        &self,
        c: &Connection,
        buffer: &[u8],
        requests: &Requests,
        which: Range<usize>,
        s: &mut Scratch,
        batch: &Batch<'_>,
    ) {
        let keyspace = &self.shared.keyspace;
        let ahead = keyspace.ahead(batch, c.session.db);
        for at in which {
            let (begin, from) = at.checked_sub(1).map_or((0, 0), |before| requests.ends[before]);
            let arguments = &requests.arguments[from as usize..requests.ends[at].1 as usize];
            let first = s.spans.len();
            s.spans.extend(arguments.iter().map(|&(start, len)| Span { start, len }));
            let before = s.parsed.last().map_or(Named::default(), |last| last.named);
            let named = self.name_after(buffer, s, first, before, &[]);
            let mut hint = None;
            if named.key_at != 0 {
                let key = s.spans[first + named.key_at].bytes(buffer);
                let hash = keyspace.hash(key);
                ahead.iter().for_each(|ahead| ahead.shard(hash));
                s.hashes.push(hash);
                hint = Some((NonNull::from(key).addr(), hash));
            }
            let spans = first..s.spans.len();
            s.parsed.push(Parsed { spans, begin: begin as usize, detached: false, named, hint });
        }
    }

    /// What the command is whose arguments begin at `first`: what the one before is, if that has the same name and as many of them.
    fn name_after(&self, buffer: &[u8], s: &Scratch, first: usize, before: Named, detached: &[Detached]) -> Named {
        let spans = &s.spans[first..];
        if let Some(last) = s.parsed.last().filter(|last| !last.detached && detached.is_empty())
            && let Some(name) = s.spans.get(last.spans.start).filter(|_| last.spans.len() == spans.len())
            && name.bytes(buffer) == spans[0].bytes(buffer)
        {
            return before;
        }
        self.name(buffer, spans, detached)
    }

    fn name(&self, buffer: &[u8], spans: &[Span], detached: &[Detached]) -> Named {
        let args = Args::new(buffer, spans, detached);
        Named::new(dispatch::lookup(self.shared.commands, &args), args.len())
    }

    /// Brings the directories of the batch's keys, then their buckets, then their entries, towards the processor.
    #[inline]
    pub fn prefetch(&self, c: &Connection, scratch: &Scratch, batch: &Batch<'_>) {
        let hashes = &scratch.hashes;
        if hashes.len() < PREFETCH_FROM {
            return;
        }
        let Some(ahead) = self.shared.keyspace.ahead(batch, c.session.db) else { return };
        hashes.iter().for_each(|hash| ahead.directory(*hash));
        if self.local.log_active {
            hashes.iter().for_each(|hash| ahead.stamps(*hash));
        }
        let mut buckets = [None; PASS_COMMANDS];
        for (bucket, hash) in buckets.iter_mut().zip(hashes) {
            *bucket = ahead.bucket(*hash);
        }
        for bucket in buckets[..hashes.len().min(PASS_COMMANDS)].iter().flatten() {
            bucket.prefetch_entry();
        }
    }
}

/// Whether two keys are equal. Different ones mostly end differently: that is found out without a call.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.last_chunk::<8>() == other.last_chunk::<8>() && one == other
}
