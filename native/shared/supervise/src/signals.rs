//! Signals that a supervisor passes on to its command, read from a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

/// What users and systems send to a command, and the end of children.
const PASSED_ON: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
    Signal::CHILD,
];

/// Blocked signals of this thread and the threads started later; dropped, they stay blocked.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// One signal that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    pub signal: Signal,
    /// From the terminal: the command's process group, ours, has it already.
    pub from_terminal: bool,
}

impl Signals {
    /// To be called before any thread is started.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset and sigprocmask fill the sets they are given; the descriptor is new and ours.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Signals { fd: OwnedFd::from_raw_fd(fd), before: before.assume_init() }),
            }
        }
    }

    pub(crate) fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next signal that waits, if one does.
    pub fn read(&self) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel fills one whole record or none.
        let info = unsafe {
            let got = libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (usize::try_from(got) == Ok(size)).then(|| info.assume_init())?
        };
        let number = i32::try_from(info.ssi_signo).ok()?;
        let signal = PASSED_ON.into_iter().find(|signal| signal.as_raw() == number)?;
        Some(Arrived { signal, from_terminal: info.ssi_code == libc::SI_KERNEL })
    }
}

/// Readable while a signal waits.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
