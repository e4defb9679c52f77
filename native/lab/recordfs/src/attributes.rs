//! Requests about what is known of files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use diskproof_wire::crash_log::Operation;
use fuser::{FileAttr, TimeOrNow};
use rustix::fs::{
    chmodat, chownat, AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, CWD,
};
use rustix::io::Errno;

use crate::handles::Handle;
use crate::inodes::Inode;
use crate::log::Asked;
use crate::recorder::{attributes, Recorder};

/// What setattr may change; None leaves it.
pub struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

impl Recorder {
    pub fn do_getattr(&self, id: u64) -> Result<FileAttr, Errno> {
        Ok(attributes(id, &self.inodes.require(id)?.stat()?))
    }

    pub fn do_setattr(
        &self,
        id: u64,
        handle: Option<u64>,
        change: &Change,
    ) -> Result<FileAttr, Errno> {
        let inode = self.inodes.require(id)?;
        if change.uid.is_some() || change.gid.is_some() || change.mode.is_some() {
            self.set_owner_and_mode(&inode, change)?;
        }
        if let Some(size) = change.size {
            let open = handle.map(|number| self.handles.require(number)).transpose()?;
            self.truncate(&inode, open.as_deref(), size)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(change.atime),
                last_modification: timespec(change.mtime),
            };
            rustix::fs::utimensat(CWD, inode.path(), &times, AtFlags::empty())?;
        }
        Ok(attributes(id, &inode.stat()?))
    }

    fn set_owner_and_mode(&self, inode: &Arc<Inode>, change: &Change) -> Result<(), Errno> {
        let asked = Asked::now(inode.id);
        self.log.require_open()?;
        let _range = inode.ranges.lock_all();
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            chownat(inode.place(), "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        let permissions = change.mode.map(|mode| mode & 0o7777);
        if let Some(mode) = permissions {
            chmodat(CWD, inode.path(), Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        let Change { uid, gid, .. } = *change;
        self.log.append(asked, &Operation::Setattr { mode: permissions, uid, gid })
    }

    fn truncate(&self, inode: &Arc<Inode>, open: Option<&Handle>, size: u64) -> Result<(), Errno> {
        let asked = Asked::now(inode.id);
        self.log.require_open()?;
        let _range = inode.ranges.lock_all();
        let done = match open {
            Some(Handle::File(file)) => rustix::fs::ftruncate(&file.backing, size),
            _ => truncate_path(inode, size),
        };
        let error = done.err().map_or(0, |error| error.raw_os_error() as u16);
        self.log.append_result(asked, &Operation::Truncate { size }, error)?;
        done
    }

    /// A write takes set-user-id and set-group-id from the file; the kernel leaves that to us.
    pub fn drop_privileges(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        let mode = inode.stat()?.st_mode & 0o7777;
        let kept = mode & !0o4000 & !(if mode & 0o10 != 0 { 0o2000 } else { 0 });
        if kept == mode {
            return Ok(());
        }
        let change =
            Change { mode: Some(kept), uid: None, gid: None, size: None, atime: None, mtime: None };
        self.set_owner_and_mode(inode, &change)
    }

    pub fn do_setxattr(
        &self,
        id: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let inode = self.inodes.require(id)?;
        let asked = Asked::now(id);
        self.log.require_open()?;
        let _range = inode.ranges.lock_all();
        rustix::fs::setxattr(
            inode.path(),
            name,
            value,
            XattrFlags::from_bits_retain(flags as u32),
        )?;
        let (name, value) = (Cow::Borrowed(name.as_bytes()), Cow::Borrowed(value));
        self.log.append(asked, &Operation::Setxattr { name, value })
    }

    pub fn do_removexattr(&self, id: u64, name: &OsStr) -> Result<(), Errno> {
        let inode = self.inodes.require(id)?;
        let asked = Asked::now(id);
        self.log.require_open()?;
        let _range = inode.ranges.lock_all();
        rustix::fs::removexattr(inode.path(), name)?;
        let name = Cow::Borrowed(name.as_bytes());
        self.log.append(asked, &Operation::Removexattr { name })
    }

    /// Up to `size` bytes of the value; with 0 only its length counts.
    pub fn do_getxattr(&self, id: u64, name: &OsStr, size: u32) -> Result<Xattr, Errno> {
        let path = self.inodes.require(id)?.path();
        answer_xattr(size, |buffer| rustix::fs::getxattr(&path, name, buffer))
    }

    pub fn do_listxattr(&self, id: u64, size: u32) -> Result<Xattr, Errno> {
        let path = self.inodes.require(id)?.path();
        answer_xattr(size, |buffer| rustix::fs::listxattr(&path, buffer))
    }
}

pub enum Xattr {
    Length(u32),
    Value(Vec<u8>),
}

fn answer_xattr(
    size: u32,
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Xattr, Errno> {
    let mut buffer = vec![0; size as usize];
    let length = read(&mut buffer)?;
    if size == 0 {
        return Ok(Xattr::Length(length as u32));
    }
    buffer.truncate(length);
    Ok(Xattr::Value(buffer))
}

fn truncate_path(inode: &Inode, size: u64) -> Result<(), Errno> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::ftruncate(rustix::fs::open(inode.path(), flags, Mode::empty())?, size)
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(rustix::fs::UTIME_OMIT),
        Some(TimeOrNow::Now) => special(rustix::fs::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => {
                Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() }
            }
            Err(before) => Timespec { tv_sec: -(before.duration().as_secs() as i64), tv_nsec: 0 },
        },
    }
}
