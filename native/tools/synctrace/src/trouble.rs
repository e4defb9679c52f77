//! What goes wrong: what, why, and what to do; and the exit code that says it.

use std::fmt;
use std::io;

use diskproof_supervise::StartError;

pub const USAGE: u8 = 2;
pub const HOST: u8 = 3;

#[derive(Debug)]
pub struct Trouble {
    pub code: u8,
    pub what: String,
    pub why: String,
    pub hint: &'static str,
}

impl Trouble {
    pub fn new(code: u8, what: impl Into<String>, why: impl ToString, hint: &'static str) -> Self {
        Trouble { code, what: what.into(), why: why.to_string(), hint }
    }

    /// A call of ours failed that nobody could expect to fail.
    pub fn system(what: &str) -> impl FnOnce(io::Error) -> Trouble + '_ {
        move |error| Trouble::new(HOST, what, error, "see dmesg, and free memory or descriptors")
    }
}

impl From<StartError> for Trouble {
    fn from(error: StartError) -> Trouble {
        match error {
            StartError::NoCommand | StartError::NulByte => {
                Trouble::new(USAGE, "the command cannot be run", error, "give it behind --")
            }
            _ => Trouble::new(
                HOST,
                "the command cannot be watched",
                error,
                "try another mechanism with --by",
            ),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "diskproof-sync-trace: {}", self.what)?;
        writeln!(f, "  why: {}", self.why)?;
        write!(f, "  try: {}", self.hint)
    }
}
