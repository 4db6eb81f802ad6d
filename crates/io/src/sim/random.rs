//! The generator behind the simulation's faults: SplitMix64 (Steele, Lea, Flood 2014), small and repeatable.

#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `bound`, which is not zero. The bias is below 2^-32 for the bounds used here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        // The remainder is less than `bound`, so it fits.
        (self.next() % bound as u64) as usize
    }

    pub(super) fn percent(&mut self, chance: u8) -> bool {
        chance > 0 && self.below(100) < usize::from(chance)
    }

    pub(super) fn per_10_000(&mut self, chance: u16) -> bool {
        chance > 0 && self.below(10_000) < usize::from(chance)
    }

    /// Fisher and Yates.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            let mut items: Vec<u64> = (0..20).collect();
            random.shuffle(&mut items);
            (items, random.percent(50), random.per_10_000(5_000), random.next())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut sorted = draw(7).0;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
