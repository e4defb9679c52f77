//! What ext4 makes of the length of a file of which it takes a range away.

use std::collections::HashMap;

use crate::content::Store;
use crate::fault::Fault;
use crate::profile::grow;
use crate::sizes::Sizes;
use crate::trace::{Change, Trace, What};

impl Store {
    /// The same, as this fault's file system carries it out.
    pub fn under(mut self, fault: Fault) -> Store {
        if fault.rules().is_some_and(|rules| rules.ranges_bring_size) {
            raise_lengths(&mut self.trace);
        }
        self
    }
}

/// The length on the disk is raised to the end of the range, or of the file, before the range is
/// taken away; the writes that made the file so long may be missing.
fn raise_lengths(trace: &mut Trace) {
    let (mut lengths, mut sizes) = (HashMap::new(), Sizes::default());
    for (_, file, size) in &trace.base {
        lengths.insert(*file, *size);
        sizes.begin(*file, *size);
    }
    for (event, sequence) in trace.events.iter_mut().zip(1..) {
        let What::Change(change) = &mut event.what else { continue };
        if let Change::Zero { offset, length, size: size @ None } = change {
            let end = lengths.get(&event.file).copied().unwrap_or(0);
            *size = (*offset < end).then_some(end.min(*offset + *length));
        }
        grow(&mut lengths, event.file, change);
        event.truncation = sizes.take(event.file, sequence, change);
    }
}
