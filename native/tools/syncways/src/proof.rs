//! Pages of a file that are not on the disk.

use crate::Failure;
use diskproof_pagecache::count_pages;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd, BorrowedFd};

/// How it is known that pages are not on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// Dirty pages and pages under writeback, from cachestat(2): Linux 6.5.
    Cachestat,
    /// Extents without a place on the disk yet, from `FS_IOC_FIEMAP`: older kernels, and file
    /// systems that allocate late (ext4, XFS, Btrfs).
    Fiemap,
}

/// Counts the pages of a new file that are dirty or under writeback.
pub fn count_unsynced(file: BorrowedFd<'_>) -> Result<(Proof, u64), Failure> {
    let counts = count_pages(file, 0..u64::MAX).ok();
    match counts.and_then(|counts| Some(counts.dirty? + counts.writeback?)) {
        Some(pages) => Ok((Proof::Cachestat, pages)),
        None => Ok((Proof::Fiemap, count_unallocated(file)?)),
    }
}

const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
const EXTENT_DELALLOC: u32 = 0x4;
const MAX_EXTENTS: usize = 16;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// The kernel's `struct fiemap` with room for extents.
#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; MAX_EXTENTS],
}

/// Pages in extents that wait for their allocation. The kernel is not asked to sync first.
fn count_unallocated(file: BorrowedFd<'_>) -> Result<u64, Failure> {
    let mut map = Fiemap { length: u64::MAX, count: MAX_EXTENTS as u32, ..Fiemap::default() };
    // SAFETY: the structure is live and has room for as many extents as it tells.
    if unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &mut map) } != 0 {
        return Err(Failure::last("ioctl(FS_IOC_FIEMAP)"));
    }
    let found = map.extents.iter().take(map.mapped as usize);
    let late = found.filter(|extent| extent.flags & EXTENT_DELALLOC != 0);
    Ok(late.map(|extent| extent.length.div_ceil(diskproof_pagecache::page_size())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{Scratch, LENGTH};
    use rustix::fs::{fsync, statfs};
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    /// ext4, XFS, Btrfs, and an overlay on one of them.
    const ALLOCATE_LATE: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630];

    /// What older kernels must do with is the same there as what cachestat says.
    #[test]
    fn extents_tell_what_cachestat_tells() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let kind = statfs(folder).unwrap().f_type;
        if !ALLOCATE_LATE.contains(&(kind as i64)) {
            eprintln!("not tested: file system {kind:#x} has no late allocation");
            return;
        }
        let mut late = 0;
        for _ in 0..5 {
            let mut scratch = Scratch::name(folder).unwrap();
            scratch.create_dirty().unwrap();
            // SAFETY: open as long as the scratch file is.
            let file = unsafe { BorrowedFd::borrow_raw(scratch.fd().unwrap()) };
            late = late.max(count_unallocated(file).unwrap());
            fsync(file).unwrap();
            assert_eq!(count_unallocated(file), Ok(0));
            assert_eq!(count_unsynced(file).unwrap().1, 0);
        }
        let pages = (LENGTH as u64).div_ceil(diskproof_pagecache::page_size());
        assert_eq!(late, pages, "all pages wait, unless somebody else synced each time");
    }
}
