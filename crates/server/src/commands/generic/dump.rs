//! DUMP and RESTORE: a value as a payload that any server of the family understands, and back.

use crate::args::{Args, new_value};
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, Key, Outcome, ReplyError, SLICE_US, Stop, error};
use crate::lazyfree::Lazyfree;
use crate::notify;
use crate::payload::{self, Built, Large, Limits, Written};
use gimmal_store::NewValue;
use gimmal_store::types::Type;
use std::sync::Arc;
use std::time::Duration;

const BUSY_KEY: ReplyError = error("BUSYKEY Target key name already exists.");
const NEGATIVE_TTL: ReplyError = error("ERR Invalid TTL value, must be >= 0");
const NEGATIVE_IDLE: ReplyError = error("ERR Invalid IDLETIME value, must be >= 0");
const BAD_FREQUENCY: ReplyError = error("ERR Invalid FREQ value, must be >= 0 and <= 255");

/// Payloads up to this are decoded before anything is looked up: that costs less than a second lookup is worth.
const SMALL: usize = 4096;

pub(super) fn dump(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = payload::options(&exec.local.config);
    let large = {
        let mut locked = exec.lock(args.at(1))?;
        let Some(entry) = exec.read(locked.key()) else {
            exec.reply.put().null();
            return Ok(());
        };
        if entry.kind() == Type::Stream {
            return Err(format!("ERR a {} has no payload", entry.kind().name()).into());
        }
        match payload::written(&entry, options) {
            Written::Payload(payload) => {
                exec.reply.put().bulk(&payload);
                return Ok(());
            }
            Written::Large(large) => large,
        }
    };
    // The lock is released.
    let mut dumping = Dumping { large: Some(large), lazyfree: exec.shared.lazyfree.clone() };
    match dumping.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(dumping))),
    }
}

struct Dumping {
    large: Option<Large>,
    /// Who frees the value, if it left the keyspace meanwhile.
    lazyfree: Arc<Lazyfree>,
}

impl Drop for Dumping {
    fn drop(&mut self) {
        if let Some(large) = self.large.take() {
            self.lazyfree.discard(large.into_value());
        }
    }
}

impl Continuation for Dumping {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let large = self.large.as_mut().expect("there until the last step");
        if !large.step(Duration::from_micros(SLICE_US)) {
            return Ok(false);
        }
        let payload = large.payload();
        exec.reply.rope(payload, 0, payload.len());
        Ok(true)
    }
}

/// What RESTORE was asked beside key, time and payload.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<i64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, ReplyError> {
        let mut options = Options::default();
        let mut i = 4;
        while i < args.len() {
            let has_value = i + 1 < args.len();
            if args.is(i, "replace") {
                options.replace = true;
            } else if args.is(i, "absttl") {
                options.absolute = true;
            } else if args.is(i, "idletime") && has_value && options.frequency.is_none() {
                i += 1;
                options.idle_s = Some(args.int(i)?).filter(|idle_s| *idle_s >= 0);
                options.idle_s.ok_or(NEGATIVE_IDLE)?;
            } else if args.is(i, "freq") && has_value && options.idle_s.is_none() {
                i += 1;
                options.frequency = Some(u8::try_from(args.int(i)?).map_err(|_| BAD_FREQUENCY)?);
            } else {
                return Err(SYNTAX);
            }
            i += 1;
        }
        Ok(options)
    }

    /// The access clock of the new key, if its use was told in terms of the policy in force.
    fn clock(&self, exec: &Exec<'_>) -> Option<u32> {
        let now = exec.local.access;
        match now.is_lfu() {
            true => self.frequency.map(|count| now.of_frequency(count)),
            false => self.idle_s.map(|idle_s| now.of_idle(idle_s.unsigned_abs())),
        }
    }
}

pub(super) fn restore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = Options::parse(args)?;
    let limits = Limits::of(&exec.local.config);
    if args.length(3) > SMALL && !options.replace {
        let mut locked = exec.lock(args.at(1))?;
        if exec.peek(locked.key()).is_some() {
            return Err(BUSY_KEY.into());
        }
    }
    let built = payload::built(args.at(3), limits);
    let mut locked = exec.lock(args.at(1))?;
    let there = exec.peek(locked.key()).is_some();
    if there && !options.replace {
        return Err(BUSY_KEY.into());
    }
    let expire_at_ms = expiry(args, options.absolute, exec.now_ms())?;
    let value = built?;
    // As in Redis the old value goes first: what follows is a new key.
    let removed = if there { exec.remove(locked.key()) } else { None };
    if expire_at_ms.is_some_and(|at_ms| at_ms <= exec.now_ms()) {
        if removed.is_some() {
            let lazy = exec.local.config.lazyfree_lazy_server_del();
            exec.effect(locked.key(), &[if lazy { b"UNLINK" } else { b"DEL" }, args.at(1)]);
            exec.notify(notify::GENERIC, "del", args.at(1));
        }
        exec.reply.put().ok();
        return Ok(());
    }
    log(exec, locked.key(), args, &options, expire_at_ms);
    store(exec, locked.key(), value, expire_at_ms, options.clock(exec));
    exec.notify(notify::GENERIC, "restore", args.at(1));
    exec.reply.put().ok();
    Ok(())
}

/// When the key will expire; 0 stands for never.
fn expiry(args: &Args<'_>, absolute: bool, now_ms: i64) -> Result<Option<i64>, ReplyError> {
    match args.int(2)? {
        ..0 => Err(NEGATIVE_TTL),
        0 => Ok(None),
        at_ms if absolute => Ok(Some(at_ms)),
        ttl_ms => Ok(Some(now_ms.saturating_add(ttl_ms))),
    }
}

/// Records the effect: the same payload, in place of whatever is there, with the time at which it expires.
fn log(exec: &mut Exec<'_>, key: Key<'_, '_>, args: &Args<'_>, options: &Options, expire_at_ms: Option<i64>) {
    let (mut at_ms, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
    let before: [&[u8]; 3] = [b"RESTORE", args.at(1), at_ms.format(expire_at_ms.unwrap_or(0)).as_bytes()];
    let mut after: Vec<&[u8]> = vec![b"REPLACE", b"ABSTTL"];
    let used = match options {
        Options { idle_s: Some(idle_s), .. } => Some((b"IDLETIME".as_slice(), *idle_s)),
        Options { frequency: Some(count), .. } => Some((b"FREQ".as_slice(), i64::from(*count))),
        _ => None,
    };
    if let Some((word, n)) = used {
        after.extend([word, number.format(n).as_bytes()]);
    }
    let payload = match args.rope(3) {
        Some(rope) => NewValue::Rope(rope.clone()),
        None => NewValue::Bytes(args.at(3)),
    };
    exec.effect_value(key, &before, &payload, &after);
}

fn store(exec: &mut Exec<'_>, mut key: Key<'_, '_>, value: Built, expire_at_ms: Option<i64>, clock: Option<u32>) {
    let put = match value {
        Built::Text(text) => exec.put(key.again(), new_value(&text), expire_at_ms),
        Built::Rope(rope) => exec.put(key.again(), NewValue::Rope(rope), expire_at_ms),
        Built::Aggregate(value) => exec.put_aggregate(key.again(), value, expire_at_ms),
    };
    debug_assert!(!put.replaced);
    if let Some(clock) = clock {
        let mut entry = exec.write(key).expect("it was just put");
        entry.set_clock(clock);
    }
}
