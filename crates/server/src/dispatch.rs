//! From arguments to a handler: lookup, arity, gates, the call, its statistics.

use crate::args::Args;
use crate::command::{Entry, flag, gate};
use crate::events::Sample;
use crate::exec::{Exec, Outcome, ReplyError, Stop, error};
use crate::shared::Hold;
use crate::slowlog::{self, Kind};
use crate::worker::STALE_US;
use crate::{evict, monitor, persist, tracking, tx};
use std::borrow::Cow;

/// Finds the command of these arguments. A large one is no command's name.
pub fn lookup<'t>(commands: &'t crate::command::Table, args: &Args<'_>) -> Option<&'t Entry> {
    if args.rope(0).is_some() { None } else { commands.find(args.at(0)) }
}

/// Runs one command: its reply, or the reason why there is none yet, is what comes back.
#[inline]
pub fn run(exec: &mut Exec<'_>, found: Option<&'static Entry>, args: &Args<'_>) -> Outcome {
    let Some(mut entry) = found else {
        exec.session.spoil();
        return unknown(exec, args);
    };
    if !entry.subcommands.is_empty() && args.len() > 1 {
        match entry.subcommand(args.at(1)) {
            Some(sub) => entry = sub,
            None => {
                exec.session.spoil();
                return Err(unknown_subcommand(entry, args));
            }
        }
    }
    if !entry.command.accepts(args.len()) {
        let text = format!("ERR wrong number of arguments for '{}' command", entry.full_name);
        return Err(rejected(exec, entry, text.into()));
    }
    let closed = entry.gates & exec.active_gates();
    // With a memory limit that gate is always closed: most commands find room at a look.
    let stops = closed != 0 && (closed != gate::MEMORY || evict::is_over(exec.local, exec.shared));
    if stops && !passes(exec, entry, args)? {
        return Ok(());
    }
    call(exec, entry, args)
}

/// Runs a command of the log that is being replayed: nothing refuses it, and it is not counted.
#[inline]
pub fn replay(exec: &mut Exec<'_>, found: Option<&'static Entry>, args: &Args<'_>) -> Outcome {
    exec.session.commands += 1;
    let Some(mut entry) = found else { return unknown(exec, args) };
    if !entry.subcommands.is_empty() && args.len() > 1 {
        entry = entry.subcommand(args.at(1)).ok_or_else(|| unknown_subcommand(entry, args))?;
    }
    if !entry.command.accepts(args.len()) {
        return Err(format!("ERR wrong number of arguments for '{}' command", entry.full_name).into());
    }
    match exec.session.multi.is_some() && queues(entry) {
        true => tx::queue(exec, entry, args).map_err(Stop::from),
        false => (entry.command.run)(exec, args),
    }
}

/// Calls a command's handler, and counts it.
#[inline]
pub fn call(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) -> Outcome {
    if exec.local.monitored { monitor::call(exec, entry, args) } else { carry_out(exec, entry, args) }
}

/// As [`call`], and nobody is shown it.
#[inline]
pub fn carry_out(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) -> Outcome {
    exec.session.last_command = u32::try_from(entry.id).unwrap_or(u32::MAX);
    let before = exec.reply.output().end();
    let outcome = match exec.local.tracks_cpu {
        false => (entry.command.run)(exec, args),
        true => measured(exec, |exec| (entry.command.run)(exec, args)),
    };
    match outcome {
        Ok(()) => {
            ran(exec, entry, args, 1, before);
            Ok(())
        }
        Err(stop) => Err(stopped(exec, entry, args, before, stop)),
    }
}

/// Runs a command, or a slice of one, and remembers the processor time that it took, if that is the most so far.
#[cold]
pub fn measured<T>(exec: &mut Exec<'_>, run: impl FnOnce(&mut Exec<'_>) -> T) -> T {
    let before = crate::os::thread_cpu();
    let outcome = run(exec);
    // Rounded up: 0 means that nothing was measured.
    let took_us = (crate::os::thread_cpu() - before).as_nanos().div_ceil(1000);
    let took_us = u64::try_from(took_us).unwrap_or(u64::MAX);
    let stats = &exec.local.stats;
    if let Ok(id) = usize::try_from(exec.session.last_command) {
        stats.command(id).cpu_max_us.raise(took_us);
    }
    stats.command_cpu_max_us.raise(took_us);
    outcome
}

