//! Which states are built, and in which order: those that are likely to show a loss come first.

use crate::alone::Alone;
use crate::choice::{Candidate, Choice, Reach, Tear};
use crate::combinations;
use crate::cut::Cut;
use crate::fault::Durability;
use crate::trace::{Change, Trace, What};
use diskproof_random::Random;

/// Cuts of the first look.
const QUICK_CUTS: usize = 32;
/// Cuts that are neither at an acknowledgement nor at a flush: as many as those, at most.
const SAMPLED_CUTS: usize = 4096;
/// Changes of a cut that are left out one by one, or at which a front ends.
const SINGLE: usize = 256;
/// With so few changes all combinations are built.
const ALL_COMBINATIONS: usize = 6;
/// Random states of a cut in one round.
const RANDOM: u64 = 8;

/// Flushes that are looked at before changes are, one by one.
const EARLY_FLUSHES: usize = 64;

/// Passes that come before the random ones.
pub const BEFORE_RANDOM: u64 = 7;

/// One pass over cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The states that lose most, at a few cuts.
    Quick,
    /// Nothing that is not durable, at every acknowledgement.
    Nothing,
    /// The same where a flush ended: what a commit of a file system leaves, on its disk.
    Flushed,
    /// Each change missing by itself, where promises depend on it.
    Alone,
    /// Each write half there by itself, at the same moments: its front, its back.
    Torn,
    /// Everything, fronts, and each single change missing, at every cut.
    Single,
    /// Every combination, at every cut: when all of them together are few enough.
    All,
    /// Random states: the number of the round.
    Random(u64),
}

/// Points of the log at which the crash comes.
pub struct Cuts {
    pub acknowledgements: Vec<u64>,
    /// Some flushes.
    pub flushes: Vec<u64>,
    /// Acknowledgements, flushes, and seeded others between.
    pub all: Vec<u64>,
    /// The first cuts to look at: those of `acknowledgements`, or of all when there are none.
    pub quick: Vec<u64>,
    pub alone: Alone,
}

impl Cuts {
    pub fn new(trace: &Trace, durability: &Durability, seed: u64) -> Cuts {
        let with = |wanted: fn(&What) -> bool| -> Vec<u64> {
            let events = trace.events.iter().zip(1..);
            events.filter(|(event, _)| wanted(&event.what)).map(|(_, sequence)| sequence).collect()
        };
        let acknowledgements = with(|what| matches!(what, What::Acknowledge(_)));
        let flushes = spread(&with(What::is_flush), EARLY_FLUSHES);
        let mut all = with(|what| what.is_flush() || matches!(what, What::Acknowledge(_)));
        let changes = with(|what| matches!(what, What::Change(_)));
        let mut random = Random::new(&[seed, 0x6375_7473]);
        if !changes.is_empty() {
            let most = all.len().clamp(64, SAMPLED_CUTS);
            if changes.len() <= most {
                all.extend(&changes);
            } else {
                let some = |_| changes[random.below(changes.len() as u64) as usize];
                all.extend((0..most).map(some).collect::<Vec<u64>>());
            }
        }
        all.extend((trace.last() > 0).then_some(trace.last()));
        all.sort_unstable();
        all.dedup();
        let from = if acknowledgements.is_empty() { &all } else { &acknowledgements };
        let mut quick = spread(from, QUICK_CUTS);
        // The last one first: with nothing unsynced, no state lacks more promises than that one.
        if !quick.is_empty() {
            quick.rotate_right(1);
        }
        let alone = Alone::new(trace, durability, &acknowledgements);
        Cuts { acknowledgements, flushes, all, quick, alone }
    }

    pub fn of(&self, pass: Pass) -> &[u64] {
        match pass {
            Pass::Quick => &self.quick,
            Pass::Nothing => &self.acknowledgements,
            Pass::Flushed => &self.flushes,
            Pass::Alone | Pass::Torn => self.alone.cuts(),
            Pass::Single | Pass::All | Pass::Random(_) => &self.all,
        }
    }

