//! One exploration, from the request to the summary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::checks::Ground;
use crate::explore::Exploration;
use crate::failure::{During, Result};
use crate::fault::Durability;
use crate::found::Found;
use crate::minimise::minimise;
use crate::plan::Cuts;
use crate::report::{self, say, Line, Summary};
use crate::request::Request;
use crate::rights;
use diskproof_rights::keep;

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// Explores, says what is found, and gives the summary that it ends with.
pub fn explore(request: &Request) -> Result<Summary> {
    let begun = Instant::now();
    let store = Arc::new(request.open()?);
    let ground = Ground::make(request, &store)?;
    keep(rights::to_check(request)).during("giving up rights")?;
    let durability = Durability::new(&store.trace, request.fault);
    let cuts = Cuts::new(&store.trace, &durability, request.seed);
    let planned = cuts.planned(&store.trace, &durability);
    let exploration = Exploration::new(request, &store, &durability, &cuts, ground.as_ref());
    let mut told = None;
    let mut tell = |found: &Found| {
        // The first one at once; then what is much worse.
        let (verdict, lost) = found.finding.severity();
        if told.is_none_or(|told| (verdict, lost / 2) > told) {
            told = Some((verdict, lost));
            say(&Line::Loss(report::loss(&exploration, found)));
        }
    };
    let mut search = |proved: Vec<Found>| -> Result<_> {
        let outcome =
            with_progress(&exploration, planned, begun, || exploration.run(proved, &mut tell))?;
        let minimal = outcome.worst().map(|worst| minimise(&exploration, worst)).transpose()?;
        Ok((outcome, minimal))
    };
    let (mut outcome, mut minimal) = search(Vec::new())?;
    if exploration.is_unsteady() {
        let proved = exploration.begin_anew(outcome);
        (outcome, minimal) = search(proved)?;
    }
    if let Some(minimal) = &minimal {
        say(&report::minimised(&exploration, minimal));
    }
    Ok(report::summary(&exploration, &outcome, minimal.as_ref(), planned, begun))
}

/// A second thread tells how far it is while the work goes on.
pub fn with_progress<T>(
    exploration: &Exploration<'_>,
    planned: u64,
    begun: Instant,
    work: impl FnOnce() -> T,
) -> T {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while stopped
                .recv_timeout(PROGRESS)
                .is_err_and(|why| why == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                report::progress(exploration, planned, begun);
            }
        });
        let done = work();
        drop(stop);
        done
    })
}
