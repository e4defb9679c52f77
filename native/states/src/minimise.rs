//! From a state that lost something to the fewest missing changes that still lose.

use std::time::{Duration, Instant};

use crate::checks::{Check, Detail, Finding};
use crate::choice::{Choice, Presence, StateId};
use crate::cut::Cut;
use crate::explore::{Exploration, Found, Worker};
use crate::failure::{During, Result};

const WHAT: &str = "making a loss smaller";
/// As long as the search for losses at most, and never longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// The smallest state that was found, and whether no single change can be put back without undoing the loss.
pub struct Minimal {
    pub id: StateId,
    pub finding: Finding,
    pub detail: Detail,
    /// Sequence numbers of the missing and torn writes.
    pub missing: Vec<u64>,
    pub checks: u64,
    pub is_minimal: bool,
}

/// Zeller and Hildebrandt's ddmin ("Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002) over the
/// changes that are not there.
pub fn minimise(exploration: &Exploration<'_>, found: &Found) -> Result<Minimal> {
    let mut worker = Worker::new(exploration)?;
    worker.at(found.id.cut, |cut, check| {
        let start = cut.presences(&found.id.choice);
        let limit = Duration::from_secs_f64(exploration.request.budget.seconds).min(LIMIT);
        let deadline = Instant::now() + limit;
        let mut search = Search { exploration, cut, check, start, found, checks: 0, deadline };
        let absent = (0..search.start.len()).filter(|&at| search.start[at] != Presence::Present);
        let (left, is_minimal) = search.ddmin(absent.collect())?;
        let choice = search.choice(&left);
        let state = cut.state(&choice).during(WHAT)?;
        let finding = search.check.check(&state)?;
        let detail = search.check.detail(&state)?;
        Ok(Minimal {
            id: StateId { choice, ..found.id.clone() },
            finding,
            detail,
            missing: left.iter().map(|&at| cut.candidates[at].sequence).collect(),
            checks: search.checks,
            is_minimal,
        })
    })
}

struct Search<'a, 'e, 'c, 'i, 's> {
    exploration: &'a Exploration<'e>,
    cut: &'c Cut<'i, 's>,
    check: &'a mut dyn Check,
    start: Vec<Presence>,
    found: &'a Found,
    checks: u64,
    deadline: Instant,
}

impl Search<'_, '_, '_, '_, '_> {
    fn choice(&self, absent: &[usize]) -> Choice {
        let one = |&at: &usize| {
            let torn = match &self.start[at] {
                Presence::Torn(sectors) => Some(sectors.clone()),
                _ => None,
            };
            (self.cut.candidates[at].sequence, torn)
        };
        if absent.is_empty() {
            Choice::Everything
        } else {
            Choice::Without(absent.iter().map(one).collect())
        }
    }

    fn still_loses(&mut self, absent: &[usize]) -> Result<bool> {
        self.checks += 1;
        let state = self.cut.state(&self.choice(absent)).during(WHAT)?;
        Ok(self.check.check(&state)?.verdict >= self.found.finding.verdict)
    }

    fn may_go_on(&self) -> bool {
        self.checks < self.exploration.request.budget.minimise && Instant::now() < self.deadline
    }

    /// The changes that must stay absent; false when the budget ended before that was sure.
    fn ddmin(&mut self, mut absent: Vec<usize>) -> Result<(Vec<usize>, bool)> {
        if self.still_loses(&[])? {
            return Ok((Vec::new(), true));
        }
        let mut parts = 2;
        while absent.len() >= 2 {
            if !self.may_go_on() {
                return Ok((absent, false));
            }
            match self.smaller(&absent, parts)? {
                Some((less, next)) => (absent, parts) = (less, next),
                None if parts >= absent.len() => break,
                None => parts = (parts * 2).min(absent.len()),
            }
        }
        Ok((absent, true))
    }

    /// One of the parts, or all without one part, that still loses; and into how many parts to cut it next.
    fn smaller(&mut self, absent: &[usize], parts: usize) -> Result<Option<(Vec<usize>, usize)>> {
        let size = absent.len().div_ceil(parts);
        for part in absent.chunks(size) {
            if self.may_go_on() && self.still_loses(part)? {
                return Ok(Some((part.to_vec(), 2)));
            }
        }
        for index in (0..absent.len().div_ceil(size)).filter(|_| parts > 2) {
            let (from, to) = (index * size, ((index + 1) * size).min(absent.len()));
            let rest = [&absent[..from], &absent[to..]].concat();
            if self.may_go_on() && self.still_loses(&rest)? {
                return Ok(Some((rest, (parts - 1).max(2))));
            }
        }
        Ok(None)
    }
}
