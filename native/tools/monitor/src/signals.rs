//! Signals as something that can be waited for along with everything else.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// SIGINT or SIGTERM, by number.
    End(i32),
    /// SIGWINCH
    Resized,
}

pub struct Signals {
    pub fd: OwnedFd,
}

impl Signals {
    /// From now on SIGINT, SIGTERM and SIGWINCH interrupt nothing and are only told here.
    pub fn catch() -> io::Result<Signals> {
        // SAFETY: the set is initialised by sigemptyset before any other use, and outlives the calls.
        let raw = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGWINCH] {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// The next one that has arrived.
    pub fn next(&self) -> Option<Notice> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut info).ok()?;
        if read < info.len() {
            return None;
        }
        // The number is the record's first field.
        match i32::from_ne_bytes([info[0], info[1], info[2], info[3]]) {
            libc::SIGWINCH => Some(Notice::Resized),
            signal => Some(Notice::End(signal)),
        }
    }
}
