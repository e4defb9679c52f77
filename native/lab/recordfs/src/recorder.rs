//! What all requests share.

use std::sync::mpsc::Sender;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::Stat;

use crate::acks::AckFile;
use crate::crew::Crew;
use crate::handles::Handles;
use crate::inodes::Inodes;
use crate::log::Log;
use crate::Ended;

/// Nothing changes but through the kernel that is told, so it may believe its caches.
pub const TTL: Duration = Duration::from_secs(3600);

pub struct Recorder {
    pub log: Arc<Log>,
    pub inodes: Inodes,
    pub handles: Handles,
    pub crew: Arc<Crew>,
    /// Held for writing while names change, so that the log has them in their order.
    pub names: RwLock<()>,
    pub acks: AckFile,
    /// All files are open for direct I/O; the kernel can map them shared nevertheless.
    pub direct: bool,
    /// Is told when there are no requests any more.
    pub ended: Sender<Ended>,
    /// Files get the owner that the request names; needs root.
    pub gives_owners: bool,
}

impl Recorder {
    pub fn new(
        log: Arc<Log>,
        inodes: Inodes,
        crew: Crew,
        direct: bool,
        ended: Sender<Ended>,
    ) -> Recorder {
        Recorder {
            acks: AckFile::new(log.clone()),
            log,
            inodes,
            handles: Handles::default(),
            crew: Arc::new(crew),
            names: RwLock::new(()),
            direct,
            ended,
            gives_owners: rustix::process::geteuid().is_root(),
        }
    }
}

/// The kernel's view of a file of the backing.
pub fn attributes(id: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(id),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: std::time::UNIX_EPOCH,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

pub fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanoseconds: u64) -> std::time::SystemTime {
    let epoch = std::time::UNIX_EPOCH;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 { epoch - whole } else { epoch + whole };
    start + Duration::from_nanos(nanoseconds)
}
