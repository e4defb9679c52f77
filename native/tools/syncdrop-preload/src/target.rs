//! Whether a sync of an open file would succeed, found out without syncing.

use diskproof_bare::syscall;

/// What to do with a sync of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It would succeed.
    Drop,
    /// The kernel has an error for it, or nothing to write: let it say so.
    Real,
    /// A write failed earlier, and this is where its error is told.
    Error(i32),
}

/// One cheap call: the descriptor is open for more than its path, and is a file, directory or block
/// device.
///
/// sync_file_range(2) without flags makes these checks and then does nothing.
#[inline(always)]
pub fn is_syncable(fd: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { syscall::call(syscall::SYNC_FILE_RANGE, [fd.into(), 0, 0, 0, 0, 0]) == 0 }
}

const WAIT_BEFORE: i64 = 1;

/// The full check, for a descriptor that passed the cheap one: errors of earlier writes; files of
/// kernel interfaces, which have no fsync.
pub fn examine(fd: i32) -> Verdict {
    let offset = i64::from(crate::page::FAR_AWAY) << 32;
    // SAFETY: no pointers.
    let waited = unsafe {
        syscall::call(syscall::SYNC_FILE_RANGE, [fd.into(), offset, 1, WAIT_BEFORE, 0, 0])
    };
    match waited {
        0 if has_fsync(fd) => Verdict::Drop,
        0 => Verdict::Real,
        // EIO, ENOSPC, EDQUOT: told once, now.
        error if matches!(-error, 5 | 28 | 122) => Verdict::Error(-error as i32),
        _ => Verdict::Real,
    }
}

const REGULAR: u16 = 0o100_000;
const DIRECTORY: u16 = 0o040_000;
const BLOCK_DEVICE: u16 = 0o060_000;

fn has_fsync(fd: i32) -> bool {
    const TYPE_SIZE_BLOCKS: i64 = 0x1 | 0x200 | 0x400;
    syscall::statx(fd, c"", TYPE_SIZE_BLOCKS).is_some_and(|seen| match seen.mode & 0o170_000 {
        BLOCK_DEVICE => true,
        REGULAR | DIRECTORY => {
            seen.device_major != 0 || seen.size != 0 || seen.blocks != 0 || is_storage(fd)
        }
        _ => false,
    })
}

/// File systems without a device of their own that keep files: tmpfs, ramfs, btrfs, overlayfs,
/// FUSE, NFS, SMB (two), Ceph, 9p, ZFS, bcachefs. Numbers from linux/magic.h.
const STORAGE: [u64; 12] = [
    0x0102_1994,
    0x8584_58f6,
    0x9123_683e,
    0x794c_7630,
    0x6573_5546,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x0102_1997,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

/// An empty file on an anonymous device: of one of those, or of /proc and its like, whose files
/// have no fsync.
fn is_storage(fd: i32) -> bool {
    syscall::find_file_system(fd).is_some_and(|kind| STORAGE.contains(&kind))
}
