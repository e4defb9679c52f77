//! Opens that do not stop for the watcher.

use core::ffi::{c_char, c_int, c_uint};

use diskproof_bare::c_library::{answer, cancellation_point, find_open};
use diskproof_bare::syscall::{self, AT_FDCWD};

use crate::c_library::has_one_thread;
use crate::door::MARKS;
use crate::{behind, reports};

const O_ACCMODE: c_int = 3;
/// O_DIRECTORY and O_PATH: nothing is read through those.
const NOT_FILES: c_int = 0o200_000 | 0o10_000_000;

/// # Safety
/// As openat(2). The mode is variadic in C, which makes no difference in registers.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let marked = flags & NOT_FILES == 0 && reports::is_ready();
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
    let fd = answer(unsafe { syscall::call(syscall::OPENAT, words) }) as c_int;
    match fd {
        0.. if marked => reports::report(fd, flags & O_ACCMODE != 0),
        _ => behind::forget(fd),
    }
    fd
}

diskproof_bare::define_opens!();
