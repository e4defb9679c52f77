//! The command's process and its end.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use diskproof_session::Signals;
use diskproof_words::plain_reason;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::{recv, RecvFlags};
use rustix::process::{getpid, kill_process, waitpid, Pid, Signal, WaitOptions, WaitStatus};

/// A started command. Dropped, it goes on running.
pub struct Child {
    pid: Pid,
    /// Closed by a successful exec; else it brings the reason.
    socket: OwnedFd,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// As a shell shows it: 128 + signal; 126 or 127 when it could not be executed.
    pub code: u8,
    /// Why it could not be executed.
    pub exec_error: Option<io::Error>,
}

/// The exit code of a tool whose only task is its command; why that was not run is told on stderr.
/// 125 is for the tool's own failures, as env(1) and its like have it.
pub fn tell_end(tool: &str, program: &OsStr, ended: Result<Ended, String>) -> ExitCode {
    match ended {
        Ok(ended) => {
            if let Some(error) = &ended.exec_error {
                let program = program.to_string_lossy();
                eprintln!("{tool}: {program} cannot be run: {}", plain_reason(error));
            }
            ExitCode::from(ended.code)
        }
        Err(why) => {
            eprintln!("{tool}: {why}");
            ExitCode::from(125)
        }
    }
}

impl Child {
    pub(crate) fn new(pid: Pid, socket: OwnedFd) -> Child {
        Child { pid, socket }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Wait for its end.
    ///
    /// # Errors
    /// When it was waited for already.
    pub fn wait(&self) -> io::Result<Ended> {
        let status = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        status.map(|(_, status)| self.ended(status)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Its end, if it has ended.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn try_wait(&self) -> io::Result<Option<Ended>> {
        let status = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::NOHANG))?;
        Ok(status.map(|(_, status)| self.ended(status)))
    }

    /// Passes on what has arrived and the terminal has not told it itself; stops with it. Its end,
    /// if that was told.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn attend(&self, signals: &Signals) -> io::Result<Option<Ended>> {
        while let Some(arrived) = signals.read() {
            if arrived.signal == Signal::CHILD {
                if let Some(ended) = self.try_wait()? {
                    return Ok(Some(ended));
                }
            } else if !arrived.from_terminal {
                let _ = self.signal(arrived.signal); // a set-user-ID program's refusal is its own
            }
            if arrived.signal == Signal::TSTP {
                let _ = kill_process(getpid(), Signal::STOP);
            }
        }
        Ok(None)
    }

    /// The same until its end.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn attend_to_end(&self, signals: &Signals) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.attend(signals)? {
                return Ok(ended);
            }
            rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(signals, PollFlags::IN)], None))?;
        }
    }

    /// What a status from a wait of your own means.
    pub fn ended(&self, status: WaitStatus) -> Ended {
        let code = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
        Ended {
            code: u8::try_from(code.unwrap_or(255)).unwrap_or(255),
            exec_error: self.exec_error(),
        }
    }

    /// Pass a signal on. One that has just ended is no error.
    ///
    /// # Errors
    /// When we may not: a set-user-ID program.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match kill_process(self.pid, signal) {
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn exec_error(&self) -> Option<io::Error> {
        let mut word = [0; size_of::<i32>()];
        let (_, got) = recv(&self.socket, &mut word, RecvFlags::DONTWAIT).ok()?;
        (got == word.len()).then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(word)))
    }

    /// It has told that it gives up, or is gone: it ends by itself.
    pub(crate) fn reap_failed(&self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.wait();
    }
}
