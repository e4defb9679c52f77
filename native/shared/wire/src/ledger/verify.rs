//! What a disk holds of a ledger, against what the writer was promised.

use std::io;

use serde::Serialize;

use super::record::{read_sector, Geometry, Record, RecordError};
use super::{SECTOR, SLOT};

/// Sequence numbers that a report lists.
const LISTED: usize = 64;
/// Slots read at once.
const BATCH: u64 = 64;

/// Bytes of a disk, a file or a crash state.
pub trait ReadAt {
    /// Fills the buffer; what lies behind the target's end reads as zeros.
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for &[u8] {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let there = &self[start..];
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        Ok(())
    }
}

/// How a slot fails what was promised of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Nothing of the ledger is there.
    Missing,
    /// An older record of the ledger is there, whole.
    Stale,
    /// A part of the promised record is gone: some sectors are older, or no record's, or its
    /// checksum is wrong.
    Torn,
    /// A whole record that belongs into another slot is there.
    Misplaced,
}

/// What one slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The promised record or a later one.
    Holds(u64),
    /// Nothing was promised here, and no whole record is here.
    Free,
    /// A write that came after the promised record was not complete: it may tear what it
    /// overwrites.
    Overwriting,
    Lost {
        expected: u64,
        loss: Loss,
    },
}

/// What a target holds of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub acknowledged: u64,
    /// The highest sequence number of a whole record in its place; 0 for none.
    pub highest: u64,
    /// Slots with a whole record that is as new as promised.
    pub present: u64,
    /// How many of those records were not acknowledged.
    pub beyond: u64,
    /// Slots in which a later write was under way.
    pub overwriting: u64,
    /// The sum of the four kinds below: acknowledged records that are not there, nor a later one in
    /// their slot.
    pub lost: u64,
    pub missing: u64,
    pub stale: u64,
    pub torn: u64,
    pub misplaced: u64,
    /// A record that was not acknowledged is there while one that was is not.
    pub reordered: bool,
    /// The lowest lost sequence numbers, at most 64, with their kind.
    pub lost_sequences: Vec<(u64, Loss)>,
}

impl Report {
    /// Takes in one slot; in any order.
    pub fn take(&mut self, slot: Slot) {
        match slot {
            Slot::Free => {}
            Slot::Overwriting => self.overwriting += 1,
            Slot::Holds(sequence) => {
                self.highest = self.highest.max(sequence);
                self.present += 1;
                self.beyond += u64::from(sequence > self.acknowledged);
            }
            Slot::Lost { expected, loss } => self.take_lost(expected, loss),
        }
        self.reordered = self.lost > 0 && self.beyond > 0;
    }

    fn take_lost(&mut self, expected: u64, loss: Loss) {
        self.lost += 1;
        *match loss {
            Loss::Missing => &mut self.missing,
            Loss::Stale => &mut self.stale,
            Loss::Torn => &mut self.torn,
            Loss::Misplaced => &mut self.misplaced,
        } += 1;
        let at = self.lost_sequences.partition_point(|&(known, _)| known < expected);
        self.lost_sequences.insert(at, (expected, loss));
        self.lost_sequences.truncate(LISTED);
    }
}

/// Reads every slot. A slot that cannot be read is an error, not a loss.
pub fn verify(
    target: &mut impl ReadAt,
    geometry: &Geometry,
    acknowledged: u64,
) -> io::Result<Report> {
    let mut report = Report { acknowledged, ..Report::default() };
    for_each_slot(target, geometry.offset, geometry.slots, |slot, bytes| {
        report.take(check_slot(geometry, slot, acknowledged, bytes));
    })?;
    Ok(report)
}

/// Judges one slot by what was acknowledged: all records up to this sequence number.
pub fn check_slot(geometry: &Geometry, slot: u64, acknowledged: u64, bytes: &[u8; SLOT]) -> Slot {
    let expected = geometry.last_sequence(slot, acknowledged);
    let lost = |loss| expected.map_or(Slot::Free, |expected| Slot::Lost { expected, loss });
    match Record::decode(bytes) {
        Ok(record) if record.geometry != (Geometry { offset: 0, ..*geometry }) => {
            lost(Loss::Missing)
        }
        Ok(record) if record.slot != slot => lost(Loss::Misplaced),
        Ok(record) if record.place.sequence >= expected.unwrap_or(0) => {
            Slot::Holds(record.place.sequence)
        }
        Ok(_) => lost(Loss::Stale),
        Err(RecordError::NoRecord | RecordError::Version(_) | RecordError::Damaged) => {
            check_sectors(geometry, slot, expected, bytes)
        }
    }
}

/// A slot without a whole record: a later write under way, damage, or nothing of ours.
fn check_sectors(
    geometry: &Geometry,
    slot: u64,
    expected: Option<u64>,
    bytes: &[u8; SLOT],
) -> Slot {
    let owners: Vec<Option<u64>> = bytes
        .chunks_exact(SECTOR)
        .enumerate()
        .map(|(number, sector)| read_sector(geometry, slot, number, sector))
        .collect();
    let is_ours = owners.iter().any(Option::is_some);
    let Some(expected) = expected else {
        return if is_ours { Slot::Overwriting } else { Slot::Free };
    };
    let as_new = |owner: &Option<u64>| owner.is_some_and(|sequence| sequence >= expected);
    let newer = owners.iter().flatten().any(|&sequence| sequence > expected);
    match (is_ours, owners.iter().all(as_new) && newer) {
        (_, true) => Slot::Overwriting,
        (true, false) => Slot::Lost { expected, loss: Loss::Torn },
        (false, false) => Slot::Lost { expected, loss: Loss::Missing },
    }
}

/// The ledger on a target of `size` bytes: the one with this id, or of all the one written to last.
pub fn find_geometry(
    target: &mut impl ReadAt,
    size: u64,
    id: Option<u64>,
) -> io::Result<Option<Geometry>> {
    let mut newest: Option<(u64, Geometry)> = None;
    for_each_slot(target, 0, size / SLOT as u64, |number, bytes| {
        let Ok(record) = Record::decode(bytes) else { return };
        let Some(offset) = (number * SLOT as u64).checked_sub(record.slot * SLOT as u64) else {
            return;
        };
        let wanted = id.is_none_or(|id| id == record.geometry.id);
        let written = record.place.realtime_ns;
        if wanted && newest.is_none_or(|(known, _)| known < written) {
            newest = Some((written, Geometry { offset, ..record.geometry }));
        }
    })?;
    Ok(newest.map(|(_, geometry)| geometry))
}

fn for_each_slot(
    target: &mut impl ReadAt,
    offset: u64,
    slots: u64,
    mut look: impl FnMut(u64, &[u8; SLOT]),
) -> io::Result<()> {
    let mut buffer = vec![0; BATCH as usize * SLOT];
    let mut slot = 0;
    while slot < slots {
        let count = BATCH.min(slots - slot);
        let part = &mut buffer[..count as usize * SLOT];
        target.read_at(part, offset + slot * SLOT as u64)?;
        let whole = part.chunks_exact(SLOT).filter_map(<[u8]>::first_chunk);
        for (slot, bytes) in (slot..).zip(whole) {
            look(slot, bytes);
        }
        slot += count;
    }
    Ok(())
}
