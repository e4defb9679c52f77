//! The sync family as a library to preload: every call answers as the kernel would, and nothing
//! reaches the disk.
//!
//! Made of system calls: no allocation, no lock, no constructor, no symbol version; safe in signal
//! handlers and after fork. Works under glibc and musl. `docs/sync-drop.md` says what it covers.
#![no_std]

mod closes;
mod drops;
#[allow(dead_code, reason = "some of it is between the processes of the tool")]
mod page;
mod state;
mod target;

use core::ffi::{c_char, c_int, c_long, c_uint};

use diskproof_bare::c_library::{answer, cancellation_point, find_open};
use diskproof_bare::syscall::{self, AT_FDCWD};
use page::Kind;

diskproof_bare::stop_at_panic!();

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    cancellation_point();
    answer(drops::sync_descriptor(syscall::FSYNC, Kind::Fsync, fd)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    cancellation_point();
    answer(drops::sync_descriptor(syscall::FDATASYNC, Kind::Fdatasync, fd)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn syncfs(fd: c_int) -> c_int {
    answer(drops::sync_descriptor(syscall::SYNCFS, Kind::Syncfs, fd)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn sync() {
    drops::sync_all();
}

#[unsafe(no_mangle)]
extern "C" fn msync(start: c_long, length: c_long, flags: c_int) -> c_int {
    cancellation_point();
    answer(drops::sync_memory(start, length, flags)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn sync_file_range(fd: c_int, offset: i64, length: i64, flags: c_uint) -> c_int {
    cancellation_point();
    answer(drops::sync_range(fd, offset, length, flags)) as c_int
}

/// # Safety
/// As open(2). The mode is variadic in C, which makes no difference in registers.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let fd = drops::open_with(flags, |flags| match find_open() {
        Some(open) if folder == AT_FDCWD => open(path, flags, mode).into(),
        _ => {
            cancellation_point();
            let words = [folder.into(), path as i64, flags.into(), mode.into(), 0, 0];
            // SAFETY: the caller's.
            answer(unsafe { syscall::call(syscall::OPENAT, words) })
        }
    }) as c_int;
    if fd >= 0 {
        state::set_opened(fd, flags);
    }
    fd
}

diskproof_bare::define_opens!();

#[unsafe(no_mangle)]
unsafe extern "C" fn openat2(fd: c_int, path: *const c_char, how: c_long, size: c_long) -> c_int {
    cancellation_point();
    // SAFETY: as openat2(2).
    let fd = answer(unsafe { drops::open_how(fd, path as i64, how, size) }) as c_int;
    if fd >= 0 {
        state::forget(fd);
    }
    fd
}

macro_rules! vector_writes {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(fd: c_int, parts: c_long, count: c_int, offset: i64, flags: c_int) -> isize {
            cancellation_point();
            answer(drops::write_with(flags, |flags| {
                let words = [fd.into(), parts, count.into(), offset, 0, flags.into()];
                // SAFETY: as pwritev2(2).
                unsafe { syscall::call(syscall::PWRITEV2, words) }
            })) as isize
        }
    )*};
}

vector_writes! { pwritev2 pwritev64v2 }

/// libaio's function: its errors are its value, and errno is left alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_submit(context: c_long, count: c_long, requests: c_long) -> c_int {
    // SAFETY: as io_submit(3).
    unsafe { drops::submit(context, count, requests) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: u64, argument: c_long) -> c_int {
    // SAFETY: as ioctl(2).
    answer(unsafe { drops::control(fd, request, argument) }) as c_int
}

/// The C library's door to every system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: as the call of that number.
    let value = unsafe {
        match number {
            syscall::FSYNC => drops::sync_descriptor(number, Kind::Fsync, fd),
            syscall::FDATASYNC => drops::sync_descriptor(number, Kind::Fdatasync, fd),
            syscall::SYNCFS => drops::sync_descriptor(number, Kind::Syncfs, fd),
            syscall::SYNC => {
                drops::sync_all();
                0
            }
            syscall::CLOSE | syscall::DUP2 | syscall::DUP3 | syscall::CLOSE_RANGE => {
                closes::forget_closed(number, a, b);
                syscall::call(number, [a, b, c, d, e, f])
            }
            syscall::MSYNC => drops::sync_memory(a, b, c as c_int),
            syscall::SYNC_FILE_RANGE => drops::sync_range(fd, b, c, d as c_uint),
            syscall::OPEN => drops::open_with(b as c_int, |flags| {
                syscall::call(number, [a, flags.into(), c, 0, 0, 0])
            }),
            syscall::OPENAT => drops::open_with(c as c_int, |flags| {
                syscall::call(number, [a, b, flags.into(), d, 0, 0])
            }),
            syscall::OPENAT2 => drops::open_how(fd, b, c, d),
            syscall::PWRITEV2 => drops::write_with(f as c_int, |flags| {
                syscall::call(number, [a, b, c, d, e, flags.into()])
            }),
            syscall::IO_SUBMIT => drops::submit(a, b, c),
            syscall::IOCTL => drops::control(fd, b as u64, c),
            _ => syscall::call(number, [a, b, c, d, e, f]),
        }
    };
    answer(value)
}
