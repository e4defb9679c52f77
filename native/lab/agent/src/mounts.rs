//! What is mounted where, as tables.

use std::fs;
use std::io;

use rustix::mount::{mount, mount_bind, MountFlags};

use crate::failure::{Doing, Outcome};

/// Where the guest's root with its tools is mounted, and what `exec` sees as `/`.
pub const ROOT: &str = "/root";

/// Programs of ours in the initramfs, and where they are in the root: they change more often than
/// it does.
const PROGRAMS: &str = "/programs";
const PROGRAMS_IN_ROOT: &str = "/root/run/diskproof";

struct Mount {
    source: &'static str,
    target: &'static str,
    kind: &'static str,
    flags: MountFlags,
}

const HARDENED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
const NO_DEVICES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

const KERNEL: [Mount; 3] = [
    Mount { source: "dev", target: "/dev", kind: "devtmpfs", flags: MountFlags::NOSUID },
    Mount { source: "proc", target: "/proc", kind: "proc", flags: HARDENED },
    Mount { source: "sys", target: "/sys", kind: "sysfs", flags: HARDENED },
];

const IN_ROOT: [Mount; 6] = [
    Mount { source: "proc", target: "/root/proc", kind: "proc", flags: HARDENED },
    Mount { source: "sys", target: "/root/sys", kind: "sysfs", flags: HARDENED },
    Mount { source: "dev", target: "/root/dev", kind: "devtmpfs", flags: MountFlags::NOSUID },
    Mount { source: "shm", target: "/root/dev/shm", kind: "tmpfs", flags: NO_DEVICES },
    Mount { source: "tmp", target: "/root/tmp", kind: "tmpfs", flags: NO_DEVICES },
    Mount { source: "run", target: "/root/run", kind: "tmpfs", flags: NO_DEVICES },
];

/// The kernel's own file systems, for the agent.
pub fn mount_kernel() -> Outcome<()> {
    KERNEL.iter().try_for_each(put)
}

/// The read-only root from `device`, with what programs expect inside.
pub fn mount_root(device: &str) -> Outcome<()> {
    make_dir(ROOT)?;
    mount(device, ROOT, "squashfs", MountFlags::RDONLY, None)
        .doing(|| format!("cannot mount {device} as squashfs"))?;
    IN_ROOT.iter().try_for_each(put)?;
    show_programs()
}

fn show_programs() -> Outcome<()> {
    if !fs::exists(PROGRAMS).doing(|| format!("cannot look for {PROGRAMS}"))? {
        return Ok(());
    }
    make_dir(PROGRAMS_IN_ROOT)?;
    mount_bind(PROGRAMS, PROGRAMS_IN_ROOT)
        .doing(|| format!("cannot show {PROGRAMS} at {PROGRAMS_IN_ROOT}"))
}

fn put(entry: &Mount) -> Outcome<()> {
    make_dir(entry.target)?;
    mount(entry.source, entry.target, entry.kind, entry.flags, None)
        .doing(|| format!("cannot mount {} on {}", entry.kind, entry.target))
}

fn make_dir(path: &str) -> Outcome<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            // On a read-only root the mount that follows says more than this error could.
            if error.raw_os_error() == Some(libc::EROFS) {
                return Ok(());
            }
            Err(error).doing(|| format!("cannot make {path}"))
        }
        _ => Ok(()),
    }
}
