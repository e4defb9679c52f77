//! Who waits beside whom: calls on one file that overlap in time, by the names of their threads'
//! processes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::event::{Event, Target};

/// A call is compared with so many that ended before it.
const WINDOW: usize = 64;
const MOST_PAIRS: usize = 10_000;

/// The call that began later, the one it had to share the disk with, and the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub waiter: (i32, Arc<str>),
    pub before: (i32, Arc<str>),
    pub file: Arc<str>,
}

#[derive(Debug, Default)]
pub struct Waits {
    recent: VecDeque<Event>,
    /// Calls, and the nanoseconds that both were in flight.
    pub pairs: BTreeMap<Pair, (u64, u64)>,
}

impl Waits {
    pub fn add(&mut self, event: &Event) {
        if event.result < 0 || event.call.target() != Target::Descriptor {
            return;
        }
        let meets = |other: &&Event| {
            let overlaps = other.end > event.start && event.end > other.start;
            overlaps && other.tid != event.tid && other.file == event.file
        };
        let met: Vec<Event> = self.recent.iter().filter(meets).cloned().collect();
        for other in met {
            self.count(event, &other);
        }
        self.recent.push_back(event.clone());
        if self.recent.len() > WINDOW {
            self.recent.pop_front();
        }
    }

    fn count(&mut self, one: &Event, other: &Event) {
        let (waiter, before) = if one.start >= other.start { (one, other) } else { (other, one) };
        let together = one.end.min(other.end).saturating_sub(one.start.max(other.start));
        let pair = Pair {
            waiter: (waiter.pid, waiter.process.clone()),
            before: (before.pid, before.process.clone()),
            file: one.file.clone(),
        };
        if self.pairs.len() >= MOST_PAIRS && !self.pairs.contains_key(&pair) {
            return;
        }
        let sums = self.pairs.entry(pair).or_default();
        sums.0 += 1;
        sums.1 += together;
    }

    /// The costliest first.
    pub fn sorted(&self) -> Vec<(&Pair, (u64, u64))> {
        let mut pairs: Vec<_> = self.pairs.iter().map(|(pair, sums)| (pair, *sums)).collect();
        pairs.sort_by_key(|(_, (_, together))| std::cmp::Reverse(*together));
        pairs
    }
}
