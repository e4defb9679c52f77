//! The mount: made, taken away, and never left behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{statx, AtFlags, StatxFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{unmount, UnmountFlags};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::geteuid;

/// The source in the mount table; the janitor knows our mounts by it.
pub const SOURCE: &str = "diskproof-recordfs";

const DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";

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

fn lacks_fusermount(error: io::Error) -> io::Error {
    let why = "only root can mount without it: install it (Debian: fuse3) or record as root";
    io::Error::new(error.kind(), format!("{FUSERMOUNT}: {error}; {why}"))
}

/// Unmounts; detaches what is still in use. Not being mounted any more is fine.
pub fn take_away(mountpoint: &Path) -> io::Result<()> {
    match unmount(mountpoint, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => detach(mountpoint),
        Err(Errno::PERM) => fusermount(mountpoint),
        Err(Errno::INVAL | Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn detach(mountpoint: &Path) -> io::Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => fusermount(mountpoint),
        Err(Errno::INVAL | Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Without root the set-user-id program of FUSE does it.
fn fusermount(mountpoint: &Path) -> io::Result<()> {
    let mut command = Command::new(FUSERMOUNT);
    command.args(["-u", "-z", "--"]).arg(mountpoint).stdout(Stdio::null());
    if command.status().map_err(lacks_fusermount)?.success() {
        Ok(())
    } else {
        Err(io::Error::other("fusermount3 could not unmount"))
    }
}

/// A process that outlives us by a moment: if we end without having taken the mount away, it detaches it.
///
/// It is in a session of its own, so that a signal to our process group does not end it too.
pub struct Guardian {
    pipe: File,
}

impl Guardian {
    /// Call while there is one thread.
    pub fn start(mountpoint: &Path) -> io::Result<Guardian> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: we have one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(write);
                guard(read, mountpoint.to_owned());
                // SAFETY: ends the child without the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Guardian { pipe: write.into() }),
        }
    }

    /// There is a mount now: tells which.
    pub fn watch(&mut self, mountpoint: &Path) -> io::Result<()> {
        let mount = mount_id(mountpoint)?;
        self.pipe.write_all(&mount.to_le_bytes())
    }

    /// The mount is gone. The kernel gives its number to the next one, so the guardian must not look for it any more.
    pub fn dismiss(mut self) -> io::Result<()> {
        self.pipe.write_all(b"dismissed")
    }
}

/// The child's life: waits for the end of the parent, then looks whether its mount is still there.
fn guard(pipe: OwnedFd, mountpoint: PathBuf) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::set_parent_process_death_signal(None);
    release_streams();
    close_others(&pipe);
    let mut told = Vec::new();
    let _ = File::from(pipe).read_to_end(&mut told);
    let Ok(mount) = <[u8; 8]>::try_from(told) else { return };
    if is_mounted(u64::from_le_bytes(mount)) {
        let _ = detach(&mountpoint);
    }
}

/// What the recorder was given is open here too, and whoever waits for its end would wait for ours.
fn close_others(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as u32;
    for (first, last) in [(3, kept - 1), (kept + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: this process uses no other descriptor, and `kept` is not in the range.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Whoever reads our output must not wait for this process.
pub fn release_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
}

fn mount_id(mountpoint: &Path) -> io::Result<u64> {
    Ok(statx(CWD, mountpoint, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// By its number, since by then another mount may be at the same place.
fn is_mounted(mount: u64) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').next() == Some(&mount.to_string()))
}
