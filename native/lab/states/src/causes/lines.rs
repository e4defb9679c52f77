//! Causes and flushes as they are named: by operation and path.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde::Serialize;

use super::known::Cause;
use super::likeness::{pattern, Steps};
use super::needless::Need;
use super::Found;
use crate::checks::{Detail, Finding};
use crate::explore::Exploration;
use crate::fault::Fault;
use crate::operation::{Kind, Operation, Operations};

/// Records of flushes that are listed.
const MAX_RECORDS: usize = 1000;

#[derive(Serialize)]
pub struct CauseLine {
    /// From 1, the worst first.
    pub number: u64,
    #[serde(flatten)]
    pub finding: Finding,
    #[serde(flatten)]
    pub detail: Detail,
    pub state: String,
    pub cut: u64,
    pub moment_ns: u64,
    pub operations: Vec<Absent>,
    /// The later name that is there and tells of what is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub there: Option<Operation>,
    /// Operations of the log that are of the same steps.
    pub alike: u64,
    /// States that lost something by it.
    pub states: u64,
    pub cure: Option<CureLine>,
}

#[derive(Serialize)]
pub struct Absent {
    #[serde(flatten)]
    pub named: Operation,
    pub presence: &'static str,
}

#[derive(Serialize)]
pub struct CureLine {
    /// The record that the flush follows, and what is flushed.
    pub after: u64,
    pub path: String,
    /// As many flushes, one after each operation of the step.
    pub flushes: u64,
    pub works: bool,
    pub states: u64,
}

#[derive(Serialize)]
pub struct CausesSummary {
    pub fault: Fault,
    pub sector: u64,
    pub seed: u64,
    pub causes: u64,
    /// All planned states were seen, with the causes put back.
    pub finished: bool,
    /// With all cures in the log nothing was lost; None: there is none, or the time was up.
    pub cured: Option<bool>,
    pub flushes: FlushTotals,
    pub checked: u64,
    pub losing: u64,
    pub seconds: f64,
}

#[derive(Default, Serialize)]
pub struct FlushTotals {
    #[serde(flatten)]
    pub all: Share,
    /// The same by operation and path.
    pub by_path: Vec<PathFlushes>,
    /// Records of flushes that can go together, the first of them.
    pub records: Vec<u64>,
}

#[derive(Clone, Copy, Default, Serialize)]
pub struct Share {
    pub count: u64,
    pub ns: u64,
    /// Those that can go together.
    pub needless: u64,
    pub needless_ns: u64,
    /// Those that can go by themselves, these among them.
    pub alone: u64,
    /// The time was up before anything was known of them.
    pub unknown: u64,
}

#[derive(Serialize)]
pub struct PathFlushes {
    pub operation: Kind,
    pub path: String,
    #[serde(flatten)]
    pub share: Share,
}

/// What is named, with the names of all records that it needs.
pub struct Lines<'a, 's> {
    exploration: &'a Exploration<'s>,
    steps: &'a Steps,
    found: &'a Found,
    operations: HashMap<u64, Operation>,
    moves: Vec<Operation>,
}

impl<'a, 's> Lines<'a, 's> {
    pub fn new(
        exploration: &'a Exploration<'s>,
        steps: &'a Steps,
        found: &'a Found,
    ) -> Lines<'a, 's> {
        let mut wanted: BTreeSet<u64> = found.flushes.iter().map(|(record, _)| *record).collect();
        wanted.extend(found.causes.iter().flat_map(|one| one.missing.iter().map(|(at, _)| *at)));
        let (mut operations, mut moves) = (HashMap::new(), Vec::new());
        for named in Operations::new(&exploration.store.trace) {
            if matches!(named.kind, Kind::Rename | Kind::Link) {
                moves.push(named.clone());
            }
            if wanted.contains(&named.sequence) {
                operations.insert(named.sequence, named);
            }
        }
        Lines { exploration, steps, found, operations, moves }
    }

    /// The worst first; of equals the one that comes first in the log.
    pub fn causes(&self) -> Vec<CauseLine> {
        let mut causes: Vec<&Cause> = self.found.causes.iter().collect();
        let first = |one: &Cause| one.missing.first().map_or(0, |(record, _)| *record);
        causes.sort_by_key(|one| (std::cmp::Reverse(one.finding.severity()), first(one)));
        causes.into_iter().zip(1..).map(|(cause, number)| self.cause(cause, number)).collect()
    }

