//! One finished call, as every mechanism tells it.

use std::sync::Arc;

/// A call that may wait for a disk. Writes count only when their descriptor or flags make them
/// wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Fsync,
    Fdatasync,
    Sync,
    Syncfs,
    Msync,
    SyncFileRange,
    Write,
    Pwrite64,
    Writev,
    Pwritev,
    Pwritev2,
}

/// What a call's arguments say about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Descriptor,
    Address,
    Everything,
}

pub const SYNCS: [Call; 6] =
    [Call::Fsync, Call::Fdatasync, Call::Sync, Call::Syncfs, Call::Msync, Call::SyncFileRange];
pub const WRITES: [Call; 5] =
    [Call::Write, Call::Pwrite64, Call::Writev, Call::Pwritev, Call::Pwritev2];

impl Call {
    /// The name of the system call, as in the kernel's tracepoints.
    pub fn name(self) -> &'static str {
        match self {
            Call::Fsync => "fsync",
            Call::Fdatasync => "fdatasync",
            Call::Sync => "sync",
            Call::Syncfs => "syncfs",
            Call::Msync => "msync",
            Call::SyncFileRange => "sync_file_range",
            Call::Write => "write",
            Call::Pwrite64 => "pwrite64",
            Call::Writev => "writev",
            Call::Pwritev => "pwritev",
            Call::Pwritev2 => "pwritev2",
        }
    }

    /// The call of that number in the table of 64-bit or 32-bit programs.
    pub fn find(number: u64, is_64_bit: bool) -> Option<Call> {
        let numbers = |call: Call| if is_64_bit { call.numbers().0 } else { call.numbers().1 };
        SYNCS.into_iter().chain(WRITES).find(|call| numbers(*call) == number)
    }

    /// Its numbers in the tables of x86-64 and i386.
    fn numbers(self) -> (u64, u64) {
        match self {
            Call::Fsync => (74, 118),
            Call::Fdatasync => (75, 148),
            Call::Sync => (162, 36),
            Call::Syncfs => (306, 344),
            Call::Msync => (26, 144),
            Call::SyncFileRange => (277, 314),
            Call::Write => (1, 4),
            Call::Pwrite64 => (18, 181),
            Call::Writev => (20, 146),
            Call::Pwritev => (296, 334),
            Call::Pwritev2 => (328, 379),
        }
    }

    pub fn target(self) -> Target {
        match self {
            Call::Sync => Target::Everything,
            Call::Msync => Target::Address,
            _ => Target::Descriptor,
        }
    }

    /// Whether this one waits for the disk; of a write that is only known from its descriptor's
    /// flags.
    pub fn waits(self, arguments: &[u64; 6]) -> bool {
        const MS_SYNC: u64 = 4;
        const RWF_SYNC_OR_DSYNC: u64 = 6;
        match self {
            Call::Msync => arguments[2] & MS_SYNC != 0,
            Call::Pwritev2 => arguments[5] & RWF_SYNC_OR_DSYNC != 0,
            _ => !self.is_write(),
        }
    }

    pub fn is_write(self) -> bool {
        WRITES.contains(&self)
    }
}

/// A call from its entry into the kernel to its return. Times are CLOCK_MONOTONIC in ns.
#[derive(Clone, Debug)]
pub struct Event {
    pub pid: i32,
    pub tid: i32,
    pub process: Arc<str>,
    pub call: Call,
    pub file: Arc<str>,
    pub start: u64,
    pub end: u64,
    /// What the call returned, a negative errno for an error.
    pub result: i64,
    /// Bytes the process had passed to write calls so far (`wchar` of /proc/PID/io), if known.
    pub written: Option<u64>,
    /// File and bytes were looked up before the call returned, so they are sure.
    pub in_flight: bool,
}

impl Event {
    pub fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}
