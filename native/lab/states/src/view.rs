//! States as directories of one mount: `MOUNT/NUMBER/...`. Each lives until its handle is dropped.

mod filesystem;
mod server;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

use crate::content::Store;
use crate::failure::{During, Result};
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use server::Server;

/// The source in the mount table; the janitor knows our mounts by it.
pub const SOURCE: &str = "diskproof-states";
/// Requests served at once.
const THREADS: usize = 2;

type Trees = RwLock<HashMap<u64, Arc<Mutex<Tree>>>>;

/// The mount. Dropping it unmounts.
pub struct View {
    store: Arc<Store>,
    trees: Arc<Trees>,
    next: AtomicU64,
    mountpoint: PathBuf,
    session: Option<BackgroundSession>,
}

/// A state that can be seen.
pub struct Shown<'v> {
    view: &'v View,
    number: u64,
    pub path: PathBuf,
}

impl View {
    /// Mounts on an empty directory. `direct`: files bypass the kernel's page cache.
    pub fn mount(store: &Arc<Store>, mountpoint: &Path, direct: bool) -> Result<View> {
        let trees = Arc::new(Trees::default());
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(SOURCE.into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        let is_root = rustix::process::geteuid().is_root();
        config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = Session::new(Server { trees: trees.clone(), direct }, mountpoint, &config)
            .and_then(Session::spawn)
            .during(format!("mounting states on {}", mountpoint.display()))?;
        Ok(View {
            store: store.clone(),
            trees,
            next: AtomicU64::new(1),
            mountpoint: mountpoint.to_owned(),
            session: Some(session),
        })
    }

    pub fn show(&self, snapshot: Snapshot) -> Shown<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let begun = Duration::from_nanos(self.store.trace.header.realtime_ns);
        let tree = Tree::new(self.store.clone(), snapshot, UNIX_EPOCH + begun);
        self.trees
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, Arc::new(Mutex::new(tree)));
        Shown { view: self, number, path: self.mountpoint.join(number.to_string()) }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.view.trees.write().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = diskproof_mounts::detach(&self.mountpoint);
            drop(session);
        }
    }
}
