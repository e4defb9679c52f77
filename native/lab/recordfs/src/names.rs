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
use crate::effects::{log_changes, Facts, DEFAULT_ACL};
use crate::handles::OpenFile;
use crate::inodes::{key, stat_entry, Inode};
use crate::log::Asked;
use crate::places::Place;
use crate::recorder::{attributes, Recorder};
use crate::stacks::Call;

/// Who makes a file, and in what directory under what name.
pub struct NewName<'a> {
    pub parent: u64,
    pub name: &'a OsStr,
    pub uid: u32,
    pub gid: u32,
    pub thread: u32,
    /// What the caller keeps from new files, where the directory has no list for them.
    pub umask: u32,
}

impl Recorder {
    pub fn do_lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.inodes.require(parent)?;
        let _names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let (inode, stat) = self.inodes.look_up(&parent.place()?, name)?;
        Ok(attributes(inode.id, &stat))
    }

    /// A regular file, opened as asked.
    pub fn do_create(
        &self,
        new: &NewName<'_>,
        mode: u32,
        flags: i32,
    ) -> Result<(OpenFile, Stat), Errno> {
        let access = OFlags::from_bits_retain(flags as u32) & OFlags::RWMODE;
        let how = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut opened = None;
        let (inode, stat) = self.make(new, Operation::Create, mode, b"", |parent, mode| {
            opened = Some(fs::openat(parent, new.name, how, Mode::from_raw_mode(mode))?);
            Ok(())
        })?;
        // Its mode counts for those who open it later.
        let opened = opened.ok_or(Errno::IO)?;
        Ok((OpenFile::new(inode, opened, flags)?, stat))
    }

    pub fn do_mknod(&self, new: &NewName<'_>, mode: u32, rdev: u32) -> Result<FileAttr, Errno> {
        let kind = fs::FileType::from_raw_mode(mode);
        let made = self.make(new, Operation::Create, mode, b"", |parent, mode| {
            fs::mknodat(parent, new.name, kind, Mode::from_raw_mode(mode), rdev.into())
        });
        made.map(|(inode, stat)| attributes(inode.id, &stat))
    }

    pub fn do_mkdir(&self, new: &NewName<'_>, mode: u32) -> Result<FileAttr, Errno> {
        let made = self.make(new, Operation::Mkdir, mode, b"", |parent, mode| {
            fs::mkdirat(parent, new.name, Mode::from_raw_mode(mode))
        });
        made.map(|(inode, stat)| attributes(inode.id, &stat))
    }

    pub fn do_symlink(&self, new: &NewName<'_>, target: &Path) -> Result<FileAttr, Errno> {
        let bytes = target.as_os_str().as_bytes();
        let made = self.make(new, Operation::Symlink, 0, bytes, |parent, _| {
            fs::symlinkat(target, parent, new.name)
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
        create: impl FnOnce(&Place, u32) -> Result<(), Errno>,
    ) -> Result<(Arc<Inode>, Stat), Errno> {
        let parent = self.inodes.require(new.parent)?;
        let asked = self.log.asked(0, new.thread, Call::Other);
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        let place = parent.place()?;
        let listed = fs::getxattr_query(place.path(), DEFAULT_ACL).is_ok_and(|length| length > 0);
        let mode = if listed { mode } else { mode & !new.umask };
        create(&place, mode)?;
        if self.gives_owners {
            give_owner(&place, new, mode)?;
        }
        let id = self.inodes.add_name(&stat_entry(&place, new.name)?, new.parent, new.name);
        let (inode, stat) = self.inodes.look_up(&place, new.name)?;
        let (made, asked) =
            (base::entry(&stat, new.parent, new.name, target), Asked { file: id, ..asked });
        self.log.append(asked, &operation(made))?;
        if listed {
            let facts = Facts::of(&inode.place()?)?;
            log_changes(&self.log, asked, (&facts.without_lists(), &facts), [false; 3])?;
        }
        Ok((inode, stat))
    }

    pub fn do_link(
        &self,
        id: u64,
        new_parent: u64,
        new_name: &OsStr,
        thread: u32,
    ) -> Result<FileAttr, Errno> {
        let (inode, parent) = (self.inodes.require(id)?, self.inodes.require(new_parent)?);
        let asked = self.log.asked(id, thread, Call::Other);
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        let (from, to) = (inode.place()?, parent.place()?);
        fs::linkat(CWD, from.path(), &to, new_name, AtFlags::SYMLINK_FOLLOW)?;
        self.inodes.add_name(&from.stat()?, new_parent, new_name);
        let (_, stat) = self.inodes.look_up(&to, new_name)?;
        let name = Cow::Borrowed(new_name.as_bytes());
        self.log.append(asked, &Operation::Link { parent: new_parent, name })?;
        Ok(attributes(id, &stat))
    }

    pub fn do_unlink(&self, parent: u64, name: &OsStr, thread: u32) -> Result<(), Errno> {
        let text = Cow::Borrowed(name.as_bytes());
        self.remove(
            (parent, thread),
            name,
            AtFlags::empty(),
            &Operation::Unlink { parent, name: text },
        )
    }

    pub fn do_rmdir(&self, parent: u64, name: &OsStr, thread: u32) -> Result<(), Errno> {
        let text = Cow::Borrowed(name.as_bytes());
        self.remove(
            (parent, thread),
            name,
            AtFlags::REMOVEDIR,
            &Operation::Rmdir { parent, name: text },
        )
    }

    fn remove(
        &self,
        (parent, thread): (u64, u32),
        name: &OsStr,
        flags: AtFlags,
        operation: &Operation<'_>,
    ) -> Result<(), Errno> {
        let place = self.inodes.require(parent)?.place()?;
        let asked = self.log.asked(0, thread, Call::Other);
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        let file = self.require_id(&place, name)?;
        let held = self.inodes.hold(file)?;
        let moving = self.inodes.moving();
        fs::unlinkat(&place, name, flags)?;
        self.inodes.take_name(file, parent, name, &held);
        drop(moving);
        self.log.append(Asked { file, ..asked }, operation)
    }

    /// EIO for what came past the recording.
    fn require_id(&self, parent: &Place, name: &OsStr) -> Result<u64, Errno> {
        self.inodes.find_id(key(&stat_entry(parent, name)?)).ok_or(Errno::IO)
    }

    pub fn do_rename(
        &self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
        thread: u32,
    ) -> Result<(), Errno> {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(Errno::INVAL);
        }
        let from = self.inodes.require(parent)?.place()?;
        let to = self.inodes.require(new_parent)?.place()?;
        let asked = self.log.asked(0, thread, Call::Other);
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.log.require_open()?;
        let file = self.require_id(&from, name)?;
        let replaced = self.require_id(&to, new_name).unwrap_or(0);
        let held = self.inodes.hold(replaced)?;
        let moving = self.inodes.moving();
        let how = RenameFlags::from_bits_retain(flags);
        fs::renameat_with(&from, name, &to, new_name, how)?;
        if replaced != file {
            let (old, new) = ((parent, name), (new_parent, new_name));
            if flags == libc::RENAME_EXCHANGE {
                self.inodes.move_name(replaced, new, old);
            } else {
                self.inodes.take_name(replaced, new_parent, new_name, &held);
            }
            self.inodes.move_name(file, old, new);
        }
        drop(moving);
        let (name, new_name) = (Cow::Borrowed(name.as_bytes()), Cow::Borrowed(new_name.as_bytes()));
        let done = Operation::Rename { flags, parent, new_parent, replaced, name, new_name };
        self.log.append(Asked { file, ..asked }, &done)
    }

    pub fn do_readlink(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let place = self.inodes.require(id)?.place()?;
        Ok(fs::readlinkat(&place, "", Vec::new())?.into_bytes())
    }
}

/// The owner as the kernel would have set it: the directory's group where that is set-group-id.
fn give_owner(parent: &Place, new: &NewName<'_>, mode: u32) -> Result<(), Errno> {
    let inherits = parent.stat()?.st_mode & libc::S_ISGID != 0;
    let gid = (!inherits).then(|| Gid::from_raw(new.gid));
    let uid = Some(Uid::from_raw(new.uid));
    fs::chownat(parent, new.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    // A change of owner takes these bits away.
    if mode & 0o6000 != 0 {
        let kept = stat_entry(parent, new.name)?.st_mode | (mode & 0o6000);
        let kept = Mode::from_raw_mode(kept & 0o7777);
        fs::chmodat(parent, new.name, kept, AtFlags::empty())?;
    }
    Ok(())
}
