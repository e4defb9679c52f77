//! What one real sync costs here: the price at which the dropped ones are counted.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{fdatasync, open, Mode, OFlags};
use rustix::io::pwrite;

const BLOCK: [u8; 4096] = [0x5d; 4096];

/// The shorter of two: fdatasync after 4 KiB, in a file without a name in the current folder, or in
/// the one for temporary files. Measured before the command makes anything dirty: a sync at its end
/// would write all of that.
pub fn measure() -> Option<Duration> {
    [Path::new("."), &std::env::temp_dir()].into_iter().find_map(measure_in)
}

fn measure_in(folder: &Path) -> Option<Duration> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(folder, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let once = |offset| {
        pwrite(&file, &BLOCK, offset).ok()?;
        let start = Instant::now();
        fdatasync(&file).ok()?;
        Some(start.elapsed())
    };
    Some(once(0)?.min(once(4096)?))
}
