//! Any program as a judge: it runs in the state's directory and may change it, or stays and is told
//! of one state after the other.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use diskproof_wire::ledger::Acknowledgement;

use super::child::{run, Ended};
use super::standing::{Answer, Standing};
use super::{Check, Detail, Finding, Ground};
use crate::cut::Cut;
use crate::equal::Reply;
use crate::failure::{During, Failure, Result};
use crate::image::Touched;
use crate::sharing::Sharing;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::view::Shown;

/// The file with the lines that had been acknowledged, one a line, and the state's directory.
pub const ACKNOWLEDGED: &str = "DISKPROOF_ACKNOWLEDGED";
pub const STATE: &str = "DISKPROOF_STATE";
/// Set for a check that stays and is to judge each state by itself.
const EACH_STATE: &str = "DISKPROOF_EACH_STATE";
/// Before an answer: what it said of some state before, it might not say again.
const UNSTEADY: &str = "unsteady";

const CRASHED: Reply = Reply { code: 2, lost: 0 };

pub struct CommandCheck<'s> {
    ground: &'s Ground,
    argv: Vec<String>,
    limit: Duration,
    /// The lines that were acknowledged.
    promises: Arc<[u8]>,
    count: u64,
    /// After each line: how much has been promised, and when.
    promised: Vec<(u64, u64)>,
    last: Finding,
    said: String,
    stays: bool,
    standing: Option<Standing>,
}

impl<'s> CommandCheck<'s> {
    /// Call in a thread that lives as long as the check, where it `stays`.
    pub fn new(
        ground: &'s Ground,
        argv: &[String],
        seconds: f64,
        stays: bool,
    ) -> Result<CommandCheck<'s>> {
        let mut made = CommandCheck {
            stays,
            standing: None,
            ground,
            argv: argv.to_vec(),
            limit: Duration::from_secs_f64(seconds),
            promises: Arc::default(),
            count: 0,
            promised: Vec::new(),
            last: Finding::KEEPS,
            said: String::new(),
        };
        if stays {
            made.standing = Some(made.start_standing()?);
        }
        Ok(made)
    }

    fn start_standing(&self) -> Result<Standing> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]);
        if self.ground.sharing.as_ref().is_none_or(Sharing::is_unsteady) {
            command.env(EACH_STATE, "1");
        }
        Standing::start(command, self.ground.folder()).during(self.starting())
    }

    fn starting(&self) -> String {
        format!("starting {}", self.argv[0])
    }

    fn late(&self) -> Failure {
        let why = format!("it took longer than {} s", self.limit.as_secs_f64());
        Failure::new(self.running(), why)
    }

    fn running(&self) -> String {
        format!("running {}", self.argv[0])
    }

    /// By one that stays. One that is gone may have been ended by something else, or by an earlier
    /// state: a second one tells.
    fn ask(&mut self, shown: &Shown<'_>) -> Result<Reply> {
        let question = format!("{}\t{}\n", shown.path.display(), shown.promised().display());
        let mut is_second = false;
        loop {
            let mut standing = match self.standing.take() {
                Some(standing) => standing,
                None => self.start_standing()?,
            };
            match standing.ask(&question, self.limit).during(self.running())? {
                Answer::Said(line) => {
                    self.standing = Some(standing);
                    return self.judge_line(&line);
                }
                Answer::Late => return Err(self.late()),
                Answer::Gone(ended) if is_second => return self.judge_gone(ended),
                Answer::Gone(_) => is_second = true,
            }
        }
    }

    fn judge_line(&mut self, line: &str) -> Result<Reply> {
        let (mut code, mut rest) = split_word(line);
        if code == UNSTEADY {
            self.ground.sharing.as_ref().inspect(|sharing| sharing.give_up());
            (code, rest) = split_word(rest);
        }
        self.said = rest.trim().to_owned();
        match code {
            "0" => Ok(Reply { code: 0, lost: 0 }),
            "1" => Ok(Reply { code: 1, lost: count(rest).unwrap_or_default() }),
            "2" => Ok(Reply { code: 2, lost: count(rest).unwrap_or_default() }),
            _ => {
                let line = shorten(line);
                let why = format!("it answered {line:?}: no 0 (keeps), 1 (loses) or 2 (corrupts)");
                Err(Failure::new(self.running(), why))
            }
        }
    }

    /// Nothing said is one promise; words without a number may be an interpreter's own end (1 is
    /// Python's after a traceback).
    fn losing(&self, ended: &Ended) -> Result<Reply> {
        match count(&ended.stdout) {
            None if !self.said.is_empty() => {
                let why = format!("it did not say how much is lost: {:?}", shorten(&self.said));
                Err(Failure::new(self.running(), why))
            }
            lost => Ok(Reply { code: 1, lost: lost.unwrap_or_default() }),
        }
    }

    fn judge_gone(&mut self, ended: Ended) -> Result<Reply> {
        let (said, crashed) = ended.said();
        self.said = said;
        if crashed {
            return Ok(CRASHED);
        }
        let how = ended.status.map_or_else(|| "no status".to_owned(), |status| status.to_string());
        let why = format!("it ended without an answer: {how}: {}", self.said);
        Err(Failure::new(self.running(), why))
    }

    fn found(&self, Reply { code, lost }: Reply) -> Finding {
        match code {
            0 => Finding::KEEPS,
            1 => Finding::loses(lost.max(1), self.since(lost.max(1))),
            _ => Finding::corrupts(lost, self.since(lost)),
        }
    }

    /// When the oldest lost promise was made, at the latest: a count names none, so those that were
    /// made last are lost.
    fn since(&self, lost: u64) -> Option<u64> {
        let kept = self.promised.last()?.0.saturating_sub(lost);
        let first = self.promised.partition_point(|&(promised, _)| promised <= kept);
        self.promised.get(first).map(|&(_, moment)| moment)
    }

    fn run(&mut self, shown: &Shown<'_>) -> Result<Reply> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]);
        command.env(ACKNOWLEDGED, shown.promised()).env(STATE, &shown.path);
        let ended = run(&mut command, Some(&shown.path), self.limit).during(self.starting())?;
        self.judge(ended)
    }

    fn judge(&mut self, ended: Ended) -> Result<Reply> {
        let Some(status) = ended.status else { return Err(self.late()) };
        let (said, crashed) = ended.said();
        self.said = said;
        match status.code() {
            None if crashed => Ok(CRASHED),
            Some(0) => Ok(Reply { code: 0, lost: 0 }),
            Some(1) => self.losing(&ended),
            Some(2) => Ok(Reply { code: 2, lost: count(&ended.stdout).unwrap_or_default() }),
            _ => Err(Failure::new(self.running(), format!("{status}: {}", self.said))),
        }
    }
}

