//! Every state of a cut, where they are few enough to be built one by one.
//!
//! What can be chosen falls into parts that do not depend on each other: the names, the attributes
//! of each file, the content and size of each file.

use std::collections::BTreeMap;

use crate::choice::{Choice, Presence, Reach, Tear};
use crate::cut::{Cut, Piece};
use crate::explore::{Exploration, Worker};
use crate::failure::Result;
use crate::fault::Fault;
use crate::image::{size_of, Key};
use crate::plan::Pass;
use crate::trace::Change;

/// What becomes of some candidates, by their index.
type Alternative = Vec<(usize, Presence)>;

/// Writes that make a file longer, and how far.
type Lengths = Vec<(usize, Reach)>;

fn reach_in(lengths: &Lengths, at: usize) -> Reach {
    lengths.iter().find(|(one, _)| *one == at).map_or(Reach::Before, |(_, reach)| *reach)
}

/// Changes of one kind of which all subsets are tried, at most.
const MOST_WHOLE: usize = 14;

/// All choices that make different states of the cut; None when there are more than `most`.
pub fn all(cut: &Cut<'_, '_>, most: usize) -> Option<Vec<Choice>> {
    let parts = parts(cut, most)?;
    let count = product(parts.iter().map(Vec::len), most)?;
    let choice = |mut number: usize| {
        let mut missing = BTreeMap::new();
        for part in &parts {
            for (at, presence) in &part[number % part.len()] {
                let tear = match presence {
                    Presence::Present => continue,
                    Presence::Missing => None,
                    Presence::Torn(tear) => Some(tear.clone()),
                };
                missing.insert(cut.candidates[*at].sequence, tear);
            }
            number /= part.len();
        }
        if missing.is_empty() {
            Choice::Everything
        } else {
            Choice::Without(missing)
        }
    };
    Some((0..count).map(choice).collect())
}

/// How many there are; None when there are more than `most`.
fn count(cut: &Cut<'_, '_>, most: usize) -> Option<usize> {
    product(parts(cut, most)?.iter().map(Vec::len), most)
}

/// Whether all combinations of all cuts are no more than what is left of the budget.
///
/// Old content in place of zeros is one choice more, and not counted.
pub fn fit(exploration: &Exploration<'_>, worker: &mut Worker<'_, '_>) -> Result<bool> {
    if exploration.fault() == Fault::OldContent {
        return Ok(false);
    }
    let mut left = exploration.budget_left() as usize;
    for &cut in exploration.cuts.of(Pass::All) {
        match worker.at(cut, |cut, _| Ok(count(cut, left)))? {
            Some(count) if !exploration.is_over() => left -= count,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn product(counts: impl Iterator<Item = usize>, most: usize) -> Option<usize> {
    let mut product = 1usize;
    for count in counts {
        product = product.checked_mul(count).filter(|product| *product <= most)?;
    }
    Some(product)
}

fn parts(cut: &Cut<'_, '_>, most: usize) -> Option<Vec<Vec<Alternative>>> {
    let mut names = Vec::new();
    let mut files: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let trace = &cut.image.store.trace;
    for (at, candidate) in cut.candidates.iter().enumerate() {
        match trace.change(candidate.sequence) {
            Some(Change::Names { .. }) => names.push(at),
            Some(Change::Attributes(_)) | None => {}
            Some(_) => files.entry(trace.event(candidate.sequence).file).or_default().push(at),
        }
    }
    let mut parts = vec![subsets_of_names(cut, &names)?];
    for piece in &cut.pieces {
        if let Key::Attributes(_) = piece.key {
            parts.push(ends_of(piece));
        }
    }
    for (file, candidates) in files {
        parts.push(Content::new(cut, file, candidates).alternatives(most)?);
    }
    Some(parts)
}

fn presence(there: bool) -> Presence {
    if there {
        Presence::Present
    } else {
        Presence::Missing
    }
}

/// Names are there only with what they came after.
fn subsets_of_names(cut: &Cut<'_, '_>, names: &[usize]) -> Option<Vec<Alternative>> {
    let closed = |mask: &u32| {
        let there =
            |at: usize| names.iter().position(|&name| name == at).map(|bit| mask >> bit & 1);
        names.iter().enumerate().all(|(bit, &at)| {
            mask >> bit & 1 == 0 || cut.after(at).iter().all(|&one| there(one as usize) == Some(1))
        })
    };
    let alternative = |mask: u32| {
        let names = names.iter().enumerate();
        names.map(|(bit, &at)| (at, presence(mask >> bit & 1 == 1))).collect()
    };
    (names.len() <= MOST_WHOLE)
        .then(|| (0..1u32 << names.len()).filter(closed).map(alternative).collect())
}

/// Attributes are as one of the changes left them.
fn ends_of(piece: &Piece) -> Vec<Alternative> {
    let makers = piece.makers();
    let until = |end: usize| {
        let makers = makers.iter().enumerate();
        makers.map(|(at, &maker)| (maker as usize, presence(at < end))).collect()
    };
    (0..=makers.len()).map(until).collect()
}

/// What one file can hold, and how long it can be.
struct Content<'c, 'i, 's> {
    cut: &'c Cut<'i, 's>,
    file: u64,
    writes: Vec<usize>,
    /// Changes that are no writes.
    others: Vec<usize>,
    /// What is there of them or not, and never torn.
    whole: Vec<Whole>,
}

/// A change that is no write, but for its edges and its clusters; or one cluster of a discard.
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    Rest(usize),
    Cluster(usize, usize),
}

/// Which of those are there.
struct There<'c> {
    whole: &'c [Whole],
    mask: u32,
}

