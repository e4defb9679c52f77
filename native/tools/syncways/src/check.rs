//! The check: all ways and all errors, with and without dropping.

use crate::child::ask;
use crate::errno::{Answer, ERRNO_CHECKS};
use crate::judge::{judge_control, judge_dropped, judge_way, Outcome, Seen, Verdict};
use crate::probe::{Sighting, PROBE};
use crate::proof::Proof;
use crate::report::{ErrnoRow, Report, WayRow};
use crate::ways::{find_way, Linkage, Way, CONTROL, WAYS};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// So many that leave nothing dirty show that a way reaches the disk.
const TRIES: usize = 5;
/// With those that somebody else's sync spoils: on a host that syncs all the time most are.
const MOST_TRIES: usize = 60;

/// The two programs that try a way: `diskproof-sync-ways` and `diskproof-sync-ways-dynamic`.
#[derive(Clone, Debug)]
pub struct Probes {
    pub fixed: PathBuf,
    pub dynamic: PathBuf,
}

impl Probes {
    /// Those beside the running program.
    pub fn find() -> Result<Probes, CheckError> {
        let ours = std::env::current_exe().unwrap_or_default();
        let probes = Probes {
            fixed: ours.with_file_name("diskproof-sync-ways"),
            dynamic: ours.with_file_name("diskproof-sync-ways-dynamic"),
        };
        for path in [&probes.fixed, &probes.dynamic] {
            if !path.exists() {
                return Err(CheckError::ProbeMissing(path.clone()));
            }
        }
        Ok(probes)
    }

    fn argv(&self, prefix: &[OsString], linkage: Linkage, rest: &[&str]) -> Vec<OsString> {
        let program = match linkage {
            Linkage::Dynamic => &self.dynamic,
            Linkage::Static => &self.fixed,
        };
        let mut argv = prefix.to_vec();
        argv.extend([program.into(), PROBE.into()]);
        argv.extend(rest.iter().map(OsString::from));
        argv
    }
}

pub struct Setup<'a> {
    /// What starts a program under dropping, such as `diskproof-sync-drop --preload --`. Empty:
    /// nothing is dropped.
    pub prefix: &'a [OsString],
    /// On the file system to try; small files without a name are made here.
    pub folder: &'a Path,
    /// Whether the dropper is to stop this way; decides about the exit code only.
    pub promised: &'a dyn Fn(&Way) -> bool,
    pub probes: &'a Probes,
}

/// Why nothing can be proved.
#[derive(Debug)]
pub enum CheckError {
    ProbeMissing(PathBuf),
    /// No file can be made there.
    Folder(PathBuf, String),
    /// What is written there is not kept in memory, or syncs do not write it.
    NothingToProve(PathBuf, String),
    /// The programs do not answer when nothing is dropped.
    Probe(String),
}

impl fmt::Display for CheckError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProbeMissing(path) => {
                let path = path.display();
                write!(
                    out,
                    "{path} is missing\nIt tries the ways to sync.\nInstall diskproof anew."
                )
            }
            Self::Folder(folder, why) => {
                let folder = folder.display();
                write!(
                    out,
                    "no file can be tried in {folder}\n{why}\nName another folder with --dir."
                )
            }
            Self::NothingToProve(folder, why) => {
                let folder = folder.display();
                write!(
                    out,
                    "nothing can be proved in {folder}\n{why}\n\
                     Name a folder on a disk with --dir, and start the check without a dropper."
                )
            }
            Self::Probe(why) => {
                write!(out, "the program that tries the ways does not answer\n{why}")
            }
        }
    }
}

impl std::error::Error for CheckError {}

/// Tries all ways and errors with and without dropping.
///
/// Without dropping a sync(2) of the whole host is among them. Takes a second or two on an idle
/// host.
pub fn check(setup: &Setup) -> Result<Report, CheckError> {
    let proof = require_proof(setup)?;
    let rows = WAYS.iter().map(|way| check_way(setup, way)).collect();
    Ok(Report {
        folder: setup.folder.display().to_string(),
        dropper: setup.prefix.iter().map(|word| word.to_string_lossy().into()).collect(),
        proof,
        ways: rows,
        errno: check_errno(setup)?,
    })
}

