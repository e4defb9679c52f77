//! Which changes a power cut leaves only together, by the rules of a file system.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::ancestors::{find_new_directories, Above};
use crate::choice::{Candidate, Presence, Reach, Tear};
use crate::copied::Copied;
use crate::cut_blocks::CutBlocks;
use crate::in_place::InPlace;
use crate::rules::Rules;
use crate::trace::{Change, Place, Trace, What};
use crate::tree_log;

/// A log under such rules.
pub struct Journal {
    pub rules: Rules,
    /// By record: the last change of metadata that had ended before this one began; 0 for none.
    before: Vec<u64>,
    /// By rename over another file: the writes to the file, all ended before it began.
    brought: HashMap<u64, Vec<u64>>,
    /// The other way round.
    brought_by: HashMap<u64, u64>,
    /// Changes of names that fsync of the file does not make durable.
    unsynced: HashSet<u64>,
    /// Changes of names of files that had one.
    renamed: HashSet<u64>,
    /// By fsync: new directories that it logs.
    directories: HashMap<u64, Above>,
    logged: tree_log::Names,
    /// Changes that are journaled: of metadata, or all; in order.
    journaled: Vec<u64>,
    /// By record: a write that made its file longer than all before it had.
    grows: Vec<bool>,
    cut_blocks: CutBlocks,
    in_place: InPlace,
}

impl Journal {
    fn begin(trace: &Trace, rules: Rules) -> Journal {
        Journal {
            rules,
            before: Vec::new(),
            brought: HashMap::new(),
            brought_by: HashMap::new(),
            unsynced: HashSet::new(),
            renamed: HashSet::new(),
            directories: match rules.logs_directories {
                true => find_new_directories(trace),
                false => HashMap::new(),
            },
            logged: match rules.has_tree_log {
                true => tree_log::find(trace),
                false => tree_log::Names::default(),
            },
            journaled: Vec::new(),
            grows: Vec::new(),
            cut_blocks: CutBlocks::default(),
            in_place: match rules.sync_may_not_flush {
                true => InPlace::find(trace),
                false => InPlace::default(),
            },
        }
    }

    pub fn new(trace: &Trace, rules: Rules) -> Journal {
        let mut journal = Journal::begin(trace, rules);
        let mut lengths: HashMap<u64, u64> =
            trace.base.iter().map(|(_, file, size)| (*file, *size)).collect();
        let mut writes: HashMap<u64, Vec<u64>> = HashMap::new();
        // By name: whether a file has it, and the record that said so; 0 for what was there.
        let mut taken: HashMap<&Place, (bool, u64)> =
            trace.base.iter().map(|(name, ..)| (name, (true, 0))).collect();
        let mut named: HashSet<u64> = trace.base.iter().map(|(_, file, _)| *file).collect();
        for (event, sequence) in trace.events.iter().zip(1..) {
            let ended = |&&one: &&u64| trace.event(one).end_ns <= event.begin_ns;
            journal.before.push(journal.journaled.iter().rev().find(ended).copied().unwrap_or(0));
            let change = match &event.what {
                What::Change(change) => Some(change),
                _ => None,
            };
            if let Some(change) = change.filter(|_| rules.copies_on_write) {
                journal.cut_blocks.take(sequence, change, lengths.get(&event.file));
            }
            journal.grows.push(change.is_some_and(|change| grow(&mut lengths, event.file, change)));
            match change {
                Some(Change::Write { .. }) => {
                    writes.entry(event.file).or_default().push(sequence);
                    journal.journaled.extend(Some(sequence).filter(|_| rules.journals_data));
                }
                Some(change) => {
                    journal.journaled.push(sequence);
                    let Change::Names { sets, .. } = change else { continue };
                    if rules.rename_brings_size && is_replacement(sets, &taken) {
                        let own = writes.get(&event.file).into_iter().flatten();
                        journal.bring(sequence, own.filter(ended).copied().collect());
                    }
                    journal.renamed.extend(Some(sequence).filter(|_| !named.insert(event.file)));
                    for (name, file) in sets {
                        let before = taken.insert(name, (file.is_some(), sequence));
                        let unsynced = before.and_then(|(_, by)| rules.unsynced(by, sequence));
                        journal.unsynced.extend(unsynced);
                    }
                }
                None => {}
            }
        }
        journal
    }

    fn bring(&mut self, rename: u64, writes: Vec<u64>) {
        for &write in &writes {
            self.brought_by.entry(write).or_insert(rename);
        }
        self.brought.insert(rename, writes);
    }

    /// The journaled change without which this one cannot be there; 0 for none.
    pub fn before(&self, sequence: u64) -> u64 {
        self.before[sequence as usize - 1]
    }

    /// Writes whose size is there whenever this rename is.
    pub fn brought(&self, sequence: u64) -> &[u64] {
        self.brought.get(&sequence).map_or(&[], Vec::as_slice)
    }

    /// Of changes of data that a flush brings, in their order: truncations that it brings all but
    /// the zeros of.
    pub fn without_zeros(&self, trace: &Trace, flushed: &[u64]) -> Vec<u64> {
        self.cut_blocks.left(trace, flushed)
    }

