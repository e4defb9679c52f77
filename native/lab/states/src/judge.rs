//! What a state loses, found out once for all states that hold the same and were promised the same.

use std::sync::atomic::Ordering;

use crate::checks::{Check, Finding};
use crate::cut::State;
use crate::explore::Exploration;
use crate::failure::Result;
use diskproof_random::mix;

/// What a state loses: as one was found to that held the same and was promised the same, or checked
/// now.
pub fn judge(
    exploration: &Exploration<'_>,
    check: &mut dyn Check,
    state: &State<'_, '_, '_>,
) -> Result<Finding> {
    let counters = &exploration.counters;
    counters.built.fetch_add(1, Ordering::Relaxed);
    let key = mix(state.hash ^ mix(check.promise()));
    if let Some(known) = exploration.find_known(key) {
        return Ok(known);
    }
    let ours = exploration.is_ours(key);
    let finding = if ours { check.check(state)? } else { Finding::KEEPS };
    if exploration.remember(key, finding) {
        let loses = u64::from(finding.is_broken());
        counters.distinct.fetch_add(1, Ordering::Relaxed);
        counters.checked.fetch_add(u64::from(ours), Ordering::Relaxed);
        counters.losing.fetch_add(loses, Ordering::Relaxed);
    }
    Ok(finding)
}
