//! The command line.

use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

/// Run a command in a folder that diskproof-recordfs records, and tell the recorder when the
/// command, or what it starts, calls sync(2) or syncfs(2): the kernel does not.
///
/// Where the kernel lets nobody watch system calls the command runs all the same, and that is said
/// on stderr. Its exit code passes through.
#[derive(Debug, Parser)]
#[command(name = "diskproof-syncs", version)]
pub struct Options {
    /// Where the folder is mounted
    #[arg(long, value_name = "MOUNTPOINT")]
    pub folder: PathBuf,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}
