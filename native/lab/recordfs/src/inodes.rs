//! Which file has which id: in the log, and towards the kernel.
//!
//! Ids count up and are never used again. The host's inode numbers are only trusted while the file
//! has a name or is held open here, since the host gives them to new files afterwards.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use diskproof_wire::crash_log::ROOT;
use rustix::fs::{fstat, openat, statat, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::durable::Group;
use crate::ranges::Ranges;
use crate::writeback::Writeback;

/// A file that the kernel knows.
pub struct Inode {
    pub id: u64,
    pub ranges: Arc<Ranges>,
    pub durable: Group,
    pub writeback: Writeback,
    place: OwnedFd,
}

impl Inode {
    fn new(id: u64, place: OwnedFd) -> Inode {
        let (durable, writeback) = (Group::default(), Writeback::default());
        Inode { id, ranges: Arc::default(), durable, writeback, place }
    }

    /// A descriptor that only says where the file is (O_PATH).
    pub fn place(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }

    /// A path that leads to this very file, whatever its names are now.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.place.as_raw_fd()).into()
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.place)
    }
}

#[derive(Default)]
pub struct Inodes {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By device and inode number on the host: every file that has a name.
    named: HashMap<(u64, u64), u64>,
    /// What the kernel knows, with its number of references.
    known: HashMap<u64, (Arc<Inode>, u64)>,
    last_id: u64,
}

fn key(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

impl Inodes {
    /// The table with the recorded directory in it.
    pub fn new(root: OwnedFd) -> Result<Inodes, Errno> {
        let inodes = Inodes::default();
        let id = inodes.name(&fstat(&root)?);
        assert_eq!(id, ROOT);
        let root = Inode::new(id, root);
        inodes
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .known
            .insert(id, (Arc::new(root), 1));
        Ok(inodes)
    }

    /// The id of a file that has a name; a new one if it is new.
    pub fn name(&self, stat: &Stat) -> u64 {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = table.named.get(&key(stat)) {
            return id;
        }
        table.last_id += 1;
        let id = table.last_id;
        table.named.insert(key(stat), id);
        id
    }

    /// The id of a file that has a name, or None when it came past the recording.
    pub fn find_id(&self, stat: &Stat) -> Option<u64> {
        self.find_id_of(stat.st_dev, stat.st_ino)
    }

    pub fn find_id_of(&self, device: u64, inode: u64) -> Option<u64> {
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .named
            .get(&(device, inode))
            .copied()
    }

    /// The file has no name any more: its inode number means nothing now.
    pub fn unname(&self, stat: &Stat) {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).named.remove(&key(stat));
    }

    /// A file that the kernel knows. ESTALE for any other.
    pub fn require(&self, id: u64) -> Result<Arc<Inode>, Errno> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.known.get(&id).map(|(inode, _)| inode.clone()).ok_or(Errno::STALE)
    }

    /// What has this name now, with one more reference from the kernel. EIO when it came past the
    /// recording.
    pub fn look_up(&self, parent: &Inode, name: &OsStr) -> Result<(Arc<Inode>, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = openat(&parent.place, name, flags, Mode::empty())?;
        let stat = fstat(&place)?;
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&id) = table.named.get(&key(&stat)) else {
            complain!("{name:?} appeared in the backing without passing through the mount");
            return Err(Errno::IO);
        };
        let fresh = || (Arc::new(Inode::new(id, place)), 0);
        let (inode, references) = table.known.entry(id).or_insert_with(fresh);
        *references += 1;
        Ok((inode.clone(), stat))
    }

    /// The kernel drops so many references.
    pub fn forget(&self, id: u64, count: u64) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, references)) = table.known.get_mut(&id) {
            *references = references.saturating_sub(count);
            if *references == 0 && id != ROOT {
                table.known.remove(&id);
            }
        }
    }
}

/// What has this name, links not followed.
pub fn stat_entry(parent: &Inode, name: &OsStr) -> Result<Stat, Errno> {
    statat(&parent.place, name, AtFlags::SYMLINK_NOFOLLOW)
}
