//! When a change can no longer be lost: the fault models of `docs/crash-model.md`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::choice::Presence;
use crate::profile::Journal;
use crate::rules::{self, Rules};
use crate::trace::{Change, Event, Trace, What};

/// What ends the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The host loses its power: page cache and the disk's volatile cache are gone.
    Power,
    /// The writing process is killed: what had reached the host's kernel stays.
    Kill,
    /// The host loses its power, and its disk has never flushed anything.
    LyingDevice,
    /// As power; a block that a file got and that was not written holds what was there before.
    OldContent,
    /// As power, on a file system that promises more than POSIX.
    PowerExt4,
    PowerExt4Journal,
    PowerExt4Writeback,
    PowerXfs,
    PowerBtrfs,
    PowerF2fs,
}

impl Fault {
    pub const ALL: [Fault; 10] = [
        Fault::Power,
        Fault::Kill,
        Fault::LyingDevice,
        Fault::OldContent,
        Fault::PowerExt4,
        Fault::PowerExt4Journal,
        Fault::PowerExt4Writeback,
        Fault::PowerXfs,
        Fault::PowerBtrfs,
        Fault::PowerF2fs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::Power => "power",
            Fault::Kill => "kill",
            Fault::LyingDevice => "lying-device",
            Fault::OldContent => "old-content",
            Fault::PowerExt4 => "power-ext4",
            Fault::PowerExt4Journal => "power-ext4-journal",
            Fault::PowerExt4Writeback => "power-ext4-writeback",
            Fault::PowerXfs => "power-xfs",
            Fault::PowerBtrfs => "power-btrfs",
            Fault::PowerF2fs => "power-f2fs",
        }
    }

    /// What the file system promises beyond POSIX.
    pub fn rules(self) -> Option<Rules> {
        match self {
            Fault::PowerExt4 => Some(rules::EXT4),
            Fault::PowerExt4Journal => Some(rules::EXT4_JOURNAL),
            Fault::PowerExt4Writeback => Some(rules::EXT4_WRITEBACK),
            Fault::PowerXfs => Some(rules::XFS),
            Fault::PowerBtrfs => Some(rules::BTRFS),
            Fault::PowerF2fs => Some(rules::F2FS),
            _ => None,
        }
    }
}

/// Flushes that a recording could have had, or could do without.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// Records that flush nothing.
    pub dropped: BTreeSet<u64>,
    /// Files that are flushed once this record has ended, before the next one does.
    pub added: BTreeMap<u64, BTreeSet<u64>>,
}

/// Which record makes which changes durable, and which changes were under way when a record ended.
pub struct Durability {
    pub fault: Fault,
    pub journal: Option<Journal>,
    /// By sequence number of the record that has settled them (its index is one less).
    settled_by: Vec<Vec<u64>>,
    /// By record: renames of which it has settled the new name alone.
    halved_by: HashMap<u64, Vec<u64>>,
    /// By sequence number of a cut: the highest of the records that had begun by then.
    horizon: Vec<u64>,
    /// By sequence number of a cut: changes that could be missing, those under way not counted.
    pending: Vec<u64>,
}

impl Durability {
    pub fn new(trace: &Trace, fault: Fault) -> Durability {
        Durability::edited(trace, fault, &Edits::default())
    }

    /// As if the program had flushed so.
    pub fn edited(trace: &Trace, fault: Fault, edits: &Edits) -> Durability {
        let journal = fault.rules().map(|rules| Journal::new(trace, rules));
        let mut settling = Settling::new(trace, journal.as_ref());
        for sequence in 1..=trace.last() {
            match fault {
                Fault::Kill => settling.settle(sequence, sequence, None),
                Fault::LyingDevice => {}
                _ => settling.take_edited(sequence, edits),
            }
        }
        let pending = pending_counts(trace, &settling.settled_by);
        let (settled_by, halved_by) = (settling.settled_by, settling.halved_by);
        Durability { fault, journal, settled_by, halved_by, horizon: horizons(trace), pending }
    }

