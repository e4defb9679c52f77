//! The files of a folder, and their writeback without a flush.

use diskproof_random::Random;
use rustix::fs::{fstat, openat, Dir, FileType, Mode, OFlags, Stat, CWD};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

const PAGE: u64 = 4096;
/// Not followed, nor an access that would be noted in the file system.
const LOOK: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NOATIME).union(OFlags::NONBLOCK);
const DEEPEST: usize = 64;
/// For 16 to 256 operations of the program a file is written back, or not at all.
const SHORTEST: u64 = 16;
const DOUBLED: u64 = 5;
const FEW: usize = 2;

/// When a file changed last, and its size.
type Stamp = (i64, i64, i64);

pub struct Files {
    seed: u64,
    random: Random,
    folder: OwnedFd,
    /// What is on the disk already, by inode.
    written: HashMap<u64, Stamp>,
    /// All that have ever changed, by inode.
    changed: HashSet<u64>,
}

impl Files {
    /// All that is there counts as written.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn new(folder: &Path, seed: u64) -> io::Result<Files> {
        let folder = openat(CWD, folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let random = Random::of_stream(seed, 1);
        let mut files =
            Files { seed, random, folder, written: HashMap::new(), changed: HashSet::new() };
        let mut written = HashMap::new();
        files.each(&mut |_, stat| {
            written.insert(stat.st_ino, stamp(stat));
        });
        files.written = written;
        Ok(files)
    }

    /// Some of what has changed: whole or its front, as writeback goes. Half of the files stay in
    /// the page cache, as those of the last seconds do, some for few operations and some for many.
    pub fn write_back(&mut self, operations: u64) {
        let mut found = Vec::new();
        self.each(&mut |file, stat| {
            let is_new = self.written.get(&stat.st_ino) != Some(&stamp(stat));
            if let (true, Ok(file)) = (is_new, file.try_clone_to_owned()) {
                found.push((stat.st_ino, stamp(stat), file));
            }
        });
        self.changed.extend(found.iter().map(|(inode, ..)| *inode));
        // A database of one file would be there whole or not at all.
        if self.changed.len() > FEW {
            found.retain(|(inode, ..)| self.is_early(*inode, operations));
        }
        found.sort_by_key(|(inode, ..)| *inode);
        for (inode, stamp, file) in found {
            let pages = (stamp.2.max(1) as u64).div_ceil(PAGE);
            let some = if self.random.below(2) == 0 { pages } else { 1 + self.random.below(pages) };
            start_writeback(&file, some * PAGE);
            if some == pages {
                self.written.insert(inode, stamp);
            }
        }
    }

    fn is_early(&self, inode: u64, operations: u64) -> bool {
        let doubled = Random::of_stream(self.seed, inode).below(DOUBLED);
        Random::new(&[self.seed, inode, operations / (SHORTEST << doubled)]).below(2) == 0
    }

    fn each(&self, look: &mut dyn FnMut(BorrowedFd, &Stat)) {
        each_below(self.folder.as_fd(), c".", DEEPEST, look);
    }
}

/// What goes away meanwhile, or cannot be opened, is left out.
fn each_below(
    folder: BorrowedFd,
    name: &CStr,
    depth: usize,
    look: &mut dyn FnMut(BorrowedFd, &Stat),
) {
    let Ok(inside) = openat(folder, name, LOOK | OFlags::DIRECTORY, Mode::empty()) else { return };
    let Ok(entries) = Dir::read_from(&inside) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        match entry.file_type() {
            FileType::Directory if depth > 0 && !matches!(name.to_bytes(), b"." | b"..") => {
                each_below(inside.as_fd(), name, depth - 1, look);
            }
            FileType::RegularFile => {
                let Ok(file) = openat(&inside, name, LOOK, Mode::empty()) else { continue };
                if let Ok(stat) = fstat(&file) {
                    look(file.as_fd(), &stat);
                }
            }
            _ => {}
        }
    }
}

fn stamp(stat: &Stat) -> Stamp {
    (stat.st_mtime, stat.st_mtime_nsec as i64, stat.st_size)
}

/// The front of a file is on its way to the disk, and there, in the disk's cache, when this
/// returns. sync_file_range(2): neither metadata nor that cache are flushed.
fn start_writeback(file: &OwnedFd, bytes: u64) {
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: plain numbers. What it refuses is a file without pages.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, bytes as i64, flags) };
}
