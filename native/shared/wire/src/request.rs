//! What the host asks for.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, MAX_READ_BYTES, MAX_TIMEOUT_MS};

/// One request. Unknown fields are refused: what the agent does not know it must not skip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    Start(Start),
    Exec(Exec),
    Kill(Kill),
    Read(Read),
    Write(Write),
    Clock(Clock),
    Poweroff(Poweroff),
}

/// Load modules, mount the root, find the disk under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub id: u64,
    pub modules: Vec<String>,
    pub root_serial: String,
    #[serde(default)]
    pub disk_serial: Option<String>,
    pub timeout_ms: u64,
}

/// Run a program inside the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    pub id: u64,
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default = "default_cwd")]
    pub cwd: String,
    #[serde(default, rename = "stdin_base64", skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Bytes>,
    pub timeout_ms: u64,
}

/// Signal the process group of a running exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    pub id: u64,
    pub target: u64,
    pub signal: u8,
}

/// Send a file of the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub id: u64,
    pub path: String,
    pub max_bytes: u64,
}

/// Create or truncate a file in the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    pub id: u64,
    pub path: String,
    #[serde(rename = "data_base64")]
    pub data: Bytes,
    pub mode: u32,
}

/// Ask for the guest's clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    pub id: u64,
}

/// Power the guest off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poweroff {
    pub id: u64,
    #[serde(default)]
    pub sync: bool,
}

/// Why a line is no request; `id` when the line still gave one away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub id: Option<u64>,
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refusal {}

impl Request {
    pub fn id(&self) -> u64 {
        match self {
            Request::Start(r) => r.id,
            Request::Exec(r) => r.id,
            Request::Kill(r) => r.id,
            Request::Read(r) => r.id,
            Request::Write(r) => r.id,
            Request::Clock(r) => r.id,
            Request::Poweroff(r) => r.id,
        }
    }

    /// What the types cannot say: ranges, absolute paths, no NUL in what becomes a C string.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Request::Start(r) => check_timeout(r.timeout_ms),
            Request::Exec(r) => check_exec(r),
            Request::Kill(r) => check_range("signal", r.signal.into(), 64),
            Request::Read(r) => {
                check_range("max_bytes", r.max_bytes, MAX_READ_BYTES)?;
                check_path("path", &r.path)
            }
            Request::Write(r) => {
                if r.mode > 0o7777 {
                    return Err(format!("mode {} is above 4095 (octal 7777)", r.mode));
                }
                check_path("path", &r.path)
            }
            Request::Clock(_) | Request::Poweroff(_) => Ok(()),
        }
    }
}

fn default_cwd() -> String {
    "/".to_owned()
}

fn check_exec(exec: &Exec) -> Result<(), String> {
    check_timeout(exec.timeout_ms)?;
    check_path("cwd", &exec.cwd)?;
    if exec.argv.first().is_none_or(String::is_empty) {
        return Err("argv names no program".to_owned());
    }
    if exec.argv.iter().any(|arg| arg.contains('\0')) {
        return Err("argv holds a NUL".to_owned());
    }
    for (name, value) in &exec.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("env {name:?} cannot be set"));
        }
    }
    Ok(())
}

fn check_timeout(timeout_ms: u64) -> Result<(), String> {
    check_range("timeout_ms", timeout_ms, MAX_TIMEOUT_MS)
}

fn check_range(name: &str, value: u64, max: u64) -> Result<(), String> {
    if (1..=max).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} {value} is not in 1 to {max}"))
    }
}

fn check_path(name: &str, path: &str) -> Result<(), String> {
    if path.starts_with('/') && !path.contains('\0') {
        Ok(())
    } else {
        Err(format!("{name} {path:?} is not an absolute path"))
    }
}
