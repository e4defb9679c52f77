//! How the mount and its files are opened, towards the kernel and in the log.

use std::io;
use std::sync::Arc;

use diskproof_wire::crash_log::{Operation, MAX_DATA};
use fuser::{FopenFlags, InitFlags, KernelConfig};
use rustix::io::Errno;

use crate::handles::{Handle, OpenFile};
use crate::log::Asked;
use crate::recorder::Recorder;

/// Requests that the kernel may have under way on its own account, such as asynchronous direct I/O.
const MAX_BACKGROUND: u16 = 256;

impl Recorder {
    /// What this kernel can do and what we ask of it.
    pub fn negotiate(&mut self, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Without it the kernel asks for security.capability before every single write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            // The kernel obeys access control lists, and leaves the umask to us: it does not count
            // where a directory has a list for what is made in it.
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
        ];
        for flag in wanted {
            // An older kernel works as well, only slower.
            let _ = config.add_capabilities(flag);
        }
        let maps = InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.direct && config.add_capabilities(maps).is_err() {
            self.direct = false;
        }
        self.log.note(if self.direct {
            "files are open for direct I/O"
        } else {
            "files opened without O_DIRECT pass through the kernel's page cache"
        })?;
        let accepted = config.set_max_write(MAX_DATA as u32).is_ok()
            && config.set_max_background(MAX_BACKGROUND).is_ok();
        accepted.then_some(()).ok_or_else(|| io::Error::other("the kernel's limits are too low"))
    }

    pub fn log_open(&self, file: OpenFile, flags: i32) -> Result<u64, Errno> {
        let asked = Asked::now(file.inode.id);
        let handle = self.handles.add(Handle::File(Arc::new(file)));
        let opened = Operation::Open { handle, flags: flags as u32 };
        // Reading goes on when the log has ended.
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            self.log.append(asked, &opened).inspect_err(|_| drop(self.handles.remove(handle)))?;
        } else {
            let _ = self.log.append(asked, &opened);
        }
        Ok(handle)
    }

    /// Direct I/O sends every request as it was made. A kernel that cannot map such files shared
    /// gets its page cache for the files opened without O_DIRECT: writes pass through it before
    /// they return.
    pub fn open_flags(&self, flags: i32) -> FopenFlags {
        if self.direct || flags & libc::O_DIRECT != 0 {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::empty()
        }
    }
}
