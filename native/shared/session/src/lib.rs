//! Signals that are waited for along with everything else, the streams of a process that stays
//! behind, and the files that were installed with it.

mod early;

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{kill_process, Pid, Signal};

pub use early::{begin, take_over};

/// Where parts lie that nobody starts, seen from the folder of the programs.
const PARTS: &str = "../libexec/diskproof";

/// A file that was installed with this program, or was just built beside it.
#[must_use]
pub fn find_part(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let beside = [Some(folder.join(name)), folder.join(PARTS).join(name).canonicalize().ok()];
    beside.into_iter().flatten().find(|path| path.is_file())
}

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
    /// From now on they interrupt nothing and are read here. To be called before any thread is
    /// started.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn block(signals: &[Signal]) -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset and sigprocmask fill the sets they are given; the descriptor is new
        // and ours.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            begin(signals);
            match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Signals { fd: OwnedFd::from_raw_fd(fd), before: before.assume_init() }),
            }
        }
    }

    /// The signals that were blocked before.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next signal, however long it takes.
    pub fn wait(&self) -> io::Result<Arrived> {
        loop {
            poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None)?;
            if let Some(arrived) = self.read() {
                return Ok(arrived);
            }
        }
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
        let signal = Signal::from_named_raw(i32::try_from(info.ssi_signo).ok()?)?;
        Some(Arrived { signal, from_terminal: info.ssi_code == libc::SI_KERNEL })
    }
}

/// Of a child that waits for that, with these signals blocked as here: it gets what came from the
/// terminal before it was there. During a fork the kernel gives what is for the group to both, and
/// what comes twice is one signal while it is blocked.
pub fn share_waiting(child: Pid) {
    let mut waiting = MaybeUninit::<libc::sigset_t>::uninit();
    for signal in [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TSTP] {
        // SAFETY: sigpending fills the set.
        let waits = unsafe {
            libc::sigpending(waiting.as_mut_ptr()) == 0
                && libc::sigismember(waiting.as_ptr(), signal.as_raw()) == 1
        };
        if waits {
            let _ = kill_process(child, signal);
        }
    }
}

/// Readable while a signal waits.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whoever reads our output to its end must not wait for this process.
pub fn release_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// A session of its own: a signal to our process group does not reach this process any more, nor
/// does anybody wait for its output.
pub fn stay_behind() {
    let _ = rustix::process::setsid();
    release_streams();
}
