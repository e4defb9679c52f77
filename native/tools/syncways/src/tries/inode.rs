//! A file marked so that all its writes wait for the disk.

use crate::scratch::{expect_zero, Scratch};
use crate::Failure;

/// `FS_SYNC_FL` of linux/fs.h: what chattr(1) calls S.
const FS_SYNC: libc::c_int = 0x8;

pub fn set_flags(scratch: &mut Scratch) -> Result<(), Failure> {
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

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const GET_ATTRIBUTES: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const SET_ATTRIBUTES: libc::Ioctl = 0x401c_5820;
const FS_XFLAG_SYNC: u32 = 0x20;

/// The same flag in the way that came from XFS.
pub fn set_attributes(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create()?;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel fills the structure, whose size is in the request's number.
    let answer = unsafe { libc::ioctl(scratch.fd()?, GET_ATTRIBUTES, &mut attributes) };
    expect_zero("ioctl(FS_IOC_FSGETXATTR)", answer)?;
    attributes.flags |= FS_XFLAG_SYNC;
    // SAFETY: the kernel reads the structure.
    let answer = unsafe { libc::ioctl(scratch.fd()?, SET_ATTRIBUTES, &attributes) };
    expect_zero("ioctl(FS_IOC_FSSETXATTR)", answer)?;
    scratch.write()
}
