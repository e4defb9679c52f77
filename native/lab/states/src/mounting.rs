//! The mount and its directory are never left behind, nor are programs that were started.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use diskproof_mounts::{detach, Guardian};

/// A private directory with the mountpoint, sockets and other files of one exploration.
///
/// A child process waits for our end, however it comes, and takes mount and directory away.
pub struct Workplace {
    pub path: PathBuf,
    guardian: Guardian,
}

impl Workplace {
    /// Call while there is one thread.
    pub fn make() -> io::Result<Workplace> {
        let path = make_private()?;
        let ours = path.clone();
        let guardian = Guardian::start(move |_| clean(&ours))?;
        Ok(Workplace { path, guardian })
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
            libc::kill(self.guardian.pid, libc::SIGKILL);
            libc::waitpid(self.guardian.pid, std::ptr::null_mut(), 0);
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

fn clean(path: &Path) {
    let _ = detach(&path.join("view"));
    // Never beyond the mount, should that have failed.
    let _ = std::fs::remove_dir(path.join("view"));
    if !path.join("view").exists() {
        let _ = std::fs::remove_dir_all(path);
    }
}
