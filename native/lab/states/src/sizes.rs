//! Which truncation a change of a file's size comes after.

use std::collections::HashMap;

use crate::trace::Change;

#[derive(Default)]
pub struct Sizes {
    files: HashMap<u64, Truncated>,
}

/// The last truncation of a file.
#[derive(Clone, Copy, Default)]
struct Truncated {
    /// Its record; 0 when there was none.
    by: u64,
    /// The shortest that the file has been.
    least: u64,
}

impl Sizes {
    /// A file that is there at the start.
    pub fn begin(&mut self, file: u64, size: u64) {
        self.files.insert(file, Truncated { by: 0, least: size });
    }

    /// The truncation without which the file is not as long as this change makes it.
    pub fn take(&mut self, file: u64, sequence: u64, change: &Change) -> Option<u64> {
        let last = self.files.entry(file).or_default();
        let before = *last;
        let needs = match change {
            Change::Truncate { size } => {
                *last = Truncated { by: sequence, least: before.least.min(*size) };
                true
            }
            Change::Write { offset, length, .. } => offset + length > before.least,
            Change::Zero { size: Some(size), .. } | Change::Grow { size } => *size > before.least,
            _ => false,
        };
        (needs && before.by > 0).then_some(before.by)
    }
}
