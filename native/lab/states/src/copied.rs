//! What a power cut leaves of writes where data is copied, and named in its new place once it is
//! there (btrfs, which makes its file as long as it is in memory as soon as a part of it is).

use std::collections::HashSet;
use std::sync::Arc;

use crate::choice::{Candidate, Presence, Reach, Tear};
use crate::trace::{Change, Trace};

const BLOCK: u64 = 4096;

/// The writes among the changes of one cut that may be missing.
pub struct Copied {
    /// By candidate: the file, and how many sectors of the write's first block lie before it; None
    /// for what is no write.
    writes: Vec<Option<(u64, u64)>>,
    /// In a block.
    sectors: u64,
}

impl Copied {
    pub fn new(trace: &Trace, candidates: &[Candidate]) -> Copied {
        let sectors = (BLOCK / trace.sector).max(1);
        let place = |one: &Candidate| match trace.change(one.sequence) {
            Some(Change::Write { offset, .. }) => {
                Some((trace.event(one.sequence).file, offset / trace.sector % sectors))
            }
            _ => None,
        };
        Copied { writes: candidates.iter().map(place).collect(), sectors }
    }

    /// Of a write each block is there or not, and where one is the file is as long as was asked. The
    /// edges of truncations and zeros are data of their own, and come with the rest or later.
    pub fn tear(&self, tear: &Tear, at: usize, candidate: &Candidate) -> Presence {
        let Some((_, before)) = self.writes[at] else {
            return match tear.reach {
                Reach::Whole => Presence::Torn(tear.clone()),
                _ => Presence::Missing,
            };
        };
        let first = |sector: u64| ((sector + before) / self.sectors * self.sectors).max(before);
        let is_there = |sector| tear.sectors[(first(sector) - before) as usize];
        let sectors: Arc<[bool]> = (0..candidate.sectors).map(is_there).collect();
        let is_long = candidate.sized && tear.reach == Reach::Whole;
        match (sectors.contains(&true), sectors.contains(&false)) {
            (true, false) => Presence::Present,
            (false, _) if !is_long => Presence::Missing,
            _ => Presence::Torn(Tear { sectors, reach: Reach::Whole }),
        }
    }

    /// Writes of which the length alone would be there, and nothing else of the file to bring it.
    pub fn unfounded(&self, presences: &[Presence]) -> Vec<usize> {
        let has_data = |at: usize| match &presences[at] {
            Presence::Present => true,
            Presence::Missing => false,
            Presence::Torn(tear) => tear.sectors.contains(&true),
        };
        let has_length_alone =
            |at: usize| matches!(presences[at], Presence::Torn(_)) && !has_data(at);
        let files =
            || self.writes.iter().enumerate().filter_map(|(at, one)| Some((at, one.as_ref()?.0)));
        let founded: HashSet<u64> =
            files().filter(|(at, _)| has_data(*at)).map(|(_, file)| file).collect();
        let unfounded =
            files().filter(|(at, file)| has_length_alone(*at) && !founded.contains(file));
        unfounded.map(|(at, _)| at).collect()
    }
}
