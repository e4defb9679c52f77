//! Looks for causes: after a loss its cause is put back, and the search goes on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::known::{absent, find_cause, Cause};
use super::likeness::Steps;
use super::smaller::Bench;
use crate::checks::{Check, Finding};
use crate::choice::{Choice, Presence, StateId};
use crate::cut::Cut;
use crate::explore::{Exploration, Worker};
use crate::failure::{During, Failure, Result};
use crate::fault::Durability;
use crate::plan::{choices, Cuts, Pass};

const WHAT: &str = "looking for causes";
/// Random rounds in a row that build nothing new: there is nothing left to find.
const BARREN_ROUNDS: u32 = 4;
/// Causes of one log; a program with more is told these.
pub const MAX_CAUSES: usize = 64;

/// Passes with each single change missing come first: most causes are one.
const FIRST: [Pass; 5] = [Pass::Alone, Pass::Torn, Pass::Quick, Pass::Nothing, Pass::Single];

/// What the searching threads share.
pub struct Search<'a, 's> {
    pub exploration: &'a Exploration<'s>,
    pub steps: &'a Steps,
    pub causes: Mutex<Vec<Cause>>,
    pub until: Instant,
}

impl<'s> Search<'_, 's> {
    pub fn causes(&self) -> std::sync::MutexGuard<'_, Vec<Cause>> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.is_out_of_time() || self.causes().len() >= MAX_CAUSES
    }

    /// Or what was found is to be forgotten.
    pub fn is_out_of_time(&self) -> bool {
        Instant::now() >= self.until || self.exploration.is_to_begin_anew()
    }

    /// True when all planned states were seen.
    pub fn run(&self, durability: &Durability, cuts: &Cuts) -> Result<bool> {
        let mut workers = Vec::new();
        for _ in 0..self.exploration.threads() {
            workers.push(Worker::under(self.exploration, durability)?);
        }
        for pass in FIRST {
            if !self.pass(pass, cuts, &mut workers)? {
                return Ok(false);
            }
        }
        let mut barren = 0;
        for round in 0.. {
            let before = self.exploration.counters.distinct.load(Ordering::Relaxed);
            if barren >= BARREN_ROUNDS || !self.pass(Pass::Random(round), cuts, &mut workers)? {
                break;
            }
            let is_new = self.exploration.counters.distinct.load(Ordering::Relaxed) > before;
            barren = if is_new { 0 } else { barren + 1 };
        }
        Ok(true)
    }

    /// False when the time ended it.
    fn pass(&self, pass: Pass, cuts: &Cuts, workers: &mut [Worker<'_, '_>]) -> Result<bool> {
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None::<Failure>));
        let wanted = cuts.of(pass);
        std::thread::scope(|scope| {
            for worker in workers {
                let (next, failure) = (&next, &failure);
                scope.spawn(move || {
                    while let Some(&cut) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.is_over() {
                            return;
                        }
                        if let Err(why) = self.at(worker, pass, cuts, cut) {
                            next.store(wanted.len(), Ordering::Relaxed);
                            let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            first.get_or_insert(why);
                            return;
                        }
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(why),
            None => Ok(!self.is_over()),
        }
    }

    fn at(&self, worker: &mut Worker<'_, '_>, pass: Pass, cuts: &Cuts, cut: u64) -> Result<()> {
        let seed = self.exploration.request.seed;
        worker.at(cut, |cut, check| {
            for choice in choices(pass, cuts, cut, seed, usize::MAX) {
                if self.is_over() {
                    return Ok(());
                }
                self.look(cut, check, &choice)?;
            }
            Ok(())
        })
    }

    /// Puts back what is known and looks; until nothing is lost any more.
    fn look(&self, cut: &Cut<'_, '_>, check: &mut dyn Check, choice: &Choice) -> Result<()> {
        let (exploration, until) = (self.exploration, self.until);
        let mut bench = Bench { exploration, cut, check, until };
        let mut presences = cut.presences(choice);
        loop {
            self.put_back(cut, &mut presences, &|_| true);
            let finding = bench.judge(&presences)?;
            if !finding.is_broken() {
                return Ok(());
            }
            let Some(found) = bench.smaller(&presences, finding)? else { return Ok(()) };
            self.add(&mut bench, &found)?;
            if absent(&found).is_empty() {
                return Ok(());
            }
        }
    }

    /// Puts back all causes that are in a state, of what `counts`; true if there was one.
    pub fn put_back(
        &self,
        cut: &Cut<'_, '_>,
        presences: &mut [Presence],
        counts: &dyn Fn(u64) -> bool,
    ) -> bool {
        let mut causes = self.causes();
        let mut any = false;
        loop {
            let found = find_cause(causes.iter(), self.steps, cut, presences, counts);
            let Some((steps, operations)) = found.map(|(one, at)| (one.steps.clone(), at)) else {
                return any;
            };
            any = true;
            operations.into_iter().for_each(|at| cut.put_back(presences, at));
            causes.iter_mut().filter(|one| one.steps == steps).for_each(|one| one.states += 1);
        }
    }

    /// A cause that is known is only counted.
    pub fn add(&self, bench: &mut Bench<'_, '_, '_, '_, '_>, found: &[Presence]) -> Result<()> {
        let cut = bench.cut;
        let state = cut.state_of(found.to_vec()).during(WHAT)?;
        let finding: Finding = bench.check.check(&state)?;
        let detail = bench.check.detail(&state)?;
        let missing = needed(cut, found);
        let mut steps: Vec<u32> =
            missing.iter().map(|(record, _)| self.steps.of(*record)).collect();
        steps.sort_unstable();
        let mut causes = self.causes();
        if let Some(known) = causes.iter_mut().find(|one| one.steps == steps) {
            known.states += 1;
            return Ok(());
        }
        let request = bench.exploration;
        let id = StateId {
            fault: request.fault(),
            sector: request.store.trace.sector,
            discard_granularity: request.store.trace.discard_granularity,
            cut: cut.sequence,
            choice: cut.choice_of(found),
        };
        let moment_ns = cut.moment_ns;
        causes.push(Cause {
            steps,
            id,
            finding,
            detail,
            moment_ns,
            missing,
            states: 1,
            cure: None,
        });
        Ok(())
    }
}

/// What is absent by itself: not what is missing only because another is.
fn needed(cut: &Cut<'_, '_>, found: &[Presence]) -> Vec<(u64, Presence)> {
    let is_needed = |at: &usize| {
        let mut less = found.to_vec();
        less[*at] = Presence::Present;
        cut.without_orphans(less) != found
    };
    let gone = absent(found).into_iter().filter(is_needed);
    gone.map(|at| (cut.candidates[at].sequence, found[at].clone())).collect()
}
