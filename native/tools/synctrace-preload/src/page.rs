//! The memory that the traced processes and the tracer share: finished calls, and the texts they
//! refer to.
//!
//! All zero when it is made. Anything may stand here: the traced programs can write to it.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Changes with the layout: a library and a tracer of different builds do not meet.
pub const VERSION: u32 = 0x57ac_0001;
/// Names the page's file to the library.
pub const VARIABLE: &str = "DISKPROOF_SYNC_TRACE";
/// In argument 4, which the kernel does not look at in any of these calls: this one is timed,
/// others need not see it.
pub const MARK: u64 = 0x57ac_0d15_c0de_0001;

pub const EVENTS: u64 = 1 << 15;
pub const FILES: usize = 1 << 12;
/// Words of 8 bytes.
pub const TEXTS: usize = 1 << 21;
/// Instead of a text.
pub const NO_TEXT: u32 = 0;
/// Before each text: its key, its length in bytes.
pub const TEXT_HEAD: usize = 2;
/// As long as the longest name of a file with its NUL.
pub const MOST_TEXT: usize = 4096;

/// Numbers of the calls in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Fsync,
    Fdatasync,
    Sync,
    Syncfs,
    Msync,
    SyncFileRange,
    Pwritev2,
}

/// A finished call, at the place of its position modulo `EVENTS`.
#[repr(C, align(64))]
pub struct Event {
    /// Twice the turns around the ring: free; one more: filled. Or `RETIRED`.
    pub turn: AtomicU64,
    /// Process in the upper half, thread in the lower.
    pub caller: AtomicU64,
    /// CLOCK_MONOTONIC in ns.
    pub start: AtomicU64,
    pub duration: AtomicU64,
    /// The kernel's answer: a value, or an error number made negative.
    pub result: AtomicU64,
    /// The first argument: descriptor or address.
    pub argument: AtomicU64,
    pub kind: AtomicU32,
    /// Place of the file's name in `texts`.
    pub file: AtomicU32,
    /// Place of the thread's name in `texts`.
    pub name: AtomicU32,
    pub padding: AtomicU32,
}

/// The place was taken by somebody who never filled it, killed or stopped: it is used no more.
pub const RETIRED: u64 = u64::MAX;

/// Where the name of a file stands, found by a hash of its identity.
#[repr(C)]
pub struct File {
    pub key: AtomicU64,
    /// Place in `texts` in the lower half; when it was asked for, in ms, in the upper.
    pub known: AtomicU64,
}

/// On a cache line of its own: many write to it.
#[repr(C, align(64))]
pub struct Count(pub AtomicU64);

#[repr(C, align(64))]
pub struct Page {
    pub version: AtomicU32,
    /// 1: nobody reads any more.
    pub closed: AtomicU32,
    /// Inode number of the tracer's /proc/self/ns/pid: numbers of processes mean something there
    /// only.
    pub pid_namespace: AtomicU64,
    /// Position of the next event.
    pub head: Count,
    /// Events that found no place.
    pub lost: Count,
    /// Words of `texts` that are taken; the first two never hold a text.
    pub texts_used: Count,
    pub files: [File; FILES],
    pub events: [Event; EVENTS as usize],
    pub texts: [AtomicU64; TEXTS],
}
