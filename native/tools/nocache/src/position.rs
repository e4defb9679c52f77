//! How far a reader is, from /proc/PID/fdinfo: what lies before it can go, what lies ahead was read
//! ahead for it.

use crate::watched::Key;
use rustix::fs::stat;
use std::collections::HashMap;

/// Descriptors of a process that are looked through for a file.
const DESCRIPTORS: usize = 1024;

/// Where files were found open: looked up once, then only checked.
#[derive(Default)]
pub struct Positions {
    found: HashMap<Key, (u32, u32)>,
}

impl Positions {
    /// Offset in bytes of the descriptor through which `opener` has a file open; None when it has
    /// not, or may not be looked at.
    pub fn find(&mut self, key: Key, opener: u32) -> Option<u64> {
        let place = self.found.get(&key).copied().filter(|&place| is_open(key, place));
        let place = place.or_else(|| find_open(key, opener));
        let Some((process, number)) = place else {
            self.found.remove(&key);
            return None;
        };
        self.found.insert(key, (process, number));
        let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())
    }

    pub fn forget(&mut self, key: Key) {
        self.found.remove(&key);
    }
}

fn find_open(key: Key, process: u32) -> Option<(u32, u32)> {
    let names = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let numbers = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok());
    numbers.take(DESCRIPTORS).map(|number| (process, number)).find(|&place| is_open(key, place))
}

/// Our own descriptors of the watched files are no readers: only the standard ones count.
fn is_open(key: Key, (process, number): (u32, u32)) -> bool {
    if process == std::process::id() && number > 2 {
        return false;
    }
    let facts = stat(format!("/proc/{process}/fd/{number}"));
    facts.is_ok_and(|facts| key == (facts.st_dev, facts.st_ino) || key == (u64::MAX, facts.st_rdev))
}
