//! Numbers of 80-bit extended precision, in which INCRBYFLOAT and its kin compute.
//!
//! Redis computes them in the x87 `long double` and prints 17 decimals; with `f64` the sum of 0.1 and 10.5 would print
//! as 10.59999999999999964. Invariant: a mantissa is 0 or has its top bit set. The exponent is not limited below: what
//! the x87 would keep denormal differs only far behind the 17th decimal.
//!
//! Dropped: double-double arithmetic (it is more precise than the x87, so its digits differ), and inline assembly.

use std::cmp::Ordering;

/// A finite number: `±mantissa × 2^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// What a text denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A finite number.
    Finite(Extended),
    /// `inf` or `-inf`, in any spelling that C accepts.
    Infinite,
}

/// Texts from this length on are no numbers, as in Redis (its buffer for them).
const TEXT_LIMIT: usize = 5 * 1024;
/// The largest number is below 2 to this power.
const TOP: i32 = 16384;
/// Below 2 to this power a number rounds to zero.
const BOTTOM: i32 = -16446;
/// Decimals that are printed, and ten to their number.
const DECIMALS: usize = 17;
const SCALE: u128 = 10_u128.pow(17);

impl Extended {
    const ZERO: Extended = Extended { negative: false, mantissa: 0, exponent: 0 };

    /// An integer, exactly.
    pub fn from_int(n: i64) -> Extended {
        Extended::rounded(n < 0, u128::from(n.unsigned_abs()), 0).expect("an integer is far below the largest number")
    }

    /// The sum, rounded to the nearest number, to an even one between two; `None` if it is too large.
    pub fn plus(self, other: Extended) -> Option<Extended> {
        // 62 bits below the mantissa: what is shifted out of them only ever matters as "not zero".
        const GUARD: i32 = 62;
        if self.mantissa == 0 || other.mantissa == 0 {
            return Some(if self.mantissa == 0 { other } else { self });
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let wide = |number: Extended| u128::from(number.mantissa) << GUARD;
        let apart = high.exponent.abs_diff(low.exponent);
        let aligned = shifted_right(wide(low), apart);
        let exponent = high.exponent - GUARD;
        if high.negative == low.negative {
            return Extended::rounded(high.negative, wide(high) + aligned, exponent);
        }
        match wide(high).cmp(&aligned) {
            Ordering::Equal => Some(Extended::ZERO),
            Ordering::Greater => Extended::rounded(high.negative, wide(high) - aligned, exponent),
            Ordering::Less => Extended::rounded(low.negative, aligned - wide(high), exponent),
        }
    }

    /// `magnitude × 2^exponent` with 64 bits of mantissa; the lowest bit of the magnitude stands for all below it.
    fn rounded(negative: bool, magnitude: u128, exponent: i32) -> Option<Extended> {
        if magnitude == 0 {
            return Some(Extended::ZERO);
        }
        let bits = 128 - magnitude.leading_zeros();
        let excess = i32::try_from(bits).expect("at most 128") - 64;
        let mut number = Extended { negative, mantissa: 0, exponent: exponent + excess };
        if excess <= 0 {
            let wide = magnitude << excess.unsigned_abs();
            number.mantissa = u64::try_from(wide).expect("64 bits");
        } else {
            let cut = excess.unsigned_abs();
            let (kept, rest) = (magnitude >> cut, magnitude & ((1 << cut) - 1));
            let half = 1_u128 << (cut - 1);
            let up = rest > half || rest == half && kept & 1 == 1;
            match u64::try_from(kept + u128::from(up)) {
                Ok(mantissa) => number.mantissa = mantissa,
                // Rounding carried out of the top bit.
                Err(_) => (number.mantissa, number.exponent) = (1 << 63, number.exponent + 1),
            }
        }
        (number.exponent + 64 <= TOP).then_some(number)
    }

    /// The number with up to 17 decimals, without trailing zeros: what Redis stores and answers.
    pub fn text(self) -> String {
        let digits = match u32::try_from(self.exponent) {
            Ok(shift) => Big::from_u64(self.mantissa).shifted_left(shift).decimal(),
            Err(_) => {
                let scaled = u128::from(self.mantissa) * SCALE;
                let rounded = half_even(scaled, self.exponent.unsigned_abs());
                let text = format!("{}.{:0width$}", rounded / SCALE, rounded % SCALE, width = DECIMALS);
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            }
        };
        if self.negative && digits != "0" { format!("-{digits}") } else { digits }
    }
}

/// Reads a number as C's `strtold` does, all of the text; `None` if it is none, is not a number, or is out of range.
pub fn parse(text: &[u8]) -> Option<Parsed> {
    if text.len() >= TEXT_LIMIT {
        return None;
    }
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Some(Parsed::Infinite);
    }
    let number = match rest {
        [b'0', b'x' | b'X', hex @ ..] => hexadecimal(hex)?,
        _ => decimal(rest)?,
    };
    Some(Parsed::Finite(Extended { negative: negative && number.mantissa != 0, ..number }))
}

