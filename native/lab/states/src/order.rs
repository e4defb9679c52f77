//! What a crash cannot have left without what came before.

use std::collections::BTreeSet;

use crate::trace::{Change, Trace};

/// Known records that must be there if this one is, or if its size is. One that had not begun by
/// the cut stands for what it comes after itself.
pub fn comes_after(trace: &Trace, sequence: u64, is_known: impl Fn(u64) -> bool) -> BTreeSet<u64> {
    let direct = |sequence| match trace.change(sequence) {
        Some(Change::Names { after, .. }) => after.clone(),
        _ => trace.event(sequence).truncation.into_iter().collect(),
    };
    let (mut found, mut open) = (BTreeSet::new(), direct(sequence));
    while let Some(earlier) = open.pop() {
        match is_known(earlier) {
            true => _ = found.insert(earlier),
            false => open.extend(direct(earlier)),
        }
    }
    found
}
