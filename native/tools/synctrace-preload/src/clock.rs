//! CLOCK_MONOTONIC, from the C library where it has it without a system call.

use core::ffi::c_int;

use diskproof_bare::{c_function, syscall};

type Clock = extern "C" fn(c_int, *mut [i64; 2]) -> c_int;

const MONOTONIC: i32 = 1;

/// Nanoseconds.
#[inline(always)]
pub fn now() -> u64 {
    let mut time = [0_i64; 2];
    match c_function!("clock_gettime", Clock) {
        Some(clock) => {
            clock(MONOTONIC, &raw mut time);
        }
        None => {
            let place = (&raw mut time) as i64;
            // SAFETY: struct timespec has two words here.
            unsafe { syscall::call(syscall::CLOCK_GETTIME, [MONOTONIC.into(), place, 0, 0, 0, 0]) };
        }
    }
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