/// What is written stays dirty, and a sync writes it: otherwise a check cannot fail.
fn require_proof(setup: &Setup) -> Result<Proof, CheckError> {
    let folder = || setup.folder.to_path_buf();
    let nothing = |why: String| CheckError::NothingToProve(folder(), why);
    let mut proof = None;
    let plain = collect(setup, &[], &CONTROL, 0, |seen| judge_dropped(seen).0 == Outcome::Stopped);
    for seen in &plain {
        let sighting = seen.as_ref().map_err(|why| CheckError::Probe(why.clone()))?;
        if let Some(refused) = &sighting.refused {
            let why = std::io::Error::from_raw_os_error(refused.errno);
            return Err(CheckError::Folder(folder(), format!("{}: {why}", refused.call)));
        }
        proof = sighting.proof.or(proof);
    }
    if judge_dropped(&plain).0 != Outcome::Stopped {
        return Err(nothing("What is written there does not wait for a disk.".to_owned()));
    }
    match find_way("fsync").map(|way| control(setup, way, 0)) {
        Some((Outcome::Reached, _)) => (),
        verdict => {
            let why = verdict.and_then(|verdict| verdict.1).unwrap_or_default();
            return Err(nothing(format!("An fsync there writes nothing: {why}.")));
        }
    }
    proof.ok_or_else(|| nothing("The kernel does not tell which pages are written.".to_owned()))
}

fn check_way(setup: &Setup, way: &'static Way) -> WayRow {
    let attempts = (0..way.attempts.len()).map(|number| check_attempt(setup, way, number));
    let (outcome, detail) = judge_way(attempts.collect());
    WayRow { way, promised: (setup.promised)(way), outcome, detail }
}

fn check_attempt(setup: &Setup, way: &Way, number: usize) -> Verdict {
    match control(setup, way, number) {
        (Outcome::Reached, _) => {
            let enough = |seen: &[Seen]| judge_dropped(seen).0 == Outcome::Stopped;
            judge_dropped(&collect(setup, setup.prefix, way, number, enough))
        }
        other => other,
    }
}

fn control(setup: &Setup, way: &Way, number: usize) -> Verdict {
    let enough = |seen: &[Seen]| judge_control(seen).0 != Outcome::CannotTell;
    judge_control(&collect(setup, &[], way, number, enough))
}

/// Tries until there are enough, at most `TRIES` times; beside those of which nothing was seen.
fn collect(
    setup: &Setup,
    prefix: &[OsString],
    way: &Way,
    number: usize,
    enough: impl Fn(&[Seen]) -> bool,
) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut argv = setup.probes.argv(prefix, way.linkage, &["way", way.id, &number.to_string()]);
    argv.push(setup.folder.into());
    let mut told = 0;
    while told < TRIES && seen.len() < MOST_TRIES && !enough(&seen) {
        let one: Seen = ask(&argv);
        told += usize::from(!one.as_ref().is_ok_and(Sighting::is_foreign));
        seen.push(one);
    }
    seen
}

type Answers = BTreeMap<String, Vec<Answer>>;

/// What dynamic and static programs are told, compared with what the kernel tells them.
fn check_errno(setup: &Setup) -> Result<Vec<ErrnoRow>, CheckError> {
    let mut rows: Vec<ErrnoRow> = ERRNO_CHECKS.iter().map(ErrnoRow::new).collect();
    for linkage in [Linkage::Dynamic, Linkage::Static] {
        let kernel: Answers =
            ask(&setup.probes.argv(&[], linkage, &["errno"])).map_err(CheckError::Probe)?;
        let dropped: Result<Answers, String> =
            ask(&setup.probes.argv(setup.prefix, linkage, &["errno"]));
        for row in &mut rows {
            let id = row.check.id;
            let given = dropped.as_ref().map(|answers| answers.get(id)).map_err(String::clone);
            row.compare(linkage, kernel.get(id), given);
        }
    }
    Ok(rows)
}
