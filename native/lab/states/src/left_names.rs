//! Old names that btrfs leaves: a file is renamed into another directory, and that is flushed. If
//! neither the file nor the old directory is in the log, the log gets the new name alone
//! (`btrfs_log_new_name`); a flush of the file or of the old directory brings all
//! (`btrfs_record_unlink_dir`).

use std::collections::{HashMap, HashSet};

use crate::trace::{Change, Trace, What};

/// By such rename: the old directory.
pub fn find(trace: &Trace) -> HashMap<u64, u64> {
    let mut logs = Logs {
        old: trace.base.iter().map(|(_, file, _)| *file).collect(),
        changed: HashSet::new(),
        named: HashMap::new(),
        logged: HashSet::new(),
    };
    let mut found = HashMap::new();
    for (event, sequence) in trace.events.iter().zip(1..) {
        match &event.what {
            What::Flush { part: None, .. } => logs.flush(event.file),
            What::Change(change) => {
                if let Change::Names { sets, .. } = change {
                    if let [((from, _), None), ((to, _), Some(file))] = sets[..] {
                        let is_left = from != to && logs.has_neither(file, from);
                        let is_file = !trace.is_directory(file);
                        found.extend((is_left && is_file).then_some((sequence, from)));
                    }
                    for ((directory, _), holder) in sets {
                        logs.changed.insert(*directory);
                        logs.named.entry(*directory).or_default().extend(*holder);
                    }
                }
                logs.changed.insert(event.file);
            }
            _ => {}
        }
    }
    found
}

struct Logs {
    /// What is on the disk.
    old: HashSet<u64>,
    changed: HashSet<u64>,
    /// By directory: what was given a name in it.
    named: HashMap<u64, HashSet<u64>>,
    logged: HashSet<u64>,
}

impl Logs {
    /// What did not change is not logged; with a directory what is new in it is.
    fn flush(&mut self, file: u64) {
        self.logged.extend(Some(file).filter(|file| self.changed.contains(file)));
        self.logged.extend(self.named.get(&file).into_iter().flatten());
    }

    fn has_neither(&self, file: u64, from: u64) -> bool {
        let is_logged = |one| self.logged.contains(&one);
        self.old.contains(&file) && !is_logged(file) && !is_logged(from)
    }
}
