//! What btrfs logs with a directory: the inodes of what is new in it and in new directories below,
//! with all their names (`log_new_dir_dentries` in `fs/btrfs/tree-log.c`).

use std::collections::{HashMap, HashSet};

use crate::trace::{Change, Event, What};

#[derive(Default)]
pub struct Dentries {
    /// By directory: what was given a name in it.
    named: HashMap<u64, HashSet<u64>>,
    /// By file: changes of its names and attributes that were not logged so.
    changes: HashMap<u64, Vec<u64>>,
}

impl Dentries {
    pub fn take(&mut self, sequence: u64, event: &Event) {
        let What::Change(change) = &event.what else { return };
        if let Change::Names { sets, .. } = change {
            for ((directory, _), holder) in sets {
                self.named.entry(*directory).or_default().extend(holder);
            }
        }
        if let Change::Names { .. } | Change::Attributes(_) = change {
            self.changes.entry(event.file).or_default().push(sequence);
        }
    }

    /// With a flush of it.
    pub fn log(&mut self, directory: u64) -> Vec<u64> {
        let (mut open, mut below) = (vec![directory], HashSet::new());
        while let Some(directory) = open.pop() {
            let named = self.named.get(&directory).into_iter().flatten().copied();
            open.extend(named.filter(|file| below.insert(*file)));
        }
        below.iter().filter_map(|file| self.changes.remove(file)).flatten().collect()
    }
}
