//! What a state loses, found out once for all states that hold the same and were promised the same.

use std::sync::atomic::Ordering;

use crate::checks::{Check, Finding};
use crate::explore::Exploration;
use crate::failure::Result;
use crate::state::State;
use diskproof_random::mix;

/// What a state loses, and whether the check was run on it just now.
pub struct Judged {
    pub finding: Finding,
    pub was_run: bool,
}

impl Judged {
    fn unseen(finding: Finding) -> Judged {
        Judged { finding, was_run: false }
    }
}

/// What a state loses: as one was found to that held the same and was promised the same, or checked
/// now.
pub fn judge(
    exploration: &Exploration<'_>,
    check: &mut dyn Check,
    state: &State<'_, '_, '_>,
) -> Result<Judged> {
    let counters = &exploration.counters;
    counters.built.fetch_add(1, Ordering::Relaxed);
    let key = mix(state.hash ^ mix(check.promise()));
    if let Some(known) = exploration.find_known(key) {
        return Ok(Judged::unseen(known));
    }
    let ours = exploration.is_ours(key);
    let judged =
        if ours { ask(exploration, check, state, key)? } else { Judged::unseen(Finding::KEEPS) };
    let finding = judged.finding;
    if exploration.remember(key, finding) {
        let loses = u64::from(finding.is_broken());
        counters.equal.fetch_add(u64::from(ours && !judged.was_run), Ordering::Relaxed);
        counters.distinct.fetch_add(1, Ordering::Relaxed);
        counters.checked.fetch_add(u64::from(ours), Ordering::Relaxed);
        counters.losing.fetch_add(loses, Ordering::Relaxed);
    }
    Ok(judged)
}

/// Runs the check where it is not known what it would find, and now and then where it is.
fn ask(
    exploration: &Exploration<'_>,
    check: &mut dyn Check,
    state: &State<'_, '_, '_>,
    key: u64,
) -> Result<Judged> {
    let recalled = check.recall(state)?;
    match recalled {
        Some(known) if !exploration.samples(key) => Ok(Judged::unseen(known)),
        recalled => {
            let finding = check.check(state)?;
            if recalled.is_some_and(|known| known != finding) {
                exploration.stop_sharing();
            }
            Ok(Judged { finding, was_run: true })
        }
    }
}
