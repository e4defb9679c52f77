//! Starts a command under a filter, its listener handed to us before the command runs.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::net::{
    recvmsg, send, socketpair, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::Pid;

use crate::error::StartError;
use crate::filter::Instruction;
use crate::listener::Listener;
use crate::wait::Child;
use diskproof_session::{share_waiting, Signals};

/// What to run: looked up in PATH, with our environment and the changes made here.
pub struct Command {
    argv: Vec<CString>,
    environment: Vec<(OsString, OsString)>,
    mask: Option<libc::sigset_t>,
    end_with_us: bool,
}

impl Command {
    /// # Errors
    /// No word, or one with a NUL byte.
    pub fn new(words: &[OsString]) -> Result<Command, StartError> {
        if words.is_empty() {
            return Err(StartError::NoCommand);
        }
        let argv = words.iter().map(|word| to_c(word)).collect::<Result<_, _>>()?;
        let environment = std::env::vars_os().collect();
        Ok(Command { argv, environment, mask: None, end_with_us: false })
    }

    pub fn set_variable(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        let name = name.into();
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, value.into()));
    }

    /// The command starts with the signal mask from before we blocked any.
    pub fn unblock(&mut self, signals: &Signals) {
        self.mask = Some(signals.mask_before());
    }

    /// The command is killed when the thread that starts it ends. Its own children are not.
    pub fn end_with_us(&mut self) {
        self.end_with_us = true;
    }

    fn environment(&self) -> Result<Vec<CString>, StartError> {
        let joined = self.environment.iter().map(|(name, value)| {
            let mut line = name.clone().into_vec();
            line.push(b'=');
            line.extend(value.as_bytes());
            CString::new(line).map_err(|_| StartError::NulByte)
        });
        joined.collect()
    }
}

fn to_c(word: &OsStr) -> Result<CString, StartError> {
    CString::new(word.as_bytes()).map_err(|_| StartError::NulByte)
}

/// Start the command under the filter. It runs at once; its first call that notifies waits for
/// [`Listener::receive`].
///
/// Filters need no_new_privs unless we have CAP_SYS_ADMIN; only then set-user-ID programs go on
/// working below it.
///
/// # Errors
/// When the kernel or a surrounding sandbox forbids the filter, or no process can be made. A
/// program that cannot be executed is no error here: its [`Child::wait`] says so, with code 126 or
/// 127.
pub fn start(command: &Command, program: &[Instruction]) -> Result<(Child, Listener), StartError> {
    let (ours, theirs) = pair()?;
    let (pid, ours) = fork(command, Some(program), ours, theirs)?;
    let child = Child::new(pid, ours);
    match receive_listener(&child) {
        Ok(listener) => Ok((child, listener)),
        Err(error) => {
            child.reap_failed();
            Err(error)
        }
    }
}

/// Start the command without any filter.
///
/// # Errors
/// When no process can be made.
pub fn start_plain(command: &Command) -> Result<Child, StartError> {
    let (ours, theirs) = pair()?;
    let (pid, ours) = fork(command, None, ours, theirs)?;
    Ok(Child::new(pid, ours))
}

fn pair() -> Result<(OwnedFd, OwnedFd), StartError> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| StartError::System("socketpair", error.into()))
}

