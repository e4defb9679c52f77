//! Which flush makes which changes durable.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use crate::dentries::Dentries;
use crate::fault::Edits;
use crate::profile::Journal;
use crate::trace::{Change, Trace, What};
use crate::tree_log::is_directory;

/// Changes that wait for their flush.
pub struct Settling<'t> {
    trace: &'t Trace,
    journal: Option<&'t Journal>,
    pub settled_by: Vec<Vec<u64>>,
    /// By change: the first record that has settled a part of it.
    pub halved: BTreeMap<u64, u64>,
    pub logged_by: HashMap<u64, u64>,
    /// Changes that are logged with the next flush.
    logged_next: VecDeque<u64>,
    dentries: Dentries,
    settled: Vec<bool>,
    /// Content and size of a file: fsync and fdatasync help.
    data: HashMap<u64, VecDeque<u64>>,
    /// Its owner, mode and extended attributes: fsync helps.
    attributes: HashMap<u64, VecDeque<u64>>,
    /// Names, by the directory they are in: fsync of it helps.
    names: HashMap<u64, VecDeque<u64>>,
    /// The same by the file that got the name: fsync of it helps on file systems of which we know.
    names_of: HashMap<u64, VecDeque<u64>>,
    /// So many journaled changes were brought by checkpoints.
    checkpointed: usize,
    /// Changes that a flush has brought to the disk and not beyond its cache, by that flush.
    cached: Vec<(u64, u64)>,
}

