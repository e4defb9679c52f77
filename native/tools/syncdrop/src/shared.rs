//! The page of counts, in memory that the command's processes can map.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, MapFlags, ProtFlags};

use crate::page::{Page, TOGGLE_SIZE, VERSION};

pub struct Shared {
    pub fd: OwnedFd,
    pub page: &'static Page,
}

/// What the page holds before anybody counts.
pub struct Start<'a> {
    pub after: i64,
    pub direct: bool,
    pub strict: bool,
    /// No filter: the library itself looks at this file.
    pub alone: Option<Option<&'a Path>>,
}

impl Shared {
    /// # Errors
    /// No memory; a toggle file's path too long to share.
    pub fn new(start: &Start) -> io::Result<Shared> {
        let fd = memfd_create(c"diskproof-sync-drop", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, size_of::<Page>() as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping as long as its file, never taken away; all-zero is a valid page.
        let page = unsafe {
            let place = mmap(null_mut(), size_of::<Page>(), access, MapFlags::SHARED, &fd, 0)?;
            let page = place.cast::<Page>();
            if let Some(Some(toggle)) = start.alone {
                let path = toggle.as_os_str().as_bytes();
                if path.len() >= TOGGLE_SIZE {
                    return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
                }
                (&mut (*page).toggle)[..path.len()].copy_from_slice(path);
            }
            &*page
        };
        page.after.store(start.after, Relaxed);
        page.alone.store(u32::from(start.alone.is_some()), Relaxed);
        page.direct.store(u32::from(start.direct), Relaxed);
        page.strict.store(u32::from(start.strict), Relaxed);
        page.version.store(VERSION, Relaxed);
        Ok(Shared { fd, page })
    }
}
