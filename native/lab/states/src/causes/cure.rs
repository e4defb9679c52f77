//! The flush that would have helped: put into the log, and looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::known::{absent, find_cause, Cause};
use super::search::Search;
use super::smaller::Bench;
use crate::choice::{Presence, Reach, Tear};
use crate::cut::Cut;
use crate::explore::Worker;
use crate::failure::Result;
use crate::fault::{Durability, Edits};
use crate::trace::Trace;

/// Operations of one step around which a cure is looked at.
const PROBED: usize = 32;

/// A flush after each operation of one step of a cause.
#[derive(Clone, Debug)]
pub struct Cure {
    /// Of the cause's own operations the one that is flushed.
    pub after: u64,
    pub file: u64,
    /// All flushes, by the record that each one follows.
    pub added: BTreeMap<u64, BTreeSet<u64>>,
    /// No state around them lost anything by the cause.
    pub works: bool,
    /// States that were looked at for that.
    pub states: u64,
}

/// Looks for the cure of each cause, on all threads.
pub fn cure_all(search: &Search<'_, '_>) -> Result<()> {
    let wanted: Vec<usize> = {
        let causes = search.causes();
        let open = |at: &usize| causes[*at].cure.is_none() && !causes[*at].missing.is_empty();
        (0..causes.len()).filter(open).collect()
    };
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..search.exploration.threads() {
            scope.spawn(|| {
                while let Some(&at) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let cause = search.causes()[at].clone();
                    match find_cure(search, &cause) {
                        Ok(cure) => search.causes()[at].cure = cure,
                        Err(why) => {
                            let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            first.get_or_insert(why);
                            return;
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// None: the time was up before one was looked at. Of several operations one durable is enough.
fn find_cure(search: &Search<'_, '_>, cause: &Cause) -> Result<Option<Cure>> {
    let mut last = None;
    let mut tried = BTreeSet::new();
    for (after, _) in &cause.missing {
        if !tried.insert(search.steps.of(*after)) {
            continue;
        }
        let Some(cure) = try_cure(search, cause, *after)? else { break };
        let works = cure.works;
        last = Some(cure);
        if works {
            break;
        }
    }
    Ok(last)
}

fn try_cure(search: &Search<'_, '_>, cause: &Cause, after: u64) -> Result<Option<Cure>> {
    let (exploration, trace) = (search.exploration, &search.exploration.store.trace);
    let mut added: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let alike: Vec<u64> = search.steps.records(search.steps.of(after)).collect();
    for &record in &alike {
        added.entry(record).or_default().insert(exploration.durability.flushed_for(trace, record));
    }
    let edits = Edits { added: added.clone(), ..Edits::default() };
    let durability = Durability::edited(trace, exploration.fault(), &edits);
    let mut worker = Worker::under(exploration, &durability)?;
    let (mut works, mut states) = (true, 0);
    for cut in cuts_around(trace, &durability, &alike, after) {
        if search.is_out_of_time() {
            return Ok(None);
        }
        worker.at(cut, |cut, check| {
            let mut bench = Bench { exploration, cut, check, until: search.until };
            for presences in around(search, cause, cut) {
                states += 1;
                works = works && !is_lost_by(search, cause, &mut bench, &presences)?;
            }
            Ok(())
        })?;
        if !works {
            break;
        }
    }
    let file = exploration.durability.flushed_for(trace, after);
    Ok(Some(Cure { after, file, added, works, states }))
}

/// Whether a state loses something, and by the cause's own operations.
fn is_lost_by(
    search: &Search<'_, '_>,
    cause: &Cause,
    bench: &mut Bench<'_, '_, '_, '_, '_>,
    presences: &[Presence],
) -> Result<bool> {
    let finding = bench.judge(presences)?;
    if !finding.is_broken() {
        return Ok(false);
    }
    let Some(found) = bench.smaller(presences, finding)? else { return Ok(true) };
    let sequences = absent(&found).into_iter().map(|at| bench.cut.candidates[at].sequence);
    let steps: Vec<u32> = sequences.map(|sequence| search.steps.of(sequence)).collect();
    Ok(cause.steps.iter().any(|step| steps.contains(step)))
}

/// Where the operations that are flushed can still be missing: while they are under way, and before
/// the flush has ended.
fn cuts_around(trace: &Trace, durability: &Durability, alike: &[u64], own: u64) -> BTreeSet<u64> {
    let step = alike.len().div_ceil(PROBED).max(1);
    let probed = alike.iter().step_by(step).chain([&own]);
    let settled = durability.settled_at();
    let mut cuts = BTreeSet::new();
    for &record in probed {
        let begin = trace.event(record).begin_ns;
        let before = trace.events[..record as usize].iter().rev();
        let under_way = before.take_while(|event| event.end_ns >= begin).count() as u64;
        let until = settled[record as usize - 1].min(trace.last() + 1);
        cuts.extend(record + 1 - under_way.max(1)..until.min(record + PROBED as u64));
    }
    cuts
}

/// States of a cut with the cause's operations missing, and none of another cause.
fn around(search: &Search<'_, '_>, cause: &Cause, cut: &Cut<'_, '_>) -> Vec<Vec<Presence>> {
    let is_own = |sequence: u64| cause.steps.contains(&search.steps.of(sequence));
    let own: Vec<usize> =
        (0..cut.candidates.len()).filter(|&at| is_own(cut.candidates[at].sequence)).collect();
    let mut starts = Vec::new();
    let whole = vec![Presence::Present; cut.candidates.len()];
    for gone in own.iter().map(std::slice::from_ref).chain([&own[..]]) {
        let mut presences = whole.clone();
        gone.iter().for_each(|&at| presences[at] = Presence::Missing);
        starts.push(cut.without_orphans(presences));
    }
    if cause.is_torn() {
        starts = own.iter().flat_map(|&at| torn(cut, &whole, at)).collect();
    }
    starts.push(vec![Presence::Missing; cut.candidates.len()]);
    let causes = search.causes().clone();
    for presences in &mut starts {
        let others = || causes.iter().filter(|one| one.steps != cause.steps);
        while let Some((_, operations)) =
            find_cause(others(), search.steps, cut, presences, &|_| true)
        {
            operations.into_iter().for_each(|at| cut.put_back(presences, at));
        }
    }
    starts
}

/// One write torn in the middle: its front is there, or its back.
fn torn(cut: &Cut<'_, '_>, whole: &[Presence], at: usize) -> Vec<Vec<Presence>> {
    let sectors = cut.candidates[at].sectors;
    let half = |front: bool| {
        let mut presences = whole.to_vec();
        let there = (0..sectors).map(|sector| (sector < sectors.div_ceil(2)) == front);
        presences[at] = Presence::Torn(Tear { sectors: there.collect(), reach: Reach::Whole });
        presences
    };
    if sectors > 1 {
        vec![half(true), half(false)]
    } else {
        Vec::new()
    }
}
