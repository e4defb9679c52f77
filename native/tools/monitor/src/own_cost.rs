//! What watching costs: this program's own CPU time and memory.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::time::{clock_gettime, ClockId};

use crate::files::read_whole;
use crate::scan;

/// Seconds of `clock`.
pub fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU seconds of this program until now.
pub fn cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// Resident memory of this program, read from its own /proc file, which a recorded tree does not
/// have.
pub struct OwnMemory {
    statm: Option<OwnedFd>,
    text: Vec<u8>,
}

impl OwnMemory {
    pub fn open() -> Self {
        OwnMemory { statm: File::open("/proc/self/statm").ok().map(OwnedFd::from), text: vec![] }
    }

    /// Bytes; NaN without /proc.
    pub fn resident(&mut self) -> f64 {
        let Some(statm) = &self.statm else { return f64::NAN };
        let Ok(length) = read_whole(statm, &mut self.text) else { return f64::NAN };
        let pages = scan::words(&self.text[..length]).nth(1).and_then(scan::whole_number);
        pages.map_or(f64::NAN, |pages| pages as f64 * rustix::param::page_size() as f64)
    }
}
