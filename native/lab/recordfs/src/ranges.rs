//! Locks on parts of a file: what overlaps goes to the backing one after the other, and into the
//! log in that order.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Default)]
pub struct Ranges {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    busy: Vec<Range<u64>>,
    /// Waking nobody is a system call too.
    waiting: usize,
}

/// The range is free again when this is dropped.
pub struct Guard {
    ranges: Arc<Ranges>,
    range: Range<u64>,
}

impl Ranges {
    /// Waits until nothing that overlaps is locked.
    pub fn lock(self: &Arc<Self>, range: Range<u64>) -> Guard {
        let overlaps = |state: &State| {
            state.busy.iter().any(|other| other.start < range.end && range.start < other.end)
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while overlaps(&state) {
            state.waiting += 1;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.busy.push(range.clone());
        drop(state);
        Guard { ranges: self.clone(), range }
    }

    pub fn lock_all(self: &Arc<Self>) -> Guard {
        self.lock(0..u64::MAX)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.ranges.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = state.busy.iter().position(|range| *range == self.range) {
            state.busy.swap_remove(at);
        }
        if state.waiting > 0 {
            self.ranges.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_does_not_overlap_is_locked_at_once() {
        let ranges = Arc::new(Ranges::default());
        let _first = ranges.lock(0..4096);
        let _second = ranges.lock(4096..8192);
        drop(ranges.lock(8192..8192 + 1));
        drop(_first);
        drop(ranges.lock(0..4096));
    }

    #[test]
    fn what_overlaps_is_never_held_twice() {
        let (ranges, inside) = (Arc::new(Ranges::default()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (ranges, inside) = (&ranges, &inside);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let _guard = ranges.lock(thread..10);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
