//! BITFIELD: integers of 1 to 64 bits anywhere in a string, most significant bit first.
//!
//! A field touches at most 9 bytes: they are taken as one 128-bit number, changed there, and written back in place.

use super::{Bytes, offset};
use crate::args::Args;
use crate::command::keyflag;
use crate::commands::string::string_of;
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::notify;
use gimmal_store::{Encoding, EntryMut, NewValue};

const BAD_TYPE: ReplyError =
    error("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");
const BAD_OVERFLOW: ReplyError = error("ERR Invalid OVERFLOW type specified");
const ONLY_GET: ReplyError = error("ERR BITFIELD_RO only supports the GET subcommand");

/// What happens to a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer type and where the integer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    signed: bool,
    bits: u32,
    offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Field {
    fn parse(exec: &Exec<'_>, args: &Args<'_>, i: usize) -> Result<Field, ReplyError> {
        let (signed, bits) = width(args.at(i)).ok_or(BAD_TYPE)?;
        Ok(Field { signed, bits, offset: offset(exec, args, i + 1, Some(bits))? })
    }

    /// First byte, and bits of it that are before the field.
    fn begin(&self) -> (u64, u32) {
        (self.offset / 8, u32::try_from(self.offset % 8).expect("below 8"))
    }

    /// Bytes that the field touches.
    fn bytes(&self) -> usize {
        (self.begin().1 + self.bits).div_ceil(8) as usize
    }

    /// The last byte that the field touches.
    fn last_byte(&self) -> usize {
        usize::try_from(self.offset / 8).expect("within the largest length of a string") + self.bytes() - 1
    }

    fn mask(&self) -> u128 {
        (1 << self.bits) - 1
    }

    /// The largest and the smallest number of this type.
    fn limits(&self) -> (i128, i128) {
        match self.signed {
            true => ((1 << (self.bits - 1)) - 1, -(1 << (self.bits - 1))),
            false => ((1 << self.bits) - 1, 0),
        }
    }

    /// The number that the lower bits of `word` are in this type.
    fn number(&self, word: u128) -> i128 {
        let n = i128::try_from(word & self.mask()).expect("at most 64 bits");
        let (max, _) = self.limits();
        if n > max { n - (1 << self.bits) } else { n }
    }

    /// Bytes of the field and around it, as one number, and how far the field is from its end.
    fn window(&self, bytes: &Bytes<'_>) -> (u128, u32) {
        let (first, skipped) = self.begin();
        let mut window = [0; 16];
        for (at, byte) in (first..).zip(&mut window[..self.bytes()]) {
            *byte = bytes.byte(at);
        }
        (u128::from_be_bytes(window), 128 - skipped - self.bits)
    }

    fn get(&self, bytes: &Bytes<'_>) -> i128 {
        let (window, shift) = self.window(bytes);
        self.number(window >> shift)
    }

    /// Writes a number that fits; the string is long enough.
    fn set(&self, entry: &mut EntryMut<'_>, n: i128) {
        let (window, shift) = self.window(&Bytes::new(entry.string(), &mut itoa::Buffer::new()));
        let bits = u128::from_be_bytes(n.to_be_bytes()) & self.mask();
        let window = (window & !(self.mask() << shift) | bits << shift).to_be_bytes();
        let first = usize::try_from(self.begin().0).expect("within the largest length of a string");
        entry.set_range(first, &window[..self.bytes()]);
    }
}

/// `i16` or `u8`: whether signed, and the bits.
fn width(text: &[u8]) -> Option<(bool, u32)> {
    let (signed, most, digits) = match text {
        [b'i', digits @ ..] => (true, 64, digits),
        [b'u', digits @ ..] => (false, 63, digits),
        _ => return None,
    };
    let bits = crate::args::parse_int(digits).filter(|bits| (1..=most).contains(bits))?;
    Some((signed, u32::try_from(bits).ok()?))
}

impl Step {
    /// What the field is to hold after it held `old`, or nothing if that does not fit and must not be made to.
    fn result(&self, old: i128) -> Option<i128> {
        let (max, min) = self.field.limits();
        let wanted = match self.action {
            Action::Get => old,
            Action::Add(by) => old + i128::from(by),
            // A negative number is a very large one where there are no negative ones.
            Action::Set(n) if !self.field.signed => i128::from(n.cast_unsigned()),
            Action::Set(n) => i128::from(n),
        };
        match self.overflow {
            _ if (min..=max).contains(&wanted) => Some(wanted),
            Overflow::Wrap => Some(self.field.number(u128::from_be_bytes(wanted.to_be_bytes()))),
            Overflow::Saturate if self.is_taken_for_large(max) => Some(max),
            Overflow::Saturate => Some(wanted.clamp(min, max)),
            Overflow::Fail => None,
        }
    }

