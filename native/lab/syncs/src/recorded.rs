//! The recorded folder, and who tells its recorder.

use diskproof_supervise::target::Descriptors;
use diskproof_wire::crash_log::{ACK_NAME, NOTE_SYNC};
use rustix::fs::{fstat, open, openat, syncfs, Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

pub struct Recorded {
    folder: OwnedFd,
    notes: OwnedFd,
    device: u64,
    descriptors: Descriptors,
}

impl Recorded {
    /// # Errors
    /// Nobody records it.
    pub fn open(folder: &Path) -> io::Result<Recorded> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder, flags, Mode::empty())?;
        let notes = openat(&folder, ACK_NAME, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        let device = fstat(&folder)?.st_dev;
        Ok(Recorded { folder, notes, device, descriptors: Descriptors::default() })
    }

    /// Whether a descriptor of a thread that waits is of a file in here.
    pub fn holds(&mut self, thread: u32, descriptor: RawFd) -> bool {
        let copy = self.descriptors.fetch(thread, descriptor);
        copy.and_then(|copy| Ok(fstat(&copy)?)).is_ok_and(|file| file.st_dev == self.device)
    }

    /// First comes to the recorder what was stored in mapped pages, which the kernel has; it hears
    /// nothing of the flush itself. A recorder that is gone needs no word of it.
    pub fn note_sync(&self, thread: u32) {
        let _ = syncfs(&self.folder);
        // SAFETY: the call reads one 32-bit number.
        unsafe {
            libc::ioctl(self.notes.as_raw_fd(), libc::c_ulong::from(NOTE_SYNC), &raw const thread)
        };
    }
}
