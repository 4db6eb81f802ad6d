//! The keyed hash of a key, and which of its 64 bits serve what.
//!
//! | bits (from the top) | use |
//! |---|---|
//! | up to 14 | the shard |
//! | the next 32 at most | the table's directory, and so the position of SCAN |
//! | the lowest 16 | the fingerprint in the slot, which also decides the bucket |
//!
//! The ranges are disjoint: keys of one shard or one segment still differ in the bits that follow. SipHash-1-3 with a secret seed
//! keeps a client from aiming keys at one bucket; an unkeyed hash would be a few ns faster and was dropped for that reason.

/// Hash of a key under the keyspace's seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hash(pub u64);

/// Most shards of a keyspace, as a power of two: 16384, the number of slots of a Redis cluster.
pub const SHARD_BITS_MAX: u32 = 14;

impl Hash {
    /// Top `bits` bits: the shard's number.
    #[inline]
    pub(crate) fn shard(self, bits: u32) -> u32 {
        debug_assert!(bits <= SHARD_BITS_MAX);
        // The result has at most 14 bits.
        (self.0 >> 1 >> (63 - bits)) as u32
    }

    /// The bits below the shard's, at the top of a word.
    #[inline]
    pub(crate) fn below_shard(self, shard_bits: u32) -> u64 {
        self.0 << shard_bits
    }

    /// The low 16 bits, with 0 read as 1 so that a used slot is never the all-zero word.
    #[inline]
    pub(crate) fn fingerprint(self) -> u16 {
        // Truncation to the low 16 bits is what is meant.
        (self.0 as u16).max(1)
    }
}

/// SipHash-1-3 with its 128-bit key.
#[derive(Clone, Copy)]
pub(crate) struct Hasher {
    seed: (u64, u64),
    /// Tests force collisions by a hash of their own.
    #[cfg(test)]
    pub(crate) forced: Option<fn(&[u8]) -> u64>,
}

impl Hasher {
    pub(crate) fn new(seed: (u64, u64)) -> Self {
        Self {
            seed,
            #[cfg(test)]
            forced: None,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> Hash {
        #[cfg(test)]
        if let Some(forced) = self.forced {
            return Hash(forced(key));
        }
        Hash(siphash13(self.seed, key))
    }
}

/// SipHash-1-3 of `key` under `seed`. Source: Aumasson and Bernstein, *SipHash: a fast short-input PRF* (2012), with one round for
/// each word and three at the end. Its own code since keys are short: two thirds of what a streaming hasher does for sixteen bytes
/// is its buffer.
#[inline]
pub(crate) fn siphash13(seed: (u64, u64), key: &[u8]) -> u64 {
    let mut v = [
        seed.0 ^ 0x736f_6d65_7073_6575,
        seed.1 ^ 0x646f_7261_6e64_6f6d,
        seed.0 ^ 0x6c79_6765_6e65_7261,
        seed.1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        absorb(&mut v, u64::from_le_bytes(*word));
    }
    // The last word: what is left, and the length's low byte on top. Behind eight bytes it is the upper end of the last eight.
    let left = match key.last_chunk::<8>() {
        Some(end) => u64::from_le_bytes(*end) >> 1 >> (63 - 8 * rest.len()),
        None => short_word(rest),
    };
    absorb(&mut v, (key.len() as u64) << 56 | left);
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// Up to seven bytes as a word, low byte first. Read by overlapping pieces instead of one by one.
#[inline(always)]
pub(crate) fn short_word(bytes: &[u8]) -> u64 {
    debug_assert!(bytes.len() < 8);
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
        return u64::from(low) | u64::from(high) << (8 * (bytes.len() - 4));
    }
    let Some((&first, &last)) = bytes.first().zip(bytes.last()) else { return 0 };
    // Of one byte all three are the same; of two the second and the third.
    let middle = bytes.len() / 2;
    u64::from(first) | u64::from(bytes[middle]) << (8 * middle) | u64::from(last) << (8 * (bytes.len() - 1))
}

#[inline(always)]
fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits_are_disjoint() {
        let hash = Hash(0xFFFC_0000_0000_0000);
        assert_eq!(hash.shard(14), 0x3FFF);
        assert_eq!(hash.below_shard(14), 0);
        assert_eq!(hash.fingerprint(), 1);
        assert_eq!(Hash(0x0003_FFFF_FFFF_0000).shard(14), 0);
        assert_eq!(Hash(u64::MAX).shard(0), 0);
        assert_eq!(Hash(0xABCD).fingerprint(), 0xABCD);
    }

    #[test]
    fn hashes_are_those_of_another_implementation() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..=bytes.len() {
            for seed in [(0, 0), (1, 2), (u64::MAX, 0x0123_4567_89AB_CDEF)] {
                let expected = siphasher::sip::SipHasher13::new_with_keys(seed.0, seed.1).hash(&bytes[..len]);
                assert_eq!(siphash13(seed, &bytes[..len]), expected, "{len} bytes");
            }
        }
    }

    #[test]
    fn seed_changes_the_hash() {
        let key = b"key:000000000001";
        assert_eq!(Hasher::new((1, 2)).hash(key), Hasher::new((1, 2)).hash(key));
        assert_ne!(Hasher::new((1, 2)).hash(key), Hasher::new((1, 3)).hash(key));
    }
}
