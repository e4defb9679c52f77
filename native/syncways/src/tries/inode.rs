//! A file marked so that all its writes wait for the disk.

use crate::scratch::{expect_zero, Scratch};
use crate::Failure;

/// `FS_SYNC_FL` of linux/fs.h: what chattr(1) calls S.
const FS_SYNC: libc::c_int = 0x8;

pub fn chattr_sync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create()?;
    let mut flags: libc::c_int = 0;
    // SAFETY: the kernel writes an int, though the request's number says long.
    let answer = unsafe { libc::ioctl(scratch.fd()?, libc::FS_IOC_GETFLAGS, &mut flags) };
    expect_zero("ioctl(FS_IOC_GETFLAGS)", answer)?;
    flags |= FS_SYNC;
    // SAFETY: the kernel reads an int.
    let answer = unsafe { libc::ioctl(scratch.fd()?, libc::FS_IOC_SETFLAGS, &flags) };
    expect_zero("ioctl(FS_IOC_SETFLAGS)", answer)?;
    scratch.write()
}
