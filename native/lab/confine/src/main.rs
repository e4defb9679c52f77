//! Run a program between walls: with the files it was given and no others, as a user without
//! rights, without the system calls that only an attacker would need, and with bounds.
//!
//! The kernel builds them (landlock(7), capabilities(7), seccomp(2), setrlimit(2)): they hold for
//! all children and cannot be taken off. Descriptors that are open already stay usable: they are
//! given on purpose.

#![forbid(unsafe_code)]

mod cage;
mod filter;
mod user;

use cage::{Cage, Trouble};
use clap::Parser;
use filter::Allowed;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use user::Limit;

/// In the environment of what can open the files it was given and no others, which was tried.
const MARK: &str = "DISKPROOF_FILES";
const ORPHANED: u8 = 1;
const HOST_CANNOT: u8 = 3;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run a program that can open the files it was given and no others.
///
/// It cannot gain rights, its files are its user's alone, and system calls that measuring does not
/// need are refused. A folder stands for all below it. Paths that are not there are passed over.
/// The exit status is the program's; 3 when this kernel cannot confine it, 126 and 127 when it
/// cannot be started, 1 when the parent is gone.
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
    /// All files that its user can open
    #[arg(long, conflicts_with_all = ["read", "write", "prove"])]
    any_file: bool,
    /// A file that must be out of reach then: proof that the cage holds
    #[arg(long, value_name = "PATH")]
    prove: Option<PathBuf>,
    /// Become that user and group, without capabilities; for root
    #[arg(long, value_name = "NUMBER")]
    user: Option<u32>,
    /// A further group of that user
    #[arg(long, value_name = "NUMBER", requires = "user")]
    group: Vec<u32>,
    /// A bound, in bytes, seconds or pieces: as, core, cpu, data, fsize, memlock, nofile, nproc
    #[arg(long, value_name = "NAME=NUMBER")]
    limit: Vec<Limit>,
    /// No further process may be started, threads may
    #[arg(long)]
    no_spawn: bool,
    /// It may choose its processors and its priority
    #[arg(long)]
    may_schedule: bool,
    /// Start only as a child of that process, and be killed when it ends
    #[arg(long, value_name = "PID")]
    parent: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let entered = enter(&options);
    match entered {
        Ok(true) => become_command(&options),
        Ok(false) => ExitCode::from(ORPHANED),
        Err(trouble) => complain(&trouble),
    }
}

/// Files are looked up with the rights that we come with; the filter is last, for it denies what
/// the other walls are made with. Tells whether there still is a parent to run for.
fn enter(options: &Options) -> Result<bool, Trouble> {
    user::keep_to_itself().map_err(Trouble::System)?;
    options.limit.iter().try_for_each(|limit| limit.enter()).map_err(Trouble::System)?;
    if !options.any_file {
        Cage { read: &options.read, write: &options.write }.enter()?;
        cage::require_closed(options.prove.as_deref())?;
    }
    if let Some(number) = options.user {
        user::become_user(number, &options.group).map_err(Trouble::System)?;
        if !user::is_powerless().map_err(Trouble::System)? {
            return Err(Trouble::Powerful);
        }
    }
    let wanted = options.parent.map_or(Ok(true), user::end_with).map_err(Trouble::System)?;
    let allowed = Allowed { spawning: !options.no_spawn, scheduling: options.may_schedule };
    filter::enter(allowed).map_err(Trouble::Filter)?;
    Ok(wanted)
}

fn complain(trouble: &Trouble) -> ExitCode {
    eprintln!("diskproof-confine: {trouble}");
    ExitCode::from(HOST_CANNOT)
}

/// Comes back only when the program cannot be started.
fn become_command(options: &Options) -> ExitCode {
    let command = &options.command;
    let mut program = Command::new(&command[0]);
    if !options.any_file && options.prove.is_some() {
        program.env(MARK, "proved"); // /proc tells of every other wall
    }
    let error = program.args(&command[1..]).exec();
    eprintln!("diskproof-confine: {}: {error}", command[0].to_string_lossy());
    ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}
