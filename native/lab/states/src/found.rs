//! The states that lost something, and how an exploration ended.

use std::cmp::Reverse;

use crate::checks::{Detail, Finding, Severity};
use crate::choice::StateId;
use crate::failure::Failure;

/// Pass, cut, number of the state: what one thread would do first is less.
pub type Order = (u64, u64, u64);

/// How bad, how old the oldest loss, and of equals what one thread would have found first.
pub type Rank = (Severity, u64, Reverse<Order>);

/// A state that lost something.
#[derive(Clone, Debug)]
pub struct Found {
    pub id: StateId,
    pub finding: Finding,
    /// None of a state that loses as much as one before: all that is new of it is its age.
    pub detail: Detail,
    pub moment_ns: u64,
    pub order: Order,
    /// The check was run on this very state.
    pub was_run: bool,
}

impl Found {
    pub fn age_ns(&self) -> Option<u64> {
        self.finding.age_ns(self.moment_ns)
    }

    pub fn rank(&self) -> Rank {
        rank(self.finding, self.moment_ns, self.order)
    }
}

pub fn rank(finding: Finding, moment_ns: u64, order: Order) -> Rank {
    (finding.severity(), finding.age_ns(moment_ns).unwrap_or(0), Reverse(order))
}

/// How an exploration ended.
#[derive(Default)]
pub struct Outcome {
    /// The losses of each pass that were worse than all before, the worst last.
    pub found: Vec<Found>,
    /// Passes that were finished.
    pub passes: u64,
    pub planned_done: bool,
    /// Every combination was built at every cut.
    pub complete: bool,
    pub timed_out: bool,
}

impl Outcome {
    pub fn worst(&self) -> Option<&Found> {
        self.found.iter().max_by_key(|found| found.rank())
    }
}

pub enum Message {
    Found(Box<Found>),
    Failed(Failure),
}
