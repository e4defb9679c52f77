//! Calls that sync what was written before.

use crate::scratch::{expect_zero, Scratch, LENGTH};
use crate::Failure;
use libc::c_int;

pub fn none(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()
}

pub fn fsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a call without pointers.
    expect_zero("fsync", unsafe { libc::fsync(scratch.fd()?) })
}

pub fn fdatasync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a call without pointers.
    expect_zero("fdatasync", unsafe { libc::fdatasync(scratch.fd()?) })
}

pub fn sync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a call without arguments.
    unsafe { libc::sync() };
    Ok(())
}

pub fn syncfs(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a call without pointers.
    expect_zero("syncfs", unsafe { libc::syncfs(scratch.fd()?) })
}

pub fn sync_file_range(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a call without pointers.
    let answer =
        unsafe { libc::sync_file_range(scratch.fd()?, 0, LENGTH as libc::off64_t, RANGE_FLAGS) };
    expect_zero("sync_file_range", answer)
}

/// Write all of it, and wait until it is written.
pub const RANGE_FLAGS: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// Dirties the pages through the mapping itself.
pub fn msync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create()?;
    let fd = scratch.fd()?;
    // SAFETY: a call without pointers.
    expect_zero("ftruncate", unsafe { libc::ftruncate(fd, LENGTH as libc::off_t) })?;
    let protect = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at a place that the kernel chooses.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protect, libc::MAP_SHARED, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(Failure::last("mmap"));
    }
    // SAFETY: the mapping has LENGTH bytes that may be written.
    unsafe { std::ptr::write_bytes(address.cast::<u8>(), b'x', LENGTH) };
    scratch.note_before()?;
    // SAFETY: the mapping made above.
    let answer = unsafe { libc::msync(address, LENGTH, libc::MS_SYNC) };
    let synced = expect_zero("msync", answer);
    // SAFETY: the mapping made above, which nobody uses any more.
    expect_zero("munmap", unsafe { libc::munmap(address, LENGTH) })?;
    synced
}

pub fn syscall_fsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a call without pointers.
    let answer = unsafe { libc::syscall(libc::SYS_fsync, scratch.fd()?) };
    expect_zero("syscall(SYS_fsync)", answer as c_int)
}

pub fn instruction_fsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    match raw_fsync(scratch.fd()?) {
        0 => Ok(()),
        answer => Err(Failure { call: "fsync", errno: -answer as c_int }),
    }
}

#[cfg(target_arch = "x86_64")]
fn raw_fsync(fd: c_int) -> i64 {
    let answer: i64;
    // SAFETY: fsync takes no pointers; the instruction changes rax, rcx and r11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_fsync => answer,
            in("rdi") i64::from(fd),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(target_arch = "aarch64")]
fn raw_fsync(fd: c_int) -> i64 {
    let answer: i64;
    // SAFETY: fsync takes no pointers; the instruction changes x0 only.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_fsync,
            inlateout("x0") i64::from(fd) => answer,
            options(nostack),
        );
    }
    answer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn raw_fsync(_: c_int) -> i64 {
    -i64::from(libc::ENOSYS)
}
