//! What tries with and without dropping prove. Pure.

use crate::probe::{Refused, Sighting};
use serde::Serialize;

/// A sighting, or why there is none.
pub type Seen = Result<Sighting, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Stopped,
    Reached,
    NotSupported,
    CannotTell,
}

impl Outcome {
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Outcome::Stopped => "stopped",
            Outcome::Reached => "reached the disk",
            Outcome::NotSupported => "not supported here",
            Outcome::CannotTell => "cannot tell",
        }
    }
}

/// An outcome and what a reader should know about it, if anything.
pub type Verdict = (Outcome, Option<String>);

const FOREIGN: &str = "others' files were synced, too: by somebody else or the file system";

/// What tries without dropping show: `Reached` is what makes the way a proof.
///
/// One try is enough to see pages that are still dirty; that none is left may have another cause
/// (somebody else's sync), so a page must have been dirty before where that can be seen.
pub fn judge_control(tries: &[Seen]) -> Verdict {
    let mut last = (Outcome::CannotTell, Some("it was not tried".to_owned()));
    for seen in tries {
        last = match seen {
            Err(reason) => (Outcome::CannotTell, Some(reason.clone())),
            Ok(Sighting { refused: Some(refused), .. }) => {
                return (Outcome::NotSupported, Some(render_refused(refused)))
            }
            Ok(sighting) if sighting.before == Some(0) => {
                (Outcome::CannotTell, Some("nothing was dirty before it".to_owned()))
            }
            Ok(sighting) if sighting.after == Some(0) => return (Outcome::Reached, None),
            Ok(_) => (
                Outcome::CannotTell,
                Some("it does not reach the disk without dropping either".to_owned()),
            ),
        };
    }
    last
}

/// What tries under dropping show, of a way that reaches the disk without.
///
/// A page that is dirty after a single try proves that the way does not sync: then later tries are
/// not needed. That a page is clean each time proves that it does, unless the file beside it was,
/// too: then somebody else has synced.
pub fn judge_dropped(tries: &[Seen]) -> Verdict {
    let mut reason = None;
    let (mut clean, mut foreign) = (false, false);
    for seen in tries {
        match seen {
            Err(words) => reason = Some(words.clone()),
            Ok(Sighting { refused: Some(refused), .. }) => {
                return (Outcome::Stopped, Some(render_refused(refused)))
            }
            Ok(sighting) if sighting.after.is_some_and(|pages| pages > 0) => {
                return (Outcome::Stopped, None)
            }
            Ok(sighting) if sighting.is_foreign() => foreign = true,
            Ok(_) => clean = true,
        }
    }
    match reason {
        _ if clean => (Outcome::Reached, None),
        None if foreign => (Outcome::CannotTell, Some(FOREIGN.to_owned())),
        words => (Outcome::CannotTell, words),
    }
}

/// A way is as good as the worst of its attempts; those that are not supported do not count,
/// unless all are.
pub fn judge_way(attempts: Vec<Verdict>) -> Verdict {
    let badness = |outcome| match outcome {
        Outcome::NotSupported => 0,
        Outcome::Stopped => 1,
        Outcome::CannotTell => 2,
        Outcome::Reached => 3,
    };
    let worst = attempts.into_iter().rev().max_by_key(|(outcome, _)| badness(*outcome));
    worst.unwrap_or((Outcome::CannotTell, None))
}

fn render_refused(refused: &Refused) -> String {
    let reason = std::io::Error::from_raw_os_error(refused.errno);
    format!("refused: {}: {reason}", refused.call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(before: Option<u64>, after: u64) -> Seen {
        Ok(Sighting { before, after: Some(after), ..Sighting::default() })
    }

    #[test]
    fn what_somebody_else_synced_is_no_proof() {
        let synced = |beside| {
            let seen = Sighting { before: Some(4), after: Some(0), ..Sighting::default() };
            Ok(Sighting { beside, ..seen })
        };
        let (outcome, words) = judge_dropped(&[synced(Some(0)), synced(Some(0))]);
        assert_eq!(outcome, Outcome::CannotTell);
        assert!(words.unwrap().contains("somebody else"));
        assert_eq!(judge_dropped(&[synced(Some(0)), synced(Some(4))]).0, Outcome::Reached);
        assert_eq!(judge_dropped(&[synced(None)]).0, Outcome::Reached);
        assert_eq!(judge_dropped(&[synced(Some(0)), seen(Some(4), 1)]).0, Outcome::Stopped);
    }

    fn refused() -> Seen {
        let refused = Some(Refused { call: "io_uring_setup".to_owned(), errno: libc::ENOSYS });
        Ok(Sighting { refused, ..Sighting::default() })
    }

    #[test]
    fn a_control_that_stays_dirty_proves_nothing() {
        assert_eq!(judge_control(&[seen(Some(4), 4)]).0, Outcome::CannotTell);
        assert_eq!(judge_control(&[seen(Some(0), 0)]).0, Outcome::CannotTell);
        assert_eq!(judge_control(&[Err("died".into())]).0, Outcome::CannotTell);
        assert_eq!(judge_control(&[]).0, Outcome::CannotTell);
        assert_eq!(judge_control(&[seen(Some(0), 0), seen(Some(4), 0)]).0, Outcome::Reached);
        assert_eq!(judge_control(&[seen(None, 0)]).0, Outcome::Reached);
        let (outcome, words) = judge_control(&[refused()]);
        assert_eq!(outcome, Outcome::NotSupported);
        assert!(words.unwrap().contains("io_uring_setup: Function not implemented"));
    }

    #[test]
    fn one_dirty_page_after_one_try_is_proof_that_it_was_stopped() {
        assert_eq!(judge_dropped(&[seen(Some(4), 1)]).0, Outcome::Stopped);
        assert_eq!(judge_dropped(&[refused()]).0, Outcome::Stopped);
        assert_eq!(judge_dropped(&[seen(Some(4), 0)]).0, Outcome::Reached);
        assert_eq!(judge_dropped(&[seen(None, 0)]).0, Outcome::Reached);
        assert_eq!(judge_dropped(&[seen(Some(0), 0)]).0, Outcome::CannotTell);
        assert_eq!(judge_dropped(&[Err("died".into())]).0, Outcome::CannotTell);
        assert_eq!(judge_dropped(&[]).0, Outcome::CannotTell);
    }

    #[test]
    fn a_way_is_as_good_as_its_worst_attempt() {
        use Outcome::{CannotTell, NotSupported, Reached, Stopped};
        let judged = |outcomes: &[Outcome]| {
            judge_way(outcomes.iter().map(|&outcome| (outcome, None)).collect()).0
        };
        assert_eq!(judged(&[Stopped, Reached, CannotTell]), Reached);
        assert_eq!(judged(&[Stopped, CannotTell]), CannotTell);
        assert_eq!(judged(&[NotSupported, Stopped]), Stopped);
        assert_eq!(judged(&[NotSupported, NotSupported]), NotSupported);
        assert_eq!(judged(&[]), CannotTell);
    }

    proptest! {
        /// Clean pages by somebody else's sync never hide a dirty page, in any order.
        #[test]
        fn the_order_of_tries_does_not_matter(
            afters in prop::collection::vec(0_u64..3, 1..6),
        ) {
            let tries: Vec<Seen> = afters.iter().map(|&after| seen(Some(4), after)).collect();
            let stopped = afters.iter().any(|&after| after > 0);
            let expected = if stopped { Outcome::Stopped } else { Outcome::Reached };
            prop_assert_eq!(judge_dropped(&tries).0, expected);
        }
    }
}
