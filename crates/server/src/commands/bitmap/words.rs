//! Bits of byte slices, 64 at a time.
//!
//! Counting goes through carry-save adders (Harley and Seal; in "Hacker's Delight", 5-1): eight words are first added bit
//! by bit into three, so that only one of eight is counted the long way; the compiler makes it vectors of any width.

/// Lanes that are counted side by side.
const LANES: usize = 4;
/// Bytes that one round of the adders takes.
const ROUND: usize = 8 * LANES * 8;

type Lanes = [u64; LANES];

/// Number of set bits.
pub(super) fn count(bytes: &[u8]) -> u64 {
    let (rounds, rest) = bytes.as_chunks::<ROUND>();
    let (mut ones, mut twos, mut fours) = (Lanes::default(), Lanes::default(), Lanes::default());
    let mut eights_total = 0u64;
    for round in rounds {
        let word = |i: usize| lanes(round, i);
        let (twos_a, sum) = add(ones, word(0), word(1));
        let (twos_b, sum) = add(sum, word(2), word(3));
        let (fours_a, sum2) = add(twos, twos_a, twos_b);
        let (twos_a, sum) = add(sum, word(4), word(5));
        let (twos_b, sum) = add(sum, word(6), word(7));
        let (fours_b, sum2) = add(sum2, twos_a, twos_b);
        let (eights, sum4) = add(fours, fours_a, fours_b);
        (ones, twos, fours) = (sum, sum2, sum4);
        eights_total += total(eights);
    }
    let (words, rest) = rest.as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    8 * eights_total + 4 * total(fours) + 2 * total(twos) + total(ones) + words + rest
}

/// The bits of three numbers added column by column: the carries, and the sums.
#[inline]
fn add(a: Lanes, b: Lanes, c: Lanes) -> (Lanes, Lanes) {
    let (mut carry, mut sum) = (Lanes::default(), Lanes::default());
    for i in 0..LANES {
        let either = a[i] ^ b[i];
        carry[i] = a[i] & b[i] | either & c[i];
        sum[i] = either ^ c[i];
    }
    (carry, sum)
}

#[inline]
fn lanes(round: &[u8; ROUND], i: usize) -> Lanes {
    let (words, _) = round.as_chunks::<8>();
    std::array::from_fn(|lane| u64::from_ne_bytes(words[i * LANES + lane]))
}

#[inline]
fn total(lanes: Lanes) -> u64 {
    lanes.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Position of the first bit that is `bit`.
pub(super) fn find(bytes: &[u8], bit: bool) -> Option<u64> {
    let none = if bit { 0 } else { u64::MAX };
    let (words, rest) = bytes.as_chunks::<8>();
    // Four words are looked at together: where bits are rare this is all that is done.
    let skipped =
        4 * words.chunks_exact(4).take_while(|four| four.iter().all(|w| u64::from_ne_bytes(*w) == none)).count();
    for (i, word) in (skipped..).zip(&words[skipped..]) {
        let differing = u64::from_be_bytes(*word) ^ none;
        if differing != 0 {
            return Some(64 * i as u64 + u64::from(differing.leading_zeros()));
        }
    }
    let before = 64 * words.len() as u64;
    (0..).zip(rest).find_map(|(i, byte)| {
        let differing = byte ^ if bit { 0 } else { 0xFF };
        (differing != 0).then(|| before + 8 * i + u64::from(differing.leading_zeros()))
    })
}

/// Combines `source` into `result` word by word; both are of one length.
#[inline]
pub(super) fn combine(result: &mut [u8], source: &[u8], with: impl Fn(u64, u64) -> u64) {
    let (words, rest) = result.as_chunks_mut::<8>();
    let (others, other_rest) = source.as_chunks::<8>();
    for (word, other) in words.iter_mut().zip(others) {
        *word = with(u64::from_ne_bytes(*word), u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in rest.iter_mut().zip(other_rest) {
        let [combined, ..] = with(u64::from(*byte), u64::from(*other)).to_le_bytes();
        *byte = combined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let step = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state.to_be_bytes()[0]
        };
        (0..len).map(step).collect()
    }

    #[test]
    fn counts_are_those_of_single_bytes() {
        for len in (0..70).chain([255, 256, 257, 511, 512, 5000]) {
            for bytes in [noise(len, 7), vec![0xFF; len], vec![0; len]] {
                let expected: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
                assert_eq!(count(&bytes), expected, "{len} bytes");
            }
        }
    }

    #[test]
    fn the_first_bit_is_found_wherever_it_is() {
        for len in [1, 7, 8, 9, 31, 32, 33, 100] {
            for at in 0..8 * len {
                let mut bytes = vec![0u8; len];
                bytes[at / 8] |= 0x80 >> (at % 8);
                // Whatever comes later does not matter.
                bytes[len - 1] |= 1;
                assert_eq!(find(&bytes, true), Some(at as u64));
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                assert_eq!(find(&bytes, false), Some(at as u64));
            }
            assert_eq!((find(&vec![0; len], true), find(&vec![0xFF; len], false)), (None, None));
        }
    }

    #[test]
    fn combining_reaches_the_last_byte() {
        for len in 0..40 {
            let (mut result, source) = (noise(len, 1), noise(len, 2));
            let expected: Vec<u8> = result.iter().zip(&source).map(|(a, b)| a & !b).collect();
            combine(&mut result, &source, |a, b| a & !b);
            assert_eq!(result, expected);
        }
    }
}
