//! Which page is cached, one by one, from mincore(2) on a mapping that is never touched.

use crate::counts::last_errno;
use crate::{page_size, pages_of, Error};
use rustix::io::Errno;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::AsFd;

/// One bool a page of `bytes`, cut at the end of the file. The file must be open for reading.
///
/// Takes one byte of memory a page: ask for windows of a large file.
pub fn read_map(file: impl AsFd, bytes: Range<u64>) -> Result<Vec<bool>, Error> {
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    let pages = pages_of(&(bytes.start..bytes.end.min(size)));
    if pages.is_empty() {
        return Ok(Vec::new());
    }
    let too_big = Error::Kernel(Errno::FBIG);
    let count = usize::try_from(pages.end - pages.start).map_err(|_| too_big)?;
    let length = count.checked_mul(rustix::param::page_size()).ok_or(too_big)?;
    let mut vector = vec![0_u8; count];
    let offset = pages.start * page_size();
    // SAFETY: a fresh mapping at a place that the kernel chooses; nobody touches it.
    let address = unsafe {
        let (protect, flags) = (ProtFlags::READ, MapFlags::SHARED);
        mmap(std::ptr::null_mut(), length, protect, flags, &file, offset)?
    };
    // SAFETY: the mapping has `length` bytes and the vector one byte for each of its pages.
    let looked = match unsafe { libc::mincore(address, length, vector.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    };
    // SAFETY: the mapping made above, known to nobody else.
    unsafe { munmap(address, length)? };
    looked?;
    Ok(vector.into_iter().map(|page| page & 1 == 1).collect()) // other bits are reserved
}
