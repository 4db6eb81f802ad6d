//! HyperLogLog's arithmetic: from an element to a register, and from all registers to the number of elements.
//!
//! Everything here is fixed by values that are already stored somewhere: Redis's registers and those of this server are
//! the same for the same elements.
//!
//! The estimate is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches", arXiv:1702.01284, the
//! improved raw estimator): it needs no correction for small or large numbers and no tables.

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 14;
/// Number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// The other bits of a hash: their lowest set bit is what a register remembers.
const RANK_BITS: u32 = 64 - INDEX_BITS;
/// Values that a register of 6 bits can have.
pub const VALUES: usize = 64;

/// How many registers have each value.
pub type Histogram = [u32; VALUES];

/// The register of an element, and the value that it asks for: 1 to 51.
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element, 0xadc8_3b19);
    let index = usize::try_from(hash % REGISTERS as u64).expect("14 bits");
    let rank = (hash >> INDEX_BITS | 1 << RANK_BITS).trailing_zeros() + 1;
    (index, u8::try_from(rank).expect("at most 51"))
}

/// MurmurHash64A, by Austin Appleby, as on a little-endian machine.
fn murmur(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> R
}

/// The number of different elements that registers of these values have probably seen.
pub fn estimate(histogram: &Histogram) -> u64 {
    /// 1 / (2 ln 2).
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
    let count = |value: u32| f64::from(histogram[value as usize]);
    let mut z = m * tau((m - count(RANK_BITS + 1)) / m);
    for value in (1..=RANK_BITS).rev() {
        z = (z + count(value)) * 0.5;
    }
    z += m * sigma(count(0) / m);
    // Beyond what 64 bits hold, as if all registers were full, this saturates; an empty sketch divides by infinity.
    (ALPHA * m * m / z).round() as u64
}

/// x + the sum of x^(2^k) 2^(k-1), for k from 1.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// (1 - x - the sum of (1 - x^(2^-k))^2 2^-k, for k from 1) / 3.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_sketch_has_seen_nothing() {
        let mut histogram = [0; VALUES];
        histogram[0] = u32::try_from(REGISTERS).expect("16384");
        assert_eq!(estimate(&histogram), 0);
        histogram[0] -= 1;
        histogram[1] += 1;
        assert_eq!(estimate(&histogram), 1);
    }

    #[test]
    fn estimates_are_near_the_truth() {
        let mut registers = vec![0u8; REGISTERS];
        let mut next = 0u64;
        for n in [10u64, 100, 1000, 10_000, 100_000, 1_000_000] {
            while next < n {
                let (index, value) = place(&next.to_le_bytes());
                registers[index] = registers[index].max(value);
                next += 1;
            }
            let mut histogram = [0; VALUES];
            registers.iter().for_each(|value| histogram[usize::from(*value)] += 1);
            let error = (estimate(&histogram) as f64 - n as f64).abs() / n as f64;
            assert!(error < 0.03, "{n}: {error}");
        }
    }

    /// Values of the reference implementation for every length of the rest.
    #[test]
    fn hashes_end_with_every_length() {
        let text = b"abcdefghijklmnop";
        let distinct: std::collections::BTreeSet<u64> = (0..=16).map(|len| murmur(&text[..len], 1)).collect();
        assert_eq!(distinct.len(), 17);
        assert_eq!(murmur(b"", 0), 0);
    }
}
