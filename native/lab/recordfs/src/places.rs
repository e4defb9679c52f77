//! Where files are in the backing: by a descriptor while there are few, by their names when there
//! are more than may be open.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, Weak};

use rustix::fs::{fstat, openat, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::inodes::{key, Inode};
use crate::tree::Tree;

/// Files looked at for one that has not been used lately.
const LOOKED_AT: usize = 64;

/// A descriptor that only says where a file is (O_PATH).
#[derive(Clone)]
pub struct Place(Arc<OwnedFd>);

impl Place {
    pub fn new(descriptor: OwnedFd) -> Place {
        Place(Arc::new(descriptor))
    }

    /// A path that leads to this very file, whatever its names are now; while this is there.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.0)
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What all files of a recording share.
pub struct Places {
    pub tree: Mutex<Tree>,
    /// Held for writing while the backing and the tree disagree about a name.
    moving: RwLock<()>,
    /// Those with a descriptor, the oldest first.
    open: Mutex<VecDeque<Weak<Inode>>>,
    /// Descriptors that are kept, about.
    most: usize,
}

impl Places {
    pub fn new(tree: Tree, most: usize) -> Places {
        Places { tree: Mutex::new(tree), moving: RwLock::new(()), open: Mutex::default(), most }
    }

    /// To be held while a name is moved or taken away, in the backing and in the tree. Nobody may
    /// ask for a place meanwhile.
    pub fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.moving.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a file again by its names. EIO when somebody else has put another one there.
    pub fn reopen(&self, inode: &Arc<Inode>) -> Result<Place, Errno> {
        let _still = self.moving.read().unwrap_or_else(PoisonError::into_inner);
        let (start, names, expected) = {
            let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
            tree.way_to(inode.id).ok_or(Errno::STALE)?
        };
        let mut place = start;
        for name in names.iter().rev() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            place = Place::new(openat(&place, &**name, flags, Mode::empty())?);
        }
        if key(&place.stat()?) != expected {
            let name: &OsStr = names.first().map_or(OsStr::new(""), |name| name);
            complain!("{name:?} was replaced in the backing without passing through the mount");
            return Err(Errno::IO);
        }
        inode.keep(&place);
        self.note_open(inode);
        Ok(place)
    }

    /// One more has a descriptor; others give up theirs when there are too many.
    fn note_open(&self, inode: &Arc<Inode>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::downgrade(inode));
        for _ in 0..LOOKED_AT {
            if open.len() <= self.most {
                return;
            }
            let Some(oldest) = open.pop_front() else { return };
            let Some(oldest) = oldest.upgrade() else { continue };
            let named = || {
                let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
                tree.has_name(oldest.id)
            };
            // A file without a name could not be found again.
            if oldest.was_used() || !named() {
                open.push_back(Arc::downgrade(&oldest));
            } else {
                oldest.give_up();
            }
        }
    }
}
