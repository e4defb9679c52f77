//! Single writes that wait for the disk.

use crate::scratch::{expect_length, Scratch, LENGTH};
use crate::Failure;
use libc::{c_int, RWF_DSYNC, RWF_SYNC};

pub fn dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    pwritev2(scratch, RWF_DSYNC)
}

pub fn sync(scratch: &mut Scratch) -> Result<(), Failure> {
    pwritev2(scratch, RWF_SYNC)
}

fn pwritev2(scratch: &mut Scratch, flags: c_int) -> Result<(), Failure> {
    scratch.create()?;
    let mut bytes = [b'x'; LENGTH];
    let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LENGTH };
    // SAFETY: one part, which points to a buffer of LENGTH bytes.
    let written = unsafe { libc::pwritev2(scratch.fd()?, &part, 1, 0, flags) };
    expect_length("pwritev2", written)
}
