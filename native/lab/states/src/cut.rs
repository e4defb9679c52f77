//! One point at which the crash could have come, and the states that it could have left.

use std::io;

use crate::choice::{Candidate, Choice, Presence, Reach, Tear};
use crate::content::Source;
use crate::fault::Fault;
use crate::image::{size_hash, size_of, Image, Key, Parts, Value, Version};
use crate::order::comes_after;
use crate::profile::Ordered;
use crate::state::State;
use crate::trace::Change;

/// A part of the directory that can be one of several things.
pub struct Piece {
    pub key: Key,
    pub end: u64,
    pub versions: Vec<Version>,
    makers: Vec<u32>,
}

/// A point in the log. Between two cuts the image is free.
pub struct Cut<'i, 's> {
    pub image: &'i Image<'s>,
    /// The last record that had ended.
    pub sequence: u64,
    /// When, on the log's clock.
    pub moment_ns: u64,
    pub pieces: Vec<Piece>,
    /// Changes that may be missing, oldest first.
    pub candidates: Vec<Candidate>,
    /// For each, those of the candidates that must be there if it is, or if its size is.
    after: Vec<Vec<u32>>,
    /// What a file system promises beyond POSIX.
    ordered: Option<Ordered>,
}

/// What a state has of one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    Version(usize),
    /// A file that ends within a write.
    Size(u64),
    /// A torn run: a version for each sector.
    Sectors(Box<[usize]>),
}

/// In place of a version: what another file left there.
const OLD: usize = usize::MAX;

/// Goes to a cut; forgets the image's changes that later, durable ones have covered wholly.
/// `image.retract` the second part when done.
#[expect(clippy::expect_used, reason = "what made a version is not durable, hence a candidate")]
pub fn collect<'i, 's>(image: &'i Image<'s>, under_way: &[u64]) -> Cut<'i, 's> {
    let trace = &image.store.trace;
    let mut keys = Vec::new();
    let mut candidates = Vec::new();
    for &sequence in &image.pending {
        let own = image.keys(sequence);
        if let Some(one) = candidate(image, sequence, &own, under_way) {
            keys.extend(own);
            candidates.push(one);
        }
    }
    keys.sort_unstable();
    keys.dedup();
    let at = |sequence| candidates.binary_search_by_key(&sequence, |one| one.sequence);
    let piece = |key: Key| {
        let cell = &image.cells[&key];
        let makers = cell.versions[1..]
            .iter()
            .map(|version| at(version.sequence).expect("who made a version is not durable") as u32);
        Piece { end: cell.end, versions: cell.versions.clone(), makers: makers.collect(), key }
    };
    let pieces = keys.into_iter().map(piece).collect();
    let earlier = |candidate: &Candidate| {
        let is_known = |sequence| sequence <= image.at || under_way.contains(&sequence);
        let earlier = comes_after(trace, candidate.sequence, is_known);
        let found = earlier.into_iter().filter_map(|sequence| at(sequence).ok());
        found.filter(|&at| !candidates[at].edges_only).map(|at| at as u32).collect()
    };
    let after = candidates.iter().map(earlier).collect();
    let moment_ns = match image.at {
        0 => trace.header.monotonic_ns,
        sequence => trace.event(sequence).end_ns,
    };
    let is_logged = |sequence| image.durability.is_logged(image.at, sequence);
    let ordered = image
        .journal()
        .map(|journal| Ordered::new(trace, journal, &candidates, image.at, is_logged));
    Cut { image, sequence: image.at, moment_ns, pieces, candidates, after, ordered }
}

/// None where nobody can see whether it is there.
fn candidate(
    image: &Image<'_>,
    sequence: u64,
    own: &[Key],
    under_way: &[u64],
) -> Option<Candidate> {
    let change = image.store.trace.change(sequence)?;
    let is_write = matches!(change, Change::Write { .. });
    let has_data = is_write || own.iter().any(|key| matches!(key, Key::Data(..)));
    let parts = has_data.then(|| image.parts(change));
    let count = |of: fn(&Parts) -> u64| parts.as_ref().map_or(0, of);
    let sectors = count(Parts::count);
    let has_edges = sectors > 0 && !is_write;
    let edges_only = has_edges && image.durability.is_halved(image.at, sequence);
    let is_hidden = own.is_empty() || edges_only && !image.shows_edges(sequence, own);
    (!is_hidden).then(|| Candidate {
        sequence,
        sectors,
        clusters: count(Parts::cluster_count),
        sized: own.first().is_some_and(|key| matches!(key, Key::Size(_))),
        has_edges,
        edges_only,
        under_way: under_way.contains(&sequence),
    })
}

