//! What judges a state. Each kind is one file.

pub mod acknowledged;
pub mod raw_ledger;

use serde::Serialize;

use crate::content::Store;
use crate::cut::{Cut, State};
use crate::failure::{Failure, Result};
use crate::image::Touched;
use crate::request::{CheckRequest, Format};

/// From good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Keeps,
    Loses,
    Corrupts,
}

/// What a check found in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    /// Acknowledged writes that are not there.
    pub lost: u64,
}

impl Finding {
    pub const KEEPS: Finding = Finding { verdict: Verdict::Keeps, lost: 0 };

    pub fn loses(lost: u64) -> Finding {
        Finding { verdict: if lost > 0 { Verdict::Loses } else { Verdict::Keeps }, lost }
    }

    /// Larger is worse.
    pub fn severity(&self) -> (Verdict, u64) {
        (self.verdict, self.lost)
    }
}

/// A finding for people and for the report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Detail {
    /// How long before the crash the oldest lost write had been acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<diskproof_wire::ledger::Report>,
    /// What the program said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// One thread's judge.
pub trait Check: Send {
    /// A new cut. `changed`: runs of sectors whose durable content changed since the last one; None: anything may have.
    fn begin(&mut self, cut: &Cut<'_, '_>, changed: Option<&Touched>) -> Result<()>;
    /// What was promised at this cut: states that hold the same are judged the same when this is the same.
    fn promise(&self) -> u64;
    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding>;
    /// More about a state that `check` has just judged.
    fn detail(&mut self, state: &State<'_, '_, '_>) -> Result<Detail>;
}

/// A judge for each thread.
pub fn make_check<'s>(request: &CheckRequest, store: &'s Store) -> Result<Box<dyn Check + 's>> {
    match request {
        CheckRequest::Ledger { target, format: Format::Raw } => {
            Ok(Box::new(raw_ledger::RawLedger::new(store, target)?))
        }
        _ => Err(Failure::new("reading the request", "only ledgers on raw images can be checked")),
    }
}
