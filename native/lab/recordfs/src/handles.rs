//! Open files and directories of the backing.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use diskproof_wire::LineSplitter;
use fuser::FileType;
use rustix::fs::{fcntl_setfl, fstat, open, statx, AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::base;
use crate::inodes::Inode;

/// What a handle stands for.
pub enum Handle {
    File(Arc<OpenFile>),
    Directory(OpenDirectory),
    Acknowledgements(Mutex<LineSplitter>),
}

/// A file as it was opened. The backing is written through the host's page cache even when the
/// caller has O_DIRECT: what counts is in the log, and a flush still reaches the disk. What
/// O_DIRECT refuses is refused all the same.
pub struct OpenFile {
    pub inode: Arc<Inode>,
    pub backing: File,
    alignment: OnceLock<u64>,
}

pub struct OpenDirectory {
    pub inode: Arc<Inode>,
    pub folder: OwnedFd,
    pub names: Mutex<Vec<(u64, FileType, OsString)>>,
}

impl OpenFile {
    pub fn open(inode: Arc<Inode>, flags: i32) -> Result<OpenFile, Errno> {
        let access = OFlags::from_bits_retain(flags as u32) & OFlags::RWMODE;
        let backing = open(inode.place()?.path(), access | OFlags::CLOEXEC, Mode::empty())?;
        OpenFile::new(inode, backing, flags)
    }

    /// EINVAL when O_DIRECT is wanted where the backing has none.
    pub fn new(inode: Arc<Inode>, backing: OwnedFd, flags: i32) -> Result<OpenFile, Errno> {
        if flags & libc::O_DIRECT != 0 {
            fcntl_setfl(&backing, OFlags::DIRECT)?;
            fcntl_setfl(&backing, OFlags::empty())?;
        }
        Ok(OpenFile { inode, backing: backing.into(), alignment: OnceLock::new() })
    }

    /// EINVAL where the backing's O_DIRECT would say so; where the caller's memory is aligned is
    /// not seen here.
    pub fn check_direct(&self, offset: u64, length: usize) -> Result<(), Errno> {
        let alignment = *self.alignment.get_or_init(|| find_alignment(&self.backing));
        if (offset | length as u64) % alignment == 0 {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }
}

/// Offsets that O_DIRECT takes. Kernels before 6.1 do not tell; then it is the disk's logical
/// block.
fn find_alignment(file: &File) -> u64 {
    let wanted = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let told = statx(file, "", AtFlags::EMPTY_PATH, wanted).ok().filter(|told| {
        told.stx_mask & libc::STATX_DIOALIGN != 0 && told.stx_dio_offset_align.is_power_of_two()
    });
    let disk = || {
        let device = fstat(file).ok()?.st_dev;
        base::find_disk_fact(device, "logical_block_size")
    };
    told.map(|told| told.stx_dio_offset_align).or_else(disk).unwrap_or(512).into()
}

#[derive(Default)]
pub struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    pub fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    pub fn require(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&number)
            .cloned()
            .ok_or(Errno::BADF)
    }

    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }
}
