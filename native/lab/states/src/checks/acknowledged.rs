//! What a ledger's writer was promised, and when.

use diskproof_wire::ledger::{Acknowledgement, Geometry, Report};

use crate::checks::Detail;
use crate::failure::{Failure, Result};
use crate::trace::Trace;

/// The acknowledgements of one ledger.
pub struct Promises {
    pub geometry: Geometry,
    /// Of each acknowledgement that promised more than those before: its record, its time, the
    /// highest durable sequence.
    steps: Vec<(u64, u64, u64)>,
}

impl Promises {
    /// The id of the ledger whose first line comes first in the log.
    pub fn read(trace: &Trace) -> Result<Promises> {
        let mut lines = trace.acknowledgements(trace.last());
        let geometry = lines
            .find_map(|(_, line)| Acknowledgement::parse(line)?.geometry)
            .ok_or_else(|| Failure::new("reading the log", "no ledger begins in it"))?;
        let mut steps: Vec<(u64, u64, u64)> = Vec::new();
        for (record, line) in lines {
            let Some(said) = Acknowledgement::parse(line) else { continue };
            let more = steps.last().is_none_or(|last| last.2 < said.sequence);
            if said.id == geometry.id && said.sequence > 0 && more {
                steps.push((record, trace.event(record).end_ns, said.sequence));
            }
        }
        Ok(Promises { geometry, steps })
    }

    /// The highest sequence that had been acknowledged at a cut.
    pub fn at(&self, cut: u64) -> u64 {
        let before = self.steps.partition_point(|step| step.0 <= cut);
        before.checked_sub(1).map_or(0, |last| self.steps[last].2)
    }

    /// When a sequence number that has been acknowledged first was.
    pub fn since(&self, sequence: u64) -> u64 {
        self.steps[self.steps.partition_point(|step| step.2 < sequence)].1
    }

    pub fn detail(&self, report: Report, moment_ns: u64) -> Detail {
        let oldest = report.lost_sequences.first();
        let oldest = oldest.map(|&(sequence, _)| moment_ns.saturating_sub(self.since(sequence)));
        Detail { age_ns: oldest, ledger: Some(report), ..Detail::default() }
    }
}
