//! The clock of all times here.

use rustix::time::{clock_gettime, ClockId};

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
