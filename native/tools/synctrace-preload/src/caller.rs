//! Who calls: the shared page, this process and this thread, each asked for once.

use core::arch::{asm, global_asm};
use core::ptr::{dangling_mut, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use diskproof_bare::c_library::find_variable;
use diskproof_bare::shared_page::{self, READ_WRITE};
use diskproof_bare::syscall;

use crate::page::{Page, VARIABLE, VERSION};
use crate::texts;

/// What a thread remembers. Its own signal handlers may come in between.
#[repr(C)]
pub struct Thread {
    /// As in an event.
    caller: AtomicU64,
    /// Of its name: place in the lower half; when it was asked for, in ms, in the upper.
    name: AtomicU64,
    /// The descriptor that was looked at last in the upper half, its file in the lower.
    file: AtomicU64,
    /// When that was, in ns.
    looked: AtomicU64,
}

global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".globl diskproof_sync_trace_thread",
    ".hidden diskproof_sync_trace_thread",
    ".type diskproof_sync_trace_thread, @object",
    ".size diskproof_sync_trace_thread, 32",
    "diskproof_sync_trace_thread:",
    ".zero 32",
    ".popsection",
);
const _: () = assert!(size_of::<Thread>() == 32);

/// The C library makes it zero for each new thread.
#[inline(always)]
fn thread() -> &'static Thread {
    let place: *const Thread;
    // SAFETY: the initial-exec model of thread-local storage: a library that is preloaded has its
    // place at a fixed distance from the thread pointer. No other thread uses the reference.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + diskproof_sync_trace_thread@GOTTPOFF]",
            out(reg) place, options(nostack, readonly),
        );
        &*place
    }
}

/// No page, or one of a tracer that cannot be met.
const NONE: *mut Page = dangling_mut();
static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// Holds the number of this process, in memory that is zero again after a fork.
static PROCESS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Instead of the number: it means nothing to the tracer.
const FOREIGN: u64 = u64::MAX;

/// None where nobody wants to know.
#[inline(always)]
pub fn find_page() -> Option<&'static Page> {
    let mut page = PAGE.load(Acquire);
    if page.is_null() {
        page = look_for_page();
    }
    // SAFETY: otherwise set once, to a mapping that is never taken away.
    let page = (page != NONE).then(|| unsafe { &*page })?;
    (page.closed.load(Relaxed) == 0).then_some(page)
}

#[cold]
fn look_for_page() -> *mut Page {
    // SAFETY: nobody else has seen this mapping.
    unsafe { shared_page::set_once(&PAGE, map_page().unwrap_or(NONE), NONE) }
}

fn map_page() -> Option<*mut Page> {
    const O_RDWR_NOCTTY_NONBLOCK_CLOEXEC: i64 = 0o2_004_402;
    let path = find_variable(VARIABLE)? as i64;
    // SAFETY: a string of the environment; the page is made of atomic numbers.
    let page = unsafe {
        let words = [path, O_RDWR_NOCTTY_NONBLOCK_CLOEXEC, 0, 0, 0, 0];
        shared_page::map::<Page>(syscall::call(syscall::OPEN, words))?
    };
    // SAFETY: just mapped.
    (unsafe { &*page }.version.load(Relaxed) == VERSION).then_some(page)
}

/// The number of this process, if the tracer knows it by that number. A child of vfork passes for
/// its parent.
#[inline(always)]
fn find_process(page: &Page) -> Option<u64> {
    let word = PROCESS.load(Acquire);
    // SAFETY: set once, to a mapping that is never taken away.
    let known = if word.is_null() { 0 } else { unsafe { (*word).load(Relaxed) } };
    let number = if known == 0 { ask_process(page) } else { known };
    (number != FOREIGN).then_some(number)
}

#[cold]
fn ask_process(page: &Page) -> u64 {
    // SAFETY: no arguments.
    let own = unsafe { syscall::call(syscall::GETPID, [0; 6]) } as u64;
    let number = if texts::read_pid_namespace() == Some(page.pid_namespace.load(Relaxed)) {
        own
    } else {
        FOREIGN
    };
    if let Some(word) = find_word() {
        word.store(number, Relaxed);
    }
    number
}

/// Memory that a child of fork finds empty. None: the number is asked for each time.
fn find_word() -> Option<&'static AtomicU64> {
    const WIPE_ON_FORK: i64 = 18;
    const LENGTH: i64 = 4096;
    const PRIVATE_ANONYMOUS: i64 = 0x22;
    let known = PROCESS.load(Acquire);
    if !known.is_null() {
        // SAFETY: as in `find_process`.
        return Some(unsafe { &*known });
    }
    // SAFETY: a new mapping, which only we know of until it is set.
    unsafe {
        let place = syscall::call(syscall::MMAP, [0, LENGTH, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0]);
        if place <= 0 {
            return None;
        }
        let word = place as *mut AtomicU64;
        let wiped = syscall::call(syscall::MADVISE, [place, LENGTH, WIPE_ON_FORK, 0, 0, 0]) == 0;
        if wiped && PROCESS.compare_exchange(null_mut(), word, AcqRel, Acquire).is_ok() {
            return Some(&*word);
        }
        syscall::call(syscall::MUNMAP, [place, LENGTH, 0, 0, 0, 0]);
        None
    }
}

/// Who calls, and the place of its name. None where the tracer knows it by another number.
pub struct Caller {
    pub caller: u64,
    pub name: u32,
    thread: &'static Thread,
}

const FRESH_MS: u32 = 500;
/// A descriptor is looked at again after so long, in ns: to close it, open another file and sync
/// that takes longer.
const SAME_FILE: u64 = 2_000;

#[inline(always)]
pub fn find_caller(page: &Page, now: u64) -> Option<Caller> {
    let process = find_process(page)?;
    let thread = thread();
    let mut caller = thread.caller.load(Relaxed);
    if caller >> 32 != process {
        // SAFETY: no arguments.
        caller = process << 32 | unsafe { syscall::call(syscall::GETTID, [0; 6]) } as u64;
        thread.caller.store(caller, Relaxed);
        thread.name.store(0, Relaxed);
    }
    let ms = (now / 1_000_000) as u32;
    let known = thread.name.load(Relaxed);
    let mut name = known as u32;
    if known == 0 || ms.wrapping_sub((known >> 32) as u32) >= FRESH_MS {
        name = texts::keep_thread_name(page, name);
        thread.name.store(u64::from(ms) << 32 | u64::from(name), Relaxed);
    }
    Some(Caller { caller, name, thread })
}

impl Caller {
    /// The file's name if the descriptor was looked at just now.
    #[inline(always)]
    pub fn find_recent(&self, fd: i32, now: u64) -> Option<u32> {
        let file = self.thread.file.load(Relaxed);
        let recent = now.wrapping_sub(self.thread.looked.load(Relaxed)) < SAME_FILE;
        (recent && (file >> 32) as u32 == fd as u32).then_some(file as u32)
    }

    pub fn look(&self, page: &Page, fd: i32, now: u64) -> u32 {
        let file = texts::find_file(page, fd, now);
        self.thread.looked.store(0, Relaxed);
        self.thread.file.store(u64::from(fd as u32) << 32 | u64::from(file), Release);
        self.thread.looked.store(now, Release);
        file
    }
}
