//! The guest's drives, found by serial and described from sysfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use diskproof_wire::Disk;

use crate::failure::{Doing, Failure, Outcome};

/// The drives below a sysfs mount (`/sys`).
pub struct Drives {
    sys: PathBuf,
}

impl Drives {
    pub fn new(sys: impl Into<PathBuf>) -> Self {
        Drives { sys: sys.into() }
    }

    /// Name of the whole drive with this serial, such as `vda`.
    pub fn find(&self, serial: &str) -> Option<String> {
        self.names().into_iter().find(|name| self.find_serial(name).as_deref() == Some(serial))
    }

    /// The drives that are there and their serials, for an error that lacks one.
    pub fn list(&self) -> String {
        let shown = self.names().into_iter().filter_map(|name| {
            let serial = self.find_serial(&name)?;
            Some(format!("{name} ({serial})"))
        });
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() {
            "no drive".to_owned()
        } else {
            shown.join(", ")
        }
    }

    /// The drive as the kernel sees it now.
    pub fn describe(&self, name: &str) -> Outcome<Disk> {
        let block = self.block(name);
        let queue = block.join("queue");
        let nr_requests = read_number(&queue.join("nr_requests"))?;
        let drivers = find_drivers(&block);
        Ok(Disk {
            device: format!("/dev/{name}"),
            // The kernel counts in 512 byte sectors whatever the drive's block size.
            size: read_number::<u64>(&block.join("size"))?.saturating_mul(512),
            logical_block_size: read_number(&queue.join("logical_block_size"))?,
            physical_block_size: read_number(&queue.join("physical_block_size"))?,
            write_cache: read_text(&queue.join("write_cache"))?,
            fua: read_number::<u8>(&queue.join("fua"))? != 0,
            rotational: read_number::<u8>(&queue.join("rotational"))? != 0,
            scheduler: chosen_scheduler(&read_text(&queue.join("scheduler"))?).to_owned(),
            queue_depth: read_number(&block.join("device/queue_depth")).unwrap_or(nr_requests),
            nr_requests,
            hardware_queues: fs::read_dir(block.join("mq")).map_or(0, |mq| mq.count() as u64),
            max_sectors_kb: read_number(&queue.join("max_sectors_kb"))?,
            discard_max_bytes: read_number(&queue.join("discard_max_bytes"))?,
            driver: drivers.first().cloned().unwrap_or_default(),
            drivers,
        })
    }

