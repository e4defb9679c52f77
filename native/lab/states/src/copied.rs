//! What a power cut leaves of writes where data is copied, and named in its new place once it is
//! there (btrfs, which makes its file as long as it is in memory as soon as a part of it is; there
//! it grows block by block, while the write is under way).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::choice::{Candidate, Presence, Reach, Tear};
use crate::image::BLOCK;
use crate::trace::{Change, Trace};

/// The changes of data among those of one cut that may be missing.
pub struct Copied {
    /// By candidate; None for what has no data.
    places: Vec<Option<Place>>,
    waits: Vec<Wait>,
    /// Writes that something waits for.
    waited: HashSet<usize>,
    /// In a block.
    sectors: u64,
}

struct Place {
    file: u64,
    /// Its first sector.
    start: u64,
    /// Of a truncation or a range of zeros: how many sectors of its first block are its edge.
    front: Option<u64>,
    /// Edges are written before the range is dropped, so they can be there without it.
    zeroes: bool,
    /// It can make the file longer.
    sized: bool,
    /// Of its sectors.
    count: u64,
}

/// A truncation or a range of zeros waits for what was written where it begins or to its range.
struct Wait {
    by: usize,
    write: usize,
    /// Of the write.
    sectors: Range<u64>,
    /// What lies behind is dropped from memory.
    dropped: bool,
}

impl Copied {
    pub fn new(trace: &Trace, candidates: &[Candidate]) -> Copied {
        let place = |one: &Candidate| {
            let change = trace.change(one.sequence)?;
            let (offset, edge) = match *change {
                Change::Write { offset, .. } => (offset, None),
                Change::Truncate { size } => (size, Some(u64::MAX)),
                Change::Zero { offset, length, .. } => (offset, Some(offset + length)),
                _ => return None,
            };
            let start = offset / trace.sector;
            let end = |to: u64| offset.next_multiple_of(BLOCK).min(to).div_ceil(trace.sector);
            let front = edge.map(|to| end(to) - start);
            let (file, sized) = (trace.event(one.sequence).file, one.sized);
            let zeroes = matches!(change, Change::Zero { .. });
            Some(Place { file, start, front, zeroes, sized, count: one.sectors })
        };
        let places: Vec<_> = candidates.iter().map(place).collect();
        let waits = find_waits(trace, candidates, &places);
        let waited = waits.iter().map(|wait| wait.write).collect();
        Copied { places, waits, waited, sectors: (BLOCK / trace.sector).max(1) }
    }

    /// Of a write each block is there or not, up to one of its blocks or all, and the file is as
    /// long, and where that cannot be nothing is there. The edges of truncations and zeros are data
    /// of their own; those of truncations come with the rest or later.
    pub fn tear(&self, tear: &Tear, at: usize, candidate: &Candidate) -> Presence {
        let Some(Place { start, front, zeroes, .. }) = &self.places[at] else {
            return Presence::Missing;
        };
        let first = |index: u64| match *front {
            Some(edge) if index < edge => 0,
            Some(edge) => edge,
            None => ((start + index) / self.sectors * self.sectors).max(*start) - start,
        };
        let end = match tear.reach {
            Reach::Until(count) => {
                (start + count.min(candidate.sectors)).next_multiple_of(self.sectors) - start
            }
            _ => candidate.sectors,
        };
        let reach = match tear.reach {
            Reach::Until(_) if end < candidate.sectors => Reach::Until(end),
            Reach::Before if *zeroes => Reach::Before,
            _ => Reach::Whole,
        };
        let is_there = |index| {
            index < end && tear.sectors.get(first(index) as usize).copied().unwrap_or(false)
        };
        let sectors: Arc<[bool]> = (0..candidate.sectors).map(is_there).collect();
        let (some, all) = (sectors.contains(&true), !sectors.contains(&false));
        let is_there = match (front, tear.reach) {
            (Some(_), Reach::Before) => *zeroes && some,
            (None, Reach::Before) | (Some(_), Reach::Until(_)) => false,
            (Some(_), Reach::Whole) => true,
            (None, _) => some || candidate.sized,
        };
        match is_there {
            false => Presence::Missing,
            true if all && reach == Reach::Whole => Presence::Present,
            true => Presence::Torn(Tear { sectors, reach }),
        }
    }

    /// Whether others go with this sector of a file, and it with none of them.
    pub fn leads(&self, at: usize, sector: u64) -> bool {
        let place = self.places[at].as_ref();
        place.is_none_or(|place| sector == place.start || sector % self.sectors == 0)
    }

    /// What must be there, and what cannot be, as the others are.
    pub fn settle(&self, presences: &mut [Presence]) {
        for Wait { by, write, sectors, .. } in &self.waits {
            if presences[*by] != Presence::Missing && !sectors.is_empty() {
                presences[*write] = with(&presences[*write], sectors, self.count(*write));
            }
        }
        for at in self.overtaken(presences) {
            presences[at] = presences[at].with_size(self.count(at));
        }
        for at in self.unfounded(presences) {
            presences[at] = Presence::Missing;
        }
    }

