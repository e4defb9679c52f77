//! From a state that lost something to the fewest missing changes that still lose.

use std::time::{Duration, Instant};

use crate::checks::{Check, Detail, Finding};
use crate::choice::{Choice, Presence, StateId};
use crate::cut::Cut;
use crate::explore::{Exploration, Worker};
use crate::failure::{During, Result};
use crate::found::Found;

const WHAT: &str = "making a loss smaller";
/// As long as the search for losses at most, and never longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// The smallest state that was found, and whether no single change can be put back without undoing
/// the loss.
pub struct Minimal {
    pub id: StateId,
    pub finding: Finding,
    pub detail: Detail,
    /// Sequence numbers of the missing and torn writes.
    pub missing: Vec<u64>,
    pub checks: u64,
    pub is_minimal: bool,
}

/// Zeller and Hildebrandt's ddmin ("Simplifying and Isolating Failure-Inducing Input", IEEE TSE
/// 28(2), 2002) over the changes that are not there.
pub fn minimise(exploration: &Exploration<'_>, found: &Found) -> Result<Minimal> {
    let mut worker = Worker::new(exploration)?;
    worker.at(found.id.cut, |cut, check| {
        if !found.was_run {
            let state = cut.state(&found.id.choice).during(WHAT)?;
            if check.check(&state)? != found.finding {
                exploration.stop_sharing();
            }
        }
        let start = cut.presences(&found.id.choice);
        let limit = Duration::from_secs_f64(exploration.request.budget.seconds).min(LIMIT);
        let deadline = Instant::now() + limit;
        let mut search = Search { exploration, cut, check, start, found, checks: 0, deadline };
        let absent = (0..search.start.len()).filter(|&at| search.start[at] != Presence::Present);
        let (left, is_minimal) = ddmin(absent.collect(), |absent| search.still_loses(absent))?;
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
                Presence::Torn(tear) => Some(tear.clone()),
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

    /// None: the budget is used up.
    fn still_loses(&mut self, absent: &[usize]) -> Result<Option<bool>> {
        let most = self.exploration.request.budget.minimise;
        if self.checks >= most || Instant::now() >= self.deadline {
            return Ok(None);
        }
        self.checks += 1;
        let state = self.cut.state(&self.choice(absent)).during(WHAT)?;
        Ok(Some(self.check.check(&state)?.verdict >= self.found.finding.verdict))
    }
}

/// The fewest of `absent` for which `loses` holds; false when it stopped answering (None) before
/// that was sure.
///
/// `loses` holds for all of them.
pub fn ddmin<E>(
    mut absent: Vec<usize>,
    mut loses: impl FnMut(&[usize]) -> std::result::Result<Option<bool>, E>,
) -> std::result::Result<(Vec<usize>, bool), E> {
    match loses(&[])? {
        Some(true) => return Ok((Vec::new(), true)),
        None => return Ok((absent, false)),
        Some(false) => {}
    }
    let mut parts = 2;
    'smaller: while absent.len() >= 2 {
        let size = absent.len().div_ceil(parts);
        for (less, next) in parts_and_rests(&absent, size) {
            match loses(&less)? {
                None => return Ok((absent, false)),
                Some(true) => {
                    (absent, parts) = (less, if next { (parts - 1).max(2) } else { 2 });
                    continue 'smaller;
                }
                Some(false) => {}
            }
        }
        if size == 1 {
            break;
        }
        parts = (parts * 2).min(absent.len());
    }
    Ok((absent, true))
}

/// Each part of so many, then all without each part (true).
fn parts_and_rests(absent: &[usize], size: usize) -> Vec<(Vec<usize>, bool)> {
    let parts = absent.chunks(size).map(|part| (part.to_vec(), false));
    let rest = |index: usize| {
        let (from, to) = (index * size, ((index + 1) * size).min(absent.len()));
        ([&absent[..from], &absent[to..]].concat(), true)
    };
    parts.chain((0..absent.len().div_ceil(size)).map(rest)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::ddmin;

    proptest! {
        #[test]
        fn what_is_needed_is_found(
            count in 1..60usize,
            needed in prop::collection::btree_set(0..60usize, 0..5),
        ) {
            let needed: BTreeSet<usize> = needed.into_iter().filter(|at| *at < count).collect();
            let loses = |absent: &[usize]| {
                Ok::<_, Infallible>(Some(needed.iter().all(|at| absent.contains(at))))
            };
            let (found, sure) = ddmin((0..count).collect(), loses).unwrap();
            prop_assert!(sure);
            prop_assert_eq!(found, needed.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn what_is_not_sure_still_loses(count in 2..60usize, needed in 0..60usize, most in 0..20) {
            let needed = needed % count;
            let mut left = most;
            let loses = |absent: &[usize]| {
                left -= 1;
                Ok::<_, Infallible>((left >= 0).then_some(absent.contains(&needed)))
            };
            let (found, _) = ddmin((0..count).collect(), loses).unwrap();
            prop_assert!(found.contains(&needed));
        }
    }
}
