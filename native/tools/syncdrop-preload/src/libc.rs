//! What is taken from the program's C library, if it has it: symbols without a version, weak where one of them lacks it.

use core::arch::{asm, global_asm};
use core::ffi::{c_char, c_int, c_void};

global_asm!(".weak pthread_testcancel", ".weak environ", ".weak __open64", ".weak __close");
global_asm!(".weak _IO_fdopen", ".weak dlsym");

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

/// The sync calls are places where a thread may be cancelled.
#[inline(always)]
pub fn cancellation_point() {
    let test = weak!("pthread_testcancel");
    if !test.is_null() {
        // SAFETY: POSIX's function. It may unwind through us: no frame of ours has anything to clean up.
        unsafe { core::mem::transmute::<*const (), extern "C" fn()>(test)() };
    }
}

type Open = extern "C" fn(*const c_char, c_int, u32) -> c_int;
type Close = extern "C" fn(c_int) -> c_int;

/// glibc's own open, so that a thread that waits in it can still be cancelled.
#[inline(always)]
pub fn find_open() -> Option<Open> {
    let found = weak!("__open64");
    // SAFETY: its three arguments travel as those of any C function, also where it takes the last as variadic.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Open>(found) })
}

#[inline(always)]
pub fn find_close() -> Option<Close> {
    let found = weak!("__close");
    // SAFETY: its type.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*const (), Close>(found) })
}

type Fdopen = extern "C" fn(c_int, *const c_char) -> *mut c_void;
type Closefrom = extern "C" fn(c_int);
type Dlsym = extern "C" fn(*const c_void, *const c_char) -> *const ();

/// Under its old name in glibc.
pub fn find_fdopen() -> Option<Fdopen> {
    let old = weak!("_IO_fdopen");
    let found = if old.is_null() { find_next(c"fdopen")? } else { old };
    // SAFETY: its type.
    Some(unsafe { core::mem::transmute::<*const (), Fdopen>(found) })
}

/// Whoever has it has dlsym in the same library.
pub fn find_closefrom() -> Option<Closefrom> {
    // SAFETY: its type.
    find_next(c"closefrom")
        .map(|found| unsafe { core::mem::transmute::<*const (), Closefrom>(found) })
}

/// What a program would have called without us.
fn find_next(name: &core::ffi::CStr) -> Option<*const ()> {
    const RTLD_NEXT: *const c_void = usize::MAX as *const c_void;
    let dlsym = weak!("dlsym");
    if dlsym.is_null() {
        return None;
    }
    // SAFETY: POSIX's function, its handle and a string.
    let found =
        unsafe { core::mem::transmute::<*const (), Dlsym>(dlsym)(RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
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
