//! How far each descriptor is, and dropping what lies behind.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI64, AtomicU64, AtomicU8, Ordering::Relaxed};

use crate::raw;

/// Descriptors from this on are left to the watcher.
const DESCRIPTORS: usize = 1024;

/// Bytes between two drops.
const STEP: i64 = 1 << 20;

/// A page that spans what is to go and what is to stay was left by the last drop: the largest the cache makes, with
/// room for others.
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

impl Reader {
    #[cold]
    fn judge(&self, fd: c_int) {
        let inode = find_inode(fd);
        self.inode.store(inode, Relaxed);
        let ours = inode != 0 && is_uncached(fd);
        self.state.store(if ours { OURS } else { OTHERS }, Relaxed);
    }

    #[cold]
    fn drop_behind(&self, fd: c_int, offset: Option<i64>) {
        self.since_drop.store(0, Relaxed);
        // Closed behind our back (close_range, a call of its own) and opened again: not known to be ours alone.
        if find_inode(fd) != self.inode.load(Relaxed) {
            self.state.store(OTHERS, Relaxed);
            return;
        }
        // SAFETY: no pointers.
        let here = offset.unwrap_or_else(|| unsafe {
            raw::call(raw::LSEEK, [fd.into(), 0, raw::SEEK_CUR, 0, 0, 0])
        });
        let start = (here - OVERLAP).max(0);
        if here > start {
            let words = [fd.into(), start, here - start, raw::DONTNEED, 0, 0];
            // SAFETY: no pointers.
            unsafe { raw::call(raw::FADVISE64, words) };
        }
    }
}

/// Inode number of a regular file mixed with its device; 0 for anything else.
fn find_inode(fd: c_int) -> u64 {
    let mut facts = [0_u64; 18];
    // SAFETY: struct stat of x86-64 has 144 bytes.
    let done = unsafe { raw::call(raw::FSTAT, [fd.into(), facts.as_mut_ptr() as i64, 0, 0, 0, 0]) };
    let regular = facts[3] & 0o170_000 == 0o100_000; // st_mode is its lower half
    if done == 0 && regular {
        facts[1] ^ facts[0].rotate_left(32)
    } else {
        0
    }
}

/// Says false of overlayfs, whose pages cachestat does not see.
fn is_uncached(fd: c_int) -> bool {
    let (range, mut answer, mut system) = ([0_u64; 2], [0_u64; 5], [0_u64; 15]);
    let counts = [fd.into(), range.as_ptr() as i64, answer.as_mut_ptr() as i64, 0, 0, 0];
    let facts = [fd.into(), system.as_mut_ptr() as i64, 0, 0, 0, 0];
    // SAFETY: all are laid out as the kernel's structures.
    let done = unsafe { raw::call(raw::CACHESTAT, counts) | raw::call(raw::FSTATFS, facts) };
    done == 0 && answer[0] == 0 && system[0] != OVERLAY
}
