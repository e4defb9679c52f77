//! What btrfs's tree log gets of changed names (`btrfs_log_new_name`, `btrfs_record_unlink_dir` in
//! `fs/btrfs/tree-log.c`).

use std::collections::{HashMap, HashSet};

use crate::trace::{Change, Trace, What};

/// Changes of names, by what was in the log before them.
#[derive(Default)]
pub struct Names {
    /// Of files that are given a name in another directory: the old one. A flush of the new one
    /// logs the new name alone, where neither the file nor the old one are in the log, as after
    /// each commit by the kernel; of the file, or of the old one, it brings all.
    pub left: HashMap<u64, u64>,
    /// Of what is in the log: there with the next flush, of whatever.
    pub at_once: HashSet<u64>,
}

pub fn find(trace: &Trace) -> Names {
    let mut log = Log { changed: HashSet::new(), named: HashMap::new(), logged: HashSet::new() };
    let mut found = Names::default();
    for (event, sequence) in trace.events.iter().zip(1..) {
        match &event.what {
            What::Flush { part: None, .. } => log.flush(event.file),
            What::Change(Change::Names { sets, .. }) => {
                let taken = sets.iter().filter(|(_, holder)| holder.is_none());
                let mut sources = taken.map(|((directory, _), _)| *directory);
                if log.has(event.file) || sources.any(|directory| log.has(directory)) {
                    found.at_once.insert(sequence);
                }
                if let [((from, _), None), ((to, _), Some(file))] = sets[..] {
                    let is_left = from != to && !is_directory(trace, file);
                    found.left.extend(is_left.then_some((sequence, from)));
                }
                log.name(
                    event.file,
                    sets.iter().map(|((directory, _), holder)| (*directory, *holder)),
                );
            }
            What::Change(_) => _ = log.changed.insert(event.file),
            _ => {}
        }
    }
    found
}

pub fn is_directory(trace: &Trace, file: u64) -> bool {
    trace.nodes.get(&file).is_some_and(|node| node.mode & libc::S_IFMT == libc::S_IFDIR)
}

struct Log {
    changed: HashSet<u64>,
    /// By directory: what was given a name in it.
    named: HashMap<u64, HashSet<u64>>,
    logged: HashSet<u64>,
}

impl Log {
    fn has(&self, file: u64) -> bool {
        self.logged.contains(&file)
    }

    /// What did not change is not logged; with a directory what is new in it is.
    fn flush(&mut self, file: u64) {
        self.logged.extend(Some(file).filter(|file| self.changed.contains(file)));
        self.logged.extend(self.named.get(&file).into_iter().flatten());
    }

    fn name(&mut self, file: u64, given: impl Iterator<Item = (u64, Option<u64>)>) {
        self.changed.insert(file);
        for (directory, holder) in given {
            self.changed.insert(directory);
            self.named.entry(directory).or_default().extend(holder);
        }
    }
}
