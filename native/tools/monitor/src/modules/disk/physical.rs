//! Which disks are summed up: whole ones that a device stands behind. Loop, ram, zram,
//! device-mapper and md have none, and would count bytes twice.

use std::fs;
use std::path::{Path, PathBuf};

use crate::scan;

pub enum Physical {
    /// /sys/block knows, also of disks that come later.
    Sysfs(PathBuf),
    /// Without it (a container, a recording) the names of the first reading must do.
    Names(Vec<Vec<u8>>),
}

impl Physical {
    pub fn of(root: &Path, diskstats: &[u8]) -> Physical {
        let block = root.join("sys/block");
        if fs::read_dir(&block).is_ok_and(|mut entries| entries.next().is_some()) {
            return Physical::Sysfs(block);
        }
        let names: Vec<&[u8]> =
            scan::lines(diskstats).filter_map(|line| scan::words(line).nth(2)).collect();
        let whole =
            |name: &&&[u8]| !is_stacked(name) && !names.iter().any(|disk| is_part(name, disk));
        Physical::Names(names.iter().filter(whole).map(|name| name.to_vec()).collect())
    }

    pub fn is(&self, name: &[u8]) -> bool {
        match self {
            Physical::Sysfs(block) => {
                // In sysfs a slash of a name (cciss/c0d0) is an exclamation mark.
                let folder = block.join(scan::name(name).replace('/', "!"));
                let hidden =
                    || fs::read(folder.join("hidden")).is_ok_and(|text| text.starts_with(b"1"));
                folder.join("device").exists() && !hidden()
            }
            Physical::Names(names) => names.iter().any(|known| known == name),
        }
    }
}

fn is_stacked(name: &[u8]) -> bool {
    let stacked = [&b"loop"[..], b"ram", b"zram", b"dm-", b"md", b"nbd", b"sr", b"fd"];
    stacked.iter().any(|start| name.starts_with(start))
}

/// `sda1` of `sda`, `nvme0n1p2` of `nvme0n1`.
fn is_part(name: &[u8], disk: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let digits = match disk.last() {
        Some(last) if last.is_ascii_digit() => rest.strip_prefix(b"p"),
        _ => Some(rest),
    };
    digits.is_some_and(|digits| scan::whole_number(digits).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_with_a_device_are_physical() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        for path in ["sdb/device", "sda/device", "loop0/queue", "dm-0/dm", "nvme0c0n1/device"] {
            fs::create_dir_all(top.join("sys/block").join(path)).unwrap();
        }
        fs::write(top.join("sys/block/nvme0c0n1/hidden"), "1\n").unwrap();
        let physical = Physical::of(top, b"");
        let found: Vec<bool> =
            [&b"sda"[..], b"sdb", b"loop0", b"dm-0", b"nvme0c0n1", b"../block", b""]
                .iter()
                .map(|name| physical.is(name))
                .collect();
        assert_eq!(found, [true, true, false, false, false, false, false]);
    }

    #[test]
    fn without_sysfs_names_tell_whole_disks() {
        let names = ["sda", "sda1", "nvme0n1", "nvme0n1p2", "loop0", "dm-1", "vda", "md0"];
        let text: String = names.iter().map(|name| format!(" 8 0 {name} 1 2 3\n")).collect();
        let physical = Physical::of(Path::new("/nonexistent"), text.as_bytes());
        let whole: Vec<&str> =
            names.into_iter().filter(|name| physical.is(name.as_bytes())).collect();
        assert_eq!(whole, ["sda", "nvme0n1", "vda"]);
    }
}
