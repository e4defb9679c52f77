//! Reads that drop what lies behind them, in the reader itself: the bound that a watcher beside it
//! cannot keep. Opens that tell the watcher instead of stopping for it.
//!
//! Made of system calls: no allocation, no lock, no constructor; safe in signal handlers and after
//! fork. Files that were cached in part when they were first read here are left to the watcher, who
//! remembers which pages were.
#![no_std]

mod behind;
mod c_library;
mod descriptors;
mod door;
mod opens;
mod reports;

use core::ffi::{c_int, c_long, c_void};

use c_library::{find_pread, find_read, stop_overflow};
use diskproof_bare::c_library::{answer, find_close};
use diskproof_bare::syscall;

diskproof_bare::stop_at_panic!();

/// Most that is copied by the kernel in one go: it returns to us before it goes on.
const COPY_BYTES: usize = 2 << 20;

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
    behind::before(fd, None);
    let got = match find_read() {
        Some(read) => read(fd, buffer, size),
        // SAFETY: as read(2).
        None => answer(unsafe {
            syscall::call(syscall::READ, [fd.into(), buffer as i64, size as i64, 0, 0, 0])
        }) as isize,
    };
    behind::after(fd, got);
    got
}

/// What fortified programs call; the check itself is glibc's to make.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, size: usize, room: usize) -> isize {
    if size > room {
        stop_overflow();
    }
    // SAFETY: as read(2).
    unsafe { read(fd, buffer, size) }
}

macro_rules! positioned_reads {
    ($($pread:ident $checked:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $pread(fd: c_int, buffer: *mut c_void, size: usize, offset: i64) -> isize {
            // SAFETY: as pread(2).
            unsafe { read_at(fd, buffer, size, offset) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $checked(fd: c_int, buffer: *mut c_void, size: usize, offset: i64, room: usize) -> isize {
            if size > room {
                stop_overflow();
            }
            // SAFETY: as pread(2).
            unsafe { read_at(fd, buffer, size, offset) }
        }
    )*};
}

positioned_reads! {
    pread __pread_chk;
    pread64 __pread64_chk;
}

/// # Safety
/// As pread(2).
unsafe fn read_at(fd: c_int, buffer: *mut c_void, size: usize, offset: i64) -> isize {
    behind::before(fd, Some(offset));
    let got = match find_pread() {
        Some(pread) => pread(fd, buffer, size, offset),
        // SAFETY: the caller's.
        None => answer(unsafe {
            syscall::call(syscall::PREAD, [fd.into(), buffer as i64, size as i64, offset, 0, 0])
        }) as isize,
    };
    behind::after(fd, got);
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    size: usize,
    flags: c_int,
) -> isize {
    // SAFETY: a pointer that the caller gave for reading and writing, or null.
    let offset = unsafe { from_offset.as_ref() }.copied();
    behind::before(from, offset);
    let size = size.min(COPY_BYTES) as i64;
    let words = [from.into(), from_offset as i64, to.into(), to_offset as i64, size, flags.into()];
    // SAFETY: as copy_file_range(2).
    let got = answer(unsafe { syscall::call(syscall::COPY_FILE_RANGE, words) }) as isize;
    behind::after(from, got);
    got
}

macro_rules! sends {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: c_int, from: c_int, offset: *mut i64, size: usize) -> isize {
            // SAFETY: a pointer that the caller gave for reading and writing, or null.
            behind::before(from, unsafe { offset.as_ref() }.copied());
            let size = size.min(COPY_BYTES) as i64;
            let words = [to.into(), from.into(), offset as i64, size, 0, 0];
            // SAFETY: as sendfile(2).
            let got = answer(unsafe { syscall::call(syscall::SENDFILE, words) }) as isize;
            behind::after(from, got);
            got
        }
    )*};
}

sends! { sendfile sendfile64 }

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    behind::forget(fd);
    match find_close() {
        Some(close) => close(fd),
        None => {
            // SAFETY: no pointers.
            answer(unsafe { syscall::call(syscall::CLOSE, [fd.into(), 0, 0, 0, 0, 0]) }) as c_int
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    behind::forget(to);
    // SAFETY: no pointers.
    answer(unsafe { syscall::call(syscall::DUP2, [from.into(), to.into(), 0, 0, 0, 0]) }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    behind::forget(to);
    let words: [c_long; 6] = [from.into(), to.into(), flags.into(), 0, 0, 0];
    // SAFETY: no pointers.
    answer(unsafe { syscall::call(syscall::DUP3, words) }) as c_int
}
