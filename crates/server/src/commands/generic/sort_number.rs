//! Numbers as SORT reads them: what C's `strtod` takes, all of the text.

/// The number that a text is: decimal or hexadecimal, with blanks before it, or an infinity; none at all is 0. `None` if it is
/// something else, is not a number, or is out of range. As C does, nothing behind a zero byte is looked at.
pub fn parse(text: &[u8]) -> Option<f64> {
    if let Some(small) = small_integer(text) {
        return Some(small);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = std::str::from_utf8(&text[blanks..]).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let magnitude = hexadecimal(digits)?;
        return Some(if text.starts_with('-') { -magnitude } else { magnitude });
    }
    let number: f64 = text.parse().ok()?;
    let is_infinity = unsigned.starts_with(['i', 'I']);
    let underflow = number.is_subnormal() || number == 0.0 && has_significant_digit(unsigned);
    (!number.is_nan() && number.is_infinite() == is_infinity && !underflow).then_some(number)
}

/// The usual case: at most 15 digits, which are exact.
fn small_integer(text: &[u8]) -> Option<f64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1.0, digits),
        _ => (1.0, text),
    };
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(sign * digits.iter().fold(0.0, |number, digit| number * 10.0 + f64::from(digit - b'0')))
}

fn has_significant_digit(decimal: &str) -> bool {
    decimal.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Hexadecimal digits with a fraction and a binary exponent. Digits beyond those of a double are rounded one by one.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.find(['p', 'P']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    let number = number * 2_f64.powi(exponent.checked_sub(places)?);
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_in_c() {
        for (text, number) in [
            ("0", Some(0.0)),
            ("-0", Some(0.0)),
            ("", Some(0.0)),
            ("007", Some(7.0)),
            ("-123456789012345", Some(-123_456_789_012_345.0)),
            ("9007199254740993", Some(9_007_199_254_740_992.0)),
            (" \t1.5", Some(1.5)),
            ("+2", Some(2.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e3", Some(1000.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0x1A", Some(26.0)),
            ("-0x.8p1", Some(-1.0)),
            ("1\0abc", Some(1.0)),
            ("0e5", Some(0.0)),
            ("1e400", None),
            ("1e-400", None),
            ("nan", None),
            ("1 ", None),
            (" ", None),
            ("-", None),
            ("1e", None),
            ("0x", None),
            ("abc", None),
            ("1_0", None),
        ] {
            assert_eq!(parse(text.as_bytes()), number, "{text:?}");
        }
        assert_eq!(parse(b"\xff"), None);
    }
}
