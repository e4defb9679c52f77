//! Verdicts that states share: what was found of one counts for all that are equal in what its
//! check read.
//!
//! A check may also read what is in no state: a clock, random numbers, other files. So some states
//! are checked all the same, and one that comes out otherwise ends the sharing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use diskproof_random::mix;

use crate::content::Store;
use crate::equal::{Equals, Learnt, Reply};
use crate::failure::{During, Result};
use crate::reads::{Answerer, Read};
use crate::snapshot::Snapshot;
use crate::trace::{Change, Trace};

const WHAT: &str = "comparing what checks read";
/// The first states that could do without a check have one, and of the others one of so many.
const FIRST: u64 = 16;
const ONE_OF: u64 = 50;

pub struct Sharing {
    /// All that anything is called in any state: that another name is not there says nothing.
    names: HashSet<Arc<[u8]>>,
    equals: RwLock<Equals>,
    unsteady: AtomicBool,
    asked: AtomicU64,
}

impl Sharing {
    pub fn new(trace: &Trace) -> Sharing {
        let base = trace.base.iter().map(|((_, name), ..)| name);
        let changes = trace.events.iter().zip(1..).filter_map(|(_, at)| match trace.change(at) {
            Some(Change::Names { sets, .. }) => Some(sets.iter().map(|((_, name), _)| name)),
            _ => None,
        });
        Sharing {
            names: base.chain(changes.flatten()).cloned().collect(),
            equals: RwLock::default(),
            unsteady: AtomicBool::new(false),
            asked: AtomicU64::new(0),
        }
    }

    /// What the check found of a state that equals this one in all that was read of it.
    pub fn recall(&self, store: &Store, snapshot: &Snapshot) -> Result<Option<Reply>> {
        if self.is_unsteady() {
            return Ok(None);
        }
        let answerer = Answerer { store, snapshot };
        let equals = self.equals.read().unwrap_or_else(PoisonError::into_inner);
        equals.recall(|read| answerer.answer(read)).during(WHAT)
    }

    pub fn learn(
        &self,
        store: &Store,
        snapshot: &Snapshot,
        reads: Vec<Read>,
        reply: Reply,
    ) -> Result<()> {
        if self.is_unsteady() {
            return Ok(());
        }
        let answerer = Answerer { store, snapshot };
        let mut run = Vec::with_capacity(reads.len());
        for read in reads.into_iter().filter(|read| self.tells(read)) {
            let answer = answerer.answer(&read).during(WHAT)?;
            run.push((read, answer));
        }
        let mut equals = self.equals.write().unwrap_or_else(PoisonError::into_inner);
        if equals.learn(run, reply) == Learnt::Contradicts {
            self.give_up();
        }
        Ok(())
    }

    fn tells(&self, read: &Read) -> bool {
        let is_known = |name: &OsStr| self.names.contains(name.as_bytes());
        !matches!(read, Read::Name(_, name) if !is_known(name))
    }

    /// Whether a state is checked although it is known what will be found.
    pub fn samples(&self, key: u64) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) < FIRST || mix(!key) % ONE_OF == 0
    }

    /// The check has said two things of what is the same.
    pub fn give_up(&self) {
        self.unsteady.store(true, Ordering::Relaxed);
    }

    pub fn is_unsteady(&self) -> bool {
        self.unsteady.load(Ordering::Relaxed)
    }
}
