//! Take pages out of the cache, without an fsync and without losing a byte.

use crate::runs::{bytes_of, Runs};
use crate::Error;
use rustix::fs::{fadvise, Advice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Drops the clean pages of a range of bytes (`end` of `u64::MAX`: to the end of the file).
///
/// Those that somebody has mapped stay. Dirty pages stay as well, but the kernel starts to write
/// them (as with `start_writeback`); a later drop takes them. Nothing waits for the disk.
pub fn drop_pages(file: impl AsFd, bytes: Range<u64>) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    // Offsets are signed for the kernel: what is beyond them is the end of the file.
    let whole = bytes.end > i64::MAX as u64;
    let length = if whole { None } else { NonZeroU64::new(bytes.end - bytes.start) };
    Ok(fadvise(file, bytes.start, length, Advice::DontNeed)?)
}

/// As `drop_pages` for a range of pages, but those in `keep` stay.
pub fn drop_pages_except(file: impl AsFd, pages: Range<u64>, keep: &Runs) -> Result<(), Error> {
    keep.gaps(&pages).iter().try_for_each(|gap| drop_pages(&file, bytes_of(gap)))
}

/// Hands dirty pages to the disk and does not wait: no flush, no promise about a power cut.
pub fn start_writeback(file: impl AsFd, bytes: Range<u64>) -> Result<(), Error> {
    sync_range(&file, &bytes, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until pages that are under writeback are written, and hands over what became dirty.
pub fn wait_writeback(file: impl AsFd, bytes: Range<u64>) -> Result<(), Error> {
    let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(&file, &bytes, wait | libc::SYNC_FILE_RANGE_WRITE)
}

fn sync_range(file: &impl AsFd, bytes: &Range<u64>, flags: u32) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    // Offsets are signed; a length of 0 means to the end of the file.
    let offset = i64::try_from(bytes.start).unwrap_or(i64::MAX);
    let end = i64::try_from(bytes.end).unwrap_or(i64::MAX);
    let length = if end == i64::MAX { 0 } else { end - offset };
    // SAFETY: a call without pointers, on a descriptor that is open.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, flags) } {
        0 => Ok(()),
        _ => Err(crate::counts::last_errno().into()),
    }
}
