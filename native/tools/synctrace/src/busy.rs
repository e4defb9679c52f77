//! The time during which at least one call was in flight.

use std::collections::VecDeque;

/// Older intervals than so many are taken as closed: no call still in flight began before them.
const KEPT: usize = 1024;

/// Intervals, disjoint and in order. They must be added roughly by their end.
#[derive(Debug, Default)]
pub struct Busy {
    closed: u64,
    open: VecDeque<(u64, u64)>,
}

impl Busy {
    pub fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end.max(start));
        let mut later = Vec::new();
        while let Some(&(from, to)) = self.open.back() {
            if to < start {
                break;
            }
            self.open.pop_back();
            if from > end {
                later.push((from, to));
            } else {
                start = start.min(from);
                end = end.max(to);
            }
        }
        self.open.push_back((start, end));
        self.open.extend(later.into_iter().rev());
        while self.open.len() > KEPT {
            let (from, to) = self.open.pop_front().unwrap_or_default();
            self.closed += to - from;
        }
    }

    /// In the unit of what was added.
    pub fn total(&self) -> u64 {
        self.closed + self.open.iter().map(|(from, to)| to - from).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn total_is_the_union(mut calls in prop::collection::vec((0u64..500, 0u64..60), 0..60)) {
            calls.sort_by_key(|(start, length)| start + length);
            let mut busy = Busy::default();
            let mut covered = [false; 600];
            for (start, length) in calls {
                busy.add(start, start + length);
                covered[start as usize..(start + length) as usize].fill(true);
            }
            prop_assert_eq!(busy.total(), covered.iter().filter(|c| **c).count() as u64);
        }
    }

    #[test]
    fn many_intervals_are_kept_as_a_sum() {
        let mut busy = Busy::default();
        for index in 0..10_000 {
            busy.add(index * 10, index * 10 + 3);
        }
        assert_eq!(busy.total(), 30_000);
        assert!(busy.open.len() <= KEPT);
    }
}