/// Digits, split at the point and before the exponent.
struct Parts {
    digits: Vec<u8>,
    /// How many of them stand behind the point.
    behind: i64,
    exponent: i64,
}

fn parts(text: &[u8], is_digit: fn(&u8) -> bool, mark: u8) -> Option<Parts> {
    let whole = text.iter().take_while(|b| is_digit(b)).count();
    let mut digits = text[..whole].to_vec();
    let mut rest = &text[whole..];
    let mut behind = 0;
    if let [b'.', fraction @ ..] = rest {
        behind = fraction.iter().take_while(|b| is_digit(b)).count();
        digits.extend_from_slice(&fraction[..behind]);
        rest = &fraction[behind..];
    }
    if digits.is_empty() {
        return None;
    }
    let exponent = match rest {
        [] => 0,
        [first, exponent @ ..] if first.eq_ignore_ascii_case(&mark) => exponent_of(exponent)?,
        _ => return None,
    };
    Some(Parts { digits, behind: i64::try_from(behind).ok()?, exponent })
}

/// An exponent of any length; beyond all that matters it is cut.
fn exponent_of(text: &[u8]) -> Option<i64> {
    const MOST: i64 = 1_000_000;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0, |n, digit| MOST.min(n * 10 + i64::from(digit - b'0')));
    Some(if negative { -magnitude } else { magnitude })
}

fn hexadecimal(text: &[u8]) -> Option<Extended> {
    let parts = parts(text, u8::is_ascii_hexdigit, b'p')?;
    let (mut magnitude, mut dropped) = (0_u128, 0);
    for digit in &parts.digits {
        let value = u128::from(char::from(*digit).to_digit(16).expect("a hexadecimal digit"));
        if magnitude >> 120 == 0 {
            magnitude = magnitude << 4 | value;
        } else {
            dropped += 4;
            magnitude |= u128::from(value != 0);
        }
    }
    let exponent = parts.exponent + dropped - 4 * parts.behind;
    in_range(Extended::rounded(false, magnitude, i32::try_from(exponent).ok()?)?)
}

fn decimal(text: &[u8]) -> Option<Extended> {
    let parts = parts(text, u8::is_ascii_digit, b'e')?;
    let zeros = parts.digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = &parts.digits[zeros..];
    if digits.is_empty() {
        return Some(Extended::ZERO);
    }
    let ten = parts.exponent - parts.behind;
    // Decimal digits before the point. The largest number has 4933, the smallest begins 4951 behind it.
    let size = i64::try_from(digits.len()).ok()? + ten;
    if !(-4960..=4940).contains(&size) {
        return None;
    }
    let mut above = Big::from_decimal(digits);
    let mut below = Big::from_u64(1);
    let power = u32::try_from(ten.unsigned_abs()).ok()?;
    if ten >= 0 {
        above.times_ten_to(power)
    } else {
        below.times_ten_to(power)
    }
    in_range(quotient(above, below)?)
}

/// A number that rounds to zero is out of range, as C reports it.
fn in_range(number: Extended) -> Option<Extended> {
    (number.mantissa == 0 || number.exponent + 64 > BOTTOM).then_some(number)
}

/// The quotient of two whole numbers, rounded.
fn quotient(mut above: Big, mut below: Big) -> Option<Extended> {
    // Long division in base 2: 66 bits of quotient are 64 of mantissa, one to round and one that stands for the rest.
    const BITS: i64 = 66;
    let shift = BITS - (above.bits() - below.bits());
    let by = u32::try_from(shift.unsigned_abs()).ok()?;
    if shift >= 0 {
        above = above.shifted_left(by)
    } else {
        below = below.shifted_left(by)
    }
    let mut magnitude = 0_u128;
    let mut divisor = below.shifted_left(u32::try_from(BITS).ok()?);
    for _ in 0..=BITS {
        magnitude <<= 1;
        if above.compare(&divisor) != Ordering::Less {
            above.subtract(&divisor);
            magnitude |= 1;
        }
        divisor.halve();
    }
    magnitude = magnitude << 1 | u128::from(!above.is_zero());
    Extended::rounded(false, magnitude, i32::try_from(-shift - 1).ok()?)
}

/// `value >> by`, whose lowest bit is set if anything was shifted out.
fn shifted_right(value: u128, by: u32) -> u128 {
    if by >= 128 {
        return u128::from(value != 0);
    }
    let kept = value >> by;
    kept | u128::from(kept << by != value)
}

/// `value / 2^by`, rounded to the nearest whole number, to an even one between two.
fn half_even(value: u128, by: u32) -> u128 {
    if by >= 128 {
        // The value has at most 121 bits: it is less than half.
        return 0;
    }
    let (kept, rest) = (value >> by, value & ((1 << by) - 1));
    let half = 1_u128 << (by - 1);
    kept + u128::from(rest > half || rest == half && kept & 1 == 1)
}

/// A whole number of any size: limbs of 64 bits, lowest first, without zeros at the top.
#[derive(Clone)]
struct Big(Vec<u64>);