impl<'i, 's> Cut<'i, 's> {
    pub fn state(&self, choice: &Choice) -> io::Result<State<'_, 'i, 's>> {
        self.state_of(self.presences(choice))
    }

    /// What becomes of each candidate: a name is missing when one that it comes after is, a size
    /// when the truncation before it is, and so on by what the file system promises.
    pub fn presences(&self, choice: &Choice) -> Vec<Presence> {
        self.without_orphans(choice.presences(self.sequence, &self.candidates))
    }

    pub fn without_orphans(&self, mut presences: Vec<Presence>) -> Vec<Presence> {
        for (index, after) in self.after.iter().enumerate() {
            let own = &self.candidates[index];
            if after.iter().any(|&earlier| presences[earlier as usize].reach() == Reach::Before) {
                presences[index] = presences[index].without_size(own.sectors);
            }
            if let Some(ordered) = &self.ordered {
                presences[index] = ordered.restrict(&presences, index, own);
            }
        }
        if let Some(ordered) = &self.ordered {
            for write in ordered.brought(&presences) {
                self.put_size(&mut presences, write);
            }
            ordered.long().iter().for_each(|&at| self.put_size(&mut presences, at as usize));
            ordered.settle(&mut presences);
        }
        presences
    }

    /// What became of a candidate.
    pub fn word(&self, candidate: &Candidate, presence: &Presence) -> &'static str {
        self.image.durability.word(self.sequence, candidate.sequence, presence)
    }

    fn put_size(&self, presences: &mut [Presence], at: usize) {
        presences[at] = presences[at].with_size(self.candidates[at].sectors);
    }

    /// Makes a candidate present, and what must be there for that.
    pub fn put_back(&self, presences: &mut [Presence], at: usize) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if presences[at] != Presence::Present {
                presences[at] = Presence::Present;
                open.extend(self.after[at].iter().map(|&earlier| earlier as usize));
                open.extend(self.ordered.iter().flat_map(|ordered| ordered.needs(at)));
            }
        }
    }

    /// The choice that is these presences.
    pub fn choice_of(&self, presences: &[Presence]) -> Choice {
        let absent = self.candidates.iter().zip(presences).filter_map(|(one, presence)| {
            Some((
                one.sequence,
                match presence {
                    Presence::Present => return None,
                    Presence::Missing => None,
                    Presence::Torn(sectors) => Some(sectors.clone()),
                },
            ))
        });
        let absent: std::collections::BTreeMap<_, _> = absent.collect();
        if absent.is_empty() {
            Choice::Everything
        } else {
            Choice::Without(absent)
        }
    }

    pub fn state_of(&self, presences: Vec<Presence>) -> io::Result<State<'_, 'i, 's>> {
        let mut hash = self.image.settled_hash;
        let mut picks = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let pick = self.pick(piece, &presences);
            let own = self.pick_hash(piece, &pick)?;
            hash = hash.wrapping_add(own).wrapping_sub(piece.versions[0].hash);
            picks.push(pick);
        }
        Ok(State { cut: self, picks, hash })
    }

    /// The last version whose maker is there; for torn makers, sector by sector.
    fn pick(&self, piece: &Piece, presences: &[Presence]) -> Pick {
        let presence = |version: usize| &presences[piece.makers[version - 1] as usize];
        if let Key::Size(_) = piece.key {
            let reach = |version: usize| presence(version).reach();
            let (at, size) = size_of(&self.image.store.trace, &piece.versions, reach);
            let whole = piece.versions[at].size() == size;
            return if whole { Pick::Version(at) } else { Pick::Size(size) };
        }
        let top = (1..piece.versions.len()).rev().find(|&at| *presence(at) != Presence::Missing);
        let Some(top) = top else { return Pick::Version(0) };
        let (Presence::Torn(_), Key::Data(_, start)) = (presence(top), &piece.key) else {
            return Pick::Version(top);
        };
        let one = |number: u64| {
            let there = |&at: &usize| match presence(at) {
                Presence::Present => true,
                Presence::Missing => false,
                Presence::Torn(tear) => self.is_torn_there(piece.makers[at - 1], tear, number),
            };
            let got = || presence(top).reach() == Reach::Whole && !self.is_discard(piece, top);
            let below = || if got() && self.holds_old(piece, number) { OLD } else { 0 };
            (1..=top).rev().find(there).unwrap_or_else(below)
        };
        // What is torn by nothing smaller is all as its first sector.
        let ends = if self.is_by_sector(piece) { piece.end } else { *start + 1 };
        let sectors: Box<[usize]> = (*start..ends).map(one).collect();
        match sectors.iter().all(|at| *at == sectors[0] && *at != OLD) {
            true => Pick::Version(sectors[0]),
            false => Pick::Sectors(sectors),
        }
    }

    fn is_torn_there(&self, maker: u32, tear: &Tear, number: u64) -> bool {
        let trace = &self.image.store.trace;
        let change = trace.change(self.candidates[maker as usize].sequence);
        match change.and_then(|change| self.image.torn_index(change, number)) {
            Some(at) => tear.sectors.get(at).copied().unwrap_or(false),
            None => tear.reach == Reach::Whole,
        }
    }

    /// Whether its sectors can be torn from each other.
    fn is_by_sector(&self, piece: &Piece) -> bool {
        let trace = &self.image.store.trace;
        piece.makers.iter().any(|&maker| {
            let change = trace.change(self.candidates[maker as usize].sequence);
            change.is_some_and(|one| self.image.is_by_sector(one, piece.first_sector()))
        })
    }

    /// Whether a version is of a range of zeros that gives the file no new block.
    fn is_discard(&self, piece: &Piece, version: usize) -> bool {
        let maker = &self.candidates[piece.makers[version - 1] as usize];
        maker.has_edges && !maker.sized
    }

    /// Whether a block that the file got holds what was there before, until it is written.
    fn holds_old(&self, piece: &Piece, number: u64) -> bool {
        let (store, Key::Data(file, _)) = (self.image.store, &piece.key) else { return false };
        let sector = store.trace.sector;
        let new =
            || store.base.data(*file, number * sector, (number + 1) * sector).next().is_none();
        self.image.fault() == Fault::OldContent && matches!(piece.source(0), Source::Base) && new()
    }

    #[expect(
        clippy::expect_used,
        reason = "the candidates of a cut are changes, by how they are found"
    )]
    pub fn first_sector(&self, sequence: u64, file: u64) -> u64 {
        let trace = &self.image.store.trace;
        debug_assert_eq!(trace.event(sequence).file, file);
        let change = trace.change(sequence).expect("candidates are changes");
        self.image.sectors(change).map_or(0, |(start, _)| start)
    }

    fn pick_hash(&self, piece: &Piece, pick: &Pick) -> io::Result<u64> {
        let (sectors, start, file) = match (pick, &piece.key) {
            (Pick::Version(at), _) => return Ok(piece.versions[*at].hash),
            (Pick::Size(size), Key::Size(file)) => {
                return Ok(size_hash(*file, *size, self.image.store.base.size(*file)));
            }
            (Pick::Sectors(sectors), Key::Data(file, start)) => (sectors, *start, *file),
            _ => unreachable!("only data is torn"),
        };
        let store = self.image.store;
        let mut sum = 0u64;
        for (&at, number) in sectors.iter().zip(start..) {
            let source = piece.source(at).after((number - start) * store.trace.sector);
            sum = sum.wrapping_add(store.hash(file, (number, number + 1), &source)?);
        }
        Ok(sum)
    }

    /// The candidate that is this record.
    pub fn candidate(&self, sequence: u64) -> Option<&Candidate> {
        let at = self.candidates.binary_search_by_key(&sequence, |one| one.sequence);
        at.ok().map(|at| &self.candidates[at])
    }

    /// Whether a sector of a candidate is there or not by itself, or others go with it.
    pub fn leads(&self, candidate: usize, sector: u64) -> bool {
        self.ordered.as_ref().is_none_or(|ordered| ordered.leads(candidate, sector))
    }

    /// Whether a write lengthens its file only after those before it.
    pub fn lengthens_in_order(&self) -> bool {
        self.ordered.as_ref().is_some_and(Ordered::lengthens_in_order)
    }

    /// Of the candidates, those that must be there if this one is.
    pub fn after(&self, candidate: usize) -> &[u32] {
        &self.after[candidate]
    }

    pub fn find_piece(&self, key: &Key) -> Option<usize> {
        self.pieces.binary_search_by(|piece| piece.key.cmp(key)).ok()
    }
}

impl Piece {
    /// For each version but the first: which of the cut's changes made it.
    pub fn makers(&self) -> &[u32] {
        &self.makers
    }

    /// Of data.
    pub fn first_sector(&self) -> u64 {
        match self.key {
            Key::Data(_, start) => start,
            _ => 0,
        }
    }

    pub fn source(&self, at: usize) -> &Source {
        if at == OLD {
            return &Source::Old;
        }
        match &self.versions[at].value {
            Value::Data(source) => source,
            _ => unreachable!("a run of sectors has sources"),
        }
    }
}
