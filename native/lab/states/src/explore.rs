//! Builds the planned states on all cores, checks those not seen before, and keeps the losses.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::checks::{make_check, Check, Detail, Finding, Ground};
use crate::choice::{Choice, StateId};
use crate::combinations;
use crate::content::Store;
use crate::counters::Counters;
use crate::cut::{collect, Cut};
use crate::failure::{During, Result};
use crate::fault::{Durability, Fault};
use crate::found::{rank, Found, Message, Order, Outcome, Rank};
use crate::image::Image;
use crate::judge::{judge, Judged};
use crate::plan::{choices, Cuts, Pass};
use crate::request::Request;
use crate::sharing::Sharing;

const WHAT: &str = "building a state";
/// Threads seldom wait for each other's states.
const SHARDS: usize = 64;
/// Random rounds in a row without a new state: there is nothing left to find.
const BARREN_ROUNDS: u64 = 16;

/// What the exploring threads share.
pub struct Exploration<'s> {
    pub request: &'s Request,
    pub store: &'s Store,
    pub durability: &'s Durability,
    pub cuts: &'s Cuts,
    ground: Option<&'s Ground>,
    pub counters: Counters,
    /// What was found, by content and promise.
    seen: Vec<Mutex<HashMap<u64, Finding>>>,
    deadline: Instant,
    stop: AtomicBool,
    began_anew: AtomicBool,
    worst: Mutex<Option<Rank>>,
}

/// A run of cuts, for one thread.
struct Job<'c> {
    pass: Pass,
    pass_number: u64,
    cuts: &'c [u64],
    /// States, at most.
    most: u64,
}