    /// Changes that became durable with this record, oldest first.
    pub fn settled_by(&self, sequence: u64) -> &[u64] {
        &self.settled_by[sequence as usize - 1]
    }

    /// Renames of which this record has settled the new name alone.
    pub fn halved_by(&self, sequence: u64) -> &[u64] {
        self.halved_by.get(&sequence).map_or(&[], Vec::as_slice)
    }

    /// What became of a change at a cut, in a word.
    pub fn word(&self, cut: u64, sequence: u64, presence: &Presence) -> &'static str {
        let mut halved = self.halved_by.iter().filter(|(by, _)| **by <= cut);
        match presence {
            Presence::Missing if halved.any(|(_, all)| all.contains(&sequence)) => "torn",
            other => other.word(),
        }
    }

    /// Whose flush makes a change durable: the directory of a name, the file of anything else.
    pub fn flushed_for(&self, trace: &Trace, sequence: u64) -> u64 {
        let left = self.journal.as_ref().and_then(|journal| journal.left_in(sequence));
        left.unwrap_or_else(|| match trace.change(sequence) {
            Some(Change::Names { directory, .. }) => *directory,
            _ => trace.event(sequence).file,
        })
    }

    /// By change: the record that makes it durable, one beyond the last where none does.
    pub fn settled_at(&self) -> Vec<u64> {
        let beyond = self.settled_by.len() as u64 + 1;
        let mut settled = vec![beyond; self.settled_by.len()];
        for (changes, by) in self.settled_by.iter().zip(1..) {
            for &change in changes {
                settled[change as usize - 1] = by;
            }
        }
        settled
    }

    /// Changes that had begun when record `cut` ended, and had not ended.
    pub fn under_way<'a>(&self, trace: &'a Trace, cut: u64) -> impl Iterator<Item = u64> + 'a {
        let moment = if cut == 0 { 0 } else { trace.event(cut).end_ns };
        let horizon = if cut == 0 { 0 } else { self.horizon[cut as usize - 1] };
        let begun = move |&sequence: &u64| trace.event(sequence).begin_ns <= moment;
        (cut + 1..=horizon).filter(begun).filter(|&sequence| trace.change(sequence).is_some())
    }

    /// At most so many changes are missing in a state of this cut, those under way not counted.
    pub fn pending(&self, cut: u64) -> u64 {
        if cut == 0 {
            0
        } else {
            self.pending[cut as usize - 1]
        }
    }
}

/// Changes that wait for their flush.
struct Settling<'t> {
    trace: &'t Trace,
    journal: Option<&'t Journal>,
    settled_by: Vec<Vec<u64>>,
    halved_by: HashMap<u64, Vec<u64>>,
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
}

