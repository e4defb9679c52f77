//! Mounts of FUSE: taken away in any case, also when we are killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use diskproof_rights::{keep, CapabilitySet};
use rustix::io::Errno;
use rustix::mount::{unmount, UnmountFlags};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{geteuid, waitpid, Pid, WaitOptions};

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
/// what is left. As root it is all that may still unmount once we have given that up.
pub struct Guardian {
    /// None: it has been ended.
    pipe: Option<File>,
    pid: libc::pid_t,
}

impl Guardian {
    /// Call while there is one thread. The guardian calls `clean` with all that it was told.
    pub fn start(clean: impl FnOnce(Vec<u8>) -> io::Result<()>) -> io::Result<Guardian> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (there, arriving) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: we have one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                diskproof_session::stay_behind();
                let _ = rustix::process::set_parent_process_death_signal(None);
                close_others(&read);
                if geteuid().is_root() {
                    // An ordinary user's unmounts with a program that has more rights.
                    let _ = keep(CapabilitySet::SYS_ADMIN);
                }
                let mut told = Vec::new();
                let _ = File::from(read).read_to_end(&mut told);
                let done = clean(told);
                // SAFETY: ends the child without the parent's destructors.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            pid => {
                drop(arriving);
                // Whoever ends our group must not meet the guardian in it.
                let _ = File::from(there).read(&mut [0])?;
                Ok(Guardian { pipe: Some(write.into()), pid })
            }
        }
    }

    /// It knows this from now on.
    pub fn tell(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(bytes))
    }

    /// Has it do what is left now, and waits until that is done.
    pub fn end(&mut self) -> io::Result<()> {
        if self.pipe.take().is_none() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.pid).ok_or(Errno::CHILD)?;
        let ended = waitpid(Some(pid), WaitOptions::empty())?;
        let is_done = ended.is_some_and(|(_, status)| status.exit_status() == Some(0));
        is_done.then_some(()).ok_or_else(|| io::Error::other("a mount could not be taken away"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guardian_is_out_of_its_groups_reach_from_the_start() {
        for _ in 0..200 {
            let mut guardian = Guardian::start(|_| Ok(())).expect("a guardian");
            // SAFETY: reads one number of the kernel's. rustix cannot say the session 0, which is
            // ours where its leader is outside of our namespace of processes.
            let theirs = unsafe { libc::getsid(guardian.pid) };
            guardian.end().expect("it ends well");
            assert_eq!(theirs, guardian.pid);
        }
    }
}
