//! What an exploration has done so far, counted by its threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::{Cuts, Pass};
use crate::report::{Covered, Share};

#[derive(Default)]
pub struct Counters {
    pub built: AtomicU64,
    /// States that hold something else than those before, or that were promised more.
    pub distinct: AtomicU64,
    /// How many of those belong to our shard.
    pub checked: AtomicU64,
    /// And of those were not run: a state that was equals them in all that was read of it.
    pub equal: AtomicU64,
    pub losing: AtomicU64,
    /// Acknowledgements looked at with nothing that is not durable.
    pub bare: AtomicU64,
    /// Single changes that were missing where promises depend on them.
    pub alone: AtomicU64,
}

impl Counters {
    /// One state more was looked at, ours or known by its content only.
    pub fn cover(&self, pass: Pass) {
        match pass {
            Pass::Nothing => self.bare.fetch_add(1, Ordering::Relaxed),
            Pass::Alone => self.alone.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// As if nothing had been looked at yet.
    pub fn reset(&self) {
        let Counters { built, distinct, checked, equal, losing, bare, alone } = self;
        for counter in [built, distinct, checked, equal, losing, bare, alone] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// How far it came in what decides.
    pub fn covered(&self, cuts: &Cuts) -> Covered {
        let share = |done: &AtomicU64, of| Share { done: done.load(Ordering::Relaxed), of };
        Covered {
            acknowledgements: share(&self.bare, cuts.acknowledgements.len() as u64),
            changes: share(&self.alone, cuts.alone.states()),
        }
    }
}
