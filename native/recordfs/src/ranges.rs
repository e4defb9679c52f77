//! Locks on parts of a file: what overlaps goes to the backing one after the other, and into the log in that order.

use std::ops::Range;
use std::sync::{Condvar, Mutex};

#[derive(Default)]
pub struct Ranges {
    busy: Mutex<Vec<Range<u64>>>,
    freed: Condvar,
}

/// The range is free again when this is dropped.
pub struct Guard<'a> {
    ranges: &'a Ranges,
    range: Range<u64>,
}

impl Ranges {
    /// Waits until nothing that overlaps is locked.
    pub fn lock(&self, range: Range<u64>) -> Guard<'_> {
        let overlaps = |busy: &mut Vec<Range<u64>>| {
            busy.iter().any(|other| other.start < range.end && range.start < other.end)
        };
        let mut busy = self.freed.wait_while(self.busy.lock().unwrap(), overlaps).unwrap();
        busy.push(range.clone());
        Guard { ranges: self, range }
    }

    pub fn lock_all(&self) -> Guard<'_> {
        self.lock(0..u64::MAX)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut busy = self.ranges.busy.lock().unwrap();
        if let Some(at) = busy.iter().position(|range| *range == self.range) {
            busy.swap_remove(at);
        }
        drop(busy);
        self.ranges.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_does_not_overlap_is_locked_at_once() {
        let ranges = Ranges::default();
        let _first = ranges.lock(0..4096);
        let _second = ranges.lock(4096..8192);
        drop(ranges.lock(8192..8192 + 1));
        drop(_first);
        drop(ranges.lock(0..4096));
    }

    #[test]
    fn what_overlaps_is_never_held_twice() {
        let (ranges, inside) = (Ranges::default(), AtomicUsize::new(0));
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
