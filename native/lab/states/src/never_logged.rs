//! Names that are logged with a file although another had them before. btrfs does not look for one
//! that was never on the disk (`btrfs_check_ref_name_override` in `fs/btrfs/tree-log.c`); f2fs's
//! recovery unlinks whoever has it (`recover_dentry` in `fs/f2fs/recovery.c`).

use std::collections::{HashMap, HashSet};

use crate::trace::{Change, Place, Trace, What};

/// Takes from what a name comes after the changes of such files, and the file's own older names
/// that another gets later: those are taken out of the log.
pub fn forget_new_files(trace: &mut Trace) {
    let taken = taken_later(trace);
    let mut seen = Seen::new(trace);
    let files: Vec<u64> = trace.events.iter().map(|event| event.file).collect();
    let is_of = |earlier: u64, files_of: &[u64]| files_of.contains(&files[earlier as usize - 1]);
    for event in &mut trace.events {
        match &mut event.what {
            What::Flush { part: None, .. } => seen.flush(event.file),
            What::Sync => seen.commit(),
            What::Change(Change::Names { sets, after, .. }) => {
                let forgotten = seen.name(event.file, sets);
                let is_link = matches!(sets[..], [(_, Some(_))]);
                let is_taken = |earlier: &u64| {
                    is_link && taken.get(earlier).is_some_and(|name| *name != sets[0].0)
                };
                after.retain(|earlier| !is_of(*earlier, &forgotten) && !is_taken(earlier));
            }
            _ => {}
        }
    }
}

/// Takes from a new file's first name what others did with that name.
pub fn forget_at_creation(trace: &mut Trace) {
    let mut named: HashSet<u64> = trace.base.iter().map(|(_, file, _)| *file).collect();
    for event in &mut trace.events {
        if let What::Change(Change::Names { after, .. }) = &mut event.what {
            if named.insert(event.file) {
                after.clear();
            }
        }
    }
}

/// By change that gave one name: that name, if another file gets it.
fn taken_later(trace: &Trace) -> HashMap<u64, Place> {
    let mut last: HashMap<&Place, (u64, u64)> = HashMap::new();
    let mut taken = HashMap::new();
    for (event, sequence) in trace.events.iter().zip(1..) {
        let What::Change(Change::Names { sets, .. }) = &event.what else { continue };
        for (name, holder) in sets {
            let Some(holder) = *holder else {
                last.remove(name);
                continue;
            };
            if let Some((earlier, other)) = last.insert(name, (sequence, holder)) {
                taken.extend((other != holder).then(|| (earlier, name.clone())));
            }
        }
    }
    taken
}

#[derive(Default)]
struct Seen {
    /// By name: the file whose change of it was last.
    last: HashMap<Place, u64>,
    /// By directory, what has had a name in it, and the other way round.
    held: HashMap<u64, HashSet<u64>>,
    above: HashMap<u64, HashSet<u64>>,
    /// What may be on the disk.
    known: HashSet<u64>,
}

impl Seen {
    fn new(trace: &Trace) -> Seen {
        let known = trace.base.iter().map(|(_, file, _)| *file).collect();
        Seen { known, ..Seen::default() }
    }

    /// Logs the file, what is in the directory, and the directories above.
    fn flush(&mut self, file: u64) {
        self.known.extend(self.held.get(&file).into_iter().flatten());
        let (mut open, mut done) = (vec![file], HashSet::new());
        while let Some(file) = open.pop() {
            if done.insert(file) {
                open.extend(self.above.get(&file).into_iter().flatten());
            }
        }
        self.known.extend(done);
    }

    /// All that has a name.
    fn commit(&mut self) {
        self.known.extend(self.above.keys());
    }

    /// The files whose changes it need not come after.
    fn name(&mut self, file: u64, sets: &[(Place, Option<u64>)]) -> Vec<u64> {
        let mut forgotten = Vec::new();
        for (name, holder) in sets {
            if let Some(other) = self.last.insert(name.clone(), file) {
                let is_unknown = other != file && !self.known.contains(&other);
                forgotten.extend(is_unknown.then_some(other));
            }
            if let Some(holder) = holder {
                self.held.entry(name.0).or_default().insert(*holder);
                self.above.entry(*holder).or_default().insert(name.0);
            }
        }
        forgotten
    }
}
