//! The page shared with the tool, found at the first sync; which descriptors were examined.

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};

use diskproof_bare::c_library::find_variable;
use diskproof_bare::{shared_page, syscall};

use crate::page::{Kind, Page, ASK_FOR_PAGE, KINDS, LEFTS, TOGGLE_SIZE, VARIABLE, VERSION};

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
    let nobodys = from_ref(&NOBODYS).cast_mut();
    // SAFETY: nobody else has seen this mapping; the rest as in `page`.
    unsafe { &*shared_page::set_once(&PAGE, map_page().unwrap_or(nobodys), nobodys) }
}

/// From the filter's supervisor, or from the file that the environment names.
fn map_page() -> Option<*mut Page> {
    const O_RDWR_CLOEXEC: i64 = 0o2 | 0o2_000_000;
    // SAFETY: a number that is no descriptor; a string of the environment.
    let page = unsafe {
        let mut fd = syscall::call(syscall::FSYNC, [ASK_FOR_PAGE.into(), 0, 0, 0, 0, 0]);
        if fd < 0 {
            let path = find_variable(VARIABLE)? as i64;
            fd = syscall::call(syscall::OPEN, [path, O_RDWR_CLOEXEC, 0, 0, 0, 0]);
        }
        shared_page::map::<Page>(fd)?
    };
    // SAFETY: just mapped.
    (unsafe { &*page }.version.load(Relaxed) == VERSION).then_some(page)
}

pub fn count(page: &Page, kind: Kind) {
    page.dropped[kind as usize].fetch_add(1, Relaxed);
}

/// Whether this sync is ours to drop. If not, the call is made as it is: to the filter, which
/// decides and counts, or, when there is none, to the disk.
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
        unsafe { syscall::call(syscall::ACCESS, [page.toggle.as_ptr() as i64, 0, 0, 0, 0, 0]) != 0 }
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
/// It was opened here for writing, and will be closed here: it is open as long as nobody told
/// otherwise.
static OPENED: Marks = Marks::none();
static CALLS: AtomicU32 = AtomicU32::new(0);
/// So often it is examined again: errors of writes are told late at worst, and a descriptor that
/// changed its file unseen does not pass for long.
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

/// The C library itself redirects the standard ones, and closes directories, which nobody opens for
/// writing.
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