impl<'t> Settling<'t> {
    pub fn new(trace: &'t Trace, journal: Option<&'t Journal>) -> Settling<'t> {
        Settling {
            trace,
            journal,
            settled_by: vec![Vec::new(); trace.events.len()],
            halved: BTreeMap::new(),
            logged_by: HashMap::new(),
            logged_next: VecDeque::new(),
            dentries: Dentries::default(),
            settled: vec![false; trace.events.len()],
            data: HashMap::new(),
            attributes: HashMap::new(),
            names: HashMap::new(),
            names_of: HashMap::new(),
            checkpointed: 0,
            cached: Vec::new(),
        }
    }

    pub fn take_edited(&mut self, sequence: u64, edits: &Edits) {
        for &file in edits.added.get(&(sequence - 1)).into_iter().flatten() {
            let moment = self.trace.event(sequence - 1).end_ns;
            self.flush(sequence, file, moment, false);
        }
        if !edits.dropped.contains(&sequence) {
            self.take(sequence);
        }
    }

    fn take(&mut self, sequence: u64) {
        let trace: &'t Trace = self.trace;
        let event = trace.event(sequence);
        if self.has_tree_log() {
            self.dentries.take(sequence, event);
        }
        match &event.what {
            What::Change(Change::Write { synced: true, .. }) => {
                self.write(vec![sequence], (sequence, event.begin_ns), None, false);
            }
            What::Sync => self.sync(sequence, event.begin_ns),
            What::Change(Change::Names { directory, .. }) => {
                let left = self.journal.and_then(|journal| journal.left_in(sequence));
                for directory in [*directory].into_iter().chain(left) {
                    self.names.entry(directory).or_default().push_back(sequence);
                }
                self.names_of.entry(event.file).or_default().push_back(sequence);
                let is_logged =
                    |one: &u64| self.journal.is_some_and(|all| all.is_logged_at_once(*one));
                self.logged_next.extend(Some(sequence).filter(is_logged));
            }
            What::Change(Change::Attributes(_)) => {
                self.attributes.entry(event.file).or_default().push_back(sequence);
            }
            What::Change(_) => self.data.entry(event.file).or_default().push_back(sequence),
            What::Flush { data_only, part: None } => {
                let is_whole = self.journal.is_some_and(|journal| journal.rules.datasync_is_sync);
                self.flush(sequence, event.file, event.begin_ns, *data_only && !is_whole);
            }
            What::Flush { part: Some(_), .. } if self.is_logged_whole(event.file) => {
                self.flush(sequence, event.file, event.begin_ns, false);
            }
            What::Flush { part: Some(part), .. } => {
                let waiting = self.data.get_mut(&event.file);
                let covered = take_within(trace, waiting, event.begin_ns, part);
                self.write(covered, (sequence, event.begin_ns), None, false);
                // What lies beside it is written with it.
                let beside = self.data.get(&event.file).into_iter().flatten().copied();
                let ended = |one: &u64| trace.event(*one).end_ns <= event.begin_ns;
                if self.has_tree_log() {
                    self.log(beside.filter(ended).collect(), sequence);
                }
            }
            What::Acknowledge(_) | What::Remark => {}
        }
    }

    /// These changes, and those of names that they came after, can be there alone from now on.
    fn log(&mut self, mut open: Vec<u64>, by: u64) {
        while let Some(sequence) = open.pop() {
            if !self.settled[sequence as usize - 1] && !self.logged_by.contains_key(&sequence) {
                self.logged_by.insert(sequence, by);
                if let Some(Change::Names { after, .. }) = self.trace.change(sequence) {
                    open.extend(after);
                }
            }
        }
    }

    fn has_tree_log(&self) -> bool {
        self.journal.is_some_and(|journal| journal.rules.has_tree_log)
    }

    /// Of what was made since and is in no log, btrfs logs all, whatever part is asked for.
    fn is_logged_whole(&self, file: u64) -> bool {
        let is_named = || self.names_of.get(&file).is_some_and(|names| !names.is_empty());
        self.has_tree_log() && is_named() && self.trace.base.iter().all(|(_, old, _)| *old != file)
    }

    fn flush(&mut self, by: u64, file: u64, begin_ns: u64, data_only: bool) {
        let mut is_checkpoint = false;
        let mut covered = take_ended(self.trace, self.data.get_mut(&file), begin_ns);
        self.keep_edges(&mut covered, by, file);
        covered.extend(take_ended(self.trace, self.names.get_mut(&file), begin_ns));
        if !data_only {
            covered.extend(take_ended(self.trace, self.attributes.get_mut(&file), begin_ns));
        }
        if let Some(journal) = self.journal {
            let waiting = self.names_of.get_mut(&file).filter(|_| !data_only);
            let names = take_ended(self.trace, waiting, begin_ns);
            is_checkpoint = journal.is_checkpoint(self.trace, file, &names);
            if is_checkpoint {
                let journaled = journal.journaled_by(self.trace, begin_ns);
                let new = &journaled[self.checkpointed.min(journaled.len())..];
                covered.extend(new.iter().filter(|&&one| journal.commits(self.trace, one)));
                self.checkpointed = self.checkpointed.max(journaled.len());
            }
            let names = names.into_iter().chain(journal.directories(by).iter().copied());
            let (kept, others): (Vec<_>, _) = names.partition(|&name| journal.keeps_name(name));
            covered.extend(kept);
            let logged = take_ended(self.trace, Some(&mut self.logged_next), begin_ns);
            let above = journal.renamed_directories(by).iter().copied();
            let below = self.dentries.log(file);
            self.log(others.into_iter().chain(logged).chain(above).chain(below).collect(), by);
        }
        covered.sort_unstable();
        self.write(covered, (by, begin_ns), Some(file), is_checkpoint);
    }

    /// What a flush brings is durable; but a record that is not waited for is in the disk's cache.
    fn write(
        &mut self,
        covered: Vec<u64>,
        (by, begin_ns): (u64, u64),
        flushed: Option<u64>,
        is_checkpoint: bool,
    ) {
        let may_not_wait = self.journal.is_some_and(|journal| journal.rules.fsync_may_not_wait);
        let is_waited = is_checkpoint || !may_not_wait;
        if is_waited || !covered.is_empty() {
            self.flush_cache(by, begin_ns);
        }
        if is_waited {
            covered.into_iter().for_each(|sequence| self.settle(sequence, by, flushed));
        } else {
            self.cached.extend(covered.iter().map(|&sequence| (sequence, by)));
            self.log(covered, by);
        }
    }

    /// Of all that is recorded.
    fn sync(&mut self, by: u64, begin_ns: u64) {
        let mut covered = Vec::new();
        let files: Vec<u64> = self.data.keys().copied().collect();
        for file in files {
            let mut data = take_ended(self.trace, self.data.get_mut(&file), begin_ns);
            self.keep_edges(&mut data, by, file);
            covered.extend(data);
        }
        let others = self.names.values_mut().chain(self.names_of.values_mut());
        let others = others.chain(self.attributes.values_mut()).chain([&mut self.logged_next]);
        covered.extend(others.flat_map(|waiting| take_ended(self.trace, Some(waiting), begin_ns)));
        covered.sort_unstable();
        covered.dedup();
        if self.names.values().all(VecDeque::is_empty) {
            self.dentries = Dentries::default();
        }
        let (trace, journal) = (self.trace, self.journal);
        let in_place = |one: &u64| journal.map_or(&[][..], |journal| journal.in_place(*one));
        // What the log has written since has flushed what an earlier sync had left.
        let may_not_flush = journal.is_some_and(|journal| journal.rules.sync_may_not_flush);
        let is_within = |one: &u64| is_all_within(trace, *one, in_place(one));
        if !may_not_flush || !covered.iter().all(is_within) {
            self.flush_cache(by, begin_ns);
        }
        let (left, durable): (Vec<u64>, _) =
            covered.into_iter().partition(|one| !in_place(one).is_empty());
        durable.into_iter().for_each(|sequence| self.settle(sequence, by, None));
        for sequence in left {
            self.halved.entry(sequence).or_insert(by);
            self.cached.push((sequence, by));
        }
    }

    /// The disk flushes: all that syncs have brought there is durable.
    fn flush_cache(&mut self, by: u64, begin_ns: u64) {
        let trace = self.trace;
        let ended = |one: &(u64, u64)| trace.event(one.1).end_ns <= begin_ns;
        let (flushed, left) = self.cached.drain(..).partition::<Vec<_>, _>(ended);
        self.cached = left;
        flushed.into_iter().for_each(|(sequence, _)| self.settle(sequence, by, None));
    }

    /// Of truncations whose zeros are not written the rest is durable; they wait for a later flush.
    fn keep_edges(&mut self, covered: &mut Vec<u64>, by: u64, file: u64) {
        let edged = self.journal.map_or(Vec::new(), |all| all.without_zeros(self.trace, covered));
        covered.retain(|one| !edged.contains(one));
        for &truncation in edged.iter().rev() {
            self.data.entry(file).or_default().push_front(truncation);
            self.halved.entry(truncation).or_insert(by);
        }
    }

    /// Whether what is flushed brings no more of a rename than the new name.
    fn is_left(&self, sequence: u64, flushed: Option<u64>) -> bool {
        let left = self.journal.and_then(|journal| journal.left_in(sequence));
        let elsewhere = |directory| left.is_some_and(|left| left != directory);
        flushed.is_some_and(|file| is_directory(self.trace, file) && elsewhere(file))
    }

    /// A name is there only with what it came after, a size with the truncation before it.
    pub fn settle(&mut self, root: u64, by: u64, flushed: Option<u64>) {
        let mut open = vec![root];
        let first = self.settled_by[by as usize - 1].len();
        while let Some(sequence) = open.pop() {
            let Some(change) = self.trace.change(sequence) else { continue };
            let is_left = self.is_left(sequence, flushed);
            if self.settled[sequence as usize - 1] || is_left && sequence != root {
                continue;
            }
            if let Change::Names { after, .. } = change {
                open.extend(after);
            }
            if is_left {
                self.halved.entry(sequence).or_insert(by);
                continue;
            }
            self.settled[sequence as usize - 1] = true;
            self.settled_by[by as usize - 1].push(sequence);
            let truncation = self.trace.event(sequence).truncation;
            open.extend(truncation.filter(|one| !self.halved.contains_key(one)));
            let journal = self.journal.into_iter();
            open.extend(journal.flat_map(|journal| journal.brings(self.trace, sequence)));
        }
        self.settled_by[by as usize - 1][first..].sort_unstable();
    }
}

