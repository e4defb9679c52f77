//! Commits of the file system that flush no file of the program.

use rustix::fs::{fchmod, fstatfs, fsync, openat, Mode, OFlags, CWD};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

// linux/magic.h, linux/btrfs.h
const BTRFS: i64 = 0x9123_683e;
const START_SYNC: libc::c_ulong = 0x8008_9418;
const WAIT_SYNC: libc::c_ulong = 0x4008_9416;

/// Somebody's file beside the program's, whose mode changes.
pub struct Beside {
    file: OwnedFd,
    is_btrfs: bool,
    is_open: bool,
}

impl Beside {
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Beside> {
        let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let is_btrfs = fstatfs(&file)?.f_type as i64 == BTRFS;
        Ok(Beside { file, is_btrfs, is_open: false })
    }

    /// ext4 and XFS have one journal: a flush of the file is a commit of all metadata. btrfs'
    /// flush is the file's alone; the kernel's own commit, which takes no data along, can be asked
    /// for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn commit(&mut self) -> io::Result<()> {
        self.is_open = !self.is_open;
        let mode = if self.is_open { Mode::RUSR | Mode::RGRP } else { Mode::RUSR };
        fchmod(&self.file, mode)?;
        if !self.is_btrfs {
            return Ok(fsync(&self.file)?);
        }
        let mut transaction = 0_u64;
        self.ask(START_SYNC, &mut transaction)?;
        self.ask(WAIT_SYNC, &mut transaction)
    }

    fn ask(&self, what: libc::c_ulong, transaction: &mut u64) -> io::Result<()> {
        // SAFETY: both calls read or write one 64-bit number.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), what, &raw mut *transaction) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
