//! Any program as a judge: it runs in the state's directory and may change it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use diskproof_wire::ledger::Acknowledgement;

use super::child::{run, Ended};
use super::{Check, Detail, Finding, Ground};
use crate::cut::{Cut, State};
use crate::failure::{During, Failure, Result};
use crate::image::Touched;
use crate::snapshot::Snapshot;

/// The file with the lines that had been acknowledged, one a line, and the state's directory.
pub const ACKNOWLEDGED: &str = "DISKPROOF_ACKNOWLEDGED";
pub const STATE: &str = "DISKPROOF_STATE";

pub struct CommandCheck<'s> {
    ground: &'s Ground,
    argv: Vec<String>,
    limit: Duration,
    acknowledged: PathBuf,
    count: u64,
    /// After each line: how much has been promised, and when.
    promised: Vec<(u64, u64)>,
    last: Finding,
    said: String,
}

impl<'s> CommandCheck<'s> {
    pub fn new(ground: &'s Ground, argv: &[String], seconds: f64) -> CommandCheck<'s> {
        CommandCheck {
            ground,
            argv: argv.to_vec(),
            limit: Duration::from_secs_f64(seconds),
            acknowledged: ground.new_path("acknowledged"),
            count: 0,
            promised: Vec::new(),
            last: Finding::KEEPS,
            said: String::new(),
        }
    }

    /// When the oldest lost promise was made, at the latest: a count names none, so those that were
    /// made last are lost.
    fn since(&self, lost: u64) -> Option<u64> {
        let kept = self.promised.last()?.0.saturating_sub(lost);
        let first = self.promised.partition_point(|&(promised, _)| promised <= kept);
        self.promised.get(first).map(|&(_, moment)| moment)
    }

    fn judge(&mut self, ended: Ended) -> Result<Finding> {
        let named = || format!("running {}", self.argv[0]);
        let Some(status) = ended.status else {
            let why = format!("it took longer than {} s", self.limit.as_secs_f64());
            return Err(Failure::new(named(), why));
        };
        let (said, crashed) = ended.said();
        self.said = said;
        match status.code() {
            None if crashed => Ok(Finding::corrupts(0, None)),
            Some(0) => Ok(Finding::KEEPS),
            Some(1) => {
                let lost = count(&ended.stdout).max(1);
                Ok(Finding::loses(lost, self.since(lost)))
            }
            Some(2) => {
                let lost = count(&ended.stdout);
                Ok(Finding::corrupts(lost, self.since(lost)))
            }
            _ => Err(Failure::new(named(), format!("{status}: {}", self.said))),
        }
    }
}

/// What is promised after one more line: a ledger's tells how much, any other line is one promise
/// more.
fn promised_by(line: &[u8], before: u64) -> u64 {
    match Acknowledgement::parse(line) {
        Some(said) => before.max(said.sequence),
        None => before + 1,
    }
}

/// The number that the output begins with; 0 for none.
fn count(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl Check for CommandCheck<'_> {
    fn begin(&mut self, cut: &Cut<'_, '_>, _changed: Option<&Touched>) -> Result<()> {
        let mut lines = Vec::new();
        self.count = 0;
        self.promised.clear();
        let trace = &cut.image.store.trace;
        for (record, line) in trace.acknowledgements(cut.sequence) {
            lines.extend_from_slice(line);
            lines.push(b'\n');
            self.count += 1;
            let before = self.promised.last().map_or(0, |last| last.0);
            self.promised.push((promised_by(line, before), trace.event(record).end_ns));
        }
        let written = File::create(&self.acknowledged).and_then(|mut file| file.write_all(&lines));
        written.during("writing down what was acknowledged")
    }

    fn promise(&self) -> u64 {
        self.count
    }

    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding> {
        let shown = self.ground.view.show(Snapshot::new(state));
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).env(ACKNOWLEDGED, &self.acknowledged).env(STATE, &shown.path);
        let ended = run(&mut command, Some(&shown.path), self.limit)
            .during(format!("starting {}", self.argv[0]))?;
        self.last = self.judge(ended)?;
        Ok(self.last)
    }

    fn detail(&mut self, state: &State<'_, '_, '_>) -> Result<Detail> {
        let age_ns = self.last.age_ns(state.cut.moment_ns);
        Ok(Detail { age_ns, output: Some(self.said.clone()), ..Detail::default() })
    }
}
