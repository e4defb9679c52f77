//! States as directories of one mount: `MOUNT/NUMBER/...`. Each lives until its handle is dropped.

mod filesystem;
mod server;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

use diskproof_rights::{keep, CapabilitySet};
use fuser::{Config, MountOption, Session, SessionACL};

use crate::content::Store;
use crate::failure::{During, Result};
use crate::reads::Read;
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use server::Server;

/// The source in the mount table; the janitor knows our mounts by it.
pub const SOURCE: &str = "diskproof-states";
/// Behind a state's number: the file with what was promised.
pub const PROMISED: &str = ".promised";
/// Requests served at once.
const THREADS: usize = 2;

type Trees = RwLock<HashMap<u64, Arc<Mutex<Tree>>>>;

/// The mount. It is there until its place is taken away.
pub struct View {
    store: Arc<Store>,
    trees: Arc<Trees>,
    next: AtomicU64,
    mountpoint: PathBuf,
}

/// A state that can be seen.
pub struct Shown<'v> {
    view: &'v View,
    number: u64,
    pub path: PathBuf,
}

impl View {
    /// Mounts on an empty directory. `owner`: whose all files seem to be, which then bypass the
    /// kernel's page cache.
    pub fn mount(store: &Arc<Store>, mountpoint: &Path, owner: Option<u32>) -> Result<View> {
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
        let named = || format!("mounting states on {}", mountpoint.display());
        let server = Server { trees: trees.clone(), owner };
        let session = Session::new(server, mountpoint, &config).during(named())?;
        serve(session).during(named())?;
        Ok(View {
            store: store.clone(),
            trees,
            next: AtomicU64::new(1),
            mountpoint: mountpoint.to_owned(),
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

impl Shown<'_> {
    /// The file with what was promised, where the snapshot has one.
    pub fn promised(&self) -> PathBuf {
        self.view.mountpoint.join(format!("{}{PROMISED}", self.number))
    }

    /// What was told of the state so far.
    pub fn take_reads(&self) -> Vec<Read> {
        let trees = self.view.trees.read().unwrap_or_else(PoisonError::into_inner);
        let tree = trees.get(&self.number).cloned();
        drop(trees);
        tree.map_or_else(Vec::new, |tree| {
            tree.lock().unwrap_or_else(PoisonError::into_inner).take_reads()
        })
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.view.trees.write().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// In threads without any rights: all that they read is open already, or in memory.
fn serve(session: Session<Server>) -> io::Result<()> {
    let begin = move || {
        keep(CapabilitySet::empty())?;
        // Dropped, it would unmount by path, even when its own mount is gone.
        std::mem::forget(session.spawn()?);
        Ok(())
    };
    let begun = std::thread::Builder::new().name("view".into()).spawn(begin)?;
    begun.join().unwrap_or_else(|_| Err(io::Error::other("a thread broke off")))
}
