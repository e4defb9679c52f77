//! Mounts of FUSE: taken away in any case, also when we are killed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{unmount, UnmountFlags};
use rustix::pipe::{pipe_with, PipeFlags};

const FUSERMOUNT: &str = "fusermount3";

/// What is missing where an ordinary user mounts.
pub fn lacks_fusermount(error: io::Error) -> io::Error {
    let why = "only root can mount without it: install it (Debian: fuse3) or record as root";
    io::Error::new(error.kind(), format!("{FUSERMOUNT}: {error}; {why}"))
}

/// Unmounts; detaches what is still in use. Not being mounted any more is fine.
pub fn take_away(mountpoint: &Path) -> io::Result<()> {
    match unmount(mountpoint, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => detach(mountpoint),
        result => judge(result, mountpoint),
    }
}

/// Unmounts, whoever still uses it.
pub fn detach(mountpoint: &Path) -> io::Result<()> {
    judge(unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW), mountpoint)
}

fn judge(unmounted: rustix::io::Result<()>, mountpoint: &Path) -> io::Result<()> {
    match unmounted {
        Err(Errno::PERM) => fusermount(mountpoint),
        Err(Errno::INVAL | Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Without root the set-user-id program of FUSE does it.
fn fusermount(mountpoint: &Path) -> io::Result<()> {
    let mut command = Command::new(FUSERMOUNT);
    command.args(["-u", "-z", "--"]).arg(mountpoint).stdout(Stdio::null()).stderr(Stdio::null());
    if command.status().map_err(lacks_fusermount)?.success() {
        Ok(())
    } else {
        Err(io::Error::other("fusermount3 could not unmount"))
    }
}

/// A process that outlives us by a moment. It waits for our end, however that comes, and then does
/// what is left.
pub struct Guardian {
    /// What is written here is what it knows; its end is what it waits for.
    pub pipe: File,
    pub pid: libc::pid_t,
}

impl Guardian {
    /// Call while there is one thread. The guardian calls `clean` with all that was written to its
    /// pipe.
    pub fn start(clean: impl FnOnce(Vec<u8>)) -> io::Result<Guardian> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: we have one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(write);
                diskproof_session::stay_behind();
                let _ = rustix::process::set_parent_process_death_signal(None);
                close_others(&read);
                let mut told = Vec::new();
                let _ = File::from(read).read_to_end(&mut told);
                clean(told);
                // SAFETY: ends the child without the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Guardian { pipe: write.into(), pid }),
        }
    }
}

/// What we were given is open in the guardian too, and whoever waits for its end would wait for
/// ours.
fn close_others(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as u32;
    for (first, last) in [(3, kept - 1), (kept + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: this process uses no other descriptor, and `kept` is not in the range.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}
