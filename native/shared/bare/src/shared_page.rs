//! Memory that the preloaded library shares with its tool: a file that is mapped at the first use
//! and stays.

use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::syscall::{self, call};

pub const READ_WRITE: i64 = 3;
const SHARED: i64 = 1;

/// Maps the file of a descriptor, which it closes, if it has the size of a `T`: one that is too
/// short would kill us at the first touch.
///
/// # Safety
/// The descriptor is ours, or an error; whatever stands in the file is a valid `T`.
pub unsafe fn map<T>(fd: i64) -> Option<*mut T> {
    const SEEK_END: i64 = 2;
    if fd < 0 {
        return None;
    }
    let size = size_of::<T>() as i64;
    // SAFETY: a new mapping, as long as its file.
    let place = unsafe {
        let place = match call(syscall::LSEEK, [fd, 0, SEEK_END, 0, 0, 0]) {
            length if length == size => call(syscall::MMAP, [0, size, READ_WRITE, SHARED, fd, 0]),
            _ => 0,
        };
        call(syscall::CLOSE, [fd, 0, 0, 0, 0, 0]);
        place
    };
    (place > 0).then_some(place as *mut T)
}

/// Sets what is found once and for all, and gives what another thread has set if it was faster.
/// `none` stands for no mapping, and is not taken away.
///
/// # Safety
/// `found` is `none`, or a mapping by [`map`] that nobody else has seen.
pub unsafe fn set_once<T>(slot: &AtomicPtr<T>, found: *mut T, none: *mut T) -> *mut T {
    let Err(other) = slot.compare_exchange(null_mut(), found, AcqRel, Acquire) else {
        return found;
    };
    if found != none {
        // SAFETY: the caller's promise.
        unsafe { call(syscall::MUNMAP, [found as i64, size_of::<T>() as i64, 0, 0, 0, 0]) };
    }
    other
}
