//! Every way a program can force its data to disk, tried with and without something that stops
//! it, each proved by a look at the page cache. Unprivileged.
//!
//! A way that does not reach the disk even when nothing stops it proves nothing, and is reported
//! as such; so is a folder whose pages never wait for a disk.

mod check;
mod child;
mod errno;
mod errno_calls;
mod judge;
mod probe;
mod proof;
mod report;
mod scratch;
mod tries;
mod ways;

pub use check::{check, CheckError, Probes, Setup};
pub use errno::{Answer, ErrnoCheck, ERRNO_CHECKS};
pub use judge::Outcome;
pub use probe::{run_probe, PROBE};
pub use proof::Proof;
pub use report::{render_json, render_table, ErrnoRow, Report, WayRow};
pub use ways::{find_way, Linkage, Way, WAYS};

/// A system call that did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub call: &'static str,
    pub errno: i32,
}

impl Failure {
    pub(crate) fn last(call: &'static str) -> Failure {
        Failure::of(call, &std::io::Error::last_os_error())
    }

    pub(crate) fn of(call: &'static str, error: &std::io::Error) -> Failure {
        Failure { call, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}