    /// What of a change is not durable with a sync that has it written.
    pub fn in_place(&self, sequence: u64) -> &[Range<u64>] {
        self.in_place.of(sequence)
    }

    /// Whether fsync of a file makes this name of it durable. btrfs takes it back when another file
    /// gets the name before the next transaction.
    pub fn keeps_name(&self, sequence: u64) -> bool {
        !self.unsynced.contains(&sequence)
    }

    /// What made the directories that this fsync logs beside its file.
    pub fn directories(&self, flush: u64) -> &[u64] {
        self.directories.get(&flush).map_or(&[], |above| &above.made)
    }

    /// The old directory, if this is a rename that leaves the old name when the new name's is
    /// flushed.
    pub fn left_in(&self, sequence: u64) -> Option<u64> {
        self.logged.left.get(&sequence).copied()
    }

    /// Whether this change of names is in the log, and there with the next flush.
    pub fn is_logged_at_once(&self, sequence: u64) -> bool {
        self.logged.at_once.contains_key(&sequence)
    }

    /// Earlier changes of names, the last one first, that are in the log if this one is.
    fn logged_with(&self, sequence: u64) -> impl Iterator<Item = u64> + '_ {
        let own = self.logged.at_once.get(&sequence);
        let earlier = self.logged.at_once.range(..=self.before(sequence)).rev();
        earlier
            .filter(move |(_, one)| own.is_some_and(|own| one.is_with(*own)))
            .map(|(one, _)| *one)
    }

    /// Changes of names of renamed directories that this fsync may log beside its file.
    pub fn renamed_directories(&self, flush: u64) -> &[u64] {
        self.directories.get(&flush).map_or(&[], |above| &above.renamed)
    }

    /// Whether fsync of what is no file, or of a file with these changes of its names, brings all
    /// metadata.
    pub fn is_checkpoint(&self, trace: &Trace, file: u64, names: &[u64]) -> bool {
        let node = trace.nodes.get(&file);
        let is_file = node.is_some_and(|node| node.mode & libc::S_IFMT == libc::S_IFREG);
        let is_renamed = names.iter().any(|name| self.renamed.contains(name));
        self.rules.checkpoints_names && (!is_file || is_renamed)
    }

    /// Journaled changes that had ended by then.
    pub fn journaled_by(&self, trace: &Trace, moment_ns: u64) -> &[u64] {
        let count = self.journaled.partition_point(|&one| trace.event(one).end_ns <= moment_ns);
        &self.journaled[..count]
    }

    /// Whether a journaled change comes whole with the flush of another file.
    pub fn commits(&self, trace: &Trace, sequence: u64) -> bool {
        let change = trace.change(sequence);
        self.rules.commits_edges
            || matches!(change, Some(Change::Names { .. } | Change::Attributes(_)))
    }

    /// What is durable with a change that is.
    pub fn brings(&self, trace: &Trace, sequence: u64) -> Option<u64> {
        let logs = self.rules.commits_all && (self.is_journaled(sequence) || self.grows(sequence));
        let mut before = if logs { self.before(sequence) } else { 0 };
        while before > 0 && !self.commits(trace, before) {
            before = self.before(before);
        }
        Some(before).filter(|&before| before > 0)
    }

    /// The last change of names or attributes that is durable; 0 for none.
    fn last_committed(&self, trace: &Trace, is_durable: impl Fn(&u64) -> bool) -> u64 {
        let is_inodes = |one: &&u64| {
            matches!(trace.change(**one), Some(Change::Names { .. } | Change::Attributes(_)))
        };
        let mut all = self.journaled.iter().rev().filter(is_inodes);
        all.find(|&one| is_durable(one)).copied().unwrap_or(0)
    }

    pub fn is_journaled(&self, sequence: u64) -> bool {
        self.journaled.binary_search(&sequence).is_ok()
    }

    pub fn grows(&self, sequence: u64) -> bool {
        self.grows[sequence as usize - 1]
    }
}

/// Whether a write made its file longer; keeps how long files are.
pub fn grow(lengths: &mut HashMap<u64, u64>, file: u64, change: &Change) -> bool {
    let length = lengths.entry(file).or_default();
    let before = *length;
    match *change {
        Change::Write { offset, length: bytes, .. } => *length = before.max(offset + bytes),
        Change::Zero { size: Some(size), .. } | Change::Grow { size } => *length = before.max(size),
        Change::Truncate { size } => *length = size,
        _ => {}
    }
    matches!(change, Change::Write { .. }) && *length > before
}

/// A rename to a name that a file had.
fn is_replacement(sets: &[(Place, Option<u64>)], taken: &HashMap<&Place, (bool, u64)>) -> bool {
    matches!(sets, [(_, None), (name, Some(_))] if taken.get(name).is_some_and(|held| held.0))
}

