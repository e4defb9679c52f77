//! The other strategy: a memory cgroup of its own, whose pages the kernel takes away when there are
//! too many, and all at the end. What was cached before is charged to others and stays.

use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Reclaim gives up when pages are dirty or in use: asked this often.
const ATTEMPTS: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// What was done; in bytes, the command's own memory included in the peak.
#[derive(Debug, Serialize)]
pub struct Report {
    pub strategy: &'static str,
    pub peak_bytes: u64,
    pub left_bytes: u64,
    /// Processes that the command left running keep their group.
    pub removed: bool,
}

/// A group that is removed by `finish`.
pub struct Group {
    folder: PathBuf,
    home: PathBuf,
    version: Version,
}

impl Group {
    /// Makes a group with a limit, beside our own.
    pub fn make(limit: u64) -> Result<Self, String> {
        let membership =
            fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let (home, version) = find_home(&membership, &mounts)
            .ok_or("no memory controller is mounted and enabled for us")?;
        let parent = if version == Version::Two { home.parent().unwrap_or(&home) } else { &home };
        let folder = parent.join(format!("diskproof-nocache-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Self { folder, home, version };
        let file = if version == Version::Two { "memory.high" } else { "memory.limit_in_bytes" };
        group.write(file, &limit.to_string()).map_err(|error| {
            let _ = fs::remove_dir(&group.folder);
            format!("{file} of {}: {error}", group.folder.display())
        })?;
        Ok(group)
    }

    /// What `start` starts is in the group; we are not.
    pub fn start_inside<T>(&self, start: impl FnOnce() -> T) -> Result<T, String> {
        let place = |folder: &Path| {
            let file = folder.join("cgroup.procs");
            fs::write(&file, std::process::id().to_string())
                .map_err(|error| format!("{}: {error}", file.display()))
        };
        place(&self.folder)?;
        let started = start();
        place(&self.home)?;
        Ok(started)
    }

    /// Empties the group and removes it.
    pub fn finish(self) -> Report {
        for _ in 0..ATTEMPTS {
            let _ = match self.version {
                Version::Two => self.write("memory.reclaim", &self.used().to_string()),
                Version::One => self.write("memory.force_empty", "0"),
            };
            if self.cached() == 0 {
                break;
            }
        }
        let peak = match self.version {
            Version::Two => "memory.peak",
            Version::One => "memory.max_usage_in_bytes",
        };
        let (peak_bytes, left_bytes) = (self.read(peak), self.cached());
        let removed = fs::remove_dir(&self.folder).is_ok();
        Report { strategy: "cgroup", peak_bytes, left_bytes, removed }
    }

    fn used(&self) -> u64 {
        self.read("memory.current")
    }

    fn cached(&self) -> u64 {
        let name = if self.version == Version::Two { "file " } else { "cache " };
        let text = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        value.unwrap_or(0)
    }

    fn read(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn write(&self, file: &str, text: &str) -> std::io::Result<()> {
        fs::write(self.folder.join(file), text)
    }
}

/// The folder of our own memory cgroup.
fn find_home(membership: &str, mounts: &str) -> Option<(PathBuf, Version)> {
    let mut ours: Vec<_> = membership.lines().filter_map(|line| line.split_once(':')).collect();
    // The memory controller is in one hierarchy only: v1's, if there.
    ours.sort_by_key(|(number, _)| *number == "0");
    ours.into_iter().find_map(|(number, rest)| {
        let (controllers, path) = rest.split_once(':')?;
        let version = match number {
            "0" => Version::Two,
            _ if controllers.split(',').any(|name| name == "memory") => Version::One,
            _ => return None,
        };
        let folder = find_mount(mounts, version)?.join(path.trim_start_matches('/'));
        let usable = version == Version::One || has_memory(&folder);
        usable.then_some((folder, version))
    })
}

fn has_memory(folder: &Path) -> bool {
    let parent = folder.parent().unwrap_or(folder);
    let enabled = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    enabled.split_whitespace().any(|name| name == "memory")
}

/// Mount point of the hierarchy, from lines as in proc_pid_mountinfo(5).
fn find_mount(mounts: &str, version: Version) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let wanted = match version {
            Version::Two => kind == "cgroup2",
            Version::One => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
        };
        wanted.then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        24 1 0:22 / /proc rw - proc proc rw\n\
        40 30 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 30 0:36 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        42 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_of_the_first_version_is_found_by_its_controller() {
        let found = find_home("11:cpu,cpuacct:/a\n5:memory:/user/x\n0::/y\n", MOUNTS);
        assert_eq!(found, Some(("/sys/fs/cgroup/memory/user/x".into(), Version::One)));
    }

    #[test]
    fn mounts_of_both_versions_are_told_apart() {
        assert_eq!(find_mount(MOUNTS, Version::Two), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find_mount("garbage\n1 2 - cgroup", Version::One), None);
    }

    #[test]
    fn without_a_memory_controller_there_is_none() {
        assert_eq!(find_home("3:cpu:/\n0::/nowhere/at/all\n", MOUNTS), None);
        assert_eq!(find_home("", ""), None);
    }
}
