//! `docs/crash-model.md` by definition: every combination of what may be missing is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use diskproof_wire::crash_log::ROOT;

use crate::logs::DISK;
use crate::world::{operation, Act, Name, Timed, World};

/// File systems keep a file's end in such blocks.
const BLOCK: u64 = 4096;

/// What of a change can be there by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// All of it, or its size.
    Itself,
    Sector(u64),
    /// What a device zeroes at once.
    Cluster(u64),
    /// A file that ends with this sector of a write.
    Length(u64),
}

/// What a state shows under one name: file, mode, size, content.
pub type Seen = BTreeMap<Vec<u8>, (u64, u32, u64, Vec<u8>)>;

pub struct Model {
    pub base: Vec<u8>,
    pub acts: Vec<Timed>,
    /// When the recording was ready.
    pub start: u64,
    pub sector: u64,
    /// Bytes that a discard leaves whole; None: it is there or not.
    pub discards: Option<u64>,
    /// Choices that the model makes at one cut, at most; other logs are left out.
    pub most_bits: usize,
}

impl Model {
    fn file(&self, at: usize) -> u64 {
        operation(&self.acts[at].act).0
    }

    fn is_name(&self, at: usize) -> bool {
        matches!(
            self.acts[at].act,
            Act::Make { .. } | Act::Link { .. } | Act::Take { .. } | Act::Move { .. }
        )
    }

