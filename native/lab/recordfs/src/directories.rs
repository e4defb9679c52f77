//! Requests that list a directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::PoisonError;

use diskproof_wire::crash_log::ROOT;
use fuser::FileType;
use rustix::fs::{openat, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::handles::{Handle, OpenDirectory};
use crate::recorder::Recorder;

/// For what came past the recording; looking it up fails.
const NO_ID: u64 = u64::MAX;

impl Recorder {
    pub fn do_opendir(&self, id: u64) -> Result<u64, Errno> {
        let inode = self.inodes.require(id)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(inode.place()?, ".", flags, Mode::empty())?;
        let open = OpenDirectory { inode, folder, names: Default::default() };
        Ok(self.handles.add(Handle::Directory(open)))
    }

    /// Gives the entries from `offset` on, each with the offset of the next, until `add` says that
    /// it is full. The names are read when the listing starts (again), so that offsets stay true
    /// while names change.
    pub fn do_readdir(
        &self,
        handle: &Handle,
        offset: u64,
        mut add: impl FnMut(u64, u64, FileType, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let Handle::Directory(open) = handle else { return Err(Errno::NOTDIR) };
        let mut names = open.names.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *names = self.read_entries(open)?;
        }
        for (at, (id, kind, name)) in names.iter().enumerate().skip(offset as usize) {
            if add(*id, at as u64 + 1, *kind, name) {
                break;
            }
        }
        Ok(())
    }

    fn read_entries(&self, open: &OpenDirectory) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let _names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let device = open.inode.stat()?.st_dev;
        let mut entries = Vec::new();
        for found in Dir::read_from(&open.folder)? {
            let found = found?;
            let name = OsString::from_vec(found.file_name().to_bytes().to_vec());
            // Above the root is what the mount is in; the kernel knows better.
            let above = open.inode.id == ROOT && name == "..";
            let id = if above { ROOT } else { self.id_of(device, found.ino()) };
            entries.push((id, file_type(found.file_type()), name));
        }
        Ok(entries)
    }

    fn id_of(&self, device: u64, inode: u64) -> u64 {
        self.inodes.find_id((device, inode)).unwrap_or(NO_ID)
    }
}

fn file_type(kind: rustix::fs::FileType) -> FileType {
    crate::recorder::kind(kind.as_raw_mode())
}
