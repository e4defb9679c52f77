//! What judges a state. Each kind is one file.

pub mod acknowledged;
mod child;
mod command;
mod daemon;
mod format_ledger;
mod image_check;
pub mod raw_ledger;
mod standing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use serde::Serialize;

use crate::content::Store;
use crate::cut::Cut;
use crate::failure::{During, Result};
use crate::image::Touched;
use crate::mounting::Workplace;
use crate::request::{CheckRequest, Format, Request};
use crate::sharing::Sharing;
use crate::state::State;
use crate::view::View;
use child::Readers;
use command::CommandCheck;
use format_ledger::FormatLedger;
use image_check::ImageCheck;
use raw_ledger::{require_target, RawLedger};

/// From good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Keeps,
    Loses,
    Corrupts,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Keeps => "keeps",
            Verdict::Loses => "loses",
            Verdict::Corrupts => "corrupts",
        }
    }
}

/// Larger is worse: the word, then how much is lost.
pub type Severity = (Verdict, u64);

/// What a check found in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// Acknowledged writes that are not there.
    pub lost: u64,
    /// When the oldest of them was acknowledged, on the log's clock; None: nobody knows.
    #[serde(skip)]
    pub since_ns: Option<u64>,
}

impl Finding {
    pub const KEEPS: Finding = Finding { verdict: Verdict::Keeps, lost: 0, since_ns: None };

    pub fn loses(lost: u64, since_ns: Option<u64>) -> Finding {
        if lost == 0 {
            return Finding::KEEPS;
        }
        Finding { verdict: Verdict::Loses, lost, since_ns }
    }

    pub fn corrupts(lost: u64, since_ns: Option<u64>) -> Finding {
        Finding { verdict: Verdict::Corrupts, lost, since_ns }
    }

    /// How old the oldest lost write is at a crash at that moment.
    pub fn age_ns(&self, moment_ns: u64) -> Option<u64> {
        self.since_ns.map(|since| moment_ns.saturating_sub(since))
    }

    pub fn severity(&self) -> Severity {
        (self.verdict, self.lost)
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        self.verdict != Verdict::Keeps
    }
}

/// A finding for people and for the report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Detail {
    /// How long before the crash the oldest lost write had been acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<diskproof_wire::ledger::Report>,
    /// What the program said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// One thread's judge.
pub trait Check: Send {
    /// A new cut. `changed`: runs of sectors whose durable content changed since the last one;
    /// None: anything may have.
    fn begin(&mut self, cut: &Cut<'_, '_>, changed: Option<&Touched>) -> Result<()>;
    /// What was promised at this cut: states that hold the same are judged the same when this is
    /// the same.
    fn promise(&self) -> u64;
    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding>;
    /// What `check` would find, if that is known.
    fn recall(&mut self, _state: &State<'_, '_, '_>) -> Result<Option<Finding>> {
        Ok(None)
    }
    /// More about a state that `check` has just judged.
    fn detail(&mut self, state: &State<'_, '_, '_>) -> Result<Detail>;
}

/// Where states can be seen as files, for programs that judge them.
pub struct Ground {
    pub store: Arc<Store>,
    pub view: View,
    /// None: each state is judged by itself.
    pub sharing: Option<Sharing>,
    workplace: Workplace,
    readers: Readers,
    next: AtomicU64,
}

impl Ground {
    /// None for a check that needs none. Call while there is one thread.
    pub fn make(request: &Request, store: &Arc<Store>) -> Result<Option<Ground>> {
        let ours = || rustix::process::geteuid().as_raw();
        let reader = || request.confined.as_ref().and_then(|confined| confined.user);
        let owner = match request.check {
            CheckRequest::Ledger { format: Format::Raw, .. } => return Ok(None),
            CheckRequest::Ledger { .. } | CheckRequest::Image { .. } => {
                Some(reader().unwrap_or_else(ours))
            }
            CheckRequest::Command { .. } => None,
        };
        let admitted = owner.and_then(|_| reader());
        let workplace = Workplace::make(admitted).during("making a directory for states")?;
        let view = View::mount(store, &workplace.mountpoint(), owner)?;
        let readers = Readers::new(request.confined.as_ref(), &workplace.path);
        let store = store.clone();
        let shares = matches!(request.check, CheckRequest::Command { share_reads: true, .. });
        let sharing = shares.then(|| Sharing::new(&store.trace));
        Ok(Some(Ground { store, view, sharing, workplace, readers, next: AtomicU64::new(0) }))
    }

    /// A folder that stays, beside the states.
    pub fn folder(&self) -> &Path {
        &self.workplace.path
    }

    /// For a file or socket; never the same again.
    pub fn new_path(&self, name: &str) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.workplace.path.join(format!("{name}-{number}"))
    }
}

/// A judge for each thread.
#[expect(
    clippy::expect_used,
    reason = "the explorer makes a ground for every check that looks at files"
)]
pub fn make_check<'s>(
    request: &CheckRequest,
    store: &'s Store,
    ground: Option<&'s Ground>,
) -> Result<Box<dyn Check + 's>> {
    let ground = || ground.expect("checks that look at files have a ground");
    Ok(match request {
        CheckRequest::Ledger { target, format: Format::Raw } => {
            Box::new(RawLedger::new(store, target)?)
        }
        CheckRequest::Ledger { target, format } => {
            let target = check_target(store, target)?;
            Box::new(FormatLedger::new(ground(), target, *format)?)
        }
        CheckRequest::Image { target, format } => {
            Box::new(ImageCheck::new(ground(), check_target(store, target)?, *format))
        }
        CheckRequest::Command { argv, timeout_seconds, stays, .. } => {
            Box::new(CommandCheck::new(ground(), argv, *timeout_seconds, *stays)?)
        }
    })
}

fn check_target(store: &Store, target: &Path) -> Result<PathBuf> {
    require_target(store, target).map(|_| target.to_owned())
}