/// Whether a change is nothing but a write to these bytes.
fn is_all_within(trace: &Trace, sequence: u64, bytes: &[Range<u64>]) -> bool {
    let within: u64 = bytes.iter().map(|range| range.end - range.start).sum();
    matches!(trace.change(sequence), Some(Change::Write { length, .. }) if *length == within)
}

/// Records stand in the order of their ends, so those that ended by then are in front.
fn take_ended(trace: &Trace, waiting: Option<&mut VecDeque<u64>>, until_ns: u64) -> Vec<u64> {
    let Some(waiting) = waiting else { return Vec::new() };
    let count = waiting.partition_point(|&sequence| trace.event(sequence).end_ns <= until_ns);
    waiting.drain(..count).collect()
}

/// Of those that ended by then what changed these bytes alone: of a write that reaches beyond them
/// nothing is promised.
fn take_within(
    trace: &Trace,
    waiting: Option<&mut VecDeque<u64>>,
    until_ns: u64,
    part: &Range<u64>,
) -> Vec<u64> {
    let Some(waiting) = waiting else { return Vec::new() };
    let (mut taken, until) = (take_ended(trace, Some(waiting), until_ns), part.end);
    let is_within = |&sequence: &u64| match trace.change(sequence) {
        Some(Change::Write { offset, length, .. } | Change::Zero { offset, length, .. }) => {
            part.start <= *offset && offset + length <= until
        }
        _ => false,
    };
    let left: Vec<u64> = taken.iter().copied().filter(|one| !is_within(one)).collect();
    taken.retain(is_within);
    for sequence in left.into_iter().rev() {
        waiting.push_front(sequence);
    }
    taken
}
