//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  diskproof sync drop -- apt-get install -y postgresql     install without waiting for the disk
  diskproof sync drop --only /var/lib/pg -- ./test-suite   only what lies below that folder
  diskproof sync drop --after 100 -- ./server              the first 100 syncs are real
  diskproof sync drop --toggle /run/fast -- ./server       drops while /run/fast exists
  diskproof sync drop --preload -- make check              where seccomp is not allowed
  diskproof sync drop --check                              what is stopped here, each way proved

Exit code: the command's own (128 + signal; 126 not executable, 127 not found); 2 wrong usage; 3 seccomp is
not allowed here. A crash or power cut while it runs loses or corrupts what the command writes.";

/// Run a command whose syncs cost nothing and keep nothing.
#[derive(Parser)]
#[command(name = "diskproof-sync-drop", version, after_help = EXAMPLES)]
pub struct Options {
    /// Only with LD_PRELOAD, without a seccomp filter: static, Go and 32-bit programs are not
    /// covered
    #[arg(long)]
    pub preload: bool,
    /// Hide io_uring from the command, and refuse (EPERM) what can be neither dropped nor seen
    /// through
    #[arg(long, conflicts_with = "preload")]
    pub strict: bool,
    /// Let the first N syncs through
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub after: i64,
    /// Drop only syncs of files below this folder (may be given again); sync(2) is real then
    #[arg(long, value_name = "PATH", conflicts_with = "preload")]
    pub only: Vec<PathBuf>,
    /// Drop only while this file exists
    #[arg(long, value_name = "FILE")]
    pub toggle: Option<PathBuf>,
    /// Say nothing on stderr unless something fails
    #[arg(long)]
    pub quiet: bool,
    /// Counts as a line of JSON to a file, or to stdout with -
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Try every known way to force data to disk, and show which are stopped
    #[arg(long, conflicts_with = "command")]
    pub check: bool,
    /// Where --check tries: a folder on the file system in question [default: /var/tmp]
    #[arg(long, value_name = "FOLDER", requires = "check", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "check")]
    pub command: Vec<OsString>,
}
