//! The causes that are known, and how they are put back into a state.

use std::collections::HashMap;

use super::cure::Cure;
use super::likeness::Steps;
use crate::checks::{Detail, Finding};
use crate::choice::{Presence, StateId};
use crate::cut::Cut;

/// Operations that must be missing or torn together for something to be lost.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The steps they are of, rising; a step stands as often as operations of it are needed.
    pub steps: Vec<u32>,
    /// The smallest state that it was found in.
    pub id: StateId,
    pub finding: Finding,
    pub detail: Detail,
    pub moment_ns: u64,
    /// Of that state: the missing and torn records.
    pub missing: Vec<(u64, Presence)>,
    /// States that lost something by it.
    pub states: u64,
    pub cure: Option<Cure>,
}

impl Cause {
    pub fn is_torn(&self) -> bool {
        self.missing.iter().any(|(_, presence)| matches!(presence, Presence::Torn(_)))
    }

    pub fn is_cured(&self) -> bool {
        self.cure.as_ref().is_some_and(|cure| cure.works)
    }
}

/// The candidates of a cut that are missing or torn.
pub fn absent(presences: &[Presence]) -> Vec<usize> {
    (0..presences.len()).filter(|&at| presences[at] != Presence::Present).collect()
}

/// Which of the causes are in a state: their operations that are absent. `counts`: whether an
/// operation that is absent can be part of a cause.
pub fn find_cause<'c>(
    causes: impl IntoIterator<Item = &'c Cause>,
    steps: &Steps,
    cut: &Cut<'_, '_>,
    presences: &[Presence],
    counts: &dyn Fn(u64) -> bool,
) -> Option<(&'c Cause, Vec<usize>)> {
    let mut by_step: HashMap<u32, Vec<usize>> = HashMap::new();
    for at in absent(presences) {
        let sequence = cut.candidates[at].sequence;
        if counts(sequence) {
            by_step.entry(steps.of(sequence)).or_default().push(at);
        }
    }
    let has = |cause: &&Cause| {
        let needs = |step: &u32| cause.steps.iter().filter(|one| *one == step).count();
        let there = |step: &u32| by_step.get(step).map_or(0, Vec::len) >= needs(step);
        !cause.steps.is_empty() && cause.steps.iter().all(there)
    };
    let cause = causes.into_iter().find(has)?;
    let found = cause.steps.iter().filter_map(|step| by_step.get(step)).flatten().copied();
    Some((cause, found.collect()))
}
