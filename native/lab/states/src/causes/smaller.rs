//! From a state that lost something to the operations of which each one is needed for that.

use std::time::Instant;

use super::known::absent;
use crate::checks::{Check, Finding};
use crate::choice::Presence;
use crate::cut::Cut;
use crate::explore::Exploration;
use crate::failure::{During, Result};
use crate::judge::judge;
use crate::minimise::ddmin;

const WHAT: &str = "making a cause smaller";

/// One cut, its judge, and how long there is.
pub struct Bench<'a, 'e, 'c, 'i, 's> {
    pub exploration: &'a Exploration<'e>,
    pub cut: &'c Cut<'i, 's>,
    pub check: &'a mut dyn Check,
    pub until: Instant,
}

impl Bench<'_, '_, '_, '_, '_> {
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.exploration.is_to_begin_anew()
    }

    pub fn judge(&mut self, presences: &[Presence]) -> Result<Finding> {
        let state = self.cut.state_of(presences.to_vec()).during(WHAT)?;
        judge(self.exploration, self.check, &state).map(|judged| judged.finding)
    }

    /// Of `start`, these absent, and what cannot be there without them.
    fn with_absent(&self, start: &[Presence], absent: &[usize]) -> Vec<Presence> {
        let mut presences = vec![Presence::Present; start.len()];
        for &at in absent {
            presences[at] = start[at].clone();
        }
        self.cut.without_orphans(presences)
    }

    /// None: the time is up.
    fn loses(&mut self, presences: &[Presence], least: Finding) -> Result<Option<bool>> {
        if self.is_over() {
            return Ok(None);
        }
        Ok(Some(self.judge(presences)?.verdict >= least.verdict))
    }

    /// The fewest absent operations that lose as badly as `start` does; None: the time is up.
    ///
    /// What is missing only because an earlier name is counts as missing: the later of two names
    /// is the cause when it is one by itself.
    pub fn smaller(&mut self, start: &[Presence], least: Finding) -> Result<Option<Vec<Presence>>> {
        let mut newest_first = absent(start);
        newest_first.reverse();
        let loses = |some: &[usize]| {
            let presences = self.with_absent(start, some);
            self.loses(&presences, least)
        };
        let (left, is_sure) = ddmin(newest_first, loses)?;
        if !is_sure {
            return Ok(None);
        }
        let mut smallest = self.with_absent(start, &left);
        for at in absent(&smallest) {
            let mut less = smallest.clone();
            self.cut.put_back(&mut less, at);
            if absent(&less).is_empty() || less == smallest {
                continue;
            }
            match self.loses(&less, least)? {
                None => return Ok(None),
                Some(true) => smallest = less,
                Some(false) => {}
            }
        }
        self.wholly_missing(smallest, least).map(Some)
    }

    /// What loses as badly when it is missing as when it is torn is missing.
    fn wholly_missing(
        &mut self,
        mut found: Vec<Presence>,
        least: Finding,
    ) -> Result<Vec<Presence>> {
        for at in absent(&found) {
            if matches!(found[at], Presence::Torn(_)) {
                let mut whole = found.clone();
                whole[at] = Presence::Missing;
                if self.loses(&whole, least)? == Some(true) {
                    found = whole;
                }
            }
        }
        Ok(found)
    }
}