    fn cause(&self, cause: &Cause, number: u64) -> CauseLine {
        let absent = cause.missing.iter().filter_map(|(record, presence)| {
            let named = self.operations.get(record)?.clone();
            let word = self.exploration.durability.word(cause.id.cut, *record, presence);
            Some(Absent { named, presence: word })
        });
        let steps: BTreeSet<u32> = cause.steps.iter().copied().collect();
        let alike = steps.into_iter().map(|step| self.steps.records(step).count() as u64).sum();
        let cure = cause.cure.as_ref().and_then(|cure| {
            let journal = self.exploration.durability.journal.as_ref();
            let is_left = journal.is_some_and(|one| one.left_in(cure.after).is_some());
            let path = flushed_path(self.operations.get(&cure.after)?, is_left);
            let flushes = cure.added.len() as u64;
            Some(CureLine {
                after: cure.after,
                path,
                flushes,
                works: cure.works,
                states: cure.states,
            })
        });
        CauseLine {
            number,
            finding: cause.finding,
            detail: Detail {
                age_ns: cause.finding.age_ns(cause.moment_ns),
                ..cause.detail.clone()
            },
            state: cause.id.to_string(),
            cut: cause.id.cut,
            moment_ns: cause.moment_ns,
            operations: absent.collect(),
            there: self.find_later_name(cause),
            alike,
            states: cause.states,
            cure,
        }
    }

    /// Of a change of content: the last name that its file got afterwards.
    fn find_later_name(&self, cause: &Cause) -> Option<Operation> {
        let named = cause.missing.iter().find_map(|(record, _)| self.operations.get(record))?;
        if !matches!(named.kind, Kind::Write | Kind::Truncate | Kind::Allocate | Kind::Zero) {
            return None;
        }
        let (mut path, mut found) = (&named.path, None);
        for other in &self.moves {
            let is_absent = || cause.missing.iter().any(|(record, _)| *record == other.sequence);
            let is_later = other.sequence > named.sequence && other.sequence <= cause.id.cut;
            if is_later && other.path == *path && !is_absent() {
                found = Some(other.clone());
                if other.kind == Kind::Rename {
                    path = other.to.as_ref().unwrap_or(path);
                }
            }
        }
        found
    }

    pub fn summary(&self, begun: Instant) -> CausesSummary {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        CausesSummary {
            fault: self.exploration.fault(),
            sector: self.exploration.store.trace.sector,
            seed: self.exploration.request.seed,
            causes: self.found.causes.len() as u64,
            finished: self.found.finished,
            cured: self.found.cured,
            flushes: self.flushes(),
            checked: count(&self.exploration.counters.checked),
            losing: count(&self.exploration.counters.losing),
            seconds: begun.elapsed().as_secs_f64(),
        }
    }

    fn flushes(&self) -> FlushTotals {
        let mut named = FlushTotals::default();
        let mut by_path: BTreeMap<(String, Kind), Share> = BTreeMap::new();
        for (record, need) in &self.found.flushes {
            let Some(operation) = self.operations.get(record) else { continue };
            let ns = operation.end_ns.saturating_sub(operation.begin_ns);
            named.all.add(*need, ns);
            by_path.entry((pattern(&operation.path), operation.kind)).or_default().add(*need, ns);
            if *need == Need::Together && named.records.len() < MAX_RECORDS {
                named.records.push(*record);
            }
        }
        let shares = by_path.into_iter();
        named.by_path = shares
            .map(|((path, operation), share)| PathFlushes { operation, path, share })
            .collect();
        named
    }
}

impl Share {
    fn add(&mut self, need: Need, ns: u64) {
        self.count += 1;
        self.ns += ns;
        match need {
            Need::Needed => {}
            Need::Unknown => self.unknown += 1,
            Need::Alone => self.alone += 1,
            Need::Together => {
                self.alone += 1;
                self.needless += 1;
                self.needless_ns += ns;
            }
        }
    }
}

/// The directory of a name (of the old one, where a rename leaves that), the file of anything else.
fn flushed_path(named: &Operation, is_left: bool) -> String {
    let is_name = matches!(
        named.kind,
        Kind::Create
            | Kind::Mkdir
            | Kind::Symlink
            | Kind::Link
            | Kind::Unlink
            | Kind::Rmdir
            | Kind::Rename
            | Kind::Exchange
    );
    if !is_name {
        return named.path.clone();
    }
    let path = named.to.as_ref().filter(|_| !is_left).unwrap_or(&named.path);
    path.rsplit_once('/').map_or(".", |(above, _)| above).to_owned()
}
