//! Residency of file pages: cachestat(2), or mincore(2) where the kernel is older than 6.5.
//!
//! Both look without loading what they look at. Both tell only the owner of a file and those who
//! may write it: cachestat refuses others (newer kernels), mincore shows them every page as cached.

mod counts;
mod drop;
mod mincore;
mod runs;

pub use counts::{count_pages, Counts, Source};
pub use drop::{drop_pages, drop_pages_except, start_writeback, wait_writeback};
pub use mincore::read_map;
pub use runs::{find_last_page, read_runs, Runs};

use std::fmt;
use std::ops::Range;

/// Why the cache could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Not owner, and no permission to write: the kernel does not tell.
    NotAllowed,
    /// Not a file with pages of its own: a pipe, a socket, hugetlbfs, a proc file.
    NoPages,
    /// cachestat is missing or forbidden here and what was asked needs it.
    NoCachestat,
    /// Anything else the kernel says.
    Kernel(rustix::io::Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => {
                write!(out, "the kernel tells only those who own the file or may write it")
            }
            Self::NoPages => write!(out, "this kind of file has no pages in the page cache"),
            Self::NoCachestat => write!(out, "needs cachestat(2), Linux 6.5 or newer"),
            Self::Kernel(errno) => write!(out, "{errno}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            Errno::PERM | Errno::ACCESS => Self::NotAllowed,
            Errno::OPNOTSUPP | Errno::SPIPE | Errno::NODEV | Errno::ISDIR => Self::NoPages,
            Errno::NOSYS => Self::NoCachestat,
            errno => Self::Kernel(errno),
        }
    }
}

/// Bytes of a page.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The pages that hold a range of bytes, each touched one counted.
#[must_use]
pub fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / page_size()..bytes.end.div_ceil(page_size())
}
