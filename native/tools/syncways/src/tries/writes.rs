//! Single writes that wait for the disk.

use crate::scratch::{expect_length, Scratch, LENGTH};
use crate::Failure;
use libc::{c_int, iovec, off_t, ssize_t, RWF_DSYNC, RWF_SYNC};

type Pwritev2 = unsafe extern "C" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;

pub fn dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    write(scratch, libc::pwritev2, RWF_DSYNC)
}

pub fn sync(scratch: &mut Scratch) -> Result<(), Failure> {
    write(scratch, libc::pwritev2, RWF_SYNC)
}

/// What programs with large files call, though their source says pwritev2.
pub fn dsync64(scratch: &mut Scratch) -> Result<(), Failure> {
    write(scratch, libc::pwritev64v2, RWF_DSYNC)
}

pub fn sync64(scratch: &mut Scratch) -> Result<(), Failure> {
    write(scratch, libc::pwritev64v2, RWF_SYNC)
}

fn write(scratch: &mut Scratch, pwritev2: Pwritev2, flags: c_int) -> Result<(), Failure> {
    scratch.create()?;
    let mut bytes = [b'x'; LENGTH];
    let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LENGTH };
    // SAFETY: one part, which points to a buffer of LENGTH bytes.
    let written = unsafe { pwritev2(scratch.fd()?, &part, 1, 0, flags) };
    expect_length("pwritev2", written)
}
