//! The kernel's requests, one function each.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno as FuseErrno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use super::server::{code, kind, root_attributes, Server, NODE_BITS, VIEW_ROOT};
use crate::tree::New;

/// Only the kernel changes what it sees, and names of states are never used again.
const TTL: Duration = Duration::from_secs(3600);
const GENERATION: Generation = Generation(0);

fn new_node(request: &Request, mode: u32, rdev: u32, target: &[u8]) -> New {
    New { mode, uid: request.uid(), gid: request.gid(), rdev, target: target.to_vec() }
}

/// Answers with an error, or with what the last part makes of the value.
macro_rules! answer {
    ($reply:expr, $result:expr, $value:pat => $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(code(error)),
        }
    };
}

fn answer_entry(reply: ReplyEntry, found: std::result::Result<FileAttr, Errno>) {
    answer!(reply, found, found => reply.entry(&TTL, &found, GENERATION))
}

fn answer_empty(reply: ReplyEmpty, done: std::result::Result<(), Errno>) {
    answer!(reply, done, () => reply.ok())
}

fn answer_xattr(reply: ReplyXattr, size: u32, value: std::result::Result<Vec<u8>, Errno>) {
    match value {
        Err(error) => reply.error(code(error)),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(code(Errno::RANGE)),
        Ok(value) => reply.data(&value),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Older kernels do without.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        if self.owner.is_some() {
            let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        } else {
            // The kernel asks once whether it has to, see `open`.
            let _ = config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT);
            let _ = config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        }
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.find(parent, name));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == VIEW_ROOT {
            return reply.attr(&TTL, &root_attributes());
        }
        let found = self.with(ino, |tree, id| Ok(self.attributes(ino.0, tree.attributes(id)?)));
        answer!(reply, found, found => reply.attr(&TTL, &found))
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.with(ino, |tree, id| {
            if let Some(size) = size {
                tree.resize(id, size)?;
            }
            let leaf = tree.node_mut(id)?;
            leaf.mode = mode.map_or(leaf.mode, |mode| leaf.kind() | (mode & 0o7777));
            leaf.uid = uid.unwrap_or(leaf.uid);
            leaf.gid = gid.unwrap_or(leaf.gid);
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => leaf.changed = time,
                Some(TimeOrNow::Now) => leaf.changed = SystemTime::now(),
                None => {}
            }
            Ok(self.attributes(ino.0, leaf))
        });
        answer!(reply, done, found => reply.attr(&TTL, &found))
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.with(ino, |tree, id| Ok(tree.node(id)?.target.clone()));
        answer!(reply, target, target => reply.data(&target))
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, mode, rdev, b"");
        answer_entry(reply, self.with_entry(parent, |tree, id| tree.make(id, name, new)));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, libc::S_IFDIR | (mode & 0o7777), 0, b"");
        answer_entry(reply, self.with_entry(parent, |tree, id| tree.make(id, name, new)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, libc::S_IFLNK | 0o777, 0, target.as_os_str().as_bytes());
        answer_entry(reply, self.with_entry(parent, |tree, id| tree.make(id, name, new)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.with(parent, |tree, id| tree.remove(id, name, false)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.with(parent, |tree, id| tree.remove(id, name, true)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.with(parent, |tree, id| {
            if parent.0 >> NODE_BITS != new_parent.0 >> NODE_BITS {
                return Err(Errno::XDEV);
            }
            let new_id = new_parent.0 & ((1 << NODE_BITS) - 1);
            tree.rename((id, name), (new_id, new_name), flags.bits())
        });
        answer_empty(reply, done);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.with_entry(new_parent, |tree, id| {
            if ino.0 >> NODE_BITS != new_parent.0 >> NODE_BITS {
                return Err(Errno::XDEV);
            }
            let linked = ino.0 & ((1 << NODE_BITS) - 1);
            tree.link(linked, id, new_name).map(|()| linked)
        });
        answer_entry(reply, made);
    }

    /// Where the kernel may keep what it has read it need not say that it opens anything: this
    /// error has it open and close by itself from then on, and keep what directories list.
    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.owner.is_none() {
            return reply.error(FuseErrno::ENOSYS);
        }
        let found = self.with(ino, |tree, id| tree.node(id).map(|_| ()));
        answer!(reply, found, () => reply.opened(FileHandle(0), self.open_flags()))
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.owner {
            None => reply.error(FuseErrno::ENOSYS),
            Some(_) => reply.opened(FileHandle(0), FopenFlags::empty()),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let new = new_node(request, libc::S_IFREG | (mode & 0o7777), 0, b"");
        let made = self.with_entry(parent, |tree, id| tree.make(id, name, new));
        answer!(reply, made, found => {
            reply.created(&TTL, &found, GENERATION, FileHandle(0), self.open_flags())
        })
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.with(ino, |tree, id| tree.read(id, offset, size as usize));
        answer!(reply, read, bytes => reply.data(&bytes))
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = self.with(ino, |tree, id| tree.write(id, offset, data));
        answer!(reply, done, () => reply.written(data.len() as u32))
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const ZEROES: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        let done = self.with(ino, |tree, id| {
            let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
            if mode & !(ZEROES | libc::FALLOC_FL_KEEP_SIZE) != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            if mode & ZEROES != 0 {
                tree.zero(id, offset, end)?;
            }
            if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && tree.node(id)?.size < end {
                tree.resize(id, end)?;
            }
            Ok(())
        });
        answer_empty(reply, done);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// What is written here is to be thrown away.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino.0 == VIEW_ROOT {
            return reply.ok();
        }
        let first = ino.0 >> NODE_BITS << NODE_BITS;
        let filled = self.with(ino, |tree, id| {
            tree.see_entries(id);
            let entries = tree.node(id)?.entries.iter();
            for ((name, &id), next) in entries.zip(1u64..).skip(offset as usize) {
                let kind = kind(tree.node(id)?.mode);
                if reply.add(INodeNo(first | id), next, kind, name) {
                    break;
                }
            }
            Ok(())
        });
        answer!(reply, filled, () => reply.ok())
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 30, 1 << 18, 1 << 18, 1 << 20, 1 << 19, 4096, 255, 4096);
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.with(ino, |tree, id| {
            let extended = tree.extended(id)?;
            if extended.len() >= 256 {
                return Err(Errno::NOSPC);
            }
            extended.insert(name.as_bytes().to_vec(), value.to_vec());
            Ok(())
        });
        answer_empty(reply, done);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.with(ino, |tree, id| {
            tree.extended(id)?.get(name.as_bytes()).cloned().ok_or(Errno::NODATA)
        });
        answer_xattr(reply, size, value);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.with(ino, |tree, id| {
            Ok(tree.extended(id)?.keys().flat_map(|name| [name, &b"\0"[..]].concat()).collect())
        });
        answer_xattr(reply, size, names);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.with(ino, |tree, id| {
            let removed = tree.extended(id)?.remove(name.as_bytes());
            removed.map(|_| ()).ok_or(Errno::NODATA)
        });
        answer_empty(reply, done);
    }
}