    /// Names and files that a change of names is about.
    fn about(&self, at: usize) -> (Vec<&Name>, Vec<u64>) {
        match &self.acts[at].act {
            Act::Make { file, name, .. }
            | Act::Link { file, name }
            | Act::Take { file, name, .. } => (vec![name], vec![*file]),
            Act::Move { file, from, to, replaced } => {
                let files = [*file, *replaced].into_iter().filter(|file| *file != 0);
                (vec![from, to], files.collect())
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    /// The change whose absence takes this one, or its size, away.
    fn needs(&self, at: usize) -> Vec<usize> {
        if self.is_name(at) {
            let (names, files) = self.about(at);
            let shares = |&earlier: &usize| {
                let (other_names, other_files) = self.about(earlier);
                other_names.iter().any(|name| names.contains(name))
                    || other_files.iter().any(|file| files.contains(file))
            };
            return (0..at).filter(shares).collect();
        }
        let file = self.file(at);
        let mut last = None;
        let mut least = if file == DISK { self.base.len() as u64 } else { 0 };
        for earlier in 0..at {
            if let Act::Truncate { file: other, size } = self.acts[earlier].act {
                if other == file {
                    (last, least) = (Some(earlier), least.min(size));
                }
            }
        }
        let needed = match self.acts[at].act {
            Act::Truncate { .. } => true,
            Act::Write { offset, length, .. } => offset + length > least,
            Act::Grow { size, .. } => size > least,
            _ => false,
        };
        last.filter(|_| needed).into_iter().collect()
    }

    /// The directory whose flush makes a change of names durable.
    fn directory(&self, at: usize) -> u64 {
        match &self.acts[at].act {
            Act::Move { to, .. } => to.0,
            _ => self.about(at).0[0].0,
        }
    }

    fn durable(&self, known: &[usize], cut: usize) -> BTreeSet<usize> {
        let mut durable = BTreeSet::new();
        for &at in known {
            let synced = matches!(self.acts[at].act, Act::Write { synced: true, .. });
            let flushed = (0..cut).any(|flush| {
                let covers = match (&self.acts[flush].act, &self.acts[at].act) {
                    (Act::Sync, _) => true,
                    (Act::Flush { file, .. }, _) if self.is_name(at) => *file == self.directory(at),
                    (Act::Flush { file, data_only, .. }, Act::Mode { file: own, .. }) => {
                        file == own && !data_only
                    }
                    (Act::Flush { file, .. }, _) => *file == self.file(at),
                    _ => false,
                };
                covers && self.acts[at].end <= self.acts[flush].begin
            });
            if (synced && at < cut) || flushed {
                durable.insert(at);
            }
        }
        let mut open: Vec<usize> = durable.iter().copied().collect();
        while let Some(at) = open.pop() {
            for earlier in self.needs(at) {
                if durable.insert(earlier) {
                    open.push(earlier);
                }
            }
        }
        durable
    }

    fn length(&self) -> usize {
        8 * self.sector as usize
    }

    /// Sectors that a change of data is about.
    fn sectors(&self, at: usize) -> Range<u64> {
        let (start, end) = match self.acts[at].act {
            Act::Write { offset, length, .. } | Act::Punch { offset, length, .. } => {
                (offset, offset + length)
            }
            Act::Truncate { size, .. } => (size, self.length() as u64),
            _ => (0, 0),
        };
        start / self.sector..end.div_ceil(self.sector)
    }

    /// With what a sector of a change is there: by itself where it was written, and in a block
    /// that zeros cover in part.
    fn part(&self, at: usize, sector: u64) -> Part {
        let block = sector * self.sector / BLOCK * BLOCK;
        let covers = |from: u64, to: u64| from <= block && block + BLOCK <= to;
        match self.acts[at].act {
            Act::Write { .. } => Part::Sector(sector),
            Act::Truncate { size, .. } if !covers(size, u64::MAX) => Part::Sector(sector),
            Act::Punch { offset, length, .. } if !covers(offset, offset + length) => {
                Part::Sector(sector)
            }
            Act::Punch { .. } => match self.discards {
                Some(cluster) => Part::Cluster(sector * self.sector / cluster),
                None => Part::Itself,
            },
            _ => Part::Itself,
        }
    }

    /// All that a crash may leave at a cut; None when they are too many to try.
    pub fn states(&self, cut: usize) -> Option<BTreeSet<Seen>> {
        let moment = cut.checked_sub(1).map_or(self.start, |last| self.acts[last].end);
        let known: Vec<usize> = (0..self.acts.len())
            .filter(|&at| !matches!(self.acts[at].act, Act::Flush { .. } | Act::Sync))
            .filter(|&at| at < cut || self.acts[at].begin <= moment)
            .collect();
        let durable = self.durable(&known, cut);
        // One bit for each part of a change that may be missing, and one for each end within a
        // write.
        let mut bits = BTreeSet::new();
        for &at in known.iter().filter(|at| !durable.contains(at)) {
            if !matches!(self.acts[at].act, Act::Punch { .. }) {
                bits.insert((at, Part::Itself));
            }
            let sectors = self.sectors(at);
            if let Act::Write { .. } = self.acts[at].act {
                bits.extend(sectors.clone().skip(1).map(|end| (at, Part::Length(end))));
            }
            bits.extend(sectors.map(|sector| (at, self.part(at, sector))));
        }
        if bits.len() > self.most_bits {
            return None;
        }
        let states = (0..1u32 << bits.len()).map(|mask| {
            let chosen: BTreeSet<(usize, Part)> = (bits.iter().enumerate())
                .filter(|(bit, _)| mask >> bit & 1 == 1)
                .map(|(_, one)| *one)
                .collect();
            let there =
                |at: usize, part: Part| durable.contains(&at) || chosen.contains(&(at, part));
            self.state(&known, &there)
        });
        Some(states.collect())
    }

    fn state(&self, known: &[usize], there: &impl Fn(usize, Part) -> bool) -> Seen {
        // What is there, and what could be: whatever it needs is.
        let (mut whole, mut bound) = (BTreeSet::new(), BTreeSet::new());
        for &at in known {
            let needed = self.needs(at);
            let mut needed = needed.iter().filter(|one| known.contains(one));
            if needed.all(|one| whole.contains(one)) {
                bound.insert(at);
                if there(at, Part::Itself) {
                    whole.insert(at);
                }
            }
        }
        let mut names = World::new(self.sector, self.discards.is_some()).names;
        let mut modes: BTreeMap<u64, u32> = [(DISK, 0o100644), (3, 0o40755), (4, 0o40755)].into();
        for act in self.acts.iter().map(|timed| &timed.act) {
            if let Act::Make { file, mode, .. } = act {
                modes.insert(*file, *mode);
            }
        }
        for &at in known.iter().filter(|at| whole.contains(at)) {
            match &self.acts[at].act {
                Act::Make { file, name, .. } | Act::Link { file, name } => {
                    names.insert(name.clone(), *file);
                }
                Act::Take { name, .. } => drop(names.remove(name)),
                Act::Move { file, from, to, .. } => {
                    names.remove(from);
                    names.insert(to.clone(), *file);
                }
                Act::Mode { file, mode } => {
                    let old = modes[file];
                    modes.insert(*file, old & libc::S_IFMT | mode);
                }
                _ => {}
            }
        }
        let mut seen = Seen::new();
        self.walk(ROOT, b"", &names, &mut |path, file| {
            let mode = modes[&file];
            let (size, bytes) = if mode & libc::S_IFMT == libc::S_IFREG {
                self.content(file, known, (&whole, &bound), there)
            } else {
                (0, Vec::new())
            };
            seen.insert(path, (file, mode, size, bytes));
        });
        seen
    }

    fn walk(
        &self,
        directory: u64,
        path: &[u8],
        names: &BTreeMap<Name, u64>,
        see: &mut impl FnMut(Vec<u8>, u64),
    ) {
        for ((parent, name), file) in names {
            if *parent == directory {
                let path = [path, b"/", name].concat();
                see(path.clone(), *file);
                self.walk(*file, &path, names, see);
            }
        }
    }

    /// A sector is what it was after the last change of it that is there; the size what the sizes
    /// that are there make of the first.
    fn content(
        &self,
        file: u64,
        known: &[usize],
        (whole, bound): (&BTreeSet<usize>, &BTreeSet<usize>),
        there: &impl Fn(usize, Part) -> bool,
    ) -> (u64, Vec<u8>) {
        let start = if file == DISK { &self.base[..] } else { &[] };
        let mut full = start.to_vec();
        let mut found = start.to_vec();
        found.resize(self.length(), 0);
        let mut size = start.len() as u64;
        let ours = known.iter().filter(|&&at| !self.is_name(at) && self.file(at) == file);
        for &at in ours {
            let Some(changed) = apply(&self.acts[at].act, &mut full) else { continue };
            let mut padded = full.clone();
            padded.resize(self.length(), 0);
            let is_write = matches!(self.acts[at].act, Act::Write { .. });
            let sectors = changed.start / self.sector..changed.end.div_ceil(self.sector);
            for sector in sectors.filter(|_| !changed.is_empty()) {
                let is_there = match self.part(at, sector) {
                    Part::Itself => whole.contains(&at),
                    part => there(at, part),
                };
                if is_there {
                    let start = (sector * self.sector) as usize;
                    let range = start..start + self.sector as usize;
                    found[range.clone()].copy_from_slice(&padded[range]);
                }
            }
            if whole.contains(&at) {
                size = size_after(&self.acts[at].act, size);
            } else if is_write && bound.contains(&at) {
                let end = changed.end.div_ceil(self.sector);
                let ends = (0..end).filter(|&end| there(at, Part::Length(end)));
                size = ends.map(|end| end * self.sector).max().unwrap_or(0).max(size);
            }
        }
        found.truncate(size as usize);
        (size, found)
    }
}

/// Does it to the whole content; which bytes it may have changed. None: none of its.
fn apply(act: &Act, full: &mut Vec<u8>) -> Option<Range<u64>> {
    let before = full.len() as u64;
    Some(match *act {
        Act::Write { offset, length, fill, .. } => {
            full.resize(full.len().max((offset + length) as usize), 0);
            full[offset as usize..(offset + length) as usize].fill(fill);
            offset..offset + length
        }
        Act::Truncate { size, .. } => {
            full.resize(size as usize, 0);
            size..before.max(size)
        }
        Act::Grow { size, .. } => {
            full.resize(full.len().max(size as usize), 0);
            0..0
        }
        Act::Punch { offset, length, .. } => {
            let end = (offset + length).min(before) as usize;
            full[(offset as usize).min(end)..end].fill(0);
            offset..offset + length
        }
        _ => return None,
    })
}

fn size_after(act: &Act, size: u64) -> u64 {
    match *act {
        Act::Truncate { size, .. } => size,
        Act::Write { offset, length, .. } => size.max(offset + length),
        Act::Grow { size: to, .. } => size.max(to),
        _ => size,
    }
}
