//! What the kernel does before an operation of the program: the same for the same seed.

use diskproof_random::Random;
use std::time::Duration;

/// Of the first operations one of four meets a commit; of a long program's later ones fewer, so
/// that what it leaves can still be looked at whole.
const OFTEN: u64 = 4;
const FIRST: u64 = 64;
const LONGEST: Duration = Duration::from_secs(5);

/// What is done, writeback first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub writes_back: bool,
    pub commits: bool,
    /// The commit goes beside the operation, which may be a flush, and not before it.
    pub beside: bool,
}

pub struct Pace {
    random: Random,
    operations: u64,
    shortest: Duration,
    pause: Duration,
}

impl Pace {
    /// After the `shortest` pause something is done without an operation. Each further one is
    /// twice as long.
    pub fn new(seed: u64, shortest: Duration) -> Pace {
        Pace { random: Random::of_stream(seed, 0), operations: 0, shortest, pause: shortest }
    }

    /// How long to wait for an operation.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    pub fn operations(&self) -> u64 {
        self.operations
    }

    pub fn before_operation(&mut self) -> Step {
        self.operations += 1;
        self.pause = self.shortest;
        let rare = OFTEN * self.operations.div_ceil(FIRST);
        let mut is_due = || self.random.below(rare) == 0;
        Step { writes_back: is_due(), commits: is_due(), beside: self.random.below(2) == 0 }
    }

    pub fn after_pause(&mut self) -> Step {
        self.pause = (2 * self.pause).min(LONGEST);
        let mut is_due = || self.random.below(2) == 0;
        Step { writes_back: is_due(), commits: is_due(), beside: false }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pace, LONGEST};
    use std::time::Duration;

    const PAUSE: Duration = Duration::from_millis(10);

    #[test]
    fn the_same_seed_does_the_same_and_another_something_else() {
        let steps = |seed| {
            let mut pace = Pace::new(seed, PAUSE);
            (0..500).map(|_| pace.before_operation()).collect::<Vec<_>>()
        };
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
        for wanted in 0..4 {
            let is =
                |one: &super::Step| u8::from(one.writes_back) + 2 * u8::from(one.commits) == wanted;
            assert!(steps(3).iter().any(is), "{wanted}");
        }
    }

    #[test]
    fn a_long_program_meets_few_more_than_a_short_one() {
        for seed in 0..20 {
            let mut pace = Pace::new(seed, PAUSE);
            let mut count =
                |operations| (0..operations).filter(|_| pace.before_operation().commits).count();
            let (first, rest) = (count(64), count(64_000 - 64));
            assert!((5..30).contains(&first), "{first}");
            assert!((50..200).contains(&rest), "{rest}");
        }
    }

    #[test]
    fn a_program_that_waits_is_looked_at_less_and_less() {
        let mut pace = Pace::new(1, PAUSE);
        let pauses = (0..12).map(|_| {
            pace.after_pause();
            pace.pause()
        });
        let pauses: Vec<_> = pauses.collect();
        assert!(pauses.windows(2).all(|two| two[0] < two[1] || two[1] == LONGEST));
        pace.before_operation();
        assert_eq!(pace.pause(), PAUSE);
    }
}
