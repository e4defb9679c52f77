//! The recorded directory at one point of the log: for each part of it, all that a crash at this
//! point could have left there.
//!
//! A part is a run of sectors of a file, a file's size, a name, or a file's attributes. Its
//! versions are what it was after each change since the last durable one; a crash leaves one of
//! them, whichever was the last to reach the disk.

mod parts;
mod push;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use diskproof_random::mix;

pub use parts::{Parts, BLOCK};

use crate::choice::Reach;
use crate::content::{Source, Store};
use crate::fault::{Durability, Fault};
use crate::profile::Journal;
use crate::trace::{Change, Place, Trace};

/// A part of the directory; in the order of files and sectors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The sectors of a file from this one on.
    Data(u64, u64),
    Size(u64),
    Attributes(u64),
    Name(Place),
}

/// What a part can be.
#[derive(Clone, Debug)]
pub enum Value {
    Data(Source),
    Size(u64),
    Attributes(Arc<Attributes>),
    Name(Option<u64>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub extended: BTreeMap<Arc<[u8]>, Arc<[u8]>>,
}

#[derive(Clone, Debug)]
pub struct Version {
    /// The record that made it; 0 for what was there before.
    pub sequence: u64,
    pub value: Value,
    /// How it changes the hash of a state, against the base.
    pub hash: u64,
}

/// A part and its versions, the durable one first.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The sector behind the last one of data; 0 for anything else.
    pub end: u64,
    pub versions: Vec<Version>,
}

impl Cell {
    #[expect(clippy::expect_used, reason = "a cell is made with its first version and keeps one")]
    fn latest(&self) -> &Version {
        self.versions.last().expect("a cell has a version")
    }

    pub fn find(&self, sequence: u64) -> Option<usize> {
        self.versions.iter().rposition(|version| version.sequence == sequence)
    }
}

/// What changed since somebody last asked.
pub type Touched = Vec<(u64, u64, u64)>;

pub struct Image<'s> {
    pub store: &'s Store,
    pub durability: &'s Durability,
    pub cells: BTreeMap<Key, Cell>,
    /// Changes that are not durable.
    pub pending: BTreeSet<u64>,
    /// The hash of the state with nothing but what is durable.
    pub settled_hash: u64,
    /// The last record that is in it.
    pub at: u64,
    /// Runs of sectors (file, first, end) whose durable content changed.
    pub settled_data: Touched,
    /// How long files are with all that was done to them; missing: as in the base.
    sizes: HashMap<u64, Length>,
}

/// A file's length, and the least that whatever makes it longer finds: what is durable, or what
/// the last truncation left.
#[derive(Clone, Copy)]
struct Length {
    now: u64,
    least: u64,
}

/// Which version says how long a file is, of those that are there, and how long. What makes a file
/// longer counts only by where it ends.
pub fn size_of(
    trace: &Trace,
    versions: &[Version],
    reach: impl Fn(usize) -> Reach,
) -> (usize, u64) {
    (1..versions.len()).fold((0, versions[0].size()), |found, at| {
        let version = &versions[at];
        let size = match reach(at) {
            Reach::Before => return found,
            Reach::Whole => version.size(),
            Reach::Until(sectors) => version.size().min(end_of(trace, version, sectors)),
        };
        if is_truncation(trace, version) || size > found.1 {
            (at, size)
        } else {
            found
        }
    })
}

/// Where so many sectors of a write end.
fn end_of(trace: &Trace, version: &Version, sectors: u64) -> u64 {
    match trace.change(version.sequence) {
        Some(Change::Write { offset, .. }) => {
            (offset / trace.sector).saturating_add(sectors).saturating_mul(trace.sector)
        }
        _ => u64::MAX,
    }
}

/// How a size changes the hash of a state, against the base.
pub fn size_hash(file: u64, size: u64, base: u64) -> u64 {
    if size == base {
        0
    } else {
        mix(mix(file) ^ size)
    }
}