    /// States of the passes that are not random, as far as the log tells without building them.
    pub fn planned(&self, trace: &Trace, durability: &Durability) -> u64 {
        let between = self.alone.cuts().iter().filter(|cut| self.all.binary_search(cut).is_err());
        let alone: usize = between.map(|&cut| self.alone.at(cut).len()).sum();
        let torn = self.alone.cuts().iter();
        let torn =
            torn.map(|&cut| self.most_states(Pass::Torn, trace, durability, cut)).sum::<u64>();
        let single = |&cut: &u64| self.most_states(Pass::Single, trace, durability, cut);
        self.all.iter().map(single).sum::<u64>() + alone as u64 + torn
    }

    /// No more than so many states of a pass are at a cut; what later writes cover is not known
    /// here.
    pub fn most_states(&self, pass: Pass, trace: &Trace, durability: &Durability, cut: u64) -> u64 {
        let under_way = || durability.under_way(trace, cut).count() as u64;
        match pass {
            Pass::Quick => 25,
            Pass::Nothing | Pass::Flushed => 1,
            Pass::Alone => self.alone.at(cut).len() as u64,
            Pass::Torn => {
                let torn = self.alone.at(cut).iter().filter(|&&change| can_tear(trace, change));
                3 * torn.count() as u64
            }
            Pass::Random(_) => RANDOM,
            Pass::All => 0,
            Pass::Single => match durability.pending(cut) + under_way() {
                few if few <= ALL_COMBINATIONS as u64 => (1 << few) + 2 * few,
                many => (2 + 4 * many.min(SINGLE as u64)).max(1 << ALL_COMBINATIONS),
            },
        }
    }
}

/// Whether a change wrote or discarded more than a crash leaves whole.
fn can_tear(trace: &Trace, sequence: u64) -> bool {
    let (offset, length, whole) = match trace.change(sequence) {
        Some(Change::Write { offset, length, .. }) => (offset, length, Some(trace.sector)),
        Some(Change::Zero { offset, length, .. }) => (offset, length, trace.discard_granularity),
        _ => return false,
    };
    whole.is_some_and(|whole| (offset + length).div_ceil(whole) - offset / whole > 1)
}

impl Pass {
    /// The order in which passes come.
    pub fn at(number: u64) -> Pass {
        match number {
            0 => Pass::Quick,
            1 => Pass::Nothing,
            2 => Pass::Flushed,
            3 => Pass::Alone,
            4 => Pass::Torn,
            5 => Pass::Single,
            6 => Pass::All,
            round => Pass::Random(round - BEFORE_RANDOM),
        }
    }
}

/// At most `count` of them, evenly, the last one among them.
fn spread(cuts: &[u64], count: usize) -> Vec<u64> {
    let step = cuts.len().div_ceil(count).max(1);
    let mut some: Vec<u64> = cuts.iter().rev().step_by(step).copied().collect();
    some.reverse();
    some
}

/// The states of a pass at a cut, at most `most` of them.
pub fn choices(pass: Pass, cuts: &Cuts, cut: &Cut<'_, '_>, seed: u64, most: usize) -> Vec<Choice> {
    let mut choices = match pass {
        Pass::Quick => quick(cut),
        Pass::Nothing | Pass::Flushed => vec![Choice::Nothing],
        Pass::Alone => {
            let changes = cuts.alone.at(cut.sequence).iter();
            changes.map(|&change| Choice::without([change])).collect()
        }
        Pass::Torn => {
            let changes = cuts.alone.at(cut.sequence).iter();
            changes.filter_map(|&change| cut.candidate(change)).flat_map(halves).collect()
        }
        Pass::Single => single(cut, seed),
        Pass::All => combinations::all(cut, most).unwrap_or_default(),
        Pass::Random(round) => (0..RANDOM)
            .map(|number| Choice::Random(seed, round * RANDOM + number))
            .take(if cut.candidates.is_empty() { 0 } else { RANDOM as usize })
            .collect(),
    };
    choices.truncate(most);
    choices
}

