//! Doubles as clients write them: what C's `strtod` reads, which takes hexadecimal digits and several spellings of infinity.
//!
//! Rust's own parser does the decimal digits, correctly rounded as C's; it is only handed what C would read as well. Dropped: calling
//! `strtod` itself, which depends on the process's locale and needs a terminated copy.

/// A score, an increment or a weight: the whole word is a number, without blanks before it; no NaN, and nothing that is too large for
/// a double or, unless it is zero, too small for one.
pub fn parse(text: &[u8]) -> Option<f64> {
    let number = Number::read(text)?;
    let lost = number.value.is_infinite() != number.infinite || number.value == 0.0 && !number.zero;
    (!lost).then_some(number.value)
}

/// An end of a range of scores: blanks may stand before the number, a zero byte ends it, nothing is 0, and what is too large is
/// infinite.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    Number::read(&text[blanks..]).map(|number| number.value)
}

struct Number {
    value: f64,
    /// Infinity was meant.
    infinite: bool,
    /// Zero was meant.
    zero: bool,
}

impl Number {
    fn read(text: &[u8]) -> Option<Number> {
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let number = match digits {
            [b'0'..=b'9' | b'.', ..] => match digits {
                [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
                _ => decimal(digits)?,
            },
            _ if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") => {
                Number { value: f64::INFINITY, infinite: true, zero: false }
            }
            _ => return None,
        };
        Some(Number { value: if negative { -number.value } else { number.value }, ..number })
    }
}

fn decimal(digits: &[u8]) -> Option<Number> {
    // Short integers, which most scores are, are exact.
    if digits.len() <= 15 && digits.iter().all(u8::is_ascii_digit) {
        let integer = digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        return Some(Number { value: integer as f64, infinite: false, zero: integer == 0 });
    }
    // All letters but the exponent's are refused: Rust would take "nan".
    if !digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    let value = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let mantissa = digits.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let zero = mantissa.clone().all(|byte| matches!(byte, b'0' | b'.'));
    Some(Number { value, infinite: false, zero })
}

/// Digits that are kept: more do not matter but as "not zero".
const HEX_DIGITS: u32 = 28;

/// What follows `0x`.
fn hexadecimal(text: &[u8]) -> Option<Number> {
    let (mut mantissa, mut kept, mut exponent) = (0_u128, 0_u32, 0_i64);
    let (mut any, mut fraction, mut at) = (false, false, 0);
    while let Some(byte) = text.get(at) {
        match char::from(*byte).to_digit(16) {
            Some(digit) => {
                any = true;
                if kept < HEX_DIGITS {
                    mantissa = mantissa << 4 | u128::from(digit);
                    kept += u32::from(mantissa != 0);
                    exponent -= if fraction { 4 } else { 0 };
                } else {
                    mantissa |= u128::from(digit != 0);
                    exponent += if fraction { 0 } else { 4 };
                }
            }
            None if *byte == b'.' && !fraction => fraction = true,
            None => break,
        }
        at += 1;
    }
    if !any {
        return None;
    }
    match &text[at..] {
        [] => {}
        [b'p' | b'P', power @ ..] => exponent = exponent.saturating_add(power_of(power)?),
        _ => return None,
    }
    let exponent = i32::try_from(exponent.clamp(-100_000, 100_000)).expect("clamped");
    // In two steps, as a power may be out of range where the product is not.
    let half = exponent / 2;
    let value = mantissa as f64 * 2_f64.powi(half) * 2_f64.powi(exponent - half);
    Some(Number { value, infinite: false, zero: mantissa == 0 })
}

fn power_of(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let power = digits.iter().fold(0_i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 40));
    Some(if negative { -power } else { power })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_strtod_reads() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("-0", Some(-0.0)),
            ("17", Some(17.0)),
            ("+1.5", Some(1.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e3", Some(1000.0)),
            ("1E-3", Some(0.001)),
            ("123456789012345678", Some(123_456_789_012_345_680.0)),
            ("0x10", Some(16.0)),
            ("0X.8p1", Some(1.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x123456789abcdef0123456789abcdef0123p0", Some(9.911_442_310_458_055e40)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("5e-324", Some(5e-324)),
            ("0e-999", Some(0.0)),
            ("1e-999", None),
            ("1e999", None),
            ("0x1p5000", None),
            ("nan", None),
            ("infx", None),
            ("", None),
            ("-", None),
            (".", None),
            ("e5", None),
            ("1e", None),
            ("1.2.3", None),
            ("--1", None),
            ("-+1", None),
            (" 1", None),
            ("1 ", None),
            ("0x", None),
            ("0x.p1", None),
            ("0x1p", None),
            ("1_000", None),
        ] {
            assert_eq!(parse(text.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits), "{text:?}");
        }
    }

    #[test]
    fn bounds_are_read_more_loosely() {
        for (text, expected) in [
            ("", Some(0.0)),
            (" 1", Some(1.0)),
            ("\t-inf", Some(f64::NEG_INFINITY)),
            ("1e999", Some(f64::INFINITY)),
            ("1\0x", Some(1.0)),
            ("1 ", None),
            (" ", None),
            ("nan", None),
        ] {
            assert_eq!(parse_bound(text.as_bytes()), expected, "{text:?}");
        }
    }
}
