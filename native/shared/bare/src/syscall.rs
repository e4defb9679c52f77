//! System calls, by number and by six arguments.

use core::arch::asm;

pub const READ: i64 = 0;
pub const OPEN: i64 = 2;
pub const CLOSE: i64 = 3;
pub const FSTAT: i64 = 5;
pub const LSEEK: i64 = 8;
pub const MMAP: i64 = 9;
pub const MUNMAP: i64 = 11;
pub const IOCTL: i64 = 16;
pub const PREAD: i64 = 17;
pub const ACCESS: i64 = 21;
pub const MSYNC: i64 = 26;
pub const MADVISE: i64 = 28;
pub const DUP2: i64 = 33;
pub const GETPID: i64 = 39;
pub const SENDFILE: i64 = 40;
pub const SENDMSG: i64 = 46;
pub const FCNTL: i64 = 72;
pub const FSYNC: i64 = 74;
pub const FDATASYNC: i64 = 75;
pub const READLINK: i64 = 89;
pub const FSTATFS: i64 = 138;
pub const PRCTL: i64 = 157;
pub const SYNC: i64 = 162;
pub const GETTID: i64 = 186;
pub const IO_SUBMIT: i64 = 209;
pub const FADVISE64: i64 = 221;
pub const CLOCK_GETTIME: i64 = 228;
pub const OPENAT: i64 = 257;
pub const SYNC_FILE_RANGE: i64 = 277;
pub const DUP3: i64 = 292;
pub const SYNCFS: i64 = 306;
pub const PROCESS_VM_READV: i64 = 310;
pub const COPY_FILE_RANGE: i64 = 326;
pub const PWRITEV2: i64 = 328;
pub const STATX: i64 = 332;
pub const OPEN_TREE: i64 = 428;
pub const CLOSE_RANGE: i64 = 436;
pub const OPENAT2: i64 = 437;
pub const CACHESTAT: i64 = 451;

pub const AT_FDCWD: i32 = -100;
pub const MS_ASYNC: i32 = 1;
pub const MS_SYNC: i32 = 4;
/// RWF_DSYNC and RWF_SYNC.
pub const RWF_SYNCS: i32 = 2 | 4;
/// O_SYNC, which holds the bit of O_DSYNC.
pub const O_SYNCS: i32 = 0o4_010_000;

macro_rules! system_call {
    ($number:expr, $arguments:expr, $code:literal) => {{
        let value;
        asm!(
            $code,
            inlateout("rax") $number => value,
            in("rdi") $arguments[0],
            in("rsi") $arguments[1],
            in("rdx") $arguments[2],
            in("r10") $arguments[3],
            inlateout("r8") $arguments[4] => _,
            in("r9") $arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
        value
    }};
}

/// The kernel's answer: a value, or an error number made negative.
///
/// # Safety
/// The arguments are what that call may be given.
#[inline(always)]
pub unsafe fn call(number: i64, arguments: [i64; 6]) -> i64 {
    // SAFETY: the caller's promise; the kernel clobbers rcx, r11 and what the arguments point to.
    unsafe { system_call!(number, arguments, "syscall") }
}

/// The same with a mark as fifth argument, which does not stay behind for a call that is not ours.
///
/// # Safety
/// As `call`; the fifth argument is not looked at.
#[inline(always)]
pub unsafe fn call_marked(number: i64, mut arguments: [i64; 6], mark: u64) -> i64 {
    arguments[4] = mark as i64;
    // SAFETY: as above.
    unsafe { system_call!(number, arguments, "syscall\n xor r8d, r8d") }
}

/// Copies what a caller's pointer names, without a fault where it names nothing: that is the
/// kernel's to tell.
pub fn read_own(address: u64, bytes: &mut [u8]) -> bool {
    let length = bytes.len() as u64;
    let (ours, theirs) = ([bytes.as_mut_ptr() as u64, length], [address, length]);
    // SAFETY: one vector each; the kernel writes at most the buffer's length into it.
    unsafe {
        let us = call(GETPID, [0; 6]);
        let (to, from) = (ours.as_ptr() as i64, theirs.as_ptr() as i64);
        call(PROCESS_VM_READV, [us, to, 1, from, 1, 0]) == bytes.len() as i64
    }
}

/// `struct statx`, as far as anybody looks at it, at its place.
#[repr(C)]
pub struct Statx {
    head: [u32; 7],
    pub mode: u16,
    spare: u16,
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    middle: [u32; 6],
    /// Seconds; nanoseconds in the lower half.
    pub born: [u64; 2],
    rest: [u32; 10],
    pub device_major: u32,
    pub device_minor: u32,
    tail: [u32; 28],
}
const _: () = assert!(size_of::<Statx>() == 256);
const _: () = assert!(core::mem::offset_of!(Statx, inode) == 32);
const _: () = assert!(core::mem::offset_of!(Statx, born) == 80);
const _: () = assert!(core::mem::offset_of!(Statx, device_major) == 136);

/// What the mask asks for of a path, or of the folder itself where the path is empty.
pub fn statx(folder: i32, path: &core::ffi::CStr, mask: i64) -> Option<Statx> {
    const AT_EMPTY_PATH: i64 = 0x1000;
    const AT_STATX_DONT_SYNC: i64 = 0x4000;
    // SAFETY: all-zero is a valid value of plain numbers.
    let mut seen: Statx = unsafe { core::mem::zeroed() };
    let (path, place) = (path.as_ptr() as i64, (&raw mut seen) as i64);
    let words = [folder.into(), path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, mask, place, 0];
    // SAFETY: the structure has the kernel's size.
    (unsafe { call(STATX, words) } == 0).then_some(seen)
}

/// The number of linux/magic.h.
pub fn find_file_system(fd: i32) -> Option<u64> {
    let mut seen = [0_u64; 15];
    let words = [fd.into(), seen.as_mut_ptr() as i64, 0, 0, 0, 0];
    // SAFETY: struct statfs has 120 bytes here, the first word of which is the type.
    (unsafe { call(FSTATFS, words) } == 0).then_some(seen[0] & 0xffff_ffff)
}
