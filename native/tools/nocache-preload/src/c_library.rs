//! What else is taken from the program's C library, if it has it.

use core::arch::asm;
use core::ffi::{c_int, c_void};

use diskproof_bare::{c_function, weak};

type Read = extern "C" fn(c_int, *mut c_void, usize) -> isize;
type Pread = extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;

/// glibc's own read, so that a thread that waits in it can still be cancelled.
#[inline(always)]
pub fn find_read() -> Option<Read> {
    c_function!("__read", Read)
}

#[inline(always)]
pub fn find_pread() -> Option<Pread> {
    c_function!("__pread64", Pread)
}

/// Nobody can cancel us while we wait. Says false when in doubt.
#[inline(always)]
pub fn has_one_thread() -> bool {
    let found = weak!("__libc_single_threaded").cast::<u8>();
    // SAFETY: glibc's variable of one byte, changed by this thread only while it is true.
    !found.is_null() && unsafe { found.read_volatile() } != 0
}

/// A buffer is smaller than what was to be read into it: glibc's message and end.
#[cold]
pub fn stop_overflow() -> ! {
    if let Some(stop) = c_function!("__chk_fail", extern "C" fn() -> !) {
        stop();
    }
    loop {
        // SAFETY: an instruction that no program survives.
        unsafe { asm!("ud2") };
    }
}
