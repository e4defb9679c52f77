//! The mount: made, taken away, and never left behind.

use std::fs::File;
use std::io;
use std::path::Path;

use diskproof_mounts::{lacks_fusermount, take_away, Guardian};
use rustix::fs::{statx, AtFlags, StatxFlags, CWD};
use rustix::process::geteuid;

/// The source in the mount table; the janitor knows our mounts by it.
pub const SOURCE: &str = "diskproof-recordfs";

const DEVICE: &str = "/dev/fuse";

/// EACCES and ENOENT without a word of what is missing, made a sentence.
pub fn explain(error: io::Error) -> io::Error {
    if let Err(why) = File::options().read(true).write(true).open(DEVICE) {
        let hint = "the kernel needs its module fuse, and every user of FUSE read and write \
                    permission there";
        return io::Error::new(why.kind(), format!("{DEVICE}: {why}; {hint}"));
    }
    if error.kind() == io::ErrorKind::NotFound && !geteuid().is_root() {
        return lacks_fusermount(error);
    }
    io::Error::new(error.kind(), format!("cannot mount: {}", error.to_string().trim_end()))
}

/// If we end without having taken the mount away, a process that outlives us by a moment detaches
/// it.
pub struct MountGuard(Guardian);

impl MountGuard {
    /// Call while there is one thread.
    pub fn start(mountpoint: &Path) -> io::Result<MountGuard> {
        let mountpoint = mountpoint.to_owned();
        let detach_ours = move |known: Vec<u8>| {
            let Ok(mount) = <[u8; 8]>::try_from(known) else { return Ok(()) };
            if is_mounted(u64::from_le_bytes(mount)) {
                take_away(&mountpoint)?;
            }
            Ok(())
        };
        Guardian::start(detach_ours).map(MountGuard)
    }

    /// There is a mount now: tells which.
    pub fn watch(&mut self, mountpoint: &Path) -> io::Result<()> {
        self.0.tell(&mount_id(mountpoint)?.to_le_bytes())
    }

    /// Has it take the mount away, which we may no longer.
    pub fn take_away(&mut self) -> io::Result<()> {
        self.0.end()
    }

    /// The mount is gone. The kernel gives its number to the next one, so nobody must look for it
    /// any more.
    pub fn dismiss(mut self) -> io::Result<()> {
        self.0.tell(b"dismissed")
    }
}

fn mount_id(mountpoint: &Path) -> io::Result<u64> {
    // Linux 6.1 asks who serves the mount even for its number, and that is us.
    Ok(statx(CWD, mountpoint, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// The numbers of the mount's device, as the kernel tells them; nobody is asked for them.
pub fn find_device(mountpoint: &Path) -> Option<(u32, u32)> {
    let mount = mount_id(mountpoint).ok()?.to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut lines = table.lines().map(|line| line.split(' '));
    let line = lines.find_map(|mut words| (words.next()? == mount).then_some(words))?;
    let (major, minor) = { line }.nth(1)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// By its number, since by then another mount may be at the same place.
fn is_mounted(mount: u64) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').next() == Some(&mount.to_string()))
}
