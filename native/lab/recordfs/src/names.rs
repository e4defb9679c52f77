//! Requests that look at names or change them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use diskproof_wire::crash_log::{Entry, Operation};
use fuser::FileAttr;
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid, CWD};
use rustix::io::Errno;

use crate::base;
use crate::handles::OpenFile;
use crate::inodes::{stat_entry, Inode};
use crate::log::Asked;
use crate::recorder::{attributes, Recorder};

/// Who makes a file, and in what directory under what name.
pub struct NewName<'a> {
    pub parent: u64,
    pub name: &'a OsStr,
    pub uid: u32,
    pub gid: u32,
}

impl Recorder {
    pub fn do_lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.inodes.require(parent)?;
        let _names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let (inode, stat) = self.inodes.look_up(&parent, name)?;
        Ok(attributes(inode.id, &stat))
    }

    /// A regular file, opened as asked.
    pub fn do_create(
        &self,
        new: &NewName<'_>,
        mode: u32,
        flags: i32,
    ) -> Result<(OpenFile, Stat), Errno> {
        let how =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (inode, stat) = self.make(new, Operation::Create, mode, b"", |parent| {
            fs::openat(parent.place(), new.name, how, Mode::from_raw_mode(mode)).map(drop)
        })?;
        Ok((OpenFile::open(inode, flags)?, stat))
    }

    pub fn do_mknod(&self, new: &NewName<'_>, mode: u32, rdev: u32) -> Result<FileAttr, Errno> {
        let kind = fs::FileType::from_raw_mode(mode);
        let permissions = Mode::from_raw_mode(mode);
        let made = self.make(new, Operation::Create, mode, b"", |parent| {
            fs::mknodat(parent.place(), new.name, kind, permissions, rdev.into())
        });
        made.map(|(inode, stat)| attributes(inode.id, &stat))
    }

    pub fn do_mkdir(&self, new: &NewName<'_>, mode: u32) -> Result<FileAttr, Errno> {
        let made = self.make(new, Operation::Mkdir, mode, b"", |parent| {
            fs::mkdirat(parent.place(), new.name, Mode::from_raw_mode(mode))
        });
        made.map(|(inode, stat)| attributes(inode.id, &stat))
    }

    pub fn do_symlink(&self, new: &NewName<'_>, target: &Path) -> Result<FileAttr, Errno> {
        let bytes = target.as_os_str().as_bytes();
        let made = self.make(new, Operation::Symlink, 0, bytes, |parent| {
            fs::symlinkat(target, parent.place(), new.name)
        });
        made.map(|(inode, stat)| attributes(inode.id, &stat))
    }

    /// Makes a file, gives it its owner, its id and its record.
    fn make<'a>(
        &self,
        new: &NewName<'a>,
        operation: impl FnOnce(Entry<'a>) -> Operation<'a>,
        mode: u32,
        target: &'a [u8],
        create: impl FnOnce(&Inode) -> Result<(), Errno>,
    ) -> Result<(Arc<Inode>, Stat), Errno> {
        let parent = self.inodes.require(new.parent)?;
        let begin_ns = Asked::now(0).begin_ns;
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        create(&parent)?;
        if self.gives_owners {
            give_owner(&parent, new, mode)?;
        }
        let id = self.inodes.name(&stat_entry(&parent, new.name)?);
        let (inode, stat) = self.inodes.look_up(&parent, new.name)?;
        let made = base::entry(&stat, new.parent, new.name, target);
        self.log.append(Asked { begin_ns, file: id }, &operation(made))?;
        Ok((inode, stat))
    }

    pub fn do_link(&self, id: u64, new_parent: u64, new_name: &OsStr) -> Result<FileAttr, Errno> {
        let (inode, parent) = (self.inodes.require(id)?, self.inodes.require(new_parent)?);
        let asked = Asked::now(id);
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        fs::linkat(CWD, inode.path(), parent.place(), new_name, AtFlags::SYMLINK_FOLLOW)?;
        let (_, stat) = self.inodes.look_up(&parent, new_name)?;
        let name = Cow::Borrowed(new_name.as_bytes());
        self.log.append(asked, &Operation::Link { parent: new_parent, name })?;
        Ok(attributes(id, &stat))
    }

    pub fn do_unlink(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let text = Cow::Borrowed(name.as_bytes());
        self.remove(parent, name, AtFlags::empty(), &Operation::Unlink { parent, name: text })
    }

    pub fn do_rmdir(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let text = Cow::Borrowed(name.as_bytes());
        self.remove(parent, name, AtFlags::REMOVEDIR, &Operation::Rmdir { parent, name: text })
    }

    fn remove(
        &self,
        parent: u64,
        name: &OsStr,
        flags: AtFlags,
        operation: &Operation<'_>,
    ) -> Result<(), Errno> {
        let parent = self.inodes.require(parent)?;
        let begin_ns = Asked::now(0).begin_ns;
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        let stat = stat_entry(&parent, name)?;
        let file = self.inodes.find_id(&stat).ok_or(Errno::IO)?;
        fs::unlinkat(parent.place(), name, flags)?;
        self.unname_last(&stat);
        self.log.append(Asked { begin_ns, file }, operation)
    }

    /// Call after a name was taken from a file that looked like this before.
    fn unname_last(&self, before: &Stat) {
        let is_directory = fs::FileType::from_raw_mode(before.st_mode) == fs::FileType::Directory;
        if is_directory || before.st_nlink == 1 {
            self.inodes.unname(before);
        }
    }

    pub fn do_rename(
        &self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.inodes.require(parent)?, self.inodes.require(new_parent)?);
        let begin_ns = Asked::now(0).begin_ns;
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        let file = self.inodes.find_id(&stat_entry(&from, name)?).ok_or(Errno::IO)?;
        let target = stat_entry(&to, new_name).ok();
        let replaced = target.as_ref().and_then(|stat| self.inodes.find_id(stat)).unwrap_or(0);
        let how = RenameFlags::from_bits_retain(flags);
        fs::renameat_with(from.place(), name, to.place(), new_name, how)?;
        if let Some(stat) = target.filter(|_| flags == 0 && replaced != file) {
            self.unname_last(&stat);
        }
        let (name, new_name) = (Cow::Borrowed(name.as_bytes()), Cow::Borrowed(new_name.as_bytes()));
        let done = Operation::Rename { flags, parent, new_parent, replaced, name, new_name };
        self.log.append(Asked { begin_ns, file }, &done)
    }

    pub fn do_readlink(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let inode = self.inodes.require(id)?;
        Ok(fs::readlinkat(inode.place(), "", Vec::new())?.into_bytes())
    }
}

/// The owner as the kernel would have set it: the directory's group where that is set-group-id.
fn give_owner(parent: &Inode, new: &NewName<'_>, mode: u32) -> Result<(), Errno> {
    let inherits = parent.stat()?.st_mode & libc::S_ISGID != 0;
    let gid = (!inherits).then(|| Gid::from_raw(new.gid));
    let uid = Some(Uid::from_raw(new.uid));
    fs::chownat(parent.place(), new.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    // A change of owner takes these bits away.
    if mode & 0o6000 != 0 {
        let kept = stat_entry(parent, new.name)?.st_mode | (mode & 0o6000);
        let kept = Mode::from_raw_mode(kept & 0o7777);
        fs::chmodat(parent.place(), new.name, kept, AtFlags::empty())?;
    }
    Ok(())
}
