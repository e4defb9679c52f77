//! The supervisor's end of a filter: calls come in, answers go out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::calls::{Call, X32_BIT};
use crate::error::StartError;
use crate::filter::{AUDIT_ARCH_I386, AUDIT_ARCH_X86_64};

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;
const ADD_DESCRIPTOR: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// Since 6.6: the caller and we take turns on one CPU instead of waking another.
const SYNC_WAKE_UP: libc::c_ulong = 1;
const CONTINUE: u32 = 1;
const ADD_AND_SEND: u32 = 2;

/// A call that waits for its answer; the layout is the kernel's `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Notification {
    pub id: u64,
    /// The calling thread, in our process namespace; 0 when it has no number there.
    pub thread: u32,
    flags: u32,
    pub number: u32,
    pub arch: u32,
    pub instruction: u64,
    /// As they were in the registers: pointers may change their target at any time.
    pub arguments: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    ours: u32,
    theirs: u32,
    theirs_flags: u32,
}

impl Notification {
    /// Whether this is that call, in whichever table.
    pub fn is(&self, call: &Call) -> bool {
        match self.arch {
            AUDIT_ARCH_X86_64 if self.number & X32_BIT == 0 => self.number == call.x86_64,
            AUDIT_ARCH_X86_64 => call.x32 == Some(self.number & !X32_BIT),
            AUDIT_ARCH_I386 => call.i386 == Some(self.number),
            _ => false,
        }
    }

    pub fn is_64_bit(&self) -> bool {
        self.arch == AUDIT_ARCH_X86_64 && self.number & X32_BIT == 0
    }
}

/// What the caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Value(i64),
    /// An error number, positive.
    Error(i32),
    /// The kernel runs the call as it is.
    Continue,
}

/// What ended a [`Listener::receive`].
#[derive(Debug)]
pub enum Received {
    Call(Notification),
    /// The last process under the filter has ended.
    Nobody,
    /// `wake` became readable.
    Woken,
    Timeout,
}

pub struct Listener {
    fd: OwnedFd,
}

/// Readable while a call waits; hung up when all callers have ended.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd) -> Result<Listener, StartError> {
        let mut sizes = [0_u16; 3];
        // SAFETY: the kernel fills three 16-bit sizes.
        let failed = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, sizes.as_mut_ptr())
                != 0
        };
        if failed || usize::from(sizes[0]) != size_of::<Notification>() {
            return Err(StartError::Forbidden(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        // SAFETY: a flag word; kernels that do not know it refuse it.
        unsafe { libc::ioctl(fd.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        Ok(Listener { fd })
    }

    /// Wait for a call, for the end of all callers, or for `wake`. May be called by several threads
    /// at once.
    ///
    /// # Errors
    /// Unexpected ones of the kernel only.
    pub fn receive(
        &self,
        wake: Option<BorrowedFd>,
        timeout: Option<Duration>,
    ) -> io::Result<Received> {
        let timeout = timeout.map(|limit| {
            Timespec::try_from(limit)
                .unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 })
        });
        loop {
            let ours = PollFd::new(&self.fd, PollFlags::IN);
            let mut both =
                [ours, PollFd::from_borrowed_fd(wake.unwrap_or(self.fd.as_fd()), PollFlags::IN)];
            let watched = if wake.is_some() { &mut both[..] } else { &mut both[..1] };
            match poll(watched, timeout.as_ref()) {
                Ok(0) => return Ok(Received::Timeout),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let seen = watched[0].revents();
            if seen.contains(PollFlags::IN) {
                if let Some(notification) = self.take()? {
                    return Ok(Received::Call(notification));
                }
            } else if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
                return Ok(Received::Nobody);
            } else if watched.get(1).is_some_and(|wake| !wake.revents().is_empty()) {
                return Ok(Received::Woken);
            }
        }
    }

    /// The call that waits; blocks when there is none. None when the caller has gone or a signal
    /// came.
    ///
    /// # Errors
    /// ENOTCONN when all callers have ended.
    fn take(&self) -> io::Result<Option<Notification>> {
        let mut notification = Notification::default();
        // SAFETY: the size was compared with the kernel's when the listener was made.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), RECEIVE, &raw mut notification) };
        if done == 0 {
            return Ok(Some(notification));
        }
        match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            error => Err(error),
        }
    }

    /// Whether the caller still waits. What was read of it before is then its own, and not that of
    /// a process which got its number.
    pub fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the kernel reads eight bytes.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), ID_VALID, &raw const id) == 0 }
    }

    /// Answer a call; false when the caller has gone.
    pub fn answer(&self, id: u64, answer: Answer) -> bool {
        let response = match answer {
            Answer::Value(value) => Response { id, value, error: 0, flags: 0 },
            Answer::Error(number) => Response { id, value: 0, error: -number, flags: 0 },
            Answer::Continue => Response { id, value: 0, error: 0, flags: CONTINUE },
        };
        // SAFETY: the layout is the kernel's, in no version longer than this.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), SEND, &raw const response) == 0 }
    }

    /// Give the caller a copy of our descriptor (close-on-exec) as the value of its call.
    ///
    /// # Errors
    /// The caller has gone, has no descriptor left, or the kernel is older than 5.14. The call is
    /// not answered then.
    pub fn answer_with_descriptor(&self, id: u64, ours: BorrowedFd) -> io::Result<()> {
        let add = AddDescriptor {
            id,
            flags: ADD_AND_SEND,
            ours: ours.as_raw_fd() as u32,
            theirs: 0,
            theirs_flags: libc::O_CLOEXEC as u32,
        };
        // SAFETY: the layout is the kernel's first version, which its number names.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), ADD_DESCRIPTOR, &raw const add) };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}