    fn block(&self, name: &str) -> PathBuf {
        self.sys.join("block").join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// virtio-blk, then NVMe, then SCSI and ATA keep the serial in a place of their own.
    fn find_serial(&self, name: &str) -> Option<String> {
        let block = self.block(name);
        let text = fs::read_to_string(block.join("serial"))
            .or_else(|_| fs::read_to_string(block.join("device/serial")))
            .ok();
        let serial =
            text.or_else(|| parse_vpd_serial(&fs::read(block.join("device/vpd_pg80")).ok()?));
        serial.map(|serial| serial.trim_matches([' ', '\n', '\0']).to_owned())
    }
}

/// SCSI's vital product data page 80h: four bytes of header, the last two the length, then the
/// serial.
fn parse_vpd_serial(page: &[u8]) -> Option<String> {
    let (header, serial) = page.split_at_checked(4)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    Some(String::from_utf8_lossy(&serial[..length.min(serial.len())]).into_owned())
}

/// `mq-deadline [none]` to `none`; a kernel without a choice says it without brackets.
fn chosen_scheduler(line: &str) -> &str {
    let chosen = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(line, |(name, _)| name)
}

/// Every driver on the way from the drive up to the machine's bus.
fn find_drivers(block: &Path) -> Vec<String> {
    let Ok(device) = block.join("device").canonicalize() else {
        return Vec::new();
    };
    let controller = find_nvme_controller(&device).unwrap_or(device);
    let drivers = controller.ancestors().filter_map(|path| {
        let driver = fs::read_link(path.join("driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    });
    drivers.collect()
}

/// An NVMe drive that may have several paths hangs below a virtual subsystem that links to its
/// controllers.
fn find_nvme_controller(device: &Path) -> Option<PathBuf> {
    let subsystem = device.file_name()?.to_str()?.starts_with("nvme-subsys");
    let links = subsystem.then(|| fs::read_dir(device).ok())??;
    links.flatten().find_map(|entry| {
        entry.path().join("transport").exists().then(|| entry.path().canonicalize().ok())?
    })
}

fn read_text(path: &Path) -> Outcome<String> {
    let text = fs::read_to_string(path).doing(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn read_number<T: FromStr<Err: std::fmt::Display>>(path: &Path) -> Outcome<T> {
    let text = read_text(path)?;
    text.parse().map_err(|e| Failure::new(format!("cannot read {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A piece of sysfs below the temporary directory, gone with the test.
    struct Sysfs(tempfile::TempDir);

    impl Sysfs {
        fn new(files: &[(&str, &[u8])]) -> Self {
            let top = tempfile::tempdir().unwrap();
            for (name, bytes) in files {
                let path = top.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
            Sysfs(top)
        }
    }

    #[test]
    fn each_bus_keeps_the_serial_elsewhere() {
        let sysfs = Sysfs::new(&[
            ("block/vda/serial", b"diskproof-root"),
            ("block/nvme0n1/device/serial", b"diskproof-disk      \n"),
            ("block/sda/device/vpd_pg80", b"\x00\x80\x00\x08ata-disk"),
            ("block/sdb/device/vpd_pg80", b"\x00\x80\xff\xffshort"),
            ("block/sdc/device/vpd_pg80", b"\x00\x80"),
            ("block/loop0/size", b"0"),
        ]);
        let drives = Drives::new(sysfs.0.path());
        assert_eq!(drives.find("diskproof-root").as_deref(), Some("vda"));
        assert_eq!(drives.find("diskproof-disk").as_deref(), Some("nvme0n1"));
        assert_eq!(drives.find("ata-disk").as_deref(), Some("sda"));
        assert_eq!(drives.find("disk"), None);
        assert_eq!(
            drives.list(),
            "nvme0n1 (diskproof-disk), sda (ata-disk), sdb (short), vda (diskproof-root)"
        );
    }

    #[test]
    fn a_drive_is_described_as_recorded_from_a_guest() {
        let sysfs = Sysfs::new(&[
            ("block/vdb/size", b"2097152\n"),
            ("block/vdb/mq/0/nr_tags", b"256\n"),
            ("block/vdb/mq/1/nr_tags", b"256\n"),
            ("block/vdb/queue/logical_block_size", b"512\n"),
            ("block/vdb/queue/physical_block_size", b"4096\n"),
            ("block/vdb/queue/write_cache", b"write back\n"),
            ("block/vdb/queue/fua", b"0\n"),
            ("block/vdb/queue/rotational", b"1\n"),
            ("block/vdb/queue/scheduler", b"[none] mq-deadline \n"),
            ("block/vdb/queue/nr_requests", b"256\n"),
            ("block/vdb/queue/max_sectors_kb", b"1280\n"),
            ("block/vdb/queue/discard_max_bytes", b"0\n"),
            ("pci/virtio2/x", b""),
        ]);
        symlink("../../pci/virtio2", sysfs.0.path().join("block/vdb/device")).unwrap();
        symlink("../../drivers/virtio_blk", sysfs.0.path().join("pci/virtio2/driver")).unwrap();
        symlink("../drivers/virtio-pci", sysfs.0.path().join("pci/driver")).unwrap();
        let disk = Drives::new(sysfs.0.path()).describe("vdb").unwrap();
        assert_eq!(disk.size, 1 << 30);
        assert_eq!((disk.scheduler.as_str(), disk.rotational, disk.fua), ("none", true, false));
        assert_eq!((disk.queue_depth, disk.nr_requests, disk.hardware_queues), (256, 256, 2));
        assert_eq!(disk.drivers, ["virtio_blk", "virtio-pci"]);
        assert_eq!(disk.driver, "virtio_blk");
    }

    #[test]
    fn the_scheduler_in_force_is_the_one_in_brackets() {
        assert_eq!(chosen_scheduler("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(chosen_scheduler("none"), "none");
    }
}
