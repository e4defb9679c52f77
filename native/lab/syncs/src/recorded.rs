//! The recorded folder, and who tells its recorder.

use diskproof_supervise::target::Descriptors;
use diskproof_wire::crash_log::{ACK_NAME, NOTE_SYNC};
use rustix::fs::{fstat, open, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub struct Recorded {
    notes: OwnedFd,
    device: u64,
    descriptors: Descriptors,
}

impl Recorded {
    /// # Errors
    /// Nobody records it.
    pub fn open(folder: &Path) -> io::Result<Recorded> {
        let notes = open(folder.join(ACK_NAME), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        let device = fstat(&notes)?.st_dev;
        Ok(Recorded { notes, device, descriptors: Descriptors::default() })
    }

    /// Whether a descriptor of a thread that waits is of a file in here.
    pub fn holds(&mut self, thread: u32, descriptor: RawFd) -> bool {
        let copy = self.descriptors.fetch(thread, descriptor);
        copy.and_then(|copy| Ok(fstat(&copy)?)).is_ok_and(|file| file.st_dev == self.device)
    }

    /// First comes to the recorder what the process has stored in mapped pages. A recorder that is
    /// gone needs no word of it.
    pub fn note_sync(&self, thread: u32) {
        self.await_stores(thread);
        // SAFETY: the call reads one 32-bit number.
        unsafe {
            libc::ioctl(self.notes.as_raw_fd(), libc::c_ulong::from(NOTE_SYNC), &raw const thread)
        };
    }

    /// Of FUSE no sync waits for pages that are on their way: the close of a file does. What nobody
    /// has mapped any more has arrived.
    fn await_stores(&self, thread: u32) {
        let mapped = std::fs::read_dir(format!("/proc/{thread}/map_files"));
        let mapped = mapped.into_iter().flatten().flatten().map(|entry| entry.path());
        let is_here = |path: &PathBuf| path.metadata().is_ok_and(|file| file.dev() == self.device);
        mapped.filter(is_here).for_each(|path| drop(File::open(path)));
    }
}