impl<'s> Exploration<'s> {
    pub fn new(
        request: &'s Request,
        store: &'s Store,
        durability: &'s Durability,
        cuts: &'s Cuts,
        ground: Option<&'s Ground>,
    ) -> Exploration<'s> {
        Exploration {
            request,
            store,
            durability,
            cuts,
            ground,
            counters: Counters::default(),
            seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
            deadline: Instant::now() + Duration::from_secs_f64(request.budget.seconds),
            stop: AtomicBool::new(false),
            began_anew: AtomicBool::new(false),
            worst: Mutex::new(None),
        }
    }

    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.request.threads.unwrap_or_else(cores)
    }

    pub fn fault(&self) -> Fault {
        self.request.fault
    }

    pub fn is_over(&self) -> bool {
        let stops = self.stop.load(Ordering::Relaxed) || self.is_to_begin_anew();
        stops || Instant::now() >= self.deadline
    }

    fn sharing(&self) -> Option<&Sharing> {
        self.ground.and_then(|ground| ground.sharing.as_ref())
    }

    pub fn is_unsteady(&self) -> bool {
        self.sharing().is_some_and(Sharing::is_unsteady)
    }

    /// What was judged by others is to be forgotten.
    pub fn is_to_begin_anew(&self) -> bool {
        self.is_unsteady() && !self.began_anew.load(Ordering::Relaxed)
    }

    pub fn samples(&self, key: u64) -> bool {
        self.sharing().is_none_or(|sharing| sharing.samples(key))
    }

    /// The check said two things of what is the same.
    pub fn stop_sharing(&self) {
        self.sharing().inspect(|sharing| sharing.give_up());
    }

    /// Forgets what may have been judged by another state; gives the losses that were seen.
    pub fn begin_anew(&self, outcome: Outcome) -> Vec<Found> {
        self.counters.reset();
        for shard in &self.seen {
            shard.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let proved: Vec<Found> = outcome.found.into_iter().filter(|found| found.was_run).collect();
        let worst = proved.iter().map(Found::rank).max();
        *self.worst.lock().unwrap_or_else(PoisonError::into_inner) = worst;
        self.began_anew.store(true, Ordering::Relaxed);
        proved
    }

    /// Works through passes until the budget is used up. `tell` hears of losses as they are found,
    /// of those that are known already it does not.
    pub fn run(&self, known: Vec<Found>, tell: &mut dyn FnMut(&Found)) -> Result<Outcome> {
        let mut outcome = Outcome { found: known, ..Outcome::default() };
        let mut workers =
            (0..self.threads()).map(|_| Worker::new(self)).collect::<Result<Vec<_>>>()?;
        let mut barren = 0;
        for number in 0.. {
            let pass = Pass::at(number);
            if pass == Pass::All && !combinations::fit(self, &mut workers[0])? {
                outcome.passes = number + 1;
                continue;
            }
            let before = self.counters.distinct.load(Ordering::Relaxed);
            let mut left = self.cuts.of(pass);
            while !left.is_empty() && !self.is_over() && self.budget_left() > 0 {
                let (jobs, done) = self.jobs(pass, number, left);
                left = &left[done..];
                self.run_jobs(jobs, &mut workers, &mut outcome, tell)?;
            }
            if !left.is_empty() || self.is_over() {
                break;
            }
            outcome.passes = number + 1;
            outcome.planned_done |= pass == Pass::Single;
            let nothing_new = self.counters.distinct.load(Ordering::Relaxed) == before;
            barren = if nothing_new { barren + 1 } else { 0 };
            let lossy = self.request.stop_at_loss && !outcome.found.is_empty();
            outcome.complete = pass == Pass::All;
            if lossy || outcome.complete || (outcome.planned_done && barren >= BARREN_ROUNDS) {
                break;
            }
        }
        outcome.timed_out = Instant::now() >= self.deadline;
        Ok(outcome)
    }

    fn run_jobs(
        &self,
        jobs: Vec<Job<'_>>,
        workers: &mut [Worker<'_, 's>],
        outcome: &mut Outcome,
        tell: &mut dyn FnMut(&Found),
    ) -> Result<()> {
        let queue = Mutex::new(VecDeque::from(jobs));
        let first = outcome.found.len();
        let mut failure = None;
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            for worker in workers.iter_mut() {
                let (queue, sender) = (&queue, sender.clone());
                scope.spawn(move || worker.work(queue, &sender));
            }
            drop(sender);
            for message in receiver {
                match message {
                    Message::Found(found) => {
                        tell(&found);
                        outcome.found.push(*found);
                    }
                    Message::Failed(why) => {
                        self.stop.store(true, Ordering::Relaxed);
                        failure.get_or_insert(why);
                    }
                }
            }
        });
        outcome.found[first..].sort_by_key(Found::rank);
        failure.map_or(Ok(()), Err)
    }

    pub fn budget_left(&self) -> u64 {
        let built = self.counters.built.load(Ordering::Relaxed);
        self.request.budget.states.saturating_sub(built)
    }

    /// The pass in pieces, and how many of its cuts they are: as far as the budget of states goes
    /// for sure.
    fn jobs<'c>(&self, pass: Pass, pass_number: u64, cuts: &'c [u64]) -> (Vec<Job<'c>>, usize) {
        let mut left = self.budget_left();
        let mut count = 0usize;
        for &cut in cuts {
            let wanted = self.cuts.most_states(pass, &self.store.trace, self.durability, cut);
            if wanted > left && count > 0 {
                break;
            }
            left = left.saturating_sub(wanted);
            count += 1;
        }
        let most = self.budget_left();
        let piece = count.div_ceil(self.threads() * 8).max(1);
        let jobs = cuts[..count].chunks(piece);
        (jobs.map(|cuts| Job { pass, pass_number, cuts, most }).collect(), count)
    }

    /// What the check said of a state that held the same and was promised the same.
    pub fn find_known(&self, key: u64) -> Option<Finding> {
        self.shard(key).lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    /// True the first time. Two threads may have checked the same state at once; they found the
    /// same.
    pub fn remember(&self, key: u64, finding: Finding) -> bool {
        let mut known = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, finding).is_none()
    }

    fn shard(&self, key: u64) -> &Mutex<HashMap<u64, Finding>> {
        &self.seen[(key % SHARDS as u64) as usize]
    }

    /// Only what is worse than all that is known is told; true when it loses more, and is to be
    /// looked at closer.
    fn is_worse(&self, rank: Rank) -> Option<bool> {
        let mut worst = self.worst.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *worst;
        if before.is_some_and(|before| before >= rank) {
            return None;
        }
        *worst = Some(rank);
        Some(before.is_none_or(|before| before.0 < rank.0))
    }

    fn state_id(&self, cut: &Cut<'_, '_>, choice: Choice) -> StateId {
        let trace = &self.store.trace;
        let (fault, sector, cut) = (self.fault(), trace.sector, cut.sequence);
        StateId { fault, sector, discard_granularity: trace.discard_granularity, cut, choice }
    }

    /// Another shard's states are known by their content only.
    pub fn is_ours(&self, key: u64) -> bool {
        self.request.shard.is_none_or(|shard| shard.has(key))
    }
}

