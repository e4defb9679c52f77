//! What is said on standard output: JSON, one object a line.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;

use crate::causes::lines::{CauseLine, CausesSummary};
use crate::checks::{Detail, Finding};
use crate::choice::StateId;
use crate::explore::Exploration;
use crate::fault::Fault;
use crate::found::{Found, Order, Outcome};
use crate::minimise::Minimal;
use crate::operation::Operation;
use crate::plan::BEFORE_RANDOM;
use crate::shard::Shard;
use crate::unsynced::Unsynced;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    Progress {
        built: u64,
        checked: u64,
        losing: u64,
        planned: u64,
        seconds: f64,
    },
    Loss(Loss<'a>),
    Minimised {
        #[serde(flatten)]
        loss: Loss<'a>,
        missing: &'a [u64],
        checks: u64,
        is_minimal: bool,
    },
    Summary(Box<Summary>),
    Operation {
        #[serde(flatten)]
        named: &'a Operation,
        /// Of a change, what became of it in the state that was asked about.
        #[serde(skip_serializing_if = "Option::is_none")]
        presence: Option<&'static str>,
    },
    Unsynced(Unsynced),
    Cause(Box<CauseLine>),
    Causes(Box<CausesSummary>),
    Error {
        what: &'a str,
        why: &'a str,
    },
}

#[derive(Serialize)]
pub struct Loss<'a> {
    pub state: String,
    pub cut: u64,
    pub moment_ns: u64,
    #[serde(flatten)]
    pub finding: Finding,
    #[serde(flatten)]
    pub detail: &'a Detail,
    /// Makes this state in a directory, from where the request came.
    pub command: Vec<String>,
}

#[derive(Serialize)]
pub struct Summary {
    /// `undecided` when no state was checked.
    pub verdict: &'static str,
    pub fault: Fault,
    pub sector: u64,
    /// Bytes that a device discards whole; left out where a discard is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u64>,
    pub seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Names the state that lost most; among equals, the one whose loss is oldest.
    pub lost: u64,
    pub age_ns: Option<u64>,
    pub state: Option<String>,
    /// That state holds what the records up to this one left.
    pub cut: Option<u64>,
    /// Of that state; among equals of several shards the lowest is what one exploration would name.
    pub order: Option<Order>,
    pub minimal: Option<String>,
    pub missing: Vec<u64>,
    pub cuts: u64,
    pub acknowledgements: u64,
    pub states: States,
    pub covered: Covered,
    /// The check said two things of what is the same: none is judged by another.
    pub unsteady: bool,
    /// The log's end: complete, open or truncated.
    pub log: &'static str,
    pub timed_out: bool,
    pub seconds: f64,
}

#[derive(Serialize)]
pub struct States {
    pub built: u64,
    /// Distinct in content and promise.
    pub distinct: u64,
    /// How many of those belong to this shard.
    pub checked: u64,
    /// And were not run: a state that was run equals them in all that was read of it.
    pub equal: u64,
    pub losing: u64,
    /// Counts the passes that are not random; an upper bound when they were not finished.
    pub planned: u64,
    pub planned_done: bool,
    pub random_rounds: u64,
    /// Every combination was built at every cut.
    pub complete: bool,
}

/// What was looked at by its meaning, whoever of several shards checked it.
#[derive(Serialize)]
pub struct Covered {
    /// Acknowledgements with nothing that is not durable.
    pub acknowledgements: Share,
    /// Single changes missing, at the first and the last promise that depends on each.
    pub changes: Share,
}

#[derive(Serialize)]
pub struct Share {
    pub done: u64,
    pub of: u64,
}

/// Prints; a reader that is gone ends us.
#[expect(
    clippy::expect_used,
    reason = "strings, numbers and lists of them become JSON in any case"
)]
pub fn say(line: &Line<'_>) {
    let mut text = serde_json::to_vec(line).expect("lines are plain data");
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&text).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

