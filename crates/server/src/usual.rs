//! The usual commands of a batch, one after the other: each is known, stopped by no gate and shown to no monitor, so that there is
//! nothing to do for it but to call its handler. Whatever else may follow from a command (it has not replied, it published, it
//! woke a waiter, its connection is to be closed) ends the sequence, and is `serve.rs`'s.
//!
//! What a command costs beside its handler is paid once for many. They share one [`Exec`]. A *run* of brief commands of one name
//! is counted at its end, and timed as a whole: reading the clock takes about as long as a look-up. So calls and time in INFO
//! commandstats are exact, durations in histograms are shares, and of a run in which the machine stalled for longer than the
//! slow log's threshold the last command is entered. Where a threshold is so low that a brief command could reach it by what it
//! does itself, each command is timed alone ([`Local::timed_together`](crate::worker::Local)), as are all that are not brief,
//! have many arguments or had much to say.

use crate::args::Args;
use crate::batch::{Parsed, Scratch};
use crate::command::{Entry, Sought};
use crate::connection::Connection;
use crate::dispatch;
use crate::exec::{Exec, Outcome};
use crate::reply::Reply;
use crate::session::ReplyMode;
use crate::worker::State;
use gimmal_log::Lsn;
use gimmal_resp::Span;
use gimmal_store::Batch;
use gimmal_store::types::ahead::TOGETHER;

/// What bounds a connection's batch, and what its replies depend on.
pub struct Turn {
    /// Raw time after which it is over.
    pub until: u64,
    /// How much output is enough.
    pub full_at: usize,
    /// The replies so far show writes up to here.
    pub depends_on: Lsn,
}

/// Most commands of a run: reading the clock is then a few percent of it.
pub const RUN: usize = 8;
/// With more arguments a command is not brief.
const FEW_ARGUMENTS: usize = 8;
/// With a longer reply it was not.
const SHORT_REPLY: usize = 1024;

impl State {
    /// Executes commands from number `from` on as long as they are usual; returns how many, and the outcome of the last.
    pub fn execute_usual(
        &mut self,
        c: &mut Connection,
        buffer: &[u8],
        s: &Scratch,
        from: usize,
        batch: &Batch<'_>,
        turn: &mut Turn,
    ) -> (usize, Outcome) {
        let apart = c.session.reply_mode != ReplyMode::On || self.local.log_failed;
        if apart || self.local.tracks_cpu || buffer.len() >= self.local.large_request {
            return (0, Ok(()));
        }
        if c.output.head_capacity() == 0 {
            c.output = self.spare.take();
        }
        let resp3 = c.session.resp3;
        let mut exec = Exec {
            shared: &self.shared,
            local: &mut self.local,
            session: &mut c.session,
            reply: Reply::new(&mut c.output, resp3),
            batch,
            depends_on: turn.depends_on,
            hint: None,
        };
        let (mut at, mut outcome) = (from, Ok(()));
        while let Some(entry) = usual(&exec, s.parsed.get(at)) {
            let ran;
            (ran, outcome) = run(&mut exec, entry, &s.parsed[at..], buffer, &s.spans);
            at += ran;
            let over = exec.local.now_raw() > turn.until || exec.reply.output().end() > turn.full_at;
            if over || outcome.is_err() || is_interrupted(&exec) {
                break;
            }
        }
        turn.depends_on = exec.depends_on;
        (at - from, outcome)
    }
}

/// The command's declaration, if it is usual.
#[inline(always)]
fn usual(exec: &Exec<'_>, command: Option<&Parsed>) -> Option<&'static Entry> {
    let command = command.filter(|command| command.named.fits && !command.detached)?;
    command.named.entry.filter(|entry| entry.gates & exec.active_gates() == 0 && !exec.local.monitored)
}

/// Executes the first command, and those behind it that belong to its run; returns how many, and the outcome of the last.
#[inline(always)]
fn run(
    exec: &mut Exec<'_>,
    entry: &'static Entry,
    commands: &[Parsed],
    buffer: &[u8],
    spans: &[Span],
) -> (usize, Outcome) {
    exec.session.last_command = u32::try_from(entry.id).unwrap_or(u32::MAX);
    // The command before may have chosen the protocol.
    exec.reply.switch(exec.session.resp3);
    let is_brief = |command: &Parsed| entry.is_brief && command.spans.len() <= FEW_ARGUMENTS;
    let most = if is_brief(&commands[0]) { exec.local.timed_together } else { 1 };
    if let Some(sought) = entry.command.sought
        && most > 1
    {
        request(exec, entry, sought, commands, buffer, spans);
    }
    let mut end = exec.reply.output().end();
    let enough = end + SHORT_REPLY.min(exec.local.large_reply);
    let mut ran = 0;
    loop {
        let command = &commands[ran];
        let (args, before) = (Args::new(buffer, &spans[command.spans.clone()], &[]), end);
        exec.hint = command.hint;
        let outcome = (entry.command.run)(exec, &args);
        if let Err(stop) = outcome {
            if ran > 0 {
                dispatch::ran(exec, entry, &args, ran, before);
            }
            return (ran + 1, Err(dispatch::stopped(exec, entry, &args, before, stop)));
        }
        ran += 1;
        end = exec.reply.output().end();
        let goes_on = ran < most
            && end < enough
            && !is_interrupted(exec)
            && commands.get(ran).is_some_and(|next| {
                usual(exec, Some(next)).is_some_and(|other| std::ptr::eq(other, entry)) && is_brief(next)
            });
        if !goes_on {
            dispatch::ran(exec, entry, &args, ran, before);
            return (ran, Ok(()));
        }
    }
}

/// Requests from memory the elements that the first commands look for, if there are several of one name and key.
#[inline]
fn request(
    exec: &mut Exec<'_>,
    entry: &'static Entry,
    sought: Sought,
    commands: &[Parsed],
    buffer: &[u8],
    spans: &[Span],
) {
    let Some((_, hash)) = commands[0].hint else { return };
    let is_alike = |command: &&Parsed| {
        command.named.entry.is_some_and(|other| std::ptr::eq(other, entry))
            && command.named.fits
            && !command.detached
            && command.hint.is_some_and(|(_, other)| other == hash)
    };
    if !commands.get(1).is_some_and(|next| is_alike(&next)) {
        return;
    }
    let arguments = |command: &Parsed| Args::new(buffer, &spans[command.spans.clone()], &[]);
    let key = arguments(&commands[0]).at(entry.first_key);
    exec.request_elements(hash, key, sought.places, || {
        let (mut names, mut found): ([&[u8]; TOGETHER], _) = ([&[]; TOGETHER], 0);
        for command in commands.iter().take(RUN).take_while(is_alike) {
            let args = arguments(command);
            let all = (sought.first..args.len()).step_by(sought.step);
            for (name, i) in names[found..].iter_mut().zip(all) {
                *name = args.at(i);
                found += 1;
            }
        }
        (names, found)
    });
}

/// Whether something is to be done before the next command.
#[inline(always)]
fn is_interrupted(exec: &Exec<'_>) -> bool {
    !exec.local.ready_keys.is_empty() || exec.local.pubsub.published || exec.session.close_after_reply
}
