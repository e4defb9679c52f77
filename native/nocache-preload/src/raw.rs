//! System calls without a C library.

use core::arch::asm;

pub const READ: i64 = 0;
pub const CLOSE: i64 = 3;
pub const FSTAT: i64 = 5;
pub const LSEEK: i64 = 8;
pub const PREAD: i64 = 17;
pub const DUP2: i64 = 33;
pub const SENDFILE: i64 = 40;
pub const FSTATFS: i64 = 138;
pub const FADVISE64: i64 = 221;
pub const DUP3: i64 = 292;
pub const COPY_FILE_RANGE: i64 = 326;
pub const CACHESTAT: i64 = 451;

pub const SEEK_CUR: i64 = 1;
pub const DONTNEED: i64 = 4;

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
