//! Programs that are started: in a process group of their own, and ended with us.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use diskproof_rights::{keep, CapabilitySet};
use rustix::io::{fcntl_setfd, FdFlags};

use crate::request::Confined;

/// What is kept of a program's output.
const MAX_OUTPUT: u64 = 64 << 10;

/// How programs are started that read what a crash left of somebody's disk.
pub struct Readers {
    confined: Option<Vec<String>>,
    folder: PathBuf,
}

impl Readers {
    /// `folder` is where they work, and all that they get to see if they are confined.
    pub fn new(confined: Option<&Confined>, folder: &Path) -> Readers {
        Readers { confined: confined.map(|how| how.argv.clone()), folder: folder.to_owned() }
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = match &self.confined {
            Some(argv) => {
                let mut command = Command::new(&argv[0]);
                let parent = std::process::id().to_string();
                command.args(&argv[1..]).args(["--parent", &parent, "--", program]);
                command
            }
            None => {
                let mut command = Command::new(program);
                // SAFETY: only system calls are made between fork and exec.
                unsafe { command.pre_exec(|| keep(CapabilitySet::empty())) };
                command
            }
        };
        command.current_dir(&self.folder);
        command
    }
}

/// Ended, with all that it started, when dropped. Start it from a thread that lives as long as it
/// shall.
pub struct Program(Child);

impl Program {
    pub fn start(command: &mut Command) -> io::Result<Program> {
        let parent = std::process::id();
        // SAFETY: only system calls are made between fork and exec.
        unsafe { command.process_group(0).pre_exec(move || die_with(parent)) };
        command.spawn().map(Program)
    }

    /// Start it with a descriptor that it finds at the same number; nobody else gets it.
    pub fn start_with(command: &mut Command, handed: OwnedFd) -> io::Result<Program> {
        let hand_over = move || Ok(fcntl_setfd(&handed, FdFlags::empty())?);
        // SAFETY: only a system call is made between fork and exec.
        unsafe { command.pre_exec(hand_over) };
        Program::start(command)
    }

    /// Start it in a folder of a file system that this process serves. The child lets go of its end
    /// of that file system before it enters: while anybody has that open, what the child asks there
    /// waits for an answer, also of the dead.
    pub fn start_in(command: &mut Command, folder: &Path) -> io::Result<Program> {
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let (parent, served) = (std::process::id(), find_served()?);
        let enter = move || {
            die_with(parent)?;
            for &descriptor in &served {
                // SAFETY: nothing in this child uses it any more.
                unsafe { libc::close(descriptor) };
            }
            rustix::process::chdir(folder.as_c_str()).map_err(io::Error::from)
        };
        // SAFETY: as above.
        unsafe { command.process_group(0).pre_exec(enter) };
        command.spawn().map(Program)
    }

    /// Its ends of the pipes that it was started with.
    pub fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.0.stdin.take(), self.0.stdout.take(), self.0.stderr.take())
    }

    /// How it ended; None when it has not by then.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        wait_until(&mut self.0, Instant::now() + limit)
    }

    /// Whether it is no more; what has closed its streams gets a moment to end.
    pub fn has_ended(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(2);
        !matches!(wait_until(&mut self.0, deadline), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: kill has no memory to harm; the group is the child's own, which is not yet waited
        // for or was just now.
        unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// Our ends of file systems that we serve.
fn find_served() -> io::Result<Vec<RawFd>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        // One of another thread's may be closed meanwhile.
        if std::fs::read_link(&path).is_ok_and(|target| target == Path::new("/dev/fuse")) {
            found.extend(path.file_name().and_then(|name| name.to_str()?.parse::<RawFd>().ok()));
        }
    }
    Ok(found)
}

/// Have the kernel kill this child of `parent` when that dies; fails when it has died.
fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: plain system calls.
    let (asked, now) = unsafe {
        (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid().unsigned_abs())
    };
    match asked {
        0 if now == parent => Ok(()),
        0 => Err(io::ErrorKind::BrokenPipe.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The signals that a program brings upon itself; by others (SIGKILL, SIGTERM) somebody ended it.
const CRASHES: [(i32, &str); 6] = [
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGTRAP, "SIGTRAP"),
];

/// How a program ended, and what it said.
pub struct Ended {
    /// None: it took too long and was killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The signal of a program that crashed: it was shown a state that it cannot bear.
    fn crash(&self) -> Option<&'static str> {
        let signal = self.status?.signal()?;
        CRASHES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
    }

    /// All that it said, after the signal that it crashed with; and whether it crashed.
    pub fn said(&self) -> (String, bool) {
        let crash = self.crash().map(|name| format!("the check crashed with {name}"));
        let parts = [crash.as_deref().unwrap_or(""), self.stdout.trim(), self.stderr.trim()];
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        (parts.join("\n"), crash.is_some())
    }
}

/// Runs a program to its end, in a folder that we serve if one is given; kills it, and what it
/// started, when that takes too long.
pub fn run(command: &mut Command, served: Option<&Path>, limit: Duration) -> io::Result<Ended> {
    let deadline = Instant::now() + limit;
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = match served {
        Some(folder) => Program::start_in(command, folder)?,
        None => Program::start(command)?,
    };
    let (_, stdout, stderr) = program.streams();
    let (stdout, stderr) = (keep_front(stdout)?, keep_front(stderr)?);
    // Both pipes are closed when nobody is left who could write into them.
    let rest = || deadline.saturating_duration_since(Instant::now());
    let said = stdout.recv_timeout(rest()).and_then(|out| Ok((out, stderr.recv_timeout(rest())?)));
    match said {
        Ok((stdout, stderr)) => {
            let status = wait_until(&mut program.0, deadline)?;
            Ok(Ended { status, stdout, stderr })
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Ok(Ended { status: None, stdout: String::new(), stderr: String::new() })
        }
    }
}

/// Reads a pipe to its end in a thread, and keeps the front.
pub fn keep_front(pipe: Option<impl Read + Send + 'static>) -> io::Result<Receiver<String>> {
    let (tell, told) = channel();
    std::thread::Builder::new().name("output".into()).spawn(move || {
        let mut front = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut front);
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
        let _ = tell.send(String::from_utf8_lossy(&front).into_owned());
    })?;
    Ok(told)
}

/// Its output is closed, so it is about to end; what closes its output early has until the
/// deadline.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    use rustix::process::{pidfd_open, Pid, PidfdFlags};
    let pid = Pid::from_child(child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&left))?;
    child.try_wait()
}
