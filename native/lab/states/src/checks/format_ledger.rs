//! A ledger on an image of any format, read through QEMU's own diskr.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use diskproof_nbd::Nbd;
use diskproof_wire::ledger::{check_slot, ReadAt, Report, Slot, SLOT};

use super::acknowledged::Promises;
use super::daemon::{Daemon, Unusable};
use super::{Check, Detail, Finding, Ground};
use crate::cut::Cut;
use crate::failure::{During, Failure, Result};
use crate::image::Touched;
use crate::request::Format;
use crate::snapshot::Snapshot;
use crate::state::State;

const WHAT: &str = "reading an image through QEMU";
/// Read at once.
const BATCH: u64 = 256;
/// Slots of a ledger that is read whole for each state.
const MAX_SLOTS: u64 = 1 << 22;

pub struct FormatLedger<'s> {
    ground: &'s Ground,
    target: PathBuf,
    format: Format,
    daemon: Daemon,
    judge: Judge,
    report: Report,
    refused: Option<String>,
}

/// What a disk must hold.
struct Judge {
    promises: Promises,
    acknowledged: u64,
    /// Whole records that were found, by slot: to compare is faster than to check.
    known: HashMap<u64, (u64, Box<[u8]>)>,
}

impl<'s> FormatLedger<'s> {
    pub fn new(ground: &'s Ground, target: PathBuf, format: Format) -> Result<FormatLedger<'s>> {
        let promises = Promises::read(&ground.store.trace)?;
        if promises.geometry.slots > MAX_SLOTS {
            let why = format!("a ledger of {} slots is too long", promises.geometry.slots);
            return Err(Failure::new(WHAT, why));
        }
        Ok(FormatLedger {
            ground,
            target,
            format,
            daemon: start(ground)?,
            judge: Judge { promises, acknowledged: 0, known: HashMap::new() },
            report: Report::default(),
            refused: None,
        })
    }

    fn refuse(&mut self, why: String) -> Finding {
        self.refused = Some(why);
        Finding::corrupts(0, None)
    }
}

impl Judge {
    fn read(&mut self, disk: &mut Nbd) -> io::Result<Report> {
        let geometry = self.promises.geometry;
        let mut report = Report { acknowledged: self.acknowledged, ..Report::default() };
        let mut buffer = vec![0; BATCH as usize * SLOT];
        for first in (0..geometry.slots).step_by(BATCH as usize) {
            let count = BATCH.min(geometry.slots - first) as usize;
            let part = &mut buffer[..count * SLOT];
            disk.read_at(part, geometry.position(first))?;
            for (slot, bytes) in (first..).zip(part.chunks_exact(SLOT)) {
                report.take(self.judge(slot, bytes));
            }
        }
        Ok(report)
    }

    #[expect(clippy::expect_used, reason = "our callers cut a buffer of theirs into slots")]
    fn judge(&mut self, slot: u64, bytes: &[u8]) -> Slot {
        let geometry = &self.promises.geometry;
        let expected = geometry.last_sequence(slot, self.acknowledged).unwrap_or(0);
        match self.known.get(&slot) {
            Some((sequence, known)) if *sequence >= expected && **known == *bytes => {
                return Slot::Holds(*sequence);
            }
            _ => {}
        }
        let bytes: &[u8; SLOT] = bytes.try_into().expect("a slot");
        let found = check_slot(geometry, slot, self.acknowledged, bytes);
        if let Slot::Holds(sequence) = found {
            self.known.insert(slot, (sequence, bytes[..].into()));
        }
        found
    }
}

fn start(ground: &Ground) -> Result<Daemon> {
    Daemon::start(&ground.readers, ground.new_path("nbd")).during("starting qemu-storage-daemon")
}

impl Check for FormatLedger<'_> {
    fn begin(&mut self, cut: &Cut<'_, '_>, _changed: Option<&Touched>) -> Result<()> {
        self.judge.acknowledged = self.judge.promises.at(cut.sequence);
        Ok(())
    }

    fn promise(&self) -> u64 {
        self.judge.acknowledged
    }

    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding> {
        let shown = self.ground.view.show(Snapshot::new(state));
        let image = shown.path.join(&self.target);
        self.refused = None;
        // A daemon that died may have been ended by something else: the second one tells.
        for _ in 0..2 {
            let judge = &mut self.judge;
            match self.daemon.with_image(&image, self.format, |disk| judge.read(disk)) {
                Ok(report) => {
                    self.report = report;
                    let oldest = self.report.lost_sequences.first();
                    let since = oldest.map(|&(sequence, _)| self.judge.promises.since(sequence));
                    return Ok(Finding::loses(self.report.lost, since));
                }
                Err(Unusable::Refused(why)) => return Ok(self.refuse(why)),
                Err(Unusable::Broken(error)) if !self.daemon.has_ended() => {
                    return Err(Failure::new(WHAT, error));
                }
                Err(Unusable::Broken(_)) => self.daemon = start(self.ground)?,
            }
        }
        Ok(self.refuse("qemu-storage-daemon dies of this image".to_owned()))
    }

    fn detail(&mut self, state: &State<'_, '_, '_>) -> Result<Detail> {
        match &self.refused {
            Some(why) => Ok(Detail { output: Some(why.clone()), ..Detail::default() }),
            None => {
                let promises = &self.judge.promises;
                Ok(promises.detail(self.report.clone(), state.cut.moment_ns))
            }
        }
    }
}
