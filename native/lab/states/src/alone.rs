//! Where each change is missing by itself: at the first and at the last promise given while it
//! could still be lost. The first may be about it; of the last, most depends on it.

use std::collections::BTreeMap;

use crate::fault::Durability;
use crate::trace::{Trace, What};

/// Changes that are left out one by one, by the cut at which they are.
pub struct Alone {
    by_cut: BTreeMap<u64, Vec<u64>>,
    cuts: Vec<u64>,
}

impl Alone {
    /// `acknowledgements` are sequence numbers, rising.
    pub fn new(trace: &Trace, durability: &Durability, acknowledgements: &[u64]) -> Alone {
        let settled = durability.settled_at();
        let mut by_cut: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (event, change) in trace.events.iter().zip(1..) {
            if !matches!(event.what, What::Change(_)) {
                continue;
            }
            let settled = settled[change as usize - 1];
            let first = acknowledgements.partition_point(|&said| said < change);
            let after = acknowledgements.partition_point(|&said| said < settled);
            let promises = acknowledgements.get(first..after).unwrap_or_default();
            let ends = [promises.first(), promises.last()].into_iter().flatten().copied();
            // Without a promise in that time: when those before it are the most that they can be.
            let before = promises.is_empty().then_some(settled - 1);
            let mut cuts: Vec<u64> = ends.chain(before).collect();
            cuts.dedup();
            for cut in cuts.into_iter().filter(|&cut| can_miss(trace, cut, change)) {
                by_cut.entry(cut).or_default().push(change);
            }
        }
        let cuts = by_cut.keys().copied().collect();
        Alone { by_cut, cuts }
    }

    /// In the order of the log.
    pub fn cuts(&self) -> &[u64] {
        &self.cuts
    }

    /// The changes that are left out at a cut, each by itself.
    pub fn at(&self, cut: u64) -> &[u64] {
        self.by_cut.get(&cut).map_or(&[], Vec::as_slice)
    }

    pub fn states(&self) -> u64 {
        self.by_cut.values().map(|changes| changes.len() as u64).sum()
    }
}

/// It had begun by then: what is durable with its own end is missing only while it is under way.
fn can_miss(trace: &Trace, cut: u64, change: u64) -> bool {
    cut > 0 && (cut >= change || trace.event(change).begin_ns <= trace.event(cut).end_ns)
}
