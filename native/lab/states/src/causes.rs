//! Every cause of the losses of one log, the flush that cures each, and the flushes that nobody
//! needs. `docs/crash-causes.md` says what a cause is.

pub mod cure;
pub mod known;
pub mod likeness;
pub mod lines;
pub mod needless;
pub mod search;
pub mod smaller;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::checks::Ground;
use crate::explore::Exploration;
use crate::failure::{During, Result};
use crate::fault::{Durability, Edits, Fault};
use crate::found::Outcome;
use crate::plan::Cuts;
use crate::report::{say, Line};
use crate::request::Request;
use crate::rights;
use crate::run::with_progress;
use cure::cure_all;
use diskproof_rights::keep;
use known::Cause;
use likeness::Steps;
use lines::{CauseLine, CausesSummary, Lines};
use needless::{judge_flushes, Need};
use search::Search;

/// Parts of the time: for the causes, then for their cures and what these let be seen. What is left
/// is the flushes'.
const CAUSES: f64 = 0.5;
const CURES: f64 = 0.7;

/// What was found of one log.
pub struct Found {
    pub causes: Vec<Cause>,
    pub flushes: Vec<(u64, Need)>,
    /// All planned states were seen, with the causes put back.
    pub finished: bool,
    /// With all cures in the log nothing more was lost; None: not looked, or not to the end.
    pub cured: Option<bool>,
}

/// Looks for everything that the request's time allows, and says it.
pub fn causes(request: &Request) -> Result<()> {
    let (causes, summary) = find_causes(request)?;
    for cause in causes {
        say(&Line::Cause(Box::new(cause)));
    }
    say(&Line::Causes(Box::new(summary)));
    Ok(())
}

pub fn find_causes(request: &Request) -> Result<(Vec<CauseLine>, CausesSummary)> {
    let begun = Instant::now();
    let store = Arc::new(request.open()?);
    let ground = Ground::make(request, &store)?;
    keep(rights::to_check(request)).during("giving up rights")?;
    let durability = Durability::new(&store.trace, request.fault);
    let cuts = Cuts::new(&store.trace, &durability, request.seed);
    let planned = cuts.planned(&store.trace, &durability);
    let exploration = Exploration::new(request, &store, &durability, &cuts, ground.as_ref());
    let steps = Steps::new(&store.trace);
    let found = with_progress(&exploration, planned, begun, || {
        let found = find(&exploration, &steps, Instant::now(), request.budget.seconds)?;
        if !exploration.is_to_begin_anew() {
            return Ok(found);
        }
        exploration.begin_anew(Outcome::default());
        let left = request.budget.seconds - begun.elapsed().as_secs_f64();
        find(&exploration, &steps, Instant::now(), left.max(0.0))
    })?;
    let named = Lines::new(&exploration, &steps, &found);
    Ok((named.causes(), named.summary(begun)))
}

fn find(
    exploration: &Exploration<'_>,
    steps: &Steps,
    begun: Instant,
    seconds: f64,
) -> Result<Found> {
    let at = |part: f64| begun + Duration::from_secs_f64(seconds * part);
    let causes = Mutex::new(Vec::new());
    let mut search = Search { exploration, steps, causes, until: at(CAUSES) };
    let finished = search.run(exploration.durability, exploration.cuts)?;
    let (mut cured, mut flushes) = (None, Vec::new());
    let fault = exploration.fault();
    if fault == Fault::Power || fault.rules().is_some() {
        search.until = at(CURES);
        cured = with_cures(&search)?;
    }
    if fault == Fault::Power {
        search.until = at(1.0);
        flushes = judge_flushes(&search)?;
    }
    let causes = std::mem::take(&mut *search.causes());
    Ok(Found { causes, flushes, finished, cured })
}

/// Puts all cures into the log and looks again: for causes that hid behind others, and for those
/// whose cure does not hold.
fn with_cures(search: &Search<'_, '_>) -> Result<Option<bool>> {
    cure_all(search)?;
    let known = search.causes().clone();
    if !known.iter().any(Cause::is_cured) {
        return Ok(None);
    }
    let mut added: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for cure in known.iter().filter_map(|cause| cause.cure.as_ref()).filter(|cure| cure.works) {
        for (after, files) in &cure.added {
            added.entry(*after).or_default().extend(files);
        }
    }
    let exploration = search.exploration;
    let trace = &exploration.store.trace;
    let edits = Edits { added, ..Edits::default() };
    let durability = Durability::edited(trace, exploration.fault(), &edits);
    let cuts = Cuts::new(trace, &durability, exploration.request.seed);
    let open = known.iter().filter(|cause| !cause.is_cured()).cloned().collect();
    let again =
        Search { exploration, steps: search.steps, causes: Mutex::new(open), until: search.until };
    let finished = again.run(&durability, &cuts)?;
    let left = again.causes().clone();
    let new = |cause: &&Cause| !known.iter().any(|one| !one.is_cured() && one.steps == cause.steps);
    let mut more = false;
    let mut causes = search.causes();
    for cause in left.iter().filter(new) {
        more = true;
        match causes.iter_mut().find(|one| one.steps == cause.steps) {
            // A flush helps against what is missing; what is torn on its way is another matter.
            Some(same) if cause.is_torn() == same.is_torn() => {
                same.cure.iter_mut().for_each(|cure| cure.works = false);
            }
            _ => causes.push(cause.clone()),
        }
    }
    drop(causes);
    cure_all(search)?;
    Ok(if more || finished { Some(!more) } else { None })
}
