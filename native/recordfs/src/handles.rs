//! Open files and directories of the backing.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use diskproof_wire::LineSplitter;
use fuser::FileType;
use rustix::fs::{open, Mode, OFlags};
use rustix::io::Errno;

use crate::inodes::Inode;

/// What a handle stands for.
pub enum Handle {
    File(OpenFile),
    Directory(OpenDirectory),
    Acknowledgements(Mutex<LineSplitter>),
}

/// A file as it was opened. The backing is open once without and, when asked for, once with O_DIRECT, since
/// fcntl(2) may change that and pages of a shared mapping come without alignment.
pub struct OpenFile {
    pub inode: Arc<Inode>,
    mode: OFlags,
    buffered: OnceLock<File>,
    direct: OnceLock<File>,
}

pub struct OpenDirectory {
    pub inode: Arc<Inode>,
    pub folder: OwnedFd,
    pub names: Mutex<Vec<(u64, FileType, OsString)>>,
}

impl OpenFile {
    /// Opens the backing at once, so that what it refuses is refused to the caller.
    pub fn open(inode: Arc<Inode>, flags: i32) -> Result<OpenFile, Errno> {
        let flags = OFlags::from_bits_retain(flags as u32);
        let mode = flags & OFlags::RWMODE;
        let file = OpenFile { inode, mode, buffered: OnceLock::new(), direct: OnceLock::new() };
        file.backing(flags.contains(OFlags::DIRECT))?;
        Ok(file)
    }

    /// A file just created and open for reading and writing, without O_DIRECT.
    pub fn created(inode: Arc<Inode>, file: File, flags: i32) -> Result<OpenFile, Errno> {
        let mode = OFlags::RDWR;
        let open = OpenFile { inode, mode, buffered: file.into(), direct: OnceLock::new() };
        open.backing(OFlags::from_bits_retain(flags as u32).contains(OFlags::DIRECT))?;
        Ok(open)
    }

    pub fn backing(&self, direct: bool) -> Result<&File, Errno> {
        let slot = if direct { &self.direct } else { &self.buffered };
        if let Some(file) = slot.get() {
            return Ok(file);
        }
        let wanted = if direct { self.mode | OFlags::DIRECT } else { self.mode };
        let opened = open(self.inode.path(), wanted | OFlags::CLOEXEC, Mode::empty())?;
        Ok(slot.get_or_init(|| opened.into()))
    }

    /// Whichever is open.
    pub fn any(&self) -> Result<&File, Errno> {
        self.buffered.get().or(self.direct.get()).map_or_else(|| self.backing(false), Ok)
    }
}

#[derive(Default)]
pub struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    pub fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap().insert(number, Arc::new(handle));
        number
    }

    pub fn require(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.open.read().unwrap().get(&number).cloned().ok_or(Errno::BADF)
    }

    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.write().unwrap().remove(&number)
    }
}
