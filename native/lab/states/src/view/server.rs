//! What the requests about a view share: which node of which state an inode is.

use std::ffi::OsStr;
use std::sync::{Arc, PoisonError};
use std::time::UNIX_EPOCH;

use diskproof_wire::crash_log::ROOT;
use fuser::{Errno as FuseErrno, FileAttr, FileType, FopenFlags, INodeNo};
use rustix::io::Errno;

use super::{Trees, PROMISED};
use crate::tree::{Leaf, Tree, PROMISES};

/// Bits of an inode number that are the node's; above them is the state's number.
pub(super) const NODE_BITS: u32 = 36;
pub(super) const VIEW_ROOT: u64 = 1;

pub(super) struct Server {
    pub trees: Arc<Trees>,
    /// Who owns all files, towards the kernel, which then caches none; None: whose they were.
    pub owner: Option<u32>,
}

pub(super) fn code(error: Errno) -> FuseErrno {
    FuseErrno::from_i32(error.raw_os_error())
}

pub(super) fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attributes(inode: u64, leaf: &Leaf) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: leaf.size,
        blocks: leaf.size.div_ceil(512),
        atime: leaf.changed,
        mtime: leaf.changed,
        ctime: leaf.changed,
        crtime: leaf.changed,
        kind: kind(leaf.mode),
        perm: (leaf.mode & 0o7777) as u16,
        nlink: leaf.links,
        uid: leaf.uid,
        gid: leaf.gid,
        rdev: leaf.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// Gives the attributes of the mount itself.
pub(super) fn root_attributes() -> FileAttr {
    let leaf = (UNIX_EPOCH, libc::S_IFDIR | 0o755);
    FileAttr {
        ino: INodeNo(VIEW_ROOT),
        size: 0,
        blocks: 0,
        atime: leaf.0,
        mtime: leaf.0,
        ctime: leaf.0,
        crtime: leaf.0,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Server {
    pub fn attributes(&self, inode: u64, leaf: &Leaf) -> FileAttr {
        let uid = self.owner.unwrap_or(leaf.uid);
        FileAttr { uid, ..attributes(inode, leaf) }
    }

    /// Does something with the tree that an inode is of; `work` gets the node's id in it.
    pub fn with<T>(
        &self,
        inode: INodeNo,
        work: impl FnOnce(&mut Tree, u64) -> std::result::Result<T, Errno>,
    ) -> std::result::Result<T, Errno> {
        let number = inode.0 >> NODE_BITS;
        let tree = self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        let tree = tree.ok_or(if number == 0 { Errno::ROFS } else { Errno::STALE })?;
        let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut tree, inode.0 & ((1 << NODE_BITS) - 1))
    }

    /// As `with`, for a new name; gives the attributes of what it now names.
    pub fn with_entry(
        &self,
        parent: INodeNo,
        work: impl FnOnce(&mut Tree, u64) -> std::result::Result<u64, Errno>,
    ) -> std::result::Result<FileAttr, Errno> {
        self.with(parent, |tree, id| {
            let found = work(tree, id)?;
            let inode = parent.0 >> NODE_BITS << NODE_BITS | found;
            Ok(self.attributes(inode, tree.attributes(found)?))
        })
    }

    pub fn find(&self, parent: INodeNo, name: &OsStr) -> std::result::Result<FileAttr, Errno> {
        if parent.0 != VIEW_ROOT {
            return self.with_entry(parent, |tree, id| tree.lookup(id, name));
        }
        let name = name.to_str().ok_or(Errno::NOENT)?;
        let (text, node) = match name.strip_suffix(PROMISED) {
            Some(text) => (text, PROMISES),
            None => (name, ROOT),
        };
        let number = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
        let inode = INodeNo(number.ok_or(Errno::NOENT)? << NODE_BITS | node);
        let found = self.with(inode, |tree, id| Ok(self.attributes(inode.0, tree.attributes(id)?)));
        found.map_err(|_| Errno::NOENT)
    }

    pub fn open_flags(&self) -> FopenFlags {
        if self.owner.is_some() {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }
}
