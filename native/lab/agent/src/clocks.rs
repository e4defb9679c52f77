//! The guest's clocks in nanoseconds.

use rustix::time::{clock_gettime, ClockId};

pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

pub fn realtime_ns() -> u64 {
    read_ns(ClockId::Realtime)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is negative before a wrong hand sets the real time so.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
