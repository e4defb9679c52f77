//! How far each descriptor is, and dropping what lies behind.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI64, AtomicU64, AtomicU8, Ordering::Relaxed};

use diskproof_bare::syscall;

use crate::descriptors::{stat, Stat};

/// Descriptors from this on are left to the watcher.
const DESCRIPTORS: usize = 1024;

/// Bytes between two drops.
const STEP: i64 = 1 << 20;

/// A page that spans what is to go and what is to stay was left by the last drop: the largest the
/// cache makes, with room for others.
const OVERLAP: i64 = 8 << 20;

/// `f_type` of overlayfs, from linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

const UNKNOWN: u8 = 0;
/// Nothing of it was cached when it was first read here: all that is comes from us.
const OURS: u8 = 1;
const OTHERS: u8 = 2;

struct Reader {
    state: AtomicU8,
    inode: AtomicU64,
    since_drop: AtomicI64,
}

/// Zeroed memory that costs nothing until it is used.
static READERS: [Reader; DESCRIPTORS] = [const {
    Reader {
        state: AtomicU8::new(UNKNOWN),
        inode: AtomicU64::new(0),
        since_drop: AtomicI64::new(0),
    }
}; DESCRIPTORS];

fn find(fd: c_int) -> Option<&'static Reader> {
    READERS.get(usize::try_from(fd).ok()?)
}

/// Called before a read, at `offset` or where the descriptor stands.
#[inline]
pub fn before(fd: c_int, offset: Option<i64>) {
    let Some(reader) = find(fd) else { return };
    match reader.state.load(Relaxed) {
        OTHERS => {}
        UNKNOWN => reader.judge(fd),
        _ if reader.since_drop.load(Relaxed) >= STEP => reader.drop_behind(fd, offset),
        _ => {}
    }
}

/// Called after a read with what it returned.
#[inline]
pub fn after(fd: c_int, got: isize) {
    if let (Some(reader), true) = (find(fd), got > 0) {
        reader.since_drop.fetch_add(got as i64, Relaxed);
    }
}

/// The number will mean another file.
#[inline]
pub fn forget(fd: c_int) {
    if let Some(reader) = find(fd) {
        reader.state.store(UNKNOWN, Relaxed);
        reader.since_drop.store(0, Relaxed);
    }
}

/// What was found out when it was opened.
#[inline]
pub fn note(fd: c_int, facts: &Facts) {
    if let Some(reader) = find(fd) {
        reader.note(facts);
    }
}

impl Reader {
    #[cold]
    fn judge(&self, fd: c_int) {
        match stat(fd).filter(Stat::is_regular) {
            Some(seen) => self.note(&Facts::find(fd, &seen)),
            None => self.note(&Facts::NOBODYS),
        }
    }

    fn note(&self, facts: &Facts) {
        self.inode.store(facts.inode, Relaxed);
        self.since_drop.store(0, Relaxed);
        self.state.store(if facts.cached == Some(0) { OURS } else { OTHERS }, Relaxed);
    }

    #[cold]
    fn drop_behind(&self, fd: c_int, offset: Option<i64>) {
        self.since_drop.store(0, Relaxed);
        // Closed behind our back (close_range, a call of its own) and opened again: not known to be
        // ours alone.
        if stat(fd).is_none_or(|seen| seen.inode() != self.inode.load(Relaxed)) {
            self.state.store(OTHERS, Relaxed);
            return;
        }
        const SEEK_CUR: i64 = 1;
        const DONTNEED: i64 = 4;
        // SAFETY: no pointers.
        let here = offset.unwrap_or_else(|| unsafe {
            syscall::call(syscall::LSEEK, [fd.into(), 0, SEEK_CUR, 0, 0, 0])
        });
        let start = (here - OVERLAP).max(0);
        if here > start {
            let words = [fd.into(), start, here - start, DONTNEED, 0, 0];
            // SAFETY: no pointers.
            unsafe { syscall::call(syscall::FADVISE64, words) };
        }
    }
}

/// What is known of a file before we read it.
pub struct Facts {
    inode: u64,
    /// Pages; None when the kernel does not tell.
    pub cached: Option<u64>,
}

impl Facts {
    /// The facts of what has no pages of its own.
    pub const NOBODYS: Self = Self { inode: 0, cached: None };

    pub fn find(fd: c_int, seen: &Stat) -> Self {
        let cached = if seen.pages() == 0 { Some(0) } else { count_cached(fd) };
        Self { inode: seen.inode(), cached }
    }
}

/// Pages; None of overlayfs, whose pages cachestat does not see.
fn count_cached(fd: c_int) -> Option<u64> {
    let (range, mut answer) = ([0_u64; 2], [0_u64; 5]);
    let counts = [fd.into(), range.as_ptr() as i64, answer.as_mut_ptr() as i64, 0, 0, 0];
    // SAFETY: both are laid out as the kernel's structures.
    let done = unsafe { syscall::call(syscall::CACHESTAT, counts) } == 0;
    (done && (answer[0] > 0 || !is_overlay(fd))).then_some(answer[0])
}

/// Says true when in doubt.
fn is_overlay(fd: c_int) -> bool {
    syscall::find_file_system(fd).is_none_or(|kind| kind == OVERLAY)
}
