//! What takes a file from a descriptor: afterwards nothing is known of that number.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::ptr::null_mut;

use diskproof_bare::c_library::{answer, cancellation_point, find_close};
use diskproof_bare::{c_function, syscall};

use crate::state;

/// By the arguments of a system call that closes.
pub fn forget_closed(number: i64, first: i64, second: i64) {
    match number {
        syscall::CLOSE_RANGE => state::forget_range(first as u32, second as u32),
        syscall::DUP2 | syscall::DUP3 => state::forget(second as c_int),
        _ => state::forget(first as c_int),
    }
}

/// # Safety
/// The arguments are those of a call that closes, and no pointers.
unsafe fn call(number: i64, words: [i64; 6]) -> c_int {
    forget_closed(number, words[0], words[1]);
    // SAFETY: the caller's promise.
    answer(unsafe { syscall::call(number, words) }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    state::forget(fd);
    match find_close() {
        Some(close) => close(fd),
        None => {
            cancellation_point();
            // SAFETY: close(2).
            unsafe { call(syscall::CLOSE, [fd.into(), 0, 0, 0, 0, 0]) }
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: dup2(2).
    unsafe { call(syscall::DUP2, [from.into(), to.into(), 0, 0, 0, 0]) }
}

#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: dup3(2).
    unsafe { call(syscall::DUP3, [from.into(), to.into(), flags.into(), 0, 0, 0]) }
}

#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: close_range(2).
    unsafe { call(syscall::CLOSE_RANGE, [first.into(), last.into(), flags.into(), 0, 0, 0]) }
}

#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    state::forget_range(first.max(0) as u32, u32::MAX);
    let words = [first.max(0).into(), u32::MAX.into(), 0, 0, 0, 0];
    // SAFETY: close_range(2), Linux 5.9.
    let missing = unsafe { syscall::call(syscall::CLOSE_RANGE, words) } != 0;
    if let Some(closefrom) = find_closefrom().filter(|_| missing) {
        closefrom(first);
    }
}

/// The stream closes its descriptor by itself, unseen.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    const ENOMEM: i64 = 12;
    state::forget(fd);
    match find_fdopen() {
        Some(fdopen) => fdopen(fd, mode),
        None => {
            answer(-ENOMEM);
            null_mut()
        }
    }
}

type Fdopen = extern "C" fn(c_int, *const c_char) -> *mut c_void;
type Closefrom = extern "C" fn(c_int);
type Dlsym = extern "C" fn(*const c_void, *const c_char) -> *const ();

/// Under its old name in glibc.
fn find_fdopen() -> Option<Fdopen> {
    // SAFETY: its type.
    let next = |found| unsafe { core::mem::transmute::<*const (), Fdopen>(found) };
    c_function!("_IO_fdopen", Fdopen).or_else(|| find_next(c"fdopen").map(next))
}

/// Whoever has it has dlsym in the same library.
fn find_closefrom() -> Option<Closefrom> {
    // SAFETY: its type.
    let next = |found| unsafe { core::mem::transmute::<*const (), Closefrom>(found) };
    find_next(c"closefrom").map(next)
}

/// What a program would have called without us.
fn find_next(name: &CStr) -> Option<*const ()> {
    const RTLD_NEXT: *const c_void = usize::MAX as *const c_void;
    let found = c_function!("dlsym", Dlsym)?(RTLD_NEXT, name.as_ptr());
    (!found.is_null()).then_some(found)
}