    /// Redis's distance from the number to the largest one is itself a 64-bit number: for those that are so small that it
    /// overflows, SET saturates at the wrong end. The stored bits are part of the protocol, so they are the same here.
    fn is_taken_for_large(&self, max: i128) -> bool {
        let signed = self.field.signed && self.field.bits < 64;
        matches!(self.action, Action::Set(n) if signed && max - i128::from(n) > i128::from(i64::MAX))
    }
}

fn parse(exec: &Exec<'_>, args: &Args<'_>) -> Result<Vec<Step>, ReplyError> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut i = 2;
    while i < args.len() {
        let more = args.len() - i - 1;
        if args.is(i, "overflow") && more >= 1 {
            overflow = match () {
                () if args.is(i + 1, "wrap") => Overflow::Wrap,
                () if args.is(i + 1, "sat") => Overflow::Saturate,
                () if args.is(i + 1, "fail") => Overflow::Fail,
                () => return Err(BAD_OVERFLOW),
            };
            i += 2;
            continue;
        }
        let (set, add) = (args.is(i, "set"), args.is(i, "incrby"));
        let known = args.is(i, "get") && more >= 2 || (set || add) && more >= 3;
        if !known {
            return Err(SYNTAX);
        }
        let field = Field::parse(exec, args, i + 1)?;
        let action = match (set, add) {
            (true, _) => Action::Set(args.int(i + 3)?),
            (_, true) => Action::Add(args.int(i + 3)?),
            _ => Action::Get,
        };
        steps.push(Step { field, action, overflow });
        i += if action == Action::Get { 3 } else { 4 };
    }
    Ok(steps)
}

/// The key of BITFIELD and what this one does to it.
pub(super) fn keys(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    let mut i = 2;
    let mut writes = false;
    while i < args.len() {
        let set = args.is(i, "set") || args.is(i, "incrby");
        writes |= set;
        i += match () {
            () if args.is(i, "overflow") => 2,
            () if set => 4,
            () => 3,
        };
    }
    let flags = if writes { keyflag::RW | keyflag::ACCESS | keyflag::UPDATE } else { keyflag::RO | keyflag::ACCESS };
    (args.len() > 1).then(|| vec![(1, flags)])
}

pub(super) fn bitfield(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let steps = parse(exec, args)?;
    let written = steps.iter().filter(|step| step.action != Action::Get);
    match written.map(|step| step.field.last_byte()).max() {
        None => read_all(exec, args, &steps),
        Some(last_byte) => run_all(exec, args, &steps, last_byte),
    }
}

pub(super) fn bitfield_ro(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let steps = parse(exec, args)?;
    if steps.iter().any(|step| step.action != Action::Get) {
        return Err(ONLY_GET.into());
    }
    read_all(exec, args, &steps)
}

fn read_all(exec: &mut Exec<'_>, args: &Args<'_>, steps: &[Step]) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let entry = exec.read(locked.key());
    let mut digits = itoa::Buffer::new();
    let bytes = match &entry {
        Some(entry) => Bytes::new(string_of(entry)?, &mut digits),
        None => Bytes { small: &[], large: None },
    };
    let mut reply = exec.reply.put();
    reply.array(steps.len());
    for step in steps {
        reply.integer(answered(step.field.get(&bytes)));
    }
    Ok(())
}