/// Records what a command took, or some of them, of which this is the last; `before` is how much output there was before it.
#[inline]
pub fn ran(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>, times: usize, before: usize) {
    let nanos = exec.local.lap_ns();
    let stats = &exec.local.stats;
    stats.command(entry.id).ran(times as u64, nanos, exec.local.tracks_latency);
    stats.commands.add(times as u64);
    exec.session.commands += times as u64;
    if nanos >= exec.local.notable_ns {
        notable(exec, entry, args, nanos / 1000);
    }
    // Bounds that cost nothing to look at, and hold for nearly all commands.
    let replied = exec.reply.output().end().saturating_sub(before);
    if replied >= exec.local.large_reply || args.bytes_at_most() >= exec.local.large_request {
        large(exec, entry, args, replied);
    }
}

/// A command whose request or reply may be a large one.
#[cold]
fn large(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>, replied: usize) {
    let requested = exec.sent_bytes(args);
    if requested >= exec.local.large_request {
        slowlog::enter(
            exec.shared,
            exec.local,
            exec.session,
            Kind::LargeRequest,
            entry.command,
            args,
            requested as u64,
        );
    }
    if replied >= exec.local.large_reply {
        slowlog::enter(exec.shared, exec.local, exec.session, Kind::LargeReply, entry.command, args, replied as u64);
    }
}

/// A command took longer than the threshold of the slow log, of the latency monitor, or of both; or so long that the pass's
/// time is no longer the time.
#[cold]
fn notable(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>, micros: u64) {
    let took_us = i64::try_from(micros).unwrap_or(i64::MAX);
    if exec.local.slower_than_us >= 0 && took_us >= exec.local.slower_than_us {
        slowlog::enter(exec.shared, exec.local, exec.session, Kind::Slow, entry.command, args, micros);
    }
    if took_us >= STALE_US && !exec.in_transaction() {
        exec.local.advance_clock();
    }
    if took_us >= exec.local.delayed_us {
        let event = if entry.command.flags & flag::FAST == 0 { "command" } else { "fast-command" };
        let sample = Sample { at_s: exec.now_ms() / 1000, took_ms: micros / 1000 };
        exec.shared.latency.lock().expect("the latency monitor does not panic").add(event, sample);
    }
}

/// Records a command that did not reply by itself. One that will run again, or go on, is not counted yet.
#[cold]
pub fn stopped(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>, before: usize, stop: Stop) -> Stop {
    match stop {
        Stop::Park | Stop::Paused => {
            exec.local.lap_ns();
        }
        Stop::Error(_) => {
            ran(exec, entry, args, 1, before);
            exec.local.stats.command(entry.id).failed.add(1);
        }
        // Counted when its wait is over.
        Stop::Wait if exec.local.blocking.is_some() => {
            exec.local.lap_ns();
        }
        Stop::Wait | Stop::Continue(_) => ran(exec, entry, args, 1, before),
    }
    stop
}

/// Whether a command whose gate is closed is still to be carried out: it may also be refused, wait, be queued, or be carried
/// out here.
#[cold]
fn passes(exec: &mut Exec<'_>, entry: &'static Entry, args: &Args<'_>) -> Result<bool, Stop> {
    match refused(exec, entry) {
        Ok(()) => {}
        Err(Stop::Error(text)) => return Err(rejected(exec, entry, text)),
        Err(stop) => return Err(stop),
    }
    let caches = tracking::is_gated(exec, entry);
    if caches {
        tracking::before(exec);
    }
    if exec.session.multi.is_none() || !queues(entry) {
        return match caches {
            true => tracking::call(exec, entry, args).map(|()| false),
            false => Ok(true),
        };
    }
    match tx::queue(exec, entry, args) {
        Ok(()) => Ok(false),
        Err(text) => Err(rejected(exec, entry, text)),
    }
}

/// Whether the command is queued in MULTI.
fn queues(entry: &Entry) -> bool {
    entry.gates & gate::IN_MULTI != 0 && !is_exec(entry)
}

fn is_exec(entry: &Entry) -> bool {
    entry.full_name == "exec"
}

/// A command that is not carried out spoils the transaction it was to be part of; a refused EXEC ends it.
#[cold]
fn rejected(exec: &mut Exec<'_>, entry: &Entry, text: ReplyError) -> Stop {
    exec.local.stats.command(entry.id).rejected.add(1);
    if is_exec(entry) {
        exec.session.discard();
        let text = text.strip_prefix("ERR ").unwrap_or(&text);
        return format!("EXECABORT Transaction discarded because of: {text}").into();
    }
    exec.session.spoil();
    Stop::Error(text)
}

