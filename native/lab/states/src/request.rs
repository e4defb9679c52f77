//! What is asked for: one JSON object.

use std::path::PathBuf;

use serde::Deserialize;

use crate::content::Store;
use crate::failure::{Failure, Result};
use crate::fault::Fault;
use crate::shard::Shard;

/// Bytes of a request.
pub const MAX_REQUEST: u64 = 1 << 20;
const MAX_SECONDS: f64 = 7.0 * 24.0 * 3600.0;
const MAX_STATES: u64 = 1 << 40;
const MAX_THREADS: usize = 256;

/// `docs/crash-model.md` describes the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub log: PathBuf,
    pub base: PathBuf,
    pub fault: Fault,
    /// Bytes; None: as the log says.
    pub sector: Option<u64>,
    /// Bytes that a discard leaves whole; None: it is there or not.
    pub discard_granularity: Option<u64>,
    #[serde(default)]
    pub seed: u64,
    pub check: CheckRequest,
    /// How QEMU's programs are started, which read what a crash left; None: as we are.
    pub confined: Option<Confined>,
    #[serde(default)]
    pub budget: Budget,
    /// None: one for each core.
    pub threads: Option<usize>,
    /// The first loss ends the exploration (after it is minimised).
    #[serde(default)]
    pub stop_at_loss: bool,
    /// Which of the states are checked here; None: all.
    pub shard: Option<Shard>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    pub states: u64,
    pub seconds: f64,
    /// Checks that making one loss smaller may take.
    pub minimise: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { states: 100_000, seconds: 60.0, minimise: 2000 }
    }
}

/// What keeps a program from all but the folder that it works in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confined {
    /// Of diskproof-confine, without `--parent` and the program.
    pub argv: Vec<String>,
    /// Whom it runs as then; None: as us.
    pub user: Option<u32>,
}

/// How a state is judged.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CheckRequest {
    /// The ledger on a disk: raw in process, other formats through QEMU's driver.
    Ledger {
        /// Path below the recorded directory.
        target: PathBuf,
        #[serde(default)]
        format: Format,
    },
    /// `qemu-img check`: leaks are no corruption.
    Image { target: PathBuf, format: Format },
    /// Any program, in the state's directory.
    Command {
        argv: Vec<String>,
        #[serde(default = "default_timeout")]
        timeout_seconds: f64,
        /// It is started once, and asked by lines.
        #[serde(default)]
        stays: bool,
        /// States that are equal in all that it read are judged once.
        #[serde(default = "yes")]
        share_reads: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    #[default]
    Raw,
    Qcow2,
    Qed,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Qed => "qed",
        }
    }
}

fn yes() -> bool {
    true
}

fn default_timeout() -> f64 {
    60.0
}

impl Request {
    pub fn parse(text: &[u8]) -> Result<Request> {
        let failed = |why: String| Failure::new("reading the request", why);
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(failed("it is no JSON object".into()));
        }
        let request: Request =
            serde_json::from_slice(text).map_err(|error| failed(error.to_string()))?;
        request.check().map_err(failed)?;
        Ok(request)
    }

    pub fn with_shard(self, shard: Option<Shard>) -> Result<Request> {
        let request = Request { shard, ..self };
        request.check().map_err(|why| Failure::new("reading the request", why))?;
        Ok(request)
    }

    /// Reads log and base.
    pub fn open(&self) -> Result<Store> {
        let store = Store::open(&self.log, &self.base, self.sector)?;
        Ok(store.with_discards(self.discard_granularity)?.under(self.fault))
    }

    /// What the types cannot say.
    fn check(&self) -> std::result::Result<(), String> {
        let Budget { states, seconds, minimise } = self.budget;
        check_range("budget.states", states as f64, 1.0, MAX_STATES as f64)?;
        check_range("budget.seconds", seconds, 0.001, MAX_SECONDS)?;
        check_range("budget.minimise", minimise as f64, 0.0, MAX_STATES as f64)?;
        if self.shard.is_some() && self.stop_at_loss {
            return Err("stop_at_loss: one shard cannot stop the others".into());
        }
        let threads = self.threads.unwrap_or(1) as f64;
        check_range("threads", threads, 1.0, MAX_THREADS as f64)?;
        if let CheckRequest::Command { argv, timeout_seconds, .. } = &self.check {
            check_range("timeout_seconds", *timeout_seconds, 0.001, MAX_SECONDS)?;
            require_program(argv)?;
        }
        if let Some(Confined { argv, .. }) = &self.confined {
            require_program(argv)?;
        }
        Ok(())
    }
}

fn require_program(argv: &[String]) -> std::result::Result<(), String> {
    if argv.first().is_none_or(String::is_empty) || argv.iter().any(|a| a.contains('\0')) {
        return Err("argv names no program that can be started".into());
    }
    Ok(())
}

fn check_range(name: &str, value: f64, least: f64, most: f64) -> std::result::Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} {value} is not in {least} to {most}"))
    }
}
