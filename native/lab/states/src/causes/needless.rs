//! Flushes that no promise needs: each is dropped by itself, and then as many as can go together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::known::absent;
use super::search::Search;
use super::smaller::Bench;
use crate::checks::Check;
use crate::choice::{Choice, Presence};
use crate::cut::Cut;
use crate::explore::Worker;
use crate::failure::Result;
use crate::fault::{Durability, Edits};
use crate::plan::Cuts;

/// Cuts that are looked at while changes wait for a flush that was dropped.
const CUTS: usize = 96;
/// Changes that are missing one by one beside those of the flush.
const BESIDE: usize = 48;
const RANDOM: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it something is lost.
    Needed,
    /// By itself it can go.
    Alone,
    /// It can go with all others of this kind.
    Together,
    /// The time was up.
    Unknown,
}

/// What each flush of a log is needed for.
pub fn judge_flushes(search: &Search<'_, '_>) -> Result<Vec<(u64, Need)>> {
    let trace = &search.exploration.store.trace;
    let events = trace.events.iter().zip(1..);
    let flushes = events.filter(|(event, _)| event.what.is_flush());
    let flushes: Vec<u64> = flushes.map(|(_, record)| record).collect();
    let needs = alone(search, &flushes)?;
    let mut found: Vec<(u64, Need)> = flushes.into_iter().zip(needs).collect();
    let mut dropped = BTreeSet::new();
    // The dearest first: of two that stand for each other it goes.
    let time =
        |record: u64| trace.event(record).end_ns.saturating_sub(trace.event(record).begin_ns);
    let mut order: Vec<usize> = (0..found.len()).filter(|&at| found[at].1 == Need::Alone).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(time(found[at].0)));
    for at in order {
        if is_needed(search, &dropped, found[at].0)? == Some(false) {
            dropped.insert(found[at].0);
            found[at].1 = Need::Together;
        }
    }
    Ok(found)
}

fn alone(search: &Search<'_, '_>, flushes: &[u64]) -> Result<Vec<Need>> {
    let needs = Mutex::new(vec![Need::Unknown; flushes.len()]);
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..search.exploration.threads() {
            scope.spawn(|| loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(&flush) = flushes.get(at) else { return };
                let need = match is_needed(search, &BTreeSet::new(), flush) {
                    Ok(Some(true)) => Need::Needed,
                    Ok(Some(false)) => Need::Alone,
                    Ok(None) => Need::Unknown,
                    Err(why) => {
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert(why);
                        return;
                    }
                };
                needs.lock().unwrap_or_else(PoisonError::into_inner)[at] = need;
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(why),
        None => Ok(needs.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Whether something more is lost when this flush goes, too. None: the time was up.
fn is_needed(search: &Search<'_, '_>, dropped: &BTreeSet<u64>, flush: u64) -> Result<Option<bool>> {
    let exploration = search.exploration;
    let trace = &exploration.store.trace;
    let settled = |dropped: &BTreeSet<u64>| {
        let edits = Edits { dropped: dropped.clone(), ..Edits::default() };
        Durability::edited(trace, exploration.fault(), &edits)
    };
    let mut more = dropped.clone();
    more.insert(flush);
    let (before, durability) = (settled(dropped).settled_at(), settled(&more));
    let after = durability.settled_at();
    let waiting: Vec<u64> = (1..=trace.last())
        .filter(|&change| after[change as usize - 1] > before[change as usize - 1])
        .collect();
    let known = exploration.durability.settled_at();
    let cuts = Cuts::new(trace, &durability, exploration.request.seed);
    let is_waiting = |change: u64, cut: u64| {
        before[change as usize - 1] <= cut && cut < after[change as usize - 1]
    };
    let here = cuts.all.iter().filter(|&&cut| waiting.iter().any(|&one| is_waiting(one, cut)));
    let here = spread(&here.copied().collect::<Vec<_>>(), &cuts.acknowledgements);
    let mut worker = Worker::under(exploration, &durability)?;
    for cut in here {
        let found = worker.at(cut, |cut, check| {
            let probe = Probe { search, known: &known };
            let own = |at: &usize| is_waiting(cut.candidates[*at].sequence, cut.sequence);
            let own: Vec<usize> = (0..cut.candidates.len()).filter(own).collect();
            probe.loses(cut, check, &own)
        })?;
        if found != Some(false) {
            return Ok(found);
        }
    }
    Ok(Some(false))
}

/// The acknowledgements among them and the ends first, then others evenly.
fn spread(cuts: &[u64], acknowledgements: &[u64]) -> Vec<u64> {
    let promised = |cut: &&u64| acknowledgements.binary_search(cut).is_ok();
    let step = |count: usize| count.div_ceil(CUTS).max(1);
    let said: Vec<u64> = cuts.iter().filter(promised).copied().collect();
    let mut some: Vec<u64> = said.iter().rev().step_by(step(said.len())).copied().collect();
    some.extend(cuts.iter().rev().step_by(step(cuts.len())));
    some.extend(said.first());
    some.extend(cuts.first());
    some.sort_unstable();
    some.dedup();
    some
}

struct Probe<'a, 'b, 's> {
    search: &'a Search<'b, 's>,
    /// When each change is durable as it was recorded.
    known: &'a [u64],
}

impl Probe<'_, '_, '_> {
    /// Whether a state of the cut loses something for want of the flush: not by a cause that is
    /// there with it.
    fn loses(
        &self,
        cut: &Cut<'_, '_>,
        check: &mut dyn Check,
        own: &[usize],
    ) -> Result<Option<bool>> {
        let (exploration, until) = (self.search.exploration, self.search.until);
        let mut bench = Bench { exploration, cut, check, until };
        let was_pending = |sequence: u64| self.known[sequence as usize - 1] > cut.sequence;
        for mut presences in self.starts(cut, own) {
            loop {
                if bench.is_over() {
                    return Ok(None);
                }
                self.search.put_back(cut, &mut presences, &was_pending);
                let finding = bench.judge(&presences)?;
                if !finding.is_broken() {
                    break;
                }
                let Some(found) = bench.smaller(&presences, finding)? else { return Ok(None) };
                let is_new = |at: &usize| !was_pending(cut.candidates[*at].sequence);
                if absent(&found).iter().any(is_new) {
                    return Ok(Some(true));
                }
                // Lost with the flush as well: a cause that had not been seen.
                self.search.add(&mut bench, &found)?;
                if absent(&found).is_empty() {
                    break;
                }
            }
        }
        Ok(Some(false))
    }

    fn starts(&self, cut: &Cut<'_, '_>, own: &[usize]) -> Vec<Vec<Presence>> {
        let count = cut.candidates.len();
        let without = |gone: &[usize]| {
            let mut presences = vec![Presence::Present; count];
            gone.iter().for_each(|&at| presences[at] = Presence::Missing);
            cut.without_orphans(presences)
        };
        let mut starts = vec![without(own), vec![Presence::Missing; count]];
        starts.extend(some_of(own).map(|at| without(&[at])));
        let others: Vec<usize> = (0..count).filter(|at| !own.contains(at)).collect();
        starts.push(without(&others));
        for beside in some_of(&others) {
            let both: Vec<usize> = own.iter().copied().chain([beside]).collect();
            starts.push(without(&both));
        }
        let seed = self.search.exploration.request.seed;
        starts.extend((0..RANDOM).map(|number| cut.presences(&Choice::Random(seed, number))));
        starts
    }
}

fn some_of(candidates: &[usize]) -> impl Iterator<Item = usize> + '_ {
    candidates.iter().copied().step_by(candidates.len().div_ceil(BESIDE).max(1))
}
