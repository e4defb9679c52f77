//! The page shared with the tool, found at the first sync; which descriptors were examined.

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};

use crate::libc::find_variable;
use crate::page::{Kind, Page, ASK_FOR_PAGE, KINDS, LEFTS, TOGGLE_SIZE, VARIABLE, VERSION};
use crate::raw;

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// For a program that has the library and nothing else: all is dropped and nobody counts.
static NOBODYS: Page = Page {
    version: AtomicU32::new(VERSION),
    direct: AtomicU32::new(1),
    alone: AtomicU32::new(1),
    strict: AtomicU32::new(0),
    after: AtomicI64::new(0),
    dropped: [const { AtomicU64::new(0) }; KINDS],
    passed: AtomicU64::new(0),
    left: [const { AtomicU64::new(0) }; LEFTS],
    toggle: [0; TOGGLE_SIZE],
};

#[inline(always)]
pub fn page() -> &'static Page {
    let known = PAGE.load(Acquire);
    if known.is_null() {
        return find_page();
    }
    // SAFETY: set once, to the static above or to a mapping that is never taken away.
    unsafe { &*known }
}

#[cold]
fn find_page() -> &'static Page {
    let found = map_page().unwrap_or(from_ref(&NOBODYS).cast_mut());
    match PAGE.compare_exchange(null_mut(), found, AcqRel, Acquire) {
        Err(other) => {
            if found.cast_const() != from_ref(&NOBODYS) {
                // SAFETY: another thread was faster; nobody has seen this mapping.
                unsafe { raw::call(raw::MUNMAP, [found as i64, SIZE, 0, 0, 0, 0]) };
            }
            // SAFETY: as in `page`.
            unsafe { &*other }
        }
        // SAFETY: as in `page`.
        Ok(_) => unsafe { &*found },
    }
}

const SIZE: i64 = size_of::<Page>() as i64;
const READ_WRITE: i64 = 3;
const SHARED: i64 = 1;
const O_RDWR_CLOEXEC: i64 = 0o2 | 0o2_000_000;

/// From the filter's supervisor, or from the file that the environment names.
fn map_page() -> Option<*mut Page> {
    // SAFETY: a number that is no descriptor.
    let mut fd = unsafe { raw::call(raw::FSYNC, [ASK_FOR_PAGE.into(), 0, 0, 0, 0, 0]) };
    if fd < 0 {
        let path = find_variable(VARIABLE)?;
        // SAFETY: a string of the environment.
        fd = unsafe { raw::call(raw::OPEN, [path as i64, O_RDWR_CLOEXEC, 0, 0, 0, 0]) };
    }
    if fd < 0 || !has_the_size(fd) {
        return None;
    }
    // SAFETY: a new mapping, as long as its file; the descriptor is ours.
    let place = unsafe {
        let place = raw::call(raw::MMAP, [0, SIZE, READ_WRITE, SHARED, fd, 0]);
        raw::call(raw::CLOSE, [fd, 0, 0, 0, 0, 0]);
        place
    };
    let page = (place > 0).then_some(place as *mut Page)?;
    // SAFETY: just mapped.
    (unsafe { &*page }.version.load(Relaxed) == VERSION).then_some(page)
}

/// A file that is too short would kill us at the first touch.
fn has_the_size(fd: i64) -> bool {
    const LSEEK: i64 = 8;
    const SEEK_END: i64 = 2;
    // SAFETY: no pointers.
    unsafe { raw::call(LSEEK, [fd, 0, SEEK_END, 0, 0, 0]) >= SIZE }
}

pub fn count(page: &Page, kind: Kind) {
    page.dropped[kind as usize].fetch_add(1, Relaxed);
}

/// Whether this sync is ours to drop. If not, the call is made as it is: to the filter, which decides and counts, or,
/// when there is none, to the disk.
#[inline(always)]
pub fn is_ours(page: &Page) -> bool {
    page.direct.load(Relaxed) == 1 && (page.alone.load(Relaxed) == 0 || is_ours_alone(page))
}

/// Rare calls with a structure behind a pointer: where there is a filter, it sees to them.
pub fn is_ours_to_read(page: &Page) -> bool {
    page.alone.load(Relaxed) == 1 && is_ours(page)
}

fn is_ours_alone(page: &Page) -> bool {
    let off = page.toggle[0] != 0 && {
        // SAFETY: ended by a NUL, checked by who wrote it.
        unsafe { raw::call(raw::ACCESS, [page.toggle.as_ptr() as i64, 0, 0, 0, 0, 0]) != 0 }
    };
    let early = !off && page.after.load(Relaxed) > 0 && page.after.fetch_sub(1, Relaxed) > 0;
    if off || early {
        page.passed.fetch_add(1, Relaxed);
    }
    !off && !early
}

/// One bit for each of the first descriptors.
struct Marks([AtomicU64; 64]);

impl Marks {
    const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; 64])
    }

    fn word(&self, fd: i32) -> Option<&AtomicU64> {
        self.0.get((fd as u32 / 64) as usize)
    }

    #[inline(always)]
    fn has(&self, fd: i32) -> bool {
        self.word(fd).is_some_and(|word| word.load(Relaxed) >> (fd % 64) & 1 == 1)
    }

    fn set(&self, fd: i32) {
        if let Some(word) = self.word(fd) {
            word.fetch_or(1 << (fd % 64), Relaxed);
        }
    }

    #[inline(always)]
    fn clear(&self, fd: i32) {
        if let Some(word) = self.word(fd).filter(|word| word.load(Relaxed) != 0) {
            word.fetch_and(!(1 << (fd % 64)), Relaxed);
        }
    }
}

/// It was examined in full.
static EXAMINED: Marks = Marks::none();
/// It was opened here for writing, and will be closed here: it is open as long as nobody told otherwise.
static OPENED: Marks = Marks::none();
static CALLS: AtomicU32 = AtomicU32::new(0);
/// So often it is examined again: errors of writes are told late at worst, and a descriptor that changed its file
/// unseen does not pass for long.
const AGAIN: u32 = 64;

/// How much of a descriptor is known, from nothing on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Known {
    Nothing,
    /// If it is open, its file has a sync that succeeds.
    File,
    /// And it is open.
    Open,
}

#[inline(always)]
pub fn find_known(fd: i32) -> Known {
    let calls = CALLS.load(Relaxed).wrapping_add(1);
    // Threads may overwrite each other's count: a cheap one is enough here.
    CALLS.store(calls, Relaxed);
    match EXAMINED.has(fd) && calls % AGAIN != 0 {
        true if OPENED.has(fd) => Known::Open,
        true => Known::File,
        false => Known::Nothing,
    }
}

pub fn set_examined(fd: i32) {
    EXAMINED.set(fd);
}

/// The C library itself redirects the standard ones, and closes directories, which nobody opens for writing.
pub fn set_opened(fd: i32, flags: i32) {
    const O_ACCMODE: i32 = 3;
    forget(fd);
    if fd > 2 && flags & O_ACCMODE != 0 {
        OPENED.set(fd);
    }
}

/// The number may get another file, or may be closed unseen.
#[inline(always)]
pub fn forget(fd: i32) {
    OPENED.clear(fd);
    EXAMINED.clear(fd);
}

pub fn forget_range(first: u32, last: u32) {
    let end = last.min(64 * 64 - 1);
    for fd in first..=end {
        forget(fd as i32);
    }
}
