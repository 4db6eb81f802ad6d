//! Intset: `width u32 | count u32 | integers`, all little endian, ascending, each `width` (2, 4 or 8) bytes.

use crate::error::Flaw;

/// The integers of an intset.
pub(crate) fn read(blob: &[u8]) -> Result<impl Iterator<Item = i64>, Flaw> {
    let Some(([w0, w1, w2, w3, c0, c1, c2, c3], body)) = blob.split_first_chunk() else {
        return Err(Flaw("intset without a header"));
    };
    let width = match u32::from_le_bytes([*w0, *w1, *w2, *w3]) {
        2 => 2,
        4 => 4,
        8 => 8,
        _ => return Err(Flaw("intset of an unknown width")),
    };
    let count = u64::from(u32::from_le_bytes([*c0, *c1, *c2, *c3]));
    if count.checked_mul(width as u64) != Some(body.len() as u64) {
        return Err(Flaw("intset of the wrong size"));
    }
    let integers = body.chunks_exact(width).map(integer);
    if !integers.clone().is_sorted_by(|one, next| one < next) {
        return Err(Flaw("intset that is not in order"));
    }
    Ok(integers)
}

fn integer(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("widths are 2, 4 and 8"),
    }
}

/// Encodes `integers`, which become sorted.
pub(crate) fn write(integers: &mut [i64], out: &mut Vec<u8>) {
    integers.sort_unstable();
    let least = integers.first().copied().unwrap_or(0);
    let greatest = integers.last().copied().unwrap_or(0);
    let fits = |low: i64, high: i64| least >= low && greatest <= high;
    let width = match () {
        () if fits(i16::MIN.into(), i16::MAX.into()) => 2_u32,
        () if fits(i32::MIN.into(), i32::MAX.into()) => 4,
        () => 8,
    };
    let count = u32::try_from(integers.len()).expect("intsets have at most set-max-intset-entries members");
    out.extend_from_slice(&width.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    for integer in integers {
        let bytes = integer.to_le_bytes();
        out.extend_from_slice(&bytes[..width as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_in_every_width() {
        let cases: [&[i64]; 5] = [&[1], &[-3, 0, 32_767], &[-32_769, 5], &[2_147_483_648, 0], &[i64::MIN, i64::MAX, 7]];
        for case in cases {
            let mut sorted = case.to_vec();
            let mut blob = Vec::new();
            write(&mut sorted, &mut blob);
            let back: Vec<i64> = read(&blob).expect("an intset").collect();
            assert_eq!(back, sorted);
            assert!(read(&blob[..blob.len() - 1]).is_err() && read(&blob[..7]).is_err());
        }
    }

    #[test]
    fn members_are_unique_and_in_order() {
        for wrong in [[2_i16, 1], [1, 1]] {
            let mut blob = vec![2, 0, 0, 0, 2, 0, 0, 0];
            blob.extend(wrong.iter().flat_map(|n| n.to_le_bytes()));
            assert!(read(&blob).is_err());
        }
        assert!(read(&[3, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(read(&[8, 0, 0, 0, 255, 255, 255, 255]).is_err());
    }
}
