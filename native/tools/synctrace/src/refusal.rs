//! What goes wrong: what, why, and what to do; and the exit code that says it.

use std::fmt;
use std::io;

use diskproof_supervise::StartError;

pub const USAGE: u8 = 2;
pub const HOST: u8 = 3;

#[derive(Debug)]
pub struct Refusal {
    pub code: u8,
    pub what: String,
    pub why: String,
    pub hint: &'static str,
}

impl Refusal {
    pub fn new(code: u8, what: impl Into<String>, why: impl ToString, hint: &'static str) -> Self {
        Refusal { code, what: what.into(), why: why.to_string(), hint }
    }

    /// A call of ours failed that nobody could expect to fail.
    pub fn system(what: &str) -> impl FnOnce(io::Error) -> Refusal + '_ {
        move |error| Refusal::new(HOST, what, error, "see dmesg, and free memory or descriptors")
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Refusal {
        match error {
            StartError::NoCommand | StartError::NulByte => {
                Refusal::new(USAGE, "the command cannot be run", error, "give it behind --")
            }
            _ => Refusal::new(
                HOST,
                "the command cannot be watched",
                error,
                "try another mechanism with --by",
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "diskproof-sync-trace: {}", self.what)?;
        writeln!(f, "  why: {}", self.why)?;
        write!(f, "  try: {}", self.hint)
    }
}
