//! The outcome as a record, as a table for people and as JSON.

use crate::errno::{Answer, ErrnoCheck};
use crate::judge::Outcome;
use crate::proof::Proof;
use crate::ways::{Linkage, Way};
use diskproof_words::plain_reason;
use serde_json::{json, Value};
use std::fmt::Write;

pub struct Report {
    pub folder: String,
    /// argv that started the dropped tries.
    pub dropper: Vec<String>,
    pub proof: Proof,
    pub ways: Vec<WayRow>,
    pub errno: Vec<ErrnoRow>,
}

pub struct WayRow {
    pub way: &'static Way,
    pub promised: bool,
    pub outcome: Outcome,
    pub detail: Option<String>,
}

pub struct ErrnoRow {
    pub check: &'static ErrnoCheck,
    /// What differs, in words; empty when each answer is the kernel's own.
    pub differences: Vec<String>,
}

impl ErrnoRow {
    pub(crate) fn new(check: &'static ErrnoCheck) -> ErrnoRow {
        ErrnoRow { check, differences: Vec::new() }
    }

    #[must_use]
    pub fn same(&self) -> bool {
        self.differences.is_empty()
    }

    /// Notes where the answers under dropping are not the kernel's.
    pub(crate) fn compare(
        &mut self,
        linkage: Linkage,
        kernel: Option<&Vec<Answer>>,
        dropped: Result<Option<&Vec<Answer>>, String>,
    ) {
        let program = linkage_word(linkage);
        match (kernel, dropped) {
            (Some(kernel), Ok(Some(dropped))) if kernel.len() == dropped.len() => {
                let pairs = kernel.iter().zip(dropped).filter(|(kernel, got)| kernel != got);
                self.differences.extend(pairs.map(|(kernel, got)| {
                    let (said, told) = (render_answer(kernel), render_answer(got));
                    format!("{program} {}: {told} instead of {said}", kernel.call)
                }));
            }
            (_, Err(why)) => self.differences.push(format!("{program}: {why}")),
            _ => self.differences.push(format!("{program}: no answer")),
        }
    }
}

fn render_answer(answer: &Answer) -> String {
    if answer.errno == crate::errno_calls::SENTINEL {
        return format!("{}", answer.returned);
    }
    let words = plain_reason(&std::io::Error::from_raw_os_error(answer.errno));
    format!("{} ({})", answer.returned, if answer.errno == 0 { "errno 0" } else { &words })
}

fn linkage_word(linkage: Linkage) -> &'static str {
    match linkage {
        Linkage::Dynamic => "dynamic",
        Linkage::Static => "static",
    }
}

impl Report {
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.ways.iter().filter(|row| row.outcome == outcome).count()
    }

    #[must_use]
    pub fn errno_same(&self) -> usize {
        self.errno.iter().filter(|row| row.same()).count()
    }

    /// 1 when a promised way reaches the disk or an error is not the kernel's own; 3 when that
    /// could not be told of a promised way; otherwise 0.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let broken = |outcome| self.ways.iter().any(|row| row.promised && row.outcome == outcome);
        if broken(Outcome::Reached) || self.errno_same() < self.errno.len() {
            1
        } else if broken(Outcome::CannotTell) {
            3
        } else {
            0
        }
    }
}

/// For people; ends with a newline.
#[must_use]
pub fn render_table(report: &Report) -> String {
    let mut out = String::new();
    let some_promised = report.ways.iter().any(|row| row.promised);
    for (number, row) in (1..).zip(&report.ways) {
        let leaks = some_promised && row.outcome == Outcome::Reached && !row.promised;
        let open = if leaks { ", not promised" } else { "" };
        let detail = row.detail.as_ref().map(|words| format!(" ({words})")).unwrap_or_default();
        let words = row.outcome.words();
        let _ = writeln!(out, "{number:2}  {:40}  {words}{open}{detail}", row.way.how);
    }
    let _ = writeln!(out);
    for (number, row) in (1..).zip(&report.errno) {
        let same = if row.same() { "as without dropping" } else { "differs" };
        let detail = row.differences.first().map(|words| format!(" ({words})")).unwrap_or_default();
        let _ = writeln!(out, "{number:2}  {:40}  {same}{detail}", row.check.what);
    }
    let _ = writeln!(out, "\n{}", render_sum(report));
    out
}

fn render_sum(report: &Report) -> String {
    let proof = match report.proof {
        Proof::Cachestat => "cachestat",
        Proof::Fiemap => "extents not yet allocated",
    };
    let others = [Outcome::Reached, Outcome::NotSupported, Outcome::CannotTell];
    let mut parts =
        vec![format!("{} of {} ways stopped", report.count(Outcome::Stopped), report.ways.len())];
    parts.extend(
        others
            .into_iter()
            .filter(|&outcome| report.count(outcome) > 0)
            .map(|outcome| format!("{} {}", report.count(outcome), outcome.words())),
    );
    format!(
        "{} (seen by {proof} in {}); {} of {} errors as without dropping.",
        parts.join(", "),
        report.folder,
        report.errno_same(),
        report.errno.len(),
    )
}