pub fn progress(exploration: &Exploration<'_>, planned: u64, begun: Instant) {
    let counters = &exploration.counters;
    say(&Line::Progress {
        built: counters.built.load(Ordering::Relaxed),
        checked: counters.checked.load(Ordering::Relaxed),
        losing: counters.losing.load(Ordering::Relaxed),
        planned,
        seconds: begun.elapsed().as_secs_f64(),
    });
}

pub fn loss<'a>(exploration: &Exploration<'_>, found: &'a Found) -> Loss<'a> {
    make_loss(exploration, &found.id, found.finding, &found.detail)
}

pub fn minimised<'a>(exploration: &Exploration<'_>, minimal: &'a Minimal) -> Line<'a> {
    Line::Minimised {
        loss: make_loss(exploration, &minimal.id, minimal.finding, &minimal.detail),
        missing: &minimal.missing,
        checks: minimal.checks,
        is_minimal: minimal.is_minimal,
    }
}

fn make_loss<'a>(
    exploration: &Exploration<'_>,
    id: &StateId,
    finding: Finding,
    detail: &'a Detail,
) -> Loss<'a> {
    let trace = &exploration.store.trace;
    let state = id.to_string();
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let request = exploration.request;
    let command = vec![
        "diskproof-states".to_owned(),
        "show".to_owned(),
        path(&request.log),
        path(&request.base),
        state.clone(),
        "--to".to_owned(),
        "STATE".to_owned(),
    ];
    let moment_ns =
        if id.cut == 0 { trace.header.monotonic_ns } else { trace.event(id.cut).end_ns };
    Loss { state, cut: id.cut, moment_ns, finding, detail, command }
}

/// The end of an exploration in one line.
pub fn summary(
    exploration: &Exploration<'_>,
    outcome: &Outcome,
    minimal: Option<&Minimal>,
    planned: u64,
    begun: Instant,
) -> Summary {
    use diskproof_wire::crash_log::Ending;
    let counters = &exploration.counters;
    let checked = counters.checked.load(Ordering::Relaxed);
    let cuts = exploration.cuts;
    let acknowledgements = cuts.acknowledgements.len() as u64;
    let worst = outcome.worst();
    let trace = &exploration.store.trace;
    Summary {
        verdict: match worst {
            Some(worst) => worst.finding.verdict.word(),
            None if checked == 0 => "undecided",
            None => Finding::KEEPS.verdict.word(),
        },
        fault: exploration.fault(),
        sector: trace.sector,
        discard_granularity: trace.discard_granularity,
        seed: exploration.request.seed,
        shard: exploration.request.shard,
        lost: worst.map_or(0, |worst| worst.finding.lost),
        age_ns: worst.and_then(Found::age_ns),
        state: worst.map(|worst| worst.id.to_string()),
        cut: worst.map(|worst| worst.id.cut),
        order: worst.map(|worst| worst.order),
        minimal: minimal.map(|minimal| minimal.id.to_string()),
        missing: minimal.map_or_else(Vec::new, |minimal| minimal.missing.clone()),
        cuts: cuts.all.len() as u64,
        acknowledgements,
        states: states(exploration, outcome, planned),
        covered: counters.covered(cuts),
        unsteady: exploration.is_unsteady(),
        log: match trace.ending {
            Ending::Complete => "complete",
            Ending::Open => "open",
            Ending::Truncated { .. } => "truncated",
        },
        timed_out: outcome.timed_out,
        seconds: begun.elapsed().as_secs_f64(),
    }
}

fn states(exploration: &Exploration<'_>, outcome: &Outcome, planned: u64) -> States {
    let counters = &exploration.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    States {
        built: count(&counters.built),
        distinct: count(&counters.distinct),
        checked: count(&counters.checked),
        equal: count(&counters.equal),
        losing: count(&counters.losing),
        planned,
        planned_done: outcome.planned_done,
        random_rounds: outcome.passes.saturating_sub(BEFORE_RANDOM),
        complete: outcome.complete,
    }
}
