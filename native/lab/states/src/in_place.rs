//! What is written over in place, and so gives the log nothing to write (`xfs_fs_sync_fs` in
//! `fs/xfs/xfs_super.c` writes all files and forces the log; the disk flushes with what that
//! writes, if anything).

use std::collections::HashMap;
use std::ops::Range;

use rangemap::RangeSet;

use crate::image::BLOCK;
use crate::trace::{Change, Trace, What};

/// By change of data: the bytes of blocks that had been written before it, as far as the file was
/// long then.
#[derive(Default)]
pub struct InPlace(HashMap<u64, Vec<Range<u64>>>);

/// A file as all that was asked for has left it.
#[derive(Default)]
struct Written {
    blocks: RangeSet<u64>,
    length: u64,
}

impl InPlace {
    pub fn find(trace: &Trace) -> InPlace {
        let mut files: HashMap<u64, Written> = HashMap::new();
        for &(_, file, length) in &trace.base {
            let own = files.entry(file).or_default();
            own.length = length;
            // Of a directory a log may say any.
            if let Some(end) = length.checked_next_multiple_of(BLOCK).filter(|end| *end > 0) {
                own.blocks.insert(0..end);
            }
        }
        let mut found = HashMap::new();
        for (event, sequence) in trace.events.iter().zip(1..) {
            let What::Change(change) = &event.what else { continue };
            let own = files.entry(event.file).or_default().take(change);
            if !own.is_empty() {
                found.insert(sequence, own);
            }
        }
        InPlace(found)
    }

    pub fn of(&self, sequence: u64) -> &[Range<u64>] {
        self.0.get(&sequence).map_or(&[], Vec::as_slice)
    }
}

impl Written {
    /// What it changes in place.
    fn take(&mut self, change: &Change) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        match *change {
            Change::Write { offset, length, .. } => {
                let end = offset + length;
                let kept = if end > self.length { floor(self.length) } else { end };
                found = self.overlap(offset..kept);
                self.blocks.insert(floor(offset)..end.next_multiple_of(BLOCK));
                self.length = self.length.max(end);
            }
            // The whole blocks are unmapped before the edges of the range are zeroed in memory.
            Change::Zero { offset, length, size } => {
                let (first, last) = (offset.next_multiple_of(BLOCK), floor(offset + length));
                let end = self.length.min(offset + length);
                let edges = [offset..first.min(end), last.max(first.min(end))..end];
                found.extend(edges.into_iter().flat_map(|edge| self.overlap(edge)));
                if first < last {
                    self.blocks.remove(first..last);
                }
                self.length = self.length.max(size.unwrap_or(0));
            }
            // The zeros behind the new end are written before the truncation is logged.
            Change::Truncate { size } => {
                if size < self.length {
                    self.blocks.remove(size.next_multiple_of(BLOCK)..u64::MAX);
                }
                self.length = size;
            }
            Change::Grow { size } => self.length = self.length.max(size),
            Change::Names { .. } | Change::Attributes(_) => {}
        }
        found
    }

    fn overlap(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let inside = |one: &Range<u64>| one.start.max(bytes.start)..one.end.min(bytes.end);
        self.blocks.overlapping(&bytes).map(inside).collect()
    }
}

fn floor(bytes: u64) -> u64 {
    bytes - bytes % BLOCK
}
