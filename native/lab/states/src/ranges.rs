//! What a file system makes of a file's length, and of what was written below, when a range
//! within it is allocated, punched or zeroed.

use std::collections::{HashMap, VecDeque};

use crate::profile::grow;
use crate::rules::RangesBring;
use crate::sizes::Sizes;
use crate::trace::{Change, Trace, What};

const BLOCK: u64 = 4096;
/// Writes of a file that can wait for being written back together; older ones have been.
const WAITING: usize = 1024;

/// The writes that made a file so long may be missing: then it is as long as the range has made it.
pub fn set_lengths(trace: &mut Trace, brings: RangesBring) {
    let (mut lengths, mut sizes) = (HashMap::new(), Sizes::default());
    for (_, file, size) in &trace.base {
        lengths.insert(*file, *size);
        sizes.begin(*file, *size);
    }
    for (event, sequence) in trace.events.iter_mut().zip(1..) {
        let What::Change(change) = &mut event.what else { continue };
        let end = lengths.get(&event.file).copied().unwrap_or(0);
        match (brings, &mut *change) {
            (RangesBring::TheirEnd, Change::Zero { offset, length, size: size @ None }) => {
                *size = (*offset < end).then_some(end.min(*offset + *length));
            }
            (RangesBring::Nothing, Change::Zero { size, .. }) => {
                *size = size.filter(|size| *size > end);
            }
            (RangesBring::Nothing, Change::Grow { size }) if *size <= end => {
                event.what = What::Remark;
                continue;
            }
            _ => {}
        }
        grow(&mut lengths, event.file, change);
        event.truncation = sizes.take(event.file, sequence, change);
    }
}

/// What is not whole where data is copied: the edges of zeros are data of their own, and the block
/// in which they begin is written before the rest of an earlier write (`btrfs_zero_range`). By
/// change: the first of its sectors that can be there by itself.
pub fn apart(trace: &Trace) -> HashMap<u64, u64> {
    let mut writes: HashMap<u64, VecDeque<(u64, u64, u64)>> = HashMap::new();
    let mut found = HashMap::new();
    for (event, sequence) in trace.events.iter().zip(1..) {
        let earlier = writes.entry(event.file).or_default();
        match event.what {
            What::Change(Change::Write { offset, length, .. }) => {
                earlier.push_back((sequence, offset, offset + length));
                earlier.drain(..earlier.len().saturating_sub(WAITING));
            }
            What::Change(Change::Zero { offset, .. }) => {
                found.insert(sequence, 0);
                let block = offset - offset % BLOCK;
                for (write, begin, _) in earlier.iter().filter(|one| one.1 < block && block < one.2)
                {
                    let first = block / trace.sector - begin / trace.sector;
                    found.extend((first > 0).then_some((*write, first)));
                }
            }
            What::Flush { part: None, .. } => earlier.clear(),
            _ => {}
        }
    }
    found
}
