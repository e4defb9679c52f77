//! The one kind of error: what did not work, and why.

use std::fmt;

/// Why the exploration cannot go on; never that a state lost something.
#[derive(Debug)]
pub struct Failure {
    pub what: String,
    pub why: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure { what: what.into(), why: why.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Failure {}

/// Says what was being done when an error came.
pub trait During<T> {
    fn during(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: fmt::Display> During<T> for std::result::Result<T, E> {
    fn during(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|why| Failure::new(what, why))
    }
}
