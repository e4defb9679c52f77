//! Why a command could not be started under a filter.

use std::fmt;
use std::io;

#[derive(Debug)]
pub enum StartError {
    NoCommand,
    NulByte,
    /// The kernel, or a sandbox around us, refused the filter or its listener.
    Forbidden(io::Error),
    /// A system call that ought to work did not.
    System(&'static str, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            StartError::NoCommand => write!(f, "no command is given"),
            StartError::NulByte => write!(f, "the command holds a NUL byte"),
            StartError::Forbidden(error) => {
                write!(f, "no seccomp filter can be set here: {}", why(error))
            }
            StartError::System(call, error) => write!(f, "{call}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "another supervisor listens already (sync drop in sync drop, or a container that \
                              watches system calls)"
                .into()
        }
        Some(libc::EPERM | libc::EACCES) => "a sandbox around us forbids it (container?)".into(),
        Some(libc::EINVAL | libc::ENOSYS) => {
            "the kernel has no seccomp user notification (it is there since 5.0)".into()
        }
        _ => error.to_string(),
    }
}
