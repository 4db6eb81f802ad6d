//! A batch of commands ahead of its execution: found in a connection's bytes, named, hashed, requested from memory.
//!
//! Everything is kept in a [`Scratch`] of the worker, so that nothing is allocated; spans point into the received bytes.

use crate::args::{Args, Detached};
use crate::command::Entry;
use crate::connection::Connection;
use crate::dispatch;
use crate::serve::PASS_COMMANDS;
use crate::worker::State;
use gimmal_resp::{Limits, Next, ProtocolError, Span};
use gimmal_store::{Batch, Hash};

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
}

impl Scratch {
    /// Makes room for the next batch.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.parsed.clear();
    }

    /// Whether there is nothing but a command of very many arguments.
    pub fn is_wide(&self) -> bool {
        self.spans.len() > WIDE && self.parsed.len() == 1
    }
}

/// A parsed command.
pub struct Parsed {
    /// Its arguments in `Scratch::spans`.
    pub spans: std::ops::Range<usize>,
    /// Where its bytes begin in the buffer.
    pub begin: usize,
    /// It has large or inline arguments, which are the connection's `detached`.
    pub detached: bool,
    /// Its declaration.
    pub entry: Option<&'static Entry>,
    /// Where its first key is in memory, and its hash, once prefetched.
    pub hint: Option<(usize, Hash)>,
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
    /// Parses up to `most` commands; returns the first byte to keep, and what ended the batch.
    pub fn parse(
        &self,
        c: &mut Connection,
        buffer: &[u8],
        from: usize,
        most: usize,
        s: &mut Scratch,
    ) -> (usize, Found) {
        let limits = match c.session.authenticated {
            true => Limits::authenticated(self.local.config.proto_max_bulk_len()),
            false => Limits::unauthenticated(),
        };
        // Before authentication each command may change the limits of the next.
        let most = if c.session.authenticated { most } else { 1 };
        let (mut at, mut last) = (from, None);
        while s.parsed.len() < most {
            let (begin, first) = (at, s.spans.len());
            match c.parser.next(buffer, &mut at, &limits, &mut s.spans) {
                Ok(Next::Command) if s.spans.len() == first => continue,
                Ok(Next::Command) => {}
                Ok(Next::Inline(words)) => {
                    let spans = (0..).zip(&words).map(|(i, _)| Span { start: Span::DETACHED, len: i });
                    s.spans.extend(spans);
                    c.detached = words.into_iter().map(Detached::Bytes).collect();
                }
                Ok(Next::Incomplete) => return (at, Found::Rest),
                Ok(Next::Large { missing }) => return (begin, Found::Large(at, missing)),
                Err(error) => return (at, Found::Broken(error)),
            }
            let spans = first..s.spans.len();
            let detached = !c.detached.is_empty();
            let word = word_at(buffer, s.spans[first]);
            let entry = match last {
                Some((last_word, entry)) if word == Some(last_word) => entry,
                _ => {
                    let args = Args::new(buffer, &s.spans[spans.clone()], &c.detached);
                    dispatch::lookup(self.shared.commands, &args)
                }
            };
            last = word.map(|word| (word, entry));
            let wide = spans.len() > WIDE;
            s.parsed.push(Parsed { spans, begin, detached, entry, hint: None });
            if detached || wide {
                break;
            }
        }
        (at, Found::More)
    }

    /// Hashes the batch's keys and brings their locks and roots, then their buckets, then their entries, towards the processor.
    #[inline]
    pub fn prefetch<'k>(&self, c: &Connection, buffer: &[u8], scratch: &mut Scratch, batch: &Batch<'k>) {
        if scratch.parsed.len() < PREFETCH_FROM {
            return;
        }
        let keyspace = &self.shared.keyspace;
        let Some(ahead) = keyspace.ahead(batch, c.session.db) else { return };
        let Scratch { spans, parsed } = scratch;
        for command in parsed.iter_mut() {
            let at = command.entry.map_or(0, |entry| entry.first_key);
            if at == 0 || at >= command.spans.len() || command.detached {
                continue;
            }
            let key = spans[command.spans.start + at].bytes(buffer);
            let hash = keyspace.hash(key);
            ahead.shard(hash);
            command.hint = Some((key.as_ptr() as usize, hash));
        }
        let mut buckets = [None; PASS_COMMANDS];
        for (bucket, command) in buckets.iter_mut().zip(parsed.iter()) {
            *bucket = command.hint.and_then(|(_, hash)| ahead.bucket(hash));
        }
        for bucket in buckets[..parsed.len()].iter().flatten() {
            bucket.prefetch_entry();
        }
    }
}

/// A name of up to eight bytes as one word, by which the next command of the same name is known: pipelines repeat themselves. `None`
/// if it is longer, or stands at the end of the buffer.
#[inline(always)]
fn word_at(buffer: &[u8], name: Span) -> Option<(u64, u32)> {
    if name.is_detached() || !(1..=8).contains(&name.len) {
        return None;
    }
    let bytes = buffer.get(name.start as usize..)?.first_chunk()?;
    // With its length, since a client may send zero bytes.
    Some((u64::from_le_bytes(*bytes) & u64::MAX >> (64 - 8 * name.len), name.len))
}
