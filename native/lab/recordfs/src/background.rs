//! How the command returns once the mount is there.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::pipe::{pipe_with, PipeFlags};

/// What waits for the mount: the reader of our output, or the command that started us.
pub enum Starter {
    Foreground,
    Command(File),
}

impl Starter {
    /// In the background this returns in a child; the command itself ends when the child is ready
    /// or dead. Call while there is one thread.
    pub fn begin(foreground: bool) -> io::Result<Starter> {
        if foreground {
            return Ok(Starter::Foreground);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: we have one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                rustix::process::setsid()?;
                Ok(Starter::Command(write.into()))
            }
            _ => {
                drop(write);
                let ready = File::from(read).read(&mut [0])? == 1;
                std::process::exit(if ready { 0 } else { 1 });
            }
        }
    }

    /// The mount is there.
    pub fn ready(self) -> io::Result<()> {
        match self {
            Starter::Foreground => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(b"{\"type\":\"ready\",\"protocol\":1}\n")?;
                stdout.flush()
            }
            Starter::Command(mut pipe) => {
                diskproof_session::release_streams();
                pipe.write_all(b"!")
            }
        }
    }
}
