//! Run a program that can open the files it was given and no others.
//!
//! The kernel's Landlock does it (landlock(7)): it needs no privileges, holds for all children and
//! cannot be taken off. Descriptors that are open already stay usable: they are given on purpose.

#![forbid(unsafe_code)]

mod cage;

use cage::{Cage, Trouble};
use clap::Parser;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const HOST_CANNOT: u8 = 3;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run a program that can open the files it was given and no others.
///
/// A folder stands for all below it. Paths that are not there are passed over. The exit status is
/// the program's; 3 when this kernel cannot confine it, 126 and 127 when it cannot be started.
#[derive(Parser)]
#[command(name = "diskproof-confine", version)]
#[command(after_help = "Example: diskproof-confine --read /usr --read /lib64 --write . -- ls /etc")]
struct Options {
    /// What may be read, listed and executed
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// What may be written, made and removed as well
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// A file that must be out of reach then: proof that the cage holds
    #[arg(long, value_name = "PATH")]
    prove: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let Options { read, write, prove, command } = Options::parse();
    let entered = Cage { read, write }.enter().and_then(|()| cage::require_closed(prove));
    match entered {
        Ok(()) => become_command(&command),
        Err(trouble) => complain(&trouble),
    }
}

fn complain(trouble: &Trouble) -> ExitCode {
    eprintln!("diskproof-confine: {trouble}");
    ExitCode::from(HOST_CANNOT)
}

/// Comes back only when the program cannot be started.
fn become_command(command: &[OsString]) -> ExitCode {
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    eprintln!("diskproof-confine: {}: {error}", command[0].to_string_lossy());
    ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}
