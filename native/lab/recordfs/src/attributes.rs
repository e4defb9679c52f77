//! Requests about what is known of files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use diskproof_wire::crash_log::Operation;
use fuser::{FileAttr, TimeOrNow};
use rustix::fs::{
    chmodat, chownat, AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, CWD,
};
use rustix::io::Errno;

use crate::data::errno;
use crate::effects::{is_kernels, log_changes, watch, Caller, Facts};
use crate::handles::Handle;
use crate::inodes::Inode;
use crate::places::Place;
use crate::recorder::{attributes, Recorder};
use crate::stacks::Call;

/// What setattr may change; None leaves it.
pub struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
    /// By this open file.
    pub handle: Option<u64>,
    pub caller: Caller,
}

impl Recorder {
    pub fn do_getattr(&self, id: u64) -> Result<FileAttr, Errno> {
        Ok(attributes(id, &self.inodes.require(id)?.stat()?))
    }

    pub fn do_setattr(&self, id: u64, change: &Change) -> Result<FileAttr, Errno> {
        let inode = self.inodes.require(id)?;
        if change.uid.is_some() || change.gid.is_some() || change.mode.is_some() {
            self.set_owner_and_mode(&inode, change)?;
        }
        if let Some(size) = change.size {
            self.truncate(&inode, change, size)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(change.atime),
                last_modification: timespec(change.mtime),
            };
            rustix::fs::utimensat(CWD, inode.place()?.path(), &times, AtFlags::empty())?;
        }
        Ok(attributes(id, &inode.stat()?))
    }

    fn set_owner_and_mode(&self, inode: &Arc<Inode>, change: &Change) -> Result<(), Errno> {
        let asked = self.log.asked(inode.id, change.caller.pid, Call::Other);
        self.log.require_open()?;
        let _range = inode.ranges.lock_all();
        let place = inode.place()?;
        let before = Facts::of(&place)?;
        let done = change_owner_and_mode(&place, change);
        let after = Facts::of(&place)?;
        inode.plain.store(false, Ordering::Release);
        let named = [change.mode.is_some(), change.uid.is_some(), change.gid.is_some()];
        let named = if done.is_ok() { named } else { [false; 3] };
        log_changes(&self.log, asked, (&before, &after), named)?;
        done
    }

    fn truncate(&self, inode: &Arc<Inode>, change: &Change, size: u64) -> Result<(), Errno> {
        let asked = self.log.asked(inode.id, change.caller.pid, Call::Other);
        self.log.require_open()?;
        let open = change.handle.map(|number| self.handles.require(number)).transpose()?;
        let _range = inode.ranges.lock_all();
        let done =
            watch(&self.log, asked, inode, change.caller.kills(), |place| match open.as_deref() {
                Some(Handle::File(file)) => rustix::fs::ftruncate(&file.backing, size),
                _ => truncate_path(place, size),
            });
        self.log.append_result(asked, &Operation::Truncate { size }, errno(&done))?;
        done
    }

    pub fn do_setxattr(
        &self,
        id: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        thread: u32,
    ) -> Result<(), Errno> {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let operation = Operation::Setxattr {
            name: Cow::Borrowed(name.as_bytes()),
            value: Cow::Borrowed(value),
        };
        self.change_xattr((id, thread), name, &operation, |place| {
            rustix::fs::setxattr(place.path(), name, value, flags)
        })
    }

    pub fn do_removexattr(&self, id: u64, name: &OsStr, thread: u32) -> Result<(), Errno> {
        let operation = Operation::Removexattr { name: Cow::Borrowed(name.as_bytes()) };
        self.change_xattr((id, thread), name, &operation, |place| {
            rustix::fs::removexattr(place.path(), name)
        })
    }

    /// Of what is the kernel's own the log has what became of it: a list may change the mode, or
    /// be the mode alone.
    fn change_xattr(
        &self,
        (id, thread): (u64, u32),
        name: &OsStr,
        operation: &Operation<'_>,
        change: impl FnOnce(&Place) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let inode = self.inodes.require(id)?;
        let asked = self.log.asked(id, thread, Call::Other);
        self.log.require_open()?;
        let _range = inode.ranges.lock_all();
        let place = inode.place()?;
        if !is_kernels(name.as_bytes()) {
            change(&place)?;
            return self.log.append(asked, operation);
        }
        let before = Facts::of(&place)?;
        change(&place)?;
        inode.plain.store(false, Ordering::Release);
        log_changes(&self.log, asked, (&before, &Facts::of(&place)?), [false; 3])
    }

    /// Up to `size` bytes of the value; with 0 only its length counts.
    pub fn do_getxattr(&self, id: u64, name: &OsStr, size: u32) -> Result<Xattr, Errno> {
        let place = self.inodes.require(id)?.place()?;
        let path = place.path();
        if size == 0 {
            let length =
                rustix::fs::getxattr_query(&path, name).map_err(|error| lacks(name, error));
            return Ok(Xattr::Length(length? as u32));
        }
        let mut value = vec![0; size as usize];
        let length = rustix::fs::getxattr(&path, name, &mut value[..]);
        value.truncate(length.map_err(|error| lacks(name, error))?);
        Ok(Xattr::Value(value))
    }

    pub fn do_listxattr(&self, id: u64, size: u32) -> Result<Xattr, Errno> {
        let place = self.inodes.require(id)?.place()?;
        if size == 0 {
            return Ok(Xattr::Length(rustix::fs::listxattr_query(place.path())? as u32));
        }
        let mut names = vec![0; size as usize];
        let length = rustix::fs::listxattr(place.path(), &mut names[..])?;
        names.truncate(length);
        Ok(Xattr::Value(names))
    }
}

pub enum Xattr {
    Length(u32),
    Value(Vec<u8>),
}

/// A backing without access control lists has none: any other error, and the kernel lets nobody
/// in.
fn lacks(name: &OsStr, error: Errno) -> Errno {
    if error == Errno::OPNOTSUPP && is_kernels(name.as_bytes()) {
        Errno::NODATA
    } else {
        error
    }
}

/// As far as it goes.
fn change_owner_and_mode(place: &Place, change: &Change) -> Result<(), Errno> {
    if change.uid.is_some() || change.gid.is_some() {
        let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
        chownat(place, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    match change.mode.map(|mode| Mode::from_raw_mode(mode & 0o7777)) {
        Some(mode) => chmodat(CWD, place.path(), mode, AtFlags::empty()),
        None => Ok(()),
    }
}

fn truncate_path(place: &Place, size: u64) -> Result<(), Errno> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::ftruncate(rustix::fs::open(place.path(), flags, Mode::empty())?, size)
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(rustix::fs::UTIME_OMIT),
        Some(TimeOrNow::Now) => special(rustix::fs::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => from_duration(after),
            // The library takes the nanoseconds off as well, where the kernel adds them.
            Err(before) => {
                let Timespec { tv_sec, tv_nsec } = from_duration(before.duration());
                Timespec { tv_sec: -tv_sec, tv_nsec }
            }
        },
    }
}

fn from_duration(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}
