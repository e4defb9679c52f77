//! What all processes under one `sync drop` share: counts, and how far the preloaded library
//! decides alone.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// Changes with the layout: a library and a supervisor of different builds do not meet.
pub const VERSION: u32 = 0x5d0a_0001;
/// Names the page's file to the library where no filter can hand it out.
pub const VARIABLE: &str = "DISKPROOF_SYNC_DROP";
/// fsync of this descriptor asks the filter's supervisor for the page. It never is an open one:
/// without a supervisor the kernel says EBADF.
pub const ASK_FOR_PAGE: i32 = -0x5d0a_0001;
/// In the unused arguments 3 and 4 of io_submit: the library has looked through the requests.
pub const LOOKED_THROUGH: [u32; 2] = [0x5d0a_10a0, 0x0d15_c0de];
/// High half of the offset with which a sync_file_range waits for nothing and only tells of errors
/// seen before.
pub const FAR_AWAY: u32 = 0x7fff_ffff;

/// Kinds of dropped calls, in the order of their counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    Fsync,
    Fdatasync,
    Sync,
    Syncfs,
    Msync,
    SyncFileRange,
    Open,
    Write,
    Submit,
    Attribute,
}

pub const KINDS: usize = 10;
/// What could not be dropped, in the order of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Left {
    /// An io_uring was set up: what is synced through it is out of sight.
    Ring,
    /// The caller could not be looked into or changed.
    Unreachable,
    /// As the two above, but refused because of `--strict`.
    Refused,
}

pub const LEFTS: usize = 3;
pub const TOGGLE_SIZE: usize = 4096;

/// In shared memory; all zero but the version when it is made.
#[repr(C)]
pub struct Page {
    pub version: AtomicU32,
    /// 1: the library drops without asking. 0: it makes the call, and the filter's supervisor
    /// decides.
    pub direct: AtomicU32,
    /// 1: there is no filter; the library looks at `after` and `toggle`.
    pub alone: AtomicU32,
    /// 1: what can be neither dropped nor seen through is refused.
    pub strict: AtomicU32,
    /// Syncs still to be let through.
    pub after: AtomicI64,
    pub dropped: [AtomicU64; KINDS],
    /// Let through because of `--after`, `--only` or `--toggle`.
    pub passed: AtomicU64,
    pub left: [AtomicU64; LEFTS],
    /// Path, ended by a NUL; empty: there is none.
    pub toggle: [u8; TOGGLE_SIZE],
}