/// One object; names and meaning stay.
#[must_use]
pub fn render_json(report: &Report) -> Value {
    let ways: Vec<Value> = report.ways.iter().map(render_way).collect();
    let errno: Vec<Value> = report.errno.iter().map(render_errno).collect();
    json!({
        "folder": report.folder,
        "dropper": report.dropper,
        "proof": report.proof,
        "stopped": report.count(Outcome::Stopped),
        "ways": ways,
        "errno_same": report.errno_same(),
        "errno": errno,
    })
}

fn render_way(row: &WayRow) -> Value {
    json!({
        "id": row.way.id,
        "how": row.way.how,
        "program": linkage_word(row.way.linkage),
        "promised": row.promised,
        "result": row.outcome,
        "detail": row.detail,
    })
}

fn render_errno(row: &ErrnoRow) -> Value {
    json!({
        "id": row.check.id,
        "what": row.check.what,
        "same": row.same(),
        "differences": row.differences,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::ERRNO_CHECKS;
    use crate::ways::WAYS;
    use Outcome::{CannotTell, NotSupported, Reached, Stopped};

    /// What is said of each way, and which are promised; all errors are right.
    fn report(outcome: impl Fn(&Way) -> Outcome, promised: impl Fn(&Way) -> bool) -> Report {
        let row = |way: &'static Way| WayRow {
            way,
            promised: promised(way),
            outcome: outcome(way),
            detail: None,
        };
        Report {
            folder: "/srv".to_owned(),
            dropper: vec!["drop".to_owned()],
            proof: Proof::Cachestat,
            ways: WAYS.iter().map(row).collect(),
            errno: ERRNO_CHECKS.iter().map(ErrnoRow::new).collect(),
        }
    }

    fn uring(way: &Way) -> bool {
        way.id.starts_with("io_uring")
    }

    #[test]
    fn only_promises_decide_about_the_exit_code() {
        let leak = |way: &Way| if uring(way) { Reached } else { Stopped };
        assert_eq!(report(leak, |_| true).exit_code(), 1);
        assert_eq!(report(leak, |way| !uring(way)).exit_code(), 0);
        let blind = |way: &Way| if uring(way) { CannotTell } else { Stopped };
        assert_eq!(report(blind, |_| true).exit_code(), 3);
        let old = |way: &Way| if uring(way) { NotSupported } else { Stopped };
        assert_eq!(report(old, |_| true).exit_code(), 0);
    }

    #[test]
    fn one_wrong_errno_is_enough() {
        let answer = |returned, errno| Answer { call: "fsync".to_owned(), returned, errno };
        let mut report = report(|_| Stopped, |_| true);
        let kernel = vec![answer(-1, libc::EBADF)];
        report.errno[0].compare(Linkage::Static, Some(&kernel), Ok(Some(&kernel)));
        assert_eq!((report.exit_code(), report.errno_same()), (0, 15));
        let lie = vec![answer(0, crate::errno_calls::SENTINEL)];
        report.errno[0].compare(Linkage::Static, Some(&kernel), Ok(Some(&lie)));
        assert_eq!((report.exit_code(), report.errno_same()), (1, 14));
        let told = &report.errno[0].differences[0];
        assert_eq!(told, "static fsync: 0 instead of -1 (Bad file descriptor)");
        for silent in [Ok(None), Ok(Some(&Vec::new())), Err("it died".to_owned())] {
            report.errno[1].differences.clear();
            report.errno[1].compare(Linkage::Dynamic, Some(&kernel), silent);
            assert!(!report.errno[1].same());
        }
    }

    #[test]
    fn the_table_marks_what_was_not_promised_and_sums_up() {
        let leak = |way: &Way| if uring(way) { Reached } else { Stopped };
        let table = render_table(&report(leak, |way| !uring(way)));
        assert_eq!(table.matches("reached the disk, not promised").count(), 3);
        assert!(table.ends_with(
            "20 of 23 ways stopped, 3 reached the disk (seen by cachestat in /srv); \
             15 of 15 errors as without dropping.\n"
        ));
        assert!(!render_table(&report(leak, |_| false)).contains("promised"));
        let json = render_json(&report(leak, |way| !uring(way)));
        assert_eq!((&json["stopped"], &json["errno_same"]), (&json!(20), &json!(15)));
        assert_eq!(json["ways"][17]["result"], "reached");
    }
}