impl<'t> Settling<'t> {
    fn new(trace: &'t Trace, journal: Option<&'t Journal>) -> Settling<'t> {
        Settling {
            trace,
            journal,
            settled_by: vec![Vec::new(); trace.events.len()],
            halved_by: HashMap::new(),
            settled: vec![false; trace.events.len()],
            data: HashMap::new(),
            attributes: HashMap::new(),
            names: HashMap::new(),
            names_of: HashMap::new(),
            checkpointed: 0,
        }
    }

    fn take_edited(&mut self, sequence: u64, edits: &Edits) {
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
        match &event.what {
            What::Change(Change::Write { synced: true, .. }) => {
                self.settle(sequence, sequence, None)
            }
            What::Change(Change::Names { directory, .. }) => {
                let left = self.journal.and_then(|journal| journal.left_in(sequence));
                for directory in [*directory].into_iter().chain(left) {
                    self.names.entry(directory).or_default().push_back(sequence);
                }
                self.names_of.entry(event.file).or_default().push_back(sequence);
            }
            What::Change(Change::Attributes(_)) => {
                self.attributes.entry(event.file).or_default().push_back(sequence);
            }
            What::Change(_) => self.data.entry(event.file).or_default().push_back(sequence),
            What::Flush { data_only, part: None } => {
                let is_whole = self.journal.is_some_and(|journal| journal.rules.datasync_is_sync);
                self.flush(sequence, event.file, event.begin_ns, *data_only && !is_whole);
            }
            What::Flush { part: Some(part), .. } => {
                let waiting = self.data.get_mut(&event.file);
                for covered in take_within(trace, waiting, event.begin_ns, part) {
                    self.settle(covered, sequence, None);
                }
            }
            What::Acknowledge(_) | What::Remark => {}
        }
    }

    fn flush(&mut self, by: u64, file: u64, begin_ns: u64, data_only: bool) {
        let mut covered = take_ended(self.trace, self.data.get_mut(&file), begin_ns);
        covered.extend(take_ended(self.trace, self.names.get_mut(&file), begin_ns));
        if !data_only {
            covered.extend(take_ended(self.trace, self.attributes.get_mut(&file), begin_ns));
        }
        if let Some(journal) = self.journal {
            let names = match data_only {
                true => Vec::new(),
                false => take_ended(self.trace, self.names_of.get_mut(&file), begin_ns),
            };
            if journal.is_checkpoint(self.trace, file, &names) {
                let journaled = journal.journaled_by(self.trace, begin_ns);
                let new = &journaled[self.checkpointed.min(journaled.len())..];
                covered.extend(new.iter().filter(|&&one| journal.commits(self.trace, one)));
                self.checkpointed = self.checkpointed.max(journaled.len());
            }
            let names = names.into_iter().chain(journal.directories(by).iter().copied());
            covered.extend(names.filter(|&name| journal.keeps_name(name)));
            // A size is logged now, behind all that was logged before.
            let grown = covered.iter().any(|&sequence| journal.grows(sequence));
            covered.extend(if grown { journal.last_before(self.trace, begin_ns) } else { None });
        }
        covered.sort_unstable();
        for sequence in covered {
            self.settle(sequence, by, Some(file));
        }
    }

    /// Whether what is flushed brings no more of a rename than the new name.
    fn is_left(&self, sequence: u64, flushed: Option<u64>) -> bool {
        let left = self.journal.and_then(|journal| journal.left_in(sequence));
        let elsewhere = |directory| left.is_some_and(|left| left != directory);
        flushed.is_some_and(|file| self.trace.is_directory(file) && elsewhere(file))
    }

    /// A name is there only with what it came after, a size with the truncation before it.
    fn settle(&mut self, root: u64, by: u64, flushed: Option<u64>) {
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
                self.halved_by.entry(by).or_default().push(sequence);
                continue;
            }
            self.settled[sequence as usize - 1] = true;
            self.settled_by[by as usize - 1].push(sequence);
            open.extend(self.trace.event(sequence).truncation);
            let journal = self.journal.into_iter();
            open.extend(journal.flat_map(|journal| journal.brings(self.trace, sequence)));
        }
        self.settled_by[by as usize - 1][first..].sort_unstable();
    }
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

fn horizons(trace: &Trace) -> Vec<u64> {
    let mut begun: Vec<(u64, u64)> =
        trace.events.iter().zip(1..).map(|(event, sequence)| (event.begin_ns, sequence)).collect();
    begun.sort_unstable();
    let (mut next, mut highest) = (0, 0);
    let until = |event: &Event| {
        while next < begun.len() && begun[next].0 <= event.end_ns {
            highest = highest.max(begun[next].1);
            next += 1;
        }
        highest
    };
    trace.events.iter().map(until).collect()
}

fn pending_counts(trace: &Trace, settled_by: &[Vec<u64>]) -> Vec<u64> {
    let mut count = 0;
    let step = |(event, settled): (&Event, &Vec<u64>)| {
        count += u64::from(matches!(event.what, What::Change(_)));
        count -= settled.len() as u64;
        count
    };
    trace.events.iter().zip(settled_by).map(step).collect()
}
