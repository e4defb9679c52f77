//! The kernel's requests, one function each: what is asked goes to the recorder, what it gives goes
//! back.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use diskproof_wire::crash_log::{Operation, ROOT};
use fuser::{
    BsdFileFlags, Errno as FuseErrno, FileHandle, Filesystem, FopenFlags, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::acks::{AckFile, ACK_ID};
use crate::answers::{
    answer, answer_statfs, answer_xattr, caller, code, is_ack, new_name, refuse_ack, ttl,
    GENERATION,
};
use crate::attributes::Change;
use crate::handles::{Handle, OpenFile};
use crate::log::Asked;
use crate::recorder::{attributes, Recorder, TTL};
use crate::Ended;

impl Filesystem for Recorder {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.negotiate(config)
    }

    fn destroy(&mut self) {
        let _ = self.ended.send(Ended::Unmounted);
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if is_ack(parent, name) {
            return reply.entry(&TTL, &self.acks.attributes(), GENERATION);
        }
        let found = self.do_lookup(parent.0, name);
        answer!(reply, found, found => reply.entry(&ttl(&found), &found, GENERATION))
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.inodes.forget(ino.0, count);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == ACK_ID {
            return reply.attr(&TTL, &self.acks.attributes());
        }
        answer!(reply, self.do_getattr(ino.0), found => reply.attr(&ttl(&found), &found))
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if ino.0 == ACK_ID {
            // Other than by a shell's ">", before it writes.
            if let (Some(_), Some(fh)) = (size, fh) {
                self.drop_unfinished(fh.0);
            }
            return reply.attr(&TTL, &self.acks.attributes());
        }
        let (handle, caller) = (fh.map(|fh| fh.0), caller(request));
        let change = Change { mode, uid, gid, size, atime, mtime, handle, caller };
        answer!(reply, self.do_setattr(ino.0, &change), found => reply.attr(&ttl(&found), &found))
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        answer!(reply, self.do_readlink(ino.0), target => reply.data(&target))
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = new_name(request, parent, name, umask);
        let made = refuse_ack(parent, name).and_then(|()| self.do_mknod(&new, mode, rdev));
        answer!(reply, made, found => reply.entry(&TTL, &found, GENERATION))
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new_name(request, parent, name, umask);
        let made = refuse_ack(parent, name).and_then(|()| self.do_mkdir(&new, mode));
        answer!(reply, made, found => reply.entry(&TTL, &found, GENERATION))
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done =
            refuse_ack(parent, name).and_then(|()| self.do_unlink(parent.0, name, request.pid()));
        answer!(reply, done, () => reply.ok())
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.do_rmdir(parent.0, name, request.pid()), () => reply.ok())
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = new_name(request, parent, name, 0);
        let made = refuse_ack(parent, name).and_then(|()| self.do_symlink(&new, target));
        answer!(reply, made, found => reply.entry(&TTL, &found, GENERATION))
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = refuse_ack(parent, name)
            .and_then(|()| refuse_ack(new_parent, new_name))
            .and_then(|()| {
                self.do_rename(
                    (parent.0, name),
                    (new_parent.0, new_name),
                    flags.bits(),
                    request.pid(),
                )
            });
        answer!(reply, done, () => reply.ok())
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = refuse_ack(new_parent, new_name)
            .and_then(|()| self.do_link(ino.0, new_parent.0, new_name, request.pid()));
        answer!(reply, made, found => reply.entry(&TTL, &found, GENERATION))
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino.0 == ACK_ID {
            let handle = self.handles.add(Handle::Acknowledgements(AckFile::splitter()));
            let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_STREAM;
            return reply.opened(FileHandle(handle), how);
        }
        let opened = self
            .inodes
            .require(ino.0)
            .and_then(|inode| self.log_open(OpenFile::open(inode, flags.0)?, flags.0));
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), self.open_flags(flags.0)))
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = refuse_ack(parent, name)
            .and_then(|()| self.do_create(&new_name(request, parent, name, umask), mode, flags))
            .and_then(|(file, stat)| {
                let found = attributes(file.inode.id, &stat);
                Ok((found, self.log_open(file, flags)?))
            });
        answer!(reply, made, (found, handle) => {
            reply.created(&TTL, &found, GENERATION, FileHandle(handle), self.open_flags(flags))
        })
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.handles.require(fh.0) {
            Err(error) => reply.error(code(error)),
            Ok(handle) => self.do_read(&handle, offset, size, flags.0, reply),
        }
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        from: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let handle = self.handles.require(fh.0);
        answer!(reply, handle, handle => {
            self.do_write(&handle, offset, data, (from, flags.0, caller(request)), reply)
        })
    }

    /// Closing a descriptor flushes nothing; with this answer the kernel does not ask again.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(FuseErrno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let done = match self.handles.remove(fh.0).as_deref() {
            Some(Handle::Acknowledgements(lines)) => self.acks.finish(lines),
            _ => self.log.append(Asked::now(ino.0), &Operation::Release { handle: fh.0 }),
        };
        answer!(reply, done, () => reply.ok())
    }

    fn fsync(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let handle = self.handles.require(fh.0);
        answer!(reply, handle, handle => self.do_fsync(handle, data_only, request.pid(), reply))
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.do_opendir(ino.0);
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), FopenFlags::empty()))
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let handle = self.handles.require(fh.0);
        let filled = handle.and_then(|handle| {
            self.do_readdir(&handle, offset, |id, next, kind, name| {
                reply.add(INodeNo(id), next, kind, name)
            })
        });
        answer!(reply, filled, () => reply.ok())
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.handles.remove(fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(request, ino, fh, data_only, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let root = self.inodes.require(ROOT);
        let found = root.and_then(|root| rustix::fs::fstatvfs(root.place()?));
        answer!(reply, found, facts => answer_statfs(reply, &facts))
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.do_setxattr(ino.0, name, value, flags, request.pid()), () => reply.ok())
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino.0 == ACK_ID {
            return reply.error(FuseErrno::ENODATA);
        }
        answer!(reply, self.do_getxattr(ino.0, name, size), value => answer_xattr(reply, value))
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if ino.0 == ACK_ID {
            return reply.error(FuseErrno::ENOTSUP);
        }
        answer!(reply, self.do_listxattr(ino.0, size), value => answer_xattr(reply, value))
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.do_removexattr(ino.0, name, request.pid()), () => reply.ok())
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let handle = self.handles.require(fh.0);
        let how = (mode, caller(request));
        let done = handle.and_then(|handle| self.do_fallocate(&handle, offset, length, how));
        answer!(reply, done, () => reply.ok())
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let noted = self.note_sync(ino.0, command, data);
        answer!(reply, noted, () => reply.ioctl(0, &[]))
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let handle = self.handles.require(fh.0);
        let found = handle.and_then(|handle| self.do_lseek(&handle, offset, whence));
        answer!(reply, found, place => reply.offset(place as i64))
    }
}
