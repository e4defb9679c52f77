//! Whether a sync of an open file would succeed, found out without syncing.

use crate::raw;

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

/// One cheap call: the descriptor is open for more than its path, and is a file, directory or block device.
///
/// sync_file_range(2) without flags makes these checks and then does nothing.
#[inline(always)]
pub fn is_syncable(fd: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { raw::call(raw::SYNC_FILE_RANGE, [fd.into(), 0, 0, 0, 0, 0]) == 0 }
}

const WAIT_BEFORE: i64 = 1;

/// The full check, for a descriptor that passed the cheap one: errors of earlier writes; files of kernel interfaces,
/// which have no fsync.
pub fn examine(fd: i32) -> Verdict {
    let offset = i64::from(crate::page::FAR_AWAY) << 32;
    // SAFETY: no pointers.
    let waited =
        unsafe { raw::call(raw::SYNC_FILE_RANGE, [fd.into(), offset, 1, WAIT_BEFORE, 0, 0]) };
    match waited {
        0 if has_fsync(fd) => Verdict::Drop,
        0 => Verdict::Real,
        // EIO, ENOSPC, EDQUOT: told once, now.
        error if matches!(-error, 5 | 28 | 122) => Verdict::Error(-error as i32),
        _ => Verdict::Real,
    }
}

/// The part of `struct statx` that is looked at, at its place.
#[repr(C)]
struct Statx {
    head: [u32; 7],
    mode: u16,
    spare: u16,
    inode: u64,
    size: u64,
    blocks: u64,
    rest: [u32; 20],
    device_major: u32,
    tail: [u32; 29],
}
const _: () = assert!(size_of::<Statx>() == 256);
const _: () = assert!(core::mem::offset_of!(Statx, device_major) == 136);

const AT_EMPTY_PATH: i64 = 0x1000;
const AT_STATX_DONT_SYNC: i64 = 0x4000;
const TYPE_SIZE_BLOCKS: i64 = 0x1 | 0x200 | 0x400;
const REGULAR: u16 = 0o100_000;
const DIRECTORY: u16 = 0o040_000;
const BLOCK_DEVICE: u16 = 0o060_000;

fn has_fsync(fd: i32) -> bool {
    // SAFETY: all-zero is a valid value of plain numbers.
    let mut seen: Statx = unsafe { core::mem::zeroed() };
    let place = (&raw mut seen) as i64;
    let flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    let path = c"".as_ptr() as i64;
    // SAFETY: the structure has the kernel's size.
    if unsafe { raw::call(raw::STATX, [fd.into(), path, flags, TYPE_SIZE_BLOCKS, place, 0]) } != 0 {
        return false;
    }
    match seen.mode & 0o170_000 {
        BLOCK_DEVICE => true,
        REGULAR | DIRECTORY => {
            seen.device_major != 0 || seen.size != 0 || seen.blocks != 0 || is_storage(fd)
        }
        _ => false,
    }
}

/// File systems without a device of their own that keep files: tmpfs, ramfs, btrfs, overlayfs, FUSE, NFS, SMB (two), Ceph,
/// 9p, ZFS, bcachefs. Numbers from linux/magic.h.
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

/// An empty file on an anonymous device: of one of those, or of /proc and its like, whose files have no fsync.
fn is_storage(fd: i32) -> bool {
    let mut seen = [0_u64; 15];
    // SAFETY: struct statfs has 120 bytes here, the first word of which is the type.
    let failed =
        unsafe { raw::call(raw::FSTATFS, [fd.into(), seen.as_mut_ptr() as i64, 0, 0, 0, 0]) } != 0;
    !failed && STORAGE.contains(&(seen[0] & 0xffff_ffff))
}
