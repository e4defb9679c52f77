//! Opens that do not stop for the watcher.

use core::ffi::{c_char, c_int, c_uint};

use crate::door::MARKS;
use crate::libc::{answer, cancellation_point, find_open, has_one_thread};
use crate::{behind, raw, told};

const AT_FDCWD: c_int = -100;
const O_ACCMODE: c_int = 3;
const O_CREATE_AND_TRUNCATE: c_int = 0o1 | 0o100 | 0o1000;
/// O_DIRECTORY and O_PATH: nothing is read through those.
const NOT_FILES: c_int = 0o200_000 | 0o10_000_000;

/// # Safety
/// As openat(2). The mode is variadic in C, which makes no difference in registers.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let marked = flags & NOT_FILES == 0 && told::is_ready();
    if folder == AT_FDCWD && !(marked && has_one_thread()) {
        if let Some(open) = find_open() {
            let fd = open(path, flags, mode);
            behind::forget(fd);
            return fd;
        }
    }
    cancellation_point();
    let marks = if marked { MARKS.map(|mark| mark as i64) } else { [0; 2] };
    let words = [folder.into(), path as i64, flags.into(), mode.into(), marks[0], marks[1]];
    // SAFETY: the caller's.
    let fd = answer(unsafe { raw::call(raw::OPENAT, words) }) as c_int;
    match fd {
        0.. if marked => told::tell(fd, flags & O_ACCMODE != 0),
        _ => behind::forget(fd),
    }
    fd
}

macro_rules! opens {
    ($($open:ident $open_at:ident $creat:ident $checked:ident $checked_at:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            // SAFETY: as open(2).
            unsafe { open_at(AT_FDCWD, path, flags, mode) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $open_at(fd: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            // SAFETY: as openat(2).
            unsafe { open_at(fd, path, flags, mode) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $creat(path: *const c_char, mode: c_uint) -> c_int {
            // SAFETY: as creat(2).
            unsafe { open_at(AT_FDCWD, path, O_CREATE_AND_TRUNCATE, mode) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: as open(2) without a mode.
            unsafe { open_at(AT_FDCWD, path, flags, 0) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $checked_at(fd: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: as openat(2) without a mode.
            unsafe { open_at(fd, path, flags, 0) }
        }
    )*};
}

opens! {
    open openat creat __open_2 __openat_2;
    open64 openat64 creat64 __open64_2 __openat64_2;
}