impl There<'_> {
    fn has(&self, one: Whole) -> bool {
        let bit = self.whole.iter().position(|&other| other == one);
        bit.is_some_and(|bit| self.mask >> bit & 1 == 1)
    }

    fn rest(&self, at: usize) -> bool {
        self.has(Whole::Rest(at))
    }
}

/// A sector, and the versions that it can be.
struct Slot<'c> {
    piece: &'c Piece,
    sector: u64,
    versions: Vec<usize>,
}

impl<'c, 'i, 's> Content<'c, 'i, 's> {
    fn new(cut: &'c Cut<'i, 's>, file: u64, candidates: Vec<usize>) -> Content<'c, 'i, 's> {
        let is_write = |at: &usize| {
            let sequence = cut.candidates[*at].sequence;
            matches!(cut.image.store.trace.change(sequence), Some(Change::Write { .. }))
        };
        let (writes, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_write);
        let parts = |&at: &usize| {
            let one = &cut.candidates[at];
            // Of a discard that makes no file longer its clusters are all.
            let rest = (one.clusters == 0 || one.sized).then_some(Whole::Rest(at));
            let clusters = one.sectors - one.clusters..one.sectors;
            rest.into_iter().chain(clusters.map(move |part| Whole::Cluster(at, part as usize)))
        };
        let whole = others.iter().flat_map(parts).take(MOST_WHOLE + 1).collect();
        Content { cut, file, writes, others, whole }
    }

    fn alternatives(&self, most: usize) -> Option<Vec<Alternative>> {
        if self.whole.len() > MOST_WHOLE {
            return None;
        }
        let mut found = Vec::new();
        let sector = self.cut.image.store.trace.sector;
        for mask in 0..1u32 << self.whole.len() {
            let there = There { whole: &self.whole, mask };
            if self.others.iter().any(|&at| there.rest(at) && !self.may_be(at, &there)) {
                continue;
            }
            let slots = self.slots(&there);
            for (size, sized) in self.sizes(&there) {
                let seen = |slot: &&Slot<'_>| slot.sector * sector < size;
                let slots: Vec<&Slot<'_>> = slots.iter().filter(seen).collect();
                let left = most.checked_sub(found.len())?;
                let count = product(slots.iter().map(|slot| slot.versions.len()), left)?;
                for number in 0..count {
                    found.push(self.alternative(&slots, number, &sized, &there));
                }
            }
        }
        Some(found)
    }

    /// A size is there only with the truncation before it.
    fn may_be(&self, at: usize, there: &There<'_>) -> bool {
        self.cut.after(at).iter().all(|&one| there.rest(one as usize))
    }

    /// Sectors that can be more than one thing when just these whole changes are there.
    fn slots(&self, there: &There<'_>) -> Vec<Slot<'c>> {
        let mut slots = Vec::new();
        for piece in &self.cut.pieces {
            if !matches!(piece.key, Key::Data(file, _) if file == self.file) {
                continue;
            }
            let makers = piece.makers().iter().map(|&maker| maker as usize);
            let makers: Vec<(usize, usize)> = (1..).zip(makers).collect();
            let first = piece.first_sector();
            let alone =
                |maker: usize| self.writes.contains(&maker) || self.edge(maker, first).is_some();
            let whole = |maker: usize| match self.part(maker, first) {
                Some(part) => there.has(Whole::Cluster(maker, part)),
                None => there.rest(maker),
            };
            let is_top = |(_, maker): &&(usize, usize)| !alone(*maker) && whole(*maker);
            let top = makers.iter().rev().find(is_top).map_or(0, |one| one.0);
            let free: Vec<&(usize, usize)> =
                makers.iter().filter(|(at, maker)| *at > top && alone(*maker)).collect();
            let versions: Vec<usize> =
                [top].into_iter().chain(free.iter().map(|one| one.0)).collect();
            let leads = |sector: &u64| free.iter().any(|one| self.cut.leads(one.1, *sector));
            for sector in (first..piece.end).filter(leads) {
                slots.push(Slot { piece, sector, versions: versions.clone() });
            }
        }
        slots
    }

    /// Which of its parts a sector is of; None for a write, and where it goes with the size.
    fn part(&self, at: usize, sector: u64) -> Option<usize> {
        let candidate = &self.cut.candidates[at];
        let change = self.cut.image.store.trace.change(candidate.sequence)?;
        let found = || self.cut.image.torn_index(change, sector);
        candidate.has_edges.then(found).flatten()
    }

    /// Which of its edges' sectors this is.
    fn edge(&self, at: usize, sector: u64) -> Option<usize> {
        let candidate = &self.cut.candidates[at];
        let edges = (candidate.sectors - candidate.clusters) as usize;
        self.part(at, sector).filter(|&part| part < edges)
    }

    /// Each size that the file can have, with the writes that make it so, and how long.
    fn sizes(&self, there: &There<'_>) -> Vec<(u64, Lengths)> {
        let key = Key::Size(self.file);
        let Some(piece) = self.cut.pieces.iter().find(|piece| piece.key == key) else {
            return vec![(self.cut.image.size(self.file), Vec::new())];
        };
        let makers = piece.makers();
        let size = |writes: &Lengths| {
            let reach = |at: usize| match makers[at - 1] as usize {
                maker if there.rest(maker) => Reach::Whole,
                maker => reach_in(writes, maker),
            };
            size_of(&self.cut.image.store.trace, &piece.versions, reach).1
        };
        let grows = |at: &&usize| makers.contains(&(**at as u32)) && self.may_be(**at, there);
        let growing = || self.writes.iter().filter(grows);
        let in_order = self.cut.lengthens_in_order();
        let with = |at: usize, reach: Reach| {
            let before = growing().filter(|one| in_order && **one < at);
            before.map(|&one| (one, Reach::Whole)).chain([(at, reach)]).collect::<Lengths>()
        };
        // In order it is not all the same which write makes the file so long.
        let key = |one: &Lengths| (size(one), one.last().filter(|_| in_order).map(|last| last.0));
        let mut sizes: BTreeMap<(u64, Option<usize>), Lengths> = BTreeMap::new();
        let whole = growing().map(|&at| with(at, Reach::Whole));
        for one in [Vec::new()].into_iter().chain(whole) {
            sizes.entry(key(&one)).or_insert(one);
        }
        for &at in growing() {
            let candidate = &self.cut.candidates[at];
            let first = self.cut.first_sector(candidate.sequence, self.file);
            let ends = 1..candidate.sectors;
            for end in ends.filter(|end| self.cut.leads(at, first + end)) {
                let one = with(at, Reach::Until(end));
                sizes.entry(key(&one)).or_insert(one);
            }
        }
        // As many as may be, so that a write is seldom called torn.
        let fill = |((wanted, _), mut writes): ((u64, Option<usize>), Lengths)| {
            for &at in growing() {
                let known = writes.iter().any(|(one, _)| *one == at);
                writes.extend((!known).then_some((at, Reach::Whole)));
                if !known && size(&writes) != wanted {
                    writes.pop();
                }
            }
            (wanted, writes)
        };
        sizes.into_iter().map(fill).collect()
    }

    /// One version for each slot, told as what is there of each change.
    fn alternative(
        &self,
        slots: &[&Slot<'_>],
        mut number: usize,
        sized: &Lengths,
        there: &There<'_>,
    ) -> Alternative {
        let mut chosen = Vec::new();
        for slot in slots {
            chosen.push(slot.versions[number % slot.versions.len()]);
            number /= slot.versions.len();
        }
        let one = |&at: &usize| {
            let candidate = &self.cut.candidates[at];
            let first = self.cut.first_sector(candidate.sequence, self.file);
            let mut sectors = vec![true; candidate.sectors as usize];
            for (slot, &version) in slots.iter().zip(&chosen) {
                let made = slot.piece.makers().iter().position(|&maker| maker as usize == at);
                if made.is_some_and(|made| version < made + 1) {
                    sectors[(slot.sector - first) as usize] = false;
                }
            }
            let reach = if candidate.sized { reach_in(sized, at) } else { Reach::Whole };
            let whole = sectors.iter().all(|&there| there);
            let none = !sectors.contains(&true) && (reach == Reach::Before || !candidate.sized);
            let presence = match (whole && reach == Reach::Whole, none) {
                (true, _) => Presence::Present,
                (_, true) => Presence::Missing,
                _ => Presence::Torn(Tear { sectors: sectors.into(), reach }),
            };
            (at, presence)
        };
        let writes = self.writes.iter().map(one);
        let other = |&at: &usize| (at, self.edged(at, there, slots, &chosen));
        writes.chain(self.others.iter().map(other)).collect()
    }

    /// What is there of a change that is no write: its rest or not, each sector of its edges, each
    /// cluster.
    fn edged(
        &self,
        at: usize,
        there: &There<'_>,
        slots: &[&Slot<'_>],
        chosen: &[usize],
    ) -> Presence {
        let (candidate, rest) = (&self.cut.candidates[at], there.rest(at));
        let edges = candidate.sectors - candidate.clusters;
        let mut sectors = vec![rest; edges as usize];
        let clusters = edges as usize..candidate.sectors as usize;
        sectors.extend(clusters.map(|part| there.has(Whole::Cluster(at, part))));
        for (slot, &version) in slots.iter().zip(chosen) {
            let made = slot.piece.makers().iter().position(|&maker| maker as usize == at);
            let (Some(made), Some(edge)) = (made, self.edge(at, slot.sector)) else { continue };
            sectors[edge] = if rest { version > made } else { version == made + 1 };
        }
        match (rest, sectors.iter().all(|&one| one == rest)) {
            (_, true) => presence(rest),
            (true, false) => Presence::Torn(Tear { sectors: sectors.into(), reach: Reach::Whole }),
            (false, false) => {
                Presence::Torn(Tear { sectors: sectors.into(), reach: Reach::Before })
            }
        }
    }
}
