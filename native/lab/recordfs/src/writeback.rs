//! Files that are flushed often are on their way to the disk before the next flush asks for it: the
//! disk works while the writer goes on. Nothing is promised by that; what is durable is decided by
//! the flushes in the log.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Begun together.
const PIECE: u64 = 32 << 10;
/// Begun between two flushes: what is written again and again until the next flush, or is never
/// flushed, is left to the kernel.
const BUDGET: u64 = 1 << 20;

#[derive(Default)]
pub struct Writeback {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pending: u64,
    range: Range<u64>,
    budget: u64,
}

impl Writeback {
    /// A flush of the file is done.
    pub fn flushed(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) =
            State { budget: BUDGET, ..State::default() };
    }

    /// These bytes of the file were written. Gives what should be on its way now.
    pub fn written(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.budget == 0 {
            return None;
        }
        let length = range.end - range.start;
        state.range = if state.pending == 0 {
            range
        } else {
            state.range.start.min(range.start)..state.range.end.max(range.end)
        };
        state.pending += length;
        if state.pending < PIECE {
            return None;
        }
        state.budget = state.budget.saturating_sub(state.pending);
        state.pending = 0;
        Some(state.range.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_never_flushed_is_left_alone() {
        let writeback = Writeback::default();
        assert_eq!(writeback.written(0..BUDGET), None);
    }

    #[test]
    fn pieces_cover_what_was_written() {
        let writeback = Writeback::default();
        writeback.flushed();
        for at in (1..8).rev() {
            assert_eq!(writeback.written(at * 8192..at * 8192 + 4096), None);
        }
        assert_eq!(writeback.written(0..4096), Some(0..7 * 8192 + 4096));
        assert_eq!(writeback.written(PIECE..2 * PIECE), Some(PIECE..2 * PIECE));
    }

    #[test]
    fn between_two_flushes_the_budget_holds() {
        let writeback = Writeback::default();
        for _ in 0..2 {
            writeback.flushed();
            let begun = (0..100).filter_map(|_| writeback.written(0..PIECE)).count() as u64;
            assert_eq!(begun, BUDGET / PIECE);
        }
    }
}
