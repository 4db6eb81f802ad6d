//! Decimal integers as the protocol writes them. Redis accepts exactly one spelling of each number (no leading zero, no `+`,
//! no `-0`, no blanks), and so does this: a number that was accepted prints back as the same bytes.

/// Parses a canonical signed 64-bit decimal. `None` for anything else, including the empty string.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= MAX_I64_DIGITS => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Nineteen digits fit a u64 without overflow.
        magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

const MAX_I64_DIGITS: usize = 19;
/// The most digits of a number on the fast path: all that fit a `u32` whatever they are.
const MAX_SHORT_DIGITS: usize = 9;

/// The number of a `*` or `$` line, and the position behind the line, if it has one to three digits and at least eight bytes of
/// the buffer are left: these are looked at as one word.
#[inline(always)]
pub(crate) fn short_header(buf: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    const LINE_END: u64 = u16::from_le_bytes(*b"\r\n") as u64;
    let word = u64::from_le_bytes(*buf.get(at..)?.first_chunk()?);
    let digit = |i: u32| (word >> (8 * i) & 0xFF).wrapping_sub(u64::from(b'0'));
    let ends = |i: u32| word >> (8 * i) & 0xFFFF == LINE_END;
    let first = digit(1);
    if word & 0xFF != u64::from(kind) || first > 9 {
        return None;
    }
    // A position is below the length of a buffer, so that nothing overflows.
    if ends(2) {
        return Some((first as usize, at + 4));
    }
    // A leading zero is an error, and so is what is no digit: the careful path's.
    let second = digit(2);
    if first == 0 || second > 9 {
        return None;
    }
    if ends(3) {
        return Some(((first * 10 + second) as usize, at + 5));
    }
    let third = digit(3);
    if third > 9 || !ends(4) {
        return None;
    }
    Some(((first * 100 + second * 10 + third) as usize, at + 6))
}

/// What [`short_length`] found.
pub(crate) enum Short {
    /// The number, and the position after the two bytes of the line end.
    Value(u32, usize),
    /// Not one to nine digits without a leading zero and a complete line end: take the careful path.
    Unusual,
}

/// The fast path for the number of a `*` or `$` line, whose first digit is at `at`. Lines are a few bytes long, so a digit
/// loop beats any search for the line end. As in Redis, the byte after CR is skipped unseen.
#[inline(always)]
pub(crate) fn short_length(buf: &[u8], at: usize) -> Short {
    let Some(line) = buf.get(at..) else {
        return Short::Unusual;
    };
    let [first, rest @ ..] = line else {
        return Short::Unusual;
    };
    let mut value = u32::from(first.wrapping_sub(b'0'));
    if !(1..=9).contains(&value) {
        // A single zero is legal, and usual enough: the empty string.
        return if let [b'0', b'\r', _, ..] = line { Short::Value(0, at + 3) } else { Short::Unusual };
    }
    for (more, &byte) in rest.iter().take(MAX_SHORT_DIGITS).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            if byte == b'\r' && rest.len() > more + 1 {
                return Short::Value(value, at + more + 3);
            }
            return Short::Unusual;
        }
        // At most ten digits are taken in and the last of ten is never used: no overflow that matters.
        value = value.wrapping_mul(10).wrapping_add(u32::from(digit));
    }
    Short::Unusual
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_numbers_only() {
        for n in [0, 1, -1, 9, 10, 123_456_789, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(parse_i64(n.to_string().as_bytes()), Some(n));
        }
        for bad in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1a",
            "a",
            "00",
            "--1",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
        ] {
            assert_eq!(parse_i64(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_header_in_one_word_agrees_with_the_careful_path() {
        for n in 0..1000 {
            let line = format!("${n}\r\nabcdefgh");
            assert_eq!(short_header(line.as_bytes(), 0, b'$'), Some((n, format!("${n}\r\n").len())));
            assert_eq!(short_header(line.as_bytes(), 0, b'*'), None);
        }
        for other in [
            "$01\r\nabc",
            "$1\rabcde",
            "$1",
            "$1000\r\nab",
            "$-1\r\nabc",
            "$1x\r\nabc",
            "$12x\r\nab",
            "$1x2\r\nab",
            "$x12\r\nab",
            "$\r\nabcde",
            "$00\r\nabc",
            "$012\r\nab",
            "$/\r\nabcd",
            "$:\r\nabcd",
            "$1:\r\nabc",
            "$11/\r\nab",
        ] {
            assert_eq!(short_header(other.as_bytes(), 0, b'$'), None, "{other:?}");
        }
    }

    /// What follows a two-digit number that is none must not overflow, whatever the byte.
    #[test]
    fn no_byte_breaks_a_header() {
        for place in 1..4 {
            for byte in 0..=255 {
                let mut line = *b"$111\r\nab";
                line[place] = byte;
                let expected = byte.is_ascii_digit() && (place > 1 || byte != b'0');
                let value = short_header(&line, 0, b'$').map(|(value, _)| value);
                let text = std::str::from_utf8(&line[1..4]).ok().and_then(|text| text.parse::<usize>().ok());
                assert_eq!(value, if expected { text } else { None }, "{line:?}");
            }
        }
    }

    #[test]
    fn the_fast_path_agrees_with_the_careful_one() {
        for text in ["0", "1", "9", "10", "16384", "99999999", "999999999"] {
            let line = format!("${text}\r\n");
            match short_length(line.as_bytes(), 1) {
                Short::Value(value, next) => {
                    assert_eq!(Some(i64::from(value)), parse_i64(text.as_bytes()));
                    assert_eq!(next, line.len());
                }
                Short::Unusual => panic!("{text} is a usual length"),
            }
        }
        for unusual in
            ["$", "$1", "$1\r", "$01\r\n", "$-1\r\n", "$1x\r\n", "$1000000000\r\n", "$0", "$0\r", "$00\r\n", "$\r\n"]
        {
            assert!(matches!(short_length(unusual.as_bytes(), 1), Short::Unusual), "{unusual:?}");
        }
    }
}
