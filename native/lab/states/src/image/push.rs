//! What a change makes of the parts that it is about: their next versions.

use std::io;
use std::sync::Arc;

use super::{size_hash, Attributes, Cell, Image, Key, Length, Value, Version};
use crate::content::Source;
use crate::trace::{AttributeChange, Change, Place};

impl Image<'_> {
    pub(super) fn push(&mut self, sequence: u64) -> io::Result<()> {
        let store = self.store;
        let file = store.trace.event(sequence).file;
        let Some(change) = store.trace.change(sequence) else { return Ok(()) };
        self.pending.insert(sequence);
        match change {
            Change::Write { offset, length, at, .. } => {
                self.push_write(sequence, file, (*offset, *length), *at)?;
                for sectors in self.in_place(sequence).collect::<Vec<_>>() {
                    self.split(file, sectors.start)?;
                    self.split(file, sectors.end)?;
                }
                self.push_growth(sequence, file, offset + length);
            }
            Change::Truncate { size } => {
                // What is behind the end is zeros already.
                self.push_zeros(sequence, file, *size, self.size(file))?;
                self.split_at_parts(file, change)?;
                self.push_size(sequence, file, *size);
            }
            Change::Zero { offset, length, size } => {
                self.push_zeros(sequence, file, *offset, offset + length)?;
                self.split_at_parts(file, change)?;
                if let Some(size) = size {
                    self.push_growth(sequence, file, *size);
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

    /// What is in a block that is covered in part, or in a cluster, is chosen by itself.
    fn split_at_parts(&mut self, file: u64, change: &Change) -> io::Result<()> {
        for border in self.parts(change).borders() {
            self.split(file, border)?;
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

    /// It needs no version where the file is as long without it, whatever else is missing.
    fn push_growth(&mut self, sequence: u64, file: u64, end: u64) {
        let base = self.store.base.size(file);
        if end > self.sizes.get(&file).map_or(base, |length| length.least) {
            self.push_size(sequence, file, end);
        }
    }

    fn push_size(&mut self, sequence: u64, file: u64, size: u64) {
        let base = self.store.base.size(file);
        let hash = size_hash(file, size, base);
        let old = Version { sequence: 0, value: Value::Size(base), hash: 0 };
        let new = Version { sequence, value: Value::Size(size), hash };
        let fresh = || Cell { end: 0, versions: vec![old] };
        self.cells.entry(Key::Size(file)).or_insert_with(fresh).versions.push(new);
        let before = Length { now: base, least: base };
        let length = self.sizes.entry(file).or_insert(before);
        *length = match self.store.trace.change(sequence) {
            Some(Change::Truncate { .. }) => Length { now: size, least: size },
            _ => Length { now: length.now.max(size), ..*length },
        };
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
            let base = Attributes { mode, uid, gid, extended: self.store.base.extended(file) };
            let version = Version { sequence: 0, value: Value::Attributes(base.into()), hash: 0 };
            Cell { end: 0, versions: vec![version] }
        };
        let cell = self.cells.entry(Key::Attributes(file)).or_insert_with(fresh);
        let Value::Attributes(last) = &cell.latest().value else { unreachable!("as inserted") };
        let new = Arc::new(last.with(change));
        let hash = hash_of(&(file, &*new));
        cell.versions.push(Version { sequence, value: Value::Attributes(new), hash });
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
