//! The recorded directory at one point of the log: for each part of it, all that a crash at this point could have left there.
//!
//! A part is a run of sectors of a file, a file's size, a name, or a file's attributes. Its versions are what it was after each
//! change since the last durable one; a crash leaves one of them, whichever was the last to reach the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use crate::content::{Source, Store};
use crate::fault::Durability;
use crate::random::mix;
use crate::trace::{AttributeChange, Change, Place};

/// A part of the directory; in the order of files and sectors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Of a file, the sectors from this one on.
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
    /// Of data: the sector behind its last one. Else 0.
    pub end: u64,
    pub versions: Vec<Version>,
}

impl Cell {
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
    durability: &'s Durability,
    pub cells: BTreeMap<Key, Cell>,
    /// Changes that are not durable.
    pub pending: BTreeSet<u64>,
    /// Of the state with nothing but what is durable.
    pub settled_hash: u64,
    /// The last record that is in it.
    pub at: u64,
    /// Runs of sectors (file, first, end) whose durable content changed.
    pub settled_data: Touched,
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
        };
        for (place, file, _) in &store.trace.base {
            let version = Version { sequence: 0, value: Value::Name(Some(*file)), hash: 0 };
            let cell = Cell { end: 0, versions: vec![version] };
            image.cells.insert(Key::Name(place.clone()), cell);
        }
        image
    }

    /// Goes on to a later record.
    pub fn advance(&mut self, cut: u64) -> io::Result<()> {
        while self.at < cut {
            self.at += 1;
            self.push(self.at)?;
            for &settled in self.durability.settled_by(self.at) {
                self.settle(settled)?;
            }
        }
        Ok(())
    }

    /// Adds the changes that had begun at this point and not ended; take them out again with `retract`.
    pub fn push_under_way(&mut self) -> io::Result<Vec<u64>> {
        let trace = &self.store.trace;
        let added: Vec<u64> = self.durability.under_way(trace, self.at).collect();
        for &sequence in &added {
            self.push(sequence)?;
        }
        Ok(added)
    }

    pub fn retract(&mut self, added: &[u64]) {
        for &sequence in added.iter().rev() {
            for key in self.keys(sequence) {
                let cell = self.cells.get_mut(&key).expect("a key of a cell");
                cell.versions.retain(|version| version.sequence != sequence);
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

    /// The sectors that a change of data can be about.
    pub fn sectors(&self, change: &Change) -> Option<(u64, u64)> {
        let sector = self.store.trace.sector;
        match *change {
            Change::Write { offset, length, .. } | Change::Zero { offset, length, .. } => {
                Some((offset / sector, (offset + length).div_ceil(sector)))
            }
            Change::Truncate { size } => Some((size / sector, u64::MAX)),
            _ => None,
        }
    }

    pub fn size(&self, file: u64) -> u64 {
        match self.cells.get(&Key::Size(file)).map(|cell| &cell.latest().value) {
            Some(Value::Size(size)) => *size,
            _ => self.store.base.size(file),
        }
    }

    fn push(&mut self, sequence: u64) -> io::Result<()> {
        let store = self.store;
        let file = store.trace.event(sequence).file;
        let Some(change) = store.trace.change(sequence) else { return Ok(()) };
        self.pending.insert(sequence);
        match change {
            Change::Write { offset, length, at, .. } => {
                self.push_write(sequence, file, (*offset, *length), *at)?;
                self.push_growth(sequence, file, offset + length);
            }
            Change::Truncate { size } => {
                // What is behind the end is zeros already.
                self.push_zeros(sequence, file, *size, self.size(file))?;
                self.push_size(sequence, file, *size);
            }
            Change::Zero { offset, length, grows } => {
                self.push_zeros(sequence, file, *offset, offset + length)?;
                if *grows {
                    self.push_growth(sequence, file, offset + length);
                }
            }
            Change::Grow { size } => self.push_growth(sequence, file, *size),
            Change::Names { sets, .. } => self.push_names(sequence, sets),
            Change::Attributes(change) => self.push_attributes(sequence, file, change),
        }
        Ok(())
    }

    fn push_write(
        &mut self,
        sequence: u64,
        file: u64,
        (offset, length): (u64, u64),
        at: u64,
    ) -> io::Result<()> {
        let sector = self.store.trace.sector;
        let end = offset + length;
        let (first, last) = (offset.div_ceil(sector), end / sector);
        if offset % sector != 0 {
            let until = (first * sector).min(end);
            self.push_part(sequence, file, (offset, until), Some(at))?;
        }
        if first < last {
            let source = Source::Write { sequence, skip: first * sector - offset };
            self.push_run(sequence, file, (first, last), source)?;
        }
        if end % sector != 0 && last >= first {
            let from = last * sector;
            self.push_part(sequence, file, (from, end), Some(at + (from - offset)))?;
        }
        Ok(())
    }

    fn push_zeros(&mut self, sequence: u64, file: u64, offset: u64, end: u64) -> io::Result<()> {
        if offset >= end {
            return Ok(());
        }
        let sector = self.store.trace.sector;
        let (first, last) = (offset.div_ceil(sector), end / sector);
        if offset % sector != 0 {
            self.push_part(sequence, file, (offset, (first * sector).min(end)), None)?;
        }
        if first < last {
            self.push_run(sequence, file, (first, last), Source::Zero)?;
        }
        if end % sector != 0 && last >= first {
            self.push_part(sequence, file, (last * sector, end), None)?;
        }
        Ok(())
    }

    /// Changes a part of one sector: to data of the log, or zeros.
    fn push_part(
        &mut self,
        sequence: u64,
        file: u64,
        (from, to): (u64, u64),
        at: Option<u64>,
    ) -> io::Result<()> {
        let sector = self.store.trace.sector;
        let number = from / sector;
        self.cut_out(file, number, number + 1)?;
        let cell = &self.cells[&Key::Data(file, number)];
        let Value::Data(source) = &cell.latest().value else { unreachable!("data is data") };
        let mut bytes = vec![0; sector as usize];
        self.store.read(file, source, number * sector, 0, &mut bytes)?;
        let part = &mut bytes[(from % sector) as usize..][..(to - from) as usize];
        match at {
            Some(at) => self.store.trace.read_data(at, part)?,
            None => part.fill(0),
        }
        self.push_run(sequence, file, (number, number + 1), Source::Own(bytes.into()))
    }

    /// Gives a run of sectors a new version; `source` begins at its first sector.
    fn push_run(
        &mut self,
        sequence: u64,
        file: u64,
        (start, end): (u64, u64),
        source: Source,
    ) -> io::Result<()> {
        self.cut_out(file, start, end)?;
        let sector = self.store.trace.sector;
        let store = self.store;
        for (key, cell) in self.cells.range_mut(Key::Data(file, start)..Key::Data(file, end)) {
            let Key::Data(_, from) = *key else { unreachable!("data has keys of data") };
            let source = source.after((from - start) * sector);
            let hash = store.hash(file, (from, cell.end), &source)?;
            cell.versions.push(Version { sequence, value: Value::Data(source), hash });
        }
        Ok(())
    }

    /// Makes cells that together are just this run.
    fn cut_out(&mut self, file: u64, start: u64, end: u64) -> io::Result<()> {
        self.split(file, start)?;
        self.split(file, end)?;
        let mut gaps = Vec::new();
        let mut next = start;
        for (key, cell) in self.cells.range(Key::Data(file, start)..Key::Data(file, end)) {
            let Key::Data(_, from) = *key else { unreachable!("data has keys of data") };
            if next < from {
                gaps.push((next, from));
            }
            next = cell.end;
        }
        if next < end {
            gaps.push((next, end));
        }
        for (from, to) in gaps {
            let base = Version { sequence: 0, value: Value::Data(Source::Base), hash: 0 };
            self.cells.insert(Key::Data(file, from), Cell { end: to, versions: vec![base] });
        }
        Ok(())
    }

    /// No cell goes over this sector's start any more.
    fn split(&mut self, file: u64, at: u64) -> io::Result<()> {
        let store = self.store;
        let before = self.cells.range_mut(Key::Data(file, 0)..Key::Data(file, at)).next_back();
        let Some((&Key::Data(_, start), cell)) = before else { return Ok(()) };
        if cell.end <= at {
            return Ok(());
        }
        let mut right = cell.clone();
        for (left, right) in cell.versions.iter_mut().zip(&mut right.versions) {
            let Value::Data(source) = &left.value else { unreachable!("data is data") };
            let hash = store.hash(file, (start, at), source)?;
            right.hash = left.hash.wrapping_sub(hash);
            right.value = Value::Data(source.after((at - start) * store.trace.sector));
            left.hash = hash;
        }
        cell.end = at;
        self.cells.insert(Key::Data(file, at), right);
        Ok(())
    }

    fn push_growth(&mut self, sequence: u64, file: u64, size: u64) {
        if size > self.size(file) {
            self.push_size(sequence, file, size);
        }
    }

    fn push_size(&mut self, sequence: u64, file: u64, size: u64) {
        let base = self.store.base.size(file);
        let hash = if size == base { 0 } else { mix(mix(file) ^ size) };
        let old = Version { sequence: 0, value: Value::Size(base), hash: 0 };
        let new = Version { sequence, value: Value::Size(size), hash };
        let fresh = || Cell { end: 0, versions: vec![old] };
        self.cells.entry(Key::Size(file)).or_insert_with(fresh).versions.push(new);
    }

    fn push_names(&mut self, sequence: u64, sets: &[(Place, Option<u64>)]) {
        for (place, file) in sets {
            let hash = hash_of(&(place, file));
            let fresh = || Cell {
                end: 0,
                versions: vec![Version { sequence: 0, value: Value::Name(None), hash: 0 }],
            };
            let cell = self.cells.entry(Key::Name(place.clone())).or_insert_with(fresh);
            cell.versions.push(Version { sequence, value: Value::Name(*file), hash });
        }
    }

    fn push_attributes(&mut self, sequence: u64, file: u64, change: &AttributeChange) {
        let node = self.store.trace.nodes.get(&file);
        let fresh = || {
            let (mode, uid, gid) = node.map_or((0, 0, 0), |node| (node.mode, node.uid, node.gid));
            let base = Attributes { mode, uid, gid, extended: BTreeMap::new() };
            let version = Version { sequence: 0, value: Value::Attributes(base.into()), hash: 0 };
            Cell { end: 0, versions: vec![version] }
        };
        let cell = self.cells.entry(Key::Attributes(file)).or_insert_with(fresh);
        let Value::Attributes(last) = &cell.latest().value else { unreachable!("as inserted") };
        let new = Arc::new(last.with(change));
        let hash = hash_of(&(file, &*new));
        cell.versions.push(Version { sequence, value: Value::Attributes(new), hash });
    }

    /// From now on this change, and what it was made over, is durable.
    fn settle(&mut self, sequence: u64) -> io::Result<()> {
        for key in self.keys(sequence) {
            self.settle_cell(&key, sequence);
        }
        // O_DSYNC makes the size durable that its data needs, though another write gave it.
        if let Some(Change::Write { offset, length, .. }) = self.store.trace.change(sequence) {
            let key = Key::Size(self.store.trace.event(sequence).file);
            let reaches = |version: &&Version| {
                matches!(version.value, Value::Size(size) if size >= offset + length)
                    && version.sequence <= sequence
            };
            let needed = self.cells.get(&key).and_then(|cell| cell.versions.iter().find(reaches));
            if let Some(needed) = needed.map(|version| version.sequence) {
                self.settle_cell(&key, needed);
            }
        }
        self.pending.remove(&sequence);
        Ok(())
    }

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

impl Attributes {
    fn with(&self, change: &AttributeChange) -> Attributes {
        let mut new = self.clone();
        match change {
            AttributeChange::Owner { mode, uid, gid } => {
                let kind = self.mode & libc::S_IFMT;
                new.mode = mode.map_or(self.mode, |mode| kind | (mode & !libc::S_IFMT));
                new.uid = uid.unwrap_or(self.uid);
                new.gid = gid.unwrap_or(self.gid);
            }
            AttributeChange::Extended { name, value: Some(value) } => {
                new.extended.insert(name.clone(), value.clone());
            }
            AttributeChange::Extended { name, value: None } => {
                new.extended.remove(name);
            }
        }
        new
    }
}

fn hash_of(value: &impl std::hash::Hash) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish() | 1
}
