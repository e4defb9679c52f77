//! Which disks are summed up.

use std::fs;
use std::io;
use std::path::Path;

/// The disks asked for, each of which must be there, or else all physical ones.
pub fn choose(asked: &[String]) -> io::Result<Vec<String>> {
    if asked.is_empty() {
        return find_physical(Path::new("/sys/block"));
    }
    for name in asked {
        // An empty name is the folder itself, one with a slash leads out of it.
        if name.is_empty()
            || name.contains('/')
            || !Path::new("/sys/class/block").join(name).exists()
        {
            let why = format!("no disk {name:?} in /sys/class/block");
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
    }
    Ok(asked.to_vec())
}

/// Whole disks that a device stands behind: loop, ram, zram, device-mapper and md have none, and would count bytes twice.
fn find_physical(block: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(block)? {
        let entry = entry?;
        if entry.path().join("device").exists() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_with_a_device_are_physical() {
        let top = std::env::temp_dir().join(format!("diskproof-disks-{}", std::process::id()));
        for path in ["sdb/device", "sda/device", "loop0/queue", "dm-0/dm"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        let found = find_physical(&top);
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(found.unwrap(), ["sda", "sdb"]);
    }

    #[test]
    fn a_disk_that_is_not_there_is_refused_by_name() {
        for name in ["no-such-disk", "../block", ""] {
            let error = choose(&[name.to_owned()]);
            assert!(error.is_err(), "{name:?}");
        }
    }
}
