//! What a power cut leaves of writes where data is copied, and named in its new place once it is
//! there (btrfs, which makes its file as long as it is in memory as soon as a part of it is; there
//! it grows block by block, while the write is under way).

use std::collections::HashSet;
use std::sync::Arc;

use crate::choice::{Candidate, Presence, Reach, Tear};
use crate::image::BLOCK;
use crate::trace::{Change, Trace};

/// The changes of data among those of one cut that may be missing.
pub struct Copied {
    /// By candidate; None for what has no data.
    places: Vec<Option<Place>>,
    /// In a block.
    sectors: u64,
}

struct Place {
    file: u64,
    /// Its first sector.
    start: u64,
    /// Of a truncation or a range of zeros: how many sectors of its first block are its edge.
    front: Option<u64>,
}

impl Copied {
    pub fn new(trace: &Trace, candidates: &[Candidate]) -> Copied {
        let place = |one: &Candidate| {
            let (offset, edge) = match *trace.change(one.sequence)? {
                Change::Write { offset, .. } => (offset, None),
                Change::Truncate { size } => (size, Some(u64::MAX)),
                Change::Zero { offset, length, .. } => (offset, Some(offset + length)),
                _ => return None,
            };
            let start = offset / trace.sector;
            let end = |to: u64| offset.next_multiple_of(BLOCK).min(to).div_ceil(trace.sector);
            let front = edge.map(|to| end(to) - start);
            Some(Place { file: trace.event(one.sequence).file, start, front })
        };
        let sectors = (BLOCK / trace.sector).max(1);
        Copied { places: candidates.iter().map(place).collect(), sectors }
    }

    /// Of a write each block is there or not, up to one of its blocks or all, and the file is as
    /// long, and where that cannot be nothing is there. The edges of truncations and zeros are data
    /// of their own, and come with the rest or later.
    pub fn tear(&self, tear: &Tear, at: usize, candidate: &Candidate) -> Presence {
        let Some(Place { start, front, .. }) = &self.places[at] else { return Presence::Missing };
        let first = |index: u64| match *front {
            Some(edge) if index < edge => 0,
            Some(edge) => edge,
            None => ((start + index) / self.sectors * self.sectors).max(*start) - start,
        };
        let end = match tear.reach {
            Reach::Until(count) => (start + count).next_multiple_of(self.sectors) - start,
            _ => candidate.sectors,
        };
        let reach = match tear.reach {
            Reach::Until(_) if end < candidate.sectors => Reach::Until(end),
            _ => Reach::Whole,
        };
        let is_there = |index| {
            index < end && tear.sectors.get(first(index) as usize).copied().unwrap_or(false)
        };
        let sectors: Arc<[bool]> = (0..candidate.sectors).map(is_there).collect();
        let (some, all) = (sectors.contains(&true), !sectors.contains(&false));
        let is_there = match (front, tear.reach) {
            (_, Reach::Before) => false,
            (Some(_), reach) => reach == Reach::Whole,
            (None, _) => some || candidate.sized,
        };
        match is_there {
            false => Presence::Missing,
            true if all => Presence::Present,
            true => Presence::Torn(Tear { sectors, reach }),
        }
    }

    /// Whether others go with this sector of a file, and it with none of them.
    pub fn leads(&self, at: usize, sector: u64) -> bool {
        let place = self.places[at].as_ref();
        place.is_none_or(|place| sector == place.start || sector % self.sectors == 0)
    }

    /// Writes that end within themselves although a later one of the file is there: that has made
    /// it as long as it is in memory.
    pub fn overtaken(&self, presences: &[Presence]) -> Vec<usize> {
        let mut later = HashSet::new();
        let mut found = Vec::new();
        for (at, file) in self.writes().rev() {
            if matches!(presences[at].reach(), Reach::Until(_)) && later.contains(&file) {
                found.push(at);
            }
            if has_data(&presences[at]) {
                later.insert(file);
            }
        }
        found
    }

    /// Writes of which the length alone would be there, and nothing else of the file to bring it.
    pub fn unfounded(&self, presences: &[Presence]) -> Vec<usize> {
        let has_length_alone =
            |at: usize| matches!(presences[at], Presence::Torn(_)) && !has_data(&presences[at]);
        let founded = self.writes().filter(|(at, _)| has_data(&presences[*at]));
        let founded: HashSet<u64> = founded.map(|(_, file)| file).collect();
        let unfounded =
            self.writes().filter(|(at, file)| has_length_alone(*at) && !founded.contains(file));
        unfounded.map(|(at, _)| at).collect()
    }

    /// Those among the candidates, and their files.
    fn writes(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        let all = self.places.iter().enumerate();
        all.filter_map(|(at, one)| {
            one.as_ref().filter(|one| one.front.is_none()).map(|one| (at, one.file))
        })
    }
}

fn has_data(presence: &Presence) -> bool {
    match presence {
        Presence::Present => true,
        Presence::Missing => false,
        Presence::Torn(tear) => tear.sectors.contains(&true),
    }
}
