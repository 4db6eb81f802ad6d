//! RESTORE: a key from a payload.
//!
//! The payload is decoded before the key is locked, a large one on a thread of its own; what is then done under the lock
//! costs the same at any size.

use crate::args::{Args, new_value};
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, Key, Outcome, ReplyError, Stop, error};
use crate::lazyfree::removal;
use crate::payload::{self, Built, Limits};
use crate::{notify, offload};
use gimmal_store::{NewValue, Rope};

const BUSY_KEY: ReplyError = error("BUSYKEY Target key name already exists.");
const NEGATIVE_TTL: ReplyError = error("ERR Invalid TTL value, must be >= 0");
const NEGATIVE_IDLE: ReplyError = error("ERR Invalid IDLETIME value, must be >= 0");
const BAD_FREQUENCY: ReplyError = error("ERR Invalid FREQ value, must be >= 0 and <= 255");

/// Payloads up to this are decoded before anything is looked up: that costs less than a second lookup is worth.
const SMALL: usize = 4096;
/// Payloads from this size on are decoded elsewhere: they take longer than a slice.
const LARGE: usize = 64 * 1024;

/// What RESTORE was asked beside key and payload.
#[derive(Clone, Debug, Default, PartialEq)]
struct Options {
    /// A number of ms, unless it is none.
    ttl_ms: Option<i64>,
    replace: bool,
    absolute: bool,
    idle_s: Option<i64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, ReplyError> {
        let mut options = Options { ttl_ms: args.int(2).ok(), ..Options::default() };
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

    /// When the key will expire. What is wrong with the time is said after what is wrong with the key.
    fn expiry(&self, now_ms: i64) -> Result<Option<i64>, ReplyError> {
        match self.ttl_ms.ok_or(error("ERR value is not an integer or out of range"))? {
            ..0 => Err(NEGATIVE_TTL),
            0 => Ok(None),
            at_ms if self.absolute => Ok(Some(at_ms)),
            ttl_ms => Ok(Some(now_ms.saturating_add(ttl_ms))),
        }
    }
}

pub(super) fn restore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = Options::parse(args)?;
    let limits = Limits::of(&exec.local.config);
    if args.length(3) > SMALL {
        // Nothing is decoded in vain.
        let mut locked = exec.lock(args.at(1))?;
        if !options.replace && exec.peek(locked.key()).is_some() {
            return Err(BUSY_KEY.into());
        }
        options.expiry(exec.now_ms())?;
    }
    let large = args.rope(3).filter(|rope| rope.len() >= LARGE && offload::is_possible(exec));
    if let Some(payload) = large.cloned() {
        let key = args.at(1).to_vec();
        return offload::start(exec, move || {
            let value = Some(payload::built(&payload.to_vec(), limits));
            Box::new(Rest { key, options, payload, value })
        });
    }
    let mut value = Some(payload::built(args.at(3), limits));
    let payload = match args.rope(3) {
        Some(rope) => NewValue::Rope(rope.clone()),
        None => NewValue::Bytes(args.at(3)),
    };
    put(exec, args.at(1), &options, &payload, &mut value)
}

/// What is left to do with a large payload that was decoded.
struct Rest {
    key: Vec<u8>,
    options: Options,
    payload: Rope,
    value: Option<Result<Built, ReplyError>>,
}

impl Continuation for Rest {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let Rest { key, options, payload, value } = self;
        put(exec, key, options, &NewValue::Rope(payload.clone()), value)?;
        Ok(true)
    }
}

/// Makes the key. The value is taken once it is certain that it will be stored, so that this can be tried again.
fn put(
    exec: &mut Exec<'_>,
    name: &[u8],
    options: &Options,
    payload: &NewValue<'_>,
    value: &mut Option<Result<Built, ReplyError>>,
) -> Outcome {
    let mut locked = exec.lock(name)?;
    let there = exec.peek(locked.key()).is_some();
    if there && !options.replace {
        return Err(BUSY_KEY.into());
    }
    let expire_at_ms = options.expiry(exec.clock_ms())?;
    let value = value.take().expect("it is taken once")?;
    // As in Redis the old value goes first: what follows is a new key.
    let removed = if there { exec.remove(locked.key()) } else { None };
    if expire_at_ms.is_some_and(|at_ms| at_ms <= exec.now_ms()) {
        if removed.is_some() {
            let lazy = exec.local.config.lazyfree_lazy_server_del();
            exec.effect(locked.key(), &[removal(lazy), name]);
            exec.notify(notify::GENERIC, "del", name);
        }
    } else {
        log(exec, locked.key(), options, payload, expire_at_ms);
        store(exec, locked.key(), value, expire_at_ms, options.clock(exec));
        exec.notify(notify::GENERIC, "restore", name);
    }
    exec.reply.put().ok();
    Ok(())
}

/// Records the effect: the same payload, in place of whatever is there, with the time at which it expires.
fn log(exec: &mut Exec<'_>, key: Key<'_, '_>, options: &Options, payload: &NewValue<'_>, expire_at_ms: Option<i64>) {
    let (mut at_ms, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
    let before: [&[u8]; 3] = [b"RESTORE", key.name(), at_ms.format(expire_at_ms.unwrap_or(0)).as_bytes()];
    let mut after: Vec<&[u8]> = if options.replace { vec![b"REPLACE", b"ABSTTL"] } else { vec![b"ABSTTL"] };
    let used = match options {
        Options { idle_s: Some(idle_s), .. } => Some((b"IDLETIME".as_slice(), *idle_s)),
        Options { frequency: Some(count), .. } => Some((b"FREQ".as_slice(), i64::from(*count))),
        _ => None,
    };
    if let Some((word, n)) = used {
        after.extend([word, number.format(n).as_bytes()]);
    }
    exec.effect_value(key, &before, payload, &after);
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