/// The oldest changes were promised first.
fn quick(cut: &Cut<'_, '_>) -> Vec<Choice> {
    let oldest = cut.candidates.iter().take(4);
    let newest = cut.candidates.iter().skip(4).rev().take(4);
    let mut choices = vec![Choice::Nothing];
    for one in oldest.chain(newest) {
        choices.push(Choice::without([one.sequence]));
        choices.extend(hollow(one));
    }
    choices
}

fn single(cut: &Cut<'_, '_>, seed: u64) -> Vec<Choice> {
    let mut choices = vec![Choice::Nothing, Choice::Everything];
    let count = cut.candidates.len();
    if count == 0 {
        choices.pop();
    } else if count <= ALL_COMBINATIONS {
        choices.extend((1..(1u32 << count) - 1).map(|mask| {
            let missing = (0..count).filter(|bit| mask >> bit & 1 == 1);
            Choice::without(missing.map(|bit| cut.candidates[bit].sequence))
        }));
    } else {
        let picked = some_of(count, &mut Random::new(&[seed, cut.sequence, 0x6f6e_6573]));
        let sequences = picked.iter().map(|&at| cut.candidates[at].sequence);
        choices.extend(sequences.clone().map(|sequence| Choice::without([sequence])));
        choices.extend(sequences.map(Choice::Until));
        choices.extend(picked.iter().flat_map(|&at| hollow(&cut.candidates[at])));
        return choices;
    }
    choices.extend(cut.candidates.iter().flat_map(hollow));
    choices
}

/// The file as long as a write made it, and nothing of what it wrote; the edges of a truncation or
/// of zeros without the rest, and the rest without them.
fn hollow(candidate: &Candidate) -> Vec<Choice> {
    let mut tears = match candidate.has_edges {
        true => vec![Tear::edges(candidate), Tear::without_edges(candidate)],
        false => vec![Tear::hollow(candidate.sectors)],
    };
    if candidate.clusters > 0 && candidate.sized {
        tears.extend([Tear::hollow(candidate.sectors), Tear::without_size(candidate)]);
    }
    let one = |tear| Choice::Without([(candidate.sequence, Some(tear))].into());
    let can = candidate.sectors > 0 && (candidate.sized || candidate.has_edges);
    tears.into_iter().filter(|_| can).map(one).collect()
}

/// A write of which the front or the back is there, and the file as long as it made it; or the
/// front, and the file ends with it. Of a discard the front or the back of its clusters.
fn halves(candidate: &Candidate) -> Vec<Choice> {
    let middle = candidate.sectors.div_ceil(2);
    let half = |is_front: bool, reach: Reach| {
        let sectors = (0..candidate.sectors).map(|sector| (sector < middle) == is_front).collect();
        Choice::Without([(candidate.sequence, Some(Tear { sectors, reach }))].into())
    };
    let mut halves = Vec::new();
    if candidate.clusters > 1 {
        let half = |is_front| Tear::clusters(candidate, candidate.clusters.div_ceil(2), is_front);
        let one = |tear| Choice::Without([(candidate.sequence, Some(tear))].into());
        halves.extend([true, false].map(half).map(one));
    }
    if candidate.sectors > 1 && !candidate.has_edges {
        halves.extend([half(true, Reach::Whole), half(false, Reach::Whole)]);
        halves.extend(candidate.sized.then(|| half(true, Reach::Until(middle))));
    }
    halves
}

/// All of them, or the older and newer ends and some between.
fn some_of(count: usize, random: &mut Random) -> Vec<usize> {
    if count <= SINGLE {
        return (0..count).collect();
    }
    let quarter = SINGLE / 4;
    let mut some: Vec<usize> = (0..quarter).chain(count - quarter..count).collect();
    some.extend((0..SINGLE / 2).map(|_| random.below(count as u64) as usize));
    some.sort_unstable();
    some.dedup();
    some
}