/// Candidates of which what is durable has brought all but their sectors.
fn long(
    trace: &Trace,
    journal: &Journal,
    candidates: &[Candidate],
    is_durable: impl Fn(&u64) -> bool,
) -> Vec<u32> {
    let committed = match journal.rules.commits_all {
        true => journal.last_committed(trace, &is_durable),
        false => 0,
    };
    let is_in = |one: &Candidate| {
        let by = journal.brought_by.get(&one.sequence);
        let is_committed = one.sequence < committed && journal.is_journaled(one.sequence);
        is_committed || one.sized && by.is_some_and(&is_durable)
    };
    (0..).zip(candidates).filter(|(_, one)| is_in(one)).map(|(at, _)| at).collect()
}

/// The rules among the changes of one cut that may be missing.
pub struct Ordered {
    rules: Rules,
    /// By candidate: the last earlier journaled change that may be missing too; if that was logged
    /// by itself, also the last that was not.
    before: Vec<Vec<u32>>,
    /// By candidate: writes of which it brings the size.
    brought: Vec<Vec<u32>>,
    /// Of which what is durable has brought all but their sectors.
    long: Vec<u32>,
    copied: Option<Copied>,
}

impl Ordered {
    /// At a cut when this record had ended; what is logged needs nothing from before.
    pub fn new(
        trace: &Trace,
        journal: &Journal,
        candidates: &[Candidate],
        last: u64,
        is_logged: impl Fn(u64) -> bool,
    ) -> Ordered {
        let at = |sequence: u64| {
            let at = candidates.binary_search_by_key(&sequence, |one| one.sequence);
            at.ok().filter(|&at| !candidates[at].edges_only).map(|at| at as u32)
        };
        let first = candidates.first().map_or(0, |one| one.sequence);
        let before = |one: &Candidate| {
            let is_bound =
                journal.is_journaled(one.sequence) || one.sized || journal.rules.copies_on_write;
            if one.edges_only {
                return Vec::new();
            }
            let is_free = !is_bound || is_logged(one.sequence);
            if is_free {
                let earlier = journal.logged_with(one.sequence).take_while(|one| *one >= first);
                let earlier = earlier.filter(|one| is_logged(*one));
                return earlier.filter_map(at).take(1).collect();
            }
            let (mut found, mut earlier) = (Vec::new(), journal.before(one.sequence));
            while earlier >= first.max(1) {
                let needed = at(earlier).filter(|_| found.is_empty() || !is_logged(earlier));
                found.extend(needed);
                if needed.is_some() && !is_logged(earlier) {
                    break;
                }
                earlier = journal.before(earlier);
            }
            found
        };
        let writes = |rename: u64| journal.brought(rename).iter().filter_map(|&write| at(write));
        let brought = |one: &Candidate| {
            writes(one.sequence).filter(|&write| candidates[write as usize].sized).collect()
        };
        let is_durable = |change: &u64| *change <= last && at(*change).is_none();
        let long = long(trace, journal, candidates, is_durable);
        Ordered {
            rules: journal.rules,
            before: candidates.iter().map(before).collect(),
            brought: candidates.iter().map(brought).collect(),
            long,
            copied: journal.rules.copies_on_write.then(|| Copied::new(trace, candidates)),
        }
    }

    /// What a candidate can be, when those before it are as they are.
    pub fn restrict(&self, presences: &[Presence], at: usize, candidate: &Candidate) -> Presence {
        let own = match (&presences[at], &self.copied) {
            (Presence::Torn(tear), Some(copied)) => copied.tear(tear, at, candidate),
            (Presence::Torn(tear), _) if self.rules.journals_data && !candidate.has_edges => {
                tear.front()
            }
            (Presence::Torn(tear), _) if self.rules.data_before_size && !candidate.has_edges => {
                Presence::Torn(Tear { reach: tear.reach_of_last(), ..tear.clone() })
            }
            (other, _) => other.clone(),
        };
        self.before[at].iter().fold(own, |own, &earlier| {
            let earlier = &presences[earlier as usize];
            match earlier.reach() {
                _ if self.rules.journals_data && *earlier != Presence::Present => Presence::Missing,
                Reach::Before if self.rules.copies_on_write => Presence::Missing,
                Reach::Before => own.without_size(candidate.sectors),
                _ => own,
            }
        })
    }

    /// The candidates that must be there if this one is.
    pub fn needs(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.before[at].iter().map(|&earlier| earlier as usize)
    }

    /// Writes of which renames that are there bring the size.
    pub fn brought(&self, presences: &[Presence]) -> Vec<usize> {
        let all = self.brought.iter().zip(presences);
        let there = all.filter(|(_, presence)| **presence == Presence::Present);
        there.flat_map(|(writes, _)| writes).map(|&write| write as usize).collect()
    }

    /// Whether a sector of a change is there or not by itself, or others go with it.
    pub fn leads(&self, at: usize, sector: u64) -> bool {
        self.copied.as_ref().is_none_or(|copied| copied.leads(at, sector))
    }

    /// Whether a write lengthens its file only after those before it.
    pub fn lengthens_in_order(&self) -> bool {
        self.copied.is_some()
    }

    /// Where data is copied: what must be there, and what cannot be, as the others are.
    pub fn settle(&self, presences: &mut [Presence]) {
        self.copied.iter().for_each(|copied| copied.settle(presences));
    }

    /// Candidates of which all but their sectors is there.
    pub fn long(&self) -> &[u32] {
        &self.long
    }
}
