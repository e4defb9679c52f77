//! `--psi`: the share of time in which work waited for CPU, I/O or memory.

use super::simple::share;
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

/// Column, file, which line: `some` is one task at least that waits, `full` all that could work.
const LINES: [(&str, &str, &str, &[u8]); 5] = [
    ("psi.cpu", "cpu", "proc/pressure/cpu", b"some"),
    ("psi.io", "io", "proc/pressure/io", b"some"),
    ("psi.io_full", "iof", "proc/pressure/io", b"full"),
    ("psi.memory", "mem", "proc/pressure/memory", b"some"),
    ("psi.memory_full", "mef", "proc/pressure/memory", b"full"),
];

struct Pressure {
    lines: Vec<(FileId, &'static [u8], Option<u64>)>,
    groups: Vec<Group>,
}

/// On a kernel without pressure stall information all is unknown.
pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let lines = LINES.iter().map(|line| (setup.files.share(line.2), line.3, None)).collect();
    let columns = LINES.iter().map(|line| Column::new(line.0, line.1, Unit::Percent)).collect();
    Ok(Box::new(Pressure { lines, groups: vec![Group::new("pressure", columns)] }))
}

/// Microseconds since boot: `some avg10=0.00 avg60=0.00 avg300=0.00 total=7`.
fn total(text: &[u8], line: &[u8]) -> Option<u64> {
    let words = scan::words(scan::after_key(text, line)?);
    words.into_iter().find_map(|word| word.strip_prefix(b"total=")).and_then(scan::whole_number)
}

impl Module for Pressure {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        for (file, line, last) in &mut self.lines {
            let waited = total(files.text(*file), line);
            row.push(share(*last, waited, now.span));
            *last = waited;
        }
    }
}
