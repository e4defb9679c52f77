//! What the backing holds when the recording starts.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diskproof_wire::crash_log::{Entry, Header, Operation, ROOT};
use rustix::fs::{
    fstat, fstatfs, openat, readlinkat, statat, AtFlags, Dir, FileType, Mode, OFlags, Stat,
};

use crate::clock;
use crate::inodes::Inodes;
use crate::log::{Asked, Log};

const UNKNOWN_SECTOR: u32 = 512;

/// What the log's header says of the backing.
pub fn read_header(backing: &OwnedFd) -> io::Result<Header> {
    let facts = fstatfs(backing)?;
    let sector = find_disk_fact(fstat(backing)?.st_dev, "physical_block_size");
    Ok(Header {
        sector: sector.unwrap_or(UNKNOWN_SECTOR),
        block: facts.f_bsize as u32,
        file_system: facts.f_type as u64,
        monotonic_ns: clock::monotonic_ns(),
        realtime_ns: clock::realtime_ns(),
    })
}

/// What the kernel tells of a disk, or of the disk that a partition is on: a power of two in bytes.
pub fn find_disk_fact(device: u64, name: &str) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{major}:{minor}");
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = std::fs::read_to_string(format!("{folder}/{queue}/{name}")).ok()?;
        text.trim().parse().ok().filter(|size: &u32| size.is_power_of_two())
    })
}

/// Logs every name in the backing, parents first, names of one directory in order, and gives each
/// file its id.
pub fn log_base(log: &Log, inodes: &Inodes, backing: &OwnedFd) -> io::Result<()> {
    let stat = fstat(backing)?;
    log.append(Asked::now(ROOT), &Operation::Base(entry(&stat, 0, OsStr::new(""), &[])))?;
    // A stack of our own: a deep tree must not exhaust the thread's.
    let mut waiting = vec![(ROOT, Path::new(".").to_owned())];
    while let Some((parent, path)) = waiting.pop() {
        let folder = open_directory(backing, &path)?;
        for name in read_names(&folder)? {
            let found = statat(&folder, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
            if found.st_dev != stat.st_dev {
                let why = format!("{} is on another file system", path.join(&*name).display());
                return Err(io::Error::other(why));
            }
            let id = inodes.add_name(&found, parent, &name);
            let target = read_target(&folder, &name, &found)?;
            let base = Operation::Base(entry(&found, parent, &name, &target));
            log.append(Asked::now(id), &base)?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                waiting.push((id, path.join(&*name)));
            }
        }
    }
    Ok(())
}

/// The log's words for a name and the file it stands for; its size counts in a base only.
pub fn entry<'a>(stat: &Stat, parent: u64, name: &'a OsStr, target: &'a [u8]) -> Entry<'a> {
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Entry {
        parent,
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        size: if regular { stat.st_size as u64 } else { 0 },
        name: Cow::Borrowed(name.as_bytes()),
        target: Cow::Borrowed(target),
    }
}

fn open_directory(backing: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(backing, path, flags, Mode::empty())?)
}

fn read_names(folder: &OwnedFd) -> io::Result<Vec<Box<OsStr>>> {
    let mut names = Vec::new();
    for found in Dir::read_from(folder)? {
        let name = found?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(&name).into());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn read_target(folder: &impl AsFd, name: &OsStr, stat: &Stat) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Ok(Vec::new());
    }
    Ok(readlinkat(folder, name, Vec::new())?.into_bytes())
}
