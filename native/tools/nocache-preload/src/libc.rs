//! What is taken from the program's C library, if it has it: weak symbols without a version.

use core::arch::{asm, global_asm};
use core::ffi::{c_char, c_int, c_void};

global_asm!(
    ".weak __read",
    ".weak __pread64",
    ".weak __open64",
    ".weak __close",
    ".weak __chk_fail",
    ".weak pthread_testcancel",
    ".weak __libc_single_threaded",
);

/// Address of a weak symbol, null where nobody defines it.
macro_rules! weak {
    ($name:literal) => {{
        let address: *const ();
        // SAFETY: reads a slot of our own table, filled when the library was loaded.
        unsafe {
            asm!(
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address, options(nostack, preserves_flags, readonly, pure)
            );
        }
        address
    }};
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// As a C function answers: the value, or -1 and errno.
#[inline(always)]
pub fn answer(value: i64) -> i64 {
    if (-4095..0).contains(&value) {
        // SAFETY: this thread's errno.
        unsafe { *__errno_location() = -value as c_int };
        return -1;
    }
    value
}

type Read = extern "C" fn(c_int, *mut c_void, usize) -> isize;
type Pread = extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
type Open = extern "C" fn(*const c_char, c_int, u32) -> c_int;
type Close = extern "C" fn(c_int) -> c_int;

/// glibc's own read, so that a thread that waits in it can still be cancelled.
#[inline(always)]
pub fn find_read() -> Option<Read> {
    let found = weak!("__read");
    // SAFETY: its type.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Read>(found) })
}

#[inline(always)]
pub fn find_pread() -> Option<Pread> {
    let found = weak!("__pread64");
    // SAFETY: its type.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Pread>(found) })
}

/// A thread that waits in it can be cancelled.
#[inline(always)]
pub fn find_open() -> Option<Open> {
    let found = weak!("__open64");
    // SAFETY: its three arguments travel as those of any C function, also where it takes the last as variadic.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Open>(found) })
}

/// Nobody can cancel us while we wait. Says false when in doubt.
#[inline(always)]
pub fn has_one_thread() -> bool {
    let found = weak!("__libc_single_threaded").cast::<u8>();
    // SAFETY: glibc's variable of one byte, changed by this thread only while it is true.
    !found.is_null() && unsafe { found.read_volatile() } != 0
}

/// Opens are places where a thread may be cancelled.
#[inline(always)]
pub fn cancellation_point() {
    let test = weak!("pthread_testcancel");
    if !test.is_null() {
        // SAFETY: POSIX's function. It may unwind through us: no frame of ours has anything to clean up.
        unsafe { core::mem::transmute::<*const (), extern "C" fn()>(test)() };
    }
}

#[inline(always)]
pub fn find_close() -> Option<Close> {
    let found = weak!("__close");
    // SAFETY: its type.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Close>(found) })
}

/// A buffer is smaller than what was to be read into it: glibc's message and end.
#[cold]
pub fn stop_overflow() -> ! {
    let found = weak!("__chk_fail");
    if !found.is_null() {
        // SAFETY: its type.
        unsafe { core::mem::transmute::<*const (), extern "C" fn() -> !>(found)() };
    }
    loop {
        // SAFETY: an instruction that no program survives.
        unsafe { asm!("ud2") };
    }
}