    /// Writes whose length is not there although a later one of the file is: that has made it as
    /// long as it is in memory.
    fn overtaken(&self, presences: &[Presence]) -> Vec<usize> {
        let mut later = HashSet::new();
        let mut found = Vec::new();
        for (at, place) in self.writes().rev() {
            let is_short = presences[at].reach() != Reach::Whole && place.sized;
            if is_short && later.contains(&place.file) {
                found.push(at);
            }
            if has_data(&presences[at]) {
                later.insert(place.file);
            }
        }
        found
    }

    /// Writes of which the length alone would be there, and nothing else of the file to bring it.
    fn unfounded(&self, presences: &[Presence]) -> Vec<usize> {
        let is_lasting = |at: &usize| has_data(&presences[*at]) && !self.waited.contains(at);
        let founded = self.writes().filter(|(at, _)| is_lasting(at));
        let founded: HashSet<u64> = founded.map(|(_, place)| place.file).collect();
        let is_unfounded = |at: usize, file: u64| {
            let mut others = self.writes().filter(|(_, other)| other.file == file);
            !founded.contains(&file) && !others.any(|one| self.has_data_after(presences, one.0, at))
        };
        let is_torn = |at: usize| matches!(presences[at], Presence::Torn(_));
        let alone = self.writes().filter(|(at, _)| is_torn(*at) && !has_data(&presences[*at]));
        alone.filter(|(at, place)| is_unfounded(*at, place.file)).map(|(at, _)| at).collect()
    }

    /// Whether a part of a write can have arrived when another was made: nothing before that waited
    /// for it.
    fn has_data_after(&self, presences: &[Presence], write: usize, other: usize) -> bool {
        let is_done = |wait: &&Wait| {
            wait.write == write && wait.by < other && presences[wait.by] != Presence::Missing
        };
        let done: Vec<&Wait> = self.waits.iter().filter(is_done).collect();
        let is_in = |wait: &&Wait, index: u64| {
            wait.sectors.contains(&index) || wait.dropped && index >= wait.sectors.start
        };
        let is_open = |index: u64| !done.iter().any(|wait| is_in(wait, index));
        (0..self.count(write)).any(|index| is_there(&presences[write], index) && is_open(index))
    }

    fn count(&self, at: usize) -> u64 {
        self.places[at].as_ref().map_or(0, |place| place.count)
    }

    /// Those among the candidates.
    fn writes(&self) -> impl DoubleEndedIterator<Item = (usize, &Place)> + '_ {
        let all = self.places.iter().enumerate();
        all.filter_map(|(at, one)| Some((at, one.as_ref().filter(|one| one.front.is_none())?)))
    }
}

/// What each truncation and range of zeros waits for, in their order.
fn find_waits(trace: &Trace, candidates: &[Candidate], places: &[Option<Place>]) -> Vec<Wait> {
    let mut written: HashMap<u64, Vec<(usize, Range<u64>)>> = HashMap::new();
    let mut found = Vec::new();
    for (by, place) in places.iter().enumerate() {
        let Some(place) = place else { continue };
        let earlier = written.entry(place.file).or_default();
        let (waited, kept) = match trace.change(candidates[by].sequence) {
            Some(&Change::Write { offset, length, .. }) => {
                earlier.push((by, offset..offset + length));
                continue;
            }
            Some(&Change::Truncate { size }) if earlier.iter().any(|one| one.1.end > size) => {
                (size / BLOCK * BLOCK..size.next_multiple_of(BLOCK), size)
            }
            Some(&Change::Zero { offset, length, .. }) => {
                let end = (offset + length).next_multiple_of(BLOCK);
                (offset / BLOCK * BLOCK..end, u64::MAX)
            }
            _ => continue,
        };
        for (write, bytes) in earlier.iter_mut() {
            let start = bytes.start / trace.sector;
            let first = waited.start.clamp(bytes.start, bytes.end) / trace.sector - start;
            let last = waited.end.min(bytes.end).div_ceil(trace.sector).max(start) - start;
            let (sectors, dropped) = (first..last.max(first), kept < bytes.end);
            if dropped || !sectors.is_empty() {
                found.push(Wait { by, write: *write, sectors, dropped });
            }
            bytes.end = bytes.end.min(kept);
        }
        earlier.retain(|(_, bytes)| !bytes.is_empty());
    }
    found
}

/// The same with these sectors, and as long as was asked, or as far as when they were written while
/// it was under way.
fn with(presence: &Presence, sectors: &Range<u64>, count: u64) -> Presence {
    let reach = match presence.reach() {
        Reach::Until(end) if end >= sectors.end => Reach::Until(end),
        _ => Reach::Whole,
    };
    let there = |index| sectors.contains(&index) || is_there(presence, index);
    let sectors: Arc<[bool]> = (0..count).map(there).collect();
    match sectors.contains(&false) {
        true => Presence::Torn(Tear { sectors, reach }),
        false => Presence::Present,
    }
}

fn is_there(presence: &Presence, index: u64) -> bool {
    match presence {
        Presence::Present => true,
        Presence::Missing => false,
        Presence::Torn(tear) => tear.sectors.get(index as usize).copied().unwrap_or(false),
    }
}

fn has_data(presence: &Presence) -> bool {
    match presence {
        Presence::Present => true,
        Presence::Missing => false,
        Presence::Torn(tear) => tear.sectors.contains(&true),
    }
}
