//! Doubles as Redis 7.2 and later print them: the shortest digits that read back as the same value, laid out as the
//! fpconv library does. (Redis up to 7.0 printed 17 digits: 0.1 was 0.10000000000000001.)

use std::io::Write;

/// The text of one double, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct DoubleText {
    bytes: [u8; MAX_DOUBLE_TEXT],
    len: usize,
}

impl DoubleText {
    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn zeros(&mut self, count: usize) {
        self.bytes[self.len..self.len + count].fill(b'0');
        self.len += count;
    }
}

/// Formats `value`: integers up to 2^62 in magnitude in full, as Valkey does (Redis 7.2: to 2^52), other values by their shortest digits, as an integer, a
/// decimal fraction or in scientific notation; `inf`, `-inf`, `nan`, `-0`.
pub fn format_double(value: f64) -> DoubleText {
    let mut out = DoubleText { bytes: [0; MAX_DOUBLE_TEXT], len: 0 };
    if value.is_nan() {
        out.push(b"nan");
    } else if value.is_infinite() {
        out.push(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        out.push(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if let Some(integer) = as_integer(value) {
        out.push(itoa::Buffer::new().format(integer).as_bytes());
    } else {
        if value < 0.0 {
            out.push(b"-");
        }
        shortest(value.abs(), &mut out);
    }
    out
}

/// The value as an integer, when it is one that is far from overflowing.
#[inline]
pub(crate) fn as_integer(value: f64) -> Option<i64> {
    const MOST: f64 = 4_611_686_018_427_387_904.0; // 2^62
    // Saturates for what is out of range, and cuts a fraction off; both are found by comparing.
    let integer = value as i64;
    // Minus zero equals zero, and prints differently.
    let exact = value.abs() <= MOST && integer as f64 == value && (integer != 0 || value.is_sign_positive());
    exact.then_some(integer)
}

fn shortest(value: f64, out: &mut DoubleText) {
    let mut scientific = [0u8; MAX_DOUBLE_TEXT];
    let (digits, count, exponent) = shortest_digits(value, &mut scientific);
    let digits = &digits[..count];
    // value = 0.ddd × 10^point
    let point = exponent + 1;
    let trailing_zeros = point - i32::try_from(count).unwrap_or(0);
    let magnitude = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
    if trailing_zeros >= 0 && magnitude < count + 7 {
        out.push(digits);
        out.zeros(usize::try_from(trailing_zeros).unwrap_or(0));
    } else if trailing_zeros < 0 && (trailing_zeros > -7 || magnitude < 4) {
        match usize::try_from(point) {
            Ok(point) if point > 0 => {
                out.push(&digits[..point]);
                out.push(b".");
                out.push(&digits[point..]);
            }
            _ => {
                out.push(b"0.");
                out.zeros(usize::try_from(point.unsigned_abs()).unwrap_or(0));
                out.push(digits);
            }
        }
    } else {
        out.push(&digits[..1]);
        if count > 1 {
            out.push(b".");
            out.push(&digits[1..]);
        }
        out.push(if exponent < 0 { b"e-" } else { b"e+" });
        out.push(itoa::Buffer::new().format(magnitude).as_bytes());
    }
}

/// The shortest digits of a positive value, how many, and the exponent of the first: d.ddd × 10^exponent.
fn shortest_digits(value: f64, scratch: &mut [u8; MAX_DOUBLE_TEXT]) -> ([u8; 17], usize, i32) {
    let mut rest = &mut scratch[..];
    write!(rest, "{value:e}").expect("a double in scientific notation has at most 24 bytes");
    let unused = rest.len();
    let text = &scratch[..MAX_DOUBLE_TEXT - unused];
    let mark = text.iter().position(|byte| *byte == b'e').expect("scientific notation has an exponent");
    let mut digits = [0; 17];
    let mut count = 0;
    for byte in text[..mark].iter().filter(|byte| **byte != b'.') {
        digits[count] = *byte;
        count += 1;
    }
    let exponent = crate::parse_i64(&text[mark + 1..]).and_then(|exponent| i32::try_from(exponent).ok());
    (digits, count, exponent.expect("an exponent of a double has at most three digits"))
}

/// Sign, 17 digits, point, up to 7 zeros or an exponent, with room to spare.
const MAX_DOUBLE_TEXT: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        String::from_utf8_lossy(format_double(value).as_bytes()).into_owned()
    }

    #[test]
    fn layout() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.1, "0.1"),
            (-0.1, "-0.1"),
            (3.25, "3.25"),
            (100.5, "100.5"),
            (1e15, "1000000000000000"),
            (4_503_599_627_370_495.0, "4503599627370495"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e16, "10000000000000000"),
            (-40_536_795_850_802_512.0, "-40536795850802512"),
            (4_611_686_018_427_387_904.0, "4611686018427387904"),
            (4_611_686_018_427_388_928.0, "4611686018427389000"),
            (1e19, "1e+19"),
            (1.5e19, "1.5e+19"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e100, "1e+100"),
            (1.25e300, "1.25e+300"),
            (0.001, "0.001"),
            (0.000_001, "0.000001"),
            (0.000_000_1, "1e-7"),
            (0.000_012_34, "1.234e-5"),
            (0.000_12, "0.00012"),
            (0.000_01, "0.00001"),
            (1.234_567_8e-5, "1.2345678e-5"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (17_179_869_184.000_004, "17179869184.000004"),
        ] {
            assert_eq!(text(value), expected, "{value:e}");
        }
    }

    #[test]
    fn reads_back_as_the_same_value() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(state ^ (state >> 29));
            if value.is_finite() {
                assert_eq!(text(value).parse::<f64>().map(f64::to_bits), Ok(value.to_bits()), "{value:e}");
            }
        }
    }
}