/// In the order of Redis: who is asked for a password learns nothing else.
fn refused(exec: &mut Exec<'_>, entry: &Entry) -> Outcome {
    // EXEC waits, and is refused, for what is queued.
    let queued = if is_exec(entry) { exec.session.multi.as_ref().map_or(0, |multi| multi.gates()) } else { 0 };
    let active = (entry.gates | queued) & exec.active_gates();
    if active & gate::NEEDS_AUTH != 0 {
        if !exec.local.config.requirepass().is_empty() {
            return Err("NOAUTH Authentication required.".into());
        }
        // The password was taken away after this client had connected.
        exec.session.authenticated = true;
    }
    if active & gate::IN_MULTI != 0 && entry.command.flags & flag::NO_MULTI != 0 {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    if active & gate::DISK != 0 {
        persist::admit(exec)?;
    }
    if active & gate::SUBSCRIBED != 0 {
        let name = &entry.full_name;
        return Err(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context"
        )
        .into());
    }
    // While all is held they are told to wait only if it takes long.
    if active & gate::LOADING != 0 && active & gate::HELD == 0 {
        return Err(IS_LOADING.into());
    }
    if active & gate::MONITORING != 0 {
        return Err("ERR Replica can't interact with the keyspace".into());
    }
    // CLIENT UNPAUSE must get through a pause of everything, or nobody could end it early; SHUTDOWN through a shutdown, which it
    // may abort.
    let passes = match entry.full_name.as_str() {
        "client|unpause" | "reset" => gate::WAITING & !gate::HELD,
        "shutdown" if exec.shared.lifecycle.hold() == Some(Hold::Shutdown) => gate::WAITING,
        "shutdown" => gate::WAITING & !gate::HELD,
        _ => 0,
    };
    if active & gate::WAITING & !passes != 0 {
        return Err(Stop::Paused);
    }
    if active & gate::MEMORY != 0 {
        return evict::admit(exec);
    }
    Ok(())
}

/// Longest part of a client's word that an error message repeats.
const ECHOED: usize = 128;

/// A word of the client, cut, as text for an error message.
pub fn echoed(word: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&word[..word.len().min(ECHOED)])
}

#[cold]
fn unknown(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.rope(0).is_none() && (args.is(0, "post") || args.is(0, "host:")) {
        crate::warning!(
            "Possible SECURITY ATTACK detected. {} sends POST or Host: commands, as a browser would that was tricked into \
             talking to this server. Connection closed.",
            exec.session.address()
        );
        // Not even the replies so far are sent: their reader is no client.
        exec.reply.output().clear();
        exec.session.close_after_reply = true;
        return Ok(());
    }
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", echoed(args.at(0)));
    let named = text.len();
    for i in 1..args.len() {
        let left = ECHOED.saturating_sub(text.len() - named);
        if left == 0 {
            break;
        }
        let word = match args.rope(i) {
            Some(_) => b"...".as_slice(),
            None => args.at(i),
        };
        text += &format!("'{}' ", String::from_utf8_lossy(&word[..word.len().min(left)]));
    }
    Err(text.into())
}

#[cold]
fn unknown_subcommand(entry: &Entry, args: &Args<'_>) -> Stop {
    let container = entry.command.name.to_ascii_uppercase();
    format!("ERR unknown subcommand '{}'. Try {container} HELP.", echoed(args.at(1))).into()
}

/// The error for a subcommand with arguments that its arity cannot rule out.
pub fn wrong_arguments(args: &Args<'_>) -> ReplyError {
    let container = echoed(args.at(0)).to_ascii_uppercase();
    let word = echoed(args.at(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{word}'. Try {container} HELP.").into()
}

/// The prefix of an error text: what INFO errorstats counts.
pub fn error_prefix(text: &ReplyError) -> &str {
    let word = text.split(' ').next().unwrap_or("ERR");
    if word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') { word } else { "ERR" }
}

/// The data set is being loaded.
pub const IS_LOADING: ReplyError = error("LOADING Redis is loading the dataset in memory");
/// The syntax error.
pub const SYNTAX: ReplyError = error("ERR syntax error");
