//! A ledger on a raw image, judged in process: only the slots that differ from what is durable are
//! looked at.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use diskproof_wire::ledger::{check_slot, verify, ReadAt, Slot, SLOT};

use super::acknowledged::Promises;
use super::{Check, Detail, Finding};
use crate::choice::Choice;
use crate::content::{Source, Store};
use crate::cut::{Cut, Pick};
use crate::failure::{During, Failure, Result};
use crate::image::{Key, Touched};
use crate::state::State;

/// Slots that fit into memory: 32 bytes each.
const MAX_SLOTS: u64 = 1 << 26;
const WHAT: &str = "checking the ledger";

/// What a slot holds, as far as that can be said without a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Zeros,
    /// A whole record in its place.
    Whole(u64),
    /// Its bytes must be looked at.
    Other,
}

#[derive(Clone, Copy)]
struct Durable {
    content: Content,
    /// The promised sequence that is lost with it.
    lost: Option<u64>,
}

/// What a state loses.
struct Losses {
    count: u64,
    /// The lowest sequence.
    oldest: Option<u64>,
}

pub struct RawLedger {
    file: u64,
    sector: u64,
    promises: Promises,
    /// The first sequence that lies in each slot.
    first: Vec<u64>,
    durable: Vec<Durable>,
    /// Promised sequences that are not durable, in a state with nothing else.
    durable_lost: BTreeSet<u64>,
    acknowledged: u64,
    /// What writes hold that cover a slot wholly: by record and place in its data.
    known: HashMap<(u64, u64), Content>,
}

impl RawLedger {
    pub fn new(store: &Store, target: &Path) -> Result<RawLedger> {
        let trace = &store.trace;
        let file = require_target(store, target)?;
        let promises = Promises::read(trace)?;
        let geometry = promises.geometry;
        if geometry.slots > MAX_SLOTS {
            return Err(Failure::new(WHAT, format!("{} slots are too many", geometry.slots)));
        }
        let none = Durable { content: Content::Zeros, lost: None };
        Ok(RawLedger {
            file,
            sector: trace.sector,
            first: (0..geometry.slots).map(|slot| geometry.first_sequence(slot)).collect(),
            durable: vec![none; geometry.slots as usize],
            durable_lost: BTreeSet::new(),
            acknowledged: 0,
            known: HashMap::new(),
            promises,
        })
    }

    /// The slots that overlap a run of sectors.
    fn slots(&self, start: u64, end: u64) -> std::ops::Range<u64> {
        let geometry = &self.promises.geometry;
        let from = (start * self.sector).saturating_sub(geometry.offset) / SLOT as u64;
        let behind = end.saturating_mul(self.sector).saturating_sub(geometry.offset);
        let to = behind.div_ceil(SLOT as u64).min(geometry.slots);
        from..to.max(from)
    }

    fn take_durable(&mut self, nothing: &State<'_, '_, '_>, slot: u64) -> io::Result<()> {
        let geometry = self.promises.geometry;
        let position = geometry.position(slot);
        let sectors = (position / self.sector, (position + SLOT as u64).div_ceil(self.sector));
        let runs = nothing.runs(self.file, sectors.0, sectors.1);
        let whole = position + SLOT as u64 <= nothing.size(self.file);
        let content = match runs[..] {
            [ref run] if whole && run.start * self.sector <= position && run.end >= sectors.1 => {
                let source = run.source.after(position - run.start * self.sector);
                self.content(nothing, slot, Some(&source))?
            }
            _ => self.content(nothing, slot, None)?,
        };
        self.durable[slot as usize].content = content;
        Ok(())
    }

    /// `source`: where the whole slot is, if it has one source.
    fn content(
        &mut self,
        state: &State<'_, '_, '_>,
        slot: u64,
        source: Option<&Source>,
    ) -> io::Result<Content> {
        let key = match source {
            Some(Source::Zero) => return Ok(Content::Zeros),
            Some(Source::Write { sequence, skip }) => Some((*sequence, *skip)),
            _ => None,
        };
        if let Some(known) = key.and_then(|key| self.known.get(&key)) {
            return Ok(*known);
        }
        let mut bytes = [0; SLOT];
        let geometry = &self.promises.geometry;
        state.read(self.file, geometry.position(slot), &mut bytes)?;
        let content = match check_slot(geometry, slot, 0, &bytes) {
            Slot::Holds(sequence) => Content::Whole(sequence),
            _ if crate::content::is_zero(&bytes) => Content::Zeros,
            _ => Content::Other,
        };
        if let Some(key) = key {
            self.known.insert(key, content);
        }
        Ok(content)
    }

    /// The promise that the slot must keep.
    fn expected(&self, slot: u64) -> Option<u64> {
        let (first, slots) = (self.first[slot as usize], self.promises.geometry.slots);
        let rounds = self.acknowledged.checked_sub(first)? / slots;
        Some(first + rounds * slots)
    }