fn run_all(exec: &mut Exec<'_>, args: &Args<'_>, steps: &[Step], last_byte: usize) -> Outcome {
    let mut locked = exec.lock(args.at(1))?;
    let (len, raw) = match exec.peek(locked.key()) {
        Some(entry) => {
            let mut digits = itoa::Buffer::new();
            (Bytes::new(string_of(&entry)?, &mut digits).len(), entry.encoding() == Encoding::Raw)
        }
        None => {
            let _none = exec.put(locked.key(), NewValue::Bytes(b""), None);
            (0, false)
        }
    };
    let mut entry = exec.write(locked.key()).expect("it was just read or put");
    let grown = len <= last_byte;
    if grown {
        entry.set_range(last_byte, &[0]);
    } else if !raw {
        // Like Redis's, the string is in its changeable form afterwards whatever is written.
        let byte = Bytes::new(entry.string(), &mut itoa::Buffer::new()).byte(last_byte as u64);
        entry.set_range(last_byte, &[byte]);
    }
    let mut changes = 0;
    exec.reply.put().array(steps.len());
    for step in steps {
        let old = step.field.get(&Bytes::new(entry.string(), &mut itoa::Buffer::new()));
        let Some(new) = step.result(old) else {
            exec.reply.put().null();
            continue;
        };
        let is_add = matches!(step.action, Action::Add(_));
        exec.reply.put().integer(answered(if is_add { new } else { old }));
        if step.action != Action::Get {
            changes += u64::from(grown || old != new);
            if old != new {
                step.field.set(&mut entry, new);
            }
        }
    }
    // A string that only grew has changed as well: another machine is to have it too.
    if changes > 0 || grown {
        exec.changed(changes.saturating_sub(1));
        let words: Vec<&[u8]> = std::iter::once(&b"BITFIELD"[..]).chain(args.rest(1)).collect();
        exec.effect(locked.key(), &words);
        exec.notify(notify::STRING, "setbit", args.at(1));
    }
    Ok(())
}

/// A field's number in a reply: all types fit.
fn answered(n: i128) -> i64 {
    i64::try_from(n).expect("unsigned fields have at most 63 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(signed: bool, bits: u32, offset: u64) -> Field {
        Field { signed, bits, offset }
    }

    #[test]
    fn types_are_strict() {
        assert_eq!(
            (width(b"i64"), width(b"u63"), width(b"i1")),
            (Some((true, 64)), Some((false, 63)), Some((true, 1)))
        );
        for wrong in ["", "i", "u64", "i65", "i0", "u-1", "x8", "i08", "u 8"] {
            assert_eq!(width(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn fields_are_read_bit_by_bit() {
        let bytes: Vec<u8> = (0..40u8).map(|i| i.wrapping_mul(91) ^ 0x5A).collect();
        let view = Bytes { small: &bytes, large: None };
        for offset in 0..330u64 {
            for bits in 1..=64u32 {
                let bit = |at: u64| i128::from(view.byte(at / 8) >> (7 - at % 8) & 1);
                let unsigned = (offset..offset + u64::from(bits)).fold(0, |n, at| n << 1 | bit(at));
                let signed = if bit(offset) == 1 { unsigned - (1i128 << bits) } else { unsigned };
                assert_eq!(field(false, bits, offset).get(&view), unsigned);
                assert_eq!(field(true, bits, offset).get(&view), signed);
            }
        }
    }

    #[test]
    fn overflows_are_wrapped_cut_or_refused() {
        let step = |signed, bits, action, overflow| Step { field: field(signed, bits, 0), action, overflow };
        for (signed, bits, old, action, wrapped, cut) in [
            (false, 8, 250, Action::Add(10), 4, 255),
            (false, 8, 3, Action::Add(-10), 249, 0),
            (false, 8, 0, Action::Set(-1), 255, 255),
            (false, 63, 0, Action::Add(i64::MIN), 0, 0),
            (true, 8, 120, Action::Add(10), -126, 127),
            (true, 8, -120, Action::Add(-10), 126, -128),
            (true, 8, 0, Action::Set(200), -56, 127),
            (true, 64, i64::MAX.into(), Action::Add(1), i64::MIN.into(), i64::MAX.into()),
            (true, 64, i64::MIN.into(), Action::Add(-1), i64::MAX.into(), i64::MIN.into()),
        ] {
            assert_eq!(step(signed, bits, action, Overflow::Wrap).result(old), Some(wrapped));
            assert_eq!(step(signed, bits, action, Overflow::Saturate).result(old), Some(cut));
            assert_eq!(step(signed, bits, action, Overflow::Fail).result(old), None);
        }
        let smallest = Action::Set(i64::MIN);
        assert_eq!(step(true, 8, smallest, Overflow::Saturate).result(0), Some(127), "as in Redis");
        assert_eq!(step(true, 8, Action::Set(i64::MIN + 128), Overflow::Saturate).result(0), Some(-128));
        assert_eq!(step(true, 64, Action::Set(-5), Overflow::Fail).result(7), Some(-5));
    }
}
