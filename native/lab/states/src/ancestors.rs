//! The new directories above a file, which btrfs logs with it (of msync: where it logs it whole).

use std::collections::{HashMap, HashSet};

use crate::trace::{Change, Place, Trace, What};

/// What a flush logs of the directories above.
#[derive(Default)]
pub struct Above {
    /// What made them.
    pub made: Vec<u64>,
    /// Changes of names of those that got another: committed before that, they are not logged.
    pub renamed: Vec<u64>,
}

/// By flush of what was made in this log.
pub fn find_new_directories(trace: &Trace) -> HashMap<u64, Above> {
    let mut tree = Tree::new(trace);
    let mut found = HashMap::new();
    let mut named_ns = 0;
    for (event, sequence) in trace.events.iter().zip(1..) {
        match &event.what {
            What::Change(Change::Names { sets, .. }) => {
                tree.name(sets, sequence);
                named_ns = named_ns.max(event.end_ns);
            }
            // What went on beside it may have moved the file.
            What::Flush { .. } if named_ns <= event.begin_ns => {
                found.insert(sequence, tree.new_above(event.file));
            }
            What::Sync if named_ns <= event.begin_ns => tree.commit(),
            _ => {}
        }
    }
    found
}

struct Tree<'t> {
    holders: HashMap<&'t Place, u64>,
    names: HashMap<u64, Vec<&'t Place>>,
    /// By what was made here: the records that named it.
    made: HashMap<u64, Vec<u64>>,
    old: HashSet<u64>,
}

impl<'t> Tree<'t> {
    fn new(trace: &'t Trace) -> Tree<'t> {
        let mut names: HashMap<u64, Vec<&Place>> = HashMap::new();
        for (place, file, _) in &trace.base {
            names.entry(*file).or_default().push(place);
        }
        Tree {
            holders: trace.base.iter().map(|(place, file, _)| (place, *file)).collect(),
            old: names.keys().copied().collect(),
            names,
            made: HashMap::new(),
        }
    }

    fn name(&mut self, sets: &'t [(Place, Option<u64>)], sequence: u64) {
        for (place, holder) in sets {
            if let Some(before) = self.holders.remove(place) {
                self.names.entry(before).or_default().retain(|name| *name != place);
            }
            if let Some(holder) = holder {
                self.holders.insert(place, *holder);
                self.names.entry(*holder).or_default().push(place);
                if !self.old.contains(holder) {
                    self.made.entry(*holder).or_default().push(sequence);
                }
            }
        }
    }

    /// What is there now is new no more.
    fn commit(&mut self) {
        self.old.extend(self.made.drain().map(|(file, _)| file));
    }

    /// Of something new; nothing of what was there before.
    fn new_above(&self, file: u64) -> Above {
        let mut found = Above::default();
        let mut seen = HashSet::from([file]);
        let mut open = Vec::from_iter(self.made.contains_key(&file).then_some(file));
        while let Some(file) = open.pop() {
            let above =
                self.names.get(&file).into_iter().flatten().map(|(directory, _)| *directory);
            for directory in above.filter(|directory| seen.insert(*directory)) {
                match self.made.get(&directory).map_or(&[][..], Vec::as_slice) {
                    &[made] => found.made.push(made),
                    renamed => found.renamed.extend(renamed),
                }
                open.push(directory);
            }
        }
        found
    }
}
