//! `qemu-img check` as a judge: leaked clusters are no corruption.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::child::{run, Ended};
use super::{Check, Detail, Finding, Ground};
use crate::cut::Cut;
use crate::failure::{During, Failure, Result};
use crate::image::Touched;
use crate::request::Format;
use crate::snapshot::Snapshot;
use crate::state::State;

const LIMIT: Duration = Duration::from_secs(120);
const WHAT: &str = "running qemu-img check";

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Report {
    corruptions: u64,
    check_errors: u64,
}

pub struct ImageCheck<'s> {
    ground: &'s Ground,
    target: PathBuf,
    format: Format,
    said: String,
}

impl<'s> ImageCheck<'s> {
    pub fn new(ground: &'s Ground, target: PathBuf, format: Format) -> ImageCheck<'s> {
        ImageCheck { ground, target, format, said: String::new() }
    }

    fn judge(&mut self, ended: Ended) -> Result<Finding> {
        let Some(status) = ended.status else { return Err(Failure::new(WHAT, "it took too long")) };
        let (said, crashed) = ended.said();
        self.said = said;
        let report: Option<Report> = serde_json::from_str(&ended.stdout).ok();
        match (status.code(), report) {
            (Some(0 | 3), Some(report)) if report.corruptions + report.check_errors == 0 => {
                Ok(Finding::KEEPS)
            }
            // What cannot be opened, and what is found to be corrupt.
            (Some(0..=3), _) => Ok(Finding::corrupts(0, None)),
            (None, _) if crashed => Ok(Finding::corrupts(0, None)),
            _ => Err(Failure::new(WHAT, format!("{status}: {}", self.said))),
        }
    }
}

impl Check for ImageCheck<'_> {
    fn begin(&mut self, _cut: &Cut<'_, '_>, _changed: Option<&Touched>) -> Result<()> {
        Ok(())
    }

    /// An image must be sound at any time.
    fn promise(&self) -> u64 {
        0
    }

    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding> {
        let shown = self.ground.view.show(Snapshot::new(state));
        let mut command = self.ground.readers.command("qemu-img");
        let arguments = ["check", "--output=json", "-f", self.format.name(), "--"];
        command.args(arguments).arg(shown.path.join(&self.target));
        let ended = run(&mut command, None, LIMIT).during(WHAT)?;
        self.judge(ended)
    }

    fn detail(&mut self, _state: &State<'_, '_, '_>) -> Result<Detail> {
        Ok(Detail { output: Some(self.said.clone()), ..Detail::default() })
    }
}
