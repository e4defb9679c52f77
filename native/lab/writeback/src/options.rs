//! The command line.

use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

/// Run a command on a file system that commits, and writes back files of the command, between its
/// operations: as the kernel does by itself each few seconds, and as other programs make it do.
///
/// Nothing of the command is flushed for it: a commit is another file's, writeback is none. Its
/// exit code passes through.
#[derive(Debug, Parser)]
#[command(name = "diskproof-writeback", version)]
pub struct Options {
    /// The folder whose files are written back
    #[arg(long, value_name = "FOLDER")]
    pub folder: PathBuf,

    /// A file of the same file system, outside the folder: its flush is the commit
    #[arg(long, value_name = "FILE")]
    pub beside: PathBuf,

    /// When, and which files: the same for the same seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Milliseconds without an operation after which something is done all the same; of stores to
    /// mapped files nothing is heard
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=5000)
    )]
    pub pause: u64,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}