/// One thread's image and judge; both go from cut to cut.
pub struct Worker<'e, 's> {
    exploration: &'e Exploration<'s>,
    durability: &'s Durability,
    image: Image<'s>,
    check: Box<dyn Check + 's>,
    begun: bool,
}

impl<'e, 's> Worker<'e, 's> {
    pub fn new(exploration: &'e Exploration<'s>) -> Result<Worker<'e, 's>> {
        Worker::under(exploration, exploration.durability)
    }

    /// As if the recording had been flushed otherwise.
    pub fn under(
        exploration: &'e Exploration<'s>,
        durability: &'s Durability,
    ) -> Result<Worker<'e, 's>> {
        let check = make_check(&exploration.request.check, exploration.store, exploration.ground)?;
        let image = Image::new(exploration.store, durability);
        Ok(Worker { exploration, durability, image, check, begun: false })
    }

    fn work(&mut self, queue: &Mutex<VecDeque<Job<'_>>>, tell: &Sender<Message>) {
        loop {
            let job = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(job) = job.filter(|_| !self.exploration.is_over()) else { return };
            if let Err(failure) = self.work_on(&job, tell) {
                let _ = tell.send(Message::Failed(failure));
                return;
            }
        }
    }

    fn work_on(&mut self, job: &Job<'_>, tell: &Sender<Message>) -> Result<()> {
        let mut left = job.most;
        for &cut in job.cuts {
            if left == 0 || self.exploration.is_over() {
                return Ok(());
            }
            let seed = self.exploration.request.seed;
            let exploration = self.exploration;
            self.at(cut, |cut, check| {
                let choices = choices(job.pass, exploration.cuts, cut, seed, left as usize);
                left -= choices.len() as u64;
                for (number, choice) in choices.into_iter().enumerate() {
                    if exploration.is_over() {
                        break;
                    }
                    let order = (job.pass_number, cut.sequence, number as u64);
                    look(exploration, check, cut, choice, order, tell)?;
                    exploration.counters.cover(job.pass);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Goes to a cut (forwards, or from the start again) and does something there.
    pub fn at<T>(
        &mut self,
        cut: u64,
        work: impl FnOnce(&Cut<'_, 's>, &mut dyn Check) -> Result<T>,
    ) -> Result<T> {
        if cut < self.image.at {
            self.image = Image::new(self.exploration.store, self.durability);
            self.begun = false;
        }
        self.image.advance(cut).during(WHAT)?;
        let changed = std::mem::take(&mut self.image.settled_data);
        let under_way = self.image.push_under_way().during(WHAT)?;
        let done = {
            let collected = collect(&self.image, &under_way);
            let changed = self.begun.then_some(&changed);
            self.begun = true;
            self.check
                .begin(&collected, changed)
                .and_then(|()| work(&collected, self.check.as_mut()))
        };
        self.image.retract(&under_way);
        done
    }
}

/// Builds one state; checks it if there was none like it.
fn look(
    exploration: &Exploration<'_>,
    check: &mut dyn Check,
    cut: &Cut<'_, '_>,
    choice: Choice,
    order: Order,
    tell: &Sender<Message>,
) -> Result<()> {
    let state = cut.state(&choice).during(WHAT)?;
    let Judged { finding, mut was_run } = judge(exploration, check, &state)?;
    if !finding.is_broken() {
        return Ok(());
    }
    if let Some(more) = exploration.is_worse(rank(finding, cut.moment_ns, order)) {
        if more && !was_run {
            // What it says of this state is wanted.
            was_run = true;
            if check.check(&state)? != finding {
                exploration.stop_sharing();
                return Ok(());
            }
        }
        let detail = if more { check.detail(&state)? } else { Detail::default() };
        let id = exploration.state_id(cut, choice);
        let found = Found { id, finding, detail, moment_ns: cut.moment_ns, order, was_run };
        let _ = tell.send(Message::Found(Box::new(found)));
    }
    Ok(())
}
