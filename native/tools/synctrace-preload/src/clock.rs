//! CLOCK_MONOTONIC, from the C library where it has it without a system call.

use crate::libc::find_clock;
use crate::raw;

const MONOTONIC: i32 = 1;

/// Nanoseconds.
#[inline(always)]
pub fn now() -> u64 {
    let mut time = [0_i64; 2];
    match find_clock() {
        Some(clock) => {
            clock(MONOTONIC, &raw mut time);
        }
        None => {
            let place = (&raw mut time) as i64;
            // SAFETY: struct timespec has two words here.
            unsafe { raw::call(raw::CLOCK_GETTIME, [MONOTONIC.into(), place, 0, 0, 0, 0]) };
        }
    }
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
