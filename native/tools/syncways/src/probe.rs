//! The program under test: tries one way, looks, and prints what it saw as one line of JSON.

use crate::child::PATIENCE;
use crate::errno::{find_errno_check, ERRNO_CHECKS};
use crate::proof::Proof;
use crate::scratch::Scratch;
use crate::ways::{find_way, Try, Way, CONTROL};
use crate::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// First argument of both programs that makes them a probe.
pub const PROBE: &str = "probe";

/// What one try showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub proof: Option<Proof>,
    /// Pages not on the disk before the sync; None where the write is the sync.
    pub before: Option<u64>,
    /// Pages not on the disk afterwards; None when the way was refused.
    pub after: Option<u64>,
    /// The same of a file beside it that the way has nothing to do with; None where the way syncs
    /// all files.
    pub beside: Option<u64>,
    pub refused: Option<Refused>,
}

impl Sighting {
    /// Nothing was seen of the way: somebody else synced that file system.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        let synced = self.before == Some(0) || self.beside == Some(0);
        self.refused.is_none() && self.after == Some(0) && synced
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub call: String,
    pub errno: i32,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused { call: failure.call.to_owned(), errno: failure.errno }
    }
}

/// Runs `way ID ATTEMPT FOLDER` or `errno`; for the `main` of the two programs only.
#[must_use]
pub fn run_probe(arguments: &[OsString]) -> ExitCode {
    // Whoever started us ends us earlier, if it can.
    // SAFETY: a call without pointers.
    unsafe { libc::alarm(2 * PATIENCE.as_secs() as libc::c_uint) };
    let words: Vec<_> = arguments.iter().map(|word| word.to_str()).collect();
    let line = match (words.as_slice(), arguments) {
        ([Some("way"), Some(id), Some(attempt), _], [.., folder]) => {
            try_way(id, attempt, Path::new(folder))
        }
        ([Some("errno")], _) => ask_all(),
        _ => Err("probe: way ID ATTEMPT FOLDER, or errno".to_owned()),
    };
    match line {
        Ok(line) if writeln!(std::io::stdout(), "{line}").is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

fn try_way(id: &str, attempt: &str, folder: &Path) -> Result<String, String> {
    let control = (id == CONTROL.id).then_some(&CONTROL);
    let way = find_way(id).or(control);
    let attempts = way.zip(attempt.parse::<usize>().ok());
    let attempt = attempts.and_then(|(way, number)| Some((way, way.attempts.get(number)?)));
    let (way, attempt) = attempt.ok_or_else(|| format!("probe: no such way: {id}"))?;
    let mut sighting = Sighting::default();
    if let Err(failure) = see(way, *attempt, folder, &mut sighting) {
        sighting.refused = Some(failure.into());
    }
    serde_json::to_string(&sighting).map_err(|error| error.to_string())
}

fn see(way: &Way, attempt: Try, folder: &Path, into: &mut Sighting) -> Result<(), Failure> {
    let (mut witness, mut scratch) = (Scratch::name(folder)?, Scratch::name(folder)?);
    witness.create_dirty()?;
    let tried = attempt(&mut scratch);
    into.before = scratch.before;
    tried?;
    let (proof, pages) = scratch.look()?;
    into.proof = Some(proof);
    into.after = Some(pages);
    // Looked at last: who synced both before that, synced it, too.
    into.beside = if way.syncs_all() { None } else { Some(witness.look()?.1) };
    Ok(())
}

fn ask_all() -> Result<String, String> {
    let mut answers = BTreeMap::new();
    for check in &ERRNO_CHECKS {
        let found = find_errno_check(check.id).ok_or(check.id)?;
        let said = (found.ask)().map_err(|error| format!("{}: {error}", check.id))?;
        answers.insert(check.id, said);
    }
    serde_json::to_string(&answers).map_err(|error| error.to_string())
}
