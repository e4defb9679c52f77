//! Numbers and bytes that look random and come out the same for the same seed, on every machine.

#![forbid(unsafe_code)]
#![no_std]

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for each list of numbers.
    pub fn new(seeds: &[u64]) -> Random {
        let mut random = Random(0);
        for &seed in seeds {
            random.0 ^= seed;
            random.0 = random.number();
        }
        random
    }

    /// A stream of its own for each pair.
    pub fn of_stream(seed: u64, stream: u64) -> Random {
        Random(mix(mix(seed.wrapping_add(STEP)) ^ stream))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Below `bound`, which is not 0; the bias of 2^-64 times the bound is of no matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// The next bytes of the stream; a call that does not end on a multiple of eight must be the
    /// last.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            word.copy_from_slice(&number[..word.len()]);
        }
    }
}

pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: spreads every bit over all of them.
#[inline]
pub fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's published first outputs for the seed 0.
    #[test]
    fn the_numbers_are_those_of_the_paper() {
        let mut random = Random(0);
        assert_eq!(random.number(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.number(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn bytes_do_not_depend_on_how_many_are_taken_at_once() {
        let (mut whole, mut parts) = ([0; 100], [0; 100]);
        Random::of_stream(7, 1).fill(&mut whole);
        let mut random = Random::of_stream(7, 1);
        parts.chunks_mut(16).for_each(|part| random.fill(part));
        assert_eq!(whole, parts);
        Random::of_stream(7, 2).fill(&mut parts);
        assert_ne!(whole, parts);
    }
}
