//! Which ledger, and what is left of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use diskproof_nbd::Nbd;
use diskproof_wire::ledger::{
    find_geometry, verify, Acknowledgement, Geometry, Loss, ReadAt, Report, SLOT,
};

use crate::files::Slots;
use crate::options::Verify;
use crate::place::TargetPlace;
use crate::raw::Readable;
use crate::target::named;

/// A line that is longer is no acknowledgement of ours.
const MAX_LINE: u64 = 4096;
/// Slots behind a target's end: a file may have lost its end, but not a claim of terabytes.
const MAX_BEYOND: u64 = 1 << 20;

/// What was promised: of a ledger that is known, or of the one that the target shows.
struct Promise {
    geometry: Option<Geometry>,
    id: Option<u64>,
    acknowledged: u64,
}

pub fn judge(options: &Verify, as_files: bool) -> io::Result<Report> {
    let promise = match &options.acks {
        Some(path) => read_acks(path, options.id).map_err(|error| named(path.display(), error))?,
        None => {
            let acknowledged = options.acknowledged.unwrap_or(0);
            Promise { geometry: None, id: options.id, acknowledged }
        }
    };
    match &options.target {
        TargetPlace::Path(path) if as_files => {
            let mut slots = Slots(path.into());
            let size = slots.size()?;
            look(&mut slots, size, promise)
        }
        TargetPlace::Path(path) => {
            let (mut file, size) = Readable::open(path)?;
            look(&mut file, size, promise)
        }
        TargetPlace::Nbd { export, socket } => {
            let patience = Duration::from_secs(options.patience);
            let mut nbd = Nbd::connect(socket, export, patience)?;
            let size = nbd.export.size;
            look(&mut nbd, size, promise)
        }
    }
}

fn look(target: &mut impl ReadAt, size: u64, promise: Promise) -> io::Result<Report> {
    let geometry = match promise.geometry {
        Some(geometry) => Some(geometry),
        None => find_geometry(target, size, promise.id)?,
    };
    match geometry {
        Some(geometry) if geometry.slots > size / SLOT as u64 + MAX_BEYOND => {
            Err(io::Error::other("the ledger is far larger than the target"))
        }
        Some(geometry) => verify(target, &geometry, promise.acknowledged),
        // Not one record of it is left.
        None => Ok(all_missing(promise.acknowledged)),
    }
}

fn all_missing(acknowledged: u64) -> Report {
    let first = (acknowledged > 0).then_some((1, Loss::Missing));
    Report {
        acknowledged,
        lost: acknowledged,
        missing: acknowledged,
        lost_sequences: first.into_iter().collect(),
        ..Report::default()
    }
}

/// The last ledger that was acknowledged, or the one with this id. Other lines are passed over.
fn read_acks(path: &Path, id: Option<u64>) -> io::Result<Promise> {
    let mut lines = BufReader::new(File::open(path)?);
    let mut promise = Promise { geometry: None, id, acknowledged: 0 };
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some(told) = Acknowledgement::parse(line.trim_ascii_end()) else { continue };
        if id.is_some_and(|id| id != told.id) {
            continue;
        }
        if told.geometry.is_some() {
            promise = Promise { geometry: told.geometry, id: Some(told.id), acknowledged: 0 };
        } else if promise.id.is_none_or(|id| id == told.id) {
            promise.acknowledged = promise.acknowledged.max(told.sequence);
        }
    }
    if promise.geometry.is_none() {
        return Err(io::Error::other("no line in it begins a ledger"));
    }
    Ok(promise)
}
