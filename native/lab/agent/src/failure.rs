//! What went wrong, and the way out for a PID 1 that cannot go on.

use std::fmt;
use std::io;

/// What could not be done, and why: the two texts of an `error` event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub what: String,
    pub why: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Failure { what: what.into(), why: why.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// Names the action that an operating system error stopped.
pub trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Failure::new(what(), error.into()))
    }
}