fn is_truncation(trace: &Trace, version: &Version) -> bool {
    matches!(trace.change(version.sequence), Some(Change::Truncate { .. }))
}

impl Version {
    /// Of the size of a file.
    pub fn size(&self) -> u64 {
        match self.value {
            Value::Size(size) => size,
            _ => unreachable!("a size is a size"),
        }
    }
}

impl<'s> Image<'s> {
    pub fn new(store: &'s Store, durability: &'s Durability) -> Image<'s> {
        let mut image = Image {
            store,
            durability,
            cells: BTreeMap::new(),
            pending: BTreeSet::new(),
            settled_hash: 0,
            at: 0,
            settled_data: Vec::new(),
            sizes: HashMap::new(),
        };
        for (place, file, _) in &store.trace.base {
            let version = Version { sequence: 0, value: Value::Name(Some(*file)), hash: 0 };
            let cell = Cell { end: 0, versions: vec![version] };
            image.cells.insert(Key::Name(place.clone()), cell);
        }
        image
    }

    pub fn fault(&self) -> Fault {
        self.durability.fault
    }

    pub fn journal(&self) -> Option<&'s Journal> {
        self.durability.journal.as_ref()
    }

    /// Goes on to a later record.
    pub fn advance(&mut self, cut: u64) -> io::Result<()> {
        while self.at < cut {
            self.at += 1;
            self.push(self.at)?;
            for &halved in self.durability.halved_by(self.at) {
                self.settle_half(halved);
            }
            for &settled in self.durability.settled_by(self.at) {
                self.settle(settled);
            }
        }
        Ok(())
    }

    /// Adds the changes that had begun at this point and not ended; take them out again with
    /// `retract`.
    pub fn push_under_way(&mut self) -> io::Result<Vec<u64>> {
        let trace = &self.store.trace;
        let added: Vec<u64> = self.durability.under_way(trace, self.at).collect();
        for &sequence in &added {
            self.push(sequence)?;
        }
        Ok(added)
    }

    #[expect(clippy::expect_used, reason = "what was pushed made these cells")]
    pub fn retract(&mut self, added: &[u64]) {
        for &sequence in added.iter().rev() {
            for key in self.keys(sequence) {
                let cell = self.cells.get_mut(&key).expect("a key of a cell");
                cell.versions.retain(|version| version.sequence != sequence);
                self.measure(&key);
            }
            self.pending.remove(&sequence);
        }
    }

    /// Parts that have a version made by this record.
    pub fn keys(&self, sequence: u64) -> Vec<Key> {
        let event = self.store.trace.event(sequence);
        let Some(change) = self.store.trace.change(sequence) else { return Vec::new() };
        let mut keys = Vec::new();
        let mut add = |key: Key| {
            if self.cells.get(&key).is_some_and(|cell| cell.find(sequence).is_some()) {
                keys.push(key);
            }
        };
        match change {
            Change::Names { sets, .. } => {
                sets.iter().for_each(|(place, _)| add(Key::Name(place.clone())));
            }
            Change::Attributes(_) => add(Key::Attributes(event.file)),
            data => {
                add(Key::Size(event.file));
                if let Some((start, end)) = self.sectors(data) {
                    let range = Key::Data(event.file, start)..Key::Data(event.file, end);
                    let ours = self.cells.range(range);
                    let ours = ours.filter(|(_, cell)| cell.find(sequence).is_some());
                    keys.extend(ours.map(|(key, _)| key.clone()));
                }
            }
        }
        keys
    }

    pub fn size(&self, file: u64) -> u64 {
        self.sizes.get(&file).map_or_else(|| self.store.base.size(file), |length| length.now)
    }

    /// Looks again how long a file is, when its size has other versions.
    fn measure(&mut self, key: &Key) {
        let (Key::Size(file), Some(cell)) = (key, self.cells.get(key)) else { return };
        let trace = &self.store.trace;
        let (_, now) = size_of(trace, &cell.versions, |_| Reach::Whole);
        let cut = cell.versions[1..].iter().rposition(|version| is_truncation(trace, version));
        let least = cell.versions[cut.map_or(0, |at| at + 1)].size();
        self.sizes.insert(*file, Length { now, least });
    }

    /// From now on this change, and what it was made over, is durable.
    fn settle(&mut self, sequence: u64) {
        for key in self.keys(sequence) {
            self.settle_key(&key, sequence);
        }
        self.pending.remove(&sequence);
    }

    fn settle_key(&mut self, key: &Key, sequence: u64) {
        match key {
            Key::Size(_) => self.settle_size(key, sequence),
            _ => self.settle_cell(key, sequence),
        }
    }

    /// From now on the file has the name that a rename gave it, or is as long as a truncation has
    /// made it, or has of a write what was not made in place.
    fn settle_half(&mut self, sequence: u64) {
        let Some(change) = self.store.trace.change(sequence) else { return };
        let edges = self.parts(change);
        for key in self.keys(sequence) {
            let is_whole = match (change, &key) {
                (Change::Names { sets, .. }, Key::Name(place)) => {
                    sets.iter().any(|(name, file)| file.is_some() && name == place)
                }
                (Change::Write { .. }, Key::Data(_, start)) => {
                    !self.in_place(sequence).any(|sectors| sectors.contains(start))
                }
                (_, Key::Data(_, start)) => edges.index(*start).is_none(),
                _ => true,
            };
            if is_whole {
                self.settle_key(&key, sequence);
            }
        }
    }

    /// Whether somebody could see that the zeros of a durable truncation, or of a range, are not
    /// there: the file may be longer, or more has come to their block.
    pub fn shows_edges(&self, truncation: u64, keys: &[Key]) -> bool {
        let trace = &self.store.trace;
        let Some(Change::Truncate { size }) = trace.change(truncation) else { return true };
        let lengths = &self.cells[&Key::Size(trace.event(truncation).file)].versions;
        lengths.iter().any(|version| version.size() > *size)
            || keys.iter().any(|key| self.cells[key].latest().sequence != truncation)
    }

    /// The size is at least what this change left of what is durable by now.
    #[expect(
        clippy::expect_used,
        reason = "only what is pending is settled, and pushing it made these"
    )]
    fn settle_size(&mut self, key: &Key, sequence: u64) {
        let trace = &self.store.trace;
        let cell = self.cells.get_mut(key).expect("a key of a cell");
        let index = cell.find(sequence).expect("a version of the cell");
        let only = |at| if at == index { Reach::Whole } else { Reach::Before };
        let (durable, _) = size_of(trace, &cell.versions, only);
        let gone = cell.versions[0].hash;
        let first = Version { sequence: 0, ..cell.versions[durable].clone() };
        self.settled_hash = self.settled_hash.wrapping_add(first.hash).wrapping_sub(gone);
        let cut = (1..=index).rev().find(|&at| is_truncation(trace, &cell.versions[at]));
        let later = cell.versions.split_off(cut.map_or(1, |cut| cut + 1));
        let least = first.size();
        cell.versions = vec![first];
        // Up to the next truncation only what is longer still makes a difference.
        let mut cut_again = false;
        cell.versions.extend(later.into_iter().filter(|version| {
            cut_again |= is_truncation(trace, version);
            version.sequence != sequence && (cut_again || version.size() > least)
        }));
        self.measure(key);
    }

    #[expect(
        clippy::expect_used,
        reason = "only what is pending is settled, and pushing it made these"
    )]
    fn settle_cell(&mut self, key: &Key, sequence: u64) {
        let cell = self.cells.get_mut(key).expect("a key of a cell");
        let index = cell.find(sequence).expect("a version of the cell");
        let gone = cell.versions[0].hash;
        cell.versions.drain(..index);
        let come = cell.versions[0].hash;
        self.settled_hash = self.settled_hash.wrapping_add(come).wrapping_sub(gone);
        if let (Key::Data(file, start), true) = (key, index > 0) {
            self.settled_data.push((*file, *start, cell.end));
        }
    }
}
