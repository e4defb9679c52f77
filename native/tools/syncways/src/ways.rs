//! The ways a program can force its data to disk, as data.

use crate::scratch::Scratch;
use crate::tries::{aio, inode, opens, plain, uring, writes};
use crate::Failure;

/// How the program that tries it is linked: a preloaded library never sees a static one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    Dynamic,
    Static,
}

/// Writes to the scratch file and forces what it wrote to disk.
pub type Try = fn(&mut Scratch) -> Result<(), Failure>;

#[derive(Clone, Copy)]
pub struct Way {
    /// Stable: for `--json` and for promises.
    pub id: &'static str,
    pub how: &'static str,
    pub linkage: Linkage,
    /// Each must be stopped for the way to be stopped: functions and requests that do the same.
    pub(crate) attempts: &'static [Try],
}

impl Way {
    /// Whether it is to sync what others wrote, too.
    pub(crate) fn syncs_all(&self) -> bool {
        matches!(self.id, "sync" | "syncfs")
    }
}

const fn dynamic(id: &'static str, how: &'static str, attempts: &'static [Try]) -> Way {
    Way { id, how, linkage: Linkage::Dynamic, attempts }
}

const fn fixed(id: &'static str, how: &'static str, attempts: &'static [Try]) -> Way {
    Way { id, how, linkage: Linkage::Static, attempts }
}

pub const WAYS: [Way; 23] = [
    dynamic("fsync", "fsync(2)", &[plain::fsync]),
    dynamic("fdatasync", "fdatasync(2)", &[plain::fdatasync]),
    dynamic("sync", "sync(2)", &[plain::sync]),
    dynamic("syncfs", "syncfs(2)", &[plain::syncfs]),
    dynamic("msync", "msync(2) with MS_SYNC", &[plain::msync]),
    dynamic("sync_file_range", "sync_file_range(2) that waits", &[plain::sync_file_range]),
    dynamic(
        "open-sync",
        "open(2) with O_SYNC, then write",
        &[opens::open_sync, opens::open64_sync],
    ),
    dynamic(
        "open-dsync",
        "open(2) with O_DSYNC, then write",
        &[opens::open_dsync, opens::open64_dsync],
    ),
    dynamic(
        "openat-sync",
        "openat(2) with O_SYNC, then write",
        &[opens::openat_sync, opens::openat64_sync],
    ),
    dynamic("openat2-dsync", "openat2(2) with O_DSYNC, then write", &[opens::openat2_dsync]),
    dynamic("pwritev2-dsync", "pwritev2(2) with RWF_DSYNC", &[writes::dsync, writes::dsync64]),
    dynamic("pwritev2-sync", "pwritev2(2) with RWF_SYNC", &[writes::sync, writes::sync64]),
    dynamic("syscall-fsync", "syscall(SYS_fsync)", &[plain::syscall_fsync]),
    dynamic("aio_fsync", "aio_fsync(3), POSIX AIO", &[aio::posix_fsync]),
    dynamic("io_submit-fsync", "io_submit(2), IOCB_CMD_FSYNC", &[aio::submit_fsync]),
    dynamic("io_submit-fdsync", "io_submit(2), IOCB_CMD_FDSYNC", &[aio::submit_fdsync]),
    dynamic("io_submit-dsync", "io_submit(2), write with RWF_DSYNC", &[aio::submit_dsync]),
    dynamic("io_uring-fsync", "io_uring, IORING_OP_FSYNC", &[uring::fsync]),
    dynamic(
        "io_uring-dsync",
        "io_uring, RWF_DSYNC, or O_DSYNC opens",
        &[uring::dsync, uring::openat_dsync],
    ),
    dynamic("io_uring-range", "io_uring, IORING_OP_SYNC_FILE_RANGE", &[uring::sync_file_range]),
    dynamic("chattr-sync", "chattr +S, then write", &[inode::set_flags, inode::set_attributes]),
    fixed("static-fsync", "fsync(2) in a static program", &[plain::fsync]),
    fixed(
        "instruction-fsync",
        "fsync without a C library, as Go does",
        &[plain::instruction_fsync],
    ),
];

/// Writes and forces nothing: what it wrote must not be on the disk, or nothing else is proved.
pub(crate) const CONTROL: Way = dynamic("none", "write only", &[plain::none]);

/// Finds a way in the table; the control is not in it.
#[must_use]
pub fn find_way(id: &str) -> Option<&'static Way> {
    WAYS.iter().find(|way| way.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_unique_and_found() {
        for (place, way) in WAYS.iter().enumerate() {
            let found = find_way(way.id).expect("its own id");
            assert!(std::ptr::eq(found, find_way(WAYS[place].id).unwrap()));
            assert_eq!(WAYS.iter().filter(|other| other.id == way.id).count(), 1, "{}", way.id);
        }
        assert!(find_way("none").is_none());
    }
}
