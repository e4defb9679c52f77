//! System calls without a C library.

use core::arch::asm;

use crate::page::MARK;

pub const RWF_SYNC_OR_DSYNC: i32 = 6;
pub const MS_SYNC: i32 = 4;

pub const OPEN: i64 = 2;
pub const CLOSE: i64 = 3;
pub const LSEEK: i64 = 8;
pub const MMAP: i64 = 9;
pub const MUNMAP: i64 = 11;
pub const MSYNC: i64 = 26;
pub const MADVISE: i64 = 28;
pub const GETPID: i64 = 39;
pub const FSYNC: i64 = 74;
pub const FDATASYNC: i64 = 75;
pub const READLINK: i64 = 89;
pub const PRCTL: i64 = 157;
pub const SYNC: i64 = 162;
pub const GETTID: i64 = 186;
pub const CLOCK_GETTIME: i64 = 228;
pub const SYNC_FILE_RANGE: i64 = 277;
pub const SYNCFS: i64 = 306;
pub const PWRITEV2: i64 = 328;
pub const STATX: i64 = 332;

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

/// The same with the mark, which does not stay behind for a call that is not ours.
///
/// # Safety
/// As `call`; the fifth argument is not looked at.
#[inline(always)]
pub unsafe fn call_marked(number: i64, mut arguments: [i64; 6]) -> i64 {
    arguments[4] = MARK as i64;
    // SAFETY: as above.
    unsafe { system_call!(number, arguments, "syscall\n xor r8d, r8d") }
}
