//! The mount and its directory are never left behind, nor are programs that were started.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{chown, DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use diskproof_mounts::{detach, Guardian};

/// A private directory with the mountpoint and other files of one exploration.
///
/// A child process waits for our end, however it comes, and takes mount and directory away: when
/// that comes we have no right to do so any more.
pub struct Workplace {
    pub path: PathBuf,
    guardian: Guardian,
}

impl Workplace {
    /// Call while there is one thread. `user`: who alone may enter, besides us; None: anybody, as
    /// programs of other users, database servers for instance, must be able to.
    pub fn make(user: Option<u32>) -> io::Result<Workplace> {
        let path = make_private(user)?;
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
        let _ = self.guardian.end();
    }
}

fn make_private(user: Option<u32>) -> io::Result<PathBuf> {
    let mut random = File::open("/dev/urandom")?;
    let mut number = [0; 8];
    random.read_exact(&mut number)?;
    let name = format!("diskproof-states-{:016x}", u64::from_le_bytes(number));
    let path = std::env::temp_dir().join(name);
    let make = |path: &Path| {
        DirBuilder::new().mode(0o700).create(path)?;
        chown(path, None, user)?;
        std::fs::set_permissions(path, Permissions::from_mode(user.map_or(0o711, |_| 0o710)))
    };
    make(&path)?;
    make(&path.join("view"))?;
    Ok(path)
}

fn clean(path: &Path) -> io::Result<()> {
    let view = path.join("view");
    detach(&view)?;
    // Never beyond the mount, should that have failed.
    match std::fs::remove_dir(&view) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::remove_dir_all(path),
    }
}
