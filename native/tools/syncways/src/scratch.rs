//! A file that only its open descriptor knows: nothing is left behind, whatever ends us.

use crate::proof::{count_unsynced, Proof};
use crate::Failure;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes written by each try: a few pages.
pub const LENGTH: usize = 16 << 10;

pub struct Scratch {
    path: CString,
    descriptor: Option<OwnedFd>,
    /// Pages not on the disk right before the sync; None where the write is the sync.
    pub before: Option<u64>,
}

impl Scratch {
    /// Names a file that does not exist yet.
    pub fn name(folder: &Path) -> Result<Scratch, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let name = format!(".diskproof-sync-ways-{}-{now}", std::process::id());
        let path = CString::new(folder.join(name).as_os_str().as_bytes())
            .map_err(|_| Failure { call: "open", errno: libc::EINVAL })?;
        Ok(Scratch { path, descriptor: None, before: None })
    }

    pub fn path(&self) -> &CString {
        &self.path
    }

    /// Takes the result of a C function that opened the path; the name goes at once.
    pub fn adopt(&mut self, call: &'static str, opened: RawFd) -> Result<(), Failure> {
        if opened < 0 {
            return Err(Failure::last(call));
        }
        // SAFETY: a descriptor that was just opened and that nobody else owns.
        self.descriptor = Some(unsafe { OwnedFd::from_raw_fd(opened) });
        // SAFETY: a string that ends with a zero.
        match unsafe { libc::unlink(self.path.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Failure::last("unlink")),
        }
    }

    pub fn create(&mut self) -> Result<(), Failure> {
        // SAFETY: a string that ends with a zero, and a mode as O_CREAT needs it.
        let opened = unsafe { libc::open(self.path.as_ptr(), CREATE, 0o600_u32) };
        self.adopt("open", opened)
    }

    pub fn fd(&self) -> Result<RawFd, Failure> {
        let opened = self.descriptor.as_ref().map(AsRawFd::as_raw_fd);
        opened.ok_or(Failure { call: "open", errno: libc::EBADF })
    }

    pub fn write(&self) -> Result<(), Failure> {
        let bytes = [b'x'; LENGTH];
        // SAFETY: the buffer has LENGTH bytes.
        let written = unsafe { libc::pwrite(self.fd()?, bytes.as_ptr().cast(), LENGTH, 0) };
        expect_length("pwrite", written)
    }

    /// A new file with pages that are not on the disk yet.
    pub fn create_dirty(&mut self) -> Result<(), Failure> {
        self.create()?;
        self.write()?;
        self.note_before()
    }

    pub fn note_before(&mut self) -> Result<(), Failure> {
        self.before = Some(self.look()?.1);
        Ok(())
    }

    /// Pages that are not on the disk now, and how that is known.
    pub fn look(&self) -> Result<(Proof, u64), Failure> {
        // SAFETY: the descriptor is open as long as we are.
        let borrowed = unsafe { BorrowedFd::borrow_raw(self.fd()?) };
        count_unsynced(borrowed.as_fd())
    }
}

pub const CREATE: libc::c_int = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;

/// All of what was to be written, or the reason why not.
pub fn expect_length(call: &'static str, written: isize) -> Result<(), Failure> {
    match usize::try_from(written) {
        Ok(LENGTH) => Ok(()),
        Ok(_) => Err(Failure { call, errno: libc::ENOSPC }),
        Err(_) => Err(Failure::last(call)),
    }
}

/// Success of a call that answers with 0.
pub fn expect_zero(call: &'static str, answer: libc::c_int) -> Result<(), Failure> {
    match answer {
        0 => Ok(()),
        _ => Err(Failure::last(call)),
    }
}
