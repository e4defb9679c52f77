//! When a change can no longer be lost: the fault models of `docs/crash-model.md`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::choice::Presence;
use crate::profile::Journal;
use crate::rules::{self, Rules};
use crate::settling::Settling;
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
    PowerF2fsUnwaited,
}

impl Fault {
    pub const ALL: [Fault; 11] = [
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
        Fault::PowerF2fsUnwaited,
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
            Fault::PowerF2fsUnwaited => "power-f2fs-unwaited",
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
            Fault::PowerF2fsUnwaited => Some(rules::F2FS_UNWAITED),
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
    /// By change: the first record that has settled a part of it, the new name of a rename or a
    /// truncation without zeros.
    halved: BTreeMap<u64, u64>,
    /// The other way round, in their order.
    halved_by: HashMap<u64, Vec<u64>>,
    /// By change of names: the record that has logged it, and it alone, and not for good.
    logged_by: HashMap<u64, u64>,
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
        let Settling { settled_by, halved, logged_by, .. } = settling;
        let mut halved_by: HashMap<u64, Vec<u64>> = HashMap::new();
        for (&change, &by) in &halved {
            halved_by.entry(by).or_default().push(change);
        }
        let horizon = horizons(trace);
        Durability { fault, journal, settled_by, halved, halved_by, logged_by, horizon, pending }
    }

    /// Changes that became durable with this record, oldest first.
    pub fn settled_by(&self, sequence: u64) -> &[u64] {
        &self.settled_by[sequence as usize - 1]
    }

    /// Changes of which this record has settled a part.
    pub fn halved_by(&self, sequence: u64) -> &[u64] {
        self.halved_by.get(&sequence).map_or(&[], Vec::as_slice)
    }

    /// Whether a change can be there at a cut without what was before it.
    pub fn is_logged(&self, cut: u64, sequence: u64) -> bool {
        self.logged_by.get(&sequence).is_some_and(|by| *by <= cut)
    }

    /// Whether no more than a part of a change is durable at a cut.
    pub fn is_halved(&self, cut: u64, sequence: u64) -> bool {
        self.halved.get(&sequence).is_some_and(|by| *by <= cut)
    }

    /// What became of a change at a cut, in a word.
    pub fn word(&self, cut: u64, sequence: u64, presence: &Presence) -> &'static str {
        match presence {
            Presence::Missing if self.is_halved(cut, sequence) => "torn",
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
