//! What a power cut would take, by file: at the end of a log, and what it could have taken before.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rustix::time::{clock_gettime, ClockId, Timespec};
use serde::Serialize;

use crate::failure::Result;
use crate::fault::{Durability, Fault};
use crate::operation::{Kind, Operation, Operations};
use crate::trace::{Change, Trace, What};

/// All files of a name, by the last that each had. Times are of the log's clock.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposed {
    pub path: String,
    /// Changes that nothing has made durable, at the end of the log.
    pub changes: u64,
    /// Written by those of them that write.
    pub bytes: u64,
    /// Those of them that give or take a name.
    pub names: u64,
    /// How long the oldest of them has been done.
    pub oldest_ns: u64,
    /// The longest that a change took until it was durable, or has not been.
    pub longest_ns: u64,
    /// The most bytes that were not durable at a time.
    pub most_bytes: u64,
}

/// All of a log, which may still be written.
#[derive(Debug, Serialize)]
pub struct Unsynced {
    pub seconds: f64,
    pub promises: u64,
    pub flushes: u64,
    /// Files of which anything was ever not durable, by their paths.
    pub files: Vec<Exposed>,
}

/// A change that became durable with a record, or with none yet.
struct Span {
    from: u64,
    until: Option<u64>,
    bytes: u64,
    is_name: bool,
}

/// `live`: of a log that is being written, so that time goes on after its last record.
pub fn unsynced(log: &Path, live: bool) -> Result<Unsynced> {
    let trace = Trace::load(log, None)?;
    let clock = live.then(|| clock_gettime(ClockId::Monotonic)).map_or(0, nanoseconds);
    let last = trace.events.last().map_or(trace.header.monotonic_ns, |event| event.end_ns);
    let now = clock.max(last);
    let settled = Durability::new(&trace, Fault::Power).settled_at();
    let (mut spans, mut paths) = (BTreeMap::<u64, Vec<Span>>::new(), HashMap::new());
    let (mut promises, mut flushes) = (0, 0);
    for named in Operations::new(&trace) {
        let event = trace.event(named.sequence);
        match &event.what {
            What::Acknowledge(_) => promises += 1,
            What::Flush { .. } | What::Sync => flushes += 1,
            What::Change(change) => {
                let until = Some(settled[named.sequence as usize - 1]);
                let until = until.filter(|&record| record <= trace.last());
                let span = Span {
                    from: named.sequence,
                    until,
                    bytes: written(change),
                    is_name: matches!(change, Change::Names { .. }),
                };
                spans.entry(event.file).or_default().push(span);
                paths.insert(event.file, last_name(named));
            }
            What::Remark => {}
        }
    }
    let mut named = BTreeMap::<String, Vec<Span>>::new();
    for (file, spans) in spans {
        named.entry(paths.remove(&file).unwrap_or_default()).or_default().extend(spans);
    }
    let files = named
        .into_iter()
        .map(|(path, spans)| Exposed { path, ..exposed(&trace, &spans, now) })
        .collect();
    let seconds = now.saturating_sub(trace.header.monotonic_ns) as f64 / 1e9;
    Ok(Unsynced { seconds, promises, flushes, files })
}

fn written(change: &Change) -> u64 {
    match change {
        Change::Write { length, .. } => *length,
        _ => 0,
    }
}

fn last_name(named: Operation) -> String {
    match named.to {
        Some(to) if matches!(named.kind, Kind::Rename | Kind::Exchange) => to,
        _ => named.path,
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn exposed(trace: &Trace, spans: &[Span], now: u64) -> Exposed {
    let mut found = Exposed { most_bytes: most_bytes(spans), ..Exposed::default() };
    for span in spans {
        let end = span.until.map_or(now, |record| trace.event(record).end_ns);
        let age = end.saturating_sub(trace.event(span.from).end_ns);
        found.longest_ns = found.longest_ns.max(age);
        if span.until.is_none() {
            found.changes += 1;
            found.bytes += span.bytes;
            found.names += u64::from(span.is_name);
            found.oldest_ns = found.oldest_ns.max(age);
        }
    }
    found
}

/// A change counts from the record that did it to the one that makes it durable.
fn most_bytes(spans: &[Span]) -> u64 {
    let mut steps = BTreeMap::<u64, (u64, u64)>::new();
    for span in spans.iter().filter(|span| span.until != Some(span.from)) {
        steps.entry(span.from).or_default().0 += span.bytes;
        if let Some(record) = span.until {
            steps.entry(record).or_default().1 += span.bytes;
        }
    }
    let mut held = 0;
    let after = |(come, gone): &(u64, u64)| {
        held = held + come - gone;
        held
    };
    steps.values().map(after).max().unwrap_or_default()
}
