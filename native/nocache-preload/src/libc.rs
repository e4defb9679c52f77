//! What is taken from the program's C library, if it has it: weak symbols without a version.

use core::arch::{asm, global_asm};
use core::ffi::{c_int, c_void};

global_asm!(".weak __read", ".weak __pread64", ".weak __close", ".weak __chk_fail");

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