/// What is promised after one more line: a ledger's tells how much, any other line is one promise
/// more.
fn promised_by(line: &[u8], before: u64) -> u64 {
    match Acknowledgement::parse(line) {
        Some(said) => before.max(said.sequence),
        None => before + 1,
    }
}

fn split_word(line: &str) -> (&str, &str) {
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

/// As much of a line as a message has room for.
fn shorten(line: &str) -> String {
    line.chars().take(200).collect()
}

/// The number that the output begins with.
fn count(text: &str) -> Option<u64> {
    text.split_whitespace().next().and_then(|word| word.parse().ok())
}

impl Check for CommandCheck<'_> {
    fn begin(&mut self, cut: &Cut<'_, '_>, _changed: Option<&Touched>) -> Result<()> {
        let mut lines = Vec::new();
        self.count = 0;
        self.promised.clear();
        let trace = &cut.image.store.trace;
        for (record, line) in trace.acknowledgements(cut.sequence) {
            lines.extend_from_slice(line);
            lines.push(b'\n');
            self.count += 1;
            let before = self.promised.last().map_or(0, |last| last.0);
            self.promised.push((promised_by(line, before), trace.event(record).end_ns));
        }
        self.promises = lines.into();
        Ok(())
    }

    fn promise(&self) -> u64 {
        self.count
    }

    fn check(&mut self, state: &State<'_, '_, '_>) -> Result<Finding> {
        let snapshot = Snapshot::new(state).with_promises(&self.promises);
        let shown = self.ground.view.show(snapshot.clone());
        let reply = if self.stays { self.ask(&shown)? } else { self.run(&shown)? };
        if let Some(sharing) = &self.ground.sharing {
            sharing.learn(&self.ground.store, &snapshot, shown.take_reads(), reply)?;
        }
        self.last = self.found(reply);
        Ok(self.last)
    }

    fn recall(&mut self, state: &State<'_, '_, '_>) -> Result<Option<Finding>> {
        let Some(sharing) = &self.ground.sharing else { return Ok(None) };
        let snapshot = Snapshot::new(state).with_promises(&self.promises);
        let reply = sharing.recall(&self.ground.store, &snapshot)?;
        Ok(reply.map(|reply| self.found(reply)))
    }

    fn detail(&mut self, state: &State<'_, '_, '_>) -> Result<Detail> {
        let age_ns = self.last.age_ns(state.cut.moment_ns);
        Ok(Detail { age_ns, output: Some(self.said.clone()), ..Detail::default() })
    }
}
