//! System calls without a C library.

use core::arch::asm;

pub const PWRITE_FLAGS: i32 = RWF_DSYNC | RWF_SYNC;
pub const RWF_DSYNC: i32 = 2;
pub const RWF_SYNC: i32 = 4;
/// O_SYNC holds the bit of O_DSYNC.
pub const OPEN_FLAGS: i32 = 0o4_010_000;
pub const MS_ASYNC: i32 = 1;
pub const MS_SYNC: i32 = 4;

pub const OPEN: i64 = 2;
pub const CLOSE: i64 = 3;
pub const MMAP: i64 = 9;
pub const MUNMAP: i64 = 11;
pub const IOCTL: i64 = 16;
pub const ACCESS: i64 = 21;
pub const MSYNC: i64 = 26;
pub const DUP2: i64 = 33;
pub const GETPID: i64 = 39;
pub const FCNTL: i64 = 72;
pub const FSYNC: i64 = 74;
pub const FDATASYNC: i64 = 75;
pub const FSTATFS: i64 = 138;
pub const SYNC: i64 = 162;
pub const IO_SUBMIT: i64 = 209;
pub const OPENAT: i64 = 257;
pub const SYNC_FILE_RANGE: i64 = 277;
pub const DUP3: i64 = 292;
pub const SYNCFS: i64 = 306;
pub const PROCESS_VM_READV: i64 = 310;
pub const PWRITEV2: i64 = 328;
pub const STATX: i64 = 332;
pub const CLOSE_RANGE: i64 = 436;
pub const OPENAT2: i64 = 437;

/// The kernel's answer: a value, or an error number made negative.
///
/// # Safety
/// The arguments are what that call may be given.
#[inline(always)]
pub unsafe fn call(number: i64, arguments: [i64; 6]) -> i64 {
    let value;
    // SAFETY: the caller's promise; the kernel clobbers rcx, r11 and what the arguments point to.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => value,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    value
}

/// Copy what a caller's pointer names, without a fault where it names nothing: that is the kernel's to tell.
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
