//! Truncations that leave a part of a block, where fsync does not write the zeros behind it: those
//! are in memory alone until the block is written again (btrfs).

use std::collections::HashSet;

use crate::image::BLOCK;
use crate::trace::{Change, Trace};

#[derive(Default)]
pub struct CutBlocks {
    truncations: HashSet<u64>,
}

impl CutBlocks {
    /// A change of a file that was so long.
    pub fn take(&mut self, sequence: u64, change: &Change, length: Option<&u64>) {
        let is_shorter = |size| length.is_some_and(|length| size < *length);
        if matches!(*change, Change::Truncate { size } if size % BLOCK > 0 && is_shorter(size)) {
            self.truncations.insert(sequence);
        }
    }

    /// Those of a file's changes, in their order, that have nothing behind them that writes the
    /// block.
    pub fn left(&self, trace: &Trace, changes: &[u64]) -> Vec<u64> {
        let is_left = |at: usize| {
            let Some(&Change::Truncate { size }) = trace.change(changes[at]) else { return false };
            let mut later = changes[at + 1..].iter().filter_map(|one| trace.change(*one));
            self.truncations.contains(&changes[at]) && !later.any(|change| reaches(change, size))
        };
        (0..changes.len()).filter(|at| is_left(*at)).map(|at| changes[at]).collect()
    }
}

/// Whether a change writes the block in which a file ended, or what lies between its end and what
/// is new.
fn reaches(change: &Change, end: u64) -> bool {
    let block = end / BLOCK * BLOCK;
    match *change {
        Change::Write { offset, length, .. } => offset + length > block,
        Change::Zero { offset, length, size } => {
            offset + length > block && (offset < end || size.is_some())
        }
        Change::Truncate { size } => size < end,
        Change::Grow { .. } => true,
        Change::Names { .. } | Change::Attributes(_) => false,
    }
}
