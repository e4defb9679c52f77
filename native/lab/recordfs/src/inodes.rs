//! Which file has which id: in the log, and towards the kernel.
//!
//! Ids count up and are never used again. The host's inode numbers are only trusted while the file
//! has a name or is held open here, since the host gives them to new files afterwards.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockWriteGuard};

use diskproof_wire::crash_log::ROOT;
use rustix::fs::{statat, AtFlags, Stat};
use rustix::io::Errno;

use crate::durable::Group;
use crate::places::{Place, Places};
use crate::ranges::Ranges;
use crate::tree::Tree;
use crate::writeback::Writeback;

/// A file of the host: its device and inode number.
pub type Key = (u64, u64);

pub fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

/// A file that the kernel knows.
pub struct Inode {
    pub id: u64,
    pub ranges: Arc<Ranges>,
    pub durable: Group,
    pub writeback: Writeback,
    /// Has neither set-ID bits nor a capability, which a write would take away.
    pub plain: AtomicBool,
    place: Mutex<Option<Place>>,
    used: AtomicBool,
    places: Arc<Places>,
}

impl Inode {
    fn new(id: u64, place: Option<Place>, places: &Arc<Places>) -> Arc<Inode> {
        Arc::new(Inode {
            id,
            ranges: Arc::default(),
            durable: Group::default(),
            writeback: Writeback::default(),
            plain: AtomicBool::new(false),
            place: Mutex::new(place),
            used: AtomicBool::new(false),
            places: places.clone(),
        })
    }

    /// Where it is. ESTALE when it has no name any more and nobody has held it.
    pub fn place(self: &Arc<Self>) -> Result<Place, Errno> {
        self.used.store(true, Ordering::Relaxed);
        match self.find_place() {
            Some(place) => Ok(place),
            None => self.places.reopen(self),
        }
    }

    pub fn stat(self: &Arc<Self>) -> Result<Stat, Errno> {
        self.place()?.stat()
    }

    pub fn find_place(&self) -> Option<Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn keep(&self, place: &Place) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place.clone());
    }

    pub fn give_up(&self) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Since the last time that this was asked.
    pub fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

pub struct Inodes {
    places: Arc<Places>,
}

/// A file that may lose its last name: found again nevertheless.
pub struct Held(Option<(Arc<Inode>, Place)>);

impl Inodes {
    /// With the recorded directory in it. About `most` files have a descriptor at once.
    pub fn new(root: OwnedFd, most: usize) -> Result<Inodes, Errno> {
        let root = Place::new(root);
        let places = Arc::new(Places::new(Tree::new(&root.stat()?), most));
        let inodes = Inodes { places };
        let inode = Inode::new(ROOT, Some(root), &inodes.places);
        inodes.tree().known.insert(ROOT, (inode, 1));
        Ok(inodes)
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.places.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the file that has this name now; a new one if it is new.
    pub fn add_name(&self, stat: &Stat, parent: u64, name: &OsStr) -> u64 {
        self.tree().add_name(stat, parent, name)
    }

    /// The id of a file that has a name, or None when it came past the recording.
    pub fn find_id(&self, key: Key) -> Option<u64> {
        self.tree().find_id(key)
    }

    /// A file that the kernel knows. ESTALE for any other.
    pub fn require(&self, id: u64) -> Result<Arc<Inode>, Errno> {
        self.tree().known.get(&id).map(|(inode, _)| inode.clone()).ok_or(Errno::STALE)
    }

    /// To be done before a file loses a name, and to be kept until it has.
    pub fn hold(&self, id: u64) -> Result<Held, Errno> {
        let known = self.tree().known.get(&id).map(|(inode, _)| inode.clone());
        known.map(|inode| Ok((inode.clone(), inode.place()?))).transpose().map(Held)
    }

    /// See [`Places::moving`].
    pub fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.places.moving()
    }

    pub fn take_name(&self, id: u64, parent: u64, name: &OsStr, held: &Held) {
        self.tree().take_name(id, parent, name);
        // It may have been given up meanwhile.
        if let Some((inode, place)) = &held.0 {
            inode.keep(place);
        }
    }

    pub fn move_name(&self, id: u64, from: (u64, &OsStr), to: (u64, &OsStr)) {
        self.tree().move_name(id, from, to);
    }

    /// What has this name now, with one more reference from the kernel. EIO when it came past the
    /// recording.
    pub fn look_up(&self, parent: &Place, name: &OsStr) -> Result<(Arc<Inode>, Stat), Errno> {
        let stat = stat_entry(parent, name)?;
        let mut tree = self.tree();
        let Some(id) = tree.find_id(key(&stat)) else {
            complain!("{name:?} appeared in the backing without passing through the mount");
            return Err(Errno::IO);
        };
        let fresh = || (Inode::new(id, None, &self.places), 0);
        let (inode, references) = tree.known.entry(id).or_insert_with(fresh);
        *references += 1;
        Ok((inode.clone(), stat))
    }

    /// The kernel drops so many references.
    pub fn forget(&self, id: u64, count: u64) {
        let mut tree = self.tree();
        let Some((_, references)) = tree.known.get_mut(&id) else { return };
        *references = references.saturating_sub(count);
        let gone = if *references == 0 && id != ROOT { tree.known.remove(&id) } else { None };
        // Closed without the lock.
        drop(tree);
        drop(gone);
    }
}

/// What has this name, links not followed.
pub fn stat_entry(parent: &Place, name: &OsStr) -> Result<Stat, Errno> {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}