/// Everything the child needs is made before the fork: there it may not allocate.
fn fork(
    command: &Command,
    program: Option<&[Instruction]>,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(Pid, OwnedFd), StartError> {
    let environment = command.environment()?;
    let pointers = |strings: &[CString]| {
        let each = strings.iter().map(|string| string.as_ptr());
        each.chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv, envp) = (pointers(&command.argv), pointers(&environment));
    let as_filter = |program: &[Instruction]| match u16::try_from(program.len()) {
        Ok(len) => Ok(libc::sock_fprog { len, filter: program.as_ptr().cast_mut() }),
        Err(_) => Err(StartError::System("seccomp", io::ErrorKind::InvalidInput.into())),
    };
    let filter = program.map(as_filter).transpose()?;
    let plan = Plan {
        socket: theirs.as_raw_fd(),
        filter,
        mask: command.mask,
        end_with_us: command.end_with_us.then(std::process::id),
    };
    // SAFETY: the child only makes async-signal-safe calls on memory prepared above, then executes
    // or exits.
    match unsafe { libc::fork() } {
        -1 => Err(StartError::System("fork", io::Error::last_os_error())),
        pid => match Pid::from_raw(pid) {
            None => {
                drop(ours); // else we would wait for ourselves
                plan.become_command(&argv, &envp)
            }
            Some(pid) => {
                share_waiting(pid);
                send(&ours, &[0], SendFlags::NOSIGNAL)
                    .map_err(|error| StartError::System("send", error.into()))?;
                Ok((pid, ours))
            }
        },
    }
}

/// What the child does between fork and exec.
struct Plan {
    socket: RawFd,
    filter: Option<libc::sock_fprog>,
    mask: Option<libc::sigset_t>,
    /// The process that has to be alive.
    end_with_us: Option<u32>,
}

impl Plan {
    fn become_command(&self, argv: &[*const libc::c_char], envp: &[*const libc::c_char]) -> ! {
        // SAFETY: both arrays end with a null pointer and outlive the call; a child of fork may
        // call all of these.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            if let Some(parent) = self.end_with_us {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
            }
            let mut word = 0_u8;
            if libc::recv(self.socket, (&raw mut word).cast(), 1, 0) != 1 {
                libc::_exit(1);
            }
            if let Some(filter) = &self.filter {
                match install(filter) {
                    Ok(listener) => tell(self.socket, 0, Some(listener)),
                    Err(errno) => {
                        tell(self.socket, errno, None);
                        libc::_exit(1);
                    }
                }
            }
            // Whoever waits for the listener has it: now a signal may end us.
            if let Some(mask) = &self.mask {
                libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
            }
            libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr());
            let errno = *libc::__errno_location();
            tell(self.socket, errno, None);
            libc::_exit(if matches!(errno, libc::ENOENT | libc::ENOTDIR) { 127 } else { 126 });
        }
    }
}

/// Since 5.19: once its notification is received, a caller is interrupted by fatal signals only.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// The listener's descriptor, or the error number.
///
/// # Safety
/// The filter's pointer is valid for its length.
unsafe fn install(filter: &libc::sock_fprog) -> Result<RawFd, i32> {
    let attempt = |more: libc::c_ulong| {
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | more;
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the kernel reads the filter only during the call.
        let fd = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, filter) };
        // SAFETY: errno is this thread's.
        RawFd::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .ok_or_else(|| unsafe { *libc::__errno_location() })
    };
    let any_kernel = || match attempt(WAIT_KILLABLE) {
        Err(libc::EINVAL) => attempt(0),
        other => other,
    };
    match any_kernel() {
        Err(libc::EACCES) => {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            any_kernel()
        }
        other => other,
    }
}

/// One message: an error number, or 0 and a descriptor.
///
/// # Safety
/// Only async-signal-safe calls: may run in a child of fork.
unsafe fn tell(socket: RawFd, errno: i32, descriptor: Option<RawFd>) {
    let mut word = errno;
    let mut part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<i32>() };
    let mut control = [0_u64; 4];
    // SAFETY: all-zero is a valid msghdr; the control block is aligned and larger than one
    // descriptor needs.
    unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        }
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL);
    }
}

fn receive_listener(child: &Child) -> Result<Listener, StartError> {
    let mut word = [0_u8; size_of::<i32>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(child.socket(), &mut [IoSliceMut::new(&mut word)], &mut control, flags)
    })
    .map_err(|error| StartError::System("recvmsg", error.into()))?;
    if received.bytes != word.len() {
        return Err(StartError::System("recvmsg", io::ErrorKind::UnexpectedEof.into()));
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match (i32::from_ne_bytes(word), descriptor) {
        (0, Some(descriptor)) => Listener::new(descriptor),
        (0, None) => Err(StartError::System("recvmsg", io::ErrorKind::InvalidData.into())),
        (errno, _) => Err(StartError::Forbidden(io::Error::from_raw_os_error(errno))),
    }
}
