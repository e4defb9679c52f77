//! What a file system makes of a file's length when a range within it is allocated, punched or
//! zeroed.

use std::collections::HashMap;

use crate::profile::grow;
use crate::rules::RangesBring;
use crate::sizes::Sizes;
use crate::trace::{Change, Trace, What};

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
