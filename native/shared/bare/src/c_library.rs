//! What is taken from the program's C library, if it has it: symbols without a version, weak where
//! one library lacks it.

use core::ffi::{c_char, c_int};

/// Address of a weak symbol, null where nobody defines it.
#[macro_export]
macro_rules! weak {
    ($name:literal) => {{
        let address: *const ();
        // SAFETY: reads a slot of our own table, filled when the library was loaded.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address, options(nostack, preserves_flags, readonly, pure)
            );
        }
        address
    }};
}

/// A C function by its name and type, if somebody defines it. Its arguments travel as those of any
/// C function, also where it takes the last as variadic.
#[macro_export]
macro_rules! c_function {
    ($name:literal, $type:ty) => {{
        let found = $crate::weak!($name);
        // SAFETY: its type is what its documentation says.
        (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), $type>(found) })
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

/// A thread may be cancelled here. It may unwind through us: no frame of ours has anything to clean
/// up.
#[inline(always)]
pub fn cancellation_point() {
    if let Some(test) = c_function!("pthread_testcancel", extern "C" fn()) {
        test();
    }
}

type Open = extern "C" fn(*const c_char, c_int, u32) -> c_int;
type Close = extern "C" fn(c_int) -> c_int;

/// glibc's own open, so that a thread that waits in it can still be cancelled.
#[inline(always)]
pub fn find_open() -> Option<Open> {
    c_function!("__open64", Open)
}

#[inline(always)]
pub fn find_close() -> Option<Close> {
    c_function!("__close", Close)
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
