//! Files whose every write waits for the disk.

use crate::scratch::{Scratch, CREATE};
use crate::Failure;
use libc::{c_int, AT_FDCWD, O_DSYNC, O_SYNC};

const MODE: libc::c_uint = 0o600;

pub fn open_sync(scratch: &mut Scratch) -> Result<(), Failure> {
    open(scratch, O_SYNC)
}

pub fn open_dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    open(scratch, O_DSYNC)
}

fn open(scratch: &mut Scratch, flag: c_int) -> Result<(), Failure> {
    // SAFETY: a string that ends with a zero, and a mode as O_CREAT needs it.
    let opened = unsafe { libc::open(scratch.path().as_ptr(), CREATE | flag, MODE) };
    adopt_and_write(scratch, "open", opened)
}

/// What most programs call, though their source says open.
pub fn open64_sync(scratch: &mut Scratch) -> Result<(), Failure> {
    open64(scratch, O_SYNC)
}

pub fn open64_dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    open64(scratch, O_DSYNC)
}

fn open64(scratch: &mut Scratch, flag: c_int) -> Result<(), Failure> {
    // SAFETY: as for `open`.
    let opened = unsafe { libc::open64(scratch.path().as_ptr(), CREATE | flag, MODE) };
    adopt_and_write(scratch, "open64", opened)
}

fn adopt_and_write(
    scratch: &mut Scratch,
    call: &'static str,
    opened: c_int,
) -> Result<(), Failure> {
    scratch.adopt(call, opened)?;
    scratch.write()
}

pub fn openat_sync(scratch: &mut Scratch) -> Result<(), Failure> {
    let (path, flags) = (scratch.path().as_ptr(), CREATE | O_SYNC);
    // SAFETY: a string that ends with a zero, and a mode as O_CREAT needs it.
    let opened = unsafe { libc::openat(AT_FDCWD, path, flags, MODE) };
    adopt_and_write(scratch, "openat", opened)
}

pub fn openat64_sync(scratch: &mut Scratch) -> Result<(), Failure> {
    let (path, flags) = (scratch.path().as_ptr(), CREATE | O_SYNC);
    // SAFETY: as for `openat`.
    let opened = unsafe { libc::openat64(AT_FDCWD, path, flags, MODE) };
    adopt_and_write(scratch, "openat64", opened)
}

/// Older C libraries have no function for it.
pub fn openat2_dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    let how = OpenHow { flags: (CREATE | O_DSYNC) as u64, mode: u64::from(MODE), resolve: 0 };
    let (path, size) = (scratch.path().as_ptr(), size_of::<OpenHow>());
    // SAFETY: a string that ends with a zero; the structure is live and as long as told.
    let opened = unsafe { libc::syscall(libc::SYS_openat2, AT_FDCWD, path, &how, size) };
    adopt_and_write(scratch, "openat2", opened as c_int)
}

/// The kernel's `struct open_how`; the C library's may grow.
#[repr(C)]
pub struct OpenHow {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}