    /// The promised sequence that is not in a slot.
    fn find_lost(
        &self,
        state: &State<'_, '_, '_>,
        slot: u64,
        content: Content,
    ) -> io::Result<Option<u64>> {
        let Some(expected) = self.expected(slot) else { return Ok(None) };
        let is_lost = match content {
            Content::Zeros => true,
            Content::Whole(sequence) => sequence < expected,
            Content::Other => {
                let geometry = &self.promises.geometry;
                let mut bytes = [0; SLOT];
                state.read(self.file, geometry.position(slot), &mut bytes)?;
                let found = check_slot(geometry, slot, self.acknowledged, &bytes);
                matches!(found, Slot::Lost { .. })
            }
        };
        Ok(is_lost.then_some(expected))
    }

    /// Only slots whose content or whose promise has changed since the last cut are looked at.
    fn begin_slots(
        &mut self,
        cut: &Cut<'_, '_>,
        acknowledged: u64,
        changed: Option<&Touched>,
    ) -> io::Result<()> {
        let nothing = cut.state(&Choice::Nothing)?;
        let geometry = self.promises.geometry;
        let before = std::mem::replace(&mut self.acknowledged, acknowledged);
        let slots: Vec<u64> = match (changed, acknowledged.checked_sub(before)) {
            (Some(changed), Some(more)) if more < geometry.slots => {
                let ours = changed.iter().filter(|run| run.0 == self.file);
                let written = ours.flat_map(|&(_, start, end)| self.slots(start, end));
                let promised =
                    (before + 1..=acknowledged).map(|sequence| geometry.slot_of(sequence));
                written.chain(promised).collect()
            }
            _ => (0..geometry.slots).collect(),
        };
        for slot in slots {
            self.take_durable(&nothing, slot)?;
            let durable = self.durable[slot as usize];
            let lost = self.find_lost(&nothing, slot, durable.content)?;
            if let Some(before) = durable.lost {
                self.durable_lost.remove(&before);
            }
            self.durable_lost.extend(lost);
            self.durable[slot as usize].lost = lost;
        }
        Ok(())
    }

    fn count_lost(&mut self, state: &State<'_, '_, '_>) -> io::Result<Losses> {
        // Lost here and not in the durable state, and the other way round.
        let (mut more, mut less) = (Vec::new(), Vec::new());
        let size = state.size(self.file);
        let mut next = 0;
        for (piece, pick) in state.cut.pieces.iter().zip(&state.picks) {
            let (Key::Data(file, start), false) = (&piece.key, *pick == Pick::Version(0)) else {
                continue;
            };
            if *file != self.file {
                continue;
            }
            for slot in self.slots(*start, piece.end) {
                if slot < next {
                    continue;
                }
                next = slot + 1;
                let position = self.promises.geometry.position(slot);
                let from = start * self.sector;
                let covers = from <= position
                    && position + SLOT as u64 <= piece.end.saturating_mul(self.sector);
                let covers = covers && position + SLOT as u64 <= size;
                let source = match pick {
                    Pick::Version(at) if covers => Some(piece.source(*at).after(position - from)),
                    _ => None,
                };
                let content = self.content(state, slot, source.as_ref())?;
                let lost = self.find_lost(state, slot, content)?;
                let durable = self.durable[slot as usize].lost;
                if lost != durable {
                    more.extend(lost);
                    less.extend(durable);
                }
            }
        }
        let count = (self.durable_lost.len() + more.len() - less.len()) as u64;
        less.sort_unstable();
        let durable = self.durable_lost.iter().find(|lost| less.binary_search(lost).is_err());
        Ok(Losses { count, oldest: durable.into_iter().chain(&more).min().copied() })
    }
}

impl Check for RawLedger {
    fn begin(&mut self, cut: &Cut<'_, '_>, changed: Option<&Touched>) -> Result<()> {
        let acknowledged = self.promises.at(cut.sequence);
        self.begin_slots(cut, acknowledged, changed).during(WHAT)
    }

    fn promise(&self) -> u64 {
        self.acknowledged
    }

    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding> {
        let losses = self.count_lost(state).during(WHAT)?;
        let since = losses.oldest.map(|sequence| self.promises.since(sequence));
        Ok(Finding::loses(losses.count, since))
    }

    fn detail(&mut self, state: &State<'_, '_, '_>) -> Result<Detail> {
        let mut bytes = StateBytes { state, file: self.file };
        let report = verify(&mut bytes, &self.promises.geometry, self.acknowledged);
        Ok(self.promises.detail(report.during(WHAT)?, state.cut.moment_ns))
    }
}

/// The content of one file of a state.
struct StateBytes<'a, 'c, 'i, 's> {
    state: &'a State<'c, 'i, 's>,
    file: u64,
}

impl ReadAt for StateBytes<'_, '_, '_, '_> {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.state.read(self.file, offset, buffer)
    }
}

/// The file that a path in a request names.
pub fn require_target(store: &Store, target: &Path) -> Result<u64> {
    let found = store.trace.find_base_file(target).filter(|file| store.base.has(*file));
    found.ok_or_else(|| {
        Failure::new("finding the target", format!("{} is no file of the base", target.display()))
    })
}
