//! Ranges that are allocated, punched or zeroed, and what a file system makes of a file's length
//! then.

use std::collections::HashMap;

use crate::profile::grow;
use crate::rules::RangesBring;
use crate::sizes::Sizes;
use crate::trace::{Change, Trace, Understood, What};

const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | libc::FALLOC_FL_KEEP_SIZE as u32;
const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;

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

/// What fallocate(2) with this mode asks for; None for what changes nothing that can be read.
pub fn allocation(mode: u32, offset: u64, length: u64) -> Understood<Option<Change>> {
    Ok(match mode {
        0 => Some(Change::Grow { size: offset + length }),
        KEEP_SIZE => None,
        PUNCH => Some(Change::Zero { offset, length, size: None }),
        _ if mode & !KEEP_SIZE == ZERO => {
            let size = (mode & KEEP_SIZE == 0).then_some(offset + length);
            Some(Change::Zero { offset, length, size })
        }
        _ => return Err("a kind of fallocate that is not understood"),
    })
}
