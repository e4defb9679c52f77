//! What btrfs's tree log gets of changed names (`btrfs_log_new_name`, `btrfs_record_unlink_dir` in
//! `fs/btrfs/tree-log.c`).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::trace::{Change, Trace, What};

/// Changes of names, by what was in the log before them.
#[derive(Default)]
pub struct Names {
    /// Of files that are given a name in another directory: the old one. A flush of the new one
    /// logs the new name alone, where neither the file nor the old one are in the log, as after
    /// each commit by the kernel; of the file, or of the old one, it brings all.
    pub left: HashMap<u64, u64>,
    /// Of what is in the log: there with the next flush, of whatever; and since when it is.
    pub at_once: BTreeMap<u64, Logged>,
}

/// The flush that has logged something last: a commit by the kernel later empties the log.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// The last that had something new to log.
    surely: u64,
    /// The last at all.
    maybe: u64,
}

impl Logged {
    /// Whether this is in the log whenever the other is.
    pub fn is_with(self, other: Logged) -> bool {
        other.maybe <= self.surely
    }
}

pub fn find(trace: &Trace) -> Names {
    let (mut log, mut changed_ns) = (Log::default(), 0);
    let mut found = Names::default();
    for (event, sequence) in trace.events.iter().zip(1..) {
        if matches!(event.what, What::Change(_)) {
            changed_ns = event.end_ns;
        }
        match &event.what {
            What::Flush { part: None, .. } => log.flush(event.file, sequence),
            // What went on beside it may be in the next one.
            What::Sync if changed_ns <= event.begin_ns => log = Log::default(),
            What::Change(Change::Names { sets, .. }) => {
                let taken = sets.iter().filter(|(_, holder)| holder.is_none());
                let sources = taken.map(|((directory, _), _)| *directory);
                let since = log.find(sources.chain([event.file]));
                found.at_once.extend(since.map(|since| (sequence, since)));
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

#[derive(Default)]
struct Log {
    changed: HashSet<u64>,
    /// By directory: what was given a name in it.
    named: HashMap<u64, HashSet<u64>>,
    logged: HashMap<u64, Logged>,
}

impl Log {
    /// Since when one of these is in the log.
    fn find(&self, files: impl Iterator<Item = u64>) -> Option<Logged> {
        let all = files.filter_map(|file| self.logged.get(&file));
        all.copied().reduce(|one, other| Logged {
            surely: one.surely.max(other.surely),
            maybe: one.maybe.max(other.maybe),
        })
    }

    /// What did not change is not logged; with a directory what is new in it is.
    fn flush(&mut self, file: u64, by: u64) {
        let new = Logged { surely: by, maybe: by };
        if self.changed.remove(&file) {
            self.logged.insert(file, new);
        }
        for file in self.named.get(&file).into_iter().flatten() {
            self.logged.entry(*file).or_insert(new).maybe = by;
        }
        self.logged.entry(file).and_modify(|logged| logged.maybe = by);
    }

    fn name(&mut self, file: u64, given: impl Iterator<Item = (u64, Option<u64>)>) {
        self.changed.insert(file);
        for (directory, holder) in given {
            self.changed.insert(directory);
            self.named.entry(directory).or_default().extend(holder);
        }
    }
}
