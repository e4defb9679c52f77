//! How many pages of a file are cached, dirty, under writeback, were evicted.

use crate::mincore::read_map;
use crate::{page_size, Error};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// The same on all architectures but Alpha.
const CACHESTAT: libc::c_long = 451;

/// `f_type` of overlayfs, from linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

/// Pages counted by mincore in one step: bounds the memory of its answer.
const STEP_PAGES: u64 = 1 << 18;

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Cachestat,
    /// Knows `cached` only.
    Mincore,
}

/// Pages, as cachestat(2) counts them. `dirty` and what follows are None when mincore answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub source: Source,
    pub cached: u64,
    pub dirty: Option<u64>,
    pub writeback: Option<u64>,
    /// Pages that were cached once and that the kernel took away and still remembers.
    pub evicted: Option<u64>,
    pub recently_evicted: Option<u64>,
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Cachestat {
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub evicted: u64,
    pub recently_evicted: u64,
}

/// cachestat(2) on a range of bytes; an end of `u64::MAX` is the end of the file.
pub(crate) fn cachestat(file: &impl AsFd, bytes: &Range<u64>) -> Result<Cachestat, Error> {
    let mut answer = Cachestat::default();
    if bytes.is_empty() {
        return Ok(answer); // a length of 0 would mean the whole rest of the file
    }
    let length = if bytes.end == u64::MAX { 0 } else { bytes.end - bytes.start };
    let range = CachestatRange { offset: bytes.start, length };
    // SAFETY: both structures are live, laid out as the kernel's, and the descriptor is open.
    let result =
        unsafe { libc::syscall(CACHESTAT, file.as_fd().as_raw_fd(), &range, &mut answer, 0) };
    match result {
        0 if answer.cached + answer.evicted == 0 && is_overlay(file)? => Err(Error::NoCachestat),
        0 => Ok(answer),
        _ => Err(last_errno().into()),
    }
}

/// cachestat asks overlayfs's own inode, whose pages are in the file below: it sees none of them.
fn is_overlay(file: &impl AsFd) -> Result<bool, Error> {
    Ok(u64::try_from(rustix::fs::fstatfs(file)?.f_type) == Ok(OVERLAY))
}

pub(crate) fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Counts the pages of a range of bytes of an open file (`0..u64::MAX`: all of it).
///
/// Falls back to mincore when the kernel has no cachestat, and on overlayfs; then the file must be
/// open for reading.
pub fn count_pages(file: impl AsFd, bytes: Range<u64>) -> Result<Counts, Error> {
    match cachestat(&file, &bytes) {
        Ok(answer) => Ok(Counts {
            source: Source::Cachestat,
            cached: answer.cached,
            dirty: Some(answer.dirty),
            writeback: Some(answer.writeback),
            evicted: Some(answer.evicted),
            recently_evicted: Some(answer.recently_evicted),
        }),
        Err(Error::NoCachestat) => count_by_mincore(&file, &bytes),
        Err(error) => Err(error),
    }
}

pub(crate) fn count_by_mincore(file: &impl AsFd, bytes: &Range<u64>) -> Result<Counts, Error> {
    let end = bytes.end.min(rustix::fs::fstat(file)?.st_size.try_into().unwrap_or(0));
    let step = STEP_PAGES * page_size();
    let mut start = bytes.start - bytes.start % page_size();
    let mut cached = 0;
    while start < end {
        let map = read_map(file, start..end.min(start + step))?;
        cached += map.iter().filter(|&&page| page).count() as u64;
        start += step;
    }
    let source = Source::Mincore;
    let (dirty, writeback, evicted, recently_evicted) = (None, None, None, None);
    Ok(Counts { source, cached, dirty, writeback, evicted, recently_evicted })
}