impl Big {
    /// The largest power of ten in a limb, and its exponent.
    const TENS: u64 = 10_u64.pow(19);
    const TENS_DIGITS: u32 = 19;

    fn from_u64(n: u64) -> Big {
        let mut big = Big(vec![n]);
        big.trim();
        big
    }

    fn from_decimal(digits: &[u8]) -> Big {
        let mut big = Big(Vec::new());
        for chunk in digits.chunks(19) {
            let value = chunk.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
            big.times_plus(10_u64.pow(u32::try_from(chunk.len()).expect("at most 19")), value);
        }
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> i64 {
        let limbs = i64::try_from(self.0.len()).expect("numbers have at most a few hundred limbs");
        self.0.last().map_or(0, |top| 64 * limbs - i64::from(top.leading_zeros()))
    }

    fn times_plus(&mut self, factor: u64, plus: u64) {
        let mut carry = u128::from(plus);
        for limb in &mut self.0 {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = low(carry);
            carry >>= 64;
        }
        if carry != 0 {
            self.0.push(low(carry));
        }
    }

    fn times_ten_to(&mut self, mut power: u32) {
        while power >= Self::TENS_DIGITS {
            self.times_plus(Self::TENS, 0);
            power -= Self::TENS_DIGITS;
        }
        self.times_plus(10_u64.pow(power), 0);
    }

    fn shifted_left(mut self, by: u32) -> Big {
        self.times_plus(1 << (by % 64), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, (by / 64) as usize));
        self.trim();
        self
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.0.iter_mut().rev() {
            let next = *limb << 63;
            *limb = *limb >> 1 | carry;
            carry = next;
        }
        self.trim();
    }

    fn compare(&self, other: &Big) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Subtracts a number that is not greater.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (i, limb) in self.0.iter_mut().enumerate() {
            let (less, first) = limb.overflowing_sub(other.0.get(i).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (less, first || second);
        }
        assert!(!borrow, "a greater number was subtracted");
        self.trim();
    }

    fn decimal(mut self) -> String {
        let mut pieces = Vec::new();
        while !self.is_zero() {
            let mut rest = 0_u128;
            for limb in self.0.iter_mut().rev() {
                rest = rest << 64 | u128::from(*limb);
                *limb = low(rest / u128::from(Self::TENS));
                rest %= u128::from(Self::TENS);
            }
            self.trim();
            pieces.push(low(rest));
        }
        let mut text = pieces.pop().unwrap_or(0).to_string();
        for piece in pieces.iter().rev() {
            text += &format!("{piece:019}");
        }
        text
    }
}

/// The low half.
fn low(wide: u128) -> u64 {
    u64::try_from(wide & u128::from(u64::MAX)).expect("64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finite(text: &str) -> Extended {
        match parse(text.as_bytes()) {
            Some(Parsed::Finite(number)) => number,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn texts_read_back() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("3", "3"),
            ("-3.0", "-3"),
            ("10.5", "10.5"),
            ("1e3", "1000"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+7", "7"),
            ("0x10", "16"),
            ("0x1p-1", "0.5"),
            ("5.0e-1", "0.5"),
            ("1e-17", "0.00000000000000001"),
            ("4e-18", "0"),
            ("-4e-18", "0"),
            ("123456789012345678", "123456789012345678"),
            ("18446744073709551615", "18446744073709551615"),
            // 65 bits: the last one is rounded away, to even.
            ("18446744073709551617", "18446744073709551616"),
            ("18446744073709551619", "18446744073709551620"),
            ("0.1", "0.1"),
            ("17.1", "17.1"),
            ("1e21", "1000000000000000000000"),
        ] {
            assert_eq!(finite(text).text(), expected, "{text}");
        }
        assert_eq!(finite("1e4932").text().len(), 4933);
    }

    #[test]
    fn sums_are_those_of_the_x87() {
        for (a, b, sum) in [
            ("10.5", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1", "0"),
            ("3", "-1.1", "1.9"),
            ("1e18", "0.25", "1000000000000000000.25"),
            ("1e19", "0.25", "10000000000000000000"),
            ("-5", "2.5", "-2.5"),
            ("0", "1.5", "1.5"),
        ] {
            assert_eq!(finite(a).plus(finite(b)).expect("finite").text(), sum, "{a} + {b}");
            assert_eq!(finite(b).plus(finite(a)).expect("finite").text(), sum, "{b} + {a}");
        }
        let largest = finite("1.18973149535723176502e+4932");
        assert_eq!(largest.plus(largest), None);
    }

    #[test]
    fn what_is_no_number() {
        for text in ["", " 1", "1 ", "abc", "1e", "1e+", "0x", "nan", "-nan", ".", "-", "1.2.3", "1e4933", "1e-5000"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(&[b'1'; TEXT_LIMIT]), None);
        for text in ["inf", "-INF", "+Infinity"] {
            assert_eq!(parse(text.as_bytes()), Some(Parsed::Infinite), "{text}");
        }
    }
}
