//! Adds calls up: by process name and call, by file, by process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hdrhistogram::Histogram;

use crate::busy::Busy;
use crate::event::{Call, Event};
use crate::waits::Waits;

/// Above so many different files a call counts for `OTHER_FILES`: a tracer must not eat the memory.
const MOST_GROUPS: usize = 50_000;
pub const OTHER_FILES: &str = "(other files)";
/// Two digits: percentiles are within 1 % of the true value.
const DIGITS: u8 = 2;

/// Sums of a set of calls, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    pub calls: u64,
    pub errors: u64,
    pub total: u64,
    pub most: u64,
}

impl Sums {
    fn add(&mut self, event: &Event) {
        self.calls += 1;
        self.errors += u64::from(event.result < 0);
        self.total += event.nanoseconds();
        self.most = self.most.max(event.nanoseconds());
    }

    pub fn mean(&self) -> u64 {
        self.total.checked_div(self.calls).unwrap_or(0)
    }
}

/// The latencies of one call of all processes of one name.
#[derive(Clone, Debug)]
pub struct Latencies {
    pub sums: Sums,
    exact: Histogram<u64>,
    /// Calls by the power of two that their nanoseconds reach; [0] is below 2 ns.
    pub powers: [u64; 64],
}

impl Latencies {
    #[expect(clippy::expect_used, reason = "two digits are among those allowed")]
    fn new() -> Self {
        let exact = Histogram::new(DIGITS).expect("two digits are allowed");
        Latencies { sums: Sums::default(), exact, powers: [0; 64] }
    }

    fn add(&mut self, event: &Event) {
        self.sums.add(event);
        // It grows as needed; only a latency of centuries would not fit.
        let _ = self.exact.record(event.nanoseconds());
        self.powers[event.nanoseconds().max(1).ilog2() as usize] += 1;
    }

    /// The smallest latency in ns that this share of the calls does not exceed; at most the
    /// maximum.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.exact.value_at_percentile(percent).min(self.sums.most)
    }
}

/// What one process wrote between its syncs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writer {
    pub process: Arc<str>,
    pub syncs: u64,
    pub written: u64,
    /// Syncs before which the process had written nothing since its last one.
    pub empty: u64,
    seen: u64,
    known: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    pub process: Arc<str>,
    pub pid: i32,
    pub call: Call,
    pub file: Arc<str>,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub sums: Sums,
    /// Calls whose file was looked up after they had returned.
    pub late: u64,
    pub latencies: BTreeMap<(Arc<str>, Call), Latencies>,
    pub groups: HashMap<Group, Sums>,
    pub writers: BTreeMap<i32, Writer>,
    pub busy: Busy,
    pub waits: Waits,
}

impl Tally {
    /// What a process had written before it was watched; unknown processes start at nothing.
    pub fn start_at(&mut self, pid: i32, written: u64) {
        self.writers.entry(pid).or_default().seen = written;
    }

    pub fn add(&mut self, event: &Event) {
        self.sums.add(event);
        self.late += u64::from(!event.in_flight);
        self.busy.add(event.start, event.end);
        self.waits.add(event);
        let key = (event.process.clone(), event.call);
        self.latencies.entry(key).or_insert_with(Latencies::new).add(event);
        let group = self.group_of(event);
        self.groups.entry(group).or_default().add(event);
        self.add_written(event);
    }

    fn group_of(&self, event: &Event) -> Group {
        let mut group = Group {
            process: event.process.clone(),
            pid: event.pid,
            call: event.call,
            file: event.file.clone(),
        };
        if self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&group) {
            group.file = OTHER_FILES.into();
            group.pid = 0;
        }
        group
    }

    fn add_written(&mut self, event: &Event) {
        if self.writers.len() >= MOST_GROUPS && !self.writers.contains_key(&event.pid) {
            return;
        }
        let writer = self.writers.entry(event.pid).or_default();
        writer.process = event.process.clone();
        writer.syncs += 1;
        let Some(now) = event.written else { return };
        let new = now.saturating_sub(writer.seen);
        writer.known = true;
        writer.written += new;
        writer.empty += u64::from(new == 0 && event.in_flight);
        writer.seen = now.max(writer.seen);
    }

    /// Calls, bytes and empty syncs of all processes of a name; no bytes where none were told.
    pub fn writers_by_name(&self) -> BTreeMap<Arc<str>, (u64, Option<u64>, u64)> {
        let mut names = BTreeMap::<Arc<str>, (u64, Option<u64>, u64)>::new();
        for writer in self.writers.values().filter(|writer| writer.syncs > 0) {
            let (syncs, bytes, empty) = names.entry(writer.process.clone()).or_default();
            *syncs += writer.syncs;
            *empty += writer.empty;
            if writer.known {
                *bytes = Some(bytes.unwrap_or(0) + writer.written);
            }
        }
        names
    }

    /// Files with what all processes and calls waited for them, the dearest first.
    pub fn files(&self) -> Vec<(Arc<str>, Sums)> {
        let mut files = HashMap::<Arc<str>, Sums>::new();
        for (group, sums) in &self.groups {
            let file = files.entry(group.file.clone()).or_default();
            file.calls += sums.calls;
            file.errors += sums.errors;
            file.total += sums.total;
            file.most = file.most.max(sums.most);
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by(|a, b| b.1.total.cmp(&a.1.total).then_with(|| a.0.cmp(&b.0)));
        files
    }

    /// Groups in a stable order, the dearest first.
    pub fn sorted_groups(&self) -> Vec<(&Group, &Sums)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by(|a, b| b.1.total.cmp(&a.1.total).then_with(|| a.0.cmp(b.0)));
        groups
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
