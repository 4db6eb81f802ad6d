//! Choices that follow from a seed: a mixing function, so that every block and entry has a choice of its own that does
//! not depend on the order in which they are looked at.

/// A well-mixed function of both (the finaliser of SplitMix64, by Steele, Lea and Flood).
pub fn mix(seed: u64, salt: u64) -> u64 {
    let mut z = seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A sequence of choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed, 0x52_41_4E_44))
    }

    /// Any 64 bits.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 1)
    }

    /// Uniform below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.any() % bound }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_spread_and_repeat_with_the_seed() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            let mut counts = [0_u32; 8];
            for _ in 0..8000 {
                counts[usize::try_from(random.below(8)).expect("small")] += 1;
            }
            counts
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().all(|count| (800..1200).contains(count)), "{:?}", draw(1));
    }
}
