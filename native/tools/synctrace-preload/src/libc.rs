//! What is taken from the program's C library, if it has it: symbols without a version, weak where one of them lacks it.

use core::arch::{asm, global_asm};
use core::ffi::{c_char, c_int};

global_asm!(".weak pthread_setcanceltype", ".weak environ", ".weak clock_gettime");

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

type SetType = extern "C" fn(c_int, *mut c_int) -> c_int;
const ASYNCHRONOUS: c_int = 1;

/// From here on a thread that waits may be cancelled, as glibc does it in its own calls; the type from before.
#[inline(always)]
pub fn allow_cancelling() -> c_int {
    set_cancel_type(ASYNCHRONOUS)
}

#[inline(always)]
pub fn set_cancel_type(kind: c_int) -> c_int {
    let mut before = kind;
    let found = weak!("pthread_setcanceltype");
    if !found.is_null() {
        // SAFETY: POSIX's function. It may unwind through us: no frame of ours has anything to clean up.
        unsafe { core::mem::transmute::<*const (), SetType>(found)(kind, &raw mut before) };
    }
    before
}

type Clock = extern "C" fn(c_int, *mut [i64; 2]) -> c_int;

#[inline(always)]
pub fn find_clock() -> Option<Clock> {
    let found = weak!("clock_gettime");
    // SAFETY: its type.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Clock>(found) })
}

/// A variable of the environment, with its NUL.
pub fn find_variable(name: &str) -> Option<*const c_char> {
    let place = weak!("environ").cast::<*const *const c_char>();
    if place.is_null() {
        return None;
    }
    // SAFETY: `environ` is a null-terminated array of strings, or null.
    unsafe {
        let mut each = *place;
        while !each.is_null() && !(*each).is_null() {
            if let Some(value) = value_of(*each, name.as_bytes()) {
                return Some(value);
            }
            each = each.add(1);
        }
    }
    None
}

/// # Safety
/// `line` ends with a NUL.
unsafe fn value_of(line: *const c_char, name: &[u8]) -> Option<*const c_char> {
    for (place, byte) in name.iter().enumerate() {
        // SAFETY: a NUL differs from each byte of the name, so we stop there.
        if unsafe { *line.add(place) } as u8 != *byte {
            return None;
        }
    }
    // SAFETY: all bytes up to here were no NUL.
    let after = unsafe { line.add(name.len()) };
    // SAFETY: as above.
    (unsafe { *after } as u8 == b'=').then(|| after.wrapping_add(1))
}
