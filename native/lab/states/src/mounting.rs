//! The mount and its directory are never left behind, nor are programs that were started.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{unmount, UnmountFlags};
use rustix::pipe::{pipe_with, PipeFlags};

/// Unmounts, whoever still uses it. Not being mounted is fine.
pub fn take_away(mountpoint: &Path) -> io::Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => fusermount(mountpoint),
        Err(Errno::INVAL | Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Without root the set-user-id program of FUSE does it.
fn fusermount(mountpoint: &Path) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.args(["-u", "-z", "--"]).arg(mountpoint).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(|_| ())
}

/// A private directory with the mountpoint, sockets and other files of one exploration.
///
/// A child process waits for our end, however it comes, and takes mount and directory away.
pub struct Workplace {
    pub path: PathBuf,
    /// Its end is what the child waits for.
    _alive: OwnedFd,
    child: libc::pid_t,
}

impl Workplace {
    /// Call while there is one thread.
    pub fn make() -> io::Result<Workplace> {
        let path = make_private()?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: we have one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(write);
                guard(read, &path);
                // SAFETY: ends the child without the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Workplace { path, _alive: write, child }),
        }
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.path.join("view")
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        clean(&self.path);
        // SAFETY: kill and waitpid of our own child, which nobody else waits for.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
    }
}

fn make_private() -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let mut random = File::open("/dev/urandom")?;
    let mut number = [0; 8];
    random.read_exact(&mut number)?;
    let name = format!("diskproof-states-{:016x}", u64::from_le_bytes(number));
    let path = std::env::temp_dir().join(name);
    // Programs of other users, as database servers are, must be able to enter.
    std::fs::DirBuilder::new().mode(0o711).create(&path)?;
    std::fs::DirBuilder::new().mode(0o711).create(path.join("view"))?;
    Ok(path)
}

/// The child's life, in a session of its own: a signal to our process group does not end it too.
fn guard(alive: OwnedFd, path: &Path) {
    let _ = rustix::process::setsid();
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
    let _ = File::from(alive).read_to_end(&mut Vec::new());
    clean(path);
}

fn clean(path: &Path) {
    let _ = take_away(&path.join("view"));
    // Never beyond the mount, should that have failed.
    let _ = std::fs::remove_dir(path.join("view"));
    if !path.join("view").exists() {
        let _ = std::fs::remove_dir_all(path);
    }
}
